"""What a person sees of a run, where the output is not a terminal."""

from __future__ import annotations

from typing import Any

import pytest

from slsac.display import Terminal
from slsac.formatting import duration, sentence

RECORD: dict[str, Any] = {
    "step": 4_000,
    "return": 123.45,
    "cost": None,
    "window_cvar": 30.0,
    "multiplier": 0.5,
    "reward_critic_loss": 0.25,
    "cost_critic_loss": 0.125,
    "entropy": -1.5,
}
TIMING = {"step": 4_000, "seconds": 40.0, "steps_per_second": 50.0}


def test_a_line_has_speed_time_left_and_the_signal_against_the_limit(
    capsys: pytest.CaptureFixture[str],
) -> None:
    display = Terminal(total_steps=10_000, cost_limit=25.0)
    display.epoch(RECORD, TIMING)
    header, line = capsys.readouterr().out.splitlines()
    assert header.split()[:4] == ["step", "steps/s", "left", "return"]
    # 6,000 steps at 50 a second are two minutes; no episode ended, so there is no cost.
    assert line.split()[:8] == ["4,000", "50", "2m00s", "123.5", "-", "30.0", "/", "25"]


def test_no_time_left_is_promised_while_actions_are_random(
    capsys: pytest.CaptureFixture[str],
) -> None:
    display = Terminal(total_steps=10_000, cost_limit=25.0)
    random = {name: value for name, value in RECORD.items() if "loss" not in name}
    display.epoch(random, TIMING)
    assert capsys.readouterr().out.splitlines()[1].split()[2] == "-"


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
