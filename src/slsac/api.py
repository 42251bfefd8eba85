"""The Python interface: one class around a run directory."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Any

import jax
import numpy as np

from slsac import checkpoint, rundir
from slsac.config import Config
from slsac.display import Display, Silent
from slsac.envs import duplicate_env, make_env
from slsac.errors import InvalidInput
from slsac.evaluate import Evaluation, evaluate
from slsac.overrides import with_overrides
from slsac.presets import preset
from slsac.train import Trainer
from slsac.types import SafeEnv


class Agent:
    """A safe reinforcement-learning agent on one task.

    >>> agent = Agent("sl-sac", env="SafetyHopperVelocity-v1", seed=0, cost_limit=25.0)
    >>> agent.learn(1_000_000)
    >>> agent.predict(observation)
    """

    def __init__(
        self,
        algo: str,
        *,
        env: Any,
        seed: int = 0,
        run: str | Path | None = None,
        display: Display | None = None,
        **overrides: Any,
    ) -> None:
        """Makes an untrained agent.

        Args:
            env: an id, an environment object, or a function without arguments that makes one.
                Evaluation needs an environment of its own, which a function can always give.
            run: directory for logs, replay and checkpoints; a temporary one if not given.
            overrides: config fields, as in ``cost_limit=10.0`` or
                ``multiplier={"learning_rate": 1e-4}``.
        """
        name = env if isinstance(env, str) else getattr(env, "__name__", type(env).__name__)
        self.config: Config = with_overrides(preset(algo, name), {"seed": seed, **overrides})
        self._env_source = env
        self._display = display or Silent()
        if run is None:
            run = tempfile.mkdtemp(prefix="slsac-")
            weakref.finalize(self, shutil.rmtree, run, ignore_errors=True)
        self.run = Path(run)
        self._trainer: Trainer | None = rundir.start(
            self.config, self.run, env=env, display=self._display
        )
        self.spec = self._trainer.spec
        self._functions, self._trained_policy = self._trainer.agent, None
        self._prepare()

    @classmethod
    def load(cls, run: str | Path, *, env: Any = None, display: Display | None = None) -> Agent:
        """The agent of a saved run, ready to predict, evaluate, or learn on.

        Args:
            env: needed to evaluate or learn where the run was made on an object or a function.
        """
        agent = cls.__new__(cls)
        agent.run = Path(run)
        agent.config, agent.spec, _ = rundir.read_config(agent.run)
        agent._env_source = agent.config.env if env is None else env
        agent._display = display or Silent()
        agent._trainer = None
        agent._functions, agent._trained_policy = rundir.load_policy(agent.run)
        agent._prepare()
        return agent

    def _prepare(self) -> None:
        self._mode = jax.jit(self._functions.predict)
        self._sample = jax.jit(self._functions.explore)
        self._sample_key = jax.random.PRNGKey(self.config.seed)
        self._evaluation_env: SafeEnv | None = None
        low, high = np.asarray(self.spec.action_low), np.asarray(self.spec.action_high)
        self._action_middle = ((high + low) / 2).astype(np.float32)
        self._action_scale = ((high - low) / 2).astype(np.float32)

    @property
    def policy(self) -> Any:
        """The policy's parameters."""
        return self._trained_policy if self._trainer is None else self._trainer.state.policy

    def learn(self, steps: int) -> Agent:
        """Trains for ``steps`` more environment steps; twice 1,000 equals 2,000 at once."""
        if steps < 1:
            raise InvalidInput(f"steps is {steps}; it must be at least 1")
        if self._trainer is None:
            self._trainer = rundir.resume(self.run, env=self._env_source, display=self._display)
            done = max(self._trainer.step, checkpoint.final_step(self.run / "checkpoints"))
        else:
            done = self._trainer.step
        self._trainer.advance(done + steps)
        self._trainer.save_final()
        self.config = with_overrides(self.config, {"steps": done + steps})
        rundir.write_config(self.config, self.run, self.spec, rundir.read_config(self.run)[2])
        return self

    def predict(self, observation: np.ndarray, deterministic: bool = True) -> np.ndarray:
        """The action for one observation, or actions for a batch, in the environment's units."""
        return self._action_middle + self._action_scale * self._act(observation, deterministic)

    def _act(self, observation: np.ndarray, deterministic: bool = True) -> np.ndarray:
        """The action in [-1, 1]."""
        observation = np.asarray(observation, np.float32)
        if observation.shape[-1:] != (self.spec.observation_size,):
            raise InvalidInput(
                f"observation has shape {observation.shape}; its last axis must be "
                f"{self.spec.observation_size}"
            )
        if deterministic:
            return np.asarray(self._mode(self.policy, observation))
        self._sample_key, key = jax.random.split(self._sample_key)
        return np.asarray(self._sample(self.policy, observation, key))

    def evaluate(
        self, episodes: int = 30, *, seed: int | None = None, deterministic: bool = True
    ) -> Evaluation:
        """Plays whole episodes from fixed seeds; gives arrays of returns, costs and lengths."""
        if episodes < 1:
            raise InvalidInput(f"episodes is {episodes}; it must be at least 1")
        if self._evaluation_env is None:
            self._evaluation_env = make_env(duplicate_env(self._env_source))
        self._sample_key = jax.random.PRNGKey(self.config.seed)
        return evaluate(
            self._evaluation_env,
            lambda observation: self._act(observation, deterministic),
            episodes,
            self.config.seed if seed is None else seed,
        )

    def save(self, run: str | Path) -> None:
        """Copies the run to another directory, everything that `load` and `learn` need."""
        target = Path(run)
        if target.resolve() == self.run.resolve():
            return
        if (target / "config.json").exists():
            raise InvalidInput(f"run {str(run)!r} already holds a run; choose another directory")
        if self._trainer is not None:
            self._trainer.replay.flush()
            self._trainer.save_final()
        shutil.copytree(self.run, target, dirs_exist_ok=True)

    def close(self) -> None:
        """Closes environments and logs."""
        if self._trainer is not None:
            self._trainer.close()
        if self._evaluation_env is not None:
            self._evaluation_env.close()
