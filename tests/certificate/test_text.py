"""A certificate as plain text: the verdict first, and digits that tell costs apart."""

from __future__ import annotations

import pytest

from slsac.certificate.contents import NotCalibrated, TailAtLimit
from slsac.certificate.text import plain_text
from tests.support.certificates import certificate_of, with_bounds, with_small_costs


def test_the_verdict_comes_first() -> None:
    certificate = certificate_of("sl-sac")
    assert plain_text(certificate).startswith(certificate.verdict.sentence + "\n")


def test_costs_below_a_small_limit_are_told_apart() -> None:
    shown = plain_text(with_small_costs(certificate_of("sl-sac")))
    assert "0.04   0.02 .. 0.06" in shown
    assert "0.12" in shown


def test_bounds_are_rounded_outwards_and_the_confidence_is_not() -> None:
    shown = plain_text(with_bounds(certificate_of("sl-sac")))
    assert "at least 1.02 % and at most 1.49 %, each with 99.999999 % confidence" in shown
    (row,) = [line for line in shown.splitlines() if line.startswith("  worst 50 %")]
    assert row.split()[-2:] == ["7.1", "100"]


@pytest.mark.parametrize(
    ("algo", "line"),
    [
        ("sl-sac", "cost critic  delta 7.35 (6.13 .. 8.55; chance alone 0.171), discounted"),
        ("sac-lag", "bias +0.51 (+0.37 .. +0.61); 600 points of 30 episodes"),
    ],
)
def test_how_far_a_critic_is_off(algo: str, line: str) -> None:
    certificate = certificate_of(algo)
    assert line in plain_text(certificate)
    without = certificate._replace(calibration=NotCalibrated("it was lost"))
    assert "cost critic  not measured: it was lost" in plain_text(without)


def test_a_credible_tail_says_how_many_exceed_the_limit() -> None:
    certificate = certificate_of("sl-sac")
    statements = certificate.statements
    assert "fitted tail  not credible: all 200 costs are 0" in plain_text(certificate)
    fit = statements.tail.fit._replace(
        shape=0.2, scale=5.0, shape_interval=(0.1, 0.3), fit_p_value=0.5, threshold=7.0
    )
    for applies in (True, False):
        at_limit = TailAtLimit(0.03125, 0.01, applies)
        tail = statements.tail._replace(fit=fit, at_limit=at_limit)
        shown = plain_text(certificate._replace(statements=statements._replace(tail=tail)))
        assert "generalised Pareto above 7: shape 0.20 (0.10 .. 0.30), scale 5" in shown
        assert "it puts 3.12 % of episodes over the limit" in shown
        assert ("if CVaR is at most the limit, at most 1 % exceed it" in shown) == applies
