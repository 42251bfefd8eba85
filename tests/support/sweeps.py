"""A small sweep."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

SMALL_SPEC: dict[str, Any] = {
    "name": "small",
    "algos": ["sac-lag"],
    "envs": ["ProbeChoice-v0"],
    "seeds": [0, 1],
    "steps": 1_200,
    "overrides": {
        "common": {
            "warmup_steps": 60,
            "multiplier_warmup_steps": 0,
            "batch_size": 16,
            "replay_capacity": 10_000,
            "steps_per_epoch": 200,
            "evaluate_every_epochs": 4,
            "checkpoint_every_steps": 100,
            "final_evaluation_episodes": 2,
            "policy.hidden": [16, 16],
            "reward_critic.hidden": [16, 16],
            "cost_critic.hidden": [16, 16],
        }
    },
}
"""A sweep of two trials that take seconds."""
TRIALS = ("sac-lag/ProbeChoice-v0/seed0", "sac-lag/ProbeChoice-v0/seed1")
"""Their names."""


def write_spec(folder: Path, **fields: Any) -> Path:
    """A file with the small sweep's spec, some of its fields replaced."""
    path = folder / "spec.yaml"
    path.write_text(yaml.safe_dump(SMALL_SPEC | fields))
    return path
