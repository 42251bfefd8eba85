"""How fast tasks step and evaluations run; the subjects take turns, so that a busy machine
disturbs them alike."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from statistics import median
from typing import Any, NamedTuple

import jax
import mujoco
import numpy as np

from slsac.agent import policy as policies
from slsac.envs import make_env
from slsac.envs.safety_gymnasium import SafetyGymnasiumEnv
from slsac.evaluate import Lanes, Predict, evaluate, row_by_row
from slsac.presets import off_policy_preset
from slsac.types import EnvSpec

Clock = Callable[[], float]


class SteppingSpeed(NamedTuple):
    """Medians over rounds, in seconds; ratios are medians of each round's ratio."""

    env_id: str
    fast_step: float
    original_step: float
    physics_step: float
    """The physics frames of one step and nothing else: what no stepping can go below."""
    fast_reset: float
    original_reset: float
    step_ratio: float
    """Original over fast, steps alone."""
    episode_ratio: float
    """Original over fast, a whole episode with its reset."""


def measure_stepping(
    env_id: str, *, rounds: int, steps_per_round: int, clock: Clock = time.perf_counter
) -> SteppingSpeed:
    """Fast stepping of a navigation task against Safety-Gymnasium's own, on random actions."""
    fast = SafetyGymnasiumEnv(env_id)
    original = SafetyGymnasiumEnv(env_id, stepping="original")
    rng = np.random.default_rng(0)
    rows = []
    for number in range(rounds):
        actions = rng.uniform(-1.0, 1.0, (steps_per_round, fast.spec.action_size))
        resets = [_seconds(functools.partial(env.reset, number), clock) for env in (fast, original)]
        steps = [
            _seconds(functools.partial(_play, env, actions), clock) for env in (fast, original)
        ]
        fast.reset(number)
        physics = _seconds(functools.partial(_run_physics, fast.env.task, actions), clock)
        rows.append([*(seconds / steps_per_round for seconds in (*steps, physics)), *resets])
    fast_step, original_step, physics_step, fast_reset, original_reset = map(
        median, zip(*rows, strict=True)
    )
    horizon = fast.spec.horizon
    episodes = [(horizon * o + ro) / (horizon * f + rf) for f, o, _, rf, ro in rows]
    return SteppingSpeed(
        env_id,
        fast_step,
        original_step,
        physics_step,
        fast_reset,
        original_reset,
        step_ratio=median(row[1] / row[0] for row in rows),
        episode_ratio=median(episodes),
    )


def _play(env: SafetyGymnasiumEnv, actions: np.ndarray) -> None:
    for action in actions:
        env.step(action)


def _run_physics(task: Any, actions: np.ndarray) -> None:
    for action in actions:
        task.data.ctrl[:] = action
        mujoco.mj_step(task.model, task.data, task.sim_conf.frameskip_binom_n)


class EvaluationSpeed(NamedTuple):
    """Medians over rounds, in seconds of a whole evaluation."""

    env_id: str
    episodes: int
    lockstep: float
    sequential: float
    """One lane, fast stepping."""
    original: float
    """One lane, original stepping: what evaluation was before either existed."""
    make_lanes: float
    """Once per run: the envs of all lanes, before the first evaluation."""
    lockstep_ratio: float
    """Original over lockstep."""


def measure_evaluation(
    env_id: str,
    *,
    episodes: int,
    rounds: int,
    horizon: int | None = None,
    clock: Clock = time.perf_counter,
) -> EvaluationSpeed:
    """Evaluation of an untrained policy of full size, in lockstep and one by one."""
    lanes = Lanes(lambda: make_env(env_id, horizon=horizon))
    make_lanes = _seconds(lambda: lanes.take(episodes), clock)
    original = SafetyGymnasiumEnv(env_id, horizon=horizon, stepping="original")
    predict = _policy_of_full_size(original.spec)
    subjects = (
        lambda: evaluate(lanes, predict, episodes, 0),
        lambda: evaluate(lanes, predict, episodes, 0, max_lanes=1),
        lambda: evaluate(original, predict, episodes, 0),
    )
    short = Lanes(lambda: make_env(env_id, horizon=1))
    for number in (1, episodes):  # compiles
        evaluate(short, predict, number, 0)
    rows = [[_seconds(subject, clock) for subject in subjects] for _ in range(rounds)]
    lockstep, sequential, plain = map(median, zip(*rows, strict=True))
    ratio = median(row[2] / row[0] for row in rows)
    return EvaluationSpeed(env_id, episodes, lockstep, sequential, plain, make_lanes, ratio)


def _policy_of_full_size(spec: EnvSpec) -> Predict:
    head = policies.build(off_policy_preset("sl-sac", "SafetyPointGoal1-v0").policy, spec)
    params = head.init(jax.random.PRNGKey(0))
    mode = jax.jit(row_by_row(head.mode))
    return lambda observations: np.asarray(mode(params, observations))


def _seconds(run: Callable[[], Any], clock: Clock) -> float:
    start = clock()
    run()
    return clock() - start
