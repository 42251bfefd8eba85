"""Trials as Ray tasks: Ray chooses the machine, and the run directory holds everything else.

A task only starts the process that the local backend would start, and waits for it. When Ray loses
the task with its worker or its machine, the sweep submits it again and the process resumes the run
from its checkpoint. For that the sweep's folder must be on storage that all machines share.
"""

from __future__ import annotations

import logging
import math
import os
from pathlib import Path
from typing import Any

from slsac.errors import InvalidInput
from slsac.runs.provenance import available_cores
from slsac.sweep import process
from slsac.sweep.process import Job, Outcome

STOP_SECONDS = 10.0


class RayBackend:
    """Submits each trial as a Ray task."""

    def __init__(
        self, workers: int | None, cores_per_trial: int, gpus_per_trial: float, address: str | None
    ) -> None:
        """Join the cluster at ``address`` (or RAY_ADDRESS), or start one on this machine.

        Args:
            workers: trials submitted at once; if None, all are, and Ray queues them.
        """
        # Usage statistics are off unless someone turns them on: a sweep reports to nobody.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        # The default hides the GPUs from tasks that ask for none, and warns that this will change.
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        try:
            import ray
        except ImportError:
            raise InvalidInput(
                "backend 'ray' needs the extra 'ray'; run `pip install 'slsac[ray]'`"
            ) from None
        self._ray = ray
        self.slots: float = workers or math.inf
        address = address or os.environ.get("RAY_ADDRESS") or "local"
        here: dict[str, Any] = {"num_cpus": available_cores(), "include_dashboard": False}
        try:
            ray.init(
                address,
                log_to_driver=False,
                logging_level=logging.ERROR,
                **(here if address == "local" else {}),
            )
        except (ConnectionError, ValueError) as error:
            reason = str(error).strip().splitlines()[0]
            raise InvalidInput(f"no Ray cluster answers at {address!r}: {reason}") from None
        self._task = ray.remote(
            num_cpus=cores_per_trial,
            num_gpus=gpus_per_trial,
            # The sweep itself submits lost trials again: it knows whether they advance.
            max_retries=0,
        )(run_on_node)
        self._running: dict[Any, str] = {}
        self._logs: dict[str, tuple[Path, int]] = {}

    def submit(self, name: str, job: Job) -> None:
        log = Path(job.log)
        self._logs[name] = (log, _size(log))
        self._running[self._task.options(name=name).remote(job)] = name

    def started(self, name: str) -> bool:
        # A trial begins with a line in its log; Ray itself tells only its dashboard.
        log, before = self._logs[name]
        return _size(log) > before

    def wait(self, seconds: float) -> list[tuple[str, Outcome]]:
        """The trials that have ended; an empty list if none ends within ``seconds``."""
        ended, _ = self._ray.wait(list(self._running), num_returns=1, timeout=seconds)
        return [(self._running.pop(reference), self._result(reference)) for reference in ended]

    def _result(self, reference: Any) -> Outcome:
        errors = self._ray.exceptions
        try:
            return Outcome(*self._ray.get(reference))
        except errors.RayTaskError as error:
            return Outcome("failed", str(error).strip().splitlines()[-1])
        except errors.RayError as error:
            return Outcome("lost", f"{type(error).__name__}: {str(error).strip().splitlines()[0]}")

    def stop(self) -> None:
        """Stop every trial and leave the cluster, which ends if this sweep started it."""
        submitted = list(self._running)
        for reference in submitted:
            self._ray.cancel(reference, force=True)
        if submitted:
            self._ray.wait(submitted, num_returns=len(submitted), timeout=STOP_SECONDS)
        self._running.clear()
        self._ray.shutdown()


def run_on_node(job: Job) -> Outcome:
    """Run a trial on this machine; the body of the Ray task."""
    if not Path(job.log).parent.is_dir():
        return Outcome(
            "failed",
            f"{Path(job.log).parent} does not exist on {os.uname().nodename}; a sweep's folder "
            "must be on storage that all machines share",
        )
    child = process.launch(job)
    try:
        returncode = child.wait()
    except BaseException:
        child.kill()
        child.wait()
        raise
    finally:
        process.close(child)
    return process.outcome(returncode, Path(job.log))


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
