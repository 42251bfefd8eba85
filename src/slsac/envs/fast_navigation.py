"""The navigation tasks of Safety-Gymnasium, stepped without their bookkeeping.

It uses the task's own objects, MuJoCo model and random generator, and computes every number with
the same operations in the same order, so observations, rewards and costs have the same bits as the
original's. It leaves out what affects no number: looking up bodies and contacts by name, loops over
hazards, space checks, positions and velocities recomputed for an unchanged state, and an XML model
compiled for each episode although only places and headings differ.
"""

from __future__ import annotations

import copy
import functools
import math
from typing import Any

import mujoco
import numpy as np

from slsac.envs.navigation_layout import build_layout
from slsac.envs.navigation_task import bodies_of, kind_of, require_known_settings, sensors_of
from slsac.envs.safety_gymnasium_packages import REFERENCE_ENGINE

NO_SENSORS = int(mujoco.mjtDisableBit.mjDSBL_SENSOR)
AFTER_VELOCITY = int(mujoco.mjtStage.mjSTAGE_VEL)
TURN = np.pi * 2
"""Radians."""

AGENT, COSTLY, BUTTONS = 1, 2, 4
"""Labels of geoms, to tell what the agent touches; button number k has k + 1 times the last."""
BEYOND_ROUNDING = 1e-6
"""Relative; far more than two ways to compute a velocity differ by."""

Outcome = tuple[np.ndarray, float, float, bool, bool]
"""Observation (float32), reward, cost, terminated, truncated."""


class FastNavigation:
    """Steps and resets the task of ``env``, a Safety-Gymnasium ``Builder`` that has a world.

    Args:
        patch_layouts: write an episode's layout into the compiled model. The tracking camera then
            keeps its heading, and what fades does not. False compiles every layout, as the
            original does. Layouts with mocap bodies or a racecar are always compiled, and so is
            every layout on another engine than the reference, whose compiler may differ.
    """

    def __init__(self, env: Any, resampling_error: type[Exception], patch_layouts: bool) -> None:
        task = env.task
        self._env, self._task = env, task
        self._resampling_error = resampling_error
        require_known_settings(task)
        kind = kind_of(task)
        self._fades = kind == "goal" and not patch_layouts and hasattr(task, "fadding_steps")
        # The compiler gives a massless body (the racecar's frame) an inertial frame that depends on
        # the layout, and contacts depend on that; and it measures what holds a mocap body.
        massless = (task.model.body_mass == 0.0) & (task.model.body_weldid > 0)
        can_be_patched = not task._mocaps and not massless.any()
        known_compiler = mujoco.__version__ == REFERENCE_ENGINE
        self._patch_layouts = patch_layouts and can_be_patched and known_compiler
        self._bins, self._sight = task.lidar_conf.num_bins, task.lidar_conf.max_dist
        self._frames = task.sim_conf.frameskip_binom_n
        self._reward = {
            "goal": self._goal_reward,
            "button": self._button_reward,
            "push": self._push_reward,
            "circle": self._circle_reward,
            "run": self._run_reward,
        }[kind]
        self._buttons = task.buttons if kind == "button" else None
        self._gremlins = getattr(task, "gremlins", None)
        self._walls = getattr(task, "sigwalls", None)
        self._measures_distances = kind in ("goal", "button", "push")
        constrained = [obstacle for obstacle in task._obstacles if obstacle.is_constrained]
        self._costly_kinds = [
            obstacle.name[:-1]
            for obstacle in constrained
            if obstacle.name in ("gremlins", "pillars", "vases")
        ]
        self._hazard_size = task.hazards.size if hasattr(task, "hazards") else 0.0
        self._vases = next((each for each in constrained if each.name == "vases"), None)
        self._looks_at_contacts = bool(self._costly_kinds or self._buttons)
        self._can_die = task.agent_name == "Ant"
        generator = task.random_generator
        generator.build_layout = functools.partial(build_layout, generator, resampling_error)
        self._bind()

    def _bind(self) -> None:
        """Cache ids and views of the current model, which the original's reset replaces."""
        task = self._task
        self._model, self._data = task.model, task.data
        model, data = self._model, self._data
        self._options, self._control = model.opt, data.ctrl
        # The box of actions is rounded to single precision, which can be beyond the motors' range.
        low, high = model.actuator_ctrlrange.T
        box = task.action_space
        self._bounds = None if (box.low >= low).all() and (box.high <= high).all() else (low, high)
        self._joint_velocities = data.qvel
        self._agent_id = model.body("agent").id
        self._agent_place = data.xpos[self._agent_id]
        self._agent_axes = data.xmat[self._agent_id].reshape(3, 3)
        self._velocity_jacobian = np.zeros((3, model.nv))
        self._bind_lidars()
        self._bind_contacts()
        plain, hinges, balls = sensors_of(task)
        self._sensors = data.sensordata
        self._plain_sensors = np.concatenate(
            [_addresses(model, name)[first:] for name, first in plain]
        )
        self._hinge_sensors = [_addresses(model, name)[0] for name in hinges]
        starts = [_addresses(model, name)[0] for name in balls]
        self._ball_sensors = [(self._sensors[at : at + 4], np.zeros(9)) for at in starts]

    def _bind_lidars(self) -> None:
        """Ids of the bodies that the lidars see, and where each one's readings begin."""
        task, model, bins = self._task, self._model, self._bins
        seen = [obstacle for obstacle in task._obstacles if obstacle.is_lidar_observed]
        names = [bodies_of(obstacle) for obstacle in seen]
        starts = dict(zip([each.name for each in seen], np.cumsum([0, *map(len, names)]).tolist(),
                          strict=False))  # fmt: skip
        self._seen_ids = np.array(
            [model.body(name).id for group in names for name in group], np.int64
        )
        hazards = getattr(task, "hazards", None)
        first = starts["hazards"] if hazards else 0
        self._hazards = slice(first, first + (hazards.num if hazards else 0))
        self._goal_row = starts.get("goal", -1)
        if hasattr(task, "push_box"):
            self._box_place = self._data.xpos[model.body("push_box").id]
            self._goal_place = self._data.xpos[model.body("goal").id]
        count = len(self._seen_ids)
        self._places = np.zeros((count, 3))
        self._heights = self._places[:, 2]
        self._offsets, self._ego = np.zeros((count, 1, 3)), np.zeros((count, 1, 3))
        self._rows, self._ego_rows = self._offsets[:, 0], self._ego[:, 0]
        self._lidar_starts = [bins * kind for kind, group in enumerate(names) for _ in group]
        self._no_readings = [0.0] * (bins * len(names))
        if self._buttons is not None:
            start = bins * [each.name for each in seen].index("buttons")
            self._button_readings = slice(start, start + bins)

    def _bind_contacts(self) -> None:
        """Label the geoms whose contacts matter, by their names as the original does."""
        model = self._model
        agent = set(self._task.agent.body_info.geom_names)
        self._labels = np.zeros(model.ngeom, np.int64)
        for geom in range(model.ngeom):
            name = model.geom(geom).name
            if name in agent:
                self._labels[geom] = AGENT
            elif name.startswith(tuple(self._costly_kinds)):
                self._labels[geom] = COSTLY
            elif name.startswith("button"):
                self._labels[geom] = BUTTONS * (int(name.removeprefix("button")) + 1)
        if self._vases is not None:
            joints = [model.joint(f"vase{number}").dofadr[0] for number in range(self._vases.num)]
            self._vase_velocities = np.array([[at, at + 1, at + 2] for at in joints])
            self._vase_ids = [model.body(f"vase{number}").id for number in range(self._vases.num)]

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
        task.specific_reset()
        task.agent.reset()
        mujoco.mj_forward(self._model, self._data)  # for the costs
        self._look()
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
        model, data = self._model, self._data
        self._control[:] = action if self._bounds is None else np.clip(action, *self._bounds)
        # The original draws its number of frames, from a binomial distribution with probability 1.
        task.random_generator.random_generator.random_sample()
        self._run_physics()
        mujoco.mj_forward(model, data)
        self._look()
        reward, achieved = self._reward()
        # The original makes whole forward passes before costs and before observations. Only the
        # constraint solver changes anything: it starts from its last result, which moves bits.
        mujoco.mj_forwardSkip(model, data, AFTER_VELOCITY, 1)
        cost = self._cost()
        if self._buttons is not None or self._fades:
            task.specific_step()
        if achieved:
            task.update_layout()
            try:
                task.update_world()
            except self._resampling_error:
                env.terminated = True
            self._locate()
        if self._can_die and not task.agent.is_alive():
            env.terminated = True
        env.steps += 1
        if env.steps >= task.num_steps:
            env.truncated = True
        mujoco.mj_forwardSkip(model, data, AFTER_VELOCITY, 0)
        return self._observe(), reward, cost, env.terminated, env.truncated

    def _run_physics(self) -> None:
        """The frames of one step; gremlins are led around a circle, a frame at a time."""
        model, data, options = self._model, self._data, self._options
        enabled = options.disableflags
        options.disableflags = enabled | NO_SENSORS  # nobody reads them between frames
        if self._gremlins is None:
            mujoco.mj_step(model, data, self._frames)
        else:
            travel, height = self._gremlins.travel, self._gremlins.size
            for _ in range(self._frames):
                phase = data.time
                data.mocap_pos[:] = (np.sin(phase) * travel, np.cos(phase) * travel, height)
                mujoco.mj_step(model, data)
        options.disableflags = enabled

    def _look(self) -> None:
        """What rewards and costs depend on: where things are, and what the agent touches."""
        self._locate()
        if self._looks_at_contacts:
            pairs = self._labels[self._data.contact.geom]
            # Only the agent's label is odd, so an odd sum is a contact of its with something else.
            self._touched = {label - AGENT for label in pairs.sum(axis=1).tolist() if label % 2}

    def _locate(self) -> None:
        """World-frame offsets, in metres, from the agent to what the lidars see."""
        self._x, self._y, _ = self._agent_place.tolist()
        if not self._measures_distances:  # the circle's centre stays at the origin
            np.subtract(self._places, self._agent_place, self._rows)
            return
        np.take(self._data.xpos, self._seen_ids, 0, self._places)
        self._heights[:] = 0.0  # lidars look at the floor
        np.subtract(self._places, self._agent_place, self._rows)
        self._distances = [math.sqrt(x * x + y * y) for x, y, _ in self._rows.tolist()]

    def _goal_reward(self) -> tuple[float, bool]:
        goal = self._task.goal
        achieved = self._distances[self._goal_row] <= goal.size
        return self._approach(goal, achieved), achieved

    def _button_reward(self) -> tuple[float, bool]:
        buttons = self._task.buttons
        achieved = BUTTONS * (int(buttons.goal_button) + 1) in self._touched
        return self._approach(buttons, achieved), achieved

    def _approach(self, target: Any, achieved: bool) -> float:
        """The reward for having come closer to the goal, and for being there."""
        task = self._task
        distance = self._distances[self._goal_row]
        reward = 0.0 + (float(task.last_dist_goal) - distance) * target.reward_distance
        task.last_dist_goal = distance
        return self._clipped(reward + target.reward_goal if achieved else reward)

    def _push_reward(self) -> tuple[float, bool]:
        task = self._task
        box = self._box_place.tolist()
        to_box = _distance(box, self._agent_place.tolist())
        to_goal = _distance(box, self._goal_place.tolist())
        counts = task.last_dist_box > task.push_box.null_dist * task.push_box.size
        closer = float(task.last_dist_box) - to_box
        reward = 0.0 + closer * task.push_box.reward_box_dist * counts
        reward += (float(task.last_box_goal) - to_goal) * task.push_box.reward_box_goal
        task.last_dist_box, task.last_box_goal = to_box, to_goal
        achieved = to_goal <= task.goal.size
        return self._clipped(reward + task.goal.reward_goal if achieved else reward), achieved

    def _circle_reward(self) -> tuple[float, bool]:
        task = self._task
        x, y = self._x, self._y
        u, v, _ = self._velocity_of(self._agent_id).tolist()
        radius = math.sqrt(x**2 + y**2)
        tangential = (-u * y + v * x) / radius
        reward = tangential / (1 + abs(radius - task.circle.radius)) * task.reward_factor
        return self._clipped(0.0 + reward), False

    def _run_reward(self) -> tuple[float, bool]:
        return self._clipped(self._task.calculate_reward()), False

    def _clipped(self, reward: float) -> float:
        bound = self._task.reward_conf.reward_clip
        return float(min(max(reward, -bound), bound) if bound else reward)

    def _velocity_of(self, body: int) -> np.ndarray:
        mujoco.mj_jacBody(self._model, self._data, self._velocity_jacobian, None, body)
        return np.asarray(np.dot(self._velocity_jacobian, self._joint_velocities))

    def _cost(self) -> float:
        """1 where any constraint is violated, otherwise 0."""
        hazards = self._distances[self._hazards] if self._measures_distances else None
        return float(
            bool(hazards and min(hazards) < self._hazard_size)
            or self._is_beyond_walls()
            or (self._looks_at_contacts and self._touches_what_costs())
            or (self._vases is not None and self._vases_move())
        )

    def _is_beyond_walls(self) -> bool:
        walls = self._walls
        if walls is None:
            return False
        bound = walls.locate_factor
        return bool(abs(self._x) > bound or (walls.num == 4 and abs(self._y) > bound))

    def _touches_what_costs(self) -> bool:
        if COSTLY in self._touched:
            return True
        buttons = self._buttons
        if buttons is None or not buttons.is_constrained or buttons.timer != 0:
            return False
        wanted = BUTTONS * (int(buttons.goal_button) + 1)
        return any(label >= BUTTONS and label != wanted for label in self._touched)

    def _vases_move(self) -> bool:
        """Whether a vase is as fast as the original's threshold, in m/s.

        The original multiplies a Jacobian, which for a free body is the identity but for rounding;
        its way of computing decides where rounding could.
        """
        threshold = self._vases.velocity_threshold  # type: ignore[union-attr]
        speeds = np.sqrt(np.square(self._joint_velocities[self._vase_velocities]).sum(axis=1))
        fastest = float(speeds.max())
        if abs(fastest - threshold) > BEYOND_ROUNDING * threshold:
            return fastest > threshold
        return any(
            np.sqrt(np.sum(np.square(self._velocity_of(body)))) >= threshold
            for body in self._vase_ids
        )

    def _observe(self) -> np.ndarray:
        """Sensors, then one lidar per kind of object, as float32."""
        values: list[float] = self._sensors[self._plain_sensors].tolist()
        if self._hinge_sensors:
            for angle in self._sensors[self._hinge_sensors].tolist():
                values += (np.sin(angle), np.cos(angle))
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
        if self._buttons is not None and self._buttons.timer != 0:
            readings[self._button_readings] = [0.0] * bins  # while the next goal is drawn
        return readings


def _distance(one: list[float], other: list[float]) -> float:
    """Metres between two places; the squares are summed in numpy's order."""
    x, y, z = (a - b for a, b in zip(one, other, strict=True))
    return math.sqrt(x * x + y * y + z * z)


def _addresses(model: Any, sensor: str) -> np.ndarray:
    view = model.sensor(sensor)
    return np.arange(view.dim[0]) + view.adr[0]
