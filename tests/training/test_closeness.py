"""Runs on an env that says which of its readings are closeness: trained, continued, refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slsac.config import Config
from slsac.envs.probe import Choice
from slsac.errors import InvalidInput
from slsac.runs import export, policy
from slsac.training import fine_tune, launch
from tests.support.runs import everything, quick_config


class Near(Choice):
    def __init__(self) -> None:
        super().__init__()
        self.spec = self.spec._replace(closeness=(0, 1))


class Other(Choice):
    def __init__(self) -> None:
        super().__init__()
        self.spec = self.spec._replace(closeness=(1,))


def config_of(algo: str = "sl-sac-2", **overrides: Any) -> Config:
    config = quick_config(algo, steps=120, **overrides)
    return dataclasses.replace(config, env="custom:near")


def train(run: Path, config: Config, *stops: int, env: Any = Near) -> dict[str, bytes]:
    trainer = launch.start(config, run, env=env)
    for stop in stops:
        trainer.advance(stop)
        trainer.close()
        trainer = launch.resume(run, env=env)
    trainer.advance(config.steps)
    trainer.finish()
    trainer.close()
    return everything(run)


@pytest.fixture(scope="module")
def near(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, bytes]]:
    run = tmp_path_factory.mktemp("near") / "run"
    return run, train(run, config_of())


def test_a_stopped_run_ends_with_the_bytes_of_an_undisturbed_one(
    near: tuple[Path, dict[str, bytes]], tmp_path: Path
) -> None:
    run, files = near
    # Two entries at three rates, beside the two of the observation.
    assert policy.load(run)[1].network.weights[0].shape[0] == 2 + 2 * 3
    assert train(tmp_path / "run", config_of(), 85) == files
    assert export.export(run, tmp_path / "policy.npz").error is not None


def test_another_closeness_is_refused_where_networks_see_it(
    near: tuple[Path, dict[str, bytes]],
) -> None:
    message = r"closeness of the env is \(1,\); the run was made with \(0, 1\)"
    with pytest.raises(InvalidInput, match=message):
        launch.resume(near[0], env=Other)


def test_a_run_without_such_inputs_does_not_care(tmp_path: Path) -> None:
    train(tmp_path / "run", config_of("sl-sac"), env=Near)
    trainer = launch.resume(tmp_path / "run", steps=140, env=Other)
    trainer.advance(140)
    trainer.close()


def tuned(source: Path, run: Path, env: Any, **options: Any) -> Any:
    keep = options.pop("keep_replay", False)
    config = fine_tune.config_from(source, options, keep_replay=keep)
    return fine_tune.start(config, run, source, env=env, keep_replay=keep)


def test_fine_tuning_takes_the_inputs_over_or_says_why_not(
    near: tuple[Path, dict[str, bytes]], tmp_path: Path
) -> None:
    source, run = near[0], tmp_path / "run"
    message = r"closeness of the env is \(1,\); --init .* has networks for \(0, 1\)"
    with pytest.raises(InvalidInput, match=message):
        tuned(source, run, Other)
    with pytest.raises(InvalidInput, match=r"closeness_rates is \(\); --init .* learned with"):
        tuned(source, run, Near, closeness_rates="none")
    trainer = tuned(source, run, Near, keep_replay=True)
    theirs = policy.load(source)[1].network.weights[0]
    np.testing.assert_array_equal(trainer.state.policy.network.weights[0], theirs)
    trainer.close()


def test_a_run_from_before_the_env_said_so_is_continued_without(tmp_path: Path) -> None:
    train(tmp_path / "old", config_of(), env=Choice)
    with pytest.raises(InvalidInput, match=r"closeness of the env is \(0, 1\); --init"):
        tuned(tmp_path / "old", tmp_path / "run", Near)
    trainer = tuned(tmp_path / "old", tmp_path / "run", Near, closeness_rates="none",
                    keep_replay=True)  # fmt: skip
    trainer.advance(40)
    trainer.close()
