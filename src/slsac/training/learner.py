"""Who learns for the runs of an off-policy loop: one agent, or several stacked into one."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from slsac.algorithms.off_policy.agent import AgentState, OffPolicyAgent, PackedUpdate
from slsac.networks import Normaliser
from slsac.types import Batch


class UpdateReport(NamedTuple):
    """What one update of one run reports."""

    names: list[str]
    """Of the metrics."""
    metrics: np.ndarray
    broken: list[str]
    """Losses and parameters that are not finite."""


class Learner(Protocol):
    """Acts and learns for runs 0, 1, ... at once; all arguments have one entry per run."""

    def explore(self, observations: Sequence[np.ndarray], step: int) -> Sequence[np.ndarray]:
        """Actions as in training; their noise depends on the seed and ``step`` alone."""

    def play(self, observations: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        """Actions as in an evaluation."""

    def update(
        self, batches: Sequence[Batch], multipliers: Sequence[float], with_policy: bool
    ) -> list[UpdateReport]:
        """One update of every run."""

    def follow_observations(self, moments: Sequence[Normaliser]) -> None:
        """Gives every run's policy the moments of the observations it has seen so far."""

    def state_of(self, run: int) -> AgentState:
        """Everything that a run has learned."""


def _report(
    packed: PackedUpdate, metrics: np.ndarray, finite: np.ndarray, with_policy: bool
) -> UpdateReport:
    parts = packed.part_names[with_policy]
    broken = [name for name, ok in zip(parts, finite, strict=True) if not ok]
    return UpdateReport(packed.metric_names[with_policy], metrics, broken)


def _with_normaliser(state: AgentState, normaliser: Normaliser) -> AgentState:
    return state._replace(policy=state.policy._replace(normaliser=normaliser))


@functools.lru_cache(maxsize=16)
def _compiled(agent: OffPolicyAgent) -> tuple[PackedUpdate, Any, Any, Any]:
    """The update with its names, the same compiled, exploration at a step, and actions without
    noise; once per agent."""
    packed = PackedUpdate(agent)
    update = jax.jit(packed, static_argnums=3, donate_argnums=0)
    explore = jax.jit(
        lambda policy, observation, key, step: agent.explore(
            policy, observation, jax.random.fold_in(key, step)
        )
    )
    return packed, update, explore, jax.jit(agent.predict)


class SoloLearner:
    """One run."""

    def __init__(self, agent: OffPolicyAgent, seed: int) -> None:
        self.agent = agent
        init_key, self.action_key = jax.random.split(jax.random.PRNGKey(seed))
        self._packed, self._update, self._explore, self._play = _compiled(agent)
        self.state: AgentState = jax.jit(agent.init)(init_key)

    def explore(self, observations: Sequence[np.ndarray], step: int) -> Sequence[np.ndarray]:
        (observation,) = observations
        return [np.asarray(self._explore(self.state.policy, observation, self.action_key, step))]

    def play(self, observations: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        (observation,) = observations
        return [np.asarray(self._play(self.state.policy, observation))]

    def update(
        self, batches: Sequence[Batch], multipliers: Sequence[float], with_policy: bool
    ) -> list[UpdateReport]:
        (batch,), (multiplier,) = batches, multipliers
        self.state, metrics, finite = self._update(
            self.state, batch, np.float32(multiplier), with_policy
        )
        return [_report(self._packed, np.asarray(metrics), np.asarray(finite), with_policy)]

    def follow_observations(self, moments: Sequence[Normaliser]) -> None:
        (normaliser,) = moments
        self.state = _with_normaliser(self.state, normaliser)

    def state_of(self, run: int) -> AgentState:
        return self.state


class StackedLearner:
    """Several runs whose configurations differ in the seed alone: one `jax.vmap`ped update.

    It rounds differently from a run's own: results agree to about 1e-6 for each update on the same
    data, not bit for bit.
    """

    def __init__(self, learners: Sequence[SoloLearner]) -> None:
        self._state: AgentState = jax.tree.map(
            lambda *leaves: jnp.stack(leaves), *(learner.state for learner in learners)
        )
        self._keys = jnp.stack([learner.action_key for learner in learners])
        agent = learners[0].agent
        packed = self._packed = PackedUpdate(agent)
        self._take = jax.jit(lambda state, run: jax.tree.map(lambda leaf: leaf[run], state))
        self._update = jax.jit(
            lambda state, batch, multiplier, with_policy: jax.vmap(
                functools.partial(packed, with_policy=with_policy)
            )(state, batch, multiplier),
            static_argnums=3,
            donate_argnums=0,
        )
        self._explore = jax.jit(
            lambda policies, observations, keys, step: jax.vmap(
                lambda policy, observation, key: agent.explore(
                    policy, observation, jax.random.fold_in(key, step)
                )
            )(policies, observations, keys)
        )
        self._play = jax.jit(jax.vmap(agent.predict))

    def explore(self, observations: Sequence[np.ndarray], step: int) -> Sequence[np.ndarray]:
        stacked = np.stack(observations)
        return list(np.asarray(self._explore(self._state.policy, stacked, self._keys, step)))

    def play(self, observations: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        return list(np.asarray(self._play(self._state.policy, np.stack(observations))))

    def update(
        self, batches: Sequence[Batch], multipliers: Sequence[float], with_policy: bool
    ) -> list[UpdateReport]:
        self._state, metrics, finite = self._update(
            self._state,
            jax.tree.map(lambda *fields: np.stack(fields), *batches),
            np.asarray(multipliers, np.float32),
            with_policy,
        )
        rows = zip(np.asarray(metrics), np.asarray(finite), strict=True)
        return [_report(self._packed, *row, with_policy) for row in rows]

    def follow_observations(self, moments: Sequence[Normaliser]) -> None:
        stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *moments)
        self._state = _with_normaliser(self._state, stacked)

    def state_of(self, run: int) -> AgentState:
        return self._take(self._state, run)
