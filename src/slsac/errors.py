"""Errors that a user can act on: one line that says what is wrong and what is allowed."""

from __future__ import annotations

import contextlib
import difflib
import traceback
from collections.abc import Iterable, Iterator, Sequence


class InvalidInput(ValueError):
    """Bad input. The command line prints its text as one line and exits with code 2."""


class Failed(RuntimeError):
    """Work that cannot continue. The command line prints its text as one line and exits with 1."""


class TrainingFailed(Failed):
    """Training cannot continue; the text says why and where the last good checkpoint is."""


class EnvFailed(Failed):
    """The environment cannot continue."""


class RunDamaged(Failed):
    """Files of a run are missing or do not fit together."""


LONGEST_VALUE = 80
"""Characters of a value that a message shows."""
MOST_NAMES = 60
"""Names that a message lists."""


def brief(value: object, *, quoted: bool = True) -> str:
    """A value as a message shows it: on one line, and cut off where it is long."""
    if isinstance(value, (dict, list, tuple)) and len(value) > LONGEST_VALUE:
        return f"a {type(value).__name__} of {len(value):,} items"
    try:
        shown = repr(value) if quoted else " ".join(str(value).split())
    except (ValueError, RecursionError):  # digits or nesting without end
        return f"a very large {type(value).__name__}"
    return shown if len(shown) <= LONGEST_VALUE else f"{shown[:LONGEST_VALUE]}..."


def env_failure(error: BaseException) -> EnvFailed:
    """What an environment raised, as one line with its file and line: no traceback is shown."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    file, line = frame.filename, frame.lineno
    if isinstance(error, SyntaxError):
        file, line = error.filename or file, error.lineno
    text = " ".join(str(error).split())
    return EnvFailed(f"{type(error).__name__}: {text} ({file}, line {line})")


@contextlib.contextmanager
def env_failures() -> Iterator[None]:
    """Turn whatever a call of an environment raises into `EnvFailed`."""
    try:
        yield
    except (InvalidInput, Failed):
        raise
    # An env that calls sys.exit must not end training as if it had succeeded.
    except (Exception, SystemExit) as error:
        raise env_failure(error) from error


def _nearest(name: str, known: Sequence[str]) -> list[str]:
    """At most three: the same but for case and marks, those that begin alike, similar ones."""

    def plain(text: str) -> str:
        return "".join(filter(str.isalnum, text.lower()))

    wanted = plain(name)
    same = [other for other in known if plain(other) == wanted]
    begun = [other for other in known if len(wanted) >= 3 and plain(other).startswith(wanted)]
    similar = difflib.get_close_matches(name, known, n=3, cutoff=0.6)
    return same or list(dict.fromkeys(begun + similar))[:3]


def unknown_name(kind: str, name: str, allowed: Iterable[str]) -> InvalidInput:
    """The error for a name that does not exist; it suggests the nearest names that do."""
    known = sorted(allowed)
    near = _nearest(name, known)
    shown = known if len(known) <= MOST_NAMES else [*known[:MOST_NAMES], f"... {len(known)} in all"]
    hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(shown)}"
    return InvalidInput(f"{kind} {brief(name)} does not exist; {hint}")
