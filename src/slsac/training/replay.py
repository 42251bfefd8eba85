"""Replay memory: a ring of transitions in memory-mapped files, each observation stored once.

Observations and transitions are two rings. An episode of L steps takes L + 1 observation rows and
L transitions; a transition knows the row of its observation, and its next observation is the row
after that.

Both rings are longer than ``capacity`` by a reserve. After a crash, training starts again from a
checkpoint while the files already hold steps taken after it. Those steps overwrote only rows that
had left the window that is sampled from, provided that the reserve covers the distance, so the
resumed run samples just what an undisturbed run would. A checkpoint keeps checksums of that window,
block by block, so that another run's files, or damaged ones, are not taken for its own.
"""

from __future__ import annotations

import math
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from slsac.errors import InvalidInput, RunDamaged
from slsac.seeds import Branch, generator
from slsac.types import Batch, EnvSpec

LARGEST_FILE = 2**50
"""Bytes; a file may be sparse, but no file system holds more."""
GROWTH = 4096
"""Rows for which disk space is taken at a time."""
LARGEST_BLOCK, FEWEST_BLOCKS = 4096, 16
"""Transitions under one checksum, and the blocks that even a small replay is divided into."""


class Backing:
    """Disk space for the rows of some rings, taken in steps ahead of their use.

    The files are sparse. On a full disk a write into a hole of a mapped file would end the process
    by SIGBUS, without a word; asking for the space first raises OSError.
    """

    def __init__(self, *rings: np.memmap) -> None:
        self._rings = rings
        self._rows = 0

    def require(self, row: int) -> None:
        """Raise OSError where the disk has no room for ``row``."""
        if row < self._rows or not hasattr(os, "posix_fallocate"):
            return
        until = min(row + GROWTH, len(self._rings[0]))
        for ring in self._rings:
            width = ring.nbytes // len(ring)
            assert ring.filename is not None
            with open(ring.filename, "r+b") as file:
                os.posix_fallocate(file.fileno(), self._rows * width, (until - self._rows) * width)
        self._rows = until


class Lookahead(NamedTuple):
    """How many steps of an episode a sampled transition spans, and how they are discounted."""

    steps: int
    discount: float
    """Of rewards."""
    cost_discount: float


ONE_STEP = Lookahead(1, 1.0, 1.0)


class Replay:
    """Uniform sampling from the most recent ``capacity`` transitions, with its own generator."""

    def __init__(
        self,
        folder: Path,
        spec: EnvSpec,
        capacity: int,
        reserve: int,
        seed: int,
        *,
        create: bool = True,
    ) -> None:
        """Makes the files in ``folder``, or opens those that are there.

        They take disk space only as they fill.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self.capacity = capacity
        self._length = capacity + reserve
        # Twice the length is enough even where every episode lasts a single step.
        self._rows = 2 * self._length
        self._added = 0
        self._row = 0
        self._cost_sums = (0.0, 0.0)
        self._folder = folder
        self._block = max(1, min(LARGEST_BLOCK, capacity // FEWEST_BLOCKS))
        self._checksums: dict[int, int] = {}
        """Of whole blocks, by number; nothing in them changes any more."""
        self.rng = generator(seed, Branch.REPLAY)

        def ring(name: str, dtype: type, *shape: int) -> np.memmap:
            path = folder / f"{name}.bin"
            size = math.prod(shape) * np.dtype(dtype).itemsize
            if size > LARGEST_FILE:
                raise InvalidInput(
                    f"replay_capacity is {capacity:,}; {path.name} would need {size:,} bytes, and "
                    f"at most {LARGEST_FILE:,} are allowed"
                )
            if not create:
                self._require_file(path, size)
            mode = "w+" if create else "r+"
            return np.memmap(path, dtype=dtype, mode=mode, shape=shape)  # type: ignore[call-overload]

        self._observations = ring("observations", np.float32, self._rows, spec.observation_size)
        self._actions = ring("actions", np.float32, self._length, spec.action_size)
        self._rewards = ring("rewards", np.float32, self._length)
        self._costs = ring("costs", np.float32, self._length)
        self._terminated = ring("terminated", np.float32, self._length)
        self._observation_rows = ring("observation_rows", np.int64, self._length)
        self._observations_backed = Backing(self._observations)
        self._transitions_backed = Backing(*self._of_transitions())

    def _of_transitions(self) -> tuple[np.memmap, ...]:
        """The rings with a row for each transition."""
        return (
            self._actions, self._rewards, self._costs, self._terminated, self._observation_rows,
        )  # fmt: skip

    @staticmethod
    def _require_file(path: Path, size: int) -> None:
        if not path.exists():
            raise RunDamaged(f"{path} is missing; a run cannot continue without its replay")
        if path.is_symlink():
            raise RunDamaged(f"{path} is a link; a replay must be the run's own")
        if path.stat().st_size != size:
            raise RunDamaged(
                f"{path} has {path.stat().st_size} bytes; this capacity and task need {size}"
            )

    def __len__(self) -> int:
        return min(self._added, self.capacity)

    def begin_episode(self, observation: np.ndarray) -> None:
        self._observations_backed.require((self._row + 1) % self._rows)
        self._row += 1
        self._observations[self._row % self._rows] = observation

    def add(
        self,
        action: np.ndarray,
        reward: float,
        cost: float,
        terminated: bool,
        next_observation: np.ndarray,
    ) -> None:
        """Stores one step of the running episode."""
        slot = self._added % self._length
        self._transitions_backed.require(slot)
        self._observations_backed.require((self._row + 1) % self._rows)
        self._actions[slot] = action
        self._rewards[slot] = reward
        self._costs[slot] = cost
        self._terminated[slot] = terminated
        self._observation_rows[slot] = self._row
        self._row += 1
        self._observations[self._row % self._rows] = next_observation
        self._added += 1
        self._cost_sums = (self._cost_sums[0] + cost, self._cost_sums[1] + cost**2)

    def sample(
        self,
        batch_size: int,
        cost_scaling: str = "none",
        lookahead: Lookahead = ONE_STEP,
    ) -> Batch:
        """A uniform minibatch, with replacement; costs are scaled as `CostCriticConfig` says."""
        drawn = self.rng.integers(self._added - len(self), self._added, batch_size)
        slots = drawn % self._length
        rows = self._observation_rows[slots]
        fields: list[Any] = [
            self._observations[rows % self._rows],
            self._actions[slots],
            self._rewards[slots],
            self._scaled(self._costs[slots], cost_scaling),
            self._observations[(rows + 1) % self._rows],
            self._terminated[slots],
        ]
        batch = Batch(*fields)
        if lookahead.steps == 1:
            return batch
        return self._followed(batch, drawn, rows, lookahead, cost_scaling)

    def _followed(
        self,
        batch: Batch,
        drawn: np.ndarray,
        rows: np.ndarray,
        lookahead: Lookahead,
        cost_scaling: str,
    ) -> Batch:
        """The same transitions, each with as many of the next steps of its episode as there are."""
        reward, cost = np.array(batch.reward), np.array(batch.cost)
        running = np.ones(len(drawn), bool)
        steps = np.ones(len(drawn), np.int64)
        for ahead in range(1, lookahead.steps):
            slots = (drawn + ahead) % self._length
            # Between two episodes the observations' rows skip one.
            running &= (drawn + ahead < self._added) & (
                self._observation_rows[slots] == rows + ahead
            )
            weight = running.astype(np.float32)
            reward += np.float32(lookahead.discount**ahead) * weight * self._rewards[slots]
            costs = self._scaled(self._costs[slots], cost_scaling)
            cost += np.float32(lookahead.cost_discount**ahead) * weight * costs
            steps += running
        fields: dict[str, Any] = {
            "reward": reward,
            "cost": cost,
            "next_observation": self._observations[(rows + steps) % self._rows],
            "terminated": self._terminated[(drawn + steps - 1) % self._length],
            "steps": steps.astype(np.float32),
        }
        return batch._replace(**fields)

    def _scaled(self, costs: np.ndarray, scaling: str) -> np.ndarray:
        if scaling == "none":
            return costs
        mean, deviation = self.cost_moments()
        if scaling == "deviation":
            return costs / np.float32(deviation or 1.0)
        return np.clip((costs - np.float32(mean)) / np.float32(max(deviation, 0.01)), -5.0, 5.0)

    def cost_moments(self) -> tuple[float, float]:
        """Mean and standard deviation of the cost of all steps ever added."""
        mean, square = (total / max(self._added, 1) for total in self._cost_sums)
        variance = square - mean**2
        # A difference of equal numbers leaves rounding errors, which are not a deviation.
        return mean, math.sqrt(variance) if variance > 1e-9 * square else 0.0

    def take_over(self, other: Replay) -> None:
        """Begins with the transitions of another replay of the same task."""
        if other._length != self._length and other._added > min(other._length, self._length):
            raise InvalidInput(
                f"replay_capacity is {self.capacity}; to take over a replay that has gone round it "
                f"must be {other.capacity}, and checkpoint_every_steps the same"
            )
        # What was never written is left out: the files keep their holes.
        rows, slots = min(other._row + 1, self._rows), min(other._added, self._length)
        self._observations_backed.require(rows - 1)
        self._observations[:rows] = other._observations[:rows]
        if slots:
            self._transitions_backed.require(slots - 1)
        for own, theirs in zip(self._of_transitions(), other._of_transitions(), strict=True):
            own[:slots] = theirs[:slots]
        self._added, self._row, self._cost_sums = other._added, other._row, other._cost_sums

    def flush(self) -> None:
        """Hands what was written to the disk, so that it also survives a power cut."""
        for ring in (self._observations, *self._of_transitions()):
            ring.flush()

    def facts(self) -> dict[str, Any]:
        """What a checkpoint must keep; the transitions themselves are already in the files."""
        cursor = {
            "added": self._added,
            "row": self._row,
            "cost_sums": self._cost_sums,
            "rng": self.rng.bit_generator.state,
            "checksums": self._window_checksums(),
        }
        return {"replay": cursor}

    def restore(self, facts: Mapping[str, Any]) -> None:
        """Returns to a cursor taken between episodes."""
        cursor = facts["replay"]
        self._added, self._row = cursor["added"], cursor["row"]
        self._cost_sums = tuple(cursor["cost_sums"])
        self.rng.bit_generator.state = cursor["rng"]
        self._checksums = {}
        if "run" not in facts:
            return  # the checkpoint is from before there were checksums
        # Between episodes the last row is the observation after the last transition.
        newest = int(self._observation_rows[(self._added - 1) % self._length])
        last = newest + 1 if self._added else 0
        if (last, self._window_checksums()) != (self._row, cursor["checksums"]):
            raise RunDamaged(
                f"{self._folder} is not what the checkpoint was written with; its files are "
                "damaged, or another run's"
            )

    def _window_blocks(self) -> range:
        """The blocks that lie in the window that is sampled from; the last one may be unfinished.

        A block across the window's beginning is left out: a run that crashed may have overwritten
        a part of it.
        """
        oldest = self._added - len(self)
        return range(-(-oldest // self._block), -(-self._added // self._block))

    def _window_checksums(self) -> list[int]:
        checksums = {
            number: self._checksums.get(number) or self._checksum(number)
            for number in self._window_blocks()
        }
        whole = self._added // self._block
        self._checksums = {number: value for number, value in checksums.items() if number < whole}
        return list(checksums.values())

    def _checksum(self, number: int) -> int:
        """CRC-32 of a block's transitions and their observations."""
        start = number * self._block
        slots = np.arange(start, min(start + self._block, self._added)) % self._length
        checksum = 0
        for ring in self._of_transitions():
            checksum = zlib.crc32(ring[slots].data, checksum)
        first, last = self._observation_rows[slots[[0, -1]]].tolist()
        if not 0 <= last - first < 2 * len(slots):
            return 0  # nobody has written such rows
        seen = np.arange(first, last + 2) % self._rows
        return zlib.crc32(self._observations[seen].data, checksum)


def copy_sparsely(source: str, target: str) -> None:
    """Copies a file and leaves holes where it holds zeros; a replay is mostly those at first."""
    block = 1 << 20
    with open(source, "rb") as reader, open(target, "wb") as writer:
        while data := reader.read(block):
            if data.count(0) == len(data):
                writer.seek(len(data), os.SEEK_CUR)
            else:
                writer.write(data)
        writer.truncate(reader.tell())
