"""Waiting for something that another process does."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from typing import Any


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
