"""A trial's process, before it trains."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from slsac.errors import InvalidInput
from slsac.runs.provenance import source_digest
from slsac.sweep import child


def test_trials_on_one_machine_take_different_cores(tmp_path: Path) -> None:
    code = (
        "import sys, os; from pathlib import Path;"
        "from slsac.sweep.child import claim_cores;"
        "print(claim_cores(1, Path(sys.argv[1])), sorted(os.sched_getaffinity(0)), flush=True);"
        "sys.stdin.read()"
    )
    allowed = len(os.sched_getaffinity(0))
    started = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for _ in range(allowed + 1)
    ]  # fmt: skip
    claims = []
    for process in started:
        assert process.stdout is not None
        claims.append(process.stdout.readline().strip())
    for process in started:
        process.communicate("")
    cores = sorted(os.sched_getaffinity(0))
    for claim in claims:
        assert claim in [f"[{core}] [{core}]" for core in cores]
    # One more than there are cores: every core is taken, and one of them twice.
    assert len(set(claims)) == allowed
    with pytest.raises(InvalidInput, match=f"cores_per_trial is {allowed + 1}; this machine"):
        child.claim_cores(allowed + 1, tmp_path)


def test_a_trial_is_trained_by_the_source_that_its_sweep_was_started_from() -> None:
    child.require_same_source(source_digest())
    with pytest.raises(InvalidInput, match=r"slsac's source is \w+ on .*; it must be other"):
        child.require_same_source("other")
