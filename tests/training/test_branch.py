"""Runs that share their beginning end with the bytes of runs that do not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from slsac.cli import main
from slsac.config import Config
from slsac.config.overrides import as_flags
from slsac.errors import InvalidInput
from slsac.runs import checkpoint, config_file, policy
from slsac.runs.log import read_lines
from slsac.runs.steps import completed_step
from slsac.training import branch
from tests.support.agents import small_config
from tests.support.runs import everything, undisturbed


def quick(algo: str = "sl-sac", **overrides: Any) -> Config:
    settings: dict[str, Any] = {
        "steps": 160, "warmup_steps": 30, "multiplier_warmup_steps": 75, "batch_size": 16,
        "steps_per_epoch": 20, "checkpoint_every_steps": 20, "evaluate_every_epochs": 2,
        "cost_limit": 1.0, "multiplier__window": 4,
    }  # fmt: skip
    return small_config("ProbeChoice-v0", algo, **(settings | overrides))


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("source")
    undisturbed(run, quick())
    return run


def finished(config: Config, run: Path, source: Path, **options: Any) -> dict[str, bytes]:
    trainer = branch.start(config, run, source, **options)
    assert trainer.step == 60
    _, loaded = policy.load(run)
    for one, other in zip(
        jax.tree.leaves(loaded), jax.tree.leaves(trainer.state.policy), strict=True
    ):
        assert np.array_equal(one, other)
    trainer.advance(config.steps)
    trainer.finish()
    trainer.close()
    return everything(run)


@pytest.mark.parametrize(
    ("algo", "overrides"),
    [
        ("sl-sac/signal-mean", {"steps": 200}),
        ("sl-sac", {"multiplier__rule": "adam", "multiplier__learning_rate": 0.1}),
        ("sl-sac", {"multiplier_warmup_steps": 90, "multiplier__rule": "pid"}),
    ],
)
def test_a_branch_ends_with_the_bytes_of_a_run_from_step_zero(
    tmp_path: Path, source: Path, algo: str, overrides: dict[str, Any]
) -> None:
    config = quick(algo, **overrides)
    expected = undisturbed(tmp_path / "whole", config)
    before = everything(source)
    assert finished(config, tmp_path / "branch", source) == expected
    assert everything(source) == before
    assert read_lines(tmp_path / "branch" / "progress.jsonl")[-1]["multiplier"] > 0.0
    recorded = json.loads((tmp_path / "branch" / "config.json").read_text())
    assert recorded["algo"] == algo
    assert recorded["provenance"]["branched_from"]["steps"] == 60
    steps = [line["step"] for line in read_lines(tmp_path / "branch" / "timing.jsonl")]
    assert steps == list(range(20, config.steps + 1, 20))


def test_the_checkpoint_before_the_multiplier_moves_is_kept(source: Path) -> None:
    names = checkpoint.step_names(source / "checkpoints")
    assert [checkpoint.step_of(name) for name in names] == [60, 140, 160]


@pytest.mark.parametrize(
    ("algo", "overrides", "said"),
    [
        ("sl-sac", {"seed": 1}, r"has another beginning: seed \(0 there\); only steps and how"),
        ("sl-sac", {"tail_fraction": 0.2}, r"tail_fraction \(0.5 there\)"),
        ("sl-sac", {"multiplier__initial": 0.5}, r"multiplier.initial \(0.0 there\)"),
        ("sl-sac", {"multiplier__signal": "critic"}, "it must be one of empirical-cvar, mean"),
        ("sl-sac/signal-mean", {"multiplier__tighten": True}, r"multiplier.tighten \(False there"),
        ("sl-sac", {"multiplier_warmup_steps": 50}, "no checkpoint between step 0 and step 50"),
        ("ppo-lag", {}, "only off-policy runs"),
    ],
)
def test_what_does_not_share_the_beginning_is_refused(
    tmp_path: Path, source: Path, algo: str, overrides: dict[str, Any], said: str
) -> None:
    on_policy = algo == "ppo-lag"
    config = small_config("ProbeChoice-v0", algo) if on_policy else quick(algo, **overrides)
    with pytest.raises(InvalidInput, match=said):
        branch.start(config, tmp_path / "new", source)
    assert not (tmp_path / "new").exists()


def test_signals_that_tighten_differently_have_different_beginnings(tmp_path: Path) -> None:
    undisturbed(tmp_path / "a", quick(multiplier__tighten=True))
    config = quick("sl-sac/signal-mean", multiplier__tighten=True)
    with pytest.raises(InvalidInput, match=r"multiplier.signal \(empirical-cvar there\)"):
        branch.start(config, tmp_path / "b", tmp_path / "a")


def test_a_replay_that_may_have_come_round_is_refused(tmp_path: Path) -> None:
    config = quick(replay_capacity=100)
    undisturbed(tmp_path / "a", config)
    with pytest.raises(InvalidInput, match="is at step 160 with a replay of 100, which may have"):
        branch.start(config, tmp_path / "b", tmp_path / "a")


def test_nothing_is_lost_where_a_branch_is_refused(tmp_path: Path, source: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(source, run)
    before = everything(run)
    with pytest.raises(InvalidInput, match="which --from names as well"):
        branch.start(quick(), run, run, overwrite=True)
    shutil.copytree(source, tmp_path / "recorded", ignore=shutil.ignore_patterns("replay"))
    with pytest.raises(InvalidInput, match="has no replay"):
        branch.start(quick(), run, tmp_path / "recorded", overwrite=True)
    config, spec, facts = config_file.read(source)
    shutil.copytree(source, tmp_path / "resumed")
    config_file.write(config, tmp_path / "resumed", spec, {**facts, "before_resume": {}})
    with pytest.raises(InvalidInput, match="itself been resumed with --inexact"):
        branch.start(quick(), run, tmp_path / "resumed", overwrite=True)
    assert everything(run) == before
    finished(quick(), run, tmp_path / "resumed", overwrite=True, inexact=True)


def test_the_run_that_is_replaced_comes_back_where_the_start_fails(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    shutil.copytree(source, run)
    before = everything(run)

    def refuse(*_: Any, **__: Any) -> None:
        raise InvalidInput("no")

    with pytest.raises(InvalidInput, match="env_timeout is 0"):
        branch.start(quick(), run, source, overwrite=True, env_timeout=0.0)
    monkeypatch.setattr(branch.launch, "resume", refuse)
    with pytest.raises(InvalidInput, match="no"):
        branch.start(quick(), run, source, overwrite=True)
    assert everything(run) == before
    with pytest.raises(InvalidInput, match="no"):
        branch.start(quick(), tmp_path / "new", source)
    assert not (tmp_path / "new" / "config.json").exists()


def test_on_the_command_line(
    tmp_path: Path, source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, _, _ = config_file.read(source)
    same = as_flags(config)
    run = tmp_path / "branch"
    named = ["--run", str(run), "--from", str(source)]
    assert main(["train", *named, *same, "--steps", "180"]) == 0
    assert f"the first 60 steps are those of {source}" in capsys.readouterr().out
    assert completed_step(run) == 180

    flags = ["--algo", config.algo, "--env", config.env, "--run", str(tmp_path / "new")]
    assert main(["train", *flags, "--from", str(source)]) == 2
    assert "has another beginning: cost_limit (1.0 there)" in capsys.readouterr().err
    assert main(["train", *flags, "--from", str(source), "--seeds", "2"]) == 2
    assert "cannot be combined" in capsys.readouterr().err
    assert main(["train", *flags, "--from", str(tmp_path / "nowhere")]) == 2
    assert "holds no run" in capsys.readouterr().err
