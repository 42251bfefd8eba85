"""Memory of a MetaDrive worker over 20,000 steps with resets.

`python benchmarks/metadrive_memory.py`. Episodes are cut after 60 steps, so that there are at
least 333 resets, each with a map of its own.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from slsac.config.presets import METADRIVE
from slsac.envs.metadrive import MetaDriveFactory

STEPS = 20_000
ALLOWED_MEGABYTES = 100.0


def resident_megabytes(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def main() -> None:
    env = MetaDriveFactory(replace(METADRIVE, horizon=60))()
    rng = np.random.default_rng(0)
    episodes = step = 0
    first = 0.0
    began = time.perf_counter()
    while step < STEPS:
        env.reset(episodes)
        episodes += 1
        over = False
        while not over:
            result = env.step(np.array([rng.normal(0.0, 0.1), 0.6], np.float32))
            over = result.terminated or result.truncated
            step += 1
            if step == 200:
                first = resident_megabytes(env.pid)
            if step % 2_000 == 0:
                print(f"step {step:,}, episode {episodes}: {resident_megabytes(env.pid):.1f} MB")
    growth = resident_megabytes(env.pid) - first
    seconds = time.perf_counter() - began
    env.close()
    print(
        f"{STEPS:,} steps, {episodes} episodes: {first:.1f} MB after 200 steps, {growth:+.1f} MB "
        f"since (allowed {ALLOWED_MEGABYTES:.0f}); {step / seconds:.0f} steps/s with resets"
    )
    if growth > ALLOWED_MEGABYTES:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
