"""Finding and reading run directories, and grouping runs that differ in their seed alone."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from slsac.config import Config
from slsac.config.overrides import as_flags, differing
from slsac.config.presets import preset
from slsac.errors import InvalidInput
from slsac.runs import config_file, layout
from slsac.runs.identity import WITHOUT_EFFECT
from slsac.runs.log import read_lines
from slsac.stats.summary import Evaluation, from_record

Log = list[dict[str, Any]]
PAPERS_STEPS = 1_000_000


def _log(name: str) -> cached_property[Log]:
    """A property that reads one of the run's logs when it is first asked for."""
    return cached_property(lambda run: read_lines(run.path / name))


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
    """A run directory's contents."""

    path: Path
    config: Config
    horizon: int
    """Steps after which an episode of the task is truncated."""
    provenance: dict[str, Any]
    """Versions, commit and machine; see `slsac.runs.provenance`."""
    stale: bool
    """Whether later changes of the source altered learning."""
    edited: bool
    """Whether the config was changed by hand since the run was made."""

    progress = _log(layout.PROGRESS)
    episodes = _log(layout.EPISODES)
    evaluations = _log(layout.EVALUATIONS)
    timing = _log(layout.TIMING)


def find_runs(paths: Iterable[Path]) -> list[Run]:
    """The runs at or below ``paths``, each once, in the order of their folders."""
    paths = [Path(path) for path in paths]
    folders: set[Path] = set()
    for path in paths:
        if not path.exists():
            raise InvalidInput(f"runs {str(path)!r} does not exist; name run directories")
        below = [path] if layout.is_run(path) else _runs_below(path)
        if not below and path.is_dir():
            raise InvalidInput(
                f"runs {str(path)!r} holds no run; name run directories or folders above them"
            )
        folders.update(below)
    # A glob such as results/* names files too, and overlapping paths name a run twice.
    unique = {folder.resolve(): folder for folder in sorted(folders)}
    if not unique:
        named = ", ".join(map(repr, map(str, paths)))
        raise InvalidInput(f"runs {named} holds no run; name run directories or folders above them")
    return [read_run(folder) for folder in unique.values()]


def _runs_below(folder: Path) -> list[Path]:
    configs = folder.rglob(layout.CONFIG)
    return [config.parent for config in configs if layout.is_run(config.parent)]


def read_run(folder: Path) -> Run:
    """The run in ``folder``."""
    (config, spec, provenance), stated = config_file.read_with_identity(folder)
    stale = (folder / layout.STALE).exists()
    return Run(folder, config, spec.horizon, provenance, stale, stated.edited)


def final_episodes(run: Run) -> Evaluation | None:
    """The raw episodes of the final evaluation; None while the run has not reached it.

    A callback may have ended the run before the last of its steps.
    """
    if not run.evaluations or not run.evaluations[-1]["final"]:
        return None
    return from_record(run.evaluations[-1])


def steps_per_second(run: Run) -> float | None:
    """Training speed over all epochs, including those repeated after an interruption."""
    seconds = sum(line["seconds"] for line in run.timing)
    steps = sum(line["seconds"] * line["steps_per_second"] for line in run.timing)
    return steps / seconds if seconds else None


def changes(config: Config) -> dict[str, Any]:
    """The fields, except the seed, in which ``config`` differs from its preset."""
    changed = differing(config, preset(config.algo, config.env))
    return {name: value for name, (value, _) in changed.items() if name != "seed"}


def command(config: Config) -> str:
    """The command that repeats the run: its preset, and every field that differs from it."""
    return shlex.join(["slsac", "train", *as_flags(config)])


def repetition(run: Run) -> str:
    """A line for a shell that repeats the run, or a comment that says why there is none."""
    if run.config.env.startswith("custom:"):
        return f"# {run.path}: its env was an object or a function, so it was trained from Python"
    origin = _origin(run)
    if not origin:
        return command(run.config)
    kept = " --keep-replay" if origin.get("keep_replay") is True else ""
    return f"{command(run.config)} --init {shlex.quote(str(origin.get('run')))}{kept}"


def _origin(run: Run) -> dict[str, Any]:
    """What config.json says of the run that this one began with; empty without one."""
    origin = run.provenance.get("initialised_from")
    return origin if isinstance(origin, dict) else {}


def _beginning(run: Run) -> str:
    """As a setting: how far the run had come that this one began with; empty without one."""
    origin = _origin(run)
    if not origin:
        return ""
    kept = ", keep_replay=True" if origin.get("keep_replay") is True else ""
    return f"init={_brief(origin.get('steps'))} steps{kept}"


def without_seed(config: Config) -> Config:
    """``config`` with equal values for its seed and for all fields without effect."""
    equal: dict[str, Any] = {name: 0 for name in WITHOUT_EFFECT if hasattr(config, name)}
    return dataclasses.replace(config, seed=0, **equal)


class Group(NamedTuple):
    """Runs that differ in nothing but their seed, and may be averaged."""

    algo: str
    env: str
    settings: str
    """Fields that differ from the preset, as text, the steps unless they are the paper's, and how
    the run began if not from scratch; empty for the paper's steps of the preset itself."""
    stale: bool
    config: Config
    runs: tuple[Run, ...]


def group_runs(runs: Iterable[Run]) -> tuple[list[Group], list[str]]:
    """Runs by configuration, and a sentence for every run that is left out of its group."""
    members: dict[tuple[Config, str, bool], dict[int, Run]] = {}
    notes = []
    # Finished runs first: an attempt that was cut short must not hide the one that repeats it.
    for run in sorted(runs, key=lambda run: final_episodes(run) is None):
        alike = (without_seed(run.config), _beginning(run), run.stale)
        by_seed = members.setdefault(alike, {})
        first = by_seed.setdefault(run.config.seed, run)
        if first is not run:
            notes.append(
                f"{run.path} repeats {first.path} (same configuration and seed) and is left out"
            )
    groups = [
        Group(
            config.algo,
            config.env,
            ", ".join(filter(None, (beginning, _settings(config)))),
            stale,
            config,
            tuple(by_seed[seed] for seed in sorted(by_seed)),
        )
        for (config, beginning, stale), by_seed in members.items()
    ]
    return groups, notes


def _settings(config: Config) -> str:
    values = {name: v for name, v in changes(config).items() if name not in WITHOUT_EFFECT}
    # Presets differ in their steps; algorithms after equal steps belong in one row.
    values.pop("steps", None)
    if config.steps != PAPERS_STEPS:
        values = {"steps": config.steps} | values
    return ", ".join(f"{name}={_brief(value)}" for name, value in values.items())


def _brief(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, tuple):
        separator = "," if any(isinstance(part, float) for part in value) else "x"
        return separator.join(f"{part:g}" for part in value) or "none"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
