"""Exact resume: a run that was stopped anywhere ends with the same bytes as one that was not."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from slsac.cli import main
from slsac.config import Config
from slsac.display import Silent
from slsac.errors import InvalidInput, RunDamaged
from slsac.runs import checkpoint, config_file, layout
from slsac.runs.log import read_lines
from slsac.runs.steps import reached_step
from slsac.training import launch, session
from tests.support.agents import small_config
from tests.support.runs import everything, finished_steps, quick_config, slsac, stopped, undisturbed
from tests.support.waiting import wait_for


@pytest.mark.parametrize(
    "overrides",
    [
        pytest.param({}, id="plain"),
        pytest.param({"replay_capacity": 70}, id="ring-wraps"),
        pytest.param(
            # At a discount of .6 ten steps leave .006 of the weight: cut-off episodes count.
            {
                "multiplier__rule": "adam",
                "multiplier__tighten": True,
                "multiplier__tightening_window": 5,
                "cost_critic__discount": 0.6,
            },
            id="adam-multiplier-tightened",
        ),
        pytest.param(
            {"policy__automatic_temperature": True, "policy__temperature": 0.1}, id="temperature"
        ),
    ],
)
def test_abandoned_and_resumed_equals_undisturbed(
    tmp_path: Path, overrides: dict[str, Any]
) -> None:
    config = quick_config(**overrides)
    expected = undisturbed(tmp_path / "a", config)
    assert stopped(tmp_path / "b", config, 13, 97, 98, 263) == expected


@pytest.mark.parametrize(
    ("algo", "first", "boundary", "whole"),
    # Ten-step episodes end before step 155; epochs of 60 steps end before step 150.
    [("sl-sac", 155, 150, 300), ("ppo-lag", 150, 120, 240)],
)
def test_training_on_after_the_end_equals_training_at_once(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    algo: str,
    first: int,
    boundary: int,
    whole: int,
) -> None:
    expected = undisturbed(tmp_path / "a", config_of(algo, whole))
    undisturbed(tmp_path / "b", config_of(algo, first))
    trainer = launch.resume(tmp_path / "b", steps=whole)
    assert trainer.step == boundary
    assert f"steps {boundary + 1} to {first} are trained again" in capsys.readouterr().err
    trainer.advance(whole)
    trainer.finish()
    trainer.close()
    assert everything(tmp_path / "b") == expected


def config_of(algo: str, steps: int) -> Config:
    """A run whose checkpoints are rare: those it is continued from are written when it stops."""
    if algo == "ppo-lag":
        on_policy = {"num_envs": 2, "steps_per_epoch": 60, "passes": 2, "batch_size": 20}
        return small_config(
            "ProbeChoice-v0", algo, steps=steps, checkpoint_every_steps=200, **on_policy
        )
    return quick_config(algo, steps=steps, checkpoint_every_steps=110, multiplier__initial=0.1)


@pytest.mark.parametrize(
    ("algo", "stop", "boundary"), [("sl-sac", 97, 90), ("sl-sac-2", 97, 90), ("ppo-lag", 90, 60)]
)
def test_an_interrupted_run_continues_from_its_last_boundary_to_the_same_bytes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], algo: str, stop: int, boundary: int
) -> None:
    config = config_of(algo, 240)
    expected = undisturbed(tmp_path / "a", config)
    trainer = launch.start(config, tmp_path / "b", display=Interrupting(stop))
    with pytest.raises(KeyboardInterrupt):
        trainer.advance(config.steps)
    trainer.close()
    assert reached_step(tmp_path / "b") == boundary
    trainer = launch.resume(tmp_path / "b")
    assert trainer.step == boundary
    assert f"steps {boundary + 1} to {stop} are trained again" in capsys.readouterr().err
    trainer.advance(config.steps)
    trainer.finish()
    trainer.close()
    assert everything(tmp_path / "b") == expected


@pytest.mark.parametrize("moment", ["state.safetensors", "state.json", "pruning", "policy"])
@pytest.mark.parametrize(("algo", "step"), [("sl-sac", 110), ("sl-sac-2", 110), ("ppo-lag", 240)])
def test_a_run_interrupted_while_it_saves_keeps_its_checkpoints_where_they_would_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, algo: str, step: int, moment: str
) -> None:
    config = config_of(algo, 240)
    expected = undisturbed(tmp_path / "a", config)
    assert f"checkpoints/{checkpoint.step_name(step)}/state.json" in expected
    trainer = launch.start(config, tmp_path / "b")
    # From here on none of these is called before the checkpoint at ``step``.
    owner, name = {
        "pruning": (checkpoint, "step_names"),
        "policy": (session, "save_tensors"),
    }.get(moment, (checkpoint, "write_atomically"))
    original = getattr(owner, name)

    def interrupted(*arguments: Any) -> Any:
        if moment in ("pruning", "policy") or arguments[0].name == moment:
            monkeypatch.undo()
            raise KeyboardInterrupt
        return original(*arguments)

    monkeypatch.setattr(owner, name, interrupted)
    with pytest.raises(KeyboardInterrupt):
        trainer.advance(config.steps)
    assert trainer.step == step
    trainer.close()
    trainer = launch.resume(tmp_path / "b")
    assert trainer.step == step
    trainer.advance(config.steps)
    trainer.finish()
    trainer.close()
    assert everything(tmp_path / "b") == expected


class Interrupting(Silent):
    """Presses Ctrl-C after a step."""

    def __init__(self, step: int) -> None:
        self._step = step

    def tick(self, step: int) -> None:
        if step == self._step:
            raise KeyboardInterrupt


def test_a_damaged_newest_checkpoint_falls_back_and_still_ends_equal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = quick_config(replay_capacity=70)
    expected = undisturbed(tmp_path / "a", config)
    run = tmp_path / "b"
    trainer = launch.start(config, run)
    trainer.advance(219)
    trainer.close()
    *_, older, newest = checkpoint.step_names(run / "checkpoints")
    (run / "checkpoints" / newest / "state.safetensors").write_bytes(b"torn")
    trainer = launch.resume(run)
    assert checkpoint.step_name(trainer.step) == older
    assert "damaged, falling back to the one before" in capsys.readouterr().err
    trainer.advance(config.steps)
    trainer.finish()
    trainer.close()
    assert everything(run) == expected


def test_logs_hold_no_torn_or_double_line_after_a_resume(tmp_path: Path) -> None:
    config = quick_config(steps=120)
    trainer = launch.start(config, tmp_path)
    trainer.advance(95)
    trainer.close()
    for name in layout.LOGS:
        with open(tmp_path / name, "ab") as file:
            file.write(b'{"step": 100, "ret')
    assert main(["resume", str(tmp_path)]) == 0
    for name in layout.LOGS:
        assert all("step" in line for line in read_lines(tmp_path / name))
    steps = [line["step"] for line in read_lines(tmp_path / "episodes.jsonl")]
    assert steps == list(range(10, 121, 10))


def test_resume_refuses_another_number_of_cores_unless_told(tmp_path: Path) -> None:
    trainer = launch.start(quick_config(), tmp_path)
    trainer.close()
    config = json.loads((tmp_path / "config.json").read_text())
    config["provenance"]["cores"] = 999
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(InvalidInput, match="cores: 999 -> "):
        launch.resume(tmp_path)
    launch.resume(tmp_path, inexact=True).close()
    recorded = config_file.read(tmp_path)[2]
    assert recorded["before_resume"]["cores"] == 999


def test_resume_cannot_shorten_a_run(tmp_path: Path) -> None:
    trainer = launch.start(quick_config(), tmp_path)
    trainer.advance(200)
    trainer.close()
    before = (tmp_path / "episodes.jsonl").read_bytes()
    with pytest.raises(InvalidInput, match="steps is 50; the run is already at step"):
        launch.resume(tmp_path, steps=50)
    assert (tmp_path / "episodes.jsonl").read_bytes() == before


def test_a_run_without_a_readable_checkpoint_says_so(tmp_path: Path) -> None:
    trainer = launch.start(quick_config(), tmp_path)
    trainer.close()
    for name in checkpoint.step_names(tmp_path / "checkpoints"):
        (tmp_path / "checkpoints" / name / "state.json").write_text("{")
    with pytest.raises(RunDamaged, match="no readable checkpoint"):
        launch.resume(tmp_path)


def test_a_run_without_its_replay_is_refused_and_not_trained_on_zeros(tmp_path: Path) -> None:
    launch.start(quick_config(), tmp_path).close()
    (tmp_path / "replay" / "rewards.bin").unlink()
    with pytest.raises(RunDamaged, match=r"rewards\.bin is missing"):
        launch.resume(tmp_path)


def test_a_log_shorter_than_its_checkpoint_knows_is_refused(tmp_path: Path) -> None:
    trainer = launch.start(quick_config(), tmp_path)
    trainer.advance(100)
    trainer.close()
    (tmp_path / "episodes.jsonl").write_text("")
    with pytest.raises(RunDamaged, match=r"episodes\.jsonl has 0 bytes"):
        launch.resume(tmp_path)


def test_two_processes_cannot_train_one_run(tmp_path: Path) -> None:
    trainer = launch.start(quick_config(), tmp_path)
    code = f"import slsac.cli, sys; sys.exit(slsac.cli.main(['resume', {str(tmp_path)!r}]))"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert other.returncode == 2
    assert "is in use by another process" in other.stderr
    trainer.close()


HOPPER_FLAGS = [
    "--env", "SafetyHopperVelocity-v1", "--steps", "900", "--warmup-steps", "150",
    "--multiplier-warmup-steps", "300", "--policy.hidden", "32,32", "--batch-size", "32",
    "--reward-critic.hidden", "32,32", "--cost-critic.hidden", "32,32", "--steps-per-epoch", "200",
    "--checkpoint-every-steps", "60", "--evaluation-episodes", "1",
    "--final-evaluation-episodes", "2", "--evaluate-every-epochs", "2",
]  # fmt: skip


def test_killed_at_random_moments_and_resumed_equals_undisturbed(tmp_path: Path) -> None:
    undisturbed_run, killed_run = tmp_path / "a", tmp_path / "b"
    process = slsac("train", *HOPPER_FLAGS, "--run", str(undisturbed_run))
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors.decode()

    moments = random.Random(0)
    process = slsac("train", *HOPPER_FLAGS, "--run", str(killed_run))
    for goal, number in ((200, signal.SIGKILL), (450, signal.SIGTERM), (700, signal.SIGKILL)):
        wait_for(lambda goal=goal: finished_steps(killed_run) >= goal, process)
        time.sleep(moments.uniform(0.0, 0.2))
        process.send_signal(number)
        process.communicate()
        # Asked to end, as by a scheduler, it saves and says how to continue, as after Ctrl-C.
        assert process.returncode == (130 if number == signal.SIGTERM else -number)
        process = slsac("resume", str(killed_run))
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors.decode()
    assert everything(killed_run) == everything(undisturbed_run)
