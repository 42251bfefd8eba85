"""A trial's process, seen from outside: its job, its start and how it ended.

Both backends start trials in this way, so that a trial's bits do not depend on the backend.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple


class Job(NamedTuple):
    """What a trial's process is told, on whatever machine it is; plain data only."""

    run: str
    log: str
    """Where its output goes."""
    arguments: list[str]
    """Of `slsac train`, where the run does not exist yet."""
    steps: int
    cores: int
    inexact: bool
    source: str
    """Digest of the source tree that the sweep was started from."""
    environment: dict[str, str]
    """Variables that decide what JAX does."""


class Outcome(NamedTuple):
    """How a trial's process ended."""

    kind: Literal["done", "failed", "lost"]
    """Lost: something outside killed it, and trying again makes sense."""
    error: str


def jax_environment() -> dict[str, str]:
    """This process's variables that a trial must share with it wherever it runs."""
    return {
        name: value
        for name, value in os.environ.items()
        if name == "XLA_FLAGS" or name.startswith("JAX_")
    }


def launch(job: Job) -> subprocess.Popen[bytes]:
    """Start the trial's process; it stops by itself when the caller is gone."""
    log = Path(job.log)
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "ab") as output:
        process = subprocess.Popen(
            # The run is named for whoever looks at the list of processes.
            # -P: nothing of the working directory stands in for what is installed.
            [sys.executable, "-P", "-m", "slsac", "sweep-trial", job.run],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **job.environment},
            # Ctrl-C in a terminal goes to the sweep alone, which then stops its trials.
            start_new_session=True,
        )
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(json.dumps(job._asdict()).encode() + b"\n")
        process.stdin.flush()
    return process


def stop_all(processes: Sequence[subprocess.Popen[bytes]], patience: float = 10.0) -> None:
    """Interrupt trials as Ctrl-C would, and kill those still there after ``patience`` seconds."""
    for process in processes:
        process.send_signal(signal.SIGINT)
    deadline = time.monotonic() + patience
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        close(process)


def close(process: subprocess.Popen[bytes]) -> None:
    """Close the pipe to a process that has ended."""
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()


def outcome(returncode: int, log: Path) -> Outcome:
    """How a process ended; the error is the last line that it wrote."""
    if returncode == 0:
        return Outcome("done", "")
    if returncode < 0:
        number = -returncode
        names = {known.value: known.name for known in signal.Signals}  # real-time ones have none
        return Outcome("lost", f"killed by {names.get(number, f'signal {number}')}")
    return Outcome("failed", last_line(log) or f"exit code {returncode}")


def last_line(path: Path, tail: int = 32_768) -> str:
    """The last complete line of a file, of which only the end is read; empty where none is."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.path.getsize(path) - tail))
            whole = file.read().rpartition(b"\n")[0]
    except OSError:
        return ""
    return whole.rpartition(b"\n")[2].decode(errors="replace").strip()
