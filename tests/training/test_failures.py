"""A run that goes wrong stops, says what was not finite, and keeps its last good checkpoint."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import gymnasium as gym
import jax.numpy as jnp
import numpy as np
import pytest

from slsac import Agent
from slsac.cli import main
from slsac.envs.play import play
from slsac.envs.probe import Choice, Constant
from slsac.errors import EnvFailed, InvalidInput, TrainingFailed
from slsac.runs import checkpoint
from slsac.runs.lock import RunLock
from slsac.runs.log import RunLog
from slsac.training import launch
from slsac.training.off_policy import OffPolicyTrainer
from slsac.types import Step
from tests.support.agents import small_config

Start = Callable[..., OffPolicyTrainer]


def test_a_non_finite_parameter_stops_the_run_and_is_named(start: Start) -> None:
    trainer = start("ProbeChoice-v0", warmup_steps=40, checkpoint_every_steps=30)
    trainer.advance(60)
    before = checkpoint.step_names(trainer.run / "checkpoints")
    broken = eqx.tree_at(
        lambda critic: critic.head.biases[0], trainer.state.cost_critic, jnp.array([jnp.nan])
    )
    trainer.learner.state = trainer.state._replace(cost_critic=broken)
    with pytest.raises(TrainingFailed) as failure:
        trainer.advance(100)
    assert "not finite after step 61" in str(failure.value)
    assert "cost_critic_loss" in str(failure.value)
    assert "cost_critic parameters" in str(failure.value)
    assert "reward_critic" not in str(failure.value)
    assert before[-1] in str(failure.value)
    assert checkpoint.step_names(trainer.run / "checkpoints") == before
    trainer.close()
    resumed = launch.resume(trainer.run)
    assert resumed.step == 60
    resumed.close()


class Broken(Constant):
    """Gives an infinite cost at its 26th step; the first is the trial before a run is made."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = 0

    def step(self, action: np.ndarray) -> Step:
        self.steps += 1
        result = super().step(action)
        return result._replace(cost=np.inf) if self.steps == 26 else result


def test_a_non_finite_cost_from_the_environment_is_named(tmp_path: Path) -> None:
    trainer = launch.start(small_config("ProbeConstant-v0"), tmp_path, env=Broken)
    with pytest.raises(TrainingFailed, match="non-finite cost at step 24, episode 24"):
        trainer.advance(100)
    trainer.close()


class Refund(Constant):
    """Gives money back, which a floor of 0 under costs does not allow for."""

    def outcome(self, effort: float) -> tuple[float, float]:
        return 1.0, -1.0


def test_a_negative_cost_is_refused_unless_the_floor_is_off(tmp_path: Path) -> None:
    trainer = launch.start(small_config("ProbeConstant-v0"), tmp_path / "a", env=Refund)
    with pytest.raises(TrainingFailed, match=r"cost of -1\.0 .* set the floor to none"):
        trainer.advance(10)
    trainer.close()
    signed = small_config("ProbeConstant-v0", cost_critic__cost_floor=None)
    trainer = launch.start(signed, tmp_path / "b", env=Refund)
    trainer.advance(10)
    trainer.close()


def test_a_floor_is_one_of_the_discounted_sum(tmp_path: Path) -> None:
    # Steps of -1 sum up to -2 at a discount of .5, resets cost nothing.
    deep = {"cost_critic__cost_floor": -2.0, "cost_critic__discount": 0.5}
    trainer = launch.start(small_config("ProbeConstant-v0", **deep), tmp_path / "a", env=Refund)
    trainer.advance(10)
    trainer.close()
    shallow = deep | {"cost_critic__cost_floor": -1.5}
    trainer = launch.start(small_config("ProbeConstant-v0", **shallow), tmp_path / "b", env=Refund)
    with pytest.raises(TrainingFailed, match=r"cost_floor -1\.5 times 0\.5, its share of one step"):
        trainer.advance(10)
    trainer.close()
    # Every step of this task costs 2.
    above = small_config("ProbeConstant-v0", cost_critic__cost_floor=0.5)
    trainer = launch.start(above, tmp_path / "c")
    trainer.advance(10)
    trainer.close()


class Raises(gym.Env):
    """An ordinary Gymnasium env with a bug that shows after 30 calls, in one of its methods."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (1,))
    action_space = gym.spaces.Box(-1.0, 1.0, (1,))

    def __init__(self, where: str) -> None:
        self.where, self.calls = where, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        self.count("reset")
        return np.zeros(1, np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.count("step")
        return np.zeros(1, np.float32), 0.0, True, False, {"cost": 0.0}

    def count(self, where: str) -> None:
        self.calls += 1
        if self.where == where and self.calls > 30:
            raise KeyError("fuel")


@pytest.mark.parametrize("where", ["step", "reset"])
def test_whatever_an_env_raises_is_named_with_its_place_and_the_checkpoint(
    tmp_path: Path, where: str
) -> None:
    config = small_config("ProbeConstant-v0", checkpoint_every_steps=10)
    trainer = launch.start(config, tmp_path, env=lambda: Raises(where))
    expected = (
        r"the environment failed at step 1\d: KeyError: 'fuel' \(.*test_failures\.py, line \d+\); "
        r"last good checkpoint: .*last \(step 1\d\)"
    )
    with pytest.raises(TrainingFailed, match=expected) as failure:
        trainer.advance(100)
    assert isinstance(failure.value.__cause__, EnvFailed)
    assert isinstance(failure.value.__cause__.__cause__, KeyError)
    trainer.close()


def test_an_env_that_fails_at_once_is_named_before_anything_is_written(tmp_path: Path) -> None:
    broken = Raises("step")
    broken.calls = 30
    with pytest.raises(EnvFailed, match=r"failed in its first step: KeyError: 'fuel' \(.*line \d"):
        launch.start(small_config("ProbeConstant-v0"), tmp_path / "run", env=broken)
    assert not (tmp_path / "run").exists()


def test_a_failing_evaluation_names_the_checkpoint(tmp_path: Path) -> None:
    config = small_config("ProbeConstant-v0", steps_per_epoch=20, evaluate_every_epochs=1)
    made: list[Raises] = []

    def make() -> Raises:
        made.append(Raises("reset" if made else "never"))
        made[-1].calls = 40 if len(made) > 1 else 0
        return made[-1]

    trainer = launch.start(config, tmp_path, env=make)
    with pytest.raises(TrainingFailed, match=r"failed at step 20: KeyError.*last good checkpoint"):
        trainer.advance(40)
    assert len(made) == 2
    trainer.close()


def test_a_full_disk_names_the_checkpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(self: RunLog, name: str, record: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(RunLog, "write", write)
    arguments = ["train", "--env", "ProbeChoice-v0", "--run", str(tmp_path / "run")]
    assert main([*arguments, "--steps", "50"]) == 1
    shown = capsys.readouterr().err
    assert "training stopped: [Errno 28] No space left on device at step 10; last good" in shown
    assert "checkpoints/step-0" in shown
    assert shown.count("\n") == 1


def test_a_start_that_fails_leaves_neither_env_nor_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[str] = []

    class Watched(Raises):
        def close(self) -> None:
            closed.append(self.where)

    def fail(self: RunLog) -> None:
        raise OSError("no")

    config = small_config("ProbeConstant-v0")
    with monkeypatch.context() as patched:
        patched.setattr(RunLog, "begin", fail)
        with pytest.raises(OSError, match=r"^no$"):
            launch.start(config, tmp_path, env=lambda: Watched("never"))
    assert closed == ["never"]
    RunLock(tmp_path).release()


def test_an_env_that_was_given_stays_open_when_a_start_is_refused(tmp_path: Path) -> None:
    class Given(Raises):
        closed = False

        def __deepcopy__(self, memo: Any) -> Any:
            raise TypeError("no copies")

        def close(self) -> None:
            self.closed = True

    env = Given("never")
    with pytest.raises(InvalidInput, match="cannot be copied"):
        launch.start(small_config("ProbeConstant-v0"), tmp_path, env=env)
    assert not env.closed


def test_an_agent_that_nobody_has_any_more_lets_go_of_its_run(tmp_path: Path) -> None:
    agent = Agent("sac-lag", env="ProbeChoice-v0", run=tmp_path)
    with pytest.raises(InvalidInput, match="in use by another process or agent"):
        RunLock(tmp_path)
    del agent
    gc.collect()
    RunLock(tmp_path).release()


class Exits(Constant):
    """Calls sys.exit(0) at its tenth step."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = 0

    def step(self, action: np.ndarray) -> Step:
        self.steps += 1
        if self.steps == 10:
            sys.exit(0)
        return super().step(action)


def test_an_env_that_exits_has_failed(tmp_path: Path) -> None:
    trainer = launch.start(small_config("ProbeConstant-v0"), tmp_path / "run", env=Exits)
    with pytest.raises(TrainingFailed, match="SystemExit"):
        trainer.advance(100)
    trainer.close()


class Endless(Constant):
    """States one step and continues."""

    def step(self, action: np.ndarray) -> Step:
        return super().step(action)._replace(terminated=False, truncated=False)


def test_an_episode_longer_than_stated_ends_the_run(tmp_path: Path) -> None:
    trainer = launch.start(small_config("ProbeConstant-v0"), tmp_path / "run", env=Endless)
    with pytest.raises(TrainingFailed, match="continues after 1 steps, but the env states 1"):
        trainer.advance(100)
    trainer.close()


class Ruinous(Constant):
    """Costs more than single precision holds."""

    def outcome(self, effort: float) -> tuple[float, float]:
        return 1.0, 1e300


@pytest.mark.parametrize("algo", ["sac-lag", "ppo-lag"])
def test_a_cost_beyond_single_precision_ends_the_run(algo: str, tmp_path: Path) -> None:
    trainer = launch.start(small_config("ProbeConstant-v0", algo), tmp_path, env=Ruinous)
    with pytest.raises(TrainingFailed, match=r"non-finite cost \(beyond 3\.4e38"):
        trainer.advance(10)
    trainer.close()


class Shaped(Constant):
    """Observations as a row of a matrix, which would be broadcast without a word."""

    def observe(self) -> np.ndarray:
        return np.ones((1, 1), np.float32)


class Unshaped(Constant):
    def __init__(self, **sizes: Any) -> None:
        super().__init__()
        self.spec = self.spec._replace(**sizes)


class Tuples(Constant):
    def step(self, action: np.ndarray) -> Any:
        return tuple(super().step(action))


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (Shaped, r"an observation has shape \(1, 1\); the env's spec states \(1,\)"),
        (Tuples, "step returned a tuple; it must be a slsac.types.Step"),
        (
            lambda: Unshaped(action_size=0),
            "action_size of the env is 0; it must be an int of at least 1",
        ),
        (lambda: Unshaped(horizon=0), "horizon of the env is 0; it must be an int of at least 1"),
        (lambda: Unshaped(action_low=(np.nan,)), "action_low of the env is .*1 finite numbers"),
        (lambda: Unshaped(action_high=(1.0, 2.0)), "action_high of the env is .*1 finite numbers"),
    ],
)
def test_an_env_of_the_raw_protocol_is_checked_before_a_run_is_made(
    env: Any, message: str, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    with pytest.raises(InvalidInput, match=message):
        launch.start(small_config("ProbeConstant-v0"), run, env=env)
    assert not run.exists()


def test_an_action_space_without_entries_is_refused(tmp_path: Path) -> None:
    env = Raises("never")
    env.action_space = gym.spaces.Box(-1.0, 1.0, (0,))
    with pytest.raises(InvalidInput, match=r"action_space has shape \(0,\)"):
        launch.start(small_config("ProbeConstant-v0"), tmp_path / "run", env=env)


class Reusing(Choice):
    """Writes every observation into the same array."""

    def __init__(self) -> None:
        super().__init__()
        self.buffer = np.zeros(self.spec.observation_size, np.float32)

    def observe(self) -> np.ndarray:
        self.buffer[:] = self._time
        return self.buffer


def test_a_reused_observation_buffer_is_copied(tmp_path: Path) -> None:
    env = Reusing()
    played = list(play([env], lambda observation: np.zeros(1, np.float32), [0]))
    for time, transition in enumerate(played):
        assert transition.observation[0] == time
        assert transition.step.observation[0] == time + 1
    trainer = launch.start(small_config("ProbeChoice-v0"), tmp_path, env=Reusing)
    first = trainer.observation()
    trainer.observe(np.zeros(1, np.float32))
    assert (first[0], trainer.observation()[0]) == (0.0, 1.0)
    trainer.close()


class EndlessChoice(Choice):
    """States ten steps and continues."""

    def step(self, action: np.ndarray) -> Step:
        return super().step(action)._replace(terminated=False, truncated=False)


def test_an_on_policy_episode_longer_than_stated_ends_the_run(tmp_path: Path) -> None:
    config = small_config("ProbeChoice-v0", "ppo-lag", num_envs=2)
    trainer = launch.start(config, tmp_path, env=EndlessChoice)
    with pytest.raises(TrainingFailed, match="continues after 10 steps, but the env states 10"):
        trainer.advance(100)
    trainer.close()


def test_an_evaluation_of_an_endless_episode_ends() -> None:
    with pytest.raises(EnvFailed, match="continues after the 10 steps"):
        list(play([EndlessChoice()], lambda observation: np.zeros(1, np.float32), [0]))


class Unclosable(Constant):
    def close(self) -> None:
        raise RuntimeError("no\nway")


def test_an_env_that_cannot_be_closed_is_one_line_and_no_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    launch.start(small_config("ProbeConstant-v0"), tmp_path, env=Unclosable).close()
    said = capsys.readouterr().err
    assert said.startswith("slsac: an environment could not be closed: RuntimeError: no way (")
    assert said.count("\n") == 1
    launch.resume(tmp_path, env=Unclosable).close()
