"""Figures, durations and sentences for people."""

from __future__ import annotations

import pytest

from slsac.formatting import Towards, duration, number, percent, sentence, significant


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (123.456, 1, "123.5"), (0.0, 1, "0.0"), (1.04, 1, "1.0"), (0.013, 1, "0.013"),
        (-0.25, 1, "-0.25"), (0.00012345, 4, "0.00012"), (1.2e-7, 4, "1.2e-07"), (None, 4, "-"),
        (5.25, 0, "5.2"), (42.0, 0, "42"),
    ],
)  # fmt: skip
def test_a_small_figure_keeps_two_digits(value: float | None, digits: int, text: str) -> None:
    assert number(value, digits) == text


def test_a_sign_is_shown_where_it_is_asked_for() -> None:
    assert [number(v, 1, sign=True) for v in (2.0, -0.04)] == ["+2.0", "-0.04"]


@pytest.mark.parametrize(
    ("value", "up", "down"),
    [
        (7.0615, "7.1", "7.0"), (25.0, "25.0", "25.0"), (-7.0615, "-7.0", "-7.1"),
        (0.0, "0.0", "0.0"), (0.0131, "0.014", "0.013"), (float("inf"), "inf", "inf"),
        # What sums leave of 35 is 35.
        (34.99999999999999, "35.0", "35.0"), (35.00000000000001, "35.0", "35.0"),
    ],
)  # fmt: skip
def test_a_bound_is_rounded_outwards(value: float, up: str, down: str) -> None:
    assert (number(value, 1, towards="up"), number(value, 1, towards="down")) == (up, down)


@pytest.mark.parametrize(
    ("value", "towards", "text"),
    [
        (1000.0, None, "1000"), (1234.5, "up", "1235"), (1234.5, "down", "1234"),
        (7.0615, None, "7.06"), (7.0615, "up", "7.07"), (35.0, "up", "35"), (0.0, "down", "0"),
        (0.0123456, "up", "0.0124"),
    ],
)  # fmt: skip
def test_three_significant_digits_keep_the_whole_part(
    value: float, towards: Towards | None, text: str
) -> None:
    assert significant(value, 3, towards) == text


def test_percents_are_rounded_outwards_too() -> None:
    assert [percent(0.014867, towards=side) for side in ("up", "down")] == ["1.49 %", "1.48 %"]
    assert [percent(share, towards="up") for share in (0.0, 0.25, 0.9999, 1.0)] == [
        "0 %", "25 %", "100 %", "100 %"
    ]  # fmt: skip
    assert percent(0.9999, towards="down") == "99.9 %"


def test_durations_and_sentences() -> None:
    assert [duration(seconds) for seconds in (5, 65, 3_660)] == ["0m05s", "1m05s", "1h01m"]
    summary = {
        "return_mean": 10.0, "return_se": 0.5, "cost_mean": 2.0, "cost_se": None,
        "cost_limit": 25.0, "tail_fraction": 0.5, "return_cvar": 9.0, "cost_cvar": 3.0,
        "violation_rate": 0.25, "episodes": 4,
    }  # fmt: skip
    text = sentence(summary)
    assert text == (
        "return 10.0 +- 0.5, cost 2.0 (limit 25), CVaR at 0.5: return 9.0, cost 3.0; "
        "25 % of 4 episodes over the limit"
    )
