"""Keeps two processes from training one run."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from slsac.errors import InvalidInput


class RunLock:
    """Held from construction until `release`; the system lets go of it when the process ends."""

    def __init__(self, run: Path) -> None:
        self._file: int | None = os.open(run / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.release()
            raise InvalidInput(f"run {str(run)!r} is in use by another process") from None

    def release(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
