"""A run in training, apart from its learning: where it stands, its files, and its evaluations.

A trainer has one `Session`. Whatever a resumed run needs is a `Part` of it, and each part says once
what a checkpoint keeps of it and how it is restored.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from slsac.config import Config, OffPolicyConfig
from slsac.display import Display
from slsac.envs import Copies
from slsac.envs.play import Lanes, Predict
from slsac.errors import InvalidInput, RunDamaged
from slsac.evaluate import evaluate
from slsac.runs import checkpoint, config_file, identity
from slsac.runs.layout import CHECKPOINTS, POLICY
from slsac.runs.lock import RunLock
from slsac.runs.tensors import save_tensors, tensors_of, tree_from
from slsac.stats.summary import Evaluation
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


class Clock:
    """Where a run stands; part of a checkpoint."""

    def __init__(self) -> None:
        self.step = self.updates = 0
        self.saved_at = 0
        """The step of the newest checkpoint."""

    def facts(self) -> dict[str, Any]:
        return {"step": self.step, "updates": self.updates}

    def restore(self, facts: Mapping[str, Any]) -> None:
        self.step, self.updates = facts["step"], facts["updates"]
        self.saved_at = self.step


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
        self.config, self.run, self.spec, self.display = config, run, spec, display
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
        self.journal = Journal(config, run, display, self.episodes)
        self.failures = Failures(run)
        self._parts: list[Part] = [self.clock, self.episodes, self.lagrangian]
        self._evaluation_envs = Lanes(copies.evaluation)

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
        since = self.clock.step - self.clock.saved_at
        return since >= self.config.checkpoint_every_steps

    def save_checkpoint(self, state: Any) -> None:
        """Writes a checkpoint that `load_checkpoint` continues from, and the policy."""
        facts: dict[str, Any] = {"run": self.identity}
        for part in (*self._parts, self.journal):
            facts |= part.facts()
        # Where the multiplier has not moved yet, other runs can branch off.
        config = self.config
        rest = config.multiplier_warmup_steps if isinstance(config, OffPolicyConfig) else None
        checkpoint.save(
            self.run / CHECKPOINTS,
            checkpoint.step_name(self.clock.step),
            tensors_of(state),
            facts,
            keep_before=rest,
        )
        self._save_policy(state)
        self.clock.saved_at = self.clock.step

    def save_final(self, state: Any) -> None:
        """Writes the present state and policy, to predict with."""
        facts = {
            "run": self.identity,
            "step": self.clock.step,
            "multiplier": self.lagrangian.state,
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
                f"steps is {self.config.steps}; the run is already at step {saved.facts['step']}"
            )
        state = tree_from(saved.tensors, like, saved.path)
        try:
            # The journal comes last: it cuts the logs back, so all else must fit by then.
            for part in (*self._parts, self.journal):
                part.restore(saved.facts)
        except (LookupError, TypeError, ValueError, ArithmeticError) as error:
            reason = f"{type(error).__name__} {error}"
            raise RunDamaged(f"{saved.path}: its facts do not fit this run: {reason}") from None
        return state

    def _require_ours(self, saved: checkpoint.Checkpoint) -> None:
        """Raise `checkpoint.Damaged` unless ``saved`` is a checkpoint of this run and its step."""
        if self._recorded_identity not in (None, saved.facts.get("run")):
            raise checkpoint.Damaged(f"{saved.path} is of another run")
        if saved.facts.get("step") != checkpoint.step_of(saved.path.name):
            raise checkpoint.Damaged(f"{saved.path} holds step {saved.facts.get('step')}")

    def close(self) -> None:
        with contextlib.ExitStack() as closing:  # the others too where one fails
            for close in (self.lock.release, self._evaluation_envs.close, self.journal.log.close):
                closing.callback(close)
