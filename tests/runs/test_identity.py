"""Files of another run, edited configs and damaged replays are refused, in one line."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slsac.cli import main
from slsac.errors import InvalidInput, RunDamaged
from slsac.runs import checkpoint, config_file, identity
from slsac.runs.layout import CHECKPOINTS, CONFIG, REPLAY
from slsac.training import launch
from tests.support.paths import ROOT
from tests.support.runs import quick_config


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of two seeds, 100 steps in, still random: nothing has to be compiled twice."""
    folder = tmp_path_factory.mktemp("runs")
    for seed in (0, 1):
        trainer = launch.start(quick_config(seed=seed, warmup_steps=200), folder / f"seed{seed}")
        trainer.advance(100)
        trainer.close()
    return folder


@pytest.fixture
def runs(made: Path, tmp_path: Path) -> tuple[Path, Path]:
    shutil.copytree(made, tmp_path / "runs")
    return tmp_path / "runs" / "seed0", tmp_path / "runs" / "seed1"


def edit(run: Path, **fields: Any) -> None:
    values = json.loads((run / CONFIG).read_text())
    (run / CONFIG).write_text(json.dumps(values | fields))


def logs(run: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(run.glob("*.jsonl"))}


def test_evaluating_a_config_changed_by_hand_says_so(
    runs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    run, _ = runs
    said = []
    for limit in (None, 99.0):
        if limit:
            edit(run, cost_limit=limit)
        assert main(["evaluate", str(run), "--episodes", "1"]) == 0
        said.append(capsys.readouterr().err)
    assert "changed by hand" not in said[0]
    assert "config.json was changed by hand since the run was made" in said[1]


@pytest.mark.parametrize("field", [{"seed": 7}, {"cost_limit": 99.0}, {"steps": 900}])
def test_a_config_changed_by_hand_needs_inexact(
    runs: tuple[Path, Path], field: dict[str, Any]
) -> None:
    run, _ = runs
    edit(run, **field)
    with pytest.raises(InvalidInput, match=r"config\.json was changed by hand.*--inexact"):
        launch.resume(run)
    launch.resume(run, inexact=True).close()
    written = json.loads((run / CONFIG).read_text())
    assert field.items() <= written.items()
    assert "before_resume" in written["provenance"]
    launch.resume(run).close()  # from here on it is the run's config again


def test_a_config_without_its_identity_is_older_or_edited(runs: tuple[Path, Path]) -> None:
    run, _ = runs
    values = json.loads((run / CONFIG).read_text())
    del values["identity"]
    (run / CONFIG).write_text(json.dumps(values))
    with pytest.raises(InvalidInput, match="has no identity"):
        launch.resume(run)


def test_a_run_from_before_there_were_identities_continues_inexactly(
    runs: tuple[Path, Path],
) -> None:
    run, _ = runs
    values = json.loads((run / CONFIG).read_text())
    del values["identity"]
    (run / CONFIG).write_text(json.dumps(values))
    for name in checkpoint.step_names(run / CHECKPOINTS):
        saved = checkpoint.load(run / CHECKPOINTS / name)
        older = {key: fact for key, fact in saved.facts.items() if key != "run"}
        checkpoint.write(run / CHECKPOINTS, name, saved.tensors, older)
    trainer = launch.resume(run, inexact=True)
    step = trainer.step
    trainer.close()
    resumed = launch.resume(run)  # it has an identity by now
    assert resumed.step == step > 0
    resumed.close()


def test_another_seeds_checkpoints_are_refused(runs: tuple[Path, Path]) -> None:
    run, other = runs
    shutil.rmtree(run / CHECKPOINTS)
    shutil.copytree(other / CHECKPOINTS, run / CHECKPOINTS)
    before = logs(run)
    with pytest.raises(RunDamaged, match="belongs to another run"):
        launch.resume(run, inexact=True)
    assert logs(run) == before


def test_one_stray_checkpoint_is_passed_over(
    runs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    run, other = runs
    *_, older, newest = checkpoint.step_names(run / CHECKPOINTS)
    shutil.rmtree(run / CHECKPOINTS / newest)
    shutil.copytree(other / CHECKPOINTS / newest, run / CHECKPOINTS / newest)
    trainer = launch.resume(run)
    assert checkpoint.step_name(trainer.step) == older
    assert "belongs to another run" in capsys.readouterr().err
    trainer.close()


def test_a_checkpoint_under_another_name_is_refused(runs: tuple[Path, Path]) -> None:
    run, _ = runs
    names = checkpoint.step_names(run / CHECKPOINTS)
    (run / CHECKPOINTS / names[-1]).rename(run / CHECKPOINTS / checkpoint.step_name(5000))
    trainer = launch.resume(run)
    assert checkpoint.step_name(trainer.step) == names[-2]
    trainer.close()


def zeroed(path: Path, other: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def garbage(path: Path, other: Path) -> None:
    path.write_bytes(np.random.default_rng(0).bytes(path.stat().st_size))


def one_bit(path: Path, other: Path) -> None:
    data = bytearray(path.read_bytes())
    data[100] ^= 1  # of an early row
    path.write_bytes(data)


def theirs(path: Path, other: Path) -> None:
    shutil.copy(other, path)


@pytest.mark.parametrize("damage", [zeroed, garbage, one_bit, theirs])
@pytest.mark.parametrize("name", ["observations", "actions", "rewards", "observation_rows"])
def test_a_replay_that_is_not_the_checkpoints_is_refused(
    runs: tuple[Path, Path], damage: Callable[[Path, Path], None], name: str
) -> None:
    run, other = runs
    path = run / REPLAY / f"{name}.bin"
    before = path.read_bytes()
    damage(path, other / REPLAY / f"{name}.bin")
    if path.read_bytes() == before:
        pytest.skip("both seeds have written the same")
    logs_before = logs(run)
    with pytest.raises(RunDamaged, match="is not what the checkpoint was written with"):
        launch.resume(run)
    assert logs(run) == logs_before


def test_a_run_repeated_elsewhere_is_the_same_run_and_another_seed_is_not() -> None:
    spec = config_file.read(ROOT / "results" / "sl-sac" / "SafetyHopperVelocity-v1" / "seed0").spec
    one = identity.of_run(quick_config(), spec)
    assert identity.of_run(quick_config(steps=900), spec) == one
    assert identity.of_run(quick_config(seed=1), spec) != one
    assert identity.of_run(quick_config(), spec._replace(horizon=7)) != one
