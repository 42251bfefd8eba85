"""The on-policy training loop in full view.

Follow `OnPolicyTrainer.advance`: one step of every environment at a time, and a full epoch is
learned from in one call. Epochs begin with fresh episodes whose resets are seeded from (seed,
number). So a checkpoint, which falls between epochs, needs no simulator state and resume is exact.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from slsac.algorithms.on_policy import agent as agents
from slsac.algorithms.on_policy.critics import Constraint
from slsac.config import OnPolicyConfig
from slsac.display import Display
from slsac.envs import Copies, vector
from slsac.errors import InvalidInput
from slsac.networks import Normaliser, row_by_row
from slsac.runs import checkpoint
from slsac.runs.lock import RunLock
from slsac.seeds import Branch, episode_seed
from slsac.stats.summary import Evaluation
from slsac.training.moments import RunningMoments
from slsac.training.rollout import Collector, normaliser
from slsac.training.session import Session, learned_by
from slsac.types import EnvSpec, Episode, SafeEnv


def check(config: OnPolicyConfig, spec: EnvSpec, copies: Copies) -> None:
    """Raise InvalidInput where ``config`` does not suit the task."""
    if config.steps_per_epoch < config.num_envs * spec.horizon:
        # Otherwise no episode may ever end within an epoch, and no cost would be known.
        raise InvalidInput(
            f"steps_per_epoch is {config.steps_per_epoch}; it must be at least num_envs times "
            f"an episode's {spec.horizon} steps, {config.num_envs * spec.horizon}"
        )
    if config.worker_processes:
        vector.sendable(copies.training, config.worker_processes)


@functools.partial(jax.jit, static_argnums=2)
def _draw_noise(key: jax.Array, epoch: int, shape: tuple[int, ...]) -> jax.Array:
    """Standard normal numbers that depend on the seed and the epoch alone."""
    return jax.random.normal(jax.random.fold_in(key, epoch), shape)


class Resets:
    """The seed of each episode, in the order in which they begin; part of a checkpoint."""

    def __init__(self, seed: int) -> None:
        self._seed, self._count = seed, 0

    def next_seed(self) -> int:
        self._count += 1
        return episode_seed(self._seed, Branch.TRAINING, self._count - 1)

    def facts(self) -> dict[str, Any]:
        return {"resets": self._count}

    def restore(self, facts: Mapping[str, Any]) -> None:
        self._count = facts["resets"]


class OnPolicyTrainer:
    """A run in progress: the agent, its environments, and everything a checkpoint must hold."""

    def __init__(
        self,
        config: OnPolicyConfig,
        run: Path,
        env: SafeEnv,
        copies: Copies,
        display: Display,
        lock: RunLock,
        *,
        new: bool,
    ) -> None:
        """A trainer at step 0; `slsac.training.launch` makes one, new or to be resumed.

        Args:
            new: not read here; a run of this kind has no replay to make or to find.
        """
        self.session = Session(config, run, env.spec, copies.apart_from(env), display, lock)
        self.agent = agents.build(config, env.spec)
        init_key, self._action_key = jax.random.split(jax.random.PRNGKey(config.seed))
        self._update = jax.jit(self.agent.update)
        self._predict = jax.jit(row_by_row(self.agent.predict))
        length = config.steps_per_epoch // config.num_envs
        self._noise_shape = (length, config.num_envs, env.spec.action_size)
        self.state = jax.jit(self.agent.init)(init_key)
        if config.policy_update == "trust-region":
            self.session.lagrangian.adopt(0.0)
        resets = Resets(config.seed)
        self.session.keep(resets)
        self._moments: RunningMoments | None = None
        if config.normalise_observations:
            self._moments = RunningMoments(env.spec.observation_size)
            self.session.keep(self._moments)
        self._envs = vector.build(env, copies, config.num_envs, config.worker_processes)
        self._collector = Collector(
            self._envs,
            env.spec,
            config.num_envs,
            length,
            normaliser(self._moments, config.observation_clip),
            resets.next_seed,
            self._check_step,
            self._end_episode,
            self._check_length,
        )
        self._playing = False

    @property
    def config(self) -> OnPolicyConfig:
        return cast(OnPolicyConfig, self.session.config)

    @property
    def run(self) -> Path:
        return self.session.run

    @property
    def spec(self) -> EnvSpec:
        return self.session.spec

    @property
    def step(self) -> int:
        """Environment steps taken so far, over all environments."""
        return self.session.clock.step

    @property
    def schedule(self) -> str:
        """When learning takes place, for a person."""
        config = self.config
        where = f" in {config.worker_processes} worker processes" if config.worker_processes else ""
        text = (
            f"an update after every {config.steps_per_epoch:,} steps, played in "
            f"{config.num_envs} environments{where}"
        )
        if config.steps >= config.steps_per_epoch:
            return text
        return f"{text}, so nothing is learned in {config.steps:,} steps (lower --steps-per-epoch)"

    def advance(self, until: int) -> None:
        """Trains up to step ``until``, writing logs, evaluations and checkpoints on the way.

        It stops within an epoch if need be, and continues from there when called again.
        """
        journal = self.session.journal
        journal.start_clock(self.step)
        with self.session.saved_if_stopped():
            while self.step < until and not self.session.callbacks.stopped_by:
                if not self._playing:
                    self._begin_epoch()
                self.take_step()
                self.session.display.tick(self.step)
                if self._collector.full:
                    self._end_epoch()
                    journal.start_clock(self.step)
                self.session.callbacks.tell(self)
        self._follow_observations()

    def _begin_epoch(self) -> None:
        # The policy acts through numpy: a call into JAX takes longer than this small network.
        gaussian = jax.tree.map(np.asarray, self.state.policy.gaussian)
        noise = np.asarray(
            _draw_noise(self._action_key, self.session.clock.updates, self._noise_shape)
        )
        noise = noise * np.exp(gaussian.log_std)

        def act(observation: np.ndarray) -> np.ndarray:
            mean: np.ndarray = gaussian.network(observation, np.tanh)
            return mean + noise[self._collector.time]

        self._act = act
        with self.session.failures.of_env(self.step):
            self._collector.begin(self.step)
        self._playing = True

    def take_step(self) -> None:
        """One step of every environment."""
        with self.session.failures.of_env(self.step):
            self.session.clock.step = self._collector.take_step(self._act, self.step)

    def _check_step(self, step: int, observation: np.ndarray, reward: float, cost: float) -> None:
        episode = self.session.episodes.count
        self.session.failures.check_step(step, episode, observation, reward, cost)

    def _check_length(self, length: int) -> None:
        self.session.failures.check_length(length, self.spec.horizon, ended=False)

    def _end_episode(self, step: int, episode: Episode) -> None:
        self.session.episodes.add(episode)
        self.session.journal.end_episode(step, episode, self.spec.horizon)

    def _end_epoch(self) -> None:
        self._playing = False
        self._learn()
        self._follow_observations()
        lagrangian = self.session.lagrangian
        evaluation_due = self.session.journal.end_epoch(
            self.step,
            signal=lagrangian.signal,
            signal_limit=lagrangian.limit,
            multiplier=lagrangian.value,
            more={},
        )
        if evaluation_due:
            self.evaluate_now(self.config.evaluation_episodes, final=False)
        self.session.mark(self.state)
        if self.session.checkpoint_is_due:
            self.save_checkpoint()

    def _learn(self) -> None:
        config, lagrangian = self.config, self.session.lagrangian
        by_trust_region = config.policy_update == "trust-region"
        if not by_trust_region:
            lagrangian.move()
        constraint = Constraint(
            jnp.float32(lagrangian.value), jnp.float32(self._violation(lagrangian.signal))
        )
        done = (self.step - config.steps_per_epoch) / config.steps
        rate_scale = np.float32(max(0.0, 1.0 - done) if config.learning_rate_decays else 1.0)
        self.state, metrics, finite = self._update(
            self.state, self._collector.rollout, constraint, rate_scale
        )
        self.session.clock.updates += 1
        broken = [name for name, ok in finite.items() if not ok]
        self.session.failures.check_update(self.step, broken)
        if by_trust_region:
            lagrangian.adopt(float(metrics["constraint_multiplier"]))
        values = np.array([float(value) for value in metrics.values()])
        self.session.journal.add_metrics(list(metrics), values)

    def _violation(self, signal: float | None) -> float:
        """c of the trust region: cost above the limit, negative where there is slack."""
        excess = (0.0 if signal is None else signal) - self.session.lagrangian.limit
        if self.config.trust_region.violation_unit == "per-episode":
            return excess
        lengths = self.session.episodes.lengths
        return excess / (float(np.mean(lengths)) if lengths else self.spec.horizon)

    def _follow_observations(self) -> None:
        """Gives the policy the moments of all observations so far."""
        if self._moments is not None:
            moments = Normaliser(
                jnp.float32(self._moments.mean), jnp.float32(self._moments.deviation)
            )
            policy = self.state.policy._replace(normaliser=moments)
            self.state = self.state._replace(policy=policy)

    def evaluate_now(self, episodes: int, *, final: bool) -> Evaluation:
        """Deterministic episodes on environments of their own, written to evaluations.jsonl."""
        return self.session.evaluate(self.predict, episodes, final=final)

    def predict(self, observation: np.ndarray) -> np.ndarray:
        """The deterministic action for one observation or a batch of them."""
        return np.asarray(self._predict(self.state.policy, observation))

    def finish(self) -> None:
        """Writes the final state and policy, and the final evaluation."""
        self.save_final()
        if self.config.final_evaluation_episodes:
            self.evaluate_now(self.config.final_evaluation_episodes, final=True)

    def save_final(self) -> None:
        """Writes the present state, which may be in the middle of an epoch, to predict with."""
        self.session.save_final(self.state, {})

    def save_checkpoint(self) -> None:
        """Writes a checkpoint; only between epochs."""
        assert not self._playing, "a checkpoint holds no simulator state"
        self.session.save_checkpoint(self.state)

    def load_checkpoint(self) -> None:
        """Returns to the newest readable checkpoint, logs included."""
        self.state = self.session.load_checkpoint(self.state)
        self._playing = False

    def start_from(self, saved: checkpoint.Checkpoint) -> None:
        """Begins with what another run has learned."""
        self.state = learned_by(saved, self.state)
        if self._moments is not None:
            self._moments.restore(saved.facts)

    def close(self) -> None:
        """Gives up the run directory and the environments."""
        with contextlib.ExitStack() as closing:  # the other too where one fails
            closing.callback(self.session.close)
            closing.callback(self._envs.close)
