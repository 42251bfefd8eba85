"""Steps per second of the navigation tasks, and evaluation in lockstep, against what they replace.

python benchmarks/env_speed.py [--clock cpu] [--evaluation-horizon 200] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from slsac.env_speed import measure_evaluation, measure_stepping
from slsac.envs import family, list_envs


def main() -> None:
    tasks = [env_id for env_id, _ in list_envs() if family(env_id) == "navigation"]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", nargs="+", default=tasks)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--steps-per-round", type=int, default=100)
    parser.add_argument("--episodes", type=int, default=30)
    parser.add_argument("--evaluation-rounds", type=int, default=3)
    parser.add_argument("--evaluation-horizon", type=int, help="shorter episodes")
    parser.add_argument(
        "--clock", choices=("wall", "cpu"), default="wall", help="cpu: on a machine with other work"
    )
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    clock = time.perf_counter if options.clock == "wall" else time.process_time

    print("steps/s          original      fast  (x)  episodes (x)  physics share  reset ms")
    stepping = []
    for env_id in options.tasks:
        speed = measure_stepping(
            env_id, rounds=options.rounds, steps_per_round=options.steps_per_round, clock=clock
        )
        stepping.append(speed)
        print(
            f"{env_id:<22} {1 / speed.original_step:6.0f} {1 / speed.fast_step:9.0f} "
            f"{speed.step_ratio:5.2f} {speed.episode_ratio:9.2f} "
            f"{speed.physics_step / speed.fast_step:13.0%} "
            f"{1e3 * speed.original_reset:8.1f} -> {1e3 * speed.fast_reset:.1f}"
        )
    print(f"\n{options.episodes} episodes, s   original  fast  lockstep  (x)  making the lanes")
    evaluations = []
    for env_id in options.tasks:
        result = measure_evaluation(
            env_id,
            episodes=options.episodes,
            rounds=options.evaluation_rounds,
            horizon=options.evaluation_horizon,
            clock=clock,
        )
        evaluations.append(result)
        print(
            f"{env_id:<22} {result.original:6.1f} {result.sequential:6.1f} "
            f"{result.lockstep:6.1f} {result.lockstep_ratio:7.2f} {result.make_lanes:8.1f}"
        )
    if options.json:
        record = {
            "clock": options.clock,
            "stepping": [speed._asdict() for speed in stepping],
            "evaluation": [result._asdict() for result in evaluations],
        }
        options.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
