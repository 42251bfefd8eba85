"""The table of docs/results.md that holds SL-SAC 2 beside the baselines after equal steps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from slsac.report.aggregate import finished_runs
from slsac.report.published import ALGORITHM_ORDER, TASK_ORDER
from slsac.report.read import Run, group_runs
from tools.figures import RESULTS, short_name

OURS = "sl-sac-2"
FOLDER = "equal-steps"
"""Where under results/ the baselines are; their multipliers wait for a third of the run."""
HEADER = ("task, steps", "algorithm", "return", "cost", "CVaR", "episodes over the limit",
          "training episodes over the limit", "cost of a training episode", "hours")  # fmt: skip


def folder(run: Run, results: Path) -> str:
    """The first folder below results/."""
    return run.path.relative_to(results).parts[0]


def after_equal_steps(run: Run, results: Path = RESULTS) -> bool:
    """Whether a run was recorded to stand beside SL-SAC 2."""
    return folder(run, results) == FOLDER


def rows(runs: Sequence[Run], results: Path = RESULTS) -> list[tuple[str, ...]]:
    """Every task that a baseline was run on: first SL-SAC 2, then the baselines."""
    ours = {
        (run.config.env, run.config.steps): run
        for run in runs
        if run.config.seed == 0 and folder(run, results) == OURS
    }
    order = {algo: number for number, algo in enumerate(ALGORITHM_ORDER)}
    baselines = sorted(
        (run for run in runs if after_equal_steps(run, results)),
        key=lambda run: (TASK_ORDER.index(run.config.env), order[run.config.algo]),
    )
    lines, shown = [], set()
    for run in baselines:
        task = run.config.env, run.config.steps
        if task not in shown and task in ours:
            lines.append(row(ours[task]))
        shown.add(task)
        lines.append(row(run))
    return lines


def row(run: Run) -> tuple[str, ...]:
    """A run's final evaluation, what its training cost, and how long it took."""
    group = group_runs([run])[0][0]
    final = finished_runs(group)[0].summary
    costs = [episode["cost"] for episode in run.episodes]
    over = sum(cost > run.config.cost_limit for cost in costs)
    hours = sum(line["seconds"] for line in run.timing) / 3600
    return (
        f"{short_name(run.config.env)}, {run.config.steps:,}",
        run.config.algo,
        f"{final['return_mean']:,.1f}",
        f"{final['cost_mean']:.1f}",
        f"{final['cost_cvar']:.1f}",
        f"{100 * final['violation_rate']:.0f} %",
        f"{over} of {len(costs)}",
        f"{sum(costs) / len(costs):.1f}",
        f"{hours:.2f}",
    )
