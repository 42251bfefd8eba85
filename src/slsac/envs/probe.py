"""Probe tasks: constrained decision processes small enough to solve by hand.

Each isolates one thing that an agent must get right, and its docstring states the answer. In all of
them an action ``a`` in [-1, 1] means an effort ``x = (a + 1) / 2`` in [0, 1].
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from slsac.types import EnvSpec, SafeEnv, Step


class Probe:
    """What the probes share: a step counter, a seeded generator, and how an episode ends."""

    max_lanes = 10

    def __init__(self, observation_size: int, horizon: int, *, ends: bool) -> None:
        """``ends``: the last step terminates the task; otherwise only the clock runs out."""
        self.spec = EnvSpec(observation_size, 1, horizon, (-1.0,), (1.0,))
        self._ends = ends
        self._time = 0
        self._rng = np.random.default_rng(0)

    def reset(self, seed: int) -> np.ndarray:
        self._rng = np.random.default_rng(seed)
        self._time = 0
        return self.observe()

    def step(self, action: np.ndarray) -> Step:
        effort = float(np.clip((action[0] + 1.0) / 2.0, 0.0, 1.0))
        reward, cost = self.outcome(effort)
        self._time += 1
        last = self._time == self.spec.horizon
        return Step(self.observe(), reward, cost, last and self._ends, last and not self._ends)

    def close(self) -> None:
        pass

    def observe(self) -> np.ndarray:
        return np.ones(1, np.float32)

    def outcome(self, effort: float) -> tuple[float, float]:
        """Reward and cost of a step."""
        raise NotImplementedError


class Constant(Probe):
    """One step, reward 1, cost 2: Q = 1 and every quantile of the cost is 2."""

    def __init__(self) -> None:
        super().__init__(1, 1, ends=True)

    def outcome(self, effort: float) -> tuple[float, float]:
        return 1.0, 2.0


class Chain(Probe):
    """Three states in a row with reward 1 and cost 0 each, except that the last costs 4.

    Q along it is 1 + g + g^2, 1 + g, 1; the discounted cost is 4 g^2, 4 g, 4.
    """

    LENGTH = 3

    def __init__(self) -> None:
        super().__init__(self.LENGTH, self.LENGTH, ends=True)

    def observe(self) -> np.ndarray:
        return np.eye(self.LENGTH, dtype=np.float32)[min(self._time, self.LENGTH - 1)]

    def outcome(self, effort: float) -> tuple[float, float]:
        return 1.0, 4.0 if self._time == self.LENGTH - 1 else 0.0


class Choice(Probe):
    """Ten steps that alternate between a state where effort is cheap and one where it is dear.

    Reward is x and cost is w x^2, with w = 1 and w = 4. With multiplier l the best effort is
    1 / (2 l w). A limit of `LIMIT` makes l = 1: efforts .5 and .125, return 3.125. Without a
    limit effort is 1 everywhere: return 10, cost 25.
    """

    WEIGHTS = (1.0, 4.0)
    LIMIT = 1.5625
    BEST_SAFE_RETURN = 3.125

    def __init__(self) -> None:
        super().__init__(2, 10, ends=False)

    def observe(self) -> np.ndarray:
        return np.eye(2, dtype=np.float32)[self._time % 2]

    def outcome(self, effort: float) -> tuple[float, float]:
        return effort, self.WEIGHTS[self._time % 2] * effort**2


class HeavyTail(Probe):
    """One step whose cost is generalised Pareto with shape 1/4 and scale 2 (1 + s + x).

    The quantile at tau is scale / shape * ((1 - tau)^(-shape) - 1), and CVaR follows from it in
    closed form; the reward is x.
    """

    SHAPE = 0.25

    def __init__(self) -> None:
        self._state = 0.0
        super().__init__(1, 1, ends=True)

    def reset(self, seed: int) -> np.ndarray:
        self._state = float(np.random.default_rng([seed, 1]).uniform())
        return super().reset(seed)

    def observe(self) -> np.ndarray:
        return np.full(1, self._state, np.float32)

    def outcome(self, effort: float) -> tuple[float, float]:
        fraction = self._rng.uniform()
        return effort, float(self.quantile(self._state, effort, fraction))

    @staticmethod
    def scale(state: np.ndarray | float, effort: np.ndarray | float) -> np.ndarray | float:
        return 2.0 * (1.0 + state + effort)

    @classmethod
    def quantile(
        cls, state: np.ndarray | float, effort: np.ndarray | float, fraction: np.ndarray | float
    ) -> np.ndarray | float:
        """The cost below which a share ``fraction`` of outcomes lies."""
        stretch = (1.0 - fraction) ** -cls.SHAPE - 1.0
        return cls.scale(state, effort) / cls.SHAPE * stretch

    @classmethod
    def cvar(
        cls, state: np.ndarray | float, effort: np.ndarray | float, tail_fraction: float
    ) -> np.ndarray | float:
        """Mean cost of the worst ``tail_fraction`` of outcomes."""
        threshold = cls.quantile(state, effort, 1.0 - tail_fraction)
        return threshold + (cls.scale(state, effort) + cls.SHAPE * threshold) / (1.0 - cls.SHAPE)


class Counts(Probe):
    """Twenty steps, each with reward x and, with probability x / 2, cost 1; then the task ends.

    Like a velocity task's, an episode's cost is a whole number and at most the horizon; it is
    binomial(20, x / 2) under a constant effort, so its CVaR and the chance of exceeding a limit
    are sums of a few terms.
    """

    def __init__(self) -> None:
        super().__init__(1, 20, ends=True)

    def outcome(self, effort: float) -> tuple[float, float]:
        return effort, float(self._rng.uniform() < effort / 2.0)

    @staticmethod
    def probabilities(effort: float) -> np.ndarray:
        """Probabilities that an episode costs 0, 1, ..., 20."""
        p = effort / 2.0
        return np.array([math.comb(20, k) * p**k * (1.0 - p) ** (20 - k) for k in range(21)])


class Once(Probe):
    """One step with reward 1 and cost 1.

    Where the step ends the task, Q = 1. Where only the clock runs out, the value of the next
    state still counts and Q = 1 / (1 - discount).
    """

    def __init__(self, *, ends: bool) -> None:
        super().__init__(1, 1, ends=ends)

    def outcome(self, effort: float) -> tuple[float, float]:
        return 1.0, 1.0


PROBES: dict[str, Callable[[], SafeEnv]] = {
    "ProbeConstant-v0": Constant,
    "ProbeChain-v0": Chain,
    "ProbeChoice-v0": Choice,
    "ProbeHeavyTail-v0": HeavyTail,
    "ProbeCounts-v0": Counts,
    "ProbeTerminated-v0": lambda: Once(ends=True),
    "ProbeTruncated-v0": lambda: Once(ends=False),
}
"""Makers of the probes; `slsac.tasks.PROBE_DESCRIPTIONS` says what they are."""
