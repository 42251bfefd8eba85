"""The entry point: runs one command and turns errors into one line and an exit code."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator, Sequence
from typing import Any

from slsac.cli.parser import parse, run_command
from slsac.errors import Failed, InvalidInput, TrainingFailed
from slsac.formatting import one_line

DEBUG = "SLSAC_DEBUG"
"""Environment variable that does what the flag ``--debug`` does: errors show their traceback."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal that knows ASCII alone gets a mark in place of a character, not an error.
        sys.stdout.reconfigure(errors="replace")
    try:
        with _terminated_as_by_ctrl_c():
            return run_command(parse(arguments))
    except BrokenPipeError:
        return 1
    except (Exception, KeyboardInterrupt) as error:
        if "--debug" in arguments or DEBUG in os.environ:
            traceback.print_exception(error)
        message, exit_code = _explained(error)
        print(f"slsac: {one_line(message)}", file=sys.stderr)
        return exit_code


@contextlib.contextmanager
def _terminated_as_by_ctrl_c() -> Iterator[None]:
    """Let SIGTERM, which schedulers and `kill` send, stop a command as Ctrl-C does."""

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may handle signals
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _explained(error: BaseException) -> tuple[str, int]:
    """What to say of an error, and the exit code."""
    if isinstance(error, InvalidInput):
        return str(error), 2
    if isinstance(error, TrainingFailed):
        return f"training stopped: {error}", 1
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", 130
    if isinstance(error, (Failed, OSError)):
        return str(error), 1
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error):
        return f"out of memory: {str(error)[:300]}", 1
    return _unexpected(error), 1


def _unexpected(error: BaseException) -> str:
    """One line for what nobody foresaw; the traceback goes to a file."""
    with tempfile.NamedTemporaryFile(
        "w", prefix="slsac-", suffix=".txt", delete=False, encoding="utf-8", errors="replace"
    ) as details:
        traceback.print_exception(error, file=details)
    where = f"details in {details.name}; --debug shows them"
    return f"unexpected {type(error).__name__}: {one_line(str(error))[:300]} ({where})"
