"""Several environments stepped side by side, in this process or in worker processes.

Both give the same numbers. Workers read actions from shared memory and write results to it; the
pipes carry only a few bytes: what to do, and that it is done.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import pickle
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, Protocol

import numpy as np

from slsac.envs.contract import as_observation, as_step
from slsac.envs.registry import Copies
from slsac.envs.sources import close_env
from slsac.envs.worker import WorkerEnv
from slsac.errors import EnvFailed, InvalidInput, env_failure, env_failures
from slsac.types import EnvSpec, SafeEnv


class VectorStep(NamedTuple):
    """What one step of all environments returns, ``[env, ...]``."""

    observation: np.ndarray
    reward: np.ndarray
    cost: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    extras: Mapping[int, Mapping[str, float]]
    """`Step.extras` of episodes that ended with this step, by env; only envs that report any."""


Extras = dict[int, dict[str, float]]
"""`Step.extras` by env."""


class VectorEnv(Protocol):
    def reset(self, seeds: Mapping[int, int]) -> np.ndarray:
        """Begin an episode in each env of ``seeds``; the first observations, in that order."""
        ...

    def step(self, actions: np.ndarray) -> VectorStep:
        """Step all envs; the arrays are valid until the next step."""
        ...

    def close(self) -> None: ...


class Buffers:
    """Arrays of actions and results of all environments, in shared ``memory`` if given."""

    def __init__(self, spec: EnvSpec, num_envs: int, memory: Sequence[Any] | None = None) -> None:
        self.sizes = (spec.action_size, spec.observation_size, 4)
        kinds = (np.float32, np.float32, np.float64)
        shapes = [(num_envs, size) for size in self.sizes]
        self.actions, self.observations, self.outcomes = (
            np.zeros(shape, kind)
            if memory is None
            else np.frombuffer(memory[at], kind).reshape(shape)
            for at, (shape, kind) in enumerate(zip(shapes, kinds, strict=True))
        )

    def as_step(self, extras: Extras) -> VectorStep:
        reward, cost, terminated, truncated = self.outcomes.T
        return VectorStep(self.observations, reward, cost, terminated > 0, truncated > 0, extras)


def step_slice(envs: Mapping[int, SafeEnv], buffers: Buffers) -> Extras:
    """Step each env of the slice; the extras of episodes that ended."""
    extras = {}
    for index, env in envs.items():
        if isinstance(env, WorkerEnv):
            env.begin_step(buffers.actions[index])  # all of them step at once
    for index, env in envs.items():
        action = buffers.actions[index]
        with env_failures():
            result = env.finish_step() if isinstance(env, WorkerEnv) else env.step(action)
            step = as_step(result, env.spec)
        buffers.observations[index] = step.observation
        buffers.outcomes[index] = (step.reward, step.cost, step.terminated, step.truncated)
        if step.extras and (step.terminated or step.truncated):
            extras[index] = dict(step.extras)
    return extras


def reset_slice(envs: Mapping[int, SafeEnv], seeds: Mapping[int, int], buffers: Buffers) -> None:
    for index, seed in seeds.items():
        with env_failures():
            env = envs[index]
            buffers.observations[index] = as_observation(env.reset(seed), env.spec)


class InProcess:
    """All environments in this process, stepped in turn; only a `WorkerEnv` has its own process."""

    def __init__(self, envs: Sequence[SafeEnv], *, close_first: bool = True) -> None:
        self._envs = dict(enumerate(envs))
        self._ours = envs if close_first else envs[1:]
        self._buffers = Buffers(envs[0].spec, len(envs))

    def reset(self, seeds: Mapping[int, int]) -> np.ndarray:
        reset_slice(self._envs, seeds, self._buffers)
        return self._buffers.observations[list(seeds)]

    def step(self, actions: np.ndarray) -> VectorStep:
        self._buffers.actions[:] = actions
        return self._buffers.as_step(step_slice(self._envs, self._buffers))

    def close(self) -> None:
        for env in self._ours:
            close_env(env)


INVALID, FAILED = b"!", b"?"
SAFE_PATH = "PYTHONSAFEPATH"
"""Python's variable that does what its flag -P does."""


def sendable(make_env: Callable[[], SafeEnv], processes: int) -> bytes:
    """``make_env`` as bytes for another process; lambdas and local functions work too."""
    import cloudpickle

    try:
        return cloudpickle.dumps(make_env)
    except Exception as error:
        raise InvalidInput(
            f"worker_processes is {processes}; it must be 0 for an environment that cannot be sent "
            f"to another process ({error}); a function that makes the environment usually can"
        ) from error


@contextlib.contextmanager
def _safe_path() -> Iterator[None]:
    """Python processes that start meanwhile import nothing from the working directory."""
    before = os.environ.get(SAFE_PATH)
    os.environ[SAFE_PATH] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[SAFE_PATH]
        else:
            os.environ[SAFE_PATH] = before


class Workers:
    """Environments in worker processes, a slice in each."""

    def __init__(
        self, make_env: Callable[[], SafeEnv], spec: EnvSpec, num_envs: int, processes: int
    ) -> None:
        sent = sendable(make_env, processes)
        # Spawned, not forked: a fork of a process with JAX's threads may deadlock.
        context = multiprocessing.get_context("spawn")
        sizes = (4 * spec.action_size, 4 * spec.observation_size, 8 * 4)
        memory = [context.RawArray("b", num_envs * size) for size in sizes]
        self._buffers = Buffers(spec, num_envs, memory)
        slices = [range(worker, num_envs, processes) for worker in range(processes)]
        self._owner = {index: worker for worker, slice in enumerate(slices) for index in slice}
        self._pipes: list[Connection] = []
        self._processes = []
        for indices in slices:
            pipe, theirs = context.Pipe()
            process = context.Process(
                target=_work,
                args=(theirs, sent, spec, num_envs, indices, memory),
                daemon=True,
            )
            with _safe_path():
                process.start()
            theirs.close()
            self._pipes.append(pipe)
            self._processes.append(process)
        try:
            self._wait(range(processes))
        except BaseException:
            self.close()
            raise

    def reset(self, seeds: Mapping[int, int]) -> np.ndarray:
        by_worker: dict[int, dict[int, int]] = {}
        for index, seed in seeds.items():
            by_worker.setdefault(self._owner[index], {})[index] = seed
        for worker, its_seeds in by_worker.items():
            self._send(worker, json.dumps(its_seeds).encode())
        self._wait(by_worker)
        return self._buffers.observations[list(seeds)]

    def step(self, actions: np.ndarray) -> VectorStep:
        self._buffers.actions[:] = actions
        for worker in range(len(self._pipes)):
            self._send(worker, b"")
        return self._buffers.as_step(self._wait(range(len(self._pipes))))

    def _send(self, worker: int, message: bytes) -> None:
        try:
            self._pipes[worker].send_bytes(message)
        except OSError as error:
            raise self._death_of(worker) from error

    def _wait(self, workers: Iterable[int]) -> Extras:
        extras: Extras = {}
        for worker in workers:
            try:
                answer = self._pipes[worker].recv_bytes()
            except (EOFError, OSError) as error:
                raise self._death_of(worker) from error
            text = answer[1:].decode()
            if answer[:1] == INVALID:
                raise InvalidInput(text)
            if answer[:1] == FAILED:
                raise EnvFailed(text)
            if answer:
                extras |= {int(index): values for index, values in json.loads(answer).items()}
        return extras

    def _death_of(self, worker: int) -> EnvFailed:
        process = self._processes[worker]
        process.join(timeout=5)
        return EnvFailed(f"worker process {worker} died (exit code {process.exitcode})")

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join(timeout=5)
            if process.is_alive():
                process.terminate()
                process.join()


def _work(
    pipe: Connection,
    sent: bytes,
    spec: EnvSpec,
    num_envs: int,
    indices: Sequence[int],
    memory: Sequence[Any],
) -> None:
    """A worker's main loop: an empty message asks for a step, others hold seeds of new episodes.

    The answer is empty, the extras of episodes that ended, or an error.
    """
    # Ctrl-C is for the training process to handle; it ends workers by closing their pipes.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    envs: dict[int, SafeEnv] = {}
    try:
        buffers = Buffers(spec, num_envs, memory)
        make_env = pickle.loads(sent)
        envs.update((index, make_env()) for index in indices)
        pipe.send_bytes(b"")
        while True:
            message = pipe.recv_bytes()
            extras: Extras = {}
            if message:
                seeds = {int(index): seed for index, seed in json.loads(message).items()}
                reset_slice(envs, seeds, buffers)
            else:
                extras = step_slice(envs, buffers)
            pipe.send_bytes(json.dumps(extras).encode() if extras else b"")
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass
    except InvalidInput as error:
        _report(pipe, INVALID, error)
    except EnvFailed as error:
        _report(pipe, FAILED, error)
    except Exception as error:
        _report(pipe, FAILED, env_failure(error))
    finally:
        for env in envs.values():
            close_env(env)


def _report(pipe: Connection, kind: bytes, error: Exception) -> None:
    with contextlib.suppress(OSError):  # after another worker's error nobody listens
        pipe.send_bytes(kind + str(error).encode())


def build(env: SafeEnv, copies: Copies, num_envs: int, processes: int) -> VectorEnv:
    """``num_envs`` environments; ``env`` is the first of them if they are in this process."""
    if processes == 0:
        another = copies.apart_from(env).training
        others = (another() for _ in range(num_envs - 1))
        return InProcess([env, *others], close_first=copies.ours)
    if copies.ours:
        close_env(env)
    return Workers(copies.training, env.spec, num_envs, processes)
