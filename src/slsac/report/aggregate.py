"""Statistics of runs: each run from its raw episodes, then over seeds.

Scores are always ``[runs, tasks]``, which is rliable's order: a bootstrap resamples runs within
each task and never mixes tasks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from slsac.errors import InvalidInput
from slsac.report.read import Group, final_episodes, steps_per_second
from slsac.stats.summary import summarise

RESAMPLES = 2_000
CONFIDENCE = 0.95


class FinishedRun(NamedTuple):
    """The final evaluation of one run."""

    seed: int
    steps: int
    """After which it took place: fewer than the run's own where a callback has ended it."""
    returns: np.ndarray
    costs: np.ndarray
    summary: dict[str, Any]
    """See `slsac.stats.summary.summarise`."""


class Spread(NamedTuple):
    """A quantity over seeds."""

    mean: float
    standard_error: float | None
    """Of the mean over seeds; None with one seed, which says nothing of the others."""
    iqm: float
    """Mean of the middle half of the seeds."""
    interval: tuple[float, float] | None
    """Stratified bootstrap interval of the IQM; None with one seed."""


class GroupResult(NamedTuple):
    """A group's finished runs in numbers."""

    group: Group
    finished: tuple[FinishedRun, ...]
    episode_return: Spread
    cost: Spread
    cvar: Spread
    """CVaR of cost at the trained tail fraction: of each run, then over seeds."""
    violation_rate: Spread
    """Share of episodes over the limit: of each run, then over seeds."""
    steps_per_second: float | None

    @property
    def steps(self) -> int:
        """The step that every finished run has reached."""
        return min(run.steps for run in self.finished)

    @property
    def safe(self) -> bool:
        """Whether the mean cost keeps the limit, as in the paper's Table 1."""
        return self.cost.mean <= self.group.config.cost_limit


SUMMARY_KEYS = {
    "episode_return": "return_mean",
    "cost": "cost_mean",
    "cvar": "cost_cvar",
    "violation_rate": "violation_rate",
}
"""The entry of a run's summary that each `Spread` of a `GroupResult` is over."""


def finished_runs(group: Group) -> tuple[FinishedRun, ...]:
    """The finished runs of a group, from their raw episodes."""
    finished = []
    for run in group.runs:
        episodes = final_episodes(run)
        if episodes is not None:
            config = run.config
            if not np.isfinite([episodes.returns, episodes.costs]).all():
                raise InvalidInput(
                    f"{run.path}: its final evaluation has a return or cost that is not finite"
                )
            summary = summarise(episodes, config.cost_limit, config.tail_fraction)
            steps = run.evaluations[-1]["step"]
            finished.append(
                FinishedRun(config.seed, steps, episodes.returns, episodes.costs, summary)
            )
    return tuple(finished)


def group_results(groups: Iterable[Group]) -> list[GroupResult]:
    """The result of every group with a finished run."""
    pairs = [(group, finished) for group in groups if (finished := finished_runs(group))]
    spreads: list[dict[str, Spread]] = [{} for _ in pairs]
    # Groups with equally many seeds share one bootstrap, a column each.
    for seeds in sorted({len(finished) for _, finished in pairs}):
        members = [i for i, (_, finished) in enumerate(pairs) if len(finished) == seeds]
        for name, key in SUMMARY_KEYS.items():
            columns = [[run.summary[key] for run in pairs[i][1]] for i in members]
            for i, spread in zip(members, spreads_over_seeds(np.array(columns).T), strict=True):
                spreads[i][name] = spread
    return [
        GroupResult(group, finished, **spread, steps_per_second=_mean_speed(group))
        for (group, finished), spread in zip(pairs, spreads, strict=True)
    ]


def _mean_speed(group: Group) -> float | None:
    speeds = [speed for run in group.runs if (speed := steps_per_second(run)) is not None]
    return float(np.mean(speeds)) if speeds else None


def spreads_over_seeds(scores: np.ndarray) -> list[Spread]:
    """One `Spread` for each column of ``scores``, ``[runs, tasks]``."""
    runs, columns = scores.shape
    points = trimmed_means(scores)
    means = scores.mean(axis=0)
    if runs == 1:
        pairs = zip(means, points, strict=True)
        return [Spread(float(mean), None, float(point), None) for mean, point in pairs]
    errors = scores.std(axis=0, ddof=1) / math.sqrt(runs)
    # The same draws for every column: an interval must not depend on what else is in the table.
    drawn = np.random.default_rng(0).integers(0, runs, (RESAMPLES, runs))
    resampled = trimmed_means(np.moveaxis(scores[drawn], 1, 0))
    low, high = np.quantile(resampled, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], axis=0)
    return [
        Spread(float(means[i]), float(errors[i]), float(points[i]), (float(low[i]), float(high[i])))
        for i in range(columns)
    ]


def trimmed_means(scores: np.ndarray) -> np.ndarray:
    """Interquartile mean over runs of each column; with fewer than four runs the plain mean."""
    cut = scores.shape[0] // 4
    return np.asarray(np.sort(scores, axis=0)[cut : scores.shape[0] - cut].mean(axis=0))


def probability_of_improvement(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """Chance that a run of ours scores above a run of theirs, ties half, averaged over tasks.

    Args:
        ours, theirs: ``[runs, tasks]``, of the same tasks; higher is better.
    """
    first, second = ours[:, None, :], theirs[None, :, :]
    return np.atleast_1d(((first > second) + 0.5 * (first == second)).mean())


class Improvement(NamedTuple):
    """How one algorithm compares with another on the tasks both were run on."""

    ours: str
    theirs: str
    settings: str
    tasks: tuple[str, ...]
    seeds: tuple[int, int]
    higher_return: float
    higher_return_interval: tuple[float, float]
    lower_cost: float
    lower_cost_interval: tuple[float, float]


def improvements(results: Sequence[GroupResult], ours: str) -> list[Improvement]:
    """``ours`` against every other algorithm of the same settings with two seeds or more."""
    compared = []
    for settings in dict.fromkeys(result.group.settings for result in results):
        by_algo: dict[str, dict[str, GroupResult]] = {}
        for result in results:
            group = result.group
            if group.settings == settings and not group.stale and len(result.finished) > 1:
                by_algo.setdefault(group.algo, {})[group.env] = result
        for theirs in by_algo:
            tasks = [env for env in by_algo.get(ours, {}) if env in by_algo[theirs]]
            if theirs == ours or not tasks:
                continue
            sides = [[by_algo[name][env] for env in tasks] for name in (ours, theirs)]
            returns = [score_matrix(side, "return_mean") for side in sides]
            savings = [-score_matrix(side, "cost_mean") for side in sides]
            compared.append(
                Improvement(
                    ours,
                    theirs,
                    settings,
                    tuple(tasks),
                    (returns[0].shape[0], returns[1].shape[0]),
                    *_with_interval(returns),
                    *_with_interval(savings),
                )
            )
    return compared


def score_matrix(tasks: Sequence[GroupResult], key: str) -> np.ndarray:
    """``[runs, tasks]`` of one algorithm; a task with more seeds than another loses its last."""
    runs = min(len(task.finished) for task in tasks)
    return np.array([[run.summary[key] for run in task.finished[:runs]] for task in tasks]).T


def _with_interval(sides: Sequence[np.ndarray]) -> tuple[float, tuple[float, float]]:
    low, high = bootstrap_interval(sides, probability_of_improvement)
    return float(probability_of_improvement(*sides)[0]), (float(low[0]), float(high[0]))


def bootstrap_interval(
    samples: Sequence[np.ndarray], statistic: Callable[..., np.ndarray]
) -> np.ndarray:
    """Percentile interval, ``[2, values]``, of a statistic of one or two ``[runs, tasks]``."""
    try:
        from rliable import library
    except ImportError:
        raise InvalidInput(
            "comparisons over seeds need the extra 'report'; run `pip install 'slsac[report]'`"
        ) from None
    scores = samples[0] if len(samples) == 1 else list(samples)
    with seeded_numpy():
        _, intervals = library.get_interval_estimates(
            {"scores": scores}, statistic, reps=RESAMPLES, confidence_interval_size=CONFIDENCE
        )
    return np.asarray(intervals["scores"])


@contextmanager
def seeded_numpy() -> Iterator[None]:
    """Seed numpy's global state, which rliable draws from: equal data give equal intervals."""
    before = np.random.get_state()
    np.random.seed(0)
    try:
        yield
    finally:
        np.random.set_state(before)
