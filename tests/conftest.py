"""Shared by all tests: a compilation cache, repeatable examples, and runs that are closed."""

from __future__ import annotations

import os
import tempfile
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
from hypothesis import settings

from slsac.training import launch
from slsac.training.off_policy import OffPolicyTrainer
from tests.support.agents import small_config

# The same examples in every run: a failure that comes and goes teaches nobody anything.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., OffPolicyTrainer]]:
    """Starts small training runs in directories of their own and closes them afterwards."""
    started: list[OffPolicyTrainer] = []

    def make(env: str, algo: str = "sl-sac", **overrides: Any) -> OffPolicyTrainer:
        config = small_config(env, algo, **overrides)
        started.append(launch.start(config, tmp_path / f"run-{len(started)}"))
        return started[-1]

    yield make
    for trainer in started:
        trainer.close()
