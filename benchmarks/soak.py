"""Kills runs at random moments, resumes them, and compares them with undisturbed ones.

    taskset -c 0 python benchmarks/soak.py --kills 100 --out soak.json
    taskset -c 0 python benchmarks/soak.py --kills 40 --only run --signals KILL TERM INT

Subjects: a run with full-size networks, a run that branches off another, a sweep, and seeds that
learn together. All bytes are compared. Seeds that learned together are resumed one by one, which
rounds differently, so they need only end complete. Everything lies in a folder that is removed at
the end, unless `--keep` names one.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml

from slsac.runs import checkpoint
from slsac.runs.layout import CHECKPOINTS, CONFIG, EXACT_LOGS, POLICY
from slsac.runs.steps import completed_step

ALGO, ENV = "sl-sac-2", "SafetyHopperVelocity-v1"
EVERY = 100
"""Steps between checkpoints: a life must reach one, or it has been in vain."""
SETTINGS = {
    "warmup_steps": 500, "multiplier_warmup_steps": 1_000, "steps_per_epoch": 500,
    "evaluate_every_epochs": 4, "evaluation_episodes": 1, "final_evaluation_episodes": 2,
    "checkpoint_every_steps": EVERY, "replay_capacity": 20_000,
}  # fmt: skip
TINY = {"policy.hidden": "16,16", "reward_critic.hidden": "16,16", "cost_critic.hidden": "16,16"}
IN_VAIN = 0.3
"""Share of lives that are ended before they can reach a checkpoint, most of them while starting."""
SIGNALS = [signal.SIGKILL]
"""What ends a life; `main` may choose others."""


def flags(settings: dict[str, Any]) -> list[str]:
    return [word for name, value in settings.items() for word in (f"--{name}", str(value))]


def slsac(*arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "slsac", *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


def finish(process: subprocess.Popen[bytes]) -> None:
    _, errors = process.communicate()
    if process.returncode != 0:
        raise SystemExit(f"a run failed: {errors.decode()}")


def everything(run: Path) -> dict[str, bytes]:
    """All bytes that must not depend on interruptions."""
    files = [run / name for name in (*EXACT_LOGS, POLICY)]
    files += [path for path in sorted((run / CHECKPOINTS).rglob("*")) if path.is_file()]
    return {str(path.relative_to(run)): path.read_bytes() for path in files}


def kill_often(
    begin: Sequence[str],
    proceed: Sequence[str],
    runs: Sequence[Path],
    kills: int,
    moments: random.Random,
) -> int:
    """Starts, kills and restarts a command; the number of kills before it ended by itself.

    Args:
        proceed: the command after the first kill.
        runs: the run directories in which progress is looked for.
    """

    def reached() -> int:
        return sum(checkpoint.newest_step(run / CHECKPOINTS) for run in runs)

    for number in range(kills):
        started = any((run / CONFIG).exists() for run in runs)
        process, before = slsac(*(proceed if started else begin)), reached()
        if moments.random() > IN_VAIN:
            while reached() == before and process.poll() is None:
                time.sleep(0.05)
            time.sleep(moments.uniform(0.0, 2.0))
        else:
            time.sleep(moments.uniform(0.0, 8.0))
        if process.poll() is not None:
            finish(process)
            return number
        process.send_signal(moments.choice(SIGNALS))
        process.communicate()
    finish(slsac(*(proceed if any((run / CONFIG).exists() for run in runs) else begin)))
    return kills


def compared(subject: str, kills: int, pairs: Sequence[tuple[Path, Path]]) -> dict[str, Any]:
    """What was found; raises if a byte differs."""
    files = 0
    for killed, undisturbed in pairs:
        ours, theirs = everything(killed), everything(undisturbed)
        differing = sorted(
            name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name)
        )
        if differing:
            raise SystemExit(f"{subject}: {killed} differs from {undisturbed} in {differing}")
        files += len(ours)
    return {"subject": subject, "kills": kills, "files": files, "equal": True}


def soak_run(folder: Path, settings: dict[str, Any], kills: int, moments: random.Random) -> Any:
    task = ["--algo", ALGO, "--env", ENV]
    train = ["train", *task, *flags(settings), "--steps", str(2 * EVERY * kills)]
    finish(slsac(*train, "--run", str(folder / "undisturbed")))
    run = folder / "killed"
    done = kill_often([*train, "--run", str(run)], ["resume", str(run)], [run], kills, moments)
    return compared("run", done, [(run, folder / "undisturbed")])


def soak_branch(folder: Path, settings: dict[str, Any], kills: int, moments: random.Random) -> Any:
    train = ["train", "--env", ENV, *flags(settings), "--steps", str(1_000 + 2 * EVERY * kills)]
    finish(slsac(*train, "--run", str(folder / "source")))
    other = [*train, "--multiplier.learning-rate", "1e-3"]
    finish(slsac(*other, "--run", str(folder / "undisturbed")))
    run = folder / "killed"
    begin = [*other, "--from", str(folder / "source"), "--run", str(run)]
    done = kill_often(begin, ["resume", str(run)], [run], kills, moments)
    return compared("branch", done, [(run, folder / "undisturbed")])


def soak_sweep(folder: Path, settings: dict[str, Any], kills: int, moments: random.Random) -> Any:
    spec = {
        "name": "soak", "algos": ["sl-sac", "sac-lag"], "envs": [ENV], "seeds": [0],
        "steps": EVERY * kills, "overrides": {"common": settings},
    }  # fmt: skip
    (folder / "soak.yaml").write_text(yaml.safe_dump(spec), encoding="utf-8")
    sweep = ["sweep", str(folder / "soak.yaml"), "--workers", "2", "--out"]
    finish(slsac(*sweep, str(folder / "undisturbed")))
    names = [Path(algo) / ENV / "seed0" for algo in ("sl-sac", "sac-lag")]
    runs = [folder / "killed" / name for name in names]
    again = [*sweep, str(folder / "killed")]
    done = kill_often(again, again, runs, kills, moments)
    undisturbed = [folder / "undisturbed" / name for name in names]
    return compared("sweep", done, list(zip(runs, undisturbed, strict=True)))


def soak_cohort(folder: Path, settings: dict[str, Any], kills: int, moments: random.Random) -> Any:
    steps = 2 * EVERY * kills
    train = ["train", "--env", ENV, *flags(settings), "--steps", str(steps), "--seeds", "2"]
    runs = [folder / "killed" / f"seed{seed}" for seed in (0, 1)]
    process = slsac(*train, "--run", str(folder / "killed"))
    while not all(checkpoint.newest_step(run / CHECKPOINTS) for run in runs):
        time.sleep(0.05)
    time.sleep(moments.uniform(0.0, 2.0))
    process.kill()
    process.communicate()
    done = 1
    for run in runs:
        first, again = ["resume", str(run), "--inexact"], ["resume", str(run)]
        process = slsac(*first)
        # From its first inexact step on a run is exact again, on its own.
        time.sleep(moments.uniform(10.0, 20.0))
        process.kill()
        process.communicate()
        begin = again if "before_resume" in (run / CONFIG).read_text() else first
        done += 1 + kill_often(begin, begin, [run], kills // 2, moments)
        if completed_step(run) != steps:
            raise SystemExit(f"cohort: {run} is complete at {completed_step(run)}, not at {steps}")
    return {"subject": "cohort", "kills": done, "complete": True}


SUBJECTS: dict[str, Callable[..., Any]] = {
    "run": soak_run, "branch": soak_branch, "sweep": soak_sweep, "cohort": soak_cohort,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100, help="of the run (%(default)s)")
    parser.add_argument("--others", type=int, default=10, help="of each other subject")
    parser.add_argument("--only", nargs="+", choices=SUBJECTS, default=list(SUBJECTS))
    parser.add_argument("--tiny", action="store_true", help="small networks, to try this out")
    parser.add_argument("--signals", nargs="+", choices=("KILL", "TERM", "INT"), default=["KILL"])
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--keep", type=Path, help="work in this folder and keep it")
    parser.add_argument("--out", type=Path, help="write what was found here, as JSON")
    options = parser.parse_args()
    settings = SETTINGS | (TINY if options.tiny else {})
    SIGNALS[:] = [signal.Signals[f"SIG{name}"] for name in options.signals]
    found = []
    with tempfile.TemporaryDirectory(prefix="slsac-soak-") as temporary:
        for name in options.only:
            folder = (options.keep or Path(temporary)) / name
            folder.mkdir(parents=True)
            kills = options.kills if name == "run" else options.others
            begun = time.monotonic()
            result = SUBJECTS[name](folder, settings, kills, random.Random(options.seed))
            found.append({**result, "minutes": round((time.monotonic() - begun) / 60, 1)})
            print(json.dumps(found[-1]), flush=True)
    if options.out:
        options.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
