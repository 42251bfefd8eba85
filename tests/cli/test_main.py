"""The command line: what it prints, what it leaves behind, and how it refuses."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slsac import __version__
from slsac.cli import main
from slsac.config.presets import ALGORITHMS
from slsac.envs import list_envs
from slsac.runs.log import read_lines
from slsac.stats.tail import empirical_cvar
from slsac.training.off_policy import OffPolicyTrainer
from tests.support.recorded import make_run

QUICK = [
    "--steps", "120", "--warmup-steps", "40", "--batch-size", "16", "--steps-per-epoch", "40",
    "--policy.hidden", "16,16", "--reward-critic.hidden", "16,16", "--cost-critic.hidden", "16,16",
    "--checkpoint-every-steps", "30", "--final-evaluation-episodes", "3",
    "--evaluation-episodes", "1", "--evaluate-every-epochs", "2",
]  # fmt: skip


def test_train_evaluate_resume(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    assert main(["train", "--env", "ProbeHeavyTail-v0", "--run", str(run), *QUICK]) == 0
    shown = capsys.readouterr().out
    assert "cost limit 25 per episode, undiscounted" in shown
    assert "nothing holds this run of 120 to its cost limit" in shown
    assert f"results are in {run}" in shown

    progress = read_lines(run / "progress.jsonl")
    assert [line["step"] for line in progress] == [40, 80, 120]
    for name in ("return", "cost", "window_cvar", "multiplier", "reward_critic_loss"):
        assert name in progress[-1]
    episodes = read_lines(run / "episodes.jsonl")
    assert len(episodes) == 120
    assert set(episodes[0]) == {"step", "return", "cost", "length"}
    evaluations = read_lines(run / "evaluations.jsonl")
    assert [(line["step"], line["final"]) for line in evaluations] == [(80, False), (120, True)]
    config = json.loads((run / "config.json").read_text())
    assert config["cost_limit"] == 25.0
    assert config["provenance"]["cores"] >= 1
    assert list((run / "tensorboard").iterdir())

    def evaluate() -> dict:
        assert main(["evaluate", str(run), "--episodes", "5", "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    first = evaluate()
    assert evaluate() == first
    about = {"algo": "sl-sac-2", "env": "ProbeHeavyTail-v0", "trained_steps": 120, "seed": 0}
    assert about.items() <= first.items()
    assert first["actions"] == "deterministic"
    costs = np.array(first["costs"])
    assert first["cost_mean"] == pytest.approx(costs.mean())
    assert first["cost_se"] == pytest.approx(costs.std(ddof=1) / math.sqrt(5))
    assert first["cost_cvar"] == pytest.approx(empirical_cvar(costs, 0.5))
    assert first["violation_rate"] == pytest.approx((costs > 25.0).mean())
    # The final evaluation of training used the first three of the same episodes.
    assert first["costs"][:3] == evaluations[-1]["costs"]

    assert main(["resume", str(run)]) == 0
    assert "is complete at step 120" in capsys.readouterr().out
    assert main(["resume", str(run), "--steps", "50"]) == 2
    assert "pass --steps above 120 to train it further" in capsys.readouterr().err
    assert main(["evaluate", str(run), "--episodes", "5"]) == 0
    line = capsys.readouterr().out
    assert "sl-sac-2 on ProbeHeavyTail-v0 after 120 steps, deterministic actions: " in line
    worst = np.sort(first["returns"])[:3].mean()
    assert f"CVaR at 0.5: return {worst:.2g}, cost {first['cost_cvar']:.1f}; " in line
    assert main(["resume", str(run), "--steps", "160"]) == 0
    shown = capsys.readouterr().out
    assert "cost limit 25 per episode, undiscounted" in shown
    assert "resuming at step 120" in shown
    assert read_lines(run / "episodes.jsonl")[-1]["step"] == 160


def test_training_says_when_the_multiplier_begins_to_act(
    start: Callable[..., OffPolicyTrainer],
) -> None:
    trainer = start("ProbeChoice-v0", steps=120, warmup_steps=40, multiplier_warmup_steps=119)
    assert trainer.schedule.endswith("the multiplier acts after 119 steps")


def test_training_says_when_it_is_too_short_to_learn(
    start: Callable[..., OffPolicyTrainer],
) -> None:
    trainer = start("ProbeChoice-v0", steps=40, warmup_steps=40)
    assert "so nothing is learned in 40 (lower --warmup-steps)" in trainer.schedule


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"slsac {__version__}\n"


def test_lists(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["algos"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(ALGORITHMS)
    assert main(["envs"]) == 0
    tasks, _, left_out = capsys.readouterr().out.partition("Safety-Gymnasium tasks left out:\n")
    listed = [line.split()[0] for line in tasks.splitlines() if line.startswith("  ")]
    assert listed == [env for env, _ in list_envs()]
    assert "Vision-v0: observations are pictures" in left_out
    assert "multi-agent tasks: slsac trains one agent" in left_out


def test_tasks_can_be_searched(capsys: pytest.CaptureFixture[str]) -> None:
    def ids(*words: str) -> list[str]:
        assert main(["envs", *words]) == 0
        lines = capsys.readouterr().out.splitlines()
        return [line.split()[0] for line in lines if line.startswith("  ")]

    agents = ("Point", "Car", "Racecar", "Doggo", "Ant")
    levels = [f"Safety{agent}Goal{level}-v0" for level in range(3) for agent in agents]
    assert ids("GOAL") == levels
    assert ids("goal", "doggo") == [f"SafetyDoggoGoal{level}-v0" for level in range(3)]
    assert ids("gremlin") == [f"Safety{a}Button{level}-v0" for level in (1, 2) for a in agents]
    assert main(["envs", "gaol"]) == 2
    assert "no task has 'gaol' in its id or its line" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--env", "Foo-v0"], "env 'Foo-v0' does not exist; known: MetaDriveSafe-v0, SafetyAnt"),
        (["--env", "SafetyHoperVelocity-v1"], "did you mean SafetyHopperVelocity-v1"),
        (["--algo", "slsac"], "algo 'slsac' does not exist; did you mean sl-sac"),
        (["--algo", "SACLag"], "algo 'SACLag' does not exist; did you mean sac-lag?"),
        (["--algo", "sac"], "did you mean sac-lag or sac-lag/omnisafe or sac-pid"),
        (["--cost-limt", "3"], "'cost_limt' does not exist; did you mean cost_limit"),
        (["--pairs", "3"], "did you mean reward_critic.pairs"),
        (["--tail-fraction", "0"], "tail_fraction is 0.0; it must be in (0, 1]"),
        (["--tail-fraction", "1.5"], "tail_fraction is 1.5; it must be in (0, 1]"),
        (["--reward-critic.pairs", "0"], "reward_critic.pairs is 0; it must be at least 1"),
        (["--cost-limit", "-1"], "cost_limit is -1.0; it must be at least 0"),
        (["--reward-critic.discount", "1"], "reward_critic.discount is 1.0; it must be in [0, 1)"),
        (["--steps", "0"], "steps is 0; it must be at least 1"),
        (["--steps", "many"], "steps is 'many'; it must be a whole number"),
        (["--cost-limit"], "--cost-limit has no value"),
        (["--cost-limit", "--steps=9"], "--cost-limit has no value"),
        (["--trak", "wandb"], "flag --trak does not exist; did you mean --track?"),
        (["--rum", "x"], "flag --rum does not exist; did you mean --run?"),
        (["--overwritee"], "flag --overwritee does not exist; did you mean --overwrite?"),
        (["--run", ""], "run is ''; it must be the name of a directory"),
        (["stray"], "argument 'stray' is unknown"),
        (["--inexact"], "--inexact has no effect without --from"),
        (["--keep-replay"], "--keep-replay has no effect without --init"),
        (["--keep-bets"], "flag --keep-bets does not exist; did you mean --keep-best?"),
        (["--stop-at", "much"], "stop-at is 'much'; it must be a number"),
        (["--track", "mlflow"], "argument --track: invalid choice: 'mlflow'"),
        (["--seeds", "two"], "seeds is 'two'; it must be a whole number"),
        (["--seeds", "2", "--stop-at", "5"], "--seeds and --stop-at cannot be combined"),
        (["--device", "abacus"], "device is 'abacus'; it must be cpu, gpu or gpu:N"),
        (["--device", "cpu:99"], "device is cpu:99; this machine has "),
        (["--device", "gpu"], "device is gpu; JAX finds none here: pass --device cpu"),
        (
            ["--algo", "cpo", "--multiplier-warmup-steps", "9"],
            "'multiplier_warmup_steps' is for off-policy algorithms only",
        ),
        (["--num-envs", "4"], "'num_envs' is for on-policy algorithms only"),
        (["--run", "/proc/none/run"], "run '/proc/none/run' cannot be made: "),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    arguments: list[str], expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    line = ["train", "--env", "ProbeChoice-v0", "--run", str(run), *arguments]
    assert main(line) == 2
    shown = capsys.readouterr()
    assert expected in shown.err
    assert shown.err.count("\n") == 1
    assert shown.out == ""
    assert not run.exists()


def test_a_flag_of_training_itself_is_suggested(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    flags = re.findall(r"^  --([a-z-]+)", capsys.readouterr().out, re.MULTILINE)
    assert {"run", "stop-at", "overwrite"} < set(flags)
    for flag in flags:
        for slip in ([f"--{flag}x", "1"], [f"--{flag}x=1"], [f"--{flag}x"]):
            assert main(["train", *slip]) == 2
            assert f"flag --{flag}x does not exist; did you mean --{flag}?" in (
                capsys.readouterr().err
            )


def test_what_is_missing_is_named_and_where_to_look(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert capsys.readouterr().err == "slsac: missing: COMMAND; see `slsac --help`\n"
    assert main(["evaluate"]) == 2
    assert capsys.readouterr().err == "slsac: missing: run; see `slsac evaluate --help`\n"


def test_a_command_that_does_not_exist_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evalute", "run"]) == 2
    assert "command 'evalute' does not exist; did you mean evaluate?" in capsys.readouterr().err
    assert main(["foo"]) == 2
    shown = capsys.readouterr().err
    assert "known: algos, bench, " in shown
    assert "sweep-trial" not in shown


def test_an_existing_run_is_not_overwritten_by_mistake(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["train", "--env", "ProbeHeavyTail-v0", "--run", str(tmp_path), *QUICK]
    assert main(arguments) == 0
    before = (tmp_path / "policy.safetensors").read_bytes()
    capsys.readouterr()
    assert main(arguments) == 2
    assert "already holds a run; pass --overwrite" in capsys.readouterr().err
    # Bad input costs nothing even with --overwrite.
    assert main([*arguments, "--overwrite", "--env", "NoSuchEnv-v0"]) == 2
    assert (tmp_path / "policy.safetensors").read_bytes() == before
    assert main([*arguments, "--overwrite", "--seed", "1"]) == 0
    assert (tmp_path / "policy.safetensors").read_bytes() != before


def test_an_env_or_a_run_to_begin_with_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train"]) == 2
    assert "--env is missing; see `slsac envs`" in capsys.readouterr().err


def test_a_platform_that_jax_cannot_start_is_one_line(tmp_path: Path) -> None:
    line = [sys.executable, "-m", "slsac", "train", "--env", "ProbeChoice-v0"]
    ended = subprocess.run(
        [*line, "--run", str(tmp_path / "run")], env=os.environ | {"JAX_PLATFORMS": "cuda"},
        capture_output=True, text=True,
    )  # fmt: skip
    assert ended.returncode == 2, ended.stderr
    assert "JAX_PLATFORMS is 'cuda', and JAX cannot start it; unset it or set cpu" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("command", ["resume", "evaluate"])
def test_a_directory_without_a_run_is_refused(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, str(tmp_path)]) == 2
    assert "holds no run" in capsys.readouterr().err


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
    assert main(["algos", "--debug"]) == 1
    assert "Traceback" in capsys.readouterr().err
    monkeypatch.setenv("SLSAC_DEBUG", "1")
    assert main(["algos"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_a_terminal_that_knows_ascii_alone_gets_a_table(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    for more in ([], ["--out", str(tmp_path / "table.md")]):
        done = subprocess.run(
            [sys.executable, "-m", "slsac", "table", str(run), *more],
            capture_output=True, env=os.environ | locale,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    assert "±" in (tmp_path / "table.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MemoryError("no\nmore"), "slsac: out of memory: no more\n"),
        (
            RuntimeError("RESOURCE_EXHAUSTED: 1 PB"),
            "slsac: out of memory: RESOURCE_EXHAUSTED: 1 PB\n",
        ),
        (OSError(28, "No space left on device"), "slsac: [Errno 28] No space left on device\n"),
        (RecursionError("deep"), "slsac: unexpected RecursionError: deep (details in "),
    ],
)
def test_what_a_machine_cannot_do_is_one_line(
    error: Exception, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(options: object) -> int:
        raise error

    monkeypatch.setattr(sys.modules["slsac.cli.main"], "run_command", broken)
    assert main(["algos"]) == 1
    shown = capsys.readouterr().err
    assert shown.startswith(said)
    assert shown.count("\n") == 1


def test_a_recorded_run_says_that_it_cannot_be_trained_further(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(make_run(tmp_path / "run"))
    assert main(["resume", run]) == 0
    assert "keeps no checkpoint: it can be evaluated, certified" in capsys.readouterr().out
    assert main(["resume", run, "--steps", "20000"]) == 2
    assert "steps is 20000; " in capsys.readouterr().err
