"""Checkpoints: safetensors for arrays, JSON for the rest; atomic, checksummed, pickle-free.

A checkpoint is a folder ``step-000000012345`` that appears under its name only when it is complete.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors.numpy import save as format_tensors

from slsac.errors import RunDamaged
from slsac.runs import schema
from slsac.runs.identity import digest
from slsac.runs.layout import STATE_FACTS, STATE_TENSORS, write_atomically
from slsac.runs.schema import Optional, flag, list_of, nullable, number, record, text, whole

FINAL = "final"
LAST = "last"
"""The end of the last episode (on-policy: epoch) before a run stopped, where that is newer than the
newest step checkpoint. Writing it does not shift when the next one of those is due."""
STEP_NAME = re.compile(r"step-(\d{12})")
KEPT = 2
"""So many of the newest checkpoints are kept to resume from: one may turn out damaged."""


RANDOM_STATE = record({"bit_generator": text, "state": record({})})
STATE = record(
    {
        "tensors_sha256": text,
        "facts_sha256": text,
        "run": Optional(text),
        "step": Optional(whole),
        "updates": Optional(whole),
        "episode": Optional(whole),
        "resets": Optional(whole),
        "window": Optional(list_of(number)),
        "window_lengths": Optional(list_of(whole)),
        "multiplier": Optional(list_of(schema.anything, 2)),
        "critic_signal": Optional(nullable(number)),
        "tightening": Optional(list_of(list_of(number))),
        "units": Optional(list_of(number, 3)),
        "largest_cost": Optional(number),
        "discount": Optional(list_of(number, 2)),
        "moments": Optional(
            record({"count": whole, "mean": list_of(number), "squares": list_of(number)})
        ),
        "warmup_rng": Optional(RANDOM_STATE),
        "warmup_by_policy": Optional(flag),
        "saved_at": Optional(whole),
        "reached": Optional(whole),
        "replay": Optional(
            record(
                {
                    "added": whole,
                    "row": whole,
                    "cost_sums": list_of(number, 2),
                    "rng": RANDOM_STATE,
                    "checksums": Optional(list_of(whole)),
                }
            )
        ),
        "epoch": Optional(
            record(
                {
                    "sums": record({}, others=number),
                    "counts": record({}, others=whole),
                    "episodes": list_of(list_of(number, 3)),
                }
            )
        ),
        "log_offsets": Optional(
            record({"progress": whole, "episodes": whole, "evaluations": whole})
        ),
    }
)
"""The facts that parts of a run keep in ``state.json``. Which of them there must be differs from
algorithm to algorithm; the parts know it."""
MULTIPLIER = (number, list_of(number))


class Checkpoint(NamedTuple):
    path: Path
    tensors: dict[str, np.ndarray]
    facts: dict[str, Any]


class Damaged(Exception):
    """A checkpoint that cannot be read back as it was written."""


def save(
    folder: Path,
    name: str,
    arrays: dict[str, np.ndarray],
    facts: dict[str, Any],
    *,
    keep_before: int | None = None,
) -> Path:
    """Writes checkpoint ``name`` into ``folder`` and drops all but the newest `KEPT`.

    Args:
        keep_before: the newest one at or before this step is kept as well.
    """
    path = write(folder, name, arrays, facts)
    names = step_names(folder)
    early = [old for old in names if 0 < step_of(old) <= (keep_before or 0)]
    for old in names[:-KEPT]:
        if old not in early[-1:]:
            shutil.rmtree(folder / old)
    shutil.rmtree(folder / LAST, ignore_errors=True)
    return path


def write(folder: Path, name: str, arrays: dict[str, np.ndarray], facts: dict[str, Any]) -> Path:
    """Writes checkpoint ``name`` into ``folder``, in place of one of that name."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = format_tensors(arrays)
    facts = {**facts, "tensors_sha256": hashlib.sha256(tensors).hexdigest()}
    facts = {**facts, "facts_sha256": digest(facts)}
    temporary = folder / f".writing-{name}"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    write_atomically(temporary / STATE_TENSORS, tensors)
    write_atomically(temporary / STATE_FACTS, json.dumps(facts, sort_keys=True, indent=1).encode())
    path = folder / name
    replaced = folder / f".replaced-{name}"
    shutil.rmtree(replaced, ignore_errors=True)
    if path.exists():
        os.replace(path, replaced)
    os.replace(temporary, path)
    shutil.rmtree(replaced, ignore_errors=True)
    _sync_folder(folder)
    return path


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def step_name(step: int) -> str:
    return f"step-{step:012d}"


def step_of(name: str) -> int:
    return int(name.removeprefix("step-"))


def step_names(folder: Path) -> list[str]:
    """Names of the resumable checkpoints, oldest first."""
    return sorted(path.name for path in folder.glob("step-*") if STEP_NAME.fullmatch(path.name))


def newest_step(folder: Path) -> int:
    """The step of the newest step checkpoint, readable or not."""
    names = step_names(folder)
    return step_of(names[-1]) if names else 0


def load(path: Path) -> Checkpoint:
    """Reads one checkpoint, or raises `Damaged` with the reason."""
    try:
        facts = schema.parse_json((path / STATE_FACTS).read_bytes(), STATE, STATE_FACTS)
        if "multiplier" in facts:
            for check, part in zip(MULTIPLIER, facts["multiplier"], strict=True):
                check(part, "multiplier")
        if facts.pop("facts_sha256") != digest(facts):
            raise Damaged(f"{path}: checksum of {STATE_FACTS} does not match")
        data = (path / STATE_TENSORS).read_bytes()
        if hashlib.sha256(data).hexdigest() != facts["tensors_sha256"]:
            raise Damaged(f"{path}: checksum of {STATE_TENSORS} does not match")
        return Checkpoint(path, schema.parse_tensors(data), facts)
    except (OSError, schema.Misfit) as error:
        raise Damaged(f"{path}: {error}") from error


def saved_step(folder: Path, name: str) -> int:
    """The step of checkpoint ``name``, 0 where there is none to read."""
    try:
        return int(load(folder / name).facts.get("step", 0))
    except Damaged:
        return 0


def load_newest(
    folder: Path, require: Callable[[Checkpoint], None] = lambda saved: None
) -> tuple[Checkpoint, list[str]]:
    """The newest readable resumable checkpoint, and a message for each damaged one passed over.

    Args:
        require: raises `Damaged` for a checkpoint that will not do.
    """
    messages: list[str] = []

    def readable(name: str) -> Checkpoint | None:
        try:
            saved = load(folder / name)
            require(saved)
        except Damaged as error:
            messages.append(f"checkpoint is damaged, falling back to the one before: {error}")
            return None
        return saved

    last = readable(LAST) if (folder / LAST).exists() else None
    # An older one may be there to branch off, but the replay need not go back as far.
    names = reversed(step_names(folder)[-KEPT:])
    found = next(filter(None, map(readable, names)), None)
    # A process that was killed while it saved may leave an old LAST behind.
    candidates = [saved for saved in (found, last) if saved is not None]
    if not candidates:
        raise RunDamaged("; ".join([*messages, f"{folder} holds no readable checkpoint"]))
    return max(candidates, key=lambda saved: saved.facts.get("step", 0)), messages
