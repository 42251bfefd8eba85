"""``slsac sweep``: train a grid of algorithms, tasks and seeds."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from slsac.errors import InvalidInput

if TYPE_CHECKING:
    from slsac.sweep.schedule import Backend, ScheduledTrial
    from slsac.sweep.spec import Spec, Trial
    from slsac.sweep.view import View

HELP = "train a grid of algorithms, tasks and seeds"
RECORDED = Path("results")
"""Runs that were kept; a dry run knows their speed."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "spec", help="YAML file, or the name of a spec that comes with slsac: quick, table1, ..."
    )
    parser.add_argument("--out", type=Path, help="folder of the trials (runs/NAME)")
    parser.add_argument(
        "--backend",
        choices=("local", "ray"),
        default="local",
        help="where trials run (%(default)s)",
    )
    parser.add_argument("--workers", type=int, help="trials at once (as many as there is room for)")
    parser.add_argument(
        "--retries", type=int, default=3,
        help="restarts of a trial killed without progress (%(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--inexact", action="store_true", help="continue even if versions have changed"
    )
    parser.add_argument(
        "--address", help="address of a running Ray cluster (RAY_ADDRESS, or a new one)"
    )
    parser.add_argument(
        "--gpus-per-trial", type=float, default=0.0, help="GPUs per trial (ray only)"
    )
    parser.add_argument("--dry-run", action="store_true", help="list trials and estimated time")


def run(options: argparse.Namespace) -> int:
    from slsac.runs.provenance import available_cores
    from slsac.sweep import estimate, products, schedule, spec
    from slsac.sweep.view import View

    _check(options)
    options.spec = spec.find(options.spec)
    sweep = spec.load(options.spec)
    cores = sweep.cores_per_trial
    # Resolved: a Ray worker has another working directory.
    out = (options.out or Path("runs") / sweep.name).resolve()
    trials = spec.expand(sweep, out)
    planned = schedule.plan(trials, cores, inexact=options.inexact)
    if options.dry_run:
        workers = options.workers or max(1, available_cores() // cores)
        for line in estimate.describe(planned, cores, workers, [out, RECORDED]):
            print(line)
        return 0
    products.require_packages(sweep.products)
    view = View(planned)
    try:
        if any(scheduled.state == "waiting" for scheduled in planned.values()):
            _train(options, sweep, out, planned, view)
    except KeyboardInterrupt:
        view.note("stopped; the same command continues the trials")
        return 130
    finally:
        view.close()
    if not _report_failures(planned, view):
        return 1
    view.note(f"{view.summary()}, in {out}")
    for folder in [out / variant for variant in sweep.variants] or [out]:
        runs = [trial.run for trial in trials if folder in trial.run.parents]
        products.write_products(sweep.products, runs, folder, view.note)
    return 0


def _check(options: argparse.Namespace) -> None:
    """Raise InvalidInput for flags that are out of range or do not fit the backend."""
    for name, least in (("workers", 1), ("retries", 0), ("gpus_per_trial", 0)):
        value = getattr(options, name)
        if value is not None and value < least:
            raise InvalidInput(
                f"--{name.replace('_', '-')} is {value}; it must be at least {least}"
            )
    if options.backend == "local" and (options.address or options.gpus_per_trial):
        flag = "address" if options.address else "gpus-per-trial"
        raise InvalidInput(f"--{flag} is for --backend ray; the backend is local")


def _train(
    options: argparse.Namespace, sweep: Spec, out: Path, planned: dict[str, ScheduledTrial],
    view: View,
) -> None:  # fmt: skip
    from slsac.runs.provenance import source_digest
    from slsac.sweep.schedule import make_job, run_trials

    out.mkdir(parents=True, exist_ok=True)
    (out / "spec.yaml").write_bytes(options.spec.read_bytes())
    job_of = partial(
        make_job, cores=sweep.cores_per_trial, inexact=options.inexact, source=source_digest()
    )
    backend = _backend(options, sweep.cores_per_trial)
    run_trials(planned, job_of, backend, view, retries=options.retries)


def _backend(options: argparse.Namespace, cores: int) -> Backend:
    from slsac.runs.provenance import available_cores
    from slsac.sweep.local import LocalBackend
    from slsac.sweep.ray import RayBackend

    if options.backend == "ray":
        return RayBackend(options.workers, cores, options.gpus_per_trial, options.address)
    if cores > available_cores():
        raise InvalidInput(
            f"cores_per_trial is {cores}; it must be at most {available_cores()}, the cores that "
            "this process may use"
        )
    return LocalBackend(options.workers, cores)


def _report_failures(planned: dict[str, ScheduledTrial], view: View) -> bool:
    """Name the trials that failed and their logs; True where there are none."""
    failed = [scheduled for scheduled in planned.values() if scheduled.state == "failed"]
    for scheduled in failed:
        trial: Trial = scheduled.trial
        view.note(f"failed  {trial.name}: {scheduled.error} (log: {trial.log})")
    if failed:
        view.note(f"{view.summary()}; the same command tries the failed ones again")
    return not failed
