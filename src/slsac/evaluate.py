"""Evaluation: seeded episodes of a fixed policy. Returns arrays, not means.

The episode loop itself is `slsac.envs.play`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from slsac.envs.contract import LARGEST_NUMBER
from slsac.envs.play import Lanes, Predict, Transition, play
from slsac.errors import EnvFailed, InvalidInput, brief
from slsac.seeds import Branch, episode_seed
from slsac.stats.summary import Evaluation, stack_extras
from slsac.types import SafeEnv

MOST_EPISODES = 1_000_000
"""The most of one evaluation: all seeds are drawn before the first episode."""


def evaluate(
    env: SafeEnv | Lanes,
    predict: Predict,
    episodes: int,
    seed: int,
    *,
    max_lanes: int | None = None,
) -> Evaluation:
    """Plays ``episodes`` whole episodes, each from a seed of its own.

    With a ``predict`` that treats its rows one by one (see `row_by_row`), every number has the same
    bits for any number of lanes and of episodes: an episode depends on its seed and the policy.

    Args:
        max_lanes: 1 plays one episode after the other.
    """
    wanted = episodes if max_lanes is None else min(max_lanes, episodes)
    envs = env.take(wanted) if isinstance(env, Lanes) else [env]
    totals = np.zeros((3, episodes))
    extras: list[Mapping[str, float]] = [{}] * episodes
    for transition in play(envs, predict, evaluation_seeds(seed, episodes)):
        step = transition.step
        _require_finite(transition)
        totals[:, transition.episode] += (step.reward, step.cost, 1.0)
        if transition.ends_episode:
            extras[transition.episode] = step.extras or {}
    returns, costs, lengths = totals
    return Evaluation(returns, costs, lengths.astype(np.int64), stack_extras(extras))


def require_episodes(
    episodes: int, least: int = 1, most: int = MOST_EPISODES, *, name: str = "episodes"
) -> None:
    """Raise InvalidInput unless ``episodes`` is in [least, most]; the message calls it ``name``."""
    if not least <= episodes <= most:
        raise InvalidInput(
            f"{name} is {brief(episodes)}; it must be at least {least} and at most {most:,}"
        )


def require_recordable(*, deterministic: bool) -> None:
    """Raise InvalidInput for episodes that may not become a run's final evaluation."""
    if not deterministic:
        raise InvalidInput(
            "record is True; sampled actions are not recorded: pass deterministic=True (or "
            "drop --stochastic)"
        )


def evaluation_seeds(seed: int, episodes: int) -> list[int]:
    """The env seeds of the first ``episodes`` episodes of an evaluation."""
    return [episode_seed(seed, Branch.EVALUATION, episode) for episode in range(episodes)]


def _require_finite(transition: Transition) -> None:
    step = transition.step
    if not np.isfinite(transition.observation).all():
        raise EnvFailed(
            "in an evaluation the environment returned an observation that is not finite"
        )
    if not (abs(step.reward) <= LARGEST_NUMBER and abs(step.cost) <= LARGEST_NUMBER):
        raise EnvFailed(
            f"the environment returned a reward of {step.reward} and a cost of {step.cost} "
            "in an evaluation; both must be finite in single precision"
        )
