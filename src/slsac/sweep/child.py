"""A trial's process, seen from inside: claims cores, then chooses between `train` and `resume`.

The job is the first line of standard input. The pipe then stays open for as long as the sweep
lives; when it closes the process ends at once, so that no trial outlives its sweep and keeps its
run locked. That loses nothing: a run may be killed at any moment.
"""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

from slsac.errors import InvalidInput
from slsac.runs.layout import CONFIG, MARKER
from slsac.runs.lock import RunLock
from slsac.sweep.process import Job

LOCK_PATIENCE_SECONDS = 180.0
"""A lost trial's old process needs a moment to stop, and a file server up to its lease (NFS: 90 s)
to release the locks of a machine that died."""


def take_job() -> Job:
    """Read the job from standard input; from then on the process ends with the sweep."""
    # A trial that is asked to end counts as lost, not as failed: its sweep starts it again.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    job = Job(**json.loads(sys.stdin.buffer.readline()))
    threading.Thread(target=_end_with_the_sweep, daemon=True).start()
    return job


def prepare(job: Job) -> list[str]:
    """Claim the job's cores, wait for its run's lock, and return the `slsac` command to run."""
    cores = claim_cores(job.cores)
    if not job.inexact:
        require_same_source(job.source)
    run = Path(job.run)
    _wait_for_lock(run)
    if (run / CONFIG).exists():
        # The spec names the env, and whoever wrote that started the sweep.
        command = ["resume", job.run, "--steps", str(job.steps), "--trust-env"]
        command += ["--inexact"] if job.inexact else []
    else:
        command = ["train", *job.arguments]
    # The sweep takes a trial for started when its log grows.
    print(f"cores {cores}: slsac {shlex.join(command)}", flush=True)
    return command


def _end_with_the_sweep() -> None:
    # Below Python's buffers: a thread that waits inside them upsets the interpreter's exit.
    while os.read(0, 1):
        pass
    os._exit(1)


def claim_cores(count: int, folder: Path | None = None) -> list[int]:
    """Bind this process to ``count`` cores that no other trial on this machine has.

    Where all are taken, it shares some: JAX's bits depend on how many cores a process sees, not
    on which. A claim is a file lock, which the system releases when the process ends.
    """
    if not hasattr(os, "sched_setaffinity"):
        return []
    allowed = sorted(os.sched_getaffinity(0))
    if count > len(allowed):
        raise InvalidInput(
            f"cores_per_trial is {count}; this machine allows at most {len(allowed)}"
        )
    folder = folder or Path(tempfile.gettempdir()) / f"slsac-cores-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    claimed: list[int] = []
    for core in allowed:
        if len(claimed) < count and _claim(folder / str(core)):
            claimed.append(core)
    start = os.getpid() % len(allowed)
    others = [core for core in allowed[start:] + allowed[:start] if core not in claimed]
    cores = (claimed + others)[:count]
    os.sched_setaffinity(0, cores)
    return cores


def _claim(path: Path) -> bool:
    # The handle is left open on purpose: the claim ends with the process.
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return False
    return True


def require_same_source(source: str) -> None:
    """Raise InvalidInput unless this machine's source is the one that the sweep started from."""
    # Not at the top: JAX counts the cores when it is imported, before they are claimed.
    from slsac.runs.provenance import source_digest

    if source_digest() != source:
        raise InvalidInput(
            f"slsac's source is {source_digest()} on {os.uname().nodename}; it must be {source}, "
            "which the sweep was started from (--inexact: continue anyway)"
        )


def _wait_for_lock(run: Path) -> None:
    deadline = time.monotonic() + LOCK_PATIENCE_SECONDS
    while (run / MARKER).exists() and time.monotonic() < deadline:
        try:
            RunLock(run).release()
            return
        except InvalidInput:
            time.sleep(0.2)
