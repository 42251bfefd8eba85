"""The Python interface: one class around a run directory."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from slsac.config import Config
from slsac.config.overrides import with_overrides
from slsac.config.presets import preset
from slsac.display import Display, Silent, Terminal
from slsac.envs import copies_of, env_source, for_evaluation, import_installed, make_env
from slsac.envs.play import Lanes
from slsac.errors import Failed, InvalidInput
from slsac.evaluate import evaluate, require_episodes, require_recordable
from slsac.networks import row_by_row
from slsac.runs import config_file, policy
from slsac.runs.export import export
from slsac.runs.layout import EVALUATIONS
from slsac.runs.lock import RunLock
from slsac.runs.log import RunLog
from slsac.runs.steps import reached_step, trained_steps
from slsac.seeds import require_seed
from slsac.stats.summary import Evaluation
from slsac.training import fine_tune, launch
from slsac.training.journal import evaluation_record
from slsac.training.replay import copy_sparsely


class Agent:
    """A safe reinforcement-learning agent on one task.

    Examples:
        >>> agent = Agent("sl-sac", env="SafetyHopperVelocity-v1", seed=0, cost_limit=25.0)
        >>> agent.learn(1_000_000)
        >>> agent.predict(observation)
    """

    def __init__(
        self,
        algo: str,
        *,
        env: Any,
        env_name: str | None = None,
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
            env_name: what tables and reports call an environment that has no id.
            run: directory for logs, replay and checkpoints; a temporary one if not given.
            overwrite: replace a run that is there.
            display: shows progress in place of what `learn` prints.
            overrides: config fields, as in ``cost_limit=10.0`` or
                ``multiplier={"learning_rate": 1e-4}``.
        """
        config = with_overrides(preset(algo, name_of(env, env_name)), {"seed": seed, **overrides})
        self._begin(
            config, env, display,
            launch.start(
                config, self._own_folder(run), env=env, overwrite=overwrite, display=display
            ),
        )  # fmt: skip

    def _own_folder(self, run: str | Path | None) -> Path:
        """``run``, or a temporary folder that goes with this object."""
        if run is None:
            run = tempfile.mkdtemp(prefix="slsac-")
            weakref.finalize(self, shutil.rmtree, run, ignore_errors=True)
        return Path(run)

    def _begin(
        self, config: Config, env: Any, display: Display | None, trainer: launch.Trainer
    ) -> None:
        """Takes over a run that has just begun."""
        self.config: Config = config
        self.run, self.spec = trainer.run, trainer.spec
        self._env_source = env_source(env, config)
        self._display = display
        self._inexact = self._named_by_files = False
        self._trainer: launch.Trainer | None = trainer
        self._functions, self._trained_policy = trainer.agent, None
        self._prepare()

    @classmethod
    def load(
        cls,
        source: str | Path,
        /,
        *,
        env: Any = None,
        env_name: str | None = None,
        inexact: bool = False,
        trust_env: bool = False,
        display: Display | None = None,
        run: str | Path | None = None,
        overwrite: bool = False,
        keep_replay: bool = False,
        **overrides: Any,
    ) -> Agent:
        """The agent of a saved run, ready to predict, evaluate, or keep learning.

        With ``run`` or config fields, as in ``cost_limit=2.0``, it is a new run that begins with
        what the saved one has learned; the saved one stays as it is.

        Args:
            env: needed to evaluate or learn where the run was made on an object or a function;
                in a new run, possibly another task with observations and actions of the same size.
            env_name: of a new run; what tables and reports call an environment that has no id.
            inexact: keep learning although versions or the machine have changed.
            run: directory of the new run; a temporary one if only config fields are given.
            keep_replay: the new run also learns from the saved one's transitions.
            trust_env: import the module that the run's files name from the working directory too;
                by default it must be installed.
        """
        agent = cls.__new__(cls)
        if run is not None or overrides or keep_replay:
            if env is not None:
                overrides["env"] = name_of(env, env_name)
            config = fine_tune.config_from(Path(source), overrides, keep_replay=keep_replay)
            if env is None and not trust_env:
                import_installed(config.env)
            env = config.env if env is None else env
            trainer = fine_tune.start(
                config, agent._own_folder(run), Path(source),
                env=env, keep_replay=keep_replay, overwrite=overwrite, display=display,
            )  # fmt: skip
            agent._begin(config, env, display, trainer)
            return agent
        agent.run = Path(source)
        agent.config, agent.spec, _ = config_file.read(agent.run)
        agent._env_source = env_source(agent.config.env if env is None else env, agent.config)
        agent._named_by_files = env is None and not trust_env
        agent._display = display
        agent._inexact = inexact
        agent._trainer = None
        agent._functions, agent._trained_policy = policy.load(agent.run)
        agent._prepare()
        return agent

    def __enter__(self) -> Agent:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _prepare(self) -> None:
        self._mode = jax.jit(self._functions.predict)
        self._mode_of_rows = jax.jit(row_by_row(self._functions.predict))
        self._sample = jax.jit(self._functions.sample)
        self._sample_key = jax.random.PRNGKey(self.config.seed)
        self._evaluation_env: Lanes | None = None

    @property
    def policy(self) -> Any:
        """The policy's present parameters; further learning leaves them as they are."""
        # An update reuses the memory of what it replaces.
        return self._policy if self._trainer is None else jax.tree.map(np.array, self._policy)

    @property
    def _policy(self) -> Any:
        return self._trained_policy if self._trainer is None else self._trainer.state.policy

    def learn(self, steps: int, *, callbacks: Sequence[Any] = (), progress: bool = True) -> Agent:
        """Trains for ``steps`` more environment steps; twice 1,000 equals 2,000 at once.

        Ends with an evaluation of ``final_evaluation_episodes``, which tables and reports read. A
        run with a linear ``clipped.learning_rate_decay`` depends on its length and learns once.

        Args:
            callbacks: see `slsac.training.callbacks.Callback`.
            progress: print a line per epoch and evaluation, and a bar on a terminal.
        """
        if steps < 1:
            raise InvalidInput(f"steps is {steps}; it must be at least 1")
        done = reached_step(self.run) if self._trainer is None else self._trainer.step
        config = config_file.with_steps(self.config, done + steps, begun=done > 0)
        with self._shown(config, progress) as display:
            if self._trainer is None:
                self._trainer = launch.resume(
                    self.run,
                    steps=config.steps,
                    env=self._source(),
                    inexact=self._inexact,
                    display=display,
                )
            trainer = self._trainer
            trainer.session.journal.display = display
            # Written first: whoever picks the run up after a crash finds where it was going.
            self.config = trainer.session.config = config
            if isinstance(display, Terminal) and done == 0:
                display.note(trainer.schedule)
            config_file.write(self.config, self.run, self.spec, config_file.read(self.run)[2])
            try:
                launch.train(trainer, config.steps, callbacks)
            except BaseException:
                # A step taken half-way cannot be continued; the next `learn` resumes exactly.
                trainer.close()
                self._trainer = None
                self._functions, self._trained_policy = policy.load(self.run)
                raise
        return self

    @contextlib.contextmanager
    def _shown(self, config: Config, progress: bool) -> Iterator[Display]:
        """The user's own display, or one for this call of `learn`."""
        if self._display is not None:
            yield self._display
            return
        shown = Terminal(config.steps, config.cost_limit) if progress else Silent()
        try:
            yield shown
        finally:
            shown.close()

    def _source(self) -> Any:
        """The env to play on. Raise InvalidInput where it would take a stranger's module."""
        if self._named_by_files:
            import_installed(self.config.env)
        return self._env_source

    def predict(self, observation: np.ndarray, deterministic: bool = True) -> np.ndarray:
        """The action for one observation, or actions for a batch, in the environment's units.

        Observations and actions are flat vectors, whatever shape the environment gives them.
        """
        unit = self._act(observation, deterministic)
        return self.spec.action_middle + self.spec.action_scale * unit

    def _act(self, observation: np.ndarray, deterministic: bool = True) -> np.ndarray:
        """The action in [-1, 1]."""
        if isinstance(observation, (dict, tuple)):
            raise InvalidInput(
                f"observation is a {type(observation).__name__}; it must be a vector: "
                "gymnasium.spaces.flatten(env.observation_space, observation)"
            )
        observation = np.asarray(observation, np.float32)
        if observation.shape[-1:] != (self.spec.observation_size,):
            raise InvalidInput(
                f"observation has shape {observation.shape}; its last axis must be "
                f"{self.spec.observation_size}"
            )
        if not np.isfinite(observation).all():
            wrong = observation[~np.isfinite(observation)][0]
            raise InvalidInput(f"observation holds {wrong}; it must be finite numbers")
        if deterministic:
            return np.asarray(self._mode(self._policy, observation))
        self._sample_key, key = jax.random.split(self._sample_key)
        return np.asarray(self._sample(self._policy, observation, key))

    def evaluate(
        self,
        episodes: int = 30,
        *,
        seed: int | None = None,
        deterministic: bool = True,
        record: bool = False,
    ) -> Evaluation:
        """Plays whole episodes from fixed seeds; gives arrays of returns, costs and lengths.

        Args:
            record: write them to the run as its final evaluation, which tables and reports read.
        """
        if not record:
            return self._evaluate(episodes, seed, deterministic)
        require_recordable(deterministic=deterministic)
        # Locked before the first episode: the run must still have this policy after the last.
        with contextlib.ExitStack() as locked:
            if self._trainer is None:
                launch.refuse_links(self.run)
                locked.callback(RunLock(self.run).release)
                self._require_newest_policy()
                step = reached_step(self.run) or trained_steps(self.run)
            else:
                step = self._trainer.step
            evaluation = self._evaluate(episodes, seed, deterministic)
            line = evaluation_record(self.config, step, evaluation, final=True)
            RunLog(self.run).write(EVALUATIONS, line)
        return evaluation

    def _require_newest_policy(self) -> None:
        """Raise Failed if the run has learned more since this agent was loaded."""
        saved = jax.tree.leaves(policy.load(self.run)[1])
        loaded = jax.tree.leaves(self._trained_policy)
        if not all(np.array_equal(*pair) for pair in zip(saved, loaded, strict=True)):
            raise Failed(f"run {str(self.run)!r} has saved another policy; load it again")

    def _evaluate(self, episodes: int, seed: int | None, deterministic: bool) -> Evaluation:
        require_episodes(episodes)
        seed = self.config.seed if seed is None else seed
        require_seed(seed)
        if self._evaluation_env is None:
            self._evaluation_env = Lanes(copies_of(self._source()).evaluation)
        evaluated = self._evaluation_env.take(1)[0].spec
        config_file.require_same_task(evaluated, self.spec, self.config)
        self._sample_key = jax.random.PRNGKey(seed)
        if deterministic:
            return evaluate(
                self._evaluation_env,
                lambda observations: np.asarray(self._mode_of_rows(self._policy, observations)),
                episodes,
                seed,
            )
        # Every call draws the next key, so the episodes keep their order.
        return evaluate(
            self._evaluation_env, lambda o: self._act(o, False), episodes, seed, max_lanes=1
        )

    def video(
        self,
        file: str | Path,
        episodes: int = 1,
        *,
        seed: int | None = None,
        deterministic: bool = True,
    ) -> int:
        """Writes the first episodes of `evaluate` as MP4 and gives the number of frames.

        Raises `slsac.video.NoVideo` where nothing can be drawn.
        """
        from slsac import video

        video.require_mp4(Path(file))
        seed = self.config.seed if seed is None else seed
        require_seed(seed)
        require_episodes(episodes)
        video.prepare()
        try:
            env = make_env(for_evaluation(self._source()), render_mode="rgb_array")
        except InvalidInput as error:
            raise video.NoVideo(f"no video: {error}") from error
        try:
            config_file.require_same_task(env.spec, self.spec, self.config)
            return video.record(
                env,
                lambda observation: self._act(observation, deterministic),
                Path(file),
                episodes=episodes,
                seed=seed,
                cost_limit=self.config.cost_limit,
            )
        finally:
            env.close()

    def export(self, file: str | Path) -> None:
        """Writes the policy as ``.onnx`` or ``.npz``, to be played without slsac."""
        if self._trainer is not None:
            self._trainer.save_final()
        export(self.run, Path(file))

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
        if self._display is not None:
            self._display.close()


def name_of(env: Any, chosen: str | None = None) -> str:
    """The id of an environment, or ``custom:`` and a name where it has none.

    Args:
        chosen: the name, for an environment without an id.
    """
    known = env if isinstance(env, str) else getattr(env, "env_id", None)
    if chosen is None:
        own = getattr(env, "__name__", type(getattr(env, "unwrapped", env)).__name__)
        return known or f"custom:{own}"
    if known is not None:
        raise InvalidInput(f"env_name is {chosen!r}; this env has an id, {known}")
    if not chosen or not chosen.isprintable():
        raise InvalidInput(f"env_name is {chosen!r}; it must be a name")
    return f"custom:{chosen}"
