"""One tree of seeds: each random thing has its own branch, so no two share a stream."""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from slsac.errors import InvalidInput, brief

LARGEST_SEED = 2**32 - 1


class Branch(IntEnum):
    TRAINING = 0
    REPLAY = 1
    EVALUATION = 2
    WARMUP = 3
    CERTIFICATE = 4


def require_seed(seed: int) -> None:
    """Raise InvalidInput unless ``seed`` fits 32 bits."""
    if not 0 <= seed <= LARGEST_SEED:
        raise InvalidInput(f"seed is {brief(seed)}; it must be in [0, 2**32)")


def generator(seed: int, branch: Branch) -> np.random.Generator:
    """A generator whose state fits into JSON."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, int(branch)])))


def episode_seed(seed: int, branch: Branch, episode: int) -> int:
    """The environment seed of an episode; a pure function of its arguments."""
    return int(np.random.SeedSequence([seed, int(branch), episode]).generate_state(1)[0])
