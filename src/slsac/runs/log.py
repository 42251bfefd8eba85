"""The logs of a run: append-only JSON lines, and TensorBoard.

Nothing that learns reads them back.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slsac.errors import RunDamaged
from slsac.runs import schema
from slsac.runs.layout import (
    EPISODES,
    EVALUATIONS,
    EXACT_LOGS,
    LOGS,
    PROGRESS,
    TENSORBOARD,
    TIMING,
)
from slsac.runs.schema import Misfit, figure, flag, list_of, number, record, whole


def _evaluation(value: Any, name: str) -> None:
    """A line of evaluations.jsonl; every list in it has an item for each episode."""
    record(
        {
            "step": whole,
            "final": flag,
            "return_mean": number,
            "cost_mean": number,
            "returns": list_of(number),
            "costs": list_of(number),
            "lengths": list_of(number),
        }
    )(value, name)
    episodes = len(value["returns"])
    if episodes == 0:
        raise Misfit("returns is []; it must have at least one episode")
    for field, items in value.items():
        if isinstance(items, list):
            list_of(figure, episodes)(items, field)


LINES: dict[str, schema.Check] = {
    PROGRESS: record({"step": whole}, others=figure),
    EPISODES: record({"step": whole, "return": number, "cost": number, "length": whole}),
    EVALUATIONS: _evaluation,
    TIMING: record({"step": whole, "seconds": number, "steps_per_second": number}),
}
"""What a line of each log holds."""


class RunLog:
    """Writes a run's logs."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self._tensorboard_wanted = True
        self._tensorboard: Any = None

    def begin(self) -> None:
        """Makes empty logs, so that a run has all its files from the first step on."""
        for name in LOGS:
            (self._run / name).write_bytes(b"")

    def rewind(self, offsets: Mapping[str, int]) -> None:
        """Cuts the exact logs back to where they were when the checkpoint was written."""
        paths = {self._run / name: offsets.get(_key(name), 0) for name in LOGS}
        for path, offset in paths.items():  # all of them before the first is changed
            if path.exists() and not path.is_file():
                raise RunDamaged(f"{path} is not a file")
            size = path.stat().st_size if path.exists() else 0
            if size < offset:
                raise RunDamaged(
                    f"{path} has {size} bytes; its checkpoint was written when it had {offset}"
                )
        for path, offset in paths.items():
            path.touch()
            # Times are kept as they are, but for a line that was torn.
            kept = path.read_bytes().rfind(b"\n") + 1 if path.name == TIMING else offset
            os.truncate(path, kept)

    def withdraw_final(self) -> None:
        """Takes back the final evaluations at the end of the log: training continues."""
        path = self._run / EVALUATIONS
        lines = path.read_bytes().splitlines(keepends=True)
        while lines and json.loads(lines[-1])["final"]:
            lines.pop()
        os.truncate(path, sum(map(len, lines)))

    def offsets(self) -> dict[str, int]:
        """Length in bytes of the exact logs, for a checkpoint."""
        return {_key(name): (self._run / name).stat().st_size for name in EXACT_LOGS}

    def flush(self) -> None:
        """Hands the exact logs to the disk; before a checkpoint that states their lengths."""
        for name in EXACT_LOGS:
            with open(self._run / name, "ab") as file:
                os.fsync(file.fileno())

    def write(self, name: str, record: Mapping[str, Any]) -> None:
        """Appends one line to the log ``name``: the whole of it, or nothing if that fails."""
        line = json.dumps(record).encode() + b"\n"
        # Opened for each line: lines are rare, and there is nothing to close when a run dies.
        with open(self._run / name, "ab+", buffering=0, opener=_not_through_a_link) as file:
            size = _without_torn_line(file)
            try:
                written = file.write(line)
                if written < len(line):  # a full disk takes a part, and refuses the next
                    file.write(line[written:])
            except BaseException:
                file.truncate(size)
                raise

    def scalars(self, record: Mapping[str, Any], step: int) -> None:
        """Numbers for TensorBoard; without the ``tensorboard`` extra there are none."""
        if self._tensorboard is None and self._tensorboard_wanted:
            try:
                from tensorboardX import SummaryWriter
            except ImportError:
                self._tensorboard_wanted = False
                return
            # What an interrupted process logged after the checkpoint is hidden by the purge.
            self._tensorboard = SummaryWriter(str(self._run / TENSORBOARD), purge_step=step)
        if self._tensorboard is not None:
            for name, value in record.items():
                if isinstance(value, (int, float)):
                    self._tensorboard.add_scalar(name, value, step)

    def close(self) -> None:
        if self._tensorboard is not None:
            # On a full disk its last lines are lost; the run's own logs have them.
            with contextlib.suppress(OSError):
                self._tensorboard.close()
            self._tensorboard = None


def _not_through_a_link(path: str, flags: int) -> int:
    """Opens as `open` does, but refuses a link, which would have the line written elsewhere."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


def _without_torn_line(file: io.FileIO) -> int:
    """Cuts off a last line without its end, left by a killed process; returns the file's size."""
    size = file.seek(0, os.SEEK_END)
    if size:
        file.seek(size - 1)
        if file.read(1) != b"\n":
            file.seek(0)
            size = file.readall().rfind(b"\n") + 1
            file.truncate(size)
    return size


def _key(name: str) -> str:
    """The name under which a checkpoint keeps a log's length."""
    return name.removesuffix(".jsonl")


def read_lines(path: Path) -> list[dict[str, Any]]:
    """A log's records: none if the file is missing, and without a torn last line."""
    return parse_lines(path.read_bytes(), path) if path.exists() else []


def parse_lines(data: bytes, path: Path) -> list[dict[str, Any]]:
    """The records in what was read from ``path``."""
    whole_lines, _, _ = data.rpartition(b"\n")
    records = []
    for count, line in enumerate(whole_lines.splitlines(), 1):
        try:
            records.append(schema.parse_json(line, LINES[path.name]))
        except Misfit as error:
            raise RunDamaged(f"{path}, line {count}, cannot be read: {error}") from None
    return records
