"""The off-policy training loop in full view.

One call of `Trainer.take_step` is one environment step: act, store, learn, move the multiplier.
`slsac.training.cohort` takes the same steps for several seeds at once.
Checkpoints are written between episodes, and each episode's reset is seeded from (seed, number),
so a checkpoint needs no simulator state and a resumed run repeats an undisturbed one exactly.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path

import jax
import numpy as np

from slsac.algorithms import multiplier as multipliers
from slsac.algorithms.off_policy import agent as off_policy
from slsac.algorithms.tightening import Tightening
from slsac.config import OffPolicyConfig
from slsac.display import Display
from slsac.envs import Copies
from slsac.errors import env_failures
from slsac.networks import row_by_row
from slsac.runs.lock import RunLock
from slsac.seeds import Branch, episode_seed, generator
from slsac.stats.summary import Evaluation
from slsac.training.episodes import Episodes
from slsac.training.journal import Records
from slsac.training.replay import Replay
from slsac.types import Batch, Episode, SafeEnv


class Trainer:
    """A run in progress: the agent, its environment, and everything a checkpoint must hold."""

    def __init__(
        self,
        config: OffPolicyConfig,
        run: Path,
        env: SafeEnv,
        copies: Copies,
        display: Display,
        lock: RunLock,
        *,
        new: bool,
    ) -> None:
        """A trainer at step 0; `slsac.training.launch` makes one, new or to be resumed."""
        self.config, self.run, self.env, self.display = config, run, env, display
        self.episodes = Episodes(config.multiplier.window)
        self.records = Records(config, run, copies.evaluation, display, self.episodes)
        self.spec = env.spec
        self.lock = lock
        """Held while the run directory is in use."""

        self.agent = off_policy.build(config, self.spec)
        self.multiplier = multipliers.of_run(config, self.spec.horizon)
        init_key, self.action_key = jax.random.split(jax.random.PRNGKey(config.seed))
        self.packed = off_policy.PackedUpdate(self.agent)
        self._update = jax.jit(self.packed, static_argnums=3, donate_argnums=0)
        self._explore = jax.jit(
            lambda policy, observation, key, step: self.agent.explore(
                policy, observation, jax.random.fold_in(key, step)
            )
        )
        self._predict = jax.jit(row_by_row(self.agent.predict))

        self._state: off_policy.AgentState | None = jax.jit(self.agent.init)(init_key)
        self._shared_state: Callable[[], off_policy.AgentState] | None = None
        self.multiplier_state = self.multiplier.init()
        self.tightening = Tightening(config, self.spec)
        self._critic_signal: float | None = None
        self.step = self.updates = self._checkpoint_step = 0
        self._warmup_rng = generator(config.seed, Branch.WARMUP)
        # Falling back to the checkpoint before the newest goes back two intervals at most.
        reserve = 2 * (config.checkpoint_every_steps + self.spec.horizon)
        self.replay = Replay(
            run / "replay", self.spec, config.replay_capacity, reserve, config.seed, create=new
        )
        self._observation: np.ndarray | None = None
        self._episode_return = self._episode_cost = 0.0
        self._episode_length = 0
        self._episode_extras: Mapping[str, float] = {}

    @property
    def schedule(self) -> str:
        """When learning begins and the limit is enforced, for a person."""
        steps, rest = self.config.steps, self.config.multiplier_warmup_steps
        warmup = self.config.warmup_steps
        if steps <= warmup:
            return (
                f"learning would begin after {warmup:,} steps of random actions, so nothing is "
                f"learned in {steps:,} (--warmup-steps)"
            )
        text = f"learning begins after {warmup:,} steps of random actions; "
        if rest < steps:
            return text + f"the multiplier acts after {rest:,} steps"
        return text + (
            f"the multiplier would act after {rest:,} steps, so nothing holds this run of "
            f"{steps:,} to its cost limit (--multiplier-warmup-steps)"
        )

    @property
    def state(self) -> off_policy.AgentState:
        """Everything the agent has learned."""
        if self._shared_state is not None:
            return self._shared_state()
        assert self._state is not None
        return self._state

    @state.setter
    def state(self, state: off_policy.AgentState) -> None:
        if self._shared_state is not None:
            raise RuntimeError("the state of this run is its cohort's and cannot be set here")
        self._state = state

    def share_state(self, state: Callable[[], off_policy.AgentState]) -> None:
        """From here on a cohort learns for this run and others at once, and has its state."""
        self._state, self._shared_state = None, state

    @property
    def cost_signal(self) -> float | None:
        """What the multiplier holds against its limit; None while there is nothing to go by."""
        return self.multiplier.signal(self.episodes.costs, self._critic_signal)

    def advance(self, until: int) -> None:
        """Trains up to step ``until``, writing logs, evaluations and checkpoints on the way."""
        self.begin_clock()
        while self.step < until:
            self.close_step(self.take_step())

    def begin_clock(self) -> None:
        """Starts timing an epoch here; what came before was not training."""
        self.records.start_clock(self.step)

    def take_step(self) -> bool:
        """One environment step and what follows from it; True at the end of an episode."""
        observation = self.observation()
        if self.step < self.config.warmup_steps:
            action = self.random_action()
        else:
            action = np.asarray(
                self._explore(self.state.policy, observation, self.action_key, self.step)
            )
        episode_over = self.observe(action)
        if self.step > self.config.warmup_steps:
            self.learn()
        self.move_multiplier()
        return episode_over

    def observation(self) -> np.ndarray:
        """What the agent sees now; begins an episode where none is running."""
        if self._observation is None:
            self._begin_episode()
        assert self._observation is not None
        return self._observation

    def random_action(self) -> np.ndarray:
        return self._warmup_rng.uniform(-1.0, 1.0, self.spec.action_size).astype(np.float32)

    def observe(self, action: np.ndarray) -> bool:
        """Takes ``action`` in the environment and stores the step; True if it ends the episode."""
        with self.records.env_failures_named(self.step), env_failures():
            result = self.env.step(action)
        self._check_step(result.observation, result.reward, result.cost)
        self.replay.add(action, result.reward, result.cost, result.terminated, result.observation)
        self.tightening.step(self.observation(), action, result.cost)
        self._observation = result.observation
        self._episode_return += result.reward
        self._episode_cost += result.cost
        self._episode_length += 1
        self._episode_extras = result.extras or {}
        self.step += 1
        episode_over = result.terminated or result.truncated
        if episode_over:
            if self.tightening.on:
                self.tightening.end_episode(self.state.cost_critic, terminated=result.terminated)
            self._end_episode(result.truncated)
        return episode_over

    def learn(self) -> None:
        """One update of the agent."""
        with_policy = self.policy_is_due()
        self._state, values, finite = self._update(
            self._state, self.sample(), np.float32(self.multiplier_state.value), with_policy
        )
        self.learned(np.asarray(values), np.asarray(finite), with_policy)

    def policy_is_due(self) -> bool:
        """Whether the next update moves the policy and the targets too."""
        return (self.updates + 1) % self.config.policy_delay == 0

    def sample(self) -> Batch:
        return self.replay.sample(self.config.batch_size, self.config.cost_critic.cost_scaling)

    def learned(self, values: np.ndarray, finite: np.ndarray, with_policy: bool) -> None:
        """Takes note of an update: its packed metrics, and which parts are finite."""
        self.updates += 1
        if not finite.all():
            names = self.packed.part_names[with_policy]
            broken = [name for name, ok in zip(names, finite, strict=True) if not ok]
            self.records.fail(f"not finite after step {self.step}: {', '.join(broken)}")
        names = self.packed.metric_names[with_policy]
        self.records.epoch.add(names, values)
        if off_policy.CRITIC_SIGNAL in names:
            self._critic_signal = float(values[names.index(off_policy.CRITIC_SIGNAL)])

    def move_multiplier(self) -> None:
        if self.step > self.config.multiplier_warmup_steps:
            signal = self.cost_signal
            if signal is not None:
                margin = self.tightening.share * self.multiplier.limit
                self.multiplier_state = self.multiplier.update(
                    self.multiplier_state, signal, margin
                )

    def close_step(self, episode_over: bool) -> None:
        """Logs, evaluates and saves where the step that was taken makes it due."""
        self.display.tick(self.step)
        if self.step % self.config.steps_per_epoch == 0:
            if self.end_epoch():
                self.evaluate_now(self.config.evaluation_episodes, final=False)
            self.begin_clock()
        if episode_over:
            self.close_episode()

    def close_episode(self) -> None:
        """Saves where it is due; only after an episode's last step."""
        self._observation = None
        if self.step - self._checkpoint_step >= self.config.checkpoint_every_steps:
            self.save_checkpoint()

    def _begin_episode(self) -> None:
        seed = episode_seed(self.config.seed, Branch.TRAINING, self.episodes.count)
        with self.records.env_failures_named(self.step), env_failures():
            self._observation = self.env.reset(seed)
        self._check_step(self._observation, 0.0, 0.0)
        self.replay.begin_episode(self._observation)
        self._episode_return = self._episode_cost = 0.0
        self._episode_length = 0

    def _end_episode(self, truncated: bool) -> None:
        episode = Episode(
            self._episode_return, self._episode_cost, self._episode_length, self._episode_extras,
            truncated,
        )  # fmt: skip
        self.episodes.add(episode)
        self.records.end_episode(self.step, episode, self.spec.horizon)

    def end_epoch(self) -> bool:
        """Writes a line of progress; True where an evaluation is due."""
        return self.records.end_epoch(
            self.step,
            self.cost_signal,
            self.multiplier.limit * (1.0 - self.tightening.share),
            self.multiplier_state.value,
            self.tightening.metrics(),
        )

    def evaluate_now(self, episodes: int, final: bool) -> Evaluation:
        """Deterministic episodes on environments of their own, written to evaluations.jsonl."""
        # Looked up once: in a cohort it has to be cut out of the states of all runs.
        policy = self.state.policy
        return self.records.evaluate(
            self.step, lambda rows: np.asarray(self._predict(policy, rows)), episodes, final
        )

    def finish(self) -> None:
        """Writes the final state and policy, and the final evaluation."""
        self.save_final()
        if self.config.final_evaluation_episodes:
            self.evaluate_now(self.config.final_evaluation_episodes, final=True)

    def save_final(self) -> None:
        """Writes the present state, which may be in the middle of an episode, to predict with."""
        self.replay.flush()
        self.records.save_final(self.step, self.state, self.multiplier_state)

    def save_checkpoint(self) -> None:
        """Writes a checkpoint; only between episodes."""
        assert self._observation is None, "a checkpoint holds no simulator state"
        self.replay.flush()
        facts = {
            "updates": self.updates,
            "critic_signal": self._critic_signal,
            "multiplier": self.multiplier_state,
            "tightening": self.tightening.rows,
            "replay": self.replay.cursor(),
            "warmup_rng": self._warmup_rng.bit_generator.state,
        }
        self.records.save_checkpoint(self.step, self.state, facts)
        self._checkpoint_step = self.step

    def load_checkpoint(self) -> None:
        """Goes back to the newest readable checkpoint, logs included."""
        self.state, facts = self.records.load_checkpoint(self.state)
        self.step, self.updates = facts["step"], facts["updates"]
        self._critic_signal = facts["critic_signal"]
        self.multiplier_state = multipliers.restored(facts["multiplier"])
        self.tightening.restore(facts.get("tightening", []))
        self.replay.restore(facts["replay"])
        self._warmup_rng.bit_generator.state = facts["warmup_rng"]
        self._checkpoint_step = self.step
        self._observation = None

    def close(self) -> None:
        with contextlib.ExitStack() as closing:  # the others too where one fails
            for close in (self.lock.release, self.env.close, self.records.close):
                closing.callback(close)

    def _check_step(self, observation: np.ndarray, reward: float, cost: float) -> None:
        self.records.check_step(self.step, observation, reward, cost)
        floor = self.config.cost_critic.cost_floor
        if floor is not None and cost < floor:
            self.records.fail(
                f"the environment returned a cost of {cost} at step {self.step}, below "
                f"cost_critic.cost_floor {floor}; set the floor to none for signed costs"
            )
