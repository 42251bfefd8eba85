"""What every run writes and shows, whatever it learns by: episodes, epochs, evaluations, failures.

A trainer holds one `Records` and tells it what happened.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from slsac.config import Config
from slsac.display import Display
from slsac.envs.play import Lanes, Predict
from slsac.errors import EnvFailed, InvalidInput, TrainingFailed
from slsac.evaluate import evaluate
from slsac.runs import checkpoint, tensors
from slsac.runs.log import RunLog
from slsac.stats.summary import Evaluation, as_record, summarise
from slsac.stats.tail import empirical_cvar
from slsac.training.episodes import Episodes
from slsac.types import Episode, SafeEnv


class Epoch:
    """Sums over one epoch; part of a checkpoint, which may fall within one."""

    def __init__(self, facts: dict[str, Any] | None = None) -> None:
        facts = facts or {"sums": {}, "counts": {}, "episodes": []}
        self.sums: dict[str, float] = dict(facts["sums"])
        self.counts: dict[str, int] = dict(facts["counts"])
        self.episodes: list[list[float]] = list(facts["episodes"])

    def add(self, names: list[str], values: np.ndarray) -> None:
        for name, value in zip(names, values.tolist(), strict=True):
            self.sums[name] = self.sums.get(name, 0.0) + value
            self.counts[name] = self.counts.get(name, 0) + 1

    def means(self) -> dict[str, float | None]:
        columns = list(zip(*self.episodes, strict=True)) or [(), (), ()]
        found: dict[str, float | None] = {
            name: float(np.mean(column)) if column else None
            for name, column in zip(("return", "cost", "length"), columns, strict=True)
        }
        # Sorted: a resumed epoch has its sums in the order of the checkpoint, not of first use.
        return found | {name: self.sums[name] / self.counts[name] for name in sorted(self.sums)}

    def facts(self) -> dict[str, Any]:
        return {"sums": self.sums, "counts": self.counts, "episodes": self.episodes}


class Records:
    """The logs of a run, its checkpoints, and how it fails. Nothing in here steers learning."""

    def __init__(
        self,
        config: Config,
        run: Path,
        make_evaluation_env: Callable[[], SafeEnv],
        display: Display,
        episodes: Episodes,
    ) -> None:
        """``episodes`` is the trainer's own; the logs say what is in it."""
        self.log = RunLog(run)
        self.epoch = Epoch()
        self._config, self._run, self._display = config, run, display
        self._episodes = episodes
        self._evaluation_envs = Lanes(make_evaluation_env)
        self._said_short = False
        self.start_clock(0)

    def start_clock(self, step: int) -> None:
        """Speed is counted from here on."""
        self._clock = (time.perf_counter(), step)

    def end_episode(self, step: int, episode: Episode, horizon: int) -> None:
        """Adds one finished episode to the epoch and episodes.jsonl."""
        total_return, cost, length, extras, truncated = episode
        if truncated and length < horizon and not self._said_short:
            self._said_short = True
            self._display.note(
                f"an episode was cut off after {length:,} steps, but the env states {horizon:,}, "
                "and limits and bounds go by that; if none lasts longer, state it: "
                f"max_episode_steps of the env, or make_env(env, horizon={length})"
            )
        line = {"step": step, "return": total_return, "cost": cost, "length": length, **extras}
        self.log.write("episodes", line)
        self.epoch.episodes.append([total_return, cost, float(length)])

    def end_epoch(
        self,
        step: int,
        signal: float | None,
        limit: float,
        multiplier: float,
        more: Mapping[str, float | None],
    ) -> bool:
        """Writes a line of progress and begins the next; True where an evaluation is due."""
        number = step // self._config.steps_per_epoch
        tail, window = self._config.tail_fraction, self._episodes.costs
        record = {
            "step": step,
            "epoch": number,
            "episodes": self._episodes.count,
            "window_mean": empirical_cvar(window, 1.0) if window else None,
            "window_cvar": empirical_cvar(window, tail) if window else None,
            "signal": signal,
            "signal_limit": limit,
            "multiplier": multiplier,
            **more,
            **self.epoch.means(),
        }
        self.log.write("progress", record)
        seconds = time.perf_counter() - self._clock[0]
        speed = (step - self._clock[1]) / seconds
        timing = {"step": step, "seconds": seconds, "steps_per_second": speed}
        self.log.write("timing", timing)
        self.log.scalars(record | {"steps_per_second": speed}, step)
        self._display.epoch(record, timing)
        self.epoch = Epoch()
        return number % self._config.evaluate_every_epochs == 0

    def evaluate(self, step: int, predict: Predict, episodes: int, final: bool) -> Evaluation:
        """Deterministic episodes on environments of their own, written to evaluations.jsonl."""
        with self.env_failures_named(step):
            result = evaluate(self._evaluation_envs, predict, episodes, self._config.seed)
        summary = summarise(result, self._config.cost_limit, self._config.tail_fraction)
        record = {"step": step, "final": final, **summary, **as_record(result)}
        self.log.write("evaluations", record)
        self.log.scalars({f"evaluation/{k}": v for k, v in summary.items()}, step)
        self._display.evaluation(step, summary)
        return result

    def save_final(self, step: int, state: Any, multiplier: Any) -> None:
        """Writes the present state and policy, to predict with."""
        facts = {"step": step, "multiplier": multiplier}
        arrays = tensors.tensors_of(state)
        checkpoint.write(self._run / "checkpoints", checkpoint.FINAL, arrays, facts)
        self._save_policy(state)

    def save_checkpoint(self, step: int, state: Any, facts: dict[str, Any]) -> None:
        """Writes a checkpoint that `load_checkpoint` can go on from, and the policy."""
        facts = {
            "step": step,
            **self._episodes.facts(),
            "epoch": self.epoch.facts(),
            "log_offsets": self.log.offsets(),
            **facts,
        }
        name = checkpoint.step_name(step)
        # Where the multiplier has not moved yet, other runs can branch off.
        rest = getattr(self._config, "multiplier_warmup_steps", None)
        checkpoint.save(
            self._run / "checkpoints", name, tensors.tensors_of(state), facts, keep_before=rest
        )
        self._save_policy(state)

    def load_checkpoint(self, like: Any) -> tuple[Any, dict[str, Any]]:
        """State and facts of the newest readable checkpoint; the logs go back to where it was."""
        found, messages = checkpoint.load_newest(self._run / "checkpoints")
        for message in messages:
            self._display.note(message)
        facts = found.facts
        if self._config.steps < facts["step"]:
            # Before anything is changed: the logs behind the checkpoint are still whole.
            raise InvalidInput(
                f"steps is {self._config.steps}; the run is already at step {facts['step']}"
            )
        state = tensors.tree_from(found.tensors, like, found.path)
        self._episodes.restore(facts)
        self.epoch = Epoch(facts["epoch"])
        self.log.rewind(facts["log_offsets"])
        return state, facts

    def _save_policy(self, state: Any) -> None:
        tensors.save_tensors(self._run / "policy.safetensors", state.policy)

    def check_step(self, step: int, observation: np.ndarray, reward: float, cost: float) -> None:
        """Ends the run where an environment gave a number that is not finite."""
        if not (np.isfinite(observation).all() and np.isfinite(reward) and np.isfinite(cost)):
            given: dict[str, Any] = {"observation": observation, "reward": reward, "cost": cost}
            names = [name for name, value in given.items() if not np.isfinite(value).all()]
            self.fail(
                f"the environment returned a non-finite {' and '.join(names)} "
                f"at step {step}, episode {self._episodes.count}"
            )

    @contextlib.contextmanager
    def env_failures_named(self, step: int) -> Iterator[None]:
        """Ends the run where an environment fails, with the last good checkpoint."""
        try:
            yield
        except (InvalidInput, EnvFailed) as error:
            self.fail(f"the environment failed at step {step}: {error}", error)

    def fail(self, what: str, cause: BaseException | None = None) -> NoReturn:
        """Ends the run with the reason and the last good checkpoint."""
        names = checkpoint.step_names(self._run / "checkpoints")
        last = self._run / "checkpoints" / names[-1] if names else "none"
        raise TrainingFailed(f"{what}; last good checkpoint: {last}") from cause

    def close(self) -> None:
        self.log.close()
        self._evaluation_envs.close()
