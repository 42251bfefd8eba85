"""OmniSafe's own off-policy training loop, timed. Runs in an environment of its own.

    PEER/bin/python benchmarks/peers/omnisafe_loop.py SACLag SafetyAntVelocity-v1 2000

Prints one JSON line with environment steps per second once learning has begun.
benchmarks/README.md says how to set the environment up; slsac never imports this.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
import json
import sys
import tempfile
import time


def allow_unhashable_defaults() -> None:
    """Safety-Gymnasium's dataclasses have defaults that Python 3.11 refuses."""
    strict = dataclasses.dataclass

    def lenient(cls=None, /, **options):
        if cls is None:
            return functools.partial(lenient, **options)
        ours = cls.__module__.startswith("safety_gymnasium")
        for name in inspect.get_annotations(cls) if ours else ():
            default = cls.__dict__.get(name)
            if type(default).__hash__ is None and not isinstance(default, dataclasses.Field):
                factory = functools.partial(copy.deepcopy, default)
                setattr(cls, name, dataclasses.field(default_factory=factory))
        return strict(**options)(cls)

    dataclasses.dataclass = lenient


def main() -> None:
    algo, env, steps = sys.argv[1], sys.argv[2], int(sys.argv[3])
    allow_unhashable_defaults()
    import omnisafe
    import torch

    warmup, marks = 1_000, {}
    settings = {
        "train_cfgs": {"total_steps": warmup + steps, "vector_env_nums": 1, "torch_threads": 2},
        "algo_cfgs": {
            "steps_per_epoch": 500,
            "start_learning_steps": warmup,
            "update_cycle": 1,
            "update_iters": 1,
            "batch_size": 256,
        },
        "logger_cfgs": {
            "use_wandb": False,
            "use_tensorboard": False,
            "log_dir": tempfile.mkdtemp(),
        },
    }
    agent = omnisafe.Agent(algo, env, custom_cfgs=settings)
    learner = agent.agent
    update = learner._update

    def timed_update(*arguments, **options):
        marks.setdefault("begun", time.perf_counter())
        marks["updates"] = marks.get("updates", 0) + 1
        result = update(*arguments, **options)
        marks["ended"] = time.perf_counter()
        return result

    learner._update = timed_update
    torch.set_num_threads(2)
    agent.learn()
    seconds = marks["ended"] - marks["begun"]
    print(json.dumps({"steps_per_second": marks["updates"] / seconds, "updates": marks["updates"]}))


if __name__ == "__main__":
    main()
