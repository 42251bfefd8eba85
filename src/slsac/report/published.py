"""Published figures that ours are held against: return and cost of an episode, and hours.

The paper's are means over 5 seeds and 30 deterministic episodes after 1,000,000 steps, at a cost
limit of 25. OmniSafe's are from its published tables at the same limit: 1,000,000 steps off
policy (3,000,000 on Humanoid and the navigation tasks), 10,000,000 on policy.
"""

from __future__ import annotations

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


class Reference(NamedTuple):
    """A published result and where it is from."""

    episode_return: float
    cost: float
    source: str


def _rows(tasks: tuple[str, ...], figures: str) -> dict[str, list[tuple[float, float] | None]]:
    """``return / cost`` cells, one line for each task; ``-`` where nothing is published."""
    rows = {}
    for task, line in zip(tasks, figures.strip().splitlines(), strict=True):
        cells = [cell.split("/") for cell in line.split("|")]
        rows[task] = [
            None if cell[0].strip() == "-" else (float(cell[0]), float(cell[1])) for cell in cells
        ]
    return rows


_PAPER_COLUMNS = ("sac-lag", "td3-lag", "sac-pid", "td3-pid", "wcsac", "sl-sac")
_PAPER = _rows(
    TASK_ORDER,
    """
    1707 / 13.7 | 1613 / 23.9 | 1823 / 4.6 | 2948 / 40.5 | 2846 / 10.6 | 3104 / 3.6
    2777 / 7.2 | 2707 / 13.8 | 2646 / 12.4 | 2739 / 44.6 | 2814 / 0 | 2828 / 0
    2582 / 28.2 | 2873 / 23.6 | 1872 / 25.5 | 2861 / 13.9 | 2705 / 29.1 | 3004 / 5.1
    14.1 / 26.9 | 21.2 / 15.4 | 8.0 / 5.8 | 43.1 / 25.5 | 18.2 / 16.3 | 13.1 / 2.4
    5142 / .25 | 5405 / .23 | 5428 / .16 | 5266 / .30 | 2995 / 7.2 | 5184 / 0
    935 / 18.6 | 991 / 36.2 | 997 / 48.5 | 1120 / 44.2 | 1040 / 15.4 | 1293 / 12.5
    19.6 / 29.3 | 26.7 / 15.1 | 28.4 / 11.3 | 17.1 / 24.6 | 17.0 / 15.8 | 17.7 / 8.9
    11.9 / 17.3 | 21.6 / 15.8 | 23.9 / 21.5 | 32.2 / 56.2 | 10.3 / 6.8 | 22.2 / 10.1
    71.6 / 29.0 | 69.6 / 4.0 | 62.1 / 12.8 | 51.2 / 3.9 | 36.4 / 10.7 | 46.7 / 19.2
    15.0 / 20.0 | 22.8 / 29.2 | 14.9 / 36.4 | 16.4 / 17.4 | 5.5 / 3.2 | 11.0 / 16.9
    """,
)

_OMNISAFE_COLUMNS = ("sac-lag", "td3-lag", "sac-pid", "td3-pid", "ppo-lag", "cpo")
_OMNISAFE = _rows(
    TASK_ORDER,
    """
    1897 / 5.7 | 1944 / 63 | 1941 / 13.7 | 2410 / 44.5 | 3262 / 12 | 3099 / 14
    2834 / 0 | 2741 / 10.5 | 2689 / 21.4 | 2696 / 35.9 | 2946 / 3.4 | 2786 / 4.7
    2676 / 31 | 2996 / 22.5 | 1252 / 41 | 2770 / 6.5 | 2982 / 13.5 | 2075 / 22
    11 / 22.7 | 16 / 13 | 7.5 / 7.8 | 29 / 22.5 | 65 / 28 | 65 / 18
    5940 / 18 | 5752 / 11 | 6107 / 6.2 | 6179 / 5.6 | 6624 / 5.9 | 6465 / .2
    963 / 20 | 929 / 41 | 813 / 92 | 1226 / 47 | 962 / 14 | 1714 / 13
    31.4 / 22 | 34.4 / 2.3 | 34.4 / 5 | 34.8 / 47 | - | -
    10.8 / 23 | 7.3 / 34 | 16.2 / 6.7 | 27.3 / 9.5 | 13.3 / 22 | 25.5 / 43
    83.7 / 13 | 83.1 / 7.8 | 75 / 4.5 | 71 / 0 | - | -
    21.5 / 19 | 25.3 / 28 | 15.9 / 27.5 | 18.8 / 12 | 13 / 26 | 20.5 / 29
    """,
)

_HOURS = {
    "SafetyAntVelocity-v1": (5.56, 6.03, 4.79, 5.98, 6.28, 6.57),
    "SafetyWalker2dVelocity-v1": (6.03, 6.09, 5.90, 6.00, 5.94, 6.22),
}


def reference(algo: str, env: str) -> Reference | None:
    """What is published for an algorithm on a task, if anything is.

    OmniSafe's figures stand for what the paper does not have: the on-policy algorithms, and the
    presets with OmniSafe's own settings.
    """
    if algo in _PAPER_COLUMNS and env in _PAPER:
        figures, source = _PAPER[env][_PAPER_COLUMNS.index(algo)], "paper"
    elif (name := algo.removesuffix("/omnisafe")) in _OMNISAFE_COLUMNS and env in _OMNISAFE:
        figures, source = _OMNISAFE[env][_OMNISAFE_COLUMNS.index(name)], "OmniSafe"
    else:
        return None
    return figures and Reference(*figures, source)


def hours_per_million_steps(algo: str, env: str) -> float | None:
    """The paper's training time on a V100, where it gives one."""
    if algo not in _PAPER_COLUMNS or env not in _HOURS:
        return None
    return _HOURS[env][_PAPER_COLUMNS.index(algo)]
