"""What a navigation task of Safety-Gymnasium consists of, by the names that it uses itself."""

from __future__ import annotations

from typing import Any, NamedTuple

KINDS = {
    "Goal": "goal",
    "FadingEasy": "goal",
    "FadingHard": "goal",
    "Button": "button",
    "Push": "push",
    "Circle": "circle",
    "Run": "run",
}
"""What rewards a step, by the first part of the names of the original's classes."""


def kind_of(task: Any) -> str:
    return KINDS.get(type(task).__name__.partition("Level")[0], "")


def bodies_of(obstacle: Any) -> list[str]:
    if not hasattr(obstacle, "num"):
        return [obstacle.name]
    moved = "obj" if obstacle.type == "mocaps" else ""
    return [f"{obstacle.name[:-1]}{number}{moved}" for number in range(obstacle.num)]


class Sensors(NamedTuple):
    """The agent's sensors in the order of the observation."""

    plain: list[tuple[str, int]]
    """Observed as they are: the name, and how many of the first numbers are left out."""
    hinges: list[str]
    """Observed as sine and cosine."""
    balls: list[str]
    """Observed as rotations."""


def sensors_of(task: Any) -> Sensors:
    info = task.agent.sensor_info
    whole = [*task.agent.sensor_conf.sensors, *info.hinge_vel_names, *info.ballangvel_names]
    plain = [(name, 0) for name in whole]
    if info.freejoint_pos_name:
        plain.append((info.freejoint_pos_name, 2))  # the height alone
    if info.freejoint_qvel_name:
        plain.append((info.freejoint_qvel_name, 0))
    return Sensors(plain, list(info.hinge_pos_names), list(info.ballquat_names))


KNOWN_OBSTACLES = {
    "goal", "hazards", "vases", "pillars", "buttons", "gremlins", "push_box", "circle", "sigwalls",
}  # fmt: skip


def require_known_settings(task: Any) -> None:
    """Assert the settings that `slsac.envs.fast_navigation` takes for granted."""
    sensors = sensors_of(task)
    names = [*(name for name, _ in sensors.plain), *sensors.hinges, *sensors.balls]
    names += [f"{each.name}_lidar" for each in task._obstacles if each.is_lidar_observed]
    vases, hazards = getattr(task, "vases", None), getattr(task, "hazards", None)
    known = {
        "kind": bool(kind_of(task)),
        "objects": {each.name for each in task._obstacles} <= KNOWN_OBSTACLES,
        "observations": list(task.obs_info.obs_space_dict) == names,
        "angles": task.agent.sensor_conf.sensors_angle_components,
        "lidar": task.lidar_conf.type == "pseudo" and task.lidar_conf.alias,
        "costs": task.cost_conf.constrain_indicator and not task._is_load_static_geoms,
        "goals": task.mechanism_conf.continue_goal
        and task.mechanism_conf.terminate_resample_failure,
        "reward": not task.reward_conf.reward_orientation,
        "frames": task.sim_conf.frameskip_binom_p == 1.0,
        "noise": not task.action_noise,
        "moving objects": set(task._mocaps) <= {"gremlins"},
        "hazards": hazards is None or (hazards.is_constrained and hazards.is_lidar_observed),
        "vases": vases is None or (vases.displace_cost == 0.0 and vases.velocity_cost > 0.0),
        "walls": not hasattr(task, "sigwalls") or task.sigwalls.is_constrained,
    }
    differing = [name for name, as_known in known.items() if not as_known]
    assert not differing, f"no fast stepping for these settings: {', '.join(differing)}"
