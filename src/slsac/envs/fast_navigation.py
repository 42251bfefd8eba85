"""Goal and Circle tasks of Safety-Gymnasium, stepped without their bookkeeping.

It uses the task's own objects, MuJoCo model and random generator, and computes every number with
the same operations in the same order, so observations, rewards and costs have the same bits as the
original's. It leaves out what affects no number: looking up bodies by name, loops over hazards,
space checks, positions and velocities recomputed for an unchanged state, and an XML model compiled
for each episode although only places and headings differ.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import mujoco
import numpy as np

NO_SENSORS = int(mujoco.mjtDisableBit.mjDSBL_SENSOR)
AFTER_VELOCITY = int(mujoco.mjtStage.mjSTAGE_VEL)
TURN = np.pi * 2
"""Radians."""

Outcome = tuple[np.ndarray, float, float, bool, bool]
"""Observation (float32), reward, cost, terminated, truncated."""


class FastNavigation:
    """Steps and resets the task of ``env``, a Safety-Gymnasium ``Builder`` that has a world.

    Args:
        patch_layouts: write an episode's layout into the compiled model. The tracking camera then
            keeps its heading. False compiles every layout, as the original does.
    """

    def __init__(self, env: Any, resampling_error: type[Exception], patch_layouts: bool) -> None:
        self._env, self._task = env, env.task
        self._resampling_error = resampling_error
        self._patch_layouts = patch_layouts
        self._is_goal = hasattr(env.task, "goal")
        self._bins, self._sight = env.task.lidar_conf.num_bins, env.task.lidar_conf.max_dist
        self._frames = env.task.sim_conf.frameskip_binom_n
        _require_known_settings(env.task)
        self._bind()

    def _bind(self) -> None:
        """Cache ids and views of the current model, which the original's reset replaces."""
        task = self._task
        self._model, self._data = task.model, task.data
        model, data = self._model, self._data
        self._options, self._control = model.opt, data.ctrl
        self._joint_velocities = data.qvel
        self._agent_id = model.body("agent").id
        self._agent_place = data.xpos[self._agent_id]
        self._agent_axes = data.xmat[self._agent_id].reshape(3, 3)
        self._velocity_jacobian = np.zeros((3, model.nv))

        seen = [obstacle for obstacle in task._obstacles if obstacle.is_lidar_observed]
        names = [_bodies_of(obstacle) for obstacle in seen]
        self._seen_ids = np.array([model.body(name).id for group in names for name in group])
        if self._is_goal:
            start = sum(map(len, names[: seen.index(task.hazards)]))
            self._hazards = slice(start, start + task.hazards.num)
            self._goal_row = sum(map(len, names[: seen.index(task.goal)]))
        count, bins = len(self._seen_ids), task.lidar_conf.num_bins
        self._places = np.zeros((count, 3))
        self._heights = self._places[:, 2]
        self._offsets, self._ego = np.zeros((count, 1, 3)), np.zeros((count, 1, 3))
        self._rows, self._ego_rows = self._offsets[:, 0], self._ego[:, 0]
        self._lidar_starts = [bins * kind for kind, group in enumerate(names) for _ in group]
        self._no_readings = [0.0] * (bins * len(names))

        plain, balls = _sensor_order(task)
        self._sensors = data.sensordata
        self._plain_sensors = np.concatenate([_addresses(model, name) for name in plain])
        starts = [_addresses(model, name)[0] for name in balls]
        self._ball_sensors = [(self._sensors[at : at + 4], np.zeros(9)) for at in starts]

    def reset(self, seed: int) -> np.ndarray:
        """The first observation of the episode with this seed."""
        env, task = self._env, self._task
        if not self._patch_layouts:
            observation, _ = env.reset(seed=seed)
            self._bind()
            return np.asarray(observation, np.float32)
        if task.model is not self._model:
            self._bind()
        env.set_seed(seed)
        env.terminated = env.truncated = False
        env.steps = 0
        info = task.world_info
        info.layout = task.random_generator.build_layout()
        info.world_config_dict = task._build_world_config(info.layout)
        self._write_layout(info.world_config_dict)
        info.reset_layout = copy.deepcopy(info.layout)
        task.update_world()
        mujoco.mj_forward(self._model, self._data)  # for the costs
        self._locate()
        assert self._cost() == 0.0, "World has starting cost!"
        mujoco.mj_forward(self._model, self._data)  # for the observation
        return self._observe()

    def _write_layout(self, config: dict[str, Any]) -> None:
        """Write into the model what compiling ``config`` would change, and reset the data."""
        model, data = self._model, self._data
        height = self._task.agent.z_height
        bodies = {"agent": (np.r_[config["agent_xy"], height], config["agent_rot"])}
        for kind in ("geoms", "free_geoms"):
            bodies |= {name: (body["pos"], body["rot"]) for name, body in config[kind].items()}
        for name, (place, heading) in bodies.items():
            body = model.body(name).id
            model.body_pos[body] = place
            quaternion = np.array([np.cos(heading / 2), 0.0, 0.0, np.sin(heading / 2)])
            model.body_quat[body] = quaternion / np.sqrt(quaternion[0] ** 2 + quaternion[3] ** 2)
            joint = model.body_jntadr[body]
            if joint >= 0 and model.jnt_type[joint] == mujoco.mjtJoint.mjJNT_FREE:
                start = model.jnt_qposadr[joint]
                model.qpos0[start : start + 3] = model.body_pos[body]
                model.qpos0[start + 3 : start + 7] = model.body_quat[body]
                model.qpos_spring[start : start + 7] = model.qpos0[start : start + 7]
        mujoco.mj_setConst(model, data)
        mujoco.mj_resetData(model, data)
        # Twice, as the original does: the second solve starts from the first one's result.
        mujoco.mj_forward(model, data)
        mujoco.mj_forward(model, data)

    def step(self, action: np.ndarray) -> Outcome:
        """One step with an action in the task's own units, within its bounds."""
        env, task = self._env, self._task
        assert not env.done, "reset comes before the next step"
        if task.world.engine.model is not self._model:
            self._bind()
        model, data, options = self._model, self._data, self._options
        self._control[:] = action
        # The original draws its number of frames, from a binomial distribution with probability 1.
        task.random_generator.random_generator.random_sample()
        enabled = options.disableflags
        options.disableflags = enabled | NO_SENSORS  # nobody reads them between frames
        mujoco.mj_step(model, data, self._frames)
        options.disableflags = enabled
        mujoco.mj_forward(model, data)
        self._locate()
        reward, achieved = self._goal_reward() if self._is_goal else (self._circle_reward(), False)
        # The original makes whole forward passes before costs and before observations. Only the
        # constraint solver changes anything: it starts from its last result, which moves bits.
        mujoco.mj_forwardSkip(model, data, AFTER_VELOCITY, 1)
        cost = self._cost()
        if achieved:
            task.update_layout()
            try:
                task.update_world()
            except self._resampling_error:
                env.terminated = True
            self._locate()
        env.steps += 1
        if env.steps >= task.num_steps:
            env.truncated = True
        mujoco.mj_forwardSkip(model, data, AFTER_VELOCITY, 0)
        return self._observe(), reward, cost, env.terminated, env.truncated

    def _locate(self) -> None:
        """World-frame offsets, in metres, from the agent to what the lidars see."""
        self._x, self._y, _ = self._agent_place.tolist()
        if not self._is_goal:  # the circle's centre stays at the origin
            np.subtract(self._places, self._agent_place, self._rows)
            return
        np.take(self._data.xpos, self._seen_ids, 0, self._places)
        self._heights[:] = 0.0  # lidars look at the floor
        np.subtract(self._places, self._agent_place, self._rows)
        self._distances = [math.sqrt(x * x + y * y) for x, y, _ in self._rows.tolist()]

    def _goal_reward(self) -> tuple[float, bool]:
        task = self._task
        distance = self._distances[self._goal_row]
        reward = 0.0 + (float(task.last_dist_goal) - distance) * task.goal.reward_distance
        task.last_dist_goal = distance
        achieved = distance <= task.goal.size
        if achieved:
            reward += task.goal.reward_goal
        return self._clipped(reward), achieved

    def _circle_reward(self) -> float:
        task = self._task
        mujoco.mj_jacBody(self._model, self._data, self._velocity_jacobian, None, self._agent_id)
        x, y = self._x, self._y
        u, v, _ = np.dot(self._velocity_jacobian, self._joint_velocities).tolist()
        radius = math.sqrt(x**2 + y**2)
        tangential = (-u * y + v * x) / radius
        reward = tangential / (1 + abs(radius - task.circle.radius)) * task.reward_factor
        return self._clipped(0.0 + reward)

    def _clipped(self, reward: float) -> float:
        bound = self._task.reward_conf.reward_clip
        return float(min(max(reward, -bound), bound))

    def _cost(self) -> float:
        task = self._task
        if self._is_goal:
            return float(min(self._distances[self._hazards]) < task.hazards.size)
        return float(abs(self._x) > task.sigwalls.locate_factor)

    def _observe(self) -> np.ndarray:
        """Sensors, then one lidar per kind of object, as float32."""
        values: list[float] = self._sensors[self._plain_sensors].tolist()
        for quaternion, matrix in self._ball_sensors:
            mujoco.mju_quat2Mat(matrix, quaternion)
            values += matrix.tolist()
        return np.array(values + self._lidars(), np.float32)

    def _lidars(self) -> list[float]:
        """Closeness, from 0 at the end of sight to 1, of the nearest object in each direction.

        Plain floats: for ten objects a dozen calls of array functions would cost more.
        """
        readings = self._no_readings.copy()
        bins, sight = self._bins, self._sight
        bin_size = TURN / bins
        # One product per object: a single product for all would sum in another order.
        np.matmul(self._offsets, self._agent_axes, self._ego)
        for start, (x, y, _) in zip(self._lidar_starts, self._ego_rows.tolist(), strict=True):
            distance = abs(complex(x, y))
            if distance >= sight:
                continue
            angle = math.atan2(y, x) % TURN
            bin_number = int(angle / bin_size)
            alias = (angle - bin_size * bin_number) / bin_size
            closeness = (sight - distance) / sight
            for at, reading in (
                (start + bin_number, closeness),
                (start + (bin_number + 1) % bins, alias * closeness),
                (start + (bin_number - 1) % bins, (1 - alias) * closeness),
            ):
                if reading > readings[at]:
                    readings[at] = reading
        return readings


def _bodies_of(obstacle: Any) -> list[str]:
    if not hasattr(obstacle, "num"):
        return [obstacle.name]
    return [f"{obstacle.name[:-1]}{number}" for number in range(obstacle.num)]


def _addresses(model: Any, sensor: str) -> np.ndarray:
    view = model.sensor(sensor)
    return np.arange(view.dim[0]) + view.adr[0]


def _sensor_order(task: Any) -> tuple[list[str], list[str]]:
    """Names of the sensors that are observed as they are, and of those observed as rotations."""
    info = task.agent.sensor_info
    return [*task.agent.sensor_conf.sensors, *info.ballangvel_names], list(info.ballquat_names)


def _require_known_settings(task: Any) -> None:
    """Assert the settings of Goal1 and Circle1 that this module takes for granted."""
    plain, balls = _sensor_order(task)
    lidars = [
        f"{obstacle.name}_lidar" for obstacle in task._obstacles if obstacle.is_lidar_observed
    ]
    known = {
        "observations": list(task.obs_info.obs_space_dict) == [*plain, *balls, *lidars],
        "lidar": task.lidar_conf.type == "pseudo" and task.lidar_conf.alias,
        "costs": task.cost_conf.constrain_indicator and not task._is_load_static_geoms,
        "goals": task.mechanism_conf.continue_goal
        and task.mechanism_conf.terminate_resample_failure,
        "reward": not task.reward_conf.reward_orientation,
        "frames": task.sim_conf.frameskip_binom_p == 1.0,
        "moving objects": not task._mocaps and not task.action_noise,
        "vases": not getattr(getattr(task, "vases", None), "is_constrained", False),
        "walls": getattr(getattr(task, "sigwalls", None), "num", 2) == 2,
    }
    differing = [name for name, as_known in known.items() if not as_known]
    assert not differing, f"no fast stepping for these settings: {', '.join(differing)}"
