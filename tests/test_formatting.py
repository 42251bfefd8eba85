"""Figures, durations and sentences for people."""

from __future__ import annotations

import pytest

from slsac.formatting import duration, number, sentence


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
