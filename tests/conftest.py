"""Shared by all tests: a compilation cache, and small agents on probe tasks."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

# Compiling is most of what a test of training costs. Set before jax is imported, so that
# subprocesses inherit it; the bits do not depend on it.
os.environ.setdefault(
    "JAX_COMPILATION_CACHE_DIR",
    str(Path(tempfile.gettempdir()) / f"slsac-test-jax-cache-{os.getuid()}"),
)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")

import pytest
import yaml
from hypothesis import settings

from slsac.config import Config, OnPolicyConfig
from slsac.config.overrides import with_overrides
from slsac.config.presets import preset
from slsac.training import launch
from slsac.training.off_policy import Trainer

# The same examples in every run: a failure that comes and goes teaches nobody anything.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")

SMALL: dict[str, Any] = {
    "policy.hidden": (32, 32),
    "reward_critic.hidden": (32, 32),
    "cost_critic.hidden": (32, 32),
    "policy.optimiser.learning_rate": 1e-3,
    "reward_critic.optimiser.learning_rate": 3e-3,
    "cost_critic.optimiser.learning_rate": 3e-3,
    "policy.temperature": 0.0,
    "polyak": 0.05,
    "warmup_steps": 200,
    "batch_size": 64,
    "replay_capacity": 10_000,
    "multiplier_warmup_steps": 0,
    "multiplier.initial": 0.0,
    "evaluate_every_epochs": 1_000,
    "final_evaluation_episodes": 2,
}
"""Settings under which a probe task is learned in seconds."""

SMALL_ON_POLICY: dict[str, Any] = {
    "policy.hidden": (16, 16),
    "reward_critic.hidden": (16, 16),
    "cost_critic.hidden": (16, 16),
    "policy.optimiser.learning_rate": 3e-3,
    "reward_critic.optimiser.learning_rate": 1e-2,
    "cost_critic.optimiser.learning_rate": 1e-2,
    "worker_processes": 0,
    "steps_per_epoch": 400,
    "batch_size": 50,
    "passes": 10,
    "multiplier.initial": 0.0,
    "multiplier.window": 40,
    "evaluate_every_epochs": 1_000,
    "final_evaluation_episodes": 2,
}
"""The same for on-policy agents."""


def small_config(env: str, algo: str = "sl-sac", **overrides: Any) -> Config:
    """A small agent; dots in field names are written as two underscores."""
    named = {name.replace("__", "."): value for name, value in overrides.items()}
    config = preset(algo, env)
    small = SMALL_ON_POLICY if isinstance(config, OnPolicyConfig) else SMALL
    return with_overrides(config, small | named)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Trainer]]:
    """Starts small training runs in directories of their own and closes them afterwards."""
    started: list[Trainer] = []

    def make(env: str, algo: str = "sl-sac", **overrides: Any) -> Trainer:
        config = small_config(env, algo, **overrides)
        started.append(launch.start(config, tmp_path / f"run-{len(started)}"))
        return started[-1]

    yield make
    for trainer in started:
        trainer.close()


SMALL_SPEC: dict[str, Any] = {
    "name": "small",
    "algos": ["sac-lag"],
    "envs": ["ProbeChoice-v0"],
    "seeds": [0, 1],
    "steps": 1_200,
    "overrides": {
        "common": {
            "warmup_steps": 60,
            "multiplier_warmup_steps": 0,
            "batch_size": 16,
            "replay_capacity": 10_000,
            "steps_per_epoch": 200,
            "evaluate_every_epochs": 4,
            "checkpoint_every_steps": 100,
            "final_evaluation_episodes": 2,
            "policy.hidden": [16, 16],
            "reward_critic.hidden": [16, 16],
            "cost_critic.hidden": [16, 16],
        }
    },
}
"""A sweep of two trials that take seconds."""


def write_spec(folder: Path, **fields: Any) -> Path:
    """A file with the small sweep's spec, some of its fields replaced."""
    path = folder / "spec.yaml"
    path.write_text(yaml.safe_dump(SMALL_SPEC | fields))
    return path


def wait_for(condition: Callable[[], Any], process: subprocess.Popen[Any] | None = None) -> Any:
    """The first truth that ``condition`` returns, while ``process`` is still at it."""
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline:
        if found := condition():
            return found
        if process is not None and process.poll() is not None:
            raise AssertionError(f"it ended before: {process.communicate()}")
        time.sleep(0.01)
    raise AssertionError("it did not happen")
