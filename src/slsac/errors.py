"""Errors that are the user's to mend: one line that says what is wrong and what is allowed."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InvalidInput(ValueError):
    """Bad input. The command line prints its text as one line and exits with code 2."""


class TrainingFailed(RuntimeError):
    """Training cannot go on; the text says why and where the last good checkpoint is."""


class EnvFailed(TrainingFailed):
    """The environment cannot go on."""


def unknown_name(kind: str, name: str, allowed: Iterable[str]) -> InvalidInput:
    """The error for a name that does not exist, with the nearest ones that do."""
    known = sorted(allowed)
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(known)}"
    return InvalidInput(f"{kind} {name!r} does not exist; {hint}")
