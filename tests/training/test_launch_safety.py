"""Starting a run must never cost an old one, nor touch what is not ours."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slsac.cli import main
from slsac.envs.probe import Constant
from slsac.errors import EnvFailed, InvalidInput, TrainingFailed
from slsac.evaluate import evaluate
from slsac.runs.layout import CONFIG, MARKER, REPLACED
from slsac.training import launch
from slsac.types import Step
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
    ("field", "value"), [("replay_capacity", 10**18), ("policy.hidden", (10**9, 4))]
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
    with pytest.raises(InvalidInput):  # the old run is back before anything else is tried
        launch.start(small_config("ProbeChoice-v0", replay_capacity=10**18), old_run)
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


class Exits(Constant):
    """Calls sys.exit(0) at its tenth step."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = 0

    def step(self, action: np.ndarray) -> Step:
        self.steps += 1
        if self.steps == 10:
            sys.exit(0)
        return super().step(action)


def test_an_env_that_exits_has_failed(tmp_path: Path) -> None:
    trainer = launch.start(small_config("ProbeConstant-v0"), tmp_path / "run", env=Exits)
    with pytest.raises(TrainingFailed, match="SystemExit"):
        trainer.advance(100)
    trainer.close()


class Endless(Constant):
    """States one step and continues."""

    def step(self, action: np.ndarray) -> Step:
        return super().step(action)._replace(terminated=False, truncated=False)


def test_an_episode_longer_than_stated_ends_the_run(tmp_path: Path) -> None:
    trainer = launch.start(small_config("ProbeConstant-v0"), tmp_path / "run", env=Endless)
    with pytest.raises(TrainingFailed, match="continues after 1 steps, but the env states 1"):
        trainer.advance(100)
    trainer.close()


class Blind(Constant):
    def reset(self, seed: int) -> np.ndarray:
        return np.full_like(super().reset(seed), np.nan)


def test_an_evaluation_refuses_observations_that_are_not_finite() -> None:
    env = Blind()
    with pytest.raises(EnvFailed, match="observation"):
        evaluate(env, lambda observation: np.zeros(env.spec.action_size, np.float32), 2, 0)


def test_what_nobody_foresaw_is_one_line_with_a_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(options: Any) -> int:
        raise ZeroDivisionError("by\nzero")

    monkeypatch.setattr(sys.modules["slsac.cli.main"], "run_command", broken)
    monkeypatch.delenv("SLSAC_DEBUG", raising=False)
    assert main(["algos"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("slsac: unexpected ZeroDivisionError: by zero (details in ")
    assert said.count("\n") == 1
    details = Path(said.split("details in ")[1].split(";")[0])
    assert "ZeroDivisionError" in details.read_text()
    details.unlink()
    monkeypatch.setenv("SLSAC_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        main(["algos"])
