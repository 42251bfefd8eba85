"""Finding and reading run directories, whole ones and those recorded under ``results/``."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from slsac.config import Config
from slsac.config.overrides import as_flags, differing
from slsac.config.presets import preset
from slsac.errors import InvalidInput
from slsac.runs import config_file, layout
from slsac.runs.log import read_lines
from slsac.stats.summary import Evaluation, from_record

WITHOUT_EFFECT = ("worker_processes",)
"""Config fields on which no number of a run depends."""
STALE = "STALE"
"""A file of this name in a run's folder says that later changes of the source altered learning."""


class Run(NamedTuple):
    """All that a run directory says, read into memory."""

    path: Path
    config: Config
    horizon: int
    """Steps after which an episode of the task is truncated."""
    facts: dict[str, Any]
    progress: list[dict[str, Any]]
    episodes: list[dict[str, Any]]
    evaluations: list[dict[str, Any]]
    timing: list[dict[str, Any]]
    stale: bool


def find_runs(paths: Iterable[Path]) -> list[Run]:
    """The runs at or below ``paths``, each once, in the order of their folders."""
    paths = [Path(path) for path in paths]
    folders: set[Path] = set()
    for path in paths:
        if not path.exists():
            raise InvalidInput(f"runs {str(path)!r} does not exist; name run directories")
        found = {
            config.parent
            for config in ([path / "config.json"] if _is_run(path) else path.rglob("config.json"))
            if _is_run(config.parent)
        }
        if not found and path.is_dir():
            raise InvalidInput(
                f"runs {str(path)!r} holds no run; name run directories or folders above them"
            )
        folders |= found
    # A glob such as results/* names files too, and overlapping paths name a run twice.
    unique = {folder.resolve(): folder for folder in sorted(folders)}
    if not unique:
        named = ", ".join(map(repr, map(str, paths)))
        raise InvalidInput(f"runs {named} holds no run; name run directories or folders above them")
    return [read_run(folder) for folder in unique.values()]


def _is_run(folder: Path) -> bool:
    return (folder / "config.json").exists() and (folder / "progress.jsonl").exists()


def read_run(folder: Path) -> Run:
    config, spec, facts = config_file.read(folder)
    progress, episodes, evaluations, timing = (read_lines(folder / name) for name in layout.LOGS)
    stale = (folder / STALE).exists()
    return Run(folder, config, spec.horizon, facts, progress, episodes, evaluations, timing, stale)


def final_episodes(run: Run) -> Evaluation | None:
    """The raw episodes of the final evaluation; None while the run has not come to it."""
    last = run.evaluations[-1] if run.evaluations else {"final": False}
    if not last["final"] or last["step"] < run.config.steps:
        return None
    return from_record(last)


def steps_per_second(run: Run) -> float | None:
    """Training speed over all epochs, those that an interruption made it repeat included."""
    seconds = sum(line["seconds"] for line in run.timing)
    steps = sum(line["seconds"] * line["steps_per_second"] for line in run.timing)
    return steps / seconds if seconds else None


def changes(config: Config) -> dict[str, Any]:
    """The fields, but for the seed, in which ``config`` differs from its preset."""
    changed = differing(config, preset(config.algo, config.env))
    return {name: value for name, (value, _) in changed.items() if name != "seed"}


def command(config: Config) -> str:
    """The command that makes the run: its preset, and every field that differs from it."""
    return shlex.join(["slsac", "train", *as_flags(config)])


def without_seed(config: Config) -> Config:
    """What runs that may be averaged have in common: all that their numbers depend on."""
    alike: dict[str, Any] = {name: 0 for name in WITHOUT_EFFECT if hasattr(config, name)}
    return dataclasses.replace(config, seed=0, **alike)


class Group(NamedTuple):
    """Runs that differ in nothing but their seed, and may be averaged."""

    algo: str
    env: str
    settings: str
    """Fields that differ from the preset, as text; empty for the preset itself."""
    stale: bool
    config: Config
    runs: tuple[Run, ...]


def group_runs(runs: Iterable[Run]) -> tuple[list[Group], list[str]]:
    """Runs by configuration, and a sentence for every run that is left out of its group."""
    members: dict[tuple[Config, bool], dict[int, Run]] = {}
    notes = []
    for run in runs:
        same = members.setdefault((without_seed(run.config), run.stale), {})
        first = same.setdefault(run.config.seed, run)
        if first is not run:
            notes.append(
                f"{run.path} repeats {first.path} (same configuration and seed) and is left out"
            )
    groups = [
        Group(
            config.algo,
            config.env,
            ", ".join(
                f"{name}={_brief(value)}"
                for name, value in changes(config).items()
                if name not in WITHOUT_EFFECT
            ),
            stale,
            config,
            tuple(by_seed[seed] for seed in sorted(by_seed)),
        )
        for (config, stale), by_seed in members.items()
    ]
    return groups, notes


def _brief(value: Any) -> str:
    if isinstance(value, tuple):
        return "x".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
