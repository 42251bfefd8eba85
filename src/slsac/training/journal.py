"""What a run writes down and shows: episodes, epochs, evaluations. Nothing here steers learning."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from slsac.config import Config
from slsac.display import Display
from slsac.runs.layout import EPISODES, EVALUATIONS, PROGRESS, TIMING
from slsac.runs.log import RunLog
from slsac.stats.summary import Evaluation, as_record, summarise
from slsac.stats.tail import empirical_cvar
from slsac.training.callbacks import Callbacks
from slsac.training.episodes import Episodes
from slsac.types import Episode


class EpochSums:
    """Sums over one epoch; part of a checkpoint, which may fall within one."""

    def __init__(self, facts: Mapping[str, Any] | None = None) -> None:
        facts = facts or {"sums": {}, "counts": {}, "episodes": []}
        self.sums: dict[str, float] = dict(facts["sums"])
        self.counts: dict[str, int] = dict(facts["counts"])
        if self.sums.keys() != self.counts.keys() or 0 in self.counts.values():
            raise ValueError("the sums of its epoch are not those that were counted")
        self.episodes: list[list[float]] = list(facts["episodes"])

    def add(self, names: Sequence[str], values: np.ndarray) -> None:
        for name, value in zip(names, values.tolist(), strict=True):
            self.sums[name] = self.sums.get(name, 0.0) + value
            self.counts[name] = self.counts.get(name, 0) + 1

    def means(self) -> dict[str, float | None]:
        columns = list(zip(*self.episodes, strict=True)) or [(), (), ()]
        of_episodes: dict[str, float | None] = {
            name: float(np.mean(column)) if column else None
            for name, column in zip(("return", "cost", "length"), columns, strict=True)
        }
        # Sorted: a resumed epoch has its sums in the order of the checkpoint, not of first use.
        of_updates = {name: self.sums[name] / self.counts[name] for name in sorted(self.sums)}
        return of_episodes | of_updates

    def facts(self) -> dict[str, Any]:
        return {"sums": self.sums, "counts": self.counts, "episodes": self.episodes}


def evaluation_record(
    config: Config, step: int, evaluation: Evaluation, *, final: bool
) -> dict[str, Any]:
    """A line of evaluations.jsonl: the summary, and every episode."""
    summary = summarise(evaluation, config.cost_limit, config.tail_fraction)
    return {"step": step, "final": final, **summary, **as_record(evaluation)}


class Journal:
    """The logs of a run and what its display shows; part of a checkpoint."""

    def __init__(
        self,
        config: Config,
        run: Path,
        display: Display,
        episodes: Episodes,
        callbacks: Callbacks,
    ) -> None:
        self.log = RunLog(run)
        self.epoch = EpochSums()
        self.display = display
        self._config, self._episodes, self._callbacks = config, episodes, callbacks
        self._said_short = False
        self.start_clock(0)

    def start_clock(self, step: int) -> None:
        """Counts speed from here on; what came before was not training."""
        self._clock = (time.perf_counter(), step)

    def add_metrics(self, names: Sequence[str], values: np.ndarray) -> None:
        """Adds the metrics of one update to the epoch."""
        self.epoch.add(names, values)

    def end_episode(self, step: int, episode: Episode, horizon: int) -> None:
        """Adds a finished episode to the epoch and to episodes.jsonl."""
        total_return, cost, length, extras, truncated = episode
        if truncated and length < horizon and not self._said_short:
            self._said_short = True
            self.display.note(
                f"an episode was cut off after {length:,} steps; limits and bounds assume "
                f"{horizon:,}; if none lasts longer, set max_episode_steps of the env, or "
                f"make_env(env, horizon={length})"
            )
        line = {"step": step, "return": total_return, "cost": cost, "length": length, **extras}
        self.log.write(EPISODES, line)
        self._callbacks.note("episode", line)
        self.epoch.episodes.append([total_return, cost, float(length)])

    def end_epoch(
        self,
        step: int,
        *,
        signal: float | None,
        signal_limit: float,
        multiplier: float,
        more: Mapping[str, float | None],
    ) -> bool:
        """Writes a line of progress and begins the next epoch; True where an evaluation is due."""
        number = step // self._config.steps_per_epoch
        tail, window = self._config.tail_fraction, self._episodes.costs
        record = {
            "step": step,
            "epoch": number,
            "episodes": self._episodes.count,
            "window_mean": empirical_cvar(window, 1.0) if window else None,
            "window_cvar": empirical_cvar(window, tail) if window else None,
            "signal": signal,
            "signal_limit": signal_limit,
            "multiplier": multiplier,
            **more,
            **self.epoch.means(),
        }
        self.log.write(PROGRESS, record)
        seconds = time.perf_counter() - self._clock[0]
        speed = (step - self._clock[1]) / seconds
        timing = {"step": step, "seconds": seconds, "steps_per_second": speed}
        self.log.write(TIMING, timing)
        with_speed = record | {"steps_per_second": speed}
        self.log.scalars(with_speed, step)
        self._callbacks.note("epoch", with_speed)
        self.display.epoch(record, timing)
        self.epoch = EpochSums()
        return number % self._config.evaluate_every_epochs == 0

    def evaluation(self, step: int, evaluation: Evaluation, *, final: bool) -> None:
        """Adds the episodes of an evaluation to evaluations.jsonl."""
        record = evaluation_record(self._config, step, evaluation, final=final)
        plain = ("step", "final")
        summary = {k: v for k, v in record.items() if k not in plain and not isinstance(v, list)}
        self.log.write(EVALUATIONS, record)
        self.log.scalars({f"evaluation/{k}": v for k, v in summary.items()}, step)
        self._callbacks.note("evaluation", record)
        self.display.evaluation(step, summary)

    def facts(self) -> dict[str, Any]:
        return {"epoch": self.epoch.facts(), "log_offsets": self.log.offsets()}

    def restore(self, facts: Mapping[str, Any]) -> None:
        """Returns to a checkpoint: lines that were written after it are cut off."""
        self.epoch = EpochSums(facts["epoch"])
        self.log.rewind(facts["log_offsets"])
