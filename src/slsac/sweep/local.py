"""Trials as processes on this machine."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from slsac.runs.provenance import available_cores
from slsac.sweep import process
from slsac.sweep.process import Job, Outcome

POLL_SECONDS = 0.1


class LocalBackend:
    """Starts each trial as a process of this machine."""

    def __init__(self, workers: int | None, cores_per_trial: int) -> None:
        """``workers``: trials at once; if None, as many as there are cores for."""
        self.slots: float = workers or max(1, available_cores() // cores_per_trial)
        self._running: dict[str, tuple[subprocess.Popen[bytes], Path]] = {}

    def submit(self, name: str, job: Job) -> None:
        self._running[name] = (process.launch(job), Path(job.log))

    def started(self, name: str) -> bool:
        return True

    def wait(self, seconds: float) -> list[tuple[str, Outcome]]:
        """The trials that have ended; an empty list if none ends within ``seconds``."""
        deadline = time.monotonic() + seconds
        while True:
            ended = [name for name, (child, _) in self._running.items() if child.poll() is not None]
            if ended or time.monotonic() >= deadline:
                return [(name, self._take(name)) for name in ended]
            time.sleep(POLL_SECONDS)

    def _take(self, name: str) -> Outcome:
        child, log = self._running.pop(name)
        process.close(child)
        return process.outcome(child.returncode, log)

    def stop(self) -> None:
        """Stop every trial; what they have reached is in their run directories."""
        process.stop_all([child for child, _ in self._running.values()])
        self._running.clear()
