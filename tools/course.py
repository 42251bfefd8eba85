"""Print the course of a run: the figures that the pages in docs/results/ are written from.

    python -m tools.course results/sl-sac/SafetyHopperVelocity-v1/seed0
    python -m tools.course runs/hopper-0 --every 10000

First training, in stretches of steps, then the evaluations. "Ended early" counts episodes that the
task itself ended, such as falls. "Signal" is what the multiplier compares with its limit; the share
over the limit counts epochs. The two oldest recorded runs did not log it.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from slsac.report.curves import logged
from slsac.report.formats import Cell, Section, as_markdown
from slsac.report.read import Run, read_run

LOGGED = ("window_cvar", "cost_value", "reward_value", "reward_value_spread",
          "reward_critic_loss", "cost_critic_loss", "entropy")  # fmt: skip


def training(run: Run, every: int) -> Section:
    """A row for every stretch: its training episodes, and the means of what was logged."""
    rows = []
    last = run.progress[-1]["step"] if run.progress else 0
    for begin in range(0, last, every):
        inside = range(begin + 1, begin + every + 1)
        episodes = [line for line in run.episodes if line["step"] in inside]
        lines = [line for line in run.progress if line["step"] in inside]
        early = [line["length"] < run.horizon for line in episodes]
        over = [line["cost"] > run.config.cost_limit for line in episodes]
        multipliers = [line["multiplier"] for line in lines]
        span = f"{min(multipliers):.2f} to {max(multipliers):.2f}" if multipliers else ""
        signals = [line for line in lines if line.get("signal") is not None]
        above = [line["signal"] > line["signal_limit"] for line in signals]
        rows.append((
            f"{min(begin + every, last):,}", str(len(episodes)), mean(episodes, "return", 1),
            mean(episodes, "cost", 1), share(over), share(early), mean(episodes, "length", 0),
            span, mean(signals, "signal", 1), share(above),
            *(mean(lines, name, 3) for name in LOGGED),
        ))  # fmt: skip
    header = ("to step", "episodes", "return", "cost", "over limit", "ended early", "length",
              "multiplier", "signal", "signal over its limit", *LOGGED)  # fmt: skip
    return Section("Training", header, [tuple(map(Cell, row)) for row in rows])


def evaluations(run: Run) -> Section:
    """Deterministic episodes: mean return, cost and length of each evaluation."""
    rows = [
        (f"{line['step']:,}", mean([line], "return_mean", 1), mean([line], "cost_mean", 1),
         f"{np.mean(line['lengths']):.0f}", str(len(line["lengths"])))
        for line in run.evaluations
    ]  # fmt: skip
    header = ("at step", "return", "cost", "length", "episodes")
    return Section("Deterministic evaluations", header, [tuple(map(Cell, row)) for row in rows])


def mean(lines: list[dict[str, Any]], name: str, digits: int) -> str:
    values = [value for line in lines if (value := logged(line, name)) is not None]
    return f"{np.mean(values):,.{digits}f}" if values else ""


def share(happened: list[bool]) -> str:
    return f"{100 * np.mean(happened):.0f} %" if happened else ""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.course")
    parser.add_argument("run", type=Path)
    parser.add_argument("--every", type=int, default=50_000, help="steps of a stretch")
    options = parser.parse_args()
    run = read_run(options.run)
    print(as_markdown([training(run, options.every), evaluations(run)]), end="")


if __name__ == "__main__":
    main()
