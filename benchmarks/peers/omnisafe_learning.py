"""How OmniSafe's SACLag learns before its multiplier acts. Runs in an environment of its own.

    PEER/bin/python benchmarks/peers/omnisafe_learning.py SafetyHopperVelocity-v1 100000 0

Prints one JSON line for each 2,000 steps: training return, cost and length as OmniSafe logs them
(means over its last 50 episodes), and its test episodes (means over those so far). The settings
are its own except for 5,000 random steps at first, as in the paper; its multiplier rests for
200,000 steps. benchmarks/README.md says how to set the environment up; slsac never imports this.
"""

from __future__ import annotations

import contextlib
import csv
import json
import sys
import tempfile
from pathlib import Path

from omnisafe_loop import allow_unhashable_defaults

NAMES = {
    "TotalEnvSteps": "step",
    "Metrics/EpRet": "return",
    "Metrics/EpCost": "cost",
    "Metrics/EpLen": "length",
    "Metrics/TestEpRet": "evaluation_return",
    "Metrics/TestEpCost": "evaluation_cost",
    "Metrics/TestEpLen": "evaluation_length",
}


def main() -> None:
    env, steps, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    allow_unhashable_defaults()
    import omnisafe

    folder = Path(tempfile.mkdtemp())
    settings = {
        "seed": seed,
        "train_cfgs": {"total_steps": steps, "vector_env_nums": 1, "torch_threads": 1},
        "algo_cfgs": {"start_learning_steps": 5_000},
        "logger_cfgs": {"use_wandb": False, "use_tensorboard": False, "log_dir": str(folder)},
    }
    with contextlib.redirect_stdout(sys.stderr):  # its own tables
        omnisafe.Agent("SACLag", env, custom_cfgs=settings).learn()
    (file,) = folder.rglob("progress.csv")
    with open(file) as rows:
        for row in csv.DictReader(rows):
            print(json.dumps({name: float(row[key]) for key, name in NAMES.items()}))


if __name__ == "__main__":
    main()
