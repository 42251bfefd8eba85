"""Certificates: what they say follows from the episodes beside them, and from nothing else."""

from __future__ import annotations

import builtins
import io
import json
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slsac import certificate
from slsac.api import Agent
from slsac.certificate.certify import _cost_unit, costly_steps
from slsac.certificate.contents import (
    Calibration,
    Certificate,
    NotCalibrated,
    QuantileError,
    from_json,
)
from slsac.cli import main
from slsac.config.overrides import with_overrides
from slsac.config.presets import off_policy_preset, preset
from slsac.envs.play import Lanes
from slsac.errors import Failed, InvalidInput
from slsac.runs import layout, policy
from slsac.seeds import Branch, episode_seed
from slsac.stats.bounds import discounted_cost_limit
from slsac.stats.confidence import cvar_upper_bound, share_upper_bound
from slsac.stats.tail import empirical_cvar
from slsac.training import launch
from tests.support.agents import small_config


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a few updates on twenty-step episodes that cost up to 20."""
    config = small_config(
        "ProbeCounts-v0",
        steps=220,
        cost_limit=6.0,
        batch_size=16,
        reward_critic__pairs=1,
        final_evaluation_episodes=3,
    )
    run = tmp_path_factory.mktemp("trained") / "run"
    trainer = launch.start(config, run)
    trainer.advance(config.steps)
    trainer.finish()
    trainer.close()
    return run


def certify(run: Path, *flags: str) -> Certificate:
    arguments = ["certify", str(run), "--episodes", "45", "--max-step-cost", "1", *flags]
    assert main(arguments) == 0
    return from_json((run / "certificate.json").read_text())


@pytest.fixture(scope="module")
def certified(trained: Path) -> Certificate:
    """The certificate of ``trained``, whose folder holds its files from here on."""
    return certify(trained)


def episodes_of(run: Path) -> dict[str, list[float]]:
    return json.loads((run / "certificate-episodes.json").read_text())


def test_a_certificate_follows_from_its_episodes(
    trained: Path, certified: Certificate, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("certificate.json", "certificate.html", "certificate-episodes.json")
    before = [(trained / name).read_bytes() for name in names]
    certify(trained)
    assert [(trained / name).read_bytes() for name in names] == before
    shown = capsys.readouterr().out
    assert shown.startswith(certified.verdict.sentence)
    assert "deterministic actions" in shown
    assert certified.run.steps == 220
    assert "220 steps" in shown
    costs = np.array(episodes_of(trained)["costs"])
    assert costs.size == 45
    assert certified.sample.cost_mean == pytest.approx(costs.mean())
    assert certified.sample.cost_max == costs.max()
    cvar, violation, tail, _ = certified.statements
    over = int((costs > 6.0).sum())
    assert violation.episodes == over
    assert violation.upper_bound == share_upper_bound(over, 45, 0.95)
    assert [row.tail_fraction for row in cvar] == [0.5, 0.1, 0.05, 0.01]
    assert [row.episodes for row in cvar] == [23, 5, 3, 1]
    assert [row.too_few for row in cvar] == [False, True, True, True]
    for row in cvar:
        assert row.estimate == empirical_cvar(costs, row.tail_fraction)
        assert row.upper_bound == cvar_upper_bound(costs, row.tail_fraction, 0.95, 20.0)
        assert row.interval[0] <= row.estimate <= row.interval[1]
    # Costs are whole numbers up to 20: no smooth tail.
    assert not tail.fit.credible
    assert tail.fit.reason in shown


@pytest.mark.usefixtures("certified")
def test_its_episodes_are_none_of_the_evaluations(trained: Path) -> None:
    costs = episodes_of(trained)["costs"]
    agent = Agent.load(trained)
    assert costs[:20] != agent.evaluate(20).costs.tolist()
    agent.close()
    # Chunks of episodes are different ones as well.
    assert costs[:20] != costs[20:40]


def test_sampled_actions_are_those_of_an_agent_that_samples(trained: Path) -> None:
    certified, played = certificate.certify(trained, 40, deterministic=False, seed=3)
    assert certified.protocol.actions == "sampled"
    # Without the largest cost of a step there is no bound on CVaR.
    assert certified.statements.cvar[0].upper_bound is None
    assert len(set(played.returns)) == 40
    agent = Agent.load(trained)
    second_chunk = episode_seed(3, Branch.CERTIFICATE, 1)
    expected = agent.evaluate(20, seed=second_chunk, deterministic=False)
    agent.close()
    np.testing.assert_array_equal(played.returns[20:], expected.returns)


def test_each_file_of_a_run_is_read_once(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: Counter[str] = Counter()
    really_open = io.open

    def counted(file: Any, mode: str = "r", *rest: Any, **named: Any) -> Any:
        if "r" in mode and str(file).startswith(str(trained)):
            reads[str(Path(file).relative_to(trained))] += 1
        return really_open(file, mode, *rest, **named)

    monkeypatch.setattr(builtins, "open", counted)
    monkeypatch.setattr(io, "open", counted)  # what pathlib uses
    certificate.certify(trained, 2)
    assert {"config.json", "policy.safetensors", "progress.jsonl", "evaluations.jsonl"} <= set(
        reads
    )
    assert "checkpoints/final/state.safetensors" in reads
    assert set(reads.values()) == {1}


def test_the_calibration_is_left_for_reports(trained: Path, certified: Certificate) -> None:
    calibration = certified.calibration
    assert isinstance(calibration, Calibration)
    assert isinstance(calibration.error, QuantileError)
    assert (calibration.episodes, calibration.points) == (30, 600)
    left = json.loads((trained / "calibration.json").read_text())
    assert left == json.loads((trained / "certificate.json").read_text())["calibration"]
    assert left["delta"] == calibration.error.delta
    assert len(left["nominal"]) == len(left["observed"]) == 19


def test_without_a_checkpoint_an_earlier_calibration_of_the_policy_counts(
    trained: Path, certified: Certificate, tmp_path: Path
) -> None:
    recorded = tmp_path / "recorded"
    shutil.copytree(trained, recorded, ignore=shutil.ignore_patterns("checkpoints", "replay"))
    assert certify(recorded).calibration == certified.calibration
    earlier = json.loads((recorded / "certificate.json").read_text())
    earlier["calibration"]["policy_sha256"] = "another"
    for text in (json.dumps(earlier), "{"):
        (recorded / "certificate.json").write_text(text)
        refused = certify(recorded).calibration
        assert isinstance(refused, NotCalibrated)
        assert "no checkpoint in the run's folder holds" in refused.reason


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--confidence", "2"], "confidence is 2.0; it must be in [0.5, 0.999999999]"),
        (["--episodes", "1"], "episodes is 1; it must be at least 2"),
        (["--seed", "-1"], "seed is -1; it must be in [0, 2**32)"),
        (["--max-step-cost", "0.01"], "largest_cost is 0.2; it must be at least"),
        (["--max-step-cost", "nan"], "max_step_cost is nan; it must be finite and above 0"),
        (["--max-step-cost", "0"], "max_step_cost is 0.0; it must be finite and above 0"),
        (["--out", "."], "out is '.'; it must be the name of a file"),
    ],
)
def test_bad_input_is_one_line(
    trained: Path, flags: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["certify", str(trained), "--episodes", "20", *flags]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_the_largest_cost_of_an_episode_that_a_violation_ends_is_one() -> None:
    driving = preset("sl-sac", "MetaDriveSafe-v0")
    assert costly_steps(driving, 1_000) == 1
    lenient = with_overrides(driving, {"metadrive.end_at_violation": False})
    assert costly_steps(lenient, 1_000) == 1_000
    assert costly_steps(preset("sl-sac", "SafetyHopperVelocity-v1"), 1_000) == 1_000
    # A task of one's own that learns on from a driver keeps the simulator's settings.
    assert costly_steps(replace(driving, env="custom:Rainy"), 1_000) == 1_000


def test_a_config_that_was_changed_by_hand_is_on_the_certificate(
    trained: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    config = json.loads((run / layout.CONFIG).read_text())
    config["cost_limit"] += 75.0
    (run / layout.CONFIG).write_text(json.dumps(config))
    made, played = certificate.certify(run, 4)
    assert made.run.config_edited
    assert "changed by hand" in certificate.plain_text(made)
    page = certificate.write(made, played, run, None)
    assert "changed by hand" in page.read_text()
    assert from_json((run / layout.CERTIFICATE).read_text()).run.config_edited
    assert "config_edited" not in (trained / layout.CERTIFICATE).read_text()


def test_where_nothing_can_be_written_nothing_is_played(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    out = tmp_path / "file" / "c.html"
    assert main(["certify", str(trained), "--episodes", "20", "--out", str(out)]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == (
        f"slsac: out is {str(out.with_suffix(''))!r}; no file can be written there: File exists\n"
    )


def test_an_evaluation_that_raises_leaves_no_env_open(
    trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = []
    monkeypatch.setattr(Lanes, "close", lambda self: closed.append(self))

    def interrupt(what: str, done: int, total: int) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        certificate.certify(trained, 40, max_step_cost=1.0, tick=interrupt)
    assert len(closed) == 1


def test_a_run_that_learns_on_meanwhile_changes_nothing(trained: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    expected, _ = certificate.certify(run, 5, max_step_cost=1.0)

    def learn_on(what: str, done: int, total: int) -> None:
        agent = Agent.load(run)
        agent.learn(20)
        agent.close()

    first = iter([learn_on])
    certified, _ = certificate.certify(
        run, 5, max_step_cost=1.0, tick=lambda *told: next(first, lambda *told: None)(*told)
    )
    assert layout.policy_digest(run) != certified.run.policy_sha256
    assert certified == expected


def test_a_policy_that_is_saved_while_files_are_read_ends_the_reading(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    count_steps = policy.steps_in_logs

    def save_and_count(*arguments: Any) -> int:
        layout.write_atomically(run / "policy.safetensors", b"another")
        return count_steps(*arguments)

    monkeypatch.setattr(policy, "steps_in_logs", save_and_count)
    with pytest.raises(Failed, match="saved another policy just now; try again"):
        certificate.certify(run, 2)


def test_another_horizon_is_another_task(trained: Path, tmp_path: Path) -> None:
    # Episodes of 20 steps cost 20 at most. Where a run says 10, no bound may be made of that.
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    values = json.loads((run / "config.json").read_text())
    values["spec"]["horizon"] = 10
    (run / "config.json").write_text(json.dumps(values))
    expected = "horizon of the env is 20; the run was made with 10"
    with pytest.raises(InvalidInput, match=expected):
        certificate.certify(run, 5, max_step_cost=1.0)
    with pytest.raises(InvalidInput, match=expected):
        Agent.load(run).evaluate(2)
    with pytest.raises(InvalidInput, match=expected):
        launch.resume(run, inexact=True)


@pytest.mark.usefixtures("certified")
def test_a_new_run_in_its_place_has_no_certificate(trained: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    assert (run / "certificate.json").exists()
    with launch.claimed(run, overwrite=True) as lock:
        lock.release()
    assert [path.name for path in run.iterdir() if not path.name.startswith(".")] == []


def test_the_critics_unit_of_cost_is_the_one_that_its_run_had() -> None:
    config = off_policy_preset("sl-sac-2", "SafetyHopperVelocity-v1")
    unlimited = replace(config, cost_limit=0.0)
    # Ten steps that cost 4 in all: the mean cost for ever, discounted.
    facts = {"units": [10, 5.0, 4.0], "largest_cost": 3.0}
    worth = 0.4 / (1.0 - config.cost_critic.discount)
    assert _cost_unit(unlimited, 1_000, facts) == pytest.approx(worth)
    assert _cost_unit(replace(config, cost_limit=1e-3), 1_000, facts) == 3.0 / 20.0
    # A final checkpoint of an older version says nothing of units.
    assert _cost_unit(unlimited, 1_000, {}) is None
    limit = discounted_cost_limit(25.0, config.cost_critic.discount, 1_000)
    assert _cost_unit(config, 1_000, {}) == limit
