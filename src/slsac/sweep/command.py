"""`slsac sweep`: from its options to an exit code."""

from __future__ import annotations

import argparse
from pathlib import Path

from slsac.errors import InvalidInput
from slsac.runs.provenance import available_cores
from slsac.sweep import schedule as sweep
from slsac.sweep import spec as grid
from slsac.sweep.local import LocalBackend
from slsac.sweep.ray import RayBackend
from slsac.sweep.view import View

RECORDED = Path("results")
"""Runs that were kept; their speed is known to a dry run."""


def run_sweep(options: argparse.Namespace) -> int:
    """Does what the command line asks for; 1 where a trial failed."""
    for name, least in (("workers", 1), ("retries", 0), ("gpus_per_trial", 0)):
        value = getattr(options, name)
        if value is not None and value < least:
            raise InvalidInput(
                f"--{name.replace('_', '-')} is {value}; it must be at least {least}"
            )
    if options.backend == "local" and (options.address or options.gpus_per_trial):
        given = "address" if options.address else "gpus-per-trial"
        raise InvalidInput(f"--{given} is for --backend ray; the backend is local")
    spec = grid.load(options.spec)
    cores = spec.cores_per_trial
    # Resolved: a Ray worker has another working directory.
    out = (options.out or Path("runs") / spec.name).resolve()
    entries = sweep.plan(grid.expand(spec, out), cores, inexact=options.inexact)
    if options.dry_run:
        workers = options.workers or max(1, available_cores() // cores)
        for line in sweep.describe(entries, cores, workers, [out, RECORDED]):
            print(line)
        return 0
    sweep.require_products(spec)
    trials = [entry.trial for entry in entries.values()]
    view = View(entries)
    try:
        if any(entry.state == "waiting" for entry in entries.values()):
            out.mkdir(parents=True, exist_ok=True)
            (out / "spec.yaml").write_bytes(options.spec.read_bytes())
            jobs = {
                trial.name: sweep.make_job(trial, cores, inexact=options.inexact)
                for trial in trials
            }
            backend: sweep.Backend
            if options.backend == "local":
                if cores > available_cores():
                    raise InvalidInput(
                        f"cores_per_trial is {cores}; it must be at most {available_cores()}, the "
                        "cores that this process may use"
                    )
                backend = LocalBackend(options.workers, cores)
            else:
                backend = RayBackend(
                    options.workers, cores, options.gpus_per_trial, options.address
                )
            try:
                sweep.run(entries, jobs, backend, view, retries=options.retries)
            except KeyboardInterrupt:
                view.note("stopped; the same command goes on where the trials were")
                return 130
    finally:
        view.close()
    failed = [entry for entry in entries.values() if entry.state == "failed"]
    for entry in failed:
        log = entry.trial.run.parent / f"{entry.trial.run.name}.log"
        view.note(f"failed  {entry.trial.name}: {entry.error} (log: {log})")
    if failed:
        view.note(f"{view.summary()}; the same command tries the failed ones again")
        return 1
    view.note(f"{view.summary()}, in {out}")
    sweep.make_products(spec, trials, out, view.note)
    return 0
