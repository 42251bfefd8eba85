"""The Python interface, as a user would call it."""

from __future__ import annotations

import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import jax
import numpy as np
import pytest

from slsac import Agent, make_env
from slsac.api import name_of
from slsac.envs.probe import Choice
from slsac.errors import Failed, InvalidInput, TrainingFailed
from slsac.report.read import final_episodes, read_run
from slsac.runs.lock import RunLock
from slsac.runs.log import RunLog, read_lines
from slsac.runs.steps import reached_step
from slsac.types import EnvSpec
from tests.support.agents import SMALL

QUICK = SMALL | {
    "warmup_steps": 40,
    "batch_size": 16,
    "checkpoint_every_steps": 30,
    "policy.temperature": 0.01,
}


def parameters(agent: Agent) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(agent.policy)]


def assert_equal(first: Agent, second: Agent) -> None:
    for one, other in zip(parameters(first), parameters(second), strict=True):
        np.testing.assert_array_equal(one, other)


def test_learning_changes_the_policy_and_the_same_seed_repeats_it(tmp_path: Path) -> None:
    agents = [Agent("sl-sac", env="ProbeChoice-v0", seed=3, **QUICK) for _ in range(2)]
    before = parameters(agents[0])
    for agent in agents:
        agent.learn(90)
    assert_equal(*agents)
    assert any(np.any(old != new) for old, new in zip(before, parameters(agents[0]), strict=True))
    other = Agent("sl-sac", env="ProbeChoice-v0", seed=4, **QUICK).learn(90)
    assert any(
        np.any(one != two)
        for one, two in zip(parameters(agents[0]), parameters(other), strict=True)
    )
    for agent in (*agents, other):
        agent.close()


def test_learning_in_two_parts_equals_learning_at_once(tmp_path: Path) -> None:
    whole = Agent("sl-sac", env="ProbeChoice-v0", **QUICK).learn(130)
    parts = Agent("sl-sac", env="ProbeChoice-v0", **QUICK).learn(75)
    parts.save(tmp_path / "saved")
    parts.learn(55)
    assert_equal(whole, parts)
    reloaded = Agent.load(tmp_path / "saved").learn(55)
    assert_equal(whole, reloaded)
    for agent in (whole, parts, reloaded):
        agent.close()


def test_a_saved_agent_predicts_the_same_in_a_fresh_process(tmp_path: Path) -> None:
    agent = Agent("sl-sac", env="ProbeChoice-v0", **QUICK).learn(75)
    agent.save(tmp_path / "saved")
    observation = np.eye(2, dtype=np.float32)[0]
    code = (
        "import sys, numpy; from slsac import load; "
        "print(repr(float(load(sys.argv[1]).predict(numpy.eye(2)[0])[0])))"
    )
    printed = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "saved")],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert float(printed.stdout) == float(agent.predict(observation)[0])
    agent.close()


def test_prediction_takes_one_observation_or_a_batch_in_the_env_units() -> None:
    class Wide(gym.Env[np.ndarray, np.ndarray]):
        """Actions between 10 and 30."""

        observation_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
        action_space = gym.spaces.Box(10.0, 30.0, (3,), np.float32)

        def reset(self, *, seed: int | None = None, options: object = None) -> tuple:
            return np.zeros(2, np.float32), {}

        def step(self, action: np.ndarray) -> tuple:
            assert self.action_space.contains(action)
            return np.zeros(2, np.float32), 0.0, False, False, {"cost": 0.0}

    agent = Agent("sl-sac", env=Wide, **QUICK)
    one = agent.predict(np.zeros(2))
    batch = agent.predict(np.zeros((5, 2)))
    assert one.shape == (3,)
    assert batch.shape == (5, 3)
    np.testing.assert_allclose(batch[2], one, rtol=1e-6)
    assert Wide.action_space.contains(one)
    assert abs(float(one.mean()) - 20.0) < 5.0
    sampled = [agent.predict(np.zeros(2), deterministic=False) for _ in range(2)]
    assert np.any(sampled[0] != sampled[1])
    with pytest.raises(InvalidInput, match=r"shape \(3,\); its last axis must be 2"):
        agent.predict(np.zeros(3))
    with pytest.raises(InvalidInput, match="observation holds nan; it must be finite"):
        agent.predict(np.array([0.0, np.nan]))
    with pytest.raises(InvalidInput, match=r"observation is a dict; .*gymnasium\.spaces\.flatten"):
        agent.predict({"speed": 1.0})  # type: ignore[arg-type]
    agent.close()


def test_evaluation_gives_arrays_and_repeats() -> None:
    agent = Agent("sl-sac", env="ProbeHeavyTail-v0", **QUICK).learn(60)
    first, second = agent.evaluate(episodes=6), agent.evaluate(episodes=6)
    assert first.returns.shape == first.costs.shape == first.lengths.shape == (6,)
    np.testing.assert_array_equal(first.costs, second.costs)
    assert len(set(first.costs)) == 6, "each episode has a seed of its own"
    other = agent.evaluate(episodes=6, seed=1)
    assert np.all(first.costs != other.costs)
    with pytest.raises(InvalidInput, match="episodes is 0; it must be at least 1"):
        agent.evaluate(episodes=0)
    with pytest.raises(InvalidInput, match=r"seed is -1; it must be in \[0, 2\*\*32\)"):
        agent.evaluate(seed=-1)
    agent.close()


def test_an_env_object_a_class_and_a_function_all_work() -> None:
    agents = [
        Agent("sl-sac", env=env, **QUICK).learn(60)
        for env in ("ProbeChoice-v0", Choice(), Choice, lambda: Choice())
    ]
    for agent in agents[1:]:
        assert_equal(agents[0], agent)
    for agent in agents:
        agent.close()


def test_overrides_reach_every_part_and_mistakes_are_named() -> None:
    agent = Agent(
        "sl-sac",
        env="ProbeChoice-v0",
        cost_limit=7.0,
        reward_critic={"pairs": 1},
        multiplier={"learning_rate": 0.5},
    )
    assert agent.config.cost_limit == 7.0
    assert agent.config.reward_critic.pairs == 1
    assert agent.config.multiplier.learning_rate == 0.5
    agent.close()
    with pytest.raises(InvalidInput, match="cost_limits' does not exist; did you mean cost_limit"):
        Agent("sl-sac", env="ProbeChoice-v0", cost_limits=7.0)
    with pytest.raises(InvalidInput, match="algo 'sl-sack' does not exist; did you mean sl-sac"):
        Agent("sl-sack", env="ProbeChoice-v0")
    with pytest.raises(InvalidInput, match="steps is 0; it must be at least 1"):
        Agent("sl-sac", env="ProbeChoice-v0").learn(0)


def test_saving_does_not_overwrite_another_run(tmp_path: Path) -> None:
    agent = Agent("sl-sac", env="ProbeChoice-v0", run=tmp_path / "a", **QUICK)
    agent.save(tmp_path / "b")
    with pytest.raises(InvalidInput, match="is not empty"):
        agent.save(tmp_path / "b")
    agent.close()
    with pytest.raises(InvalidInput, match=r"pass --overwrite \(overwrite=True\)"):
        Agent("sl-sac", env="ProbeChoice-v0", run=tmp_path / "a", **QUICK)
    Agent("sl-sac", env="ProbeChoice-v0", run=tmp_path / "a", overwrite=True, **QUICK).close()


def test_a_saved_replay_keeps_its_holes(tmp_path: Path) -> None:
    agent = Agent("sl-sac", env="ProbeChoice-v0", **(QUICK | {"replay_capacity": 3_000_000}))
    agent.learn(60)
    agent.save(tmp_path / "saved")
    for path in (agent.run / "replay").iterdir():
        copy = tmp_path / "saved" / "replay" / path.name
        assert copy.stat().st_size == path.stat().st_size
        assert copy.stat().st_blocks * 512 < 3 << 20
        with open(path, "rb") as one, open(copy, "rb") as two:
            assert one.read(1 << 16) == two.read(1 << 16)
    agent.close()


def test_an_interrupted_learn_can_be_repeated_exactly(tmp_path: Path) -> None:
    whole = Agent("sl-sac", env="ProbeChoice-v0", **QUICK).learn(130)
    agent = Agent("sl-sac", env="ProbeChoice-v0", run=tmp_path / "a", **QUICK).learn(75)
    trainer = agent._trainer
    assert trainer is not None
    add, calls = trainer.replay.add, iter(range(1_000))

    def interrupted(*arguments: object) -> None:
        if next(calls) == 30:
            raise KeyboardInterrupt
        add(*arguments)  # type: ignore[arg-type]

    trainer.replay.add = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        agent.learn(55)
    agent.predict(np.zeros(2))
    # It was on its way to 130, and stopped in the episode that began at 100.
    assert reached_step(tmp_path / "a") == 100
    agent.learn(30)
    assert_equal(whole, agent)
    for each in (whole, agent):
        each.close()


def test_names_of_environments() -> None:
    assert name_of("ProbeChoice-v0") == "ProbeChoice-v0"
    assert name_of(make_env("SafetyHopperVelocity-v1")) == "SafetyHopperVelocity-v1"
    assert name_of(Choice) == "custom:Choice"
    assert name_of(Choice()) == "custom:Choice"
    assert name_of(gym.make("Pendulum-v1")) == "custom:PendulumEnv", "not that of a wrapper"
    assert name_of(lambda: Choice(), "My choice") == "custom:My choice"
    with pytest.raises(InvalidInput, match="env_name is 'x'; this env has an id, ProbeChoice-v0"):
        name_of("ProbeChoice-v0", "x")
    with pytest.raises(InvalidInput, match="env_name is ''; it must be a name"):
        name_of(Choice, "")
    with pytest.raises(InvalidInput, match="pass it again, as env="):
        make_env("custom:Choice")


def test_learning_shows_progress_and_records_the_final_evaluation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    settings = QUICK | {"steps_per_epoch": 30, "warmup_steps": 100}
    with Agent("sl-sac", env=Choice, env_name="Mine", run=run, **settings) as agent:
        assert agent.config.env == "custom:Mine"
        agent.learn(60)
        shown = capsys.readouterr().out
        assert shown.count("evaluation at step 60") == 1
        assert "lambda" in shown
        agent.learn(30, progress=False)
        assert capsys.readouterr().out == ""
        # A final evaluation that training went past is not final, and is taken back.
        assert [line["step"] for line in read_lines(run / "evaluations.jsonl")] == [90]
        played = agent.evaluate(4, record=True)
        with pytest.raises(InvalidInput, match="sampled actions are not recorded"):
            agent.evaluate(4, record=True, deterministic=False)
    last = read_lines(run / "evaluations.jsonl")[-1]
    assert (last["step"], last["final"], last["returns"]) == (90, True, played.returns.tolist())
    assert final_episodes(read_run(run)) is not None
    RunLock(run).release()


def test_an_evaluation_is_recorded_for_the_policy_that_was_played(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with Agent("sac-lag", env="ProbeChoice-v0", run=run, **QUICK) as agent:
        agent.learn(60, progress=False)
    older = Agent.load(run)
    with Agent.load(run) as newer:
        newer.learn(30, progress=False)
        with pytest.raises(InvalidInput, match="in use"):
            older.evaluate(2, record=True)
    with pytest.raises(Failed, match="has saved another policy; load it again"):
        older.evaluate(2, record=True)
    assert [line["step"] for line in read_lines(run / "evaluations.jsonl")] == [90]


def test_an_evaluation_is_recorded_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "evaluations.jsonl"
    log.write_bytes(b'{"step": 1}\n{"step": 2, "ret')  # as an older version left it
    logs = RunLog(tmp_path)
    logs.write(log.name, {"step": 2})
    assert log.read_bytes() == b'{"step": 1}\n{"step": 2}\n'
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handled = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (30, hard))  # what a full disk does
    try:
        with pytest.raises(OSError, match="File too large"):
            logs.write(log.name, {"step": 3, "note": "longer than what is left"})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handled)
    assert log.read_bytes() == b'{"step": 1}\n{"step": 2}\n'


def test_an_evaluation_is_not_recorded_through_a_link(tmp_path: Path) -> None:
    run, victim = tmp_path / "run", tmp_path / "victim"
    with Agent("sac-lag", env="ProbeChoice-v0", run=run, **QUICK) as agent:
        agent.learn(60, progress=False)
    shutil.move(run / "evaluations.jsonl", victim)
    (run / "evaluations.jsonl").symlink_to(victim)
    before = victim.read_bytes()
    with pytest.raises(InvalidInput, match="is a link"):
        Agent.load(run).evaluate(2, record=True)
    with pytest.raises(OSError, match="symbolic links"):
        RunLog(run).write("evaluations.jsonl", {"step": 1})
    assert victim.read_bytes() == before
    (run / ".lock").unlink()
    (run / ".lock").symlink_to(victim)
    with pytest.raises(InvalidInput, match="is a link"):
        RunLock(run)


def test_a_seed_decides_sampled_episodes_too(tmp_path: Path) -> None:
    # Returns of this task depend on the actions alone.
    agent = Agent("sac-lag", env="ProbeChoice-v0", run=tmp_path / "run")
    first = agent.evaluate(3, seed=1, deterministic=False).returns
    agent.predict(np.array([1.0, 0.0], np.float32), deterministic=False)
    again = agent.evaluate(3, seed=1, deterministic=False).returns
    np.testing.assert_array_equal(first, again)
    assert len(set(first)) == 3
    assert not np.array_equal(agent.evaluate(3, seed=2, deterministic=False).returns, first)
    assert len(set(agent.evaluate(3, seed=1).returns)) == 1
    agent.close()


def test_a_closed_agent_has_no_lock_and_learns_on_all_the_same(tmp_path: Path) -> None:
    whole = Agent("sl-sac", env="ProbeChoice-v0", **QUICK).learn(110)
    agent = Agent("sl-sac", env="ProbeChoice-v0", run=tmp_path / "run", **QUICK).learn(75)
    before = agent.evaluate(3).returns
    agent.close()
    np.testing.assert_array_equal(agent.evaluate(3).returns, before)
    other = Agent.load(tmp_path / "run").learn(10)
    with pytest.raises(InvalidInput, match="is in use"):
        agent.learn(10)
    other.close()
    agent.learn(25)
    assert_equal(whole, agent)
    for one in (whole, agent):
        one.close()


def test_a_length_that_the_env_does_not_state_is_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Short(gym.Wrapper):
        """Ends its episodes after five steps, and nobody can know."""

        def reset(self, **options: Any) -> Any:
            self.steps = 0
            return super().reset(**options)

        def step(self, action: Any) -> Any:
            self.steps += 1
            observation, reward, *_ = super().step(action)
            return observation, float(reward), False, self.steps == 5, {"cost": 0.0}

    def short() -> gym.Env:
        return Short(gym.make("Pendulum-v1").unwrapped)

    Agent("sl-sac", env=short, **QUICK).learn(20, progress=False).close()
    expected = "cut off after 5 steps; limits and bounds assume 1,000"
    shown = capsys.readouterr().err
    assert shown.count(expected) == 1
    assert "states no length, so episodes end after 1,000 steps" in shown
    timed = Agent("sl-sac", env=lambda: make_env(short, horizon=5), **QUICK)
    timed.learn(20, progress=False).close()
    shown = capsys.readouterr().err
    assert expected not in shown
    assert "states no length" not in shown


class Guarded(gym.Env):
    """A task of ten steps that takes no call once it is closed."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (2,))
    action_space = gym.spaces.Box(-2.0, 0.2, (1,))

    def __init__(self) -> None:
        self.closed = False

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        assert not self.closed
        return np.zeros(2, np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        assert not self.closed
        return np.zeros(2, np.float32), 1.0, False, False, {"cost": 0.0}

    def close(self) -> None:
        self.closed = True


def test_an_env_object_of_the_users_stays_open(tmp_path: Path) -> None:
    env = gym.wrappers.TimeLimit(Guarded(), 10)
    agent = Agent("sac-lag", env=env, env_name="Guarded", run=tmp_path / "run", **QUICK)
    agent.learn(60, progress=False)
    agent.close()
    agent.learn(30, progress=False)
    agent.evaluate(2)
    agent.close()
    assert not env.unwrapped.closed
    env = gym.wrappers.TimeLimit(Guarded(), 10)
    settings = {"steps_per_epoch": 20, "batch_size": 10, "num_envs": 2}
    with Agent("ppo-lag", env=env, env_name="G", run=tmp_path / "ppo", **settings) as agent:
        agent.learn(40, progress=False)
    assert not env.unwrapped.closed


@pytest.mark.parametrize("wrapped_anew", [False, True])
@pytest.mark.parametrize("algo", ["sac-lag", "ppo-lag"])
def test_a_function_that_gives_one_env_twice_is_refused(
    tmp_path: Path, wrapped_anew: bool, algo: str
) -> None:
    own = Guarded()
    same = gym.wrappers.TimeLimit(own, 10)

    def make() -> gym.Env:
        return gym.wrappers.TimeLimit(own, 10) if wrapped_anew else same

    quick = QUICK | {"evaluate_every_epochs": 1, "steps_per_epoch": 25}
    settings = quick if algo == "sac-lag" else {"num_envs": 2}
    with pytest.raises((InvalidInput, TrainingFailed), match="returned the same environment twice"):
        Agent(algo, env=make, env_name="G", run=tmp_path, **settings).learn(60, progress=False)


def test_actions_stay_within_bounds_that_float32_cannot_hold() -> None:
    tried = np.round(np.arange(-2.0, 2.05, 0.1), 1)
    low, high = (each.ravel() for each in np.meshgrid(tried, tried))
    low, high = low[low < high], high[low < high]
    spec = EnvSpec(1, len(low), 10, tuple(low.tolist()), tuple(high.tolist()))
    for unit in (np.float32(-1.0), np.float32(1.0)):
        actions = spec.action_middle + spec.action_scale * unit
        assert ((low <= actions) & (actions <= high)).all()
        assert np.allclose(actions, high if unit > 0 else low, atol=1e-6)


def test_a_policy_that_was_kept_survives_further_learning(tmp_path: Path) -> None:
    with Agent("sac-lag", env="ProbeChoice-v0", run=tmp_path / "run", **QUICK) as agent:
        agent.learn(60, progress=False)
        kept = agent.policy
        before = [leaf.copy() for leaf in jax.tree.leaves(kept)]
        agent.learn(30, progress=False)
        for one, other in zip(jax.tree.leaves(kept), before, strict=True):
            np.testing.assert_array_equal(one, other)


def test_a_time_limit_within_a_registered_entry_point_counts() -> None:
    gym.register("Bounded-v0", lambda: gym.wrappers.TimeLimit(Guarded(), 30))
    assert make_env("Bounded-v0").spec.horizon == 30
