"""An environment in a process of its own, for simulators that allow one engine per process.

`WorkerEnv` is a ``SafeEnv`` that forwards each call. If its process dies, it starts another,
replays the current episode from its seed and actions, and continues: the caller does not notice,
and the run is the same as if nothing had happened. That needs an env whose episodes depend on seed
and actions alone; where the replay differs, the error says so.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import subprocess
import sys
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any

import numpy as np

from slsac.envs.sources import for_certificate, for_evaluation
from slsac.errors import EnvFailed, InvalidInput, env_failure
from slsac.types import EnvSpec, SafeEnv, Step

MOST_RESTARTS = 3
"""Restarts of the process that one episode allows."""
SECONDS_TO_CLOSE = 10.0
SECONDS_TO_START = 300.0
"""What a process with a limited time to answer gets on top of it to import and make its env."""


class _Died(Exception):
    """The process ended before it answered."""


@dataclass(frozen=True)
class InOwnProcess:
    """A factory of workers for the envs that ``make`` makes."""

    make: Callable[[], SafeEnv]

    def __call__(self) -> WorkerEnv:
        return WorkerEnv(self.make)

    def for_evaluation(self) -> InOwnProcess:
        return InOwnProcess(for_evaluation(self.make))

    def for_certificate(self) -> InOwnProcess:
        return InOwnProcess(for_certificate(self.make))


MOST_SECONDS = 1e6
"""The longest wait that the system can be asked for, a little below 2^31 milliseconds."""


class WorkerEnv:
    """The env that ``make`` makes, in a process of its own.

    Args:
        make: a function without arguments; lambdas and local functions work too.
        source: a factory of workers like this one, which may provide others for evaluation and for
            certificates; by default ``make`` provides them.
        env_id: the task's name, if it has one.
        seconds_to_answer: after so long without an answer the env has failed; None: never.
    """

    def __init__(
        self,
        make: Callable[[], SafeEnv],
        *,
        source: Callable[[], WorkerEnv] | None = None,
        env_id: str | None = None,
        seconds_to_answer: float | None = None,
    ) -> None:
        self._make = make
        self._seconds = seconds_to_answer
        self.source = source or InOwnProcess(make)
        self.env_id = env_id
        self._pending: np.ndarray | None = None
        self._seed: int | None = None
        self._actions: list[np.ndarray] = []
        self._observation: np.ndarray | None = None
        self._restarts = 0
        self._closed = False
        self.spec: EnvSpec
        self.note: str | None
        """What a user should know of how the env is understood."""
        try:
            self._start()
        except _Died as death:
            raise EnvFailed(f"the environment's process died while it started ({death})") from None

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    def reset(self, seed: int) -> np.ndarray:
        self._seed, self._actions, self._observation = int(seed), [], None
        self._restarts = 0
        self._observation = self._request(("reset", self._seed))
        return self._observation

    def step(self, action: np.ndarray) -> Step:
        self.begin_step(action)
        return self.finish_step()

    def begin_step(self, action: np.ndarray) -> None:
        """Send a step's action; several workers then step at the same time."""
        self._require_open("step")
        self._drop_unfinished()
        self._pending = np.array(action, np.float32)
        with contextlib.suppress(_Died):  # finish_step will notice
            self._send(("step", self._pending))

    def finish_step(self) -> Step:
        """What the step that was begun returns."""
        self._require_open("step")
        assert self._pending is not None, "no step was begun"
        action = self._pending
        result: Step = self._guarded(lambda: self._answer_to(("step", action), sent=True))
        self._pending = None
        self._actions.append(action)
        self._observation = result.observation
        return result

    def call(self, method: str, *arguments: Any) -> Any:
        """What a method of the env itself returns; both processes must know its type."""
        return self._request((method, *arguments))

    def close(self) -> None:
        self._closed = True
        self._finalise()

    def for_evaluation(self) -> Any:
        return for_evaluation(self.source)

    def for_certificate(self) -> Any:
        return for_certificate(self.source)

    def __deepcopy__(self, memo: dict[int, Any]) -> WorkerEnv:
        # Every episode starts from its seed, so a second env needs no state.
        return self.source()

    def _start(self) -> None:
        import cloudpickle

        self._process = subprocess.Popen(
            # -P: no module of the working directory stands in for one that is installed.
            [sys.executable, "-P", "-c", "from slsac.envs.worker import serve; serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )
        self._finalise = weakref.finalize(self, _stop, self._process)
        self._send(cloudpickle.dumps(self._make))
        self.spec, self.note = self._receive(SECONDS_TO_START)

    def _request(self, message: tuple[Any, ...]) -> Any:
        """The answer to ``message``; a process that dies is replaced."""
        self._require_open(message[0])
        self._drop_unfinished()
        return self._guarded(lambda: self._answer_to(message))

    def _require_open(self, wanted: str) -> None:
        if self._closed:
            raise EnvFailed(f"the environment is closed and takes no {wanted}; make another")

    def _drop_unfinished(self) -> None:
        """Stop the process if a step was abandoned: its answer must not pass for another's."""
        if self._pending is not None:
            self._pending = None
            self._finalise()

    def _guarded(self, ask: Callable[[], Any]) -> Any:
        try:
            return ask()
        except (InvalidInput, EnvFailed):
            self._pending = None
            raise
        except BaseException:
            # After Ctrl-C an answer is still to come, and the next call would take it for its own.
            self._pending = None
            self._finalise()
            raise

    def _answer_to(self, message: tuple[Any, ...], sent: bool = False) -> Any:
        while True:
            try:
                if not sent:
                    self._send(message)
                return self._receive()
            except _Died as death:
                self._revive(str(death))
                sent = False

    def _revive(self, reason: str) -> None:
        """Start a new process and bring it to where the last one was."""
        while True:
            self._finalise()
            self._restarts += 1
            where = f"in episode {self._seed}, step {len(self._actions)}"
            if self._restarts > MOST_RESTARTS:
                raise EnvFailed(
                    f"the environment's process died {self._restarts} times {where} ({reason})"
                )
            print(
                f"slsac: the environment's process died {where} ({reason}); starting another and "
                "replaying the episode so far",
                file=sys.stderr,
            )
            try:
                self._start()
                self._replay()
                return
            except _Died as death:
                reason = str(death)

    def _replay(self) -> None:
        """Bring a new process to the current step. Raise EnvFailed if its observation differs."""
        if self._observation is None:
            return
        self._send(("reset", self._seed))
        observation = self._receive()
        for action in self._actions:
            self._send(("step", action))
            observation = self._receive().observation
        if not np.array_equal(observation, self._observation):
            raise EnvFailed(
                f"the environment's process died, and episode {self._seed} did not repeat itself "
                f"within {len(self._actions)} steps; its resets must depend on the seed alone"
            )

    def _send(self, message: Any) -> None:
        assert self._process.stdin is not None
        if self._process.stdin.closed:
            raise _Died("stopped when a call was interrupted")
        try:
            pickle.dump(message, self._process.stdin, pickle.HIGHEST_PROTOCOL)
            self._process.stdin.flush()
        except OSError:
            raise _Died(self._exit_reason()) from None

    def _receive(self, more_seconds: float = 0.0) -> Any:
        assert self._process.stdout is not None
        if self._process.stdout.closed:
            raise _Died("stopped when a call was interrupted")
        self._await_answer(self._process.stdout, more_seconds)
        try:
            kind, content = pickle.load(self._process.stdout)
        except (EOFError, OSError, pickle.UnpicklingError):
            raise _Died(self._exit_reason()) from None
        if kind == "invalid":
            raise InvalidInput(content)
        if kind == "error":
            raise EnvFailed(f"the environment's process failed: {content}")
        return content

    def _await_answer(self, answers: IO[bytes], more_seconds: float) -> None:
        """Kill the process and raise EnvFailed where no answer comes in time."""
        if self._seconds is None:
            return
        waiting = select.poll()  # select.select knows no file beyond the 1,024th
        waiting.register(answers, select.POLLIN)
        seconds = min(self._seconds + more_seconds, MOST_SECONDS)
        if waiting.poll(1000 * seconds):
            return
        self._process.kill()
        raise EnvFailed(
            f"the environment gave no answer within {self._seconds:g} seconds, in episode "
            f"{self._seed}, step {len(self._actions)}"
        )

    def _exit_reason(self) -> str:
        code = self._process.wait()
        return signal.strsignal(-code) or f"signal {-code}" if code < 0 else f"exit code {code}"


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the process: it exits by itself once its input is closed."""
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):  # unread input of a process that died
                pipe.close()
    try:
        process.wait(SECONDS_TO_CLOSE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def serve() -> None:
    """The worker process: make the env, then answer calls until the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    calls = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a simulator prints must not mix with the answers

    def answer(kind: str, content: Any) -> None:
        pickle.dump((kind, content), answers, pickle.HIGHEST_PROTOCOL)
        answers.flush()

    env: Any = None
    try:
        while True:
            message = pickle.load(calls)
            try:
                if env is None:
                    env = pickle.loads(message)()
                    result = env.spec, getattr(env, "note", None)
                else:
                    method, *arguments = message
                    result = getattr(env, method)(*arguments)
            except InvalidInput as error:
                answer("invalid", str(error))
            except Exception as error:
                answer("error", str(env_failure(error)))
            else:
                answer("result", result)
    except EOFError:
        pass
    except BrokenPipeError:
        # Nobody waits for the answer; flushing the rest of it at exit must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), answers.fileno())
    if env is not None:
        env.close()
