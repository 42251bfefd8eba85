"""A run that starts from another has its networks, scales and multiplier, and nothing else."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slsac import Agent
from slsac.cli import main
from slsac.envs.probe import Choice
from slsac.errors import InvalidInput
from slsac.runs import checkpoint
from slsac.training import fine_tune, launch
from tests.support.runs import quick_config, undisturbed


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trained for 120 steps under a limit of 1."""
    run = tmp_path_factory.mktemp("source") / "run"
    undisturbed(run, quick_config("sl-sac-2", steps=120, multiplier__initial=0.1))
    return run


@pytest.fixture
def begin(source: Path, tmp_path: Path) -> Iterator[Any]:
    """Starts runs from ``source`` and closes them afterwards."""
    started: list[Any] = []

    def start(keep_replay: bool = False, **overrides: Any) -> Any:
        config = fine_tune.config_from(source, overrides, keep_replay=keep_replay)
        run = tmp_path / f"run-{len(started)}"
        started.append(fine_tune.start(config, run, source, keep_replay=keep_replay))
        return started[-1]

    yield start
    for trainer in started:
        trainer.close()


def test_networks_scales_and_multiplier_are_taken_over_and_the_rest_is_new(
    begin: Any, source: Path
) -> None:
    saved = checkpoint.load_newest(source / "checkpoints")[0]
    trainer = begin(cost_limit=0.5, seed=7)
    assert trainer.step == 0
    assert trainer.config.cost_limit == 0.5
    np.testing.assert_array_equal(
        trainer.state.policy.network.weights[0], saved.tensors["policy.network.weights[0]"]
    )
    assert not np.array_equal(trainer.state.key, saved.tensors["key"]), "randomness is its own"
    assert int(trainer.state.updates) == 0
    assert trainer.session.lagrangian.value == saved.facts["multiplier"][0]
    assert trainer.session.episodes.count == 0
    facts = checkpoint.load(trainer.run / "checkpoints" / "step-000000000000").facts
    assert facts["moments"] == saved.facts["moments"]
    assert facts["units"] == saved.facts["units"]
    recorded = json.loads((trainer.run / "config.json").read_text())["provenance"]
    assert recorded["initialised_from"]["run"] == str(source)
    assert recorded["initialised_from"]["steps"] == 120


@pytest.mark.parametrize("limit", [1.0, 0.5, 4.0])
def test_cost_critics_predict_the_same_cost_under_another_limit(
    limit: float, begin: Any, source: Path
) -> None:
    """They learned in units of a limit of 1, and continue in units of the new one."""
    theirs = launch.resume(source)
    trainer = begin(cost_limit=limit)
    observations, actions = np.ones((4, 2), np.float32), np.zeros((4, 1), np.float32)
    fractions = np.array([[0.1, 0.5, 0.9]], np.float32)
    for name in ("cost_critic", "target_cost_critic"):
        expected, found = (
            run.units.cost * getattr(run.state, name)(observations, actions, fractions)
            for run in (theirs, trainer)
        )
        np.testing.assert_allclose(found, expected, rtol=1e-5)
    theirs.close()


def test_the_policy_plays_the_steps_before_learning_and_resume_knows_it(begin: Any) -> None:
    trainer = begin()
    assert trainer.config.multiplier_warmup_steps == trainer.config.warmup_steps == 60
    assert "after 60 steps of the policy it was given" in trainer.schedule
    trainer.advance(1)
    # What the policy explores with depends on the seed and the step alone.
    expected = trainer.learner.explore([trainer.replay._observations[1]], 0)[0]
    np.testing.assert_array_equal(trainer.replay._actions[0], expected)
    trainer.close()
    resumed = launch.resume(trainer.run)
    assert not resumed.random_actions.wanted
    resumed.close()


def test_a_kept_replay_is_learned_from_at_once(begin: Any, source: Path) -> None:
    trainer = begin(keep_replay=True)
    assert trainer.config.warmup_steps == 0
    assert len(trainer.replay) == 120
    theirs = launch.resume(source)
    for own, other in zip(
        trainer.replay._of_transitions(), theirs.replay._of_transitions(), strict=True
    ):
        np.testing.assert_array_equal(own, other)
    theirs.close()
    trainer.advance(2)
    assert trainer.session.clock.updates == 2


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"algo": "sac-lag"}, "algo is sac-lag; --init .* learned with sl-sac-2"),
        (
            {"units": "task", "multiplier.critic_gain": 0.0},
            "units is task; --init .* learned with scale-free",
        ),
        (
            {"reward_critic.layer_norm": False},
            "reward_critic.layer_norm is False; --init .* learned with True",
        ),
        ({"policy.hidden": (8, 8)}, "does not fit the new run: .*policy"),
        ({"env": "ProbeChain-v0"}, "observation_size of the env is .*has networks for 2"),
    ],
)
def test_what_does_not_fit_is_refused_and_leaves_nothing(
    overrides: dict[str, Any], message: str, source: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    with pytest.raises(InvalidInput, match=message):
        fine_tune.start(fine_tune.config_from(source, overrides), run, source)
    assert not (run / "config.json").exists()


def test_a_run_without_checkpoints_and_the_run_itself_are_refused(
    source: Path, tmp_path: Path
) -> None:
    config = fine_tune.config_from(source, {})
    with pytest.raises(InvalidInput, match="which --init names as well; pass --run"):
        fine_tune.start(config, source, source)
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "config.json").write_bytes((source / "config.json").read_bytes())
    with pytest.raises(InvalidInput, match="keeps no checkpoint; a policy alone"):
        fine_tune.start(config, tmp_path / "new", tmp_path / "bare")


def test_checkpoints_of_another_run_are_refused(source: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    launch.start(quick_config("sl-sac-2", seed=5, multiplier__initial=0.1), other).close()
    shutil.rmtree(other / "checkpoints")
    shutil.copytree(source / "checkpoints", other / "checkpoints")
    with pytest.raises(InvalidInput, match="belongs to another run"):
        fine_tune.start(fine_tune.config_from(other, {}), tmp_path / "new", other)


def test_python_and_the_command_line_start_the_same_run(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Agent.load(source, cost_limit=0.5, run=tmp_path / "a", env=Choice) as agent:
        assert agent.config.env == "custom:Choice"
        agent.learn(70, progress=False)
    line = ["train", "--init", str(source), "--cost-limit", "0.5", "--steps", "70"]
    assert main([*line, "--run", str(tmp_path / "b")]) == 0
    assert f"begins with what {source} has learned" in capsys.readouterr().out
    policies = [(tmp_path / name / "policy.safetensors").read_bytes() for name in "ab"]
    assert policies[0] == policies[1]
    assert main([*line, "--from", str(source)]) == 2
    assert "--init and --from cannot be combined" in capsys.readouterr().err
