"""Several seeds in one process: each run is what it would have been alone, to rounding."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from slsac.cli import main
from slsac.display import Silent
from slsac.errors import InvalidInput
from slsac.runs import config_file
from slsac.runs.log import read_lines
from slsac.runs.steps import completed_step
from slsac.training import cohort, journal, launch
from tests.support.agents import small_config

STEPS = 260
"""200 random ones and 60 updates."""


@pytest.mark.parametrize("algo", ["sl-sac", "sl-sac-2", "td3-lag"])
def test_each_seed_is_within_1e_5_of_its_solo_run(tmp_path: Path, algo: str) -> None:
    # An automatic temperature cannot begin at 0.
    options = {"policy__temperature": 0.013, "noiseless_every": 2} if algo == "sl-sac-2" else {}
    config = small_config("ProbeChoice-v0", algo, seed=3, **options)
    together = cohort.start(
        config, 2, tmp_path / "together", overwrite=False, display=lambda seed: Silent()
    )
    together.advance(STEPS)
    for trainer in together.trainers:
        solo = launch.start(trainer.config, tmp_path / f"solo{trainer.config.seed}")
        solo.advance(STEPS)
        assert solo.session.clock.updates == trainer.session.clock.updates == STEPS - 200
        multipliers = (run.session.lagrangian.state.value for run in (solo, trainer))
        assert next(multipliers) == pytest.approx(next(multipliers), abs=1e-6)
        for ours, theirs in zip(
            jax.tree.leaves(trainer.state), jax.tree.leaves(solo.state), strict=True
        ):
            np.testing.assert_allclose(ours, theirs, atol=1e-5, rtol=1e-5)
        solo.close()
    first, second = (jax.tree.leaves(trainer.state.policy) for trainer in together.trainers)
    assert not np.allclose(first[0], second[0], atol=1e-3)
    together.close()


def test_every_seed_has_an_ordinary_run_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "runs"
    command = ["train", "--algo", "sac-lag", "--env", "ProbeChoice-v0", "--seeds", "2"]
    command += ["--seed", "5", "--steps", "400", "--warmup-steps", "300", "--run", str(folder)]
    command += ["--policy.hidden", "16,16", "--reward-critic.hidden", "16,16"]
    command += ["--cost-critic.hidden", "16,16", "--batch-size", "32"]
    command += ["--final-evaluation-episodes", "2", "--steps-per-epoch", "200"]
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert "seed 5" in shown
    assert "seed 6" in shown
    for seed in (5, 6):
        config, _, facts = config_file.read(folder / f"seed{seed}")
        assert (config.seed, facts["together"]) == (seed, 2)
        assert completed_step(folder / f"seed{seed}") == 400
        assert main(["evaluate", str(folder / f"seed{seed}"), "--episodes", "1", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["episodes"] == 1


def test_a_run_that_was_trained_with_others_does_not_resume_alone_unasked(tmp_path: Path) -> None:
    together = cohort.start(
        small_config("ProbeChoice-v0"), 2, tmp_path, overwrite=False, display=lambda s: Silent()
    )
    together.close()
    with pytest.raises(InvalidInput, match="together: 2 -> 1"):
        launch.resume(tmp_path / "seed0")


class Clock(Silent):
    """By which a step takes a second, an evaluation a hundred, and all else no time."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def perf_counter(self) -> float:
        return self.seconds

    def tick(self, step: int) -> None:
        self.seconds += 1.0

    def evaluation(self, step: int, summary: Mapping[str, Any]) -> None:
        self.seconds += 100.0


def test_no_seed_is_timed_while_another_is_evaluated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(journal, "time", clock)
    config = small_config("ProbeChoice-v0", steps_per_epoch=20, evaluate_every_epochs=1)
    together = cohort.start(config, 2, tmp_path, overwrite=False, display=lambda seed: clock)
    together.advance(40)
    together.close()
    for seed in (0, 1):
        lines = read_lines(tmp_path / f"seed{seed}" / "timing.jsonl")
        # Two seeds take twenty steps each; two evaluations lie between the epochs.
        assert [line["seconds"] for line in lines] == [40.0, 40.0]


def test_a_state_is_what_the_cohort_has_learned(tmp_path: Path) -> None:
    together = cohort.start(
        small_config("ProbeChoice-v0"), 2, tmp_path, overwrite=False, display=lambda s: Silent()
    )
    first, second = together.trainers
    before = second.state.policy.weights[0]
    together.advance(260)
    assert first.learner is second.learner
    assert not np.array_equal(second.state.policy.weights[0], before)
    together.close()


def test_where_one_cannot_be_started_the_others_are_let_go(tmp_path: Path) -> None:
    config = small_config("ProbeChoice-v0")
    busy = launch.start(replace(config, seed=1), tmp_path / "seed1")
    with pytest.raises(InvalidInput, match="seed1' is in use by another process"):
        cohort.start(config, 2, tmp_path, overwrite=True, display=lambda seed: Silent())
    busy.close()
    cohort.start(config, 2, tmp_path, overwrite=True, display=lambda seed: Silent()).close()


def test_a_refusal_leaves_nothing_behind(tmp_path: Path) -> None:
    config = small_config("ProbeChoice-v0")
    launch.start(config, tmp_path / "seed1").close()
    with pytest.raises(InvalidInput, match="seed1' already holds a run"):
        cohort.start(config, 2, tmp_path, overwrite=False, display=lambda seed: Silent())
    assert not (tmp_path / "seed0").exists()
    with pytest.raises(InvalidInput, match="seeds is 1; it must be at least 2"):
        cohort.start(config, 1, tmp_path / "x", overwrite=False, display=lambda seed: Silent())
