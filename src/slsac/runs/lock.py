"""Keeps two processes from training one run."""

from __future__ import annotations

import errno
import fcntl
import os
import weakref
from pathlib import Path

from slsac.errors import InvalidInput
from slsac.runs.layout import LOCK


class RunLock:
    """Held from construction until `release()`, or until nobody has the object any more."""

    def __init__(self, run: Path) -> None:
        try:
            file = os.open(run / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            raise InvalidInput(
                f"{run / LOCK} is a link; a run that is written to must hold none"
            ) from None
        # An agent that nobody closes must not keep its run from the next one.
        self.release = weakref.finalize(self, os.close, file)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.release()
            raise InvalidInput(f"run {str(run)!r} is in use by another process or agent") from None
