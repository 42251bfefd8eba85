"""Callbacks: a user's own code at the events of a training run, and those that come with slsac.

A callback is any object with some of the methods of `Callback`. They are called between two steps,
in the order of the list, and nothing they read or keep is part of a checkpoint.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from slsac.config import Config
from slsac.config.overrides import dotted, to_dict
from slsac.errors import InvalidInput
from slsac.runs.layout import BEST, CONFIG, EVALUATIONS, POLICY, WANDB
from slsac.runs.log import read_lines
from slsac.runs.tensors import save_tensors

Record = Mapping[str, Any]
"""A line of ``episodes.jsonl``, ``progress.jsonl`` or ``evaluations.jsonl``."""


class Training(Protocol):
    """The run in progress, as callbacks see it."""

    @property
    def run(self) -> Path: ...

    @property
    def config(self) -> Config: ...

    @property
    def step(self) -> int: ...

    @property
    def state(self) -> Any:
        """All that is learned; ``state.policy`` is the policy."""


class Callback(Protocol):
    """What a callback may have; a method that it lacks is not called.

    Returning False from one of the first three ends training as if its last step had been reached.
    An exception ends it too, after a checkpoint, and reaches whoever called `Agent.learn`.
    """

    def episode(self, training: Training, record: Record) -> bool | None:
        """A training episode has ended."""

    def epoch(self, training: Training, record: Record) -> bool | None:
        """An epoch has ended."""

    def evaluation(self, training: Training, record: Record) -> bool | None:
        """The policy has been evaluated."""

    def end(self, training: Training) -> None:
        """Training is over, whatever ended it."""


EVENTS = ("episode", "epoch", "evaluation", "end")


class Callbacks:
    """The callbacks of a run, and the events that they have not heard of yet."""

    def __init__(self) -> None:
        self._listening: list[Any] = []
        self._news: list[tuple[str, Record]] = []
        self.stopped_by: str | None = None
        """The name of a callback that has asked for the end."""

    def begin(self, callbacks: Sequence[Any]) -> None:
        """Has ``callbacks`` hear of what happens from here on."""
        for callback in callbacks:
            if isinstance(callback, type) or not any(hasattr(callback, name) for name in EVENTS):
                raise InvalidInput(
                    f"callbacks holds {callback!r}; allowed: objects with one of the methods "
                    f"{', '.join(EVENTS)}"
                )
        self._listening, self._news, self.stopped_by = list(callbacks), [], None

    def note(self, event: str, record: Record) -> None:
        """Keeps an event for `tell`, which comes when the step is over."""
        if self._listening:
            self._news.append((event, record))

    def tell(self, training: Training) -> None:
        """Calls every callback with what has happened since the last time."""
        news, self._news = self._news, []
        for event, record in news:
            for callback in self._listening:
                if _call(callback, event, training, record) is False:
                    self.stopped_by = type(callback).__name__

    def end(self, training: Training) -> None:
        """Tells every callback that training is over, also where another one fails."""
        listening, self._listening = self._listening, []
        with contextlib.ExitStack() as ending:
            for callback in reversed(listening):
                ending.callback(_call, callback, "end", training)


def _call(callback: Any, event: str, *arguments: Any) -> Any:
    method = getattr(callback, event, None)
    return None if method is None else method(*arguments)


def within_limit(record: Record) -> bool:
    """Whether the costs of an evaluation keep to the limit: their CVaR at the run's fraction."""
    return bool(record["cost_cvar"] <= record["cost_limit"])


class KeepBest:
    """Keeps the policy with the highest return among evaluations within the limit, in RUN/best.

    That folder can be evaluated, certified and exported like a run.
    """

    def evaluation(self, training: Training, record: Record) -> None:
        folder = training.run / BEST
        kept = read_lines(folder / EVALUATIONS)
        if within_limit(record) and not (kept and kept[0]["return_mean"] >= record["return_mean"]):
            self._keep(training, record, folder)

    def _keep(self, training: Training, record: Record, folder: Path) -> None:
        written = folder.with_name(f".writing-{BEST}")
        shutil.rmtree(written, ignore_errors=True)
        written.mkdir()
        shutil.copy(training.run / CONFIG, written / CONFIG)
        save_tensors(written / POLICY, training.state.policy)
        (written / EVALUATIONS).write_text(json.dumps(record) + "\n")
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(written, folder)


class StopAt:
    """Ends training once evaluations hold a return, at a cost within the limit.

    Args:
        target: mean return of an evaluation.
        held: how many evaluations in a row must reach it.
    """

    def __init__(self, target: float, held: int = 3) -> None:
        if held < 1:
            raise InvalidInput(f"held is {held}; it must be at least 1")
        if not math.isfinite(target):
            raise InvalidInput(f"target is {target}; it must be a finite return")
        self._target, self._held = target, held
        self._in_a_row = 0

    def evaluation(self, training: Training, record: Record) -> bool:
        reached = record["return_mean"] >= self._target and within_limit(record)
        self._in_a_row = self._in_a_row + 1 if reached else 0
        return self._in_a_row < self._held


class WeightsAndBiases:
    """Sends epochs and evaluations to Weights & Biases; ``WANDB_MODE=offline`` keeps them here.

    Args:
        project: where the run is listed.
        options: further arguments of ``wandb.init``.
    """

    def __init__(self, project: str = "slsac", **options: Any) -> None:
        try:
            import wandb
        except ImportError:
            raise InvalidInput("wandb is not installed; run `pip install 'slsac[wandb]'`") from None
        self._wandb: Any = wandb
        self._options = {"project": project} | options
        self._sent: Any = None

    def epoch(self, training: Training, record: Record) -> None:
        self._send(training, record)

    def evaluation(self, training: Training, record: Record) -> None:
        self._send(training, {f"evaluation/{name}": value for name, value in record.items()})

    def _send(self, training: Training, record: Record) -> None:
        if self._sent is None:
            (training.run / WANDB).mkdir(exist_ok=True)
            about = {
                "dir": str(training.run),
                "name": training.run.name,
                "config": dotted(to_dict(training.config)),
            }
            self._sent = self._wandb.init(**about | self._options)
        figures = {k: v for k, v in record.items() if isinstance(v, (int, float))}
        self._sent.log(figures, step=training.step)

    def end(self, training: Training) -> None:
        sent, self._sent = self._sent, None
        if sent is not None:
            sent.finish()
