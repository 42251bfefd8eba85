"""How long a sweep will take, from the speed of earlier runs of the same kind."""

from __future__ import annotations

import heapq
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from slsac.config import Config
from slsac.config.overrides import differing
from slsac.errors import InvalidInput, RunDamaged
from slsac.formatting import duration
from slsac.report.read import without_seed
from slsac.runs import config_file
from slsac.runs.layout import TIMING
from slsac.runs.log import read_lines
from slsac.runs.provenance import cpu_model
from slsac.sweep.schedule import ScheduledTrial
from slsac.sweep.spec import Trial

SAME_SPEED = ("seed", "steps", "cost_limit", "tail_fraction", "warmup_steps", "polyak",
              "multiplier_warmup_steps", "checkpoint_every_steps", "evaluate_every_epochs",
              "evaluation_episodes", "final_evaluation_episodes", "multiplier.learning_rate",
              "multiplier.initial", "multiplier.maximum", "policy.temperature",
              "metadrive.lidar")  # fmt: skip
"""Fields in which two runs may differ and still be expected to be equally fast."""


class TimedRun(NamedTuple):
    """A run whose logs say how fast it learned."""

    run: Path
    config: Config
    cores: int
    cpu: str
    steps_per_second: float


class Speed(NamedTuple):
    """The expected speed of a trial."""

    steps_per_second: float
    source: Path
    """A run that it was measured in."""
    runs: int
    """How many runs it is the median of."""
    same_cpu: bool
    """Whether they were made on this machine's processor; others may be much faster or slower."""


def timed_runs(folders: Sequence[Path]) -> list[TimedRun]:
    """Every run below ``folders`` whose logs say how fast it learned."""
    timed = []
    for log in sorted({path for folder in folders for path in folder.rglob(TIMING)}):
        run = log.parent
        try:
            config, _, provenance = config_file.read(run)
            rate = learning_steps_per_second(log, config)
        except (InvalidInput, RunDamaged):
            continue
        # Seeds that learn together share a process, which says nothing about one alone.
        if rate is not None and provenance.get("together", 1) == 1:
            cores, cpu = provenance.get("cores", 0), str(provenance.get("cpu", "unknown"))
            timed.append(TimedRun(run, config, cores, cpu, rate))
    return timed


def learning_steps_per_second(log: Path, config: Config) -> float | None:
    """Median over the epochs after the one in which learning began and was compiled."""
    compiled_by = getattr(config, "warmup_steps", 0) + config.steps_per_epoch
    rates = [line["steps_per_second"] for line in read_lines(log) if line["step"] > compiled_by]
    return statistics.median(rates) if rates else None


def expected_speed(trial: Trial, cores: int, runs: Sequence[TimedRun]) -> Speed | None:
    """Median speed of the runs like ``trial`` on as many cores; None where there is none."""
    similar = [
        run
        for run in runs
        if run.cores == cores and set(differing(run.config, trial.config)) <= set(SAME_SPEED)
    ]
    if not similar:
        return None
    here = cpu_model()
    same = [run for run in similar if run.cpu == here]
    similar = same or similar
    rate = statistics.median(run.steps_per_second for run in similar)
    return Speed(rate, similar[0].run, len(similar), bool(same))


def makespan(durations: Sequence[float], workers: int) -> float:
    """Seconds until the last of ``workers`` is done, each taking the next trial in turn."""
    free_at = [0.0] * max(1, workers)
    for seconds in durations:
        heapq.heappush(free_at, heapq.heappop(free_at) + seconds)
    return max(free_at)


def describe(
    schedule: Mapping[str, ScheduledTrial], cores: int, workers: int, timed_in: Sequence[Path]
) -> list[str]:
    """A line for each trial with its expected time, and one for the whole sweep.

    Args:
        timed_in: folders of earlier runs, whose speed the estimate is made from.
    """
    runs = timed_runs(timed_in)
    lines, durations, unknown = [], [], 0
    speeds: dict[Config, Speed | None] = {}
    """Seeds are equally fast, so one of them is looked up."""
    width = max(len(name) for name in schedule)
    for name, scheduled in schedule.items():
        steps = scheduled.trial.config.steps
        if scheduled.state == "done":
            lines.append(f"{name:<{width}}  done")
            continue
        step = scheduled.checkpoint_step
        begin = f"resumes at step {step:,} of {steps:,}" if step else f"new, {steps:,} steps"
        alike = without_seed(scheduled.trial.config)
        if alike not in speeds:
            speeds[alike] = expected_speed(scheduled.trial, cores, runs)
        speed = speeds[alike]
        if speed is None:
            unknown += 1
            lines.append(f"{name:<{width}}  {begin}; no run like it has been timed")
            continue
        durations.append((steps - step) / speed.steps_per_second)
        lines.append(
            f"{name:<{width}}  {begin}; {duration(durations[-1])} at "
            f"{speed.steps_per_second:.0f} steps/s (median of {speed.runs}, like {speed.source}"
            f"{'' if speed.same_cpu else ', on another processor'})"
        )
    left = len(durations) + unknown
    total = f"{len(schedule)} trials, {left} to run, {cores} core(s) each, {workers} at once"
    if durations:
        total += f": {duration(makespan(durations, workers))} of training"
        total += f" for the {len(durations)} whose speed is known" if unknown else ""
        total += ", start-up and evaluations not counted"
    return [*lines, total]
