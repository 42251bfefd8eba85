"""Published figures to compare with: return and cost of an episode, and hours.

``published.csv`` holds ``return/cost`` by task and algorithm. The paper's are means over 5 seeds
and 30 deterministic episodes after 1,000,000 steps, at a cost limit of 25. OmniSafe's are from its
published tables at the same limit: 1,000,000 steps off policy (3,000,000 on Humanoid and the
navigation tasks), 10,000,000 on policy.
"""

from __future__ import annotations

import csv
from functools import cache
from importlib import resources
from typing import NamedTuple

TASK_ORDER = (
    "SafetyAntVelocity-v1",
    "SafetyHalfCheetahVelocity-v1",
    "SafetyWalker2dVelocity-v1",
    "SafetySwimmerVelocity-v1",
    "SafetyHumanoidVelocity-v1",
    "SafetyHopperVelocity-v1",
    "SafetyCarCircle1-v0",
    "SafetyCarGoal1-v0",
    "SafetyPointCircle1-v0",
    "SafetyPointGoal1-v0",
)
"""The rows of the paper's Table 1."""

ALGORITHM_ORDER = ("sac-lag", "td3-lag", "sac-pid", "td3-pid", "wcsac", "ppo-lag", "cpo", "sl-sac")
"""The columns of the paper's Table 1, with the on-policy ones before SL-SAC."""

V100_HOURS = {
    "SafetyAntVelocity-v1": {"sac-lag": 5.56, "td3-lag": 6.03, "sac-pid": 4.79, "td3-pid": 5.98,
                             "wcsac": 6.28, "sl-sac": 6.57},
    "SafetyWalker2dVelocity-v1": {"sac-lag": 6.03, "td3-lag": 6.09, "sac-pid": 5.90,
                                  "td3-pid": 6.00, "wcsac": 5.94, "sl-sac": 6.22},
}  # fmt: skip
"""The paper's hours of training for 1,000,000 steps."""


class Reference(NamedTuple):
    """A published result and its source."""

    episode_return: float
    cost: float
    source: str


@cache
def _references() -> dict[tuple[str, str, str], Reference]:
    """Every published result by source, algorithm and task."""
    text = (resources.files("slsac.report") / "published.csv").read_text(encoding="utf-8")
    references = {}
    for row in csv.DictReader(text.splitlines()):
        for algo in ALGORITHM_ORDER:
            if row[algo]:
                episode_return, cost = map(float, row[algo].split("/"))
                references[row["source"], algo, row["task"]] = Reference(
                    episode_return, cost, row["source"]
                )
    return references


def reference(algo: str, env: str) -> Reference | None:
    """The published result of an algorithm on a task, if there is one.

    OmniSafe's figures stand for what the paper does not have: the on-policy algorithms, and the
    presets with OmniSafe's own settings.
    """
    omnisafe = _references().get(("OmniSafe", algo.removesuffix("/omnisafe"), env))
    return _references().get(("paper", algo, env), omnisafe)


def hours_per_million_steps(algo: str, env: str) -> float | None:
    """The paper's training time on a V100, where it gives one."""
    return V100_HOURS.get(env, {}).get(algo)
