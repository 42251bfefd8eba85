"""Starting a run must never cost an old one, nor touch what is not ours."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest

from slsac.errors import InvalidInput
from slsac.runs import checkpoint
from slsac.runs.layout import CONFIG, MARKER, REPLACED
from slsac.training import launch
from tests.support.agents import small_config


def contents(run: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(run)): path.read_bytes()
        for path in sorted(run.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


@pytest.fixture
def old_run(tmp_path: Path) -> Path:
    run = tmp_path / "run"
    launch.start(small_config("ProbeChoice-v0"), run).close()
    return run


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("replay_capacity", 10**18),
        ("policy.hidden", (10**9, 4)),
        ("reward_critic.pairs", 10**9),
    ],
)
def test_an_overwrite_that_cannot_begin_leaves_the_old_run(
    old_run: Path, field: str, value: Any
) -> None:
    before = contents(old_run)
    config = small_config("ProbeChoice-v0", **{field.replace(".", "__"): value})
    with pytest.raises(InvalidInput):
        launch.start(config, old_run, overwrite=True)
    assert contents(old_run) == before
    launch.resume(old_run).close()


def test_an_overwrite_that_fails_late_brings_the_old_run_back(
    old_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(old_run)

    def broken(*arguments: Any) -> None:
        raise MemoryError("no more")

    monkeypatch.setattr(launch.config_file, "write", broken)
    with pytest.raises(MemoryError):
        launch.start(small_config("ProbeChoice-v0", seed=7), old_run, overwrite=True)
    assert contents(old_run) == before


def test_a_start_that_was_killed_loses_nothing(old_run: Path) -> None:
    before = contents(old_run)
    launch._set_aside(old_run)  # and here the process is killed
    assert not (old_run / CONFIG).exists()
    # The old run is back before anything else is tried.
    with pytest.raises(InvalidInput, match="already holds a run"):
        launch.start(small_config("ProbeChoice-v0"), old_run)
    assert contents(old_run) == before


class Killed(BaseException):
    """Stands for the end of the process."""


@pytest.mark.parametrize("calls", range(36))
def test_a_start_killed_between_any_two_moves_loses_nothing(
    old_run: Path, monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    """An overwrite that fails and then brings the old run back, killed at its n-th call of the
    file system."""
    before = contents(old_run)
    left = calls

    def counted(call: Any) -> Any:
        def counting(*arguments: Any, **options: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed
            return call(*arguments, **options)

        return counting

    def overwritten() -> None:
        launch._set_aside(old_run)
        (old_run / CONFIG).write_text("{}")  # a new run that does not get far
        (old_run / "checkpoints").mkdir()
        launch._give_way(old_run)

    with monkeypatch.context() as patched:
        patched.setattr(launch.os, "replace", counted(launch.os.replace))
        patched.setattr(launch.shutil, "rmtree", counted(launch.shutil.rmtree))
        patched.setattr(Path, "unlink", counted(Path.unlink))
        with contextlib.suppress(Killed):
            overwritten()
    if (old_run / REPLACED).exists() and (old_run / CONFIG).exists():
        return  # the new run had begun: its config says so
    launch._undo_killed_start(old_run)
    assert contents(old_run) == before


def test_an_overwrite_replaces_the_old_run(old_run: Path) -> None:
    launch.start(small_config("ProbeChoice-v0", seed=7), old_run, overwrite=True).close()
    assert json.loads((old_run / CONFIG).read_text())["seed"] == 7
    assert not (old_run / REPLACED).exists()


def test_another_programs_folder_is_not_touched(tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "checkpoints" / "epoch-3").write_text("weeks of work")
    (folder / CONFIG).write_text('{"model": "theirs"}')
    before = contents(folder)
    with pytest.raises(InvalidInput, match="holds other files"):
        launch.start(small_config("ProbeChoice-v0"), folder, overwrite=True)
    assert contents(folder) == before
    assert not (folder / MARKER).exists()


def test_an_env_that_cannot_step_costs_no_old_run(tmp_path: Path) -> None:
    config = small_config("ProbeConstant-v0")
    launch.start(config, tmp_path).close()
    before = (tmp_path / "config.json").read_bytes()
    with pytest.raises(InvalidInput, match="cost"):
        # A registered task whose info holds no cost.
        launch.start(config, tmp_path, env="Pendulum-v1", overwrite=True)
    assert (tmp_path / "config.json").read_bytes() == before
    assert checkpoint.step_names(tmp_path / "checkpoints")


def test_a_directory_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "data.jsonl").write_text("precious")
    for overwrite in (False, True):
        with pytest.raises(InvalidInput, match="holds other files"):
            launch.start(small_config("ProbeConstant-v0"), tmp_path, overwrite=overwrite)
    assert (tmp_path / "data.jsonl").read_text() == "precious"


def test_a_start_that_was_killed_can_be_started_again(tmp_path: Path) -> None:
    launch.start(small_config("ProbeConstant-v0"), tmp_path).close()
    (tmp_path / "config.json").unlink()
    launch.start(small_config("ProbeConstant-v0"), tmp_path).close()
    assert (tmp_path / "config.json").exists()
