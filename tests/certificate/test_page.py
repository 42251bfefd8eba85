"""A certificate as a page: complete in itself, and drawn whatever the costs are."""

from __future__ import annotations

import re

import numpy as np
import pytest

from slsac.certificate.page import html_page, ticks
from tests.support.certificates import certificate_of, with_bounds, with_small_costs


@pytest.mark.parametrize("algo", ["sl-sac", "sac-lag"])
def test_the_page_needs_nothing_else(algo: str) -> None:
    certificate = certificate_of(algo)
    page = html_page(certificate, np.zeros(3))
    assert certificate.verdict.sentence in page
    for outside in ("http", "<script", "src=", "url(", "@import"):
        assert outside not in page


def test_costs_below_a_small_limit_are_told_apart() -> None:
    page = html_page(with_small_costs(certificate_of("sl-sac")), np.zeros(3))
    assert "<td>0.04</td><td>0.02 to 0.06</td><td>0.12</td>" in page


def test_bounds_are_rounded_outwards_and_the_confidence_is_not() -> None:
    page = html_page(with_bounds(certificate_of("sl-sac")), np.zeros(3))
    assert "at least 1.02 % and at most <strong>1.49 %</strong>, each with 99.999999 %" in page
    assert "<td>7.1</td>" in page


def test_signed_costs_are_drawn() -> None:
    # Ten bars of one episode each, below and above 0.
    page = html_page(certificate_of("sac-lag"), np.arange(-5.0, 5.0))
    histogram, _, _ = page.partition("</figure>")
    assert histogram.count("<rect") == 10


@pytest.mark.parametrize(
    ("steps", "largest", "row"),
    [
        (1000, 1000.0, "1000: 1000 steps of at most 1"),
        (1, 1.0, "1: one step, which ends the episode, of at most 1"),
        (1000, None, "unknown"),
    ],
)
def test_where_the_largest_cost_comes_from(steps: int, largest: float | None, row: str) -> None:
    certificate = certificate_of("sl-sac")
    protocol = certificate.protocol._replace(costly_steps=steps, largest_cost=largest)
    page = html_page(certificate._replace(protocol=protocol), np.zeros(3))
    assert f"<td>Largest possible cost</td><td>{row}</td>" in page


def test_the_axes_have_names_and_round_ticks() -> None:
    # Forty-one episodes of which the dearest cost 82: the axis ends at 88.56.
    page = html_page(certificate_of("sl-sac"), np.arange(0.0, 83.0, 2.0))
    histogram, reliability = re.findall(r"<figure.*?</figure>", page)
    assert re.findall(r'class="x-tick"[^>]*>([^<]+)', histogram) == ["0", "20", "40", "60", "80"]
    # Two episodes in a bar at most.
    assert re.findall(r'class="y-tick"[^>]*>([^<]+)', histogram) == ["0", "1", "2"]
    assert ">cost of an episode<" in histogram
    assert ">episodes<" in histogram
    quarters = ["0", "0.25", "0.5", "0.75", "1"]
    for axis in ("x", "y"):
        assert re.findall(rf'class="{axis}-tick"[^>]*>([^<]+)', reliability) == quarters
    assert ">predicted share<" in reliability
    assert ">observed share<" in reliability


def test_ticks_are_round_numbers_within_the_range() -> None:
    assert ticks(0.0, 27.0, 6) == [0, 5, 10, 15, 20, 25]
    assert ticks(-30.0, 27.0, 6) == [-30, -20, -10, 0, 10, 20]
    assert ticks(0.0, 0.1, 4) == pytest.approx([0, 0.05, 0.1])
