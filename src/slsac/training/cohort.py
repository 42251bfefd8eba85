"""Several seeds in one process: their environments in turn, one update for all of them.

The update is `jax.vmap`ped over the runs. That is meant for accelerators, where one small update
leaves most of the machine idle; docs/performance.md says what it gives on a CPU. A vmapped update
rounds differently from one run's own: results agree to about 1e-6 for each update on the same data,
not bit for bit, so `together` is among the facts that a resumed run is compared by.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np

from slsac.algorithms.off_policy.agent import AgentState
from slsac.config import Config, OffPolicyConfig
from slsac.config.overrides import with_overrides
from slsac.display import Display
from slsac.errors import InvalidInput
from slsac.training import launch
from slsac.training.off_policy import Trainer


def start(
    config: Config,
    seeds: int,
    folder: Path,
    *,
    overwrite: bool,
    display: Callable[[int], Display],
) -> Cohort:
    """New runs with the seeds from ``config.seed`` on, in ``folder``/seed<k>, at step 0.

    Args:
        display: what shows the run of a seed.
    """
    if not isinstance(config, OffPolicyConfig):
        raise InvalidInput(f"algo is {config.algo}; seeds together needs an off-policy algorithm")
    if seeds < 2:
        raise InvalidInput(f"seeds is {seeds}; it must be at least 2")
    runs = {config.seed + k: folder / f"seed{config.seed + k}" for k in range(seeds)}
    # All are checked before the first is made: a refusal must leave nothing behind.
    for run in runs.values():
        launch.require_free(run, overwrite=overwrite)
    with contextlib.ExitStack() as started:
        trainers = []
        for seed, run in runs.items():
            trainer = launch.start(
                with_overrides(config, {"seed": seed}), run,
                overwrite=overwrite, display=display(seed), together=seeds,
            )  # fmt: skip
            started.callback(trainer.close)
            trainers.append(cast(Trainer, trainer))
        cohort = Cohort(trainers)
        started.pop_all()
    return cohort


class Cohort:
    """Runs at the same step whose configurations differ in the seed alone."""

    def __init__(self, trainers: Sequence[Trainer]) -> None:
        self.trainers = list(trainers)
        first = self.trainers[0]
        self.config = first.config
        self._state: AgentState = jax.tree.map(
            lambda *leaves: jnp.stack(leaves), *(trainer.state for trainer in trainers)
        )
        self._keys = jnp.stack([trainer.action_key for trainer in trainers])
        self._take = jax.jit(lambda state, k: jax.tree.map(lambda leaf: leaf[k], state))
        packed = first.packed
        self._update = jax.jit(
            lambda state, batch, multiplier, with_policy: jax.vmap(
                functools.partial(packed, with_policy=with_policy)
            )(state, batch, multiplier),
            static_argnums=3,
            donate_argnums=0,
        )
        explore = first.agent.explore
        self._explore = jax.jit(
            lambda policies, observations, keys, step: jax.vmap(
                lambda policy, observation, key: explore(
                    policy, observation, jax.random.fold_in(key, step)
                )
            )(policies, observations, keys)
        )
        for k, trainer in enumerate(self.trainers):
            trainer.packed = packed
            trainer.share_state(functools.partial(self._state_of, k))

    def _state_of(self, k: int) -> AgentState:
        return self._take(self._state, k)

    @property
    def step(self) -> int:
        return self.trainers[0].step

    def advance(self, until: int) -> None:
        """Trains every run up to step ``until``."""
        self._begin_clocks()
        while self.step < until:
            over = self._take_step()
            for trainer in self.trainers:
                trainer.display.tick(self.step)
            if self.step % self.config.steps_per_epoch == 0:
                self._end_epoch()
            for trainer in itertools.compress(self.trainers, over):
                trainer.close_episode()

    def _begin_clocks(self) -> None:
        for trainer in self.trainers:
            trainer.begin_clock()

    def _end_epoch(self) -> None:
        # All are logged before one is evaluated: that is no part of anybody's training time.
        due = [trainer.end_epoch() for trainer in self.trainers]
        for trainer in itertools.compress(self.trainers, due):
            trainer.evaluate_now(self.config.evaluation_episodes, final=False)
        self._begin_clocks()

    def _take_step(self) -> list[bool]:
        observations = np.stack([trainer.observation() for trainer in self.trainers])
        if self.step < self.config.warmup_steps:
            actions = [trainer.random_action() for trainer in self.trainers]
        else:
            actions = list(
                np.asarray(self._explore(self._state.policy, observations, self._keys, self.step))
            )
        over = [
            trainer.observe(action) for trainer, action in zip(self.trainers, actions, strict=True)
        ]
        if self.step > self.config.warmup_steps:
            self._learn()
        for trainer in self.trainers:
            trainer.move_multiplier()
        return over

    def _learn(self) -> None:
        with_policy = self.trainers[0].policy_is_due()
        batches = [trainer.sample() for trainer in self.trainers]
        multipliers = [trainer.multiplier_state.value for trainer in self.trainers]
        self._state, values, finite = self._update(
            self._state,
            jax.tree.map(lambda *fields: np.stack(fields), *batches),
            np.asarray(multipliers, np.float32),
            with_policy,
        )
        for trainer, metrics, parts in zip(
            self.trainers, np.asarray(values), np.asarray(finite), strict=True
        ):
            trainer.learned(metrics, parts, with_policy)

    def finish(self) -> None:
        """The final state, policy and evaluation of every run."""
        for trainer in self.trainers:
            trainer.finish()

    def close(self) -> None:
        for trainer in self.trainers:
            trainer.close()
