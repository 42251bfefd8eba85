"""What each section of `slsac bench` measures, and the table that it makes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from slsac.bench import tasks, training, update
from slsac.bench.timing import Column, Record
from slsac.errors import InvalidInput

COLUMNS: dict[str, tuple[Column, ...]] = {
    "training": (
        ("algo", "algorithm", ""), ("steps_per_second", "training steps/s", ".1f"),
        ("update_ms", "update ms", ".1f"), ("floor_ms", "its matrix products ms", ".1f"),
        ("gflop", "GFLOP", ".2f"), ("share_of_floor", "share of the products' speed", ".0%"),
        ("against_peer", "against the peer", ".2f"),
    ),
    "on-policy": (
        ("env", "ppo-lag/omnisafe on", ""), ("workers", "worker processes", ""),
        ("steps_per_second", "steps/s, learning included", ",.0f"), ("passes", "passes", ".0f"),
        ("peer", "OmniSafe's PPOLag", ",.0f"), ("peer_passes", "its passes", ".0f"),
        ("against_peer", "ratio", ".2f"),
    ),
    "tasks": (("env", "task", ""), ("steps_per_second", "random steps/s", ",.0f")),
    "navigation": (
        ("env", "task", ""), ("original", "original, steps/s", ",.0f"),
        ("fast", "fast, steps/s", ",.0f"), ("steps_ratio", "steps, ratio", ".2f"),
        ("episodes_ratio", "whole episodes, ratio", ".2f"),
        ("physics_share", "physics' share of a fast step", ".0%"),
        ("original_reset_ms", "original reset, ms", ".1f"),
        ("fast_reset_ms", "fast reset, ms", ".1f"),
    ),
    "evaluation": (
        ("env", "30 episodes of 100 steps, s", ""), ("original", "original, one by one", ".2f"),
        ("fast", "fast, one by one", ".2f"), ("lockstep", "lockstep", ".2f"),
        ("ratio", "fast / lockstep", ".2f"), ("ratio_to_original", "original / lockstep", ".2f"),
        ("make_lanes", "making the lanes, once", ".2f"),
    ),
    "growth": (("what", "what", ""), ("size", "size", ""), ("ms", "ms", ".2f")),
    "seeds": (
        ("seeds", "seeds", ""), ("update_ms_per_seed", "update ms per seed", ".1f"),
        ("speedup", "against one at a time", ".2f"),
    ),
    "startup": (
        ("env", "task", ""), ("first", "first time, s", ".1f"),
        ("again", "compilation cached, s", ".1f"),
    ),
}  # fmt: skip


def measurements(
    algos: Sequence[str], env: str, rounds: int, steps: int, peer: str | None,
    peer_python: Path | None,
) -> dict[str, Callable[[], list[Record]]]:  # fmt: skip
    """The function that measures each section.

    Args:
        steps: training steps in a round.
        peer: a name of `slsac.bench.PEERS`, to train in turns with us.
        peer_python: the Python of the peer's own environment.
    """
    train_peer = None
    if peer_python is not None and peer is None:
        raise InvalidInput("--peer-python has no effect without --peer")
    if peer is not None:
        if peer_python is None:
            raise InvalidInput("--peer needs --peer-python, the Python of its environment")
        train_peer = training.peer_training(peer, peer_python, env)
    omnisafe_python = peer_python if peer == "omnisafe" else None
    navigation = tasks.tasks_of("navigation")
    return {
        "training": lambda: training.training(algos, env, rounds, steps, train_peer),
        "on-policy": lambda: training.on_policy(rounds, omnisafe_python),
        "tasks": lambda: tasks.random_steps(tasks.tasks_of("velocity", "navigation"), rounds, 300),
        "navigation": lambda: [tasks.stepping(task, 4 * rounds, 100) for task in navigation],
        "evaluation": lambda: [tasks.evaluation(task, 30, rounds, 100) for task in navigation],
        "growth": lambda: update.growth(rounds),
        "seeds": lambda: update.several_seeds(algos[0], env, (2, 5), rounds),
        "startup": lambda: [training.startup(env)],
    }
