"""Resident memory of a training process whose replay is full.

    python benchmarks/memory.py --env SafetyAntVelocity-v1 --transitions 1000000

Transitions are invented, since only their number and size matter; updates then touch all of them.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

from slsac.config.presets import preset
from slsac.training import launch, off_policy


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--algo", default="sl-sac")
    parser.add_argument("--env", default="SafetyAntVelocity-v1")
    parser.add_argument("--transitions", type=int, default=1_000_000)
    parser.add_argument("--updates", type=int, default=1_500)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        trainer = launch.start(preset(options.algo, options.env), Path(folder) / "run")
        spec, rng = trainer.spec, np.random.default_rng(0)
        observations = rng.normal(size=(spec.horizon + 1, spec.observation_size))
        actions = rng.uniform(-1.0, 1.0, (spec.horizon, spec.action_size))
        for _ in range(options.transitions // spec.horizon):
            trainer.replay.begin_episode(observations[0])
            for step in range(spec.horizon):
                trainer.replay.add(actions[step], 1.0, 0.0, False, observations[step + 1])
        for _ in range(options.updates):
            off_policy.learn([trainer], trainer.learner)
        status = Path("/proc/self/status").read_text()
        trainer.close()
    print(f"{options.algo} on {options.env} with {options.transitions:,} transitions in replay")
    for line in status.splitlines():
        name, _, value = line.partition(":")
        if name in ("VmRSS", "RssAnon", "RssFile"):
            print(f"{name:8} {int(value.split()[0]) / 1024:6.0f} MB")


if __name__ == "__main__":
    main()
