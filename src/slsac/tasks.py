"""The tasks that slsac knows by id: what each is, and the family whose settings it shares."""

from __future__ import annotations

from typing import Literal, NamedTuple

Family = Literal["velocity", "navigation", "driving", "other"]

METADRIVE_ID = "MetaDriveSafe-v0"


class Task(NamedTuple):
    """What users and presets need to know about a task before it is built."""

    family: Family
    horizon: int
    """Steps after which an episode is truncated."""
    description: str


def _velocity(motion: str, speed: str) -> Task:
    return Task("velocity", 1000, f"{motion}; cost 1 per step above {speed}")


def _goal(agent: str) -> Task:
    description = f"steer a {agent} to one goal after another; cost 1 per step in a hazard"
    return Task("navigation", 1000, description)


def _circle(agent: str) -> Task:
    description = f"drive a {agent} fast along a circle; cost 1 per step beyond |x| > 1.125"
    return Task("navigation", 500, description)


SAFETY_GYMNASIUM: dict[str, Task] = {
    "SafetyAntVelocity-v1": _velocity("walk on four legs", "2.6222 m/s in the plane"),
    "SafetyHalfCheetahVelocity-v1": _velocity("run on two legs", "3.2096 m/s forward"),
    "SafetyHopperVelocity-v1": _velocity("hop on one leg", "0.7402 m/s forward"),
    "SafetyWalker2dVelocity-v1": _velocity("walk upright in a plane", "2.3415 m/s forward"),
    "SafetySwimmerVelocity-v1": _velocity("swim with three links", "0.2282 m/s forward"),
    "SafetyHumanoidVelocity-v1": _velocity("walk as a humanoid", "1.4149 m/s in the plane"),
    "SafetyPointGoal1-v0": _goal("point"),
    "SafetyCarGoal1-v0": _goal("car"),
    "SafetyPointCircle1-v0": _circle("point"),
    "SafetyCarCircle1-v0": _circle("car"),
}
METADRIVE_DESCRIPTION = (
    "three road blocks in traffic; a collision or leaving the road costs 1 and ends it"
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
    tasks = [(env_id, task.description) for env_id, task in SAFETY_GYMNASIUM.items()]
    return [*tasks, (METADRIVE_ID, METADRIVE_DESCRIPTION), *PROBE_DESCRIPTIONS.items()]


def family(env_id: str) -> Family:
    """The group of tasks whose hyperparameters ``env_id`` shares."""
    if env_id == METADRIVE_ID:
        return "driving"
    return SAFETY_GYMNASIUM[env_id].family if env_id in SAFETY_GYMNASIUM else "other"
