"""How long a sweep will take, from the speed that earlier runs of the same kind had."""

from __future__ import annotations

import heapq
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from slsac.config import Config
from slsac.config.overrides import differing
from slsac.runs.log import read_lines
from slsac.sweep.spec import Trial
from slsac.sweep.status import config_of

SAME_SPEED = ("seed", "steps", "cost_limit", "tail_fraction", "warmup_steps", "polyak",
              "multiplier_warmup_steps", "checkpoint_every_steps", "evaluate_every_epochs",
              "evaluation_episodes", "final_evaluation_episodes", "multiplier.learning_rate",
              "multiplier.initial", "multiplier.maximum", "policy.temperature",
              "metadrive.lidar")  # fmt: skip
"""Fields in which two runs may differ and still be expected to be as fast as each other."""


class Speed(NamedTuple):
    steps_per_second: float
    source: Path
    """A run that it was measured in."""
    runs: int


class Measured(NamedTuple):
    run: Path
    config: Config
    cores: int
    steps_per_second: float


def measured_runs(folders: Sequence[Path]) -> list[Measured]:
    """Every run below ``folders`` whose logs say how fast it learned."""
    found = []
    for timing in sorted({path for folder in folders for path in folder.rglob("timing.jsonl")}):
        known = config_of(timing.parent)
        if known is None:
            continue
        config, facts = known
        rate = learning_rate(timing, config)
        # A run that learned together with others had a share of the process only.
        if rate is not None and facts.get("together", 1) == 1:
            found.append(Measured(timing.parent, config, facts.get("cores", 0), rate))
    return found


def learning_rate(timing: Path, config: Config) -> float | None:
    """Median steps/s of the epochs after the one in which learning began and was compiled."""
    begun = getattr(config, "warmup_steps", 0) + config.steps_per_epoch
    rates = [line["steps_per_second"] for line in read_lines(timing) if line["step"] > begun]
    return statistics.median(rates) if rates else None


def speed(trial: Trial, cores: int, runs: Sequence[Measured]) -> Speed | None:
    """Median speed of the runs like ``trial`` on as many cores; None where there is none."""
    like = [
        run
        for run in runs
        if run.cores == cores and set(differing(run.config, trial.config)) <= set(SAME_SPEED)
    ]
    if not like:
        return None
    rate = statistics.median(run.steps_per_second for run in like)
    return Speed(rate, like[0].run, len(like))


def makespan(durations: Sequence[float], workers: int) -> float:
    """Seconds until the last of ``workers`` is done, each taking the next trial in turn."""
    free = [0.0] * max(1, workers)
    for duration in durations:
        heapq.heappush(free, heapq.heappop(free) + duration)
    return max(free)
