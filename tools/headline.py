"""The tables that docs/results.md and the README begin with: the paper beside SL-SAC 2."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from slsac.report.aggregate import GroupResult
from slsac.report.published import ALGORITHM_ORDER, TASK_ORDER, Reference, reference
from slsac.report.read import Run
from tools.beside import after_equal_steps
from tools.figures import follows_the_paper, short_name

OURS, THEIRS = "sl-sac-2", "sl-sac"
IN_A_ROW = 3
"""Evaluations that must reach a return within the limit before it counts as held."""


class Held(NamedTuple):
    """When a return was first held safely."""

    step: int
    hours: float
    """Of training by the clock up to then."""


def held(run: Run, wanted: float) -> Held | None:
    """When ``wanted`` had been reached within the limit by three evaluations in a row."""
    in_a_row = 0
    for line in run.evaluations:
        if line["final"]:
            continue  # it repeats the evaluation of the same step with more episodes
        safe = line["cost_mean"] <= run.config.cost_limit
        in_a_row = in_a_row + 1 if safe and line["return_mean"] >= wanted else 0
        if in_a_row == IN_A_ROW:
            seconds = sum(row["seconds"] for row in run.timing if row["step"] <= line["step"])
            return Held(line["step"], seconds / 3600)
    return None


def best_safe(env: str, limit: float) -> Reference | None:
    """The published off-policy result with the highest return within the limit."""
    algorithms = [algo for algo in ALGORITHM_ORDER if algo not in ("ppo-lag", "cpo")]
    names = [*algorithms, *(f"{algo}/omnisafe" for algo in algorithms)]
    found = [entry for name in names if (entry := reference(name, env))]
    safe = [entry for entry in found if entry.cost <= limit]
    return max(safe, key=lambda entry: entry.episode_return, default=None)


def figures_of(entry: GroupResult | None, wanted: float) -> str:
    """`figures`, and after how many steps; nothing where there is no run."""
    if entry is None:
        return ""
    over = "" if entry.safe else ", over"
    return f"{figures(entry, wanted)} ({entry.group.config.steps // 1_000}k{over})"


def figures(entry: GroupResult, wanted: float) -> str:
    """Return / cost, mean over seeds; bold where ``wanted`` is reached within the limit."""
    text = f"{entry.episode_return.mean:,.1f} / {entry.cost.mean:.1f}"
    return f"**{text}**" if entry.safe and entry.episode_return.mean >= wanted else text


def rows(results: Sequence[GroupResult]) -> list[tuple[str, ...]]:
    """A row for each of the paper's tasks."""
    known = {
        (entry.group.env, entry.group.algo): entry
        for entry in results
        if follows_the_paper(entry.group)
    }
    lines: list[tuple[str, ...]] = []
    for env in TASK_ORDER:
        paper, ours = reference(THEIRS, env), known.get((env, OURS))
        assert paper is not None
        wanted, best = paper.episode_return, best_safe(env, 25.0)
        baseline = best_baseline(env, results)
        lines.append((
            short_name(env),
            f"{paper.episode_return:,g} / {paper.cost:g}",
            f"{best.episode_return:,g} / {best.cost:g}" if best else "",
            figures_of(known.get((env, THEIRS)), wanted),
            f"{baseline.group.algo} {figures_of(baseline, wanted)}" if baseline else "",
            figures_of(ours, wanted),
            str(len(ours.group.runs)) if ours else "",
            until_held(ours, wanted) if ours else "",
        ))  # fmt: skip
    return lines


def best_baseline(env: str, results: Sequence[GroupResult]) -> GroupResult | None:
    """The safe baseline with the highest return, of the presets' runs and of those after equal
    steps."""
    safe = [
        entry
        for entry in results
        if entry.group.env == env
        and entry.group.algo not in (OURS, THEIRS)
        and entry.safe
        and (follows_the_paper(entry.group) or after_equal_steps(entry.group.runs[0]))
    ]
    return max(safe, key=lambda entry: entry.episode_return.mean, default=None)


def until_held(entry: GroupResult, wanted: float) -> str:
    """Steps and hours of the slowest seed, or how many seeds got there."""
    times = [held(run, wanted) for run in entry.group.runs]
    reached = [time for time in times if time]
    if len(reached) < len(times):
        return f"not yet ({len(reached)} of {len(times)})"
    slowest = max(reached)
    return f"{slowest.step:,} steps, {slowest.hours:.1f} h"


def short_rows(results: Sequence[GroupResult]) -> list[tuple[str, ...]]:
    """The README's: a row for each of the paper's tasks that SL-SAC 2 was run on."""
    ours = {
        entry.group.env: entry
        for entry in results
        if entry.group.algo == OURS and follows_the_paper(entry.group)
    }
    lines: list[tuple[str, ...]] = []
    for env in TASK_ORDER:
        paper, entry = reference(THEIRS, env), ours.get(env)
        if paper is None or entry is None:
            continue
        seconds = [sum(row["seconds"] for row in run.timing) for run in entry.group.runs]
        lines.append((
            short_name(env),
            f"{paper.episode_return:,g} / {paper.cost:g}",
            figures(entry, paper.episode_return),
            f"{entry.cvar.mean:.1f}",
            f"{len(entry.group.runs)}",
            f"{entry.group.config.steps:,}",
            f"{sum(seconds) / len(seconds) / 3600:.1f}",
        ))  # fmt: skip
    return lines


SHORT_HEADER = ("return / cost, limit 25", "SL-SAC in the paper, 1,000,000 steps", "SL-SAC 2",
                "cost of its worse half", "seeds", "steps", "hours on one core")  # fmt: skip
HEADER = ("task", "paper's SL-SAC", "best safe published", "sl-sac here", "best baseline here",
          "sl-sac-2 here", "its seeds", "paper's return held after")  # fmt: skip
