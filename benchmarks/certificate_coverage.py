"""Is a certificate right as often as it claims? Repeated trials on tasks with known answers.

`python benchmarks/certificate_coverage.py`: each trial plays 200 fresh episodes of a fixed policy
and makes the certificate's statements; a statement is right if it includes the known answer.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from slsac.envs.probe import Counts, HeavyTail, Probe
from slsac.evaluate import evaluate
from slsac.seeds import Branch, episode_seed
from slsac.stats.confidence import bootstrap_cvar_interval, cvar_upper_bound, share_upper_bound
from slsac.stats.tail import fit_tail

TAIL_FRACTIONS = (0.5, 0.1)


class Rare(Probe):
    """One step that costs 100 in 2 % of episodes and up to 5 otherwise: rare costs rule CVaR."""

    CHANCE, LARGEST = 0.02, 100.0

    def __init__(self) -> None:
        super().__init__(1, 1, ends=True)

    def outcome(self, effort: float) -> tuple[float, float]:
        if self._rng.uniform() < self.CHANCE:
            return effort, self.LARGEST
        return effort, float(self._rng.uniform(0.0, 5.0))


class Task(NamedTuple):
    name: str
    make: Callable[[], Probe]
    effort: float
    cost_limit: float
    largest_cost: float | None
    violation: float
    """True chance that an episode exceeds the limit."""
    cvar: dict[float, float]


def counts(effort: float, cost_limit: float) -> Task:
    chances = Counts.probabilities(effort)
    return Task(
        f"binomial(20, {effort / 2:g})", Counts, effort, cost_limit, 20.0,
        float(chances[int(cost_limit) + 1 :].sum()),
        {eps: discrete_cvar(np.arange(21.0), chances, eps) for eps in TAIL_FRACTIONS},
    )  # fmt: skip


def discrete_cvar(values: np.ndarray, chances: np.ndarray, tail_fraction: float) -> float:
    """Mean of the worst ``tail_fraction`` of outcomes; ``values`` ascend."""
    above = 1.0 - np.cumsum(chances)
    return float((np.clip(tail_fraction - above, 0.0, chances) * values).sum() / tail_fraction)


def tasks() -> list[Task]:
    fine = (np.arange(100_000) + 0.5) / 100_000
    usual, chance = 5.0 * fine, 1.0 - Rare.CHANCE
    rare = np.append(usual, Rare.LARGEST), np.append(np.full(fine.size, chance / fine.size), 0.02)
    scales = HeavyTail.scale(fine, 0.5)
    return [
        counts(0.2, 3.0),
        counts(0.02, 1.0),
        Task(
            "2 % cost 100", Rare, 0.5, 25.0, Rare.LARGEST, Rare.CHANCE,
            {eps: discrete_cvar(*rare, eps) for eps in TAIL_FRACTIONS},
        ),
        # Its costs have no largest, hence no bound on CVaR without an assumption.
        Task(
            "Pareto tail, shape 1/4", HeavyTail, 0.5, 15.0, None,
            float(np.mean((1.0 + 0.25 * 15.0 / scales) ** -4.0)), {},
        ),
    ]  # fmt: skip


def trial_costs(task: Task, episodes: int, trial: int) -> np.ndarray:
    def predict(observation: np.ndarray) -> np.ndarray:
        return np.full((*observation.shape[:-1], 1), 2.0 * task.effort - 1.0, np.float32)

    seed = episode_seed(0, Branch.CERTIFICATE, trial)
    return evaluate(task.make(), predict, episodes, seed).costs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--episodes", type=int, default=200)
    parser.add_argument("--confidence", type=float, default=0.95)
    options = parser.parse_args()
    confidence = options.confidence
    print(f"{options.trials} trials of {options.episodes} episodes, confidence {confidence:g}\n")
    print("| costs | statement | truth | median bound | right |")
    print("|---|---|---|---|---|")
    credible = 0
    for task in tasks():
        samples = [trial_costs(task, options.episodes, trial) for trial in range(options.trials)]

        def row(what: str, truth: float, bounds: list[float], name: str = task.name) -> None:
            right = sum(bound >= truth for bound in bounds)
            print(f"| {name} | {what} | {truth:.4g} | {np.median(bounds):.4g} | {right} |")

        over = [int((costs > task.cost_limit).sum()) for costs in samples]
        row(
            f"share over {task.cost_limit:g}", task.violation,
            [share_upper_bound(hits, options.episodes, confidence) for hits in over],
        )  # fmt: skip
        for eps, truth in task.cvar.items():
            assert task.largest_cost is not None
            row(
                f"CVaR at {eps:g}", truth,
                [cvar_upper_bound(costs, eps, confidence, task.largest_cost) for costs in samples],
            )  # fmt: skip
            rng = np.random.default_rng(0)
            # Two-sided at 90 %, so that its upper end alone claims 95 %.
            two_sided = 2 * confidence - 1
            ends = [bootstrap_cvar_interval(costs, eps, two_sided, rng)[1] for costs in samples]
            row(f"CVaR at {eps:g}, bootstrap", truth, ends)
        if task.largest_cost is None:
            credible = sum(fit_tail(costs, 0.5, rounds=99).credible for costs in samples)
    print(f"\nthe Pareto tail was fitted credibly in {credible} of {options.trials} trials")


if __name__ == "__main__":
    main()
