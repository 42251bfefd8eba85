"""The entry point: runs one command and turns errors into one line and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from slsac.cli.parser import parse, run_command
from slsac.errors import Failed, InvalidInput, TrainingFailed


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


def _fail(message: object, exit_code: int) -> int:
    print(f"slsac: {message}", file=sys.stderr)
    return exit_code
