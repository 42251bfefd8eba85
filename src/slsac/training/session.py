"""A run in training, apart from its learning: where it stands, its files, and its evaluations.

A trainer has one `Session`. Whatever a resumed run needs is a `Part` of it, and each part says once
what a checkpoint keeps of it and how it is restored.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from slsac.config import Config, OffPolicyConfig
from slsac.display import Display
from slsac.envs import Copies
from slsac.envs.play import Lanes, Predict
from slsac.errors import InvalidInput, RunDamaged
from slsac.evaluate import evaluate
from slsac.runs import checkpoint, config_file, identity
from slsac.runs.layout import CHECKPOINTS, POLICY, STATE_FACTS
from slsac.runs.lock import RunLock
from slsac.runs.steps import logged_step, reached_step
from slsac.runs.tensors import save_tensors, tensors_of, tree_from
from slsac.stats.summary import Evaluation
from slsac.training.callbacks import Callbacks
from slsac.training.episodes import Episodes
from slsac.training.failures import Failures
from slsac.training.journal import Journal
from slsac.training.lagrangian import Lagrangian
from slsac.types import EnvSpec


class Part(Protocol):
    """Something that a checkpoint must hold besides the agent's arrays."""

    def facts(self) -> dict[str, Any]:
        """What to keep, as JSON takes it; no two parts use the same keys."""

    def restore(self, facts: Mapping[str, Any]) -> None:
        """Continues from the facts of a checkpoint, those of all parts together."""


class Flushed(Protocol):
    """Something with files of its own."""

    def flush(self) -> None:
        """Hands what was written to the disk."""


class Clock:
    """Where a run stands; part of a checkpoint."""

    def __init__(self) -> None:
        self.step = self.updates = 0
        self.saved_at = 0
        """The step of the newest step checkpoint."""

    def facts(self) -> dict[str, Any]:
        return {"step": self.step, "updates": self.updates}

    def restore(self, facts: Mapping[str, Any]) -> None:
        self.step, self.updates = facts["step"], facts["updates"]
        self.saved_at = facts.get("saved_at", self.step)


def learned_by(saved: checkpoint.Checkpoint, own: Any) -> Any:
    """All that another run has learned, with the randomness of ``own``: keys, number of updates."""
    randomness = {
        name: array
        for name, array in tensors_of(own).items()
        if name == "updates" or name.endswith("key")
    }
    return tree_from(saved.tensors | randomness, own, saved.path)


@contextlib.contextmanager
def facts_that_fit(saved: checkpoint.Checkpoint) -> Iterator[None]:
    """Turn what restoring parts from ``saved`` raises into `RunDamaged`."""
    try:
        yield
    except (LookupError, TypeError, ValueError, ArithmeticError) as error:
        reason = f"{type(error).__name__} {error}"
        raise RunDamaged(
            f"{saved.path}: its {STATE_FACTS} does not fit this run: {reason}"
        ) from None


class Mark(NamedTuple):
    """A moment between episodes, kept in memory in case the run stops before it is saved."""

    state: Any
    facts: dict[str, Any]


class Session:
    def __init__(
        self,
        config: Config,
        run: Path,
        spec: EnvSpec,
        copies: Copies,
        display: Display,
        lock: RunLock,
    ) -> None:
        self.config, self.run, self.spec = config, run, spec
        self.lock = lock
        """Held while the run directory is in use."""
        self._recorded_identity = config_file.read_identity(run).run
        self.identity = self._recorded_identity or identity.of_run(config, spec)
        """Which run this is; every checkpoint says it."""
        self.clock = Clock()
        recent = config.multiplier.signal == "recent-cvar"
        span = config.multiplier.recent_horizons * spec.horizon if recent else None
        self.episodes = Episodes(config.multiplier.window, span)
        self.lagrangian = Lagrangian(config, spec.horizon, self.episodes)
        self.callbacks = Callbacks()
        self.journal = Journal(config, run, display, self.episodes, self.callbacks)
        self.failures = Failures(run, self.save_last)
        self._mark: Mark | None = None
        self.files: list[Flushed] = [self.journal.log]
        """What must be on the disk before a checkpoint that refers to it."""
        self._parts: list[Part] = [self.clock, self.episodes, self.lagrangian]
        self._evaluation_envs = Lanes(copies.evaluation)

    @property
    def display(self) -> Display:
        """Where the run is shown."""
        return self.journal.display

    def keep(self, *parts: Part) -> None:
        """Makes ``parts`` part of every checkpoint."""
        self._parts.extend(parts)

    def evaluate(self, predict: Predict, episodes: int, *, final: bool) -> Evaluation:
        """Plays deterministic episodes on environments of their own, and logs them."""
        step = self.clock.step
        with self.failures.of_env(step):
            evaluation = evaluate(self._evaluation_envs, predict, episodes, self.config.seed)
        self.journal.evaluation(step, evaluation, final=final)
        return evaluation

    @property
    def checkpoint_is_due(self) -> bool:
        return self._is_due(self.clock.step)

    def _is_due(self, step: int) -> bool:
        return step - self.clock.saved_at >= self.config.checkpoint_every_steps

    def save_checkpoint(self, state: Any) -> None:
        """Writes a checkpoint that `load_checkpoint` continues from, and the policy."""
        self._flush()
        self._save_step(Mark(state, self._facts()))

    def _save_step(self, mark: Mark) -> None:
        # Where the multiplier has not moved yet, other runs can branch off.
        config, step = self.config, mark.facts["step"]
        rest = config.multiplier_warmup_steps if isinstance(config, OffPolicyConfig) else None
        checkpoint.save(
            self.run / CHECKPOINTS,
            checkpoint.step_name(step),
            tensors_of(mark.state),
            mark.facts,
            keep_before=rest,
        )
        self._save_policy(mark.state)
        self.clock.saved_at = step

    def _flush(self) -> None:
        for file in self.files:
            file.flush()

    def _facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = {"run": self.identity}
        for part in (*self._parts, self.journal):
            facts |= part.facts()
        return facts

    def mark(self, state: Any) -> None:
        """Remembers the present, between episodes, as what a run that stops continues from.

        Args:
            state: not to be changed or given away by the caller.
        """
        self._mark = Mark(state, copy.deepcopy(self._facts()))

    def save_last(self) -> None:
        """Writes the last mark as a checkpoint, and its policy, unless a newer one is saved."""
        mark, self._mark = self._mark, None
        if mark is None or mark.facts["step"] <= self.clock.saved_at:
            return
        self._flush()
        if self._is_due(mark.facts["step"]):
            # A checkpoint was due here, and the spacing of later ones is counted from it.
            self._save_step(mark)
            return
        extent = {"saved_at": self.clock.saved_at, "reached": self.clock.step}
        checkpoint.write(
            self.run / CHECKPOINTS, checkpoint.LAST, tensors_of(mark.state), mark.facts | extent
        )
        self._save_policy(mark.state)

    @contextlib.contextmanager
    def saved_if_stopped(self) -> Iterator[None]:
        """Saves the last mark where the block is left by an exception, such as Ctrl-C."""
        try:
            yield
        except BaseException:
            with contextlib.suppress(OSError):  # a full disk may be why training stops
                self.save_last()
            raise

    def save_final(self, state: Any, units: Mapping[str, Any]) -> None:
        """Writes the present state and policy, to predict with, and what to continue from.

        Args:
            units: the facts of what the state calls a reward and a cost of 1.
        """
        self.save_last()
        facts = {
            "run": self.identity,
            "step": self.clock.step,
            "multiplier": self.lagrangian.state,
            **units,
        }
        checkpoint.write(self.run / CHECKPOINTS, checkpoint.FINAL, tensors_of(state), facts)
        self._save_policy(state)

    def _save_policy(self, state: Any) -> None:
        save_tensors(self.run / POLICY, state.policy)

    def load_checkpoint(self, like: Any) -> Any:
        """Returns to the newest readable checkpoint, logs included.

        Args:
            like: a state of the same structure as the one that is returned.
        """
        saved, messages = checkpoint.load_newest(self.run / CHECKPOINTS, self._require_ours)
        for message in messages:
            self.display.note(message)
        if self.config.steps < saved.facts["step"]:
            # Before anything is changed: the logs behind the checkpoint are still whole.
            raise InvalidInput(
                f"steps is {self.config.steps}; the run is already at step {saved.facts['step']}: "
                "pass more steps, or start a new run"
            )
        state = tree_from(saved.tensors, like, saved.path)
        reached = max(reached_step(self.run), logged_step(self.run), saved.facts.get("reached", 0))
        with facts_that_fit(saved):
            # The journal comes last: it cuts the logs back, so all else must fit by then.
            for part in (*self._parts, self.journal):
                part.restore(saved.facts)
        if self.clock.step < reached:
            self.display.note(
                f"steps {self.clock.step + 1:,} to {reached:,} are trained again: a run continues "
                "from a checkpoint, which falls between episodes"
            )
        return state

    def _require_ours(self, saved: checkpoint.Checkpoint) -> None:
        """Raise `checkpoint.Damaged` unless ``saved`` is a checkpoint of this run and its step."""
        if self._recorded_identity not in (None, saved.facts.get("run")):
            raise checkpoint.Damaged(f"{saved.path} belongs to another run")
        name, step = saved.path.name, saved.facts.get("step")
        if step is None or (name != checkpoint.LAST and step != checkpoint.step_of(name)):
            raise checkpoint.Damaged(f"{saved.path} is of another step than its name says")

    def close(self) -> None:
        with contextlib.ExitStack() as closing:  # the others too where one fails
            for close in (self.lock.release, self._evaluation_envs.close, self.journal.log.close):
                closing.callback(close)
