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
from tests.support.browser import Page, browser, find_browser

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


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A tab of a real browser."""
    if find_browser() is None:
        if os.environ.get("SLSAC_REQUIRE_BROWSER") == "1":
            pytest.fail("no chromium on the path; `apt-get install chromium` brings it")
        pytest.skip("no chromium on the path (CI sets SLSAC_REQUIRE_BROWSER=1 and has one)")
    with browser(tmp_path_factory.mktemp("profile")) as made:
        yield made
