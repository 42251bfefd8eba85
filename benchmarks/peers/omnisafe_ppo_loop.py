"""OmniSafe's own on-policy training loop, timed. Runs in an environment of its own.

    PEER/bin/python benchmarks/peers/omnisafe_ppo_loop.py PPOLag SafetyAntVelocity-v1 4000 3

The last two numbers are steps per epoch and the number of timed epochs; the first is not timed.
Prints one JSON line with environment steps per second, playing and learning together, and the
passes over an epoch's steps until its KL divergence stopped it.
benchmarks/README.md says how to set the environment up; slsac never imports this.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time

from omnisafe_loop import allow_unhashable_defaults


def main() -> None:
    algo, env, steps, epochs = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    allow_unhashable_defaults()
    import omnisafe
    import torch

    settings = {
        "train_cfgs": {
            "total_steps": (1 + epochs) * steps,
            "vector_env_nums": 1,
            "torch_threads": 2,
        },
        "algo_cfgs": {"steps_per_epoch": steps},
        "logger_cfgs": {
            "use_wandb": False,
            "use_tensorboard": False,
            "log_dir": tempfile.mkdtemp(),
        },
    }
    agent = omnisafe.Agent(algo, env, custom_cfgs=settings)
    learner = agent.agent
    update, ended, learning, passes = learner._update, [], [], []

    def timed_update(*arguments, **options):
        begun = time.perf_counter()
        result = update(*arguments, **options)
        ended.append(time.perf_counter())
        learning.append(ended[-1] - begun)
        passes.append(float(learner.logger.get_stats("Train/StopIter")[0]))
        return result

    learner._update = timed_update
    torch.set_num_threads(2)
    agent.learn()
    seconds = ended[-1] - ended[0]
    print(
        json.dumps(
            {
                "steps_per_second": epochs * steps / seconds,
                "learning_share": sum(learning[1:]) / seconds,
                "passes": sum(passes[1:]) / epochs,
            }
        )
    )


if __name__ == "__main__":
    main()
