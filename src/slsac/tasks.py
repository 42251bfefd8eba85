"""The tasks that slsac knows by id: what each is, and the family whose settings it shares."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

Family = Literal["velocity", "navigation", "driving", "other"]

METADRIVE_ID = "MetaDriveSafe-v0"


class Task(NamedTuple):
    """What users and presets need to know about a task before it is built."""

    family: Family
    group: str
    """Heading that it is listed under."""
    horizon: int
    """Steps after which an episode is truncated."""
    description: str


def _velocity(motion: str, speed: str, heading: str) -> Task:
    group = "velocity" if heading == "v1" else "velocity, older thresholds"
    return Task("velocity", group, 1000, f"{motion}; cost 1 per step above {speed}")


GAITS = {
    "Ant": ("walk on four legs", "in the plane", 2.6222, 2.5745),
    "HalfCheetah": ("run on two legs", "forward", 3.2096, 2.8795),
    "Hopper": ("hop on one leg", "forward", 0.7402, 0.37315),
    "Walker2d": ("walk upright in a plane", "forward", 2.3415, 1.7075),
    "Swimmer": ("swim with three links", "forward", 0.2282, 0.04845),
    "Humanoid": ("walk as a humanoid", "in the plane", 1.4149, 2.3475),
}
"""Robots of the velocity tasks: the motion, the direction, thresholds of v1 and v0 in m/s."""

AGENTS = ("Point", "Car", "Racecar", "Doggo", "Ant")
"""Robots of the navigation tasks."""

ONE_GOAL_AFTER_ANOTHER = "steer {agent} to one goal after another"
BUTTONS = "drive {agent} to the button that is lit, one after another"
PUSH = "push a box to one goal after another with {agent}"
CIRCLE = "drive {agent} fast along a circle"
NO_COST = "no cost"
IN_A_HAZARD = "cost 1 per step in a hazard"
HAZARD_OR_VASE = "cost 1 per step in a hazard, touching a vase or while a vase moves"
HAZARD_GREMLIN_OR_BUTTON = "cost 1 per step in a hazard, touching a gremlin or a wrong button"
NAVIGATION = {
    "Goal0": (1000, ONE_GOAL_AFTER_ANOTHER, NO_COST),
    "Goal1": (1000, ONE_GOAL_AFTER_ANOTHER, IN_A_HAZARD),
    "Goal2": (1000, ONE_GOAL_AFTER_ANOTHER, HAZARD_OR_VASE),
    "Button0": (1000, BUTTONS, NO_COST),
    "Button1": (1000, BUTTONS, HAZARD_GREMLIN_OR_BUTTON),
    "Button2": (1000, BUTTONS, f"{HAZARD_GREMLIN_OR_BUTTON}; more of them"),
    "Push0": (1000, PUSH, NO_COST),
    "Push1": (1000, PUSH, IN_A_HAZARD),
    "Push2": (1000, PUSH, "cost 1 per step in a hazard or touching a pillar"),
    "Circle0": (500, CIRCLE, NO_COST),
    "Circle1": (500, CIRCLE, "cost 1 per step beyond |x| > 1.125"),
    "Circle2": (500, CIRCLE, "cost 1 per step beyond |x| > 1.125 or |y| > 1.125"),
    "Run0": (500, "run far with {agent}", "cost 1 per step beyond |x| > 0.5"),
    **{
        f"Fading{speed}{level}": (
            1000,
            f"the same numbers as Goal{level}: only cameras see things fade",
            cost,
        )
        for speed in ("Easy", "Hard")
        for level, cost in enumerate((NO_COST, IN_A_HAZARD, HAZARD_OR_VASE))
    },
}
"""Steps, the aim and the cost of each navigation task, whoever the agent is."""


def _navigation(agent: str, name: str) -> Task:
    horizon, aim, cost = NAVIGATION[name]
    group = "fading" if name.startswith("Fading") else name[:-1].lower()
    article = "an" if agent[0] in "AEIOU" else "a"
    aim = aim.format(agent=f"{article} {agent.lower()}")
    return Task("navigation", group, horizon, f"{aim}; {cost}")


SAFETY_GYMNASIUM: dict[str, Task] = {
    **{
        f"Safety{robot}Velocity-{version}": _velocity(motion, f"{speed} m/s {where}", version)
        for at, version in enumerate(("v1", "v0"))
        for robot, (motion, where, *speeds) in GAITS.items()
        for speed in speeds[at : at + 1]
    },
    **{
        f"Safety{agent}{name}-v0": _navigation(agent, name)
        for name in NAVIGATION
        for agent in AGENTS
    },
}
"""Every task of Safety-Gymnasium that can be made, by its own id."""
IN_THE_PAPER = (
    *(f"Safety{robot}Velocity-v1" for robot in GAITS),
    *(f"Safety{agent}{name}-v0" for name in ("Goal1", "Circle1") for agent in ("Point", "Car")),
)
"""The ten tasks that SL-SAC was published on."""

LEFT_OUT = {
    r"Safety\w+Vision-v\d": (
        "Safety...Vision-v0", "observations are pictures, and the networks have no convolutions"
    ),
    r"Safety\w+Race\d-v\d": (
        "Safety...Race0-v0 to Race2-v0", "textures are missing from safety-gymnasium's package"
    ),
    r"Safety(\w*Multi\w*|\d+x\d+\w+|\w*ManyAgent\w*)-v\d": (
        "multi-agent tasks", "slsac trains one agent"
    ),
    r"Safety\w+Debug-v\d": ("Safety...Debug-v0", "steered by keyboard"),
    r"Safety\w+Gymnasium-v\d": (
        "Safety...Gymnasium-v0", "the same as the id without 'Gymnasium'"
    ),
}  # fmt: skip
"""Ids of Safety-Gymnasium that do not exist here, by their pattern: which they are, and why."""


def why_left_out(env_id: str) -> str | None:
    """Why an id of Safety-Gymnasium does not exist here; None for any other."""
    if env_id in SAFETY_GYMNASIUM:
        return None
    return next(
        (why for pattern, (_, why) in LEFT_OUT.items() if re.fullmatch(pattern, env_id)), None
    )


METADRIVE_DESCRIPTION = (
    "three road blocks in traffic; a collision or leaving the road costs 1 and ends the episode"
)

PROBE_DESCRIPTIONS = {
    "ProbeConstant-v0": "one step, reward 1, cost 2",
    "ProbeChain-v0": "three states whose discounted return and cost are known",
    "ProbeChoice-v0": "the constraint binds and the best safe policy is known",
    "ProbeHeavyTail-v0": "a cost with a Pareto tail, CVaR in closed form",
    "ProbeCounts-v0": "twenty steps that may cost 1 each, a binomial cost",
    "ProbeTerminated-v0": "the task ends: Q = 1",
    "ProbeTruncated-v0": "only the clock runs out: Q = 1 / (1 - discount)",
}
"""The tasks of `slsac.envs.probe`."""


def list_envs() -> list[tuple[str, str]]:
    """Every id that needs no registration, with one line on each."""
    return [line for lines in grouped_envs().values() for line in lines]


def grouped_envs(words: Sequence[str] = ()) -> dict[str, list[tuple[str, str]]]:
    """Ids and descriptions by heading; only those that have all ``words``, in any case.

    Descriptions are searched for what no id and no heading has.
    """
    groups: dict[str, list[tuple[str, str]]] = {}
    for env_id, task in SAFETY_GYMNASIUM.items():
        heading = f"{task.group} ({task.horizon:,} steps)"
        groups.setdefault(heading, []).append((env_id, task.description))
    groups["driving (1,000 steps)"] = [(METADRIVE_ID, METADRIVE_DESCRIPTION)]
    groups["probes, whose answers are known"] = list(PROBE_DESCRIPTIONS.items())
    by_name = {
        heading: [line for line in lines if _has_all(words, f"{heading} {line[0]}")]
        for heading, lines in groups.items()
    }
    by_line = {
        heading: [line for line in lines if _has_all(words, f"{heading} {' '.join(line)}")]
        for heading, lines in groups.items()
    }
    chosen = by_name if any(by_name.values()) else by_line
    return {heading: lines for heading, lines in chosen.items() if lines}


def _has_all(words: Sequence[str], text: str) -> bool:
    return all(word.lower() in text.lower() for word in words)


def family(env_id: str) -> Family:
    """The group of tasks whose hyperparameters ``env_id`` shares."""
    if env_id == METADRIVE_ID:
        return "driving"
    return SAFETY_GYMNASIUM[env_id].family if env_id in SAFETY_GYMNASIUM else "other"
