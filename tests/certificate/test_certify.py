"""Certificates: what they say follows from the episodes beside them, and from nothing else."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slsac.api import Agent
from slsac.certificate import certify as certificate
from slsac.certificate.certify import cost_statements, costly_steps, text, verdict
from slsac.certificate.page import page
from slsac.cli import main
from slsac.config.overrides import with_overrides
from slsac.config.presets import preset
from slsac.errors import InvalidInput
from slsac.runs import layout
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


def certify(run: Path, *flags: str) -> dict[str, Any]:
    arguments = ["certify", str(run), "--episodes", "45", "--max-step-cost", "1", *flags]
    assert main(arguments) == 0
    return json.loads((run / "certificate.json").read_text())


def test_a_certificate_follows_from_its_episodes(
    trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = certify(trained)
    shown = capsys.readouterr().out
    assert shown.startswith(made["verdict"]["sentence"])
    assert "deterministic actions" in shown
    assert made["run"]["steps"] == 220
    assert "220 steps" in shown
    played = json.loads((trained / "certificate-episodes.json").read_text())
    costs = np.array(played["costs"])
    assert costs.size == 45
    assert made["sample"]["cost_mean"] == pytest.approx(costs.mean())
    over = int((costs > 6.0).sum())
    assert made["violation"]["episodes"] == over
    assert made["violation"]["upper_bound"] == share_upper_bound(over, 45, 0.95)
    assert [one["tail_fraction"] for one in made["cvar"]] == [0.5, 0.1, 0.05, 0.01]
    assert [one["episodes"] for one in made["cvar"]] == [23, 5, 3, 1]
    assert [one["too_few"] for one in made["cvar"]] == [False, True, True, True]
    for one in made["cvar"]:
        assert one["estimate"] == empirical_cvar(costs, one["tail_fraction"])
        assert one["upper_bound"] == cvar_upper_bound(costs, one["tail_fraction"], 0.95, 20.0)
        assert one["interval"][0] <= one["estimate"] <= one["interval"][1]
    # Costs are whole numbers up to 20: no smooth tail.
    assert not made["tail"]["credible"]
    assert made["tail"]["reason"] in shown

    names = ("certificate.json", "certificate.html", "certificate-episodes.json")
    before = [(trained / name).read_bytes() for name in names]
    certify(trained)
    assert [(trained / name).read_bytes() for name in names] == before


def test_its_episodes_are_none_of_the_evaluations(trained: Path) -> None:
    certify(trained)
    costs = json.loads((trained / "certificate-episodes.json").read_text())["costs"]
    agent = Agent.load(trained)
    assert costs[:20] != agent.evaluate(20).costs.tolist()
    agent.close()
    # Chunks of episodes are different ones as well.
    assert costs[:20] != costs[20:40]


def test_sampled_actions_are_said_and_drawn_anew(trained: Path, tmp_path: Path) -> None:
    arguments = ["certify", str(trained), "--episodes", "40", "--stochastic"]
    assert main([*arguments, "--out", str(tmp_path / "new" / "sampled.html")]) == 0
    made = json.loads((tmp_path / "new" / "sampled.json").read_text())
    assert made["protocol"]["actions"] == "sampled"
    # Without the largest cost of a step there is no bound on CVaR.
    assert made["cvar"][0]["upper_bound"] is None
    returns = json.loads((tmp_path / "new" / "sampled-episodes.json").read_text())["returns"]
    assert len(set(returns)) == 40
    assert not (tmp_path / "new" / "calibration.json").exists()


def test_the_page_needs_nothing_else(trained: Path) -> None:
    made = certify(trained)
    shown = (trained / "certificate.html").read_text()
    assert made["verdict"]["sentence"] in shown
    for outside in ("http", "<script", "src=", "url(", "@import"):
        assert outside not in shown


def test_the_calibration_is_left_for_reports(trained: Path) -> None:
    made = certify(trained)
    left = json.loads((trained / "calibration.json").read_text())
    assert left == made["calibration"]
    assert {"nominal", "observed", "wasserstein", "delta"} <= set(left)
    assert len(left["nominal"]) == len(left["observed"]) == 19
    assert (left["episodes"], left["points"]) == (30, 600)


def test_without_a_checkpoint_an_earlier_calibration_of_the_policy_counts(
    trained: Path, tmp_path: Path
) -> None:
    expected = certify(trained)["calibration"]
    recorded = tmp_path / "recorded"
    shutil.copytree(trained, recorded, ignore=shutil.ignore_patterns("checkpoints", "replay"))
    assert certify(recorded)["calibration"] == expected
    earlier = json.loads((recorded / "certificate.json").read_text())
    earlier["calibration"]["policy_sha256"] = "another"
    (recorded / "certificate.json").write_text(json.dumps(earlier))
    assert "the critic is not there" in certify(recorded)["calibration"]["reason"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--confidence", "2"], "confidence is 2.0; it must be in [0.5, 0.999999999]"),
        (["--episodes", "1"], "episodes is 1; it must be at least 2"),
        (["--seed", "-1"], "seed is -1; it must be at least 0"),
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


def judged(costs: np.ndarray, largest_cost: float | None = 1000.0) -> dict[str, str]:
    statements = cost_statements(
        costs, cost_limit=25.0, tail_fractions=(0.5,), confidence=0.95, largest_cost=largest_cost
    )
    return verdict(statements, {"confidence": 0.95, "episodes": len(costs)}, 25.0)


def test_a_limit_is_proven_by_enough_episodes_only() -> None:
    few, many = judged(np.zeros(200)), judged(np.zeros(600))
    assert few["outcome"] == "kept in sample"
    assert (
        "at most 1.49 % of episodes exceed the cost limit of 25 (0 of 200 did)" in few["sentence"]
    )
    assert many["outcome"] == "kept"
    assert judged(np.zeros(600), None)["outcome"] == "kept in sample"


def test_a_broken_limit_is_said_to_be() -> None:
    found = judged(np.full(200, 35.0))
    assert found["outcome"] == "broken"
    assert "CVaR at 0.5 is 35 over 200 episodes, above 25" in found["sentence"]
    assert "with 95 % confidence it is at least 35" in found["sentence"]
    assert "at least 98.5 % of episodes exceed the limit (200 of 200 did)" in found["sentence"]


def test_a_limit_is_broken_by_a_bound_and_not_by_an_estimate() -> None:
    # CVaR of the sample is 26, but of all episodes fewer than those seen may cost 52.
    found = judged(np.repeat([0.0, 52.0], [150, 50]))
    assert found["outcome"] == "over in sample"
    assert "The tail limit is not kept in the sample: CVaR at 0.5 is 26" in found["sentence"]
    assert "no lower bound" in judged(np.repeat([-1.0, 52.0], [100, 100]))["sentence"]


def test_the_largest_cost_of_an_episode_that_a_violation_ends_is_one() -> None:
    driving = preset("sl-sac", "MetaDriveSafe-v0")
    assert costly_steps(driving, 1_000) == 1
    lenient = with_overrides(driving, {"metadrive.end_at_violation": False})
    assert costly_steps(lenient, 1_000) == 1_000
    assert costly_steps(preset("sl-sac", "SafetyHopperVelocity-v1"), 1_000) == 1_000


def test_costs_below_a_small_limit_are_told_apart(trained: Path) -> None:
    made = certify(trained)
    made["run"]["cost_limit"] = 0.1
    made["cvar"][0] |= {"estimate": 0.04, "interval": [0.02, 0.06], "upper_bound": 0.12}
    assert "0.04   0.02 .. 0.06" in text(made)
    assert "0.12" in text(made)
    assert "<td>0.04</td><td>0.02 to 0.06</td><td>0.12</td>" in page(made, np.zeros(3))


def test_an_evaluation_that_raises_leaves_no_env_open(
    trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = []
    monkeypatch.setattr(Agent, "close", lambda self: closed.append(self))

    def interrupt(what: str, done: int, total: int) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        certificate.certify(trained, 40, max_step_cost=1.0, tick=interrupt)
    assert len(closed) == 1


def test_a_credible_tail_is_used() -> None:
    from slsac.stats import pareto

    costs = pareto.draw(0.2, 5.0, (400,), np.random.default_rng(2))
    found = cost_statements(
        costs, cost_limit=25.0, tail_fractions=(0.5,), confidence=0.95, largest_cost=None
    )["tail"]
    assert found["credible"], found["reason"]
    # Pr(Z > 25) = (1 + .2 * 25 / 5)^-5 = 1/32, by the true distribution.
    assert found["violation_estimate"] == pytest.approx(1 / 32, abs=0.02)
    # At most the share above the mean of the lightest tail that the interval allows.
    lightest = found["shape_interval"][0]
    assert found["violation_bound"] == pytest.approx(0.5 * pareto.share_above_mean(lightest))
    assert found["violation_bound_applies"]


def test_a_name_with_a_dot_is_kept(trained: Path, tmp_path: Path) -> None:
    arguments = ["certify", str(trained), "--episodes", "2"]
    assert main([*arguments, "--out", str(tmp_path / "tail-0.5.html")]) == 0
    assert main([*arguments, "--out", str(tmp_path / "tail-0.2")]) == 0
    names = [f"tail-0.{k}{end}" for k in (2, 5) for end in ("-episodes.json", ".html", ".json")]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)


def test_a_run_that_learns_on_meanwhile_changes_nothing(trained: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    expected, _ = certificate.certify(run, 5, max_step_cost=1.0)

    def learn_on(what: str, done: int, total: int) -> None:
        agent = Agent.load(run)
        agent.learn(20)
        agent.close()

    first = iter([learn_on])
    made, _ = certificate.certify(
        run, 5, max_step_cost=1.0, tick=lambda *told: next(first, lambda *told: None)(*told)
    )
    assert layout.policy_digest(run) != made["run"]["policy_sha256"]
    assert made == expected


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
        launch.resume(run)


def test_a_new_run_in_its_place_has_no_certificate(trained: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    certify(run)
    launch.claim(run).release()
    assert [path.name for path in run.iterdir() if not path.name.startswith(".")] == []


def test_signed_costs_are_drawn(trained: Path) -> None:
    made = certify(trained)
    # Ten bars of one episode each, below and above 0.
    histogram, _, _ = page(made, np.arange(-5.0, 5.0)).partition("</figure>")
    assert histogram.count("<rect") == 10


def test_costs_must_be_finite() -> None:
    with pytest.raises(InvalidInput, match="costs has nan; all must be finite"):
        judged(np.array([0.0, np.nan]))
