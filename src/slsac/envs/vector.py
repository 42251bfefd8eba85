"""Several environments stepped side by side, in this process or spread over others.

Both kinds give the same numbers. Worker processes read actions from and write results to shared
memory; the pipes carry a few bytes that say what to do and that it is done.
"""

from __future__ import annotations

import json
import multiprocessing
import pickle
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, Protocol

import numpy as np

from slsac.envs.worker import WorkerEnv
from slsac.errors import EnvFailed, InvalidInput, env_failure, env_failures
from slsac.types import EnvSpec, SafeEnv


class Stepped(NamedTuple):
    """What one step of all environments returns, ``[env, ...]``."""

    observation: np.ndarray
    reward: np.ndarray
    cost: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    extras: Mapping[int, Mapping[str, float]]
    """`Step.extras` by env, of those that reported any with their episode's last step."""


Extras = dict[int, dict[str, float]]


class VectorEnv(Protocol):
    def reset(self, seeds: Mapping[int, int]) -> np.ndarray:
        """Begins an episode in each env of ``seeds``; first observations, in its order."""
        ...

    def step(self, actions: np.ndarray) -> Stepped:
        """Steps all of them; the arrays are valid until the next step."""
        ...

    def close(self) -> None: ...


class Buffers:
    """Where actions come from and results go, for the environments of one slice or of all."""

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

    def stepped(self, extras: Extras) -> Stepped:
        reward, cost, terminated, truncated = self.outcomes.T
        return Stepped(self.observations, reward, cost, terminated > 0, truncated > 0, extras)


def step_slice(envs: Mapping[int, SafeEnv], buffers: Buffers) -> Extras:
    """Steps each env of the slice; the extras of episodes that ended."""
    extras = {}
    for index, env in envs.items():
        if isinstance(env, WorkerEnv):
            env.begin_step(buffers.actions[index])  # all of them step at once
    for index, env in envs.items():
        action = buffers.actions[index]
        with env_failures():
            step = env.finish_step() if isinstance(env, WorkerEnv) else env.step(action)
        buffers.observations[index] = step.observation
        buffers.outcomes[index] = (step.reward, step.cost, step.terminated, step.truncated)
        if step.extras and (step.terminated or step.truncated):
            extras[index] = {name: float(value) for name, value in step.extras.items()}
    return extras


def reset_slice(envs: Mapping[int, SafeEnv], seeds: Mapping[int, int], buffers: Buffers) -> None:
    for index, seed in seeds.items():
        with env_failures():
            buffers.observations[index] = envs[index].reset(seed)


class InProcess:
    """All environments in this process, one after the other; a `WorkerEnv` has its own."""

    def __init__(self, envs: Sequence[SafeEnv]) -> None:
        self._envs = dict(enumerate(envs))
        self._buffers = Buffers(envs[0].spec, len(envs))

    def reset(self, seeds: Mapping[int, int]) -> np.ndarray:
        reset_slice(self._envs, seeds, self._buffers)
        return self._buffers.observations[list(seeds)]

    def step(self, actions: np.ndarray) -> Stepped:
        self._buffers.actions[:] = actions
        return self._buffers.stepped(step_slice(self._envs, self._buffers))

    def close(self) -> None:
        for env in self._envs.values():
            env.close()


INVALID, FAILED = b"!", b"?"


def sendable(make_env: Callable[[], SafeEnv], processes: int) -> bytes:
    """``make_env`` for other processes; a lambda or a local function will do."""
    import cloudpickle

    try:
        return cloudpickle.dumps(make_env)
    except Exception as error:
        raise InvalidInput(
            f"worker_processes is {processes}; it must be 0 for an environment that cannot be sent "
            f"to another process ({error}); a function that makes it there mostly can"
        ) from error


class Workers:
    """Environments in processes of their own, a slice in each."""

    def __init__(
        self, make_env: Callable[[], SafeEnv], spec: EnvSpec, num_envs: int, processes: int
    ) -> None:
        sent = sendable(make_env, processes)
        # Spawned, not forked: a fork of a process that runs JAX's threads may never wake up.
        context = multiprocessing.get_context("spawn")
        sizes = (4 * spec.action_size, 4 * spec.observation_size, 8 * 4)
        memory = [context.RawArray("b", num_envs * size) for size in sizes]
        self._buffers = Buffers(spec, num_envs, memory)
        self._slices = [range(at, num_envs, processes) for at in range(processes)]
        self._owner = {index: at for at, slice in enumerate(self._slices) for index in slice}
        self._pipes: list[Connection] = []
        self._processes = []
        for indices in self._slices:
            pipe, theirs = context.Pipe()
            process = context.Process(
                target=_work,
                args=(theirs, sent, spec, num_envs, indices, memory),
                daemon=True,
            )
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
        wanted: dict[int, dict[int, int]] = {}
        for index, seed in seeds.items():
            wanted.setdefault(self._owner[index], {})[index] = seed
        for at, some in wanted.items():
            self._send(at, json.dumps(some).encode())
        self._wait(wanted)
        return self._buffers.observations[list(seeds)]

    def step(self, actions: np.ndarray) -> Stepped:
        self._buffers.actions[:] = actions
        for at in range(len(self._pipes)):
            self._send(at, b"")
        return self._buffers.stepped(self._wait(range(len(self._pipes))))

    def _send(self, at: int, message: bytes) -> None:
        try:
            self._pipes[at].send_bytes(message)
        except OSError as error:
            raise self._ended(at) from error

    def _wait(self, workers: Iterable[int]) -> Extras:
        extras: Extras = {}
        for at in workers:
            try:
                answer = self._pipes[at].recv_bytes()
            except (EOFError, OSError) as error:
                raise self._ended(at) from error
            text = answer[1:].decode()
            if answer[:1] == INVALID:
                raise InvalidInput(text)
            if answer[:1] == FAILED:
                raise EnvFailed(text)
            if answer:
                extras |= {int(index): found for index, found in json.loads(answer).items()}
        return extras

    def _ended(self, at: int) -> EnvFailed:
        self._processes[at].join(timeout=5)
        return EnvFailed(f"worker process {at} died (exit code {self._processes[at].exitcode})")

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
    """A worker's life: an empty message is a step, any other the seeds of new episodes.

    The answer is empty, or the extras of episodes that ended, or an error.
    """
    # An interrupt is the training process's business; it ends workers by closing their pipes.
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
        pipe.send_bytes(INVALID + str(error).encode())
    except EnvFailed as error:
        pipe.send_bytes(FAILED + str(error).encode())
    except Exception as error:
        pipe.send_bytes(FAILED + str(env_failure(error)).encode())
    finally:
        for env in envs.values():
            env.close()


def build(
    env: SafeEnv, make_another: Callable[[], SafeEnv], num_envs: int, processes: int
) -> VectorEnv:
    """``num_envs`` environments; ``env`` is the first of them where they are in this process."""
    if processes == 0:
        return InProcess([env, *(make_another() for _ in range(num_envs - 1))])
    env.close()
    return Workers(make_another, env.spec, num_envs, processes)
