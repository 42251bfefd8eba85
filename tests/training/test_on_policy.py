"""PPO-Lagrangian and CPO in training: values, constraint, resume, worker processes, real tasks."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from slsac import Agent
from slsac.algorithms.on_policy.agent import Constraint
from slsac.algorithms.on_policy.policy import mean_action
from slsac.algorithms.on_policy.samples import value
from slsac.config import OnPolicyConfig
from slsac.config.overrides import to_dict
from slsac.envs.probe import Choice, Constant
from slsac.errors import EnvFailed, InvalidInput, TrainingFailed
from slsac.runs.log import read_lines
from slsac.training import launch
from slsac.training.on_policy import OnPolicyTrainer
from slsac.types import Episode, Step
from tests.support.agents import small_config
from tests.support.compilations import compilations
from tests.support.runs import everything, finished_steps, slsac, stopped, undisturbed
from tests.support.waiting import wait_for

Start = Callable[..., OnPolicyTrainer]
ALGOS = ("ppo-lag", "cpo")
every_algorithm = pytest.mark.parametrize("algo", ALGOS)


def values(trainer: OnPolicyTrainer, observation: np.ndarray) -> tuple[float, float]:
    """What the two critics expect of a state that is seen as it is."""
    at = jnp.float32(observation)
    return float(value(trainer.state.reward_critic, at)), float(
        value(trainer.state.cost_critic, at)
    )


PLAIN = {"normalise_observations": False, "policy__initial_log_std": -1.0}


def test_a_chain_is_worth_its_discounted_sums(start: Start) -> None:
    trainer = start(
        "ProbeChain-v0", "ppo-lag", reward_critic__discount=0.9, cost_critic__discount=0.9, **PLAIN
    )
    trainer.advance(400 * 12)
    for state, expected in enumerate(((2.71, 3.24), (1.9, 3.6), (1.0, 4.0))):
        assert values(trainer, np.eye(3)[state]) == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize(
    ("env", "expected"), [("ProbeTerminated-v0", 1.0), ("ProbeTruncated-v0", 2.0)]
)
def test_only_termination_stops_bootstrapping(start: Start, env: str, expected: float) -> None:
    trainer = start(env, "cpo", reward_critic__discount=0.5, cost_critic__discount=0.5, **PLAIN)
    trainer.advance(400 * 12)
    assert values(trainer, np.ones(1)) == pytest.approx((expected, expected), abs=0.05)


CHOICE: dict[str, Any] = {
    "cost_limit": Choice.LIMIT,
    "policy__initial_log_std": -1.0,
    # An effort has no later consequence here; a short horizon keeps noise out of the advantages.
    "reward_critic__discount": 0.5,
    "cost_critic__discount": 0.5,
}


def average_outcome(trainer: OnPolicyTrainer) -> tuple[float, float]:
    """Return and cost of the deterministic policy over the next ten epochs."""
    results = []
    for _ in range(10):
        trainer.advance(trainer.step + trainer.config.steps_per_epoch)
        results.append(trainer.evaluate_now(1, final=False))
    returns, costs = zip(*((one.returns[0], one.costs[0]) for one in results), strict=True)
    return float(np.mean(returns)), float(np.mean(costs))


STEADY: dict[str, dict[str, Any]] = {
    # Adam takes hundreds of epochs to forget the first violations, and reward advantages are in
    # units of their deviation, so that the right multiplier keeps rising as the policy narrows.
    "ppo-lag": {
        "multiplier__rule": "ascent",
        "multiplier__learning_rate": 1.0,
        "policy__optimiser__learning_rate": 5e-4,
    },
    "cpo": {"policy__initial_log_std": -2.0},
}


@every_algorithm
def test_the_binding_constraint_is_kept_at_little_loss(start: Start, algo: str) -> None:
    trainer = start("ProbeChoice-v0", algo, **(CHOICE | STEADY[algo]))
    trainer.advance(400 * 40)
    mean_return, mean_cost = average_outcome(trainer)
    assert mean_cost <= 1.05 * Choice.LIMIT
    assert mean_return >= 0.85 * Choice.BEST_SAFE_RETURN


@every_algorithm
def test_without_a_limit_the_same_agent_goes_all_out(start: Start, algo: str) -> None:
    trainer = start("ProbeChoice-v0", algo, **(CHOICE | {"cost_limit": 1_000.0}))
    trainer.advance(400 * 30)
    result = trainer.evaluate_now(1, final=False)
    assert result.returns[0] > 0.9 * 10.0
    assert result.costs[0] > 10.0 * Choice.LIMIT


def quick_config(algo: str, **overrides: Any) -> OnPolicyConfig:
    """Epochs of 45 steps, so that each cuts an episode of ten, and a checkpoint every second."""
    settings: dict[str, Any] = {
        "steps": 330,
        "num_envs": 3,
        "steps_per_epoch": 45,
        "batch_size": 15,
        "passes": 3,
        "checkpoint_every_steps": 90,
        "evaluate_every_epochs": 2,
        "multiplier__window": 5,
        "cost_limit": 1.0,
    }
    config = small_config("ProbeChoice-v0", algo, **(settings | overrides))
    assert isinstance(config, OnPolicyConfig)
    return config


@pytest.mark.parametrize(
    ("algo", "overrides"),
    [
        ("ppo-lag", {}),
        ("ppo-lag", {"clipped__learning_rate_decay": "linear", "normalise_observations": False}),
        ("cpo", {}),
    ],
)
def test_resumed_and_repeated_runs_equal_undisturbed_ones(
    tmp_path: Path, algo: str, overrides: dict[str, Any]
) -> None:
    config = quick_config(algo, **overrides)
    expected = undisturbed(tmp_path / "a", config)
    assert stopped(tmp_path / "b", config, 14, 97, 180, 263) == expected


def test_learning_in_parts_equals_learning_at_once() -> None:
    settings = {"run": None, "num_envs": 3, "steps_per_epoch": 45, "batch_size": 15, "passes": 2}
    settings |= {"worker_processes": 0, "policy": {"hidden": (8,)}, "steps": 45}
    parts = Agent("ppo-lag", env="ProbeChoice-v0", **settings).learn(60).learn(75)
    whole = Agent("ppo-lag", env="ProbeChoice-v0", **settings).learn(135)
    for one, other in zip(
        jax.tree.leaves(parts.policy), jax.tree.leaves(whole.policy), strict=True
    ):
        assert np.array_equal(one, other)
    parts.close()
    whole.close()


def test_a_falling_learning_rate_falls_over_what_is_learned_and_not_otherwise(
    tmp_path: Path,
) -> None:
    config = quick_config("ppo-lag", clipped__learning_rate_decay="linear", steps=135)
    undisturbed(tmp_path / "a", config)
    overrides = to_dict(replace(config, steps=999))
    for name in ("algo", "env", "seed"):
        del overrides[name]
    agent = Agent("ppo-lag", env="ProbeChoice-v0", run=tmp_path / "b", **overrides).learn(135)
    policy = (tmp_path / "a" / "policy.safetensors").read_bytes()
    assert (tmp_path / "b" / "policy.safetensors").read_bytes() == policy
    refusal = "steps is {}; it must stay 135 in this run, whose learning rate falls to 0"
    with pytest.raises(InvalidInput, match=refusal.format(180)):
        agent.learn(45)
    agent.close()
    with pytest.raises(InvalidInput, match=refusal.format(180)):
        launch.resume(tmp_path / "b", steps=180)
    with pytest.raises(InvalidInput, match=refusal.format(225)):
        Agent.load(tmp_path / "b").learn(90)


def test_worker_processes_give_the_same_bytes(tmp_path: Path) -> None:
    # Hopper falls early, so that episodes end at other times in each environment.
    def config(workers: int) -> OnPolicyConfig:
        found = small_config(
            "SafetyHopperVelocity-v1", "ppo-lag", steps=3_000, num_envs=3, steps_per_epoch=3_000,
            batch_size=500, passes=1, worker_processes=workers, final_evaluation_episodes=0,
        )  # fmt: skip
        assert isinstance(found, OnPolicyConfig)
        return found

    expected = undisturbed(tmp_path / "a", config(0))
    assert len(read_lines(tmp_path / "a" / "episodes.jsonl")) > 30
    assert undisturbed(tmp_path / "b", config(2)) == expected


class FailsLater(Choice):
    """Fails in its 25th step, or, in a worker, as the second epoch begins, in its third reset."""

    def __init__(self, how: str, at_reset: bool) -> None:
        super().__init__()
        self.how, self.left = how, (3 if at_reset else 25)
        self.at_reset = at_reset

    def reset(self, seed: int) -> np.ndarray:
        if self.at_reset:
            self.fail_when_due()
        return super().reset(seed)

    def step(self, action: np.ndarray) -> Step:
        if not self.at_reset:
            self.fail_when_due()
        return super().step(action)._replace(extras={"fuel": np.float32(0.5)})

    def fail_when_due(self) -> None:
        self.left -= 1
        if self.left == 0:
            if self.how == "dies":
                os._exit(7)
            raise {"invalid": InvalidInput, "env": EnvFailed, "bug": KeyError}[self.how]("fuel")


@pytest.mark.parametrize(
    ("how", "workers", "at_reset", "message"),
    [
        ("invalid", 2, False, "fuel"),
        ("env", 2, True, "fuel"),
        ("bug", 1, False, r"KeyError: 'fuel' \(.*test_on_policy\.py, line \d+\)"),
        ("bug", 0, False, r"KeyError: 'fuel' \(.*test_on_policy\.py, line \d+\)"),
        ("dies", 1, True, r"worker process 0 died \(exit code 7\)"),
        ("env", 0, False, "fuel"),
    ],
)
def test_an_env_that_fails_ends_the_run_with_its_reason_and_the_checkpoint(
    tmp_path: Path, how: str, workers: int, at_reset: bool, message: str
) -> None:
    config = quick_config("ppo-lag", worker_processes=workers, checkpoint_every_steps=45)
    trainer = launch.start(config, tmp_path, env=lambda: FailsLater(how, at_reset))
    expected = rf"the environment failed at step \d+: {message}; last good checkpoint: .*step-0*45"
    with pytest.raises(TrainingFailed, match=expected):
        trainer.advance(300)
    trainer.close()
    # Of the first epoch's three episodes, one in each environment.
    assert [line["fuel"] for line in read_lines(tmp_path / "episodes.jsonl")[:3]] == [0.5] * 3


class Locked(Choice):
    """Can be copied but not pickled."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()

    def __deepcopy__(self, memo: Any) -> Locked:
        return Locked()


@pytest.mark.parametrize(
    ("env", "overrides", "message"),
    [
        (None, {"num_envs": 5, "worker_processes": 0}, "steps_per_epoch is 45; it must be at"),
        (Locked(), {}, "worker_processes is 2; it must be 0 for an env"),
    ],
)
def test_a_refusal_does_not_cost_the_run_that_was_there(
    tmp_path: Path, env: Any, overrides: dict[str, Any], message: str
) -> None:
    launch.start(quick_config("ppo-lag"), tmp_path).close()
    before = everything(tmp_path)
    config = quick_config("ppo-lag", **({"worker_processes": 2} | overrides))
    with pytest.raises(InvalidInput, match=message):
        launch.start(config, tmp_path, env=env, overwrite=True)
    assert everything(tmp_path) == before


class Infinite(Constant):
    """Gives an infinite cost in its 20th step."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = 0

    def step(self, action: np.ndarray) -> Step:
        self.steps += 1
        result = super().step(action)
        return result._replace(cost=np.inf) if self.steps == 20 else result


def test_a_non_finite_cost_is_named(tmp_path: Path) -> None:
    config = small_config("ProbeConstant-v0", "ppo-lag", num_envs=2)
    trainer = launch.start(config, tmp_path, env=Infinite)
    with pytest.raises(TrainingFailed, match="non-finite cost at step 36, episode 36"):
        trainer.advance(100)
    trainer.close()


def test_a_non_finite_parameter_stops_the_run_and_is_named(start: Start) -> None:
    trainer = start("ProbeChoice-v0", "cpo")
    critic = jax.tree.map(lambda leaf: leaf.at[0].set(jnp.nan), trainer.state.cost_critic)
    trainer.state = trainer.state._replace(cost_critic=critic)
    with pytest.raises(TrainingFailed, match=r"not finite after step 400: .*cost_critic par"):
        trainer.advance(400)


@every_algorithm
def test_the_multiplier_does_not_move_before_an_episode_has_finished(
    start: Start, algo: str
) -> None:
    trainer = start("ProbeChoice-v0", algo, multiplier__initial=0.5)
    begun = trainer.session.lagrangian.state
    trainer.advance(18)
    assert trainer.session.episodes.costs == []
    assert trainer.session.lagrangian.signal is None
    trainer._learn()
    assert trainer.session.lagrangian.state.value == (begun.value if algo == "ppo-lag" else 0.0)


class Watched:
    """Every call of a trainer's update, passed on."""

    def __init__(self, trainer: OnPolicyTrainer) -> None:
        self.update: Any = trainer._update
        self.multipliers: list[float] = []
        self.rates: list[float] = []
        self.before: Any = None
        trainer._update = self

    def __call__(self, state: Any, rollout: Any, constraint: Any, rate_scale: Any) -> Any:
        self.multipliers.append(float(constraint.multiplier))
        self.rates.append(float(rate_scale))
        self.before = state
        return self.update(state, rollout, constraint, rate_scale)


def test_the_multiplier_moves_before_the_policy(start: Start) -> None:
    # The first epoch costs more than the limit of 0, so its own update already charges for it.
    trainer = start("ProbeConstant-v0", "ppo-lag", cost_limit=0.0)
    watched = Watched(trainer)
    trainer.advance(400)
    assert watched.multipliers == pytest.approx([0.035])
    assert read_lines(trainer.run / "progress.jsonl")[0]["signal"] == 2.0


@every_algorithm
def test_an_epoch_is_learned_in_one_compiled_call(start: Start, algo: str) -> None:
    trainer = start("ProbeChoice-v0", algo)
    watched = Watched(trainer)
    trainer.advance(3 * 400)
    assert len(watched.rates) == 3
    assert watched.update._cache_size() == 1


def test_a_second_seed_in_the_same_process_compiles_nothing(start: Start) -> None:
    def train(seed: int, steps: int) -> None:
        # No other test has this clip, so that the first seed is the first to be compiled.
        trainer = start(
            "ProbeChoice-v0", "ppo-lag", seed=seed, steps=steps, num_envs=1, steps_per_epoch=20,
            batch_size=10, observation_clip=3.7,
        )  # fmt: skip
        trainer.advance(steps)
        trainer.finish()

    with compilations() as compiled:
        train(seed=0, steps=20)
        assert compiled
        compiled.clear()
        train(seed=1, steps=40)
        assert not compiled


def test_the_learning_rate_falls_linearly_and_for_the_policy_alone(start: Start) -> None:
    trainer = start(
        "ProbeChoice-v0", "ppo-lag", clipped__learning_rate_decay="linear",
        steps=135, num_envs=3, steps_per_epoch=45, batch_size=15,
    )  # fmt: skip
    watched = Watched(trainer)
    trainer.advance(135)
    assert watched.rates == pytest.approx([1.0, 2 / 3, 1 / 3])
    before, constraint = trainer.state, Constraint(jnp.float32(0.5), jnp.float32(0.0))
    after, _, _ = watched.update(before, trainer._collector.rollout, constraint, np.float32(0.0))
    for name, moves in (("policy", False), ("reward_critic", True), ("cost_critic", True)):
        one, other = (jax.tree.leaves(getattr(state, name)) for state in (before, after))
        assert any(map(lambda a, b: not np.array_equal(a, b), one, other)) == moves, name


def test_passes_end_when_the_policy_has_moved_too_far(start: Start) -> None:
    # Two actions: the divergence is summed over them.
    trainer = start(
        "SafetyPointGoal1-v0", "ppo-lag", policy__optimiser__learning_rate=1e-2, passes=30,
        num_envs=1, steps_per_epoch=1_000, batch_size=250, evaluate_every_epochs=10,
    )  # fmt: skip
    watched = Watched(trainer)
    trainer.advance(1_000)
    line = read_lines(trainer.run / "progress.jsonl")[0]
    assert 1 <= line["passes"] < 30
    rows = trainer._collector.rollout.observation.reshape(1_000, -1)
    policies = [state.policy.gaussian for state in (watched.before, trainer.state)]
    means = [np.asarray(mean_action(policy, rows)) for policy in policies]
    spread = [np.exp(np.asarray(policy.log_std)) for policy in policies]
    assert spread[0].shape == (2,)
    by_hand = (
        np.log(spread[1] / spread[0])
        + (spread[0] ** 2 + (means[0] - means[1]) ** 2) / (2.0 * spread[1] ** 2)
        - 0.5
    )
    assert line["kl"] == pytest.approx(by_hand.sum(axis=-1).mean(), rel=1e-3)
    assert line["kl"] > trainer.config.clipped.maximum_kl


def test_a_run_shorter_than_an_epoch_says_that_it_learns_nothing(start: Start) -> None:
    assert "learned" not in start("ProbeChoice-v0", "ppo-lag", steps=400).schedule
    told = start("ProbeChoice-v0", "cpo", steps=390).schedule
    assert told.endswith("so nothing is learned in 390 steps (lower --steps-per-epoch)")


def test_an_episode_that_the_epoch_cuts_is_not_counted(start: Start) -> None:
    # 45 steps in 3 environments: one whole episode of ten and five steps of another in each.
    trainer = start(
        "ProbeChoice-v0", "ppo-lag", steps=90, num_envs=3, steps_per_epoch=45, batch_size=15
    )
    trainer.advance(90)
    episodes = read_lines(trainer.run / "episodes.jsonl")
    assert [line["length"] for line in episodes] == [10] * 6
    rollout = trainer._collector.rollout
    assert np.array_equal(np.flatnonzero(rollout.ended[:, 0]), [9, 14])
    assert not rollout.terminated.any()


def test_an_epoch_must_hold_an_episode(tmp_path: Path) -> None:
    config = small_config("ProbeChoice-v0", "ppo-lag", num_envs=4, steps_per_epoch=36, batch_size=9)
    with pytest.raises(InvalidInput) as caught:
        launch.start(config, tmp_path)
    assert str(caught.value) == (
        "steps_per_epoch is 36; it must be at least num_envs times an episode's 10 steps, 40"
    )


def test_the_saved_policy_normalises_as_the_training_did(tmp_path: Path) -> None:
    trainer = launch.start(small_config("ProbeChoice-v0", "ppo-lag"), tmp_path)
    trainer.advance(400)
    trainer.save_final()
    moments = trainer._moments
    assert moments is not None
    # Ten steps show eleven observations, the first state six times.
    assert moments.mean == pytest.approx([6 / 11, 5 / 11])
    trainer.close()
    agent = Agent.load(tmp_path)
    assert np.asarray(agent.policy.normaliser.mean) == pytest.approx(moments.mean)
    observation = np.array([0.0, 1.0], np.float32)
    action = agent.predict(observation)
    assert action == pytest.approx(trainer.predict(observation))
    seen = moments.normalise(observation[None], 5.0)
    network = jax.tree.map(np.asarray, agent.policy.gaussian).network
    assert action == pytest.approx(np.clip(network(seen, np.tanh)[0], -1, 1), abs=1e-4)
    # Evaluation leaves the moments alone, and a sampled action differs from the mean.
    before = agent.policy.normaliser
    agent.evaluate(2)
    assert agent.policy.normaliser is before
    assert agent.predict(observation, deterministic=False) != pytest.approx(action)


def test_the_violation_has_its_unit_before_and_after_an_episode_has_finished(start: Start) -> None:
    # Episodes have ten steps.
    trainer = start("ProbeChoice-v0", "cpo", cost_limit=3.0)
    assert trainer._violation(None) == pytest.approx(-0.3)
    assert trainer._violation(5.0) == pytest.approx(0.2)
    # Then the length is that of the window's episodes, of whichever epoch: (4 + 6) / 2.
    for length in (4, 6):
        trainer.session.episodes.add(Episode(total_return=0.0, cost=5.0, length=length, extras={}))
    assert trainer._violation(5.0) == pytest.approx(2.0 / 5.0)
    whole = start(
        "ProbeChoice-v0", "cpo", cost_limit=3.0, trust_region__violation_unit="per-episode"
    )
    assert whole._violation(None) == pytest.approx(-3.0)
    assert whole._violation(5.0) == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("env", "algo"),
    [
        *(("SafetyHopperVelocity-v1", algo) for algo in ALGOS),
        *(("SafetyPointGoal1-v0", f"{algo}{kind}") for algo in ALGOS for kind in ("", "/omnisafe")),
    ],
)
@pytest.mark.parametrize("cost_limit", [0.0, 25.0])
def test_first_epoch_on_a_real_task_is_finite(
    tmp_path: Path, env: str, algo: str, cost_limit: float
) -> None:
    config = small_config(
        env, algo,
        num_envs=1, steps_per_epoch=1_000, passes=2, batch_size=100, cost_limit=cost_limit,
    )  # fmt: skip
    trainer = launch.start(config, tmp_path)
    before = jax.tree.map(np.array, trainer.state.policy.gaussian)
    trainer.advance(1_000)
    after = jax.tree.map(np.array, trainer.state.policy.gaussian)
    trainer.close()
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(trainer.state))
    line = read_lines(tmp_path / "progress.jsonl")[0]
    moved = np.any(before.log_std != after.log_std)
    if algo.startswith("cpo") and line["signal"] == line["signal_limit"]:
        # At the limit itself CPO's step is along the constraint: whether any share of it leaves
        # the cost where it is depends on curvature, and none is taken where none does.
        assert moved == (line["step_share"] > 0)
    else:
        assert moved
    assert line["episodes"] >= 1
    assert all(np.isfinite(number) for number in line.values())


def test_killed_and_resumed_on_the_command_line_equals_undisturbed(tmp_path: Path) -> None:
    flags = [
        "--algo", "ppo-lag", "--env", "SafetyHopperVelocity-v1", "--steps", "7000",
        "--steps-per-epoch", "1000", "--num-envs", "1", "--worker-processes", "1",
        "--passes", "2", "--checkpoint-every-steps", "1000", "--final-evaluation-episodes", "2",
        "--evaluate-every-epochs", "2", "--evaluation-episodes", "1",
    ]  # fmt: skip
    process = slsac("train", *flags, "--run", str(tmp_path / "a"))
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors.decode()
    process = slsac("train", *flags, "--run", str(tmp_path / "b"))
    wait_for(lambda: finished_steps(tmp_path / "b") >= 2_500, process)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    process = slsac("resume", str(tmp_path / "b"))
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors.decode()
    assert everything(tmp_path / "b") == everything(tmp_path / "a")
    config = json.loads((tmp_path / "b" / "config.json").read_text())
    assert config["clipped"]["ratio"] == 0.2
