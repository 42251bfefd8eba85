"""The training loop in full view, and the only owner of clocks.

One call of `Trainer.take_step` is one environment step: act, store, learn, move the multiplier.
Checkpoints are written between episodes, and each episode's reset is seeded from (seed, number),
so a checkpoint needs no simulator state and a resumed run repeats an undisturbed one exactly.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import jax
import numpy as np

from slsac import checkpoint
from slsac import multiplier as multipliers
from slsac.agent import off_policy
from slsac.config import Config
from slsac.display import Display
from slsac.errors import EnvFailed, InvalidInput, TrainingFailed
from slsac.evaluate import Evaluation, as_record, evaluate, summarise
from slsac.lock import RunLock
from slsac.metrics import Epoch
from slsac.replay import Replay
from slsac.risk import discounted_cost_limit, empirical_cvar
from slsac.runlog import RunLog
from slsac.seeds import Branch, episode_seed, generator
from slsac.types import SafeEnv


class Trainer:
    """A run in progress: the agent, its environment, and everything a checkpoint must hold."""

    def __init__(
        self,
        config: Config,
        run: Path,
        env: SafeEnv,
        make_evaluation_env: Callable[[], SafeEnv],
        display: Display,
        *,
        new: bool,
    ) -> None:
        """A trainer at step 0; `slsac.rundir` has the ways to get one, new or to be resumed."""
        self.config, self.run, self.env, self.display = config, run, env, display
        self._make_evaluation_env = make_evaluation_env
        self._evaluation_env: SafeEnv | None = None
        self.spec = env.spec
        self.lock: RunLock | None = None
        """Held while the run directory is in use."""

        self.agent = off_policy.build(config, self.spec)
        self.multiplier = multipliers.build(
            config.multiplier,
            tail_fraction=config.tail_fraction,
            cost_limit=config.cost_limit,
            discounted_cost_limit=discounted_cost_limit(
                config.cost_limit, config.cost_critic.discount, self.spec.horizon
            ),
        )
        init_key, self._action_key = jax.random.split(jax.random.PRNGKey(config.seed))
        self._update, self._metric_names, self._part_names = off_policy.jit_update(self.agent)
        self._explore = jax.jit(
            lambda policy, observation, key, step: self.agent.explore(
                policy, observation, jax.random.fold_in(key, step)
            )
        )
        self._predict = jax.jit(self.agent.predict)

        self.state = jax.jit(self.agent.init)(init_key)
        self.multiplier_state = self.multiplier.init()
        self.window: list[float] = []
        self._critic_signal: float | None = None
        self.step = self.episode = self.updates = self._checkpoint_step = 0
        self.epoch = Epoch()
        self._warmup_rng = generator(config.seed, Branch.WARMUP)
        # Falling back to the checkpoint before the newest goes back two intervals at most.
        reserve = 2 * (config.checkpoint_every_steps + self.spec.horizon)
        self.replay = Replay(
            run / "replay", self.spec, config.replay_capacity, reserve, config.seed, create=new
        )
        self.log = RunLog(run)
        self._observation: np.ndarray | None = None
        self._episode_return = self._episode_cost = 0.0
        self._episode_length = 0
        self._episode_facts: Mapping[str, float] = {}
        self._epoch_start = (time.perf_counter(), 0)

    @property
    def cost_signal(self) -> float | None:
        """What the multiplier holds against its limit; None while there is nothing to go by."""
        return self.multiplier.signal(self.window, self._critic_signal)

    def advance(self, until: int) -> None:
        """Trains up to step ``until``, writing logs, evaluations and checkpoints on the way."""
        self._epoch_start = (time.perf_counter(), self.step)
        while self.step < until:
            if self._observation is None:
                self._begin_episode()
            episode_over = self.take_step()
            self.display.tick(self.step)
            if self.step % self.config.steps_per_epoch == 0:
                self._end_epoch()
                self._epoch_start = (time.perf_counter(), self.step)
            if episode_over:
                self._observation = None
                if self.step - self._checkpoint_step >= self.config.checkpoint_every_steps:
                    self.save_checkpoint()

    def take_step(self) -> bool:
        """One environment step and what follows from it; True at the end of an episode."""
        config = self.config
        assert self._observation is not None
        if self.step < config.warmup_steps:
            action = self._warmup_rng.uniform(-1.0, 1.0, self.spec.action_size).astype(np.float32)
        else:
            action = np.asarray(
                self._explore(self.state.policy, self._observation, self._action_key, self.step)
            )
        try:
            result = self.env.step(action)
        except (InvalidInput, EnvFailed) as error:
            self._fail(f"the environment failed at step {self.step}: {error}")
        self._check_step(result.observation, result.reward, result.cost)
        self.replay.add(action, result.reward, result.cost, result.terminated, result.observation)
        self._observation = result.observation
        self._episode_return += result.reward
        self._episode_cost += result.cost
        self._episode_length += 1
        self._episode_facts = result.facts or {}
        self.step += 1

        episode_over = result.terminated or result.truncated
        if episode_over:
            self._end_episode()
        if self.step > config.warmup_steps:
            self._learn()
        if self.step > config.multiplier_warmup_steps:
            signal = self.cost_signal
            if signal is not None:
                self.multiplier_state = self.multiplier.update(self.multiplier_state, signal)
        return episode_over

    def _learn(self) -> None:
        with_policy = (self.updates + 1) % self.config.policy_delay == 0
        batch = self.replay.sample(self.config.batch_size, self.config.cost_critic.cost_scaling)
        self.state, values, finite = self._update(
            self.state, batch, np.float32(self.multiplier_state.value), with_policy
        )
        self.updates += 1
        if not np.all(finite):
            names = self._part_names[with_policy]
            broken = [name for name, ok in zip(names, np.asarray(finite), strict=True) if not ok]
            self._fail(f"not finite after step {self.step}: {', '.join(broken)}")
        names = self._metric_names[with_policy]
        self.epoch.add(names, np.asarray(values))
        if off_policy.CRITIC_SIGNAL in names:
            self._critic_signal = float(values[names.index(off_policy.CRITIC_SIGNAL)])

    def _begin_episode(self) -> None:
        seed = episode_seed(self.config.seed, Branch.TRAINING, self.episode)
        try:
            self._observation = self.env.reset(seed)
        except EnvFailed as error:
            self._fail(f"the environment failed at step {self.step}: {error}")
        self._check_step(self._observation, 0.0, 0.0)
        self.replay.begin_episode(self._observation)
        self._episode_return = self._episode_cost = 0.0
        self._episode_length = 0

    def _end_episode(self) -> None:
        self.window = [*self.window, self._episode_cost][-self.config.multiplier.window :]
        self.log.write(
            "episodes",
            {
                "step": self.step,
                "return": self._episode_return,
                "cost": self._episode_cost,
                "length": self._episode_length,
                **self._episode_facts,
            },
        )
        self.epoch.episodes.append(
            [self._episode_return, self._episode_cost, float(self._episode_length)]
        )
        self.episode += 1

    def _end_epoch(self) -> None:
        number = self.step // self.config.steps_per_epoch
        record = {
            "step": self.step,
            "epoch": number,
            "episodes": self.episode,
            "window_mean": empirical_cvar(self.window, 1.0) if self.window else None,
            "window_cvar": empirical_cvar(self.window, self.config.tail_fraction)
            if self.window
            else None,
            "signal": self.cost_signal,
            "signal_limit": self.multiplier.limit,
            "multiplier": self.multiplier_state.value,
            **self.epoch.means(),
        }
        self.log.write("progress", record)
        seconds = time.perf_counter() - self._epoch_start[0]
        timing = {
            "step": self.step,
            "seconds": seconds,
            "steps_per_second": (self.step - self._epoch_start[1]) / seconds,
        }
        self.log.write("timing", timing)
        self.log.scalars(record | {"steps_per_second": timing["steps_per_second"]}, self.step)
        self.display.epoch(record, timing)
        self.epoch = Epoch()
        if number % self.config.evaluate_every_epochs == 0:
            self.evaluate_now(self.config.evaluation_episodes, final=False)

    def evaluate_now(self, episodes: int, final: bool) -> Evaluation:
        """Deterministic episodes on an environment of their own, written to evaluations.jsonl."""
        if self._evaluation_env is None:
            self._evaluation_env = self._make_evaluation_env()
        result = evaluate(self._evaluation_env, self.predict, episodes, self.config.seed)
        summary = summarise(result, self.config.cost_limit, self.config.tail_fraction)
        record = {"step": self.step, "final": final, **summary, **as_record(result)}
        self.log.write("evaluations", record)
        self.log.scalars({f"evaluation/{k}": v for k, v in summary.items()}, self.step)
        self.display.evaluation(self.step, summary)
        return result

    def predict(self, observation: np.ndarray) -> np.ndarray:
        """The deterministic action for one observation or a batch of them."""
        return np.asarray(self._predict(self.state.policy, observation))

    def finish(self) -> None:
        """Writes the final state and policy, and the final evaluation."""
        self.save_final()
        if self.config.final_evaluation_episodes:
            self.evaluate_now(self.config.final_evaluation_episodes, final=True)

    def save_final(self) -> None:
        """Writes the present state, which may be in the middle of an episode, to predict with."""
        checkpoint.save(
            self.run / "checkpoints", checkpoint.FINAL, self.state,
            {"step": self.step, "multiplier": self.multiplier_state},
        )  # fmt: skip
        self._save_policy()

    def save_checkpoint(self) -> None:
        """Writes a checkpoint; only between episodes."""
        assert self._observation is None, "a checkpoint holds no simulator state"
        self.replay.flush()
        facts = {
            "step": self.step,
            "episode": self.episode,
            "updates": self.updates,
            "window": self.window,
            "critic_signal": self._critic_signal,
            "multiplier": self.multiplier_state,
            "epoch": self.epoch.facts(),
            "replay": self.replay.cursor(),
            "warmup_rng": self._warmup_rng.bit_generator.state,
            "log_offsets": self.log.offsets(),
        }
        checkpoint.save(
            self.run / "checkpoints", checkpoint.step_name(self.step), self.state, facts
        )
        self._save_policy()
        self._checkpoint_step = self.step

    def load_checkpoint(self) -> None:
        """Goes back to the newest readable checkpoint, logs included."""
        found, messages = checkpoint.load_newest(self.run / "checkpoints")
        for message in messages:
            self.display.note(message)
        facts = found.facts
        if self.config.steps < facts["step"]:
            # Before anything is changed: the logs behind the checkpoint are still whole.
            raise InvalidInput(
                f"steps is {self.config.steps}; the run is already at step {facts['step']}"
            )
        self.state = checkpoint.tree_from(found.tensors, self.state, found.path)
        self.step, self.episode, self.updates = facts["step"], facts["episode"], facts["updates"]
        self.window = facts["window"]
        self._critic_signal = facts["critic_signal"]
        value, memory = facts["multiplier"]
        self.multiplier_state = multipliers.MultiplierState(value, tuple(memory))
        self.epoch = Epoch(facts["epoch"])
        self.replay.restore(facts["replay"])
        self._warmup_rng.bit_generator.state = facts["warmup_rng"]
        self.log.rewind(facts["log_offsets"])
        self._checkpoint_step = self.step
        self._observation = None

    def close(self) -> None:
        self.log.close()
        self.env.close()
        if self.lock is not None:
            self.lock.release()
        if self._evaluation_env is not None:
            self._evaluation_env.close()

    def _save_policy(self) -> None:
        checkpoint.save_tensors(self.run / "policy.safetensors", self.state.policy)

    def _check_step(self, observation: np.ndarray, reward: float, cost: float) -> None:
        if not (np.isfinite(observation).all() and np.isfinite(reward) and np.isfinite(cost)):
            given: dict[str, Any] = {"observation": observation, "reward": reward, "cost": cost}
            names = [name for name, value in given.items() if not np.isfinite(value).all()]
            self._fail(
                f"the environment returned a non-finite {' and '.join(names)} "
                f"at step {self.step}, episode {self.episode}"
            )
        floor = self.config.cost_critic.cost_floor
        if floor is not None and cost < floor:
            self._fail(
                f"the environment returned a cost of {cost} at step {self.step}, below "
                f"cost_critic.cost_floor {floor}; set the floor to none for signed costs"
            )

    def _fail(self, what: str) -> NoReturn:
        names = checkpoint.step_names(self.run / "checkpoints")
        last = self.run / "checkpoints" / names[-1] if names else "none"
        raise TrainingFailed(f"{what}; last good checkpoint: {last}")
