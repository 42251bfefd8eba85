"""The on-policy training loop in full view.

One call of `Trainer.take_step` is one step of every environment; a full epoch is learned from in
one call. Epochs begin with fresh episodes whose resets are seeded from (seed, number), so a
checkpoint, which falls between epochs, needs no simulator state and resume is exact.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from slsac.algorithms import multiplier as multipliers
from slsac.algorithms.on_policy import agent as agents
from slsac.algorithms.on_policy.policy import Normaliser
from slsac.config import OnPolicyConfig
from slsac.display import Display
from slsac.envs import Copies, vector
from slsac.errors import InvalidInput
from slsac.networks import row_by_row
from slsac.runs.lock import RunLock
from slsac.seeds import Branch, episode_seed
from slsac.stats.summary import Evaluation
from slsac.training.episodes import Episodes
from slsac.training.journal import Records
from slsac.training.moments import RunningMoments
from slsac.training.rollout import Collector, normaliser
from slsac.types import EnvSpec, Episode, SafeEnv


def check(config: OnPolicyConfig, spec: EnvSpec, copies: Copies) -> None:
    """An error where ``config`` does not suit the task."""
    if config.steps_per_epoch < config.num_envs * spec.horizon:
        # Otherwise no episode may ever end within an epoch, and no cost would be known.
        raise InvalidInput(
            f"steps_per_epoch is {config.steps_per_epoch}; it must be at least num_envs times "
            f"an episode's {spec.horizon} steps, {config.num_envs * spec.horizon}"
        )
    if config.worker_processes:
        vector.sendable(copies.training, config.worker_processes)


class Trainer:
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
        self.config, self.run, self.display = config, run, display
        self.spec = env.spec
        length = config.steps_per_epoch // config.num_envs
        self.episodes = Episodes(config.multiplier.window)
        self.records = Records(config, run, copies.evaluation, display, self.episodes)
        self.lock = lock
        """Held while the run directory is in use."""

        self.agent = agents.build(config, self.spec)
        self.multiplier = multipliers.of_run(config, self.spec.horizon)
        init_key, self._action_key = jax.random.split(jax.random.PRNGKey(config.seed))
        self._update = jax.jit(self.agent.update)
        self._predict = jax.jit(row_by_row(self.agent.predict))
        noise_shape = (length, config.num_envs, self.spec.action_size)
        self._draw_noise = jax.jit(
            lambda key, epoch: jax.random.normal(jax.random.fold_in(key, epoch), noise_shape)
        )
        self.state = jax.jit(self.agent.init)(init_key)
        self.multiplier_state = self.multiplier.init()
        if config.policy_update == "trust-region":
            self.multiplier_state = multipliers.MultiplierState(0.0)
        self.step = self.updates = self._resets = self._checkpoint_step = 0
        self._moments = (
            RunningMoments(self.spec.observation_size) if config.normalise_observations else None
        )
        self._envs = vector.build(env, copies.training, config.num_envs, config.worker_processes)
        self._collector = Collector(
            self._envs,
            self.spec,
            config.num_envs,
            length,
            normaliser(self._moments, config.observation_clip),
            self._next_seed,
            self.records.check_step,
            self._end_episode,
        )
        self._playing = False

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
        return f"{text}, so nothing is learned in {config.steps:,} steps (--steps-per-epoch)"

    @property
    def cost_signal(self) -> float | None:
        """What is held against the limit; None while no episode has finished."""
        return self.multiplier.signal(self.episodes.costs, None)

    def advance(self, until: int) -> None:
        """Trains up to step ``until``, writing logs, evaluations and checkpoints on the way.

        It stops within an epoch if need be, and goes on from there when called again.
        """
        self.records.start_clock(self.step)
        while self.step < until:
            if not self._playing:
                self._begin_epoch()
            self.take_step()
            self.display.tick(self.step)
            if self._collector.full:
                self._end_epoch()
                self.records.start_clock(self.step)
        self._follow_observations()

    def _begin_epoch(self) -> None:
        # The policy acts through numpy: a call into JAX takes longer than this small network.
        gaussian = jax.tree.map(np.asarray, self.state.policy.gaussian)
        noise = np.asarray(self._draw_noise(self._action_key, self.updates))
        noise = noise * np.exp(gaussian.log_std)

        def act(observation: np.ndarray) -> np.ndarray:
            mean: np.ndarray = gaussian.network(observation, np.tanh)
            return mean + noise[self._collector.time]

        self._act = act
        with self.records.env_failures_named(self.step):
            self._collector.begin(self.step)
        self._playing = True

    def take_step(self) -> None:
        """One step of every environment."""
        with self.records.env_failures_named(self.step):
            self.step = self._collector.take_step(self._act, self.step)

    def _end_episode(self, step: int, episode: Episode) -> None:
        self.episodes.add(episode)
        self.records.end_episode(step, episode, self.spec.horizon)

    def _end_epoch(self) -> None:
        self._playing = False
        self._learn()
        self._follow_observations()
        evaluation_due = self.records.end_epoch(
            self.step, self.cost_signal, self.multiplier.limit, self.multiplier_state.value, {}
        )
        if evaluation_due:
            self.evaluate_now(self.config.evaluation_episodes, final=False)
        if self.step - self._checkpoint_step >= self.config.checkpoint_every_steps:
            self.save_checkpoint()

    def _learn(self) -> None:
        config, signal = self.config, self.cost_signal
        by_trust_region = config.policy_update == "trust-region"
        if signal is not None and not by_trust_region:
            self.multiplier_state = self.multiplier.update(self.multiplier_state, signal)
        constraint = agents.Constraint(
            jnp.float32(self.multiplier_state.value), jnp.float32(self._violation(signal))
        )
        done = (self.step - config.steps_per_epoch) / config.steps
        rate_scale = np.float32(max(0.0, 1.0 - done) if config.learning_rate_decays else 1.0)
        self.state, metrics, finite = self._update(
            self.state, self._collector.rollout, constraint, rate_scale
        )
        self.updates += 1
        broken = [name for name, ok in finite.items() if not ok]
        if broken:
            self.records.fail(f"not finite after step {self.step}: {', '.join(broken)}")
        if by_trust_region:
            found = float(metrics["constraint_multiplier"])
            self.multiplier_state = multipliers.MultiplierState(found)
        self.records.epoch.add(list(metrics), np.array([float(v) for v in metrics.values()]))

    def _violation(self, signal: float | None) -> float:
        """c of the trust region: cost above the limit, negative where there is slack."""
        over = (0.0 if signal is None else signal) - self.multiplier.limit
        if self.config.trust_region.violation_unit == "per-episode":
            return over
        lengths = self.episodes.lengths
        return over / (float(np.mean(lengths)) if lengths else self.spec.horizon)

    def _follow_observations(self) -> None:
        """Gives the policy the moments of all observations so far."""
        if self._moments is not None:
            known = Normaliser(
                jnp.float32(self._moments.mean), jnp.float32(self._moments.deviation)
            )
            policy = self.state.policy._replace(normaliser=known)
            self.state = self.state._replace(policy=policy)

    def _next_seed(self) -> int:
        self._resets += 1
        return episode_seed(self.config.seed, Branch.TRAINING, self._resets - 1)

    def evaluate_now(self, episodes: int, final: bool) -> Evaluation:
        """Deterministic episodes on environments of their own, written to evaluations.jsonl."""
        return self.records.evaluate(self.step, self.predict, episodes, final)

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
        self.records.save_final(self.step, self.state, self.multiplier_state)

    def save_checkpoint(self) -> None:
        """Writes a checkpoint; only between epochs."""
        assert not self._playing, "a checkpoint holds no simulator state"
        facts = {
            "updates": self.updates,
            "resets": self._resets,
            "multiplier": self.multiplier_state,
            "moments": self._moments and self._moments.facts(),
        }
        self.records.save_checkpoint(self.step, self.state, facts)
        self._checkpoint_step = self.step

    def load_checkpoint(self) -> None:
        """Goes back to the newest readable checkpoint, logs included."""
        self.state, facts = self.records.load_checkpoint(self.state)
        self.step, self.updates, self._resets = facts["step"], facts["updates"], facts["resets"]
        self.multiplier_state = multipliers.restored(facts["multiplier"])
        if self._moments is not None:
            self._moments.restore(facts["moments"])
        self._checkpoint_step = self.step
        self._playing = False

    def close(self) -> None:
        with contextlib.ExitStack() as closing:  # the others too where one fails
            for close in (self.lock.release, self._envs.close, self.records.close):
                closing.callback(close)
