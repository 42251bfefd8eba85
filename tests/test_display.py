"""What a person sees of a run, where the output is not a terminal."""

from __future__ import annotations

from typing import Any

import pytest

from slsac.display import Terminal

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
