"""Short runs, stopped or not, and all of their bytes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from slsac.config import Config, OnPolicyConfig
from slsac.training import launch
from tests.support.agents import small_config

EXACT_FILES = ("progress.jsonl", "episodes.jsonl", "evaluations.jsonl", "policy.safetensors")


def quick_config(algo: str = "sl-sac", **overrides: Any) -> Config:
    """300 steps of ten-step episodes, with epochs and checkpoints that fall between them."""
    settings: dict[str, Any] = {
        "steps": 300,
        "warmup_steps": 60,
        "batch_size": 16,
        "steps_per_epoch": 45,
        "evaluate_every_epochs": 2,
        "checkpoint_every_steps": 40,
        "multiplier__learning_rate": 1e-3,
        "cost_limit": 1.0,
        "policy__temperature": 0.01,
    }
    return small_config("ProbeChoice-v0", algo, **(settings | overrides))


def everything(run: Path) -> dict[str, bytes]:
    """Bytes of all that must not depend on interruptions."""
    files = [run / name for name in EXACT_FILES]
    files += sorted(path for path in (run / "checkpoints").rglob("*") if path.is_file())
    return {str(path.relative_to(run)): path.read_bytes() for path in files}


def undisturbed(run: Path, config: Config) -> dict[str, bytes]:
    trainer = launch.start(config, run)
    trainer.advance(config.steps)
    trainer.finish()
    trainer.close()
    return everything(run)


def stopped(run: Path, config: Config, *stops: int) -> dict[str, bytes]:
    """The same run, abandoned at each step of ``stops``; closing only lets go of the lock."""
    trainer = launch.start(config, run)
    for stop in stops:
        trainer.advance(stop)
        trainer.close()
        trainer = launch.resume(run)
        # It continues close to where it stopped, and does not begin again.
        between = config.steps_per_epoch if isinstance(config, OnPolicyConfig) else 10
        assert 0 <= stop - trainer.step <= config.checkpoint_every_steps + between
    trainer.advance(config.steps)
    trainer.finish()
    trainer.close()
    return everything(run)


def slsac(*arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "slsac", *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=os.environ,
    )


def finished_steps(run: Path) -> int:
    """How far a run has come, by its episode log; a line may be torn at this very moment."""
    path = run / "episodes.jsonl"
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return int(json.loads(lines[-1])["step"]) if lines else 0
