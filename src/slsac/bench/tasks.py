"""Tasks: random steps, fast navigation against the original, evaluation in lockstep."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from statistics import median
from typing import Any

import jax
import numpy as np

from slsac.algorithms.off_policy import policy as policies
from slsac.bench.timing import Record, in_turns, ratio, seconds
from slsac.config.presets import off_policy_preset
from slsac.envs import make_env
from slsac.envs.play import Lanes, Predict
from slsac.envs.safety_gymnasium import SafetyGymnasiumEnv
from slsac.evaluate import evaluate
from slsac.networks import row_by_row
from slsac.tasks import IN_THE_PAPER, family
from slsac.types import EnvSpec, SafeEnv


def tasks_of(*families: str) -> list[str]:
    return [env_id for env_id in IN_THE_PAPER if family(env_id) in families]


def random_steps(envs: Iterable[str], rounds: int, steps: int) -> list[Record]:
    """Random steps per second of each task, resets included."""
    opened = {env_id: make_env(env_id) for env_id in envs}
    rng = np.random.default_rng(0)

    def play(env: SafeEnv) -> None:
        env.reset(0)
        for action in rng.uniform(-1.0, 1.0, (steps, env.spec.action_size)).astype(np.float32):
            step = env.step(action)
            if step.terminated or step.truncated:
                env.reset(0)

    taken = in_turns({name: functools.partial(play, env) for name, env in opened.items()}, rounds)
    for env in opened.values():
        env.close()
    return [{"env": name, "steps_per_second": steps / median(taken[name])} for name in opened]


def stepping(env_id: str, rounds: int, steps: int) -> Record:
    """Fast stepping of a navigation task against Safety-Gymnasium's own, on random actions."""
    fast = SafetyGymnasiumEnv(env_id)
    original = SafetyGymnasiumEnv(env_id, stepping="original")
    rng = np.random.default_rng(0)
    rows = []
    for number in range(rounds):
        actions = rng.uniform(-1.0, 1.0, (steps, fast.spec.action_size))
        resets = [seconds(functools.partial(env.reset, number)) for env in (fast, original)]
        plays = [seconds(functools.partial(_play, env, actions)) for env in (fast, original)]
        fast.reset(number)
        # The physics frames of the steps and nothing else: what no stepping can go below.
        physics = seconds(functools.partial(_run_physics, fast.env.task, actions))
        rows.append([*(taken / steps for taken in (*plays, physics)), *resets])
    fast_step, original_step, physics_step, fast_reset, original_reset = map(
        median, zip(*rows, strict=True)
    )
    horizon = fast.spec.horizon
    episodes = [(horizon * o + ro) / (horizon * f + rf) for f, o, _, rf, ro in rows]
    return {
        "env": env_id,
        "original": 1 / original_step,
        "fast": 1 / fast_step,
        "steps_ratio": median(row[1] / row[0] for row in rows),
        "episodes_ratio": median(episodes),
        "physics_share": physics_step / fast_step,
        "original_reset_ms": 1e3 * original_reset,
        "fast_reset_ms": 1e3 * fast_reset,
    }


def _play(env: SafetyGymnasiumEnv, actions: np.ndarray) -> None:
    for action in actions:
        env.step(action)


def _run_physics(task: Any, actions: np.ndarray) -> None:
    import mujoco

    for action in actions:
        task.data.ctrl[:] = action
        mujoco.mj_step(task.model, task.data, task.sim_conf.frameskip_binom_n)


def evaluation(env_id: str, episodes: int, rounds: int, horizon: int) -> Record:
    """Evaluation of an untrained policy of full size, in lockstep and one by one.

    Args:
        horizon: steps of an episode, fewer than the task has, to save time.
    """
    lanes = Lanes(lambda: make_env(env_id, horizon=horizon))
    make_lanes = seconds(lambda: lanes.take(episodes))
    original = SafetyGymnasiumEnv(env_id, horizon=horizon, stepping="original")
    predict = _policy_of_full_size(original.spec)
    taken = in_turns(
        {
            "lockstep": lambda: evaluate(lanes, predict, episodes, 0),
            "fast": lambda: evaluate(lanes, predict, episodes, 0, max_lanes=1),
            "original": lambda: evaluate(original, predict, episodes, 0),
        },
        rounds,
    )
    return {
        "env": env_id,
        **{name: median(times) for name, times in taken.items()},
        "ratio": ratio(taken["fast"], taken["lockstep"]),
        "ratio_to_original": ratio(taken["original"], taken["lockstep"]),
        "make_lanes": make_lanes,
    }


def _policy_of_full_size(spec: EnvSpec) -> Predict:
    head = policies.build(off_policy_preset("sl-sac", "SafetyPointGoal1-v0").policy, spec)
    params = head.init(jax.random.PRNGKey(0))
    mode = jax.jit(row_by_row(head.mode))
    return lambda observations: np.asarray(mode(params, observations))
