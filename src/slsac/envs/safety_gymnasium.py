"""Safety-Gymnasium's own task classes on a current stack, under their own ids.

Safety-Gymnasium 1.0.0 pins a gymnasium and a MuJoCo that Python 3.11 cannot install, and its
``__init__`` does not import under gymnasium 1.x. The classes that define the tasks still run, so
only they are loaded.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import importlib
import importlib.util
import inspect
import math
import os
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Literal

import numpy as np

from slsac.envs import safety_gymnasium_packages as packages
from slsac.errors import InvalidInput, unknown_name
from slsac.tasks import AGENTS, SAFETY_GYMNASIUM
from slsac.types import EnvSpec, Step

PACKAGE = "safety_gymnasium"
FRAME_SIZE = 480
"""Height and width of a rendered frame, in pixels."""
SKY = re.compile(r'<texture type="skybox"[^>]*?(/>|></texture>)')
PLAIN_SKY = (
    '<texture type="skybox" builtin="gradient" rgb1=".55 .7 .88" rgb2=".95 .97 1" '
    'width="32" height="192"/>'
)


def _with_default_factories(cls: type) -> type:
    """Replace a class's unhashable field defaults, which dataclasses refuse since Python 3.11."""
    for name in inspect.get_annotations(cls):
        default = cls.__dict__.get(name)
        if type(default).__hash__ is None and not isinstance(default, dataclasses.Field):
            make_default = functools.partial(copy.deepcopy, default)
            setattr(cls, name, dataclasses.field(default_factory=make_default))
    return cls


@contextmanager
def _lenient_dataclasses() -> Iterator[None]:
    strict = dataclasses.dataclass

    def lenient(cls: type | None = None, /, **options: Any) -> Any:
        if cls is None:
            return functools.partial(lenient, **options)
        return strict(**options)(_with_default_factories(cls))

    dataclasses.dataclass = lenient
    try:
        yield
    finally:
        dataclasses.dataclass = strict


def _accept_length_one_joint_ids() -> None:
    """Car agents look joints up with an array of one id, which MuJoCo 4.0 refuses."""
    import mujoco

    lookup = mujoco.MjModel.jnt
    if getattr(lookup, "accepts_length_one", False):
        return

    def jnt(self: Any, joint: Any) -> Any:
        return lookup(self, joint.item() if isinstance(joint, np.ndarray) else joint)

    jnt.accepts_length_one = True  # type: ignore[attr-defined]
    mujoco.MjModel.jnt = jnt


def _number(value: Any) -> float:
    return float(value.item() if isinstance(value, np.ndarray) else value)


def _read_joint_angles() -> None:
    """Doggo and Ant read each angle as ``float(array_of_one)``, which numpy 2.4 refuses.

    A global of that name in their module is found before the builtin.
    """
    vars(_load("bases.base_agent"))["float"] = _number


def _load(module: str) -> ModuleType:
    """A module of Safety-Gymnasium, imported without running the package's ``__init__``."""
    name = f"{PACKAGE}.{module}"
    if name in sys.modules:
        return sys.modules[name]
    _accept_length_one_joint_ids()
    if PACKAGE not in sys.modules:
        spec = importlib.util.find_spec(PACKAGE)
        assert spec is not None
        assert spec.submodule_search_locations is not None
        bare = ModuleType(PACKAGE)
        bare.__path__ = list(spec.submodule_search_locations)
        bare.__file__ = spec.origin
        bare.__spec__ = spec
        sys.modules[PACKAGE] = bare
    try:
        with _lenient_dataclasses():
            return importlib.import_module(name)
    except ImportError as error:
        raise InvalidInput(
            f"safety-gymnasium cannot be loaded: {error}; run `{packages.COMMAND}`"
        ) from error


def _make_velocity(module: str, class_name: str) -> Any:
    return getattr(_load(f"tasks.safe_velocity.{module}"), class_name)()


def _use_plain_sky() -> None:
    """Make the sky a gradient: decoding the original's images takes 1.5 s and 190 MB a reset."""
    world = _load("world").World
    if isinstance(world.__dict__.get("xml_string"), property):
        return

    def get(self: Any) -> str | None:
        return self.__dict__["xml_string"]

    def set_with_plain_sky(self: Any, xml: str | None) -> None:
        self.__dict__["xml_string"] = xml and SKY.sub(PLAIN_SKY, xml)

    world.xml_string = property(get, set_with_plain_sky)


def _make_navigation(task_id: str, agent: str) -> Any:
    builder = _load("builder").Builder
    _use_plain_sky()
    _read_joint_angles()
    with warnings.catch_warnings():
        # A float64 action box built from float32 bounds: gymnasium 1.x compares the two.
        warnings.filterwarnings("ignore", "overflow encountered in cast", RuntimeWarning)
        return builder(task_id=task_id, config={"agent_name": agent})


def _fast_navigation(env: Any, patch_layouts: bool) -> Any:
    from slsac.envs.fast_navigation import FastNavigation

    resampling_error = _load("utils.common_utils").ResamplingError
    return FastNavigation(env, resampling_error, patch_layouts)


VELOCITY_MODULES = {
    "Ant": "ant",
    "HalfCheetah": "half_cheetah",
    "Hopper": "hopper",
    "Walker2d": "walker2d",
    "Swimmer": "swimmer",
    "Humanoid": "humanoid",
}
"""The robots of the velocity tasks, and the middle part of their modules' names."""


def _make(env_id: str) -> Any:
    """Safety-Gymnasium's own env behind an id of `slsac.tasks.SAFETY_GYMNASIUM`."""
    name = env_id.removeprefix("Safety")
    if SAFETY_GYMNASIUM[env_id].family == "velocity":
        robot, version = name.split("Velocity-")
        module = f"safety_{VELOCITY_MODULES[robot]}_velocity_{version}"
        return _make_velocity(module, f"Safety{robot}VelocityEnv")
    return _make_navigation(env_id, next(agent for agent in AGENTS if name.startswith(agent)))


def _lidar_entries(env: Any) -> tuple[int, ...]:
    """Where an observation of a navigation task holds how close objects are.

    A circle's lidar shows where its middle is, which is no object: seen as one, it slowed
    PointCircle1 down.
    """
    entries: list[int] = []
    start = 0
    for name, space in env.task.obs_info.obs_space_dict.items():
        size = math.prod(space.shape)
        if name.endswith("_lidar") and name != "circle_lidar":
            entries += range(start, start + size)
        start += size
    return tuple(entries)


class SafetyGymnasiumEnv:
    """One of Safety-Gymnasium's tasks as a ``SafeEnv``.

    Args:
        horizon: truncates after this many steps instead of the task's own number.
        render_mode: ``"rgb_array"`` allows ``render``; it draws with MuJoCo, off screen.
        stepping: ``"original"`` runs the navigation tasks' own ``step`` and ``reset``; ``"fast"``
            gives the same bits several times faster. Engines that this is not tested on get the
            original's in either case.
    """

    max_lanes = 10

    def __init__(
        self,
        env_id: str,
        *,
        horizon: int | None = None,
        render_mode: str | None = None,
        stepping: Literal["fast", "original"] = "fast",
    ) -> None:
        if env_id not in SAFETY_GYMNASIUM:
            raise unknown_name("env", env_id, SAFETY_GYMNASIUM)
        if render_mode not in (None, "rgb_array"):
            raise InvalidInput(f"render_mode is {render_mode!r}; allowed: None or 'rgb_array'")
        if horizon is not None and horizon < 1:
            raise InvalidInput(f"horizon is {horizon}; allowed: at least 1")
        packages.require_ready()
        self.env_id = env_id
        self.render_mode = render_mode
        task = SAFETY_GYMNASIUM[env_id]
        self.family = task.family
        self.env: Any = _make(env_id)
        steps = task.horizon if horizon is None else horizon
        if self.family == "navigation":
            self.env.task.num_steps = steps  # its own clock would stop a longer episode
            # The first reset makes one forward pass less than all later ones, which leaves a
            # different warm start of the solver: rewards of Car tasks then differ by 1e-18 from
            # later episodes with the same seed, and resumed runs drift apart.
            self.env.reset(seed=0)
        self.stepping = stepping
        self._fast = None
        if stepping == "fast" and self.family == "navigation" and packages.has_fast_engine():
            self._fast = _fast_navigation(self.env, patch_layouts=render_mode is None)
        box = self.env.action_space
        low, high = box.low.astype(np.float64), box.high.astype(np.float64)
        self._action_centre = (high + low) / 2
        self._action_scale = (high - low) / 2
        self.spec = EnvSpec(
            self.env.observation_space.shape[0],
            box.shape[0],
            steps,
            tuple(low.tolist()),
            tuple(high.tolist()),
            _lidar_entries(self.env) if self.family == "navigation" else (),
        )
        self._steps = 0
        self._renderer: Any = None

    def reset(self, seed: int) -> np.ndarray:
        """The first observation of the episode with this seed."""
        # The navigation tasks draw from numpy's RandomState, which takes 32 bits.
        own_seed = seed % 2**32
        self._steps = 0
        if self._fast is not None:
            return self._fast.reset(own_seed)
        observation, _ = self.env.reset(seed=own_seed)
        return np.asarray(observation, np.float32)

    def step(self, action: np.ndarray) -> Step:
        own_units = self._action_centre + self._action_scale * np.minimum(
            np.maximum(action, -1.0), 1.0
        )
        step = self.env.step if self._fast is None else self._fast.step
        observation, reward, cost, terminated, truncated = step(own_units)[:5]
        self._steps += 1
        ended = bool(terminated)
        late = bool(truncated) or self._steps >= self.spec.horizon
        return Step(
            np.asarray(observation, np.float32),
            float(reward),
            float(cost),
            ended,
            late and not ended,
        )

    def render(self) -> np.ndarray:
        """The current frame, uint8 ``[height, width, 3]``."""
        if self.render_mode != "rgb_array":
            raise InvalidInput(
                f"render_mode of {self.env_id} is {self.render_mode!r}; render needs 'rgb_array'"
            )
        if sys.platform == "linux" and os.environ.get("MUJOCO_GL") not in ("egl", "osmesa"):
            # Without a display MuJoCo's default backend kills the process.
            if not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
                raise InvalidInput(
                    "rendering without a display needs the environment variable MUJOCO_GL set to "
                    "'egl' or 'osmesa' before Python starts"
                )
        import mujoco

        sim = self.env.task if self.family == "navigation" else self.env
        # The navigation tasks compile a new model for each episode's layout.
        if self._renderer is None or self._renderer.model is not sim.model:
            self._close_renderer()
            screen = sim.model.vis.global_
            screen.offwidth = max(screen.offwidth, FRAME_SIZE)
            screen.offheight = max(screen.offheight, FRAME_SIZE)
            self._renderer = mujoco.Renderer(sim.model, FRAME_SIZE, FRAME_SIZE)
        options = mujoco.MjvOption()
        options.geomgroup[:] = 1  # goals and hazards are in groups that are hidden by default
        camera = "fixedfar" if self.family == "navigation" else "track"
        self._renderer.update_scene(sim.data, camera=camera, scene_option=options)
        return np.array(self._renderer.render())

    def close(self) -> None:
        self._close_renderer()
        self.env.close()

    def _close_renderer(self) -> None:
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None

    def __deepcopy__(self, memo: dict[int, Any]) -> SafetyGymnasiumEnv:
        # Every episode starts from its seed, so a copy needs no simulator state.
        return SafetyGymnasiumEnv(
            self.env_id,
            horizon=self.spec.horizon,
            render_mode=self.render_mode,
            stepping=self.stepping,
        )
