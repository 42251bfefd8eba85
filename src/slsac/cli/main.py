"""The entry point: runs one command and turns errors into one line and an exit code."""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from collections.abc import Sequence

from slsac.cli.parser import parse, run_command
from slsac.errors import Failed, InvalidInput, TrainingFailed

DEBUG = "SLSAC_DEBUG"
"""Environment variable with which an unexpected error shows its traceback."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    try:
        return run_command(parse(arguments))
    except InvalidInput as error:
        return _fail(error, 2)
    except TrainingFailed as error:
        return _fail(f"training stopped: {error}", 1)
    except KeyboardInterrupt:
        return _fail("interrupted", 130)
    except BrokenPipeError:
        return 1
    except (Failed, OSError) as error:
        return _fail(error, 1)
    except Exception as error:
        if DEBUG in os.environ:
            raise
        return _fail(_unexpected(error), 1)


def _unexpected(error: Exception) -> str:
    """One line for what nobody foresaw; the traceback goes to a file."""
    with tempfile.NamedTemporaryFile(
        "w", prefix="slsac-", suffix=".txt", delete=False, encoding="utf-8"
    ) as details:
        traceback.print_exception(error, file=details)
    said = " ".join(str(error).split())[:300]
    where = f"details in {details.name}; {DEBUG}=1 shows them"
    return f"unexpected {type(error).__name__}: {said} ({where})"


def _fail(message: object, exit_code: int) -> int:
    print(f"slsac: {message}", file=sys.stderr)
    return exit_code
