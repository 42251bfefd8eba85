"""The Python interface: one class around a run directory."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Any

import jax
import numpy as np

from slsac.config import Config
from slsac.config.overrides import with_overrides
from slsac.config.presets import preset
from slsac.display import Display, Silent
from slsac.envs import copies_of, env_source, for_evaluation, import_installed, make_env
from slsac.envs.play import Lanes
from slsac.errors import InvalidInput
from slsac.evaluate import evaluate, require_episodes
from slsac.networks import row_by_row
from slsac.runs import config_file, policy
from slsac.runs.steps import reached_step
from slsac.seeds import require_seed
from slsac.stats.summary import Evaluation
from slsac.training import launch
from slsac.training.replay import copy_sparsely


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
        overwrite: bool = False,
        display: Display | None = None,
        **overrides: Any,
    ) -> None:
        """Makes an untrained agent.

        Args:
            env: an id, an environment object, or a function without arguments that makes one.
                Evaluation needs an environment of its own, which a function can always give.
            run: directory for logs, replay and checkpoints; a temporary one if not given.
            overwrite: replace a run that is there.
            display: shows progress; `slsac.display.Terminal` is the command line's.
            overrides: config fields, as in ``cost_limit=10.0`` or
                ``multiplier={"learning_rate": 1e-4}``.
        """
        config = preset(algo, env_name(env))
        self.config: Config = with_overrides(config, {"seed": seed, **overrides})
        self._env_source = env_source(env, self.config)
        self._display = display or Silent()
        self._inexact = self._named_by_files = False
        if run is None:
            run = tempfile.mkdtemp(prefix="slsac-")
            weakref.finalize(self, shutil.rmtree, run, ignore_errors=True)
        self.run = Path(run)
        self._trainer: launch.Trainer | None = launch.start(
            self.config, self.run, env=env, overwrite=overwrite, display=self._display
        )
        self.spec = self._trainer.spec
        self._functions, self._trained_policy = self._trainer.agent, None
        self._prepare()

    @classmethod
    def load(
        cls,
        run: str | Path,
        *,
        env: Any = None,
        inexact: bool = False,
        trust_env: bool = False,
        display: Display | None = None,
    ) -> Agent:
        """The agent of a saved run, ready to predict, evaluate, or learn on.

        Args:
            env: needed to evaluate or learn where the run was made on an object or a function.
            inexact: learn on although versions or the machine have changed.
            trust_env: import the module that the run's files name from the working directory too;
                by default it must be installed.
        """
        agent = cls.__new__(cls)
        agent.run = Path(run)
        agent.config, agent.spec, _ = config_file.read(agent.run)
        agent._env_source = env_source(agent.config.env if env is None else env, agent.config)
        agent._named_by_files = env is None and not trust_env
        agent._display = display or Silent()
        agent._inexact = inexact
        agent._trainer = None
        agent._functions, agent._trained_policy = policy.load(agent.run)
        agent._prepare()
        return agent

    def _prepare(self) -> None:
        self._mode = jax.jit(self._functions.predict)
        self._mode_of_rows = jax.jit(row_by_row(self._functions.predict))
        self._sample = jax.jit(self._functions.explore)
        self._sample_key = jax.random.PRNGKey(self.config.seed)
        self._evaluation_env: Lanes | None = None
        low, high = np.asarray(self.spec.action_low), np.asarray(self.spec.action_high)
        self._action_middle = ((high + low) / 2).astype(np.float32)
        self._action_scale = ((high - low) / 2).astype(np.float32)

    @property
    def policy(self) -> Any:
        """The policy's parameters."""
        return self._trained_policy if self._trainer is None else self._trainer.state.policy

    def learn(self, steps: int) -> Agent:
        """Trains for ``steps`` more environment steps; twice 1,000 equals 2,000 at once.

        A run with a linear ``clipped.learning_rate_decay`` depends on its length and learns once.
        """
        if steps < 1:
            raise InvalidInput(f"steps is {steps}; it must be at least 1")
        done = reached_step(self.run) if self._trainer is None else self._trainer.step
        config = config_file.with_steps(self.config, done + steps, begun=done > 0)
        if self._trainer is None:
            self._trainer = launch.resume(
                self.run,
                steps=config.steps,
                env=self._source(),
                inexact=self._inexact,
                display=self._display,
            )
        # Written first: whoever picks the run up after a crash finds where it was going.
        self.config = self._trainer.session.config = config
        config_file.write(self.config, self.run, self.spec, config_file.read(self.run)[2])
        try:
            self._trainer.advance(config.steps)
        except BaseException:
            # A step taken half-way cannot be continued; the next `learn` resumes exactly.
            self._trainer.close()
            self._trainer = None
            self._functions, self._trained_policy = policy.load(self.run)
            raise
        self._trainer.save_final()
        return self

    def _source(self) -> Any:
        """The env to play on. Raise InvalidInput where it would take a stranger's module."""
        if self._named_by_files:
            import_installed(self.config.env)
        return self._env_source

    def predict(self, observation: np.ndarray, deterministic: bool = True) -> np.ndarray:
        """The action for one observation, or actions for a batch, in the environment's units.

        Observations and actions are flat vectors, whatever shape the environment gives them.
        """
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
        require_episodes(episodes)
        seed = self.config.seed if seed is None else seed
        require_seed(seed)
        if self._evaluation_env is None:
            self._evaluation_env = Lanes(copies_of(self._source()).evaluation)
        config_file.require_same_task(self._evaluation_env.take(1)[0].spec, self.spec)
        self._sample_key = jax.random.PRNGKey(seed)
        if deterministic:
            return evaluate(
                self._evaluation_env,
                lambda observations: np.asarray(self._mode_of_rows(self.policy, observations)),
                episodes,
                seed,
            )
        # Every call draws the next key, so the episodes keep their order.
        return evaluate(
            self._evaluation_env, lambda o: self._act(o, False), episodes, seed, max_lanes=1
        )

    def video(self, file: str | Path, episodes: int = 1, *, seed: int | None = None) -> int:
        """Writes the first episodes of `evaluate` as MP4 and gives the number of frames.

        Raises `slsac.video.NoVideo` where nothing can be drawn.
        """
        from slsac import video

        video.require_mp4(Path(file))
        seed = self.config.seed if seed is None else seed
        require_seed(seed)
        if episodes < 1:
            raise InvalidInput(f"video_episodes is {episodes}; it must be at least 1")
        video.prepare()
        try:
            env = make_env(for_evaluation(self._source()), render_mode="rgb_array")
        except InvalidInput as error:
            raise video.NoVideo(f"no video: {error}") from error
        try:
            config_file.require_same_task(env.spec, self.spec)
            return video.record(
                env,
                self._act,
                Path(file),
                episodes=episodes,
                seed=seed,
                cost_limit=self.config.cost_limit,
            )
        finally:
            env.close()

    def save(self, run: str | Path) -> None:
        """Copies the run to another directory, everything that `load` and `learn` need."""
        target = Path(run)
        if target.resolve() == self.run.resolve():
            return
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise InvalidInput(f"run {str(run)!r} is not empty; it must be a new directory")
        if self._trainer is not None:
            self._trainer.save_final()
        partial = target.with_name(f".saving-{target.name}")
        shutil.rmtree(partial, ignore_errors=True)
        shutil.copytree(self.run, partial, copy_function=copy_sparsely)
        os.replace(partial, target)

    def close(self) -> None:
        """Closes environments, logs and the display; `learn` and `evaluate` open them again."""
        if self._trainer is not None:
            # The lock is given up here: whoever learns on must take it anew.
            trainer, self._trainer = self._trainer, None
            self._trained_policy = trainer.state.policy
            trainer.close()
        if self._evaluation_env is not None:
            lanes, self._evaluation_env = self._evaluation_env, None
            lanes.close()
        self._display.close()


def env_name(env: Any) -> str:
    """The id of an environment, or ``custom:`` and a name where it has none."""
    if isinstance(env, str):
        return env
    known = getattr(env, "env_id", None)
    return known or f"custom:{getattr(env, '__name__', type(env).__name__)}"
