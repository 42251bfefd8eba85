"""Durations and sentences for people."""

from __future__ import annotations

from slsac.formatting import duration, sentence


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
