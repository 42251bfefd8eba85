"""What `slsac bench` runs and shows."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable

from slsac.bench import SECTIONS, tasks, training, update
from slsac.bench.timing import Record, around, table, write_page
from slsac.config.presets import off_policy_preset
from slsac.envs import require_known
from slsac.errors import InvalidInput
from slsac.runs import provenance

COLUMNS: dict[str, dict[str, tuple[str, str]]] = {
    "training": {
        "algo": ("algorithm", ""),
        "steps_per_second": ("training steps/s", ".1f"),
        "update_ms": ("update ms", ".1f"),
        "floor_ms": ("its matrix products ms", ".1f"),
        "gflop": ("GFLOP", ".2f"),
        "share_of_floor": ("share of the products' speed", ".0%"),
        "against_peer": ("against the peer", ".2f"),
    },
    "on-policy": {
        "env": ("ppo-lag/omnisafe on", ""),
        "workers": ("worker processes", ""),
        "steps_per_second": ("steps/s, learning included", ",.0f"),
        "passes": ("passes", ".0f"),
        "peer": ("OmniSafe's PPOLag", ",.0f"),
        "peer_passes": ("its passes", ".0f"),
        "against_peer": ("ratio", ".2f"),
    },
    "tasks": {"env": ("task", ""), "steps_per_second": ("random steps/s", ",.0f")},
    "navigation": {
        "env": ("task", ""),
        "original": ("original, steps/s", ",.0f"),
        "fast": ("fast, steps/s", ",.0f"),
        "steps_ratio": ("steps, ratio", ".2f"),
        "episodes_ratio": ("whole episodes, ratio", ".2f"),
        "physics_share": ("physics' share of a fast step", ".0%"),
        "original_reset_ms": ("original reset, ms", ".1f"),
        "fast_reset_ms": ("fast reset, ms", ".1f"),
    },
    "evaluation": {
        "env": ("30 episodes of 100 steps, s", ""),
        "original": ("original, one by one", ".2f"),
        "fast": ("fast, one by one", ".2f"),
        "lockstep": ("lockstep", ".2f"),
        "ratio": ("fast / lockstep", ".2f"),
        "ratio_to_original": ("original / lockstep", ".2f"),
        "make_lanes": ("making the lanes, once", ".2f"),
    },
    "growth": {"what": ("what", ""), "size": ("size", ""), "ms": ("ms", ".2f")},
    "seeds": {
        "seeds": ("seeds", ""),
        "update_ms_per_seed": ("update ms per seed", ".1f"),
        "speedup": ("against one at a time", ".2f"),
    },
    "startup": {
        "env": ("task", ""),
        "first": ("first time, s", ".1f"),
        "again": ("compilation cached, s", ".1f"),
    },
}
"""Of each section, the fields of its records with their headings and formats."""


def run_bench(options: argparse.Namespace) -> int:
    """Measures the sections that were asked for, one after the other."""
    for name in ("rounds", "steps"):
        if getattr(options, name) < 1:
            raise InvalidInput(f"{name} is {getattr(options, name)}; it must be at least 1")
    require_known(options.env)
    for algo in options.algos:
        off_policy_preset(algo, options.env)
    measure = _measures(options)
    machine = provenance.describe()
    results: dict[str, object] = {"machine": machine, "peer": options.peer}
    print(f"{machine['cpu']}, {machine['cores']} cores, medians of {options.rounds} rounds")
    asked = options.only or SECTIONS
    if options.page:
        for name in asked:  # before the minutes that the figures take
            around(options.page, name)
    for name in asked:
        records = measure[name]()
        results[name] = records
        shown = table(records, COLUMNS[name])
        print(f"\n{name}\n\n{shown}", flush=True)
        if options.page:
            write_page(options.page, name, shown)
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")
    return 0


def _measures(options: argparse.Namespace) -> dict[str, Callable[[], list[Record]]]:
    rounds, env, python = options.rounds, options.env, options.peer_python
    if options.peer is not None and python is None:
        raise InvalidInput("--peer needs --peer-python, the Python of its environment")
    peer = training.peer_training(options.peer, python, env) if options.peer else None
    navigation = tasks.tasks_of("navigation")
    return {
        "training": lambda: training.training(options.algos, env, rounds, options.steps, peer),
        "on-policy": lambda: training.on_policy(
            rounds, python if options.peer == "omnisafe" else None
        ),
        "tasks": lambda: tasks.random_steps(tasks.tasks_of("velocity", "navigation"), rounds, 300),
        "navigation": lambda: [tasks.stepping(task, 4 * rounds, 100) for task in navigation],
        "evaluation": lambda: [tasks.evaluation(task, 30, rounds, 100) for task in navigation],
        "growth": lambda: update.growth(rounds),
        "seeds": lambda: update.several_seeds(options.algos[0], env, (2, 5), rounds),
        "startup": lambda: [training.startup(env)],
    }
