"""The logs of a run: append-only JSON lines, and TensorBoard.

Write-only: nothing in training reads them back.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slsac.errors import RunDamaged
from slsac.runs.layout import EVALUATIONS, EXACT_LOGS, LOGS, TENSORBOARD, TIMING


class RunLog:
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
        for name in EXACT_LOGS:
            path, offset = self._run / name, offsets[_key(name)]
            path.touch()
            if path.stat().st_size < offset:
                raise RunDamaged(
                    f"{path} has {path.stat().st_size} bytes; its checkpoint was written when it "
                    f"had {offset}"
                )
            os.truncate(path, offset)
        # Times are kept as they are, but for a line that was torn.
        timing = self._run / TIMING
        timing.touch()
        os.truncate(timing, timing.read_bytes().rfind(b"\n") + 1)

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
        """Appends one line to the log ``name``."""
        # Opened for each line: lines are rare, and there is nothing to close when a run dies.
        with open(self._run / name, "ab") as file:
            file.write(json.dumps(record).encode() + b"\n")

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


def _key(name: str) -> str:
    """The name under which a checkpoint keeps a log's length."""
    return name.removesuffix(".jsonl")


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The records of a JSON-lines file; a missing file has none, and a torn last line is none."""
    if not path.exists():
        return []
    whole, _, _ = path.read_bytes().rpartition(b"\n")
    records = []
    for number, line in enumerate(whole.splitlines(), 1):
        try:
            records.append(json.loads(line))
        except ValueError as error:
            raise RunDamaged(f"{path}, line {number}, cannot be read: {error}") from None
    return records
