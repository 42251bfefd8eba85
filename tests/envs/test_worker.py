"""An env in a process of its own is the env itself, whatever happens to the process."""

from __future__ import annotations

import copy
import math
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from slsac.envs import make_env, vector, with_timeout
from slsac.envs.probe import Choice
from slsac.envs.worker import MOST_RESTARTS, WorkerEnv
from slsac.errors import EnvFailed, InvalidInput
from slsac.types import SafeEnv, Step

ACTIONS = np.linspace(-1.0, 1.0, 10, dtype=np.float32)[:, None]


class Fragile(Choice):
    """A probe that fails in its fourth step, in the way that ``failure`` says."""

    def __init__(self, failure: str) -> None:
        super().__init__()
        self._failure = failure
        self.luck = float(np.random.default_rng().uniform())

    def step(self, action: np.ndarray) -> Step:
        result = super().step(action)
        print("what a simulator prints does not disturb")
        if self._failure == "unrepeatable":
            return result._replace(observation=np.full(2, self.luck, np.float32))
        if self._time == 4 and self._failure == "dawdles":
            time.sleep(1.0)
        elif self._time == 4:
            if self._failure == "dies":
                os._exit(3)
            raise {"refuses": InvalidInput, "raises": ZeroDivisionError}[self._failure]("why")
        return result


Open = Callable[[Callable[[], SafeEnv]], WorkerEnv]


@pytest.fixture
def open_worker() -> Iterator[Open]:
    opened: list[WorkerEnv] = []

    def make(factory: Callable[[], SafeEnv]) -> WorkerEnv:
        opened.append(WorkerEnv(factory))
        return opened[-1]

    yield make
    for env in opened:
        env.close()


def episode(env: SafeEnv, seed: int, killed_at: tuple[int, ...] = ()) -> list[bytes]:
    """Everything that an episode shows, with the worker killed before some of its steps."""
    seen = [env.reset(seed).tobytes()]
    for number, action in enumerate(ACTIONS):
        if number in killed_at:
            assert isinstance(env, WorkerEnv)
            os.kill(env.pid, signal.SIGKILL)
        result = env.step(action)
        seen.append(result.observation.tobytes() + repr(tuple(result)[1:]).encode())
    return seen


def test_a_worker_shows_what_the_env_itself_shows_also_when_killed(
    open_worker: Open, capfd: pytest.CaptureFixture[str]
) -> None:
    here, there = Choice(), open_worker(lambda: Choice())
    assert there.spec == here.spec
    assert there.pid != os.getpid()
    assert episode(there, 5) == episode(here, 5)
    before = there.pid
    assert episode(there, 6, killed_at=(0, 7)) == episode(here, 6)
    assert there.pid != before
    told = capfd.readouterr().err
    assert "died in episode 6, step 0 (Killed); starting another" in told
    assert "died in episode 6, step 7 (Killed); starting another" in told


def test_a_process_killed_between_episodes_is_replaced(open_worker: Open) -> None:
    env = open_worker(Choice)
    os.kill(env.pid, signal.SIGKILL)
    assert episode(env, 1) == episode(Choice(), 1)


def test_an_env_that_kills_its_process_at_the_same_step_is_given_up(open_worker: Open) -> None:
    env = open_worker(lambda: Fragile("dies"))
    with pytest.raises(EnvFailed, match=r"died 4 times in episode 2, step 3 \(exit code 3\)"):
        episode(env, 2)
    assert MOST_RESTARTS == 3


@pytest.mark.parametrize(
    ("failure", "error", "text"),
    [
        ("refuses", InvalidInput, "^why$"),
        ("raises", EnvFailed, "process failed: ZeroDivisionError: why"),
    ],
)
def test_an_exception_of_the_env_comes_through(
    open_worker: Open, failure: str, error: type[Exception], text: str
) -> None:
    env = open_worker(lambda: Fragile(failure))
    with pytest.raises(error, match=text):
        episode(env, 0)


def test_an_env_that_does_not_repeat_itself_is_given_up(open_worker: Open) -> None:
    env = open_worker(lambda: Fragile("unrepeatable"))
    with pytest.raises(EnvFailed, match="episode 0 did not repeat itself within 2 steps"):
        episode(env, 0, killed_at=(2,))


def test_an_interrupted_call_leaves_no_answer_for_the_next_one(
    open_worker: Open, capfd: pytest.CaptureFixture[str]
) -> None:
    env, here = open_worker(lambda: Fragile("dawdles")), Choice()
    env.reset(4)
    here.reset(4)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    for number, action in enumerate(ACTIONS):
        if number == 3:
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            with pytest.raises(KeyboardInterrupt):
                env.step(action)
        assert repr(env.step(action)) == repr(here.step(action))
    signal.signal(signal.SIGALRM, before)
    told = capfd.readouterr().err
    assert "died in episode 4, step 3 (stopped when a call was interrupted)" in told
    assert "Traceback" not in told


def test_a_step_in_two_halves_is_the_step_also_when_killed_between_them(
    open_worker: Open,
) -> None:
    env, here = open_worker(Choice), Choice()
    env.reset(8)
    here.reset(8)
    for number, action in enumerate(ACTIONS):
        env.begin_step(action)
        if number in (2, 6):
            os.kill(env.pid, signal.SIGKILL)
        assert repr(env.finish_step()) == repr(here.step(action))


def test_a_step_that_was_begun_and_given_up_has_not_happened(open_worker: Open) -> None:
    env, here = open_worker(Choice), Choice()
    env.reset(8)
    here.reset(8)
    env.begin_step(ACTIONS[9])
    for action in ACTIONS:
        assert repr(env.step(action)) == repr(here.step(action))


def test_a_closed_env_says_so(open_worker: Open) -> None:
    env = open_worker(Choice)
    env.close()
    for call in (lambda: env.reset(0), lambda: env.step(ACTIONS[0])):
        with pytest.raises(EnvFailed, match="the environment is closed and takes no"):
            call()


def test_a_copy_is_another_process_and_closing_ends_it() -> None:
    env = WorkerEnv(Choice)
    second = copy.deepcopy(env)
    assert second.pid != env.pid
    assert episode(second, 3) == episode(env, 3)
    for worker in (env, second):
        process = worker.pid
        worker.close()
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)


class Hangs(Choice):
    """Never returns from its fourth step."""

    def step(self, action: np.ndarray) -> Step:
        if self._time == 3:
            time.sleep(3600.0)
        return super().step(action)


def test_an_env_that_hangs_fails_in_time_if_a_time_is_given() -> None:
    env = make_env(with_timeout(Hangs, 3.0))
    env.reset(0)
    for _ in range(3):
        env.step(np.zeros(1, np.float32))
    with pytest.raises(EnvFailed, match=r"no answer within 3 seconds, in episode 0, step 3"):
        env.step(np.zeros(1, np.float32))
    env.close()


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan, math.inf])
def test_a_time_to_answer_is_positive(seconds: float) -> None:
    with pytest.raises(InvalidInput, match="env_timeout"):
        with_timeout("ProbeChoice-v0", seconds)


def test_what_a_user_should_know_comes_through(open_worker: Open) -> None:
    note = make_env(Endless).note
    assert "states no length" in note
    assert open_worker(lambda: make_env(Endless)).note == note


def test_a_worker_imports_nothing_from_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("gymnasium", "socket", "random"):
        (tmp_path / f"{name}.py").write_text("import sys; print('STRANGER', file=sys.stderr)")
    monkeypatch.chdir(tmp_path)
    env = WorkerEnv(Choice)
    env.close()
    workers = vector.Workers(Choice, Choice().spec, 1, 1)
    workers.close()
    assert "STRANGER" not in capfd.readouterr().err


class Endless(gym.Env):
    """States no length."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (1,))
    action_space = gym.spaces.Box(-1.0, 1.0, (1,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        return np.zeros(1, np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        return np.zeros(1, np.float32), 0.0, False, False, {"cost": 0.0}
