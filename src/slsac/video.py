"""Videos of episodes. Frames are drawn off screen, so no display is needed."""

from __future__ import annotations

import functools
import importlib.util
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from slsac.envs.play import Predict, play
from slsac.errors import InvalidInput, env_failure
from slsac.evaluate import evaluation_seeds
from slsac.formatting import number

BACKENDS = ("egl", "osmesa")
"""MuJoCo's backends that need no display, the faster one first."""
MAX_FRAMES_PER_SECOND = 50
DEFAULT_FRAMES_PER_SECOND = 30

PROBE = """
import mujoco
model = mujoco.MjModel.from_xml_string(
    '<mujoco><worldbody><light pos="0 0 3"/><geom size=".3"/></worldbody></mujoco>')
data = mujoco.MjData(model)
mujoco.mj_forward(model, data)
renderer = mujoco.Renderer(model, 32, 32)
renderer.update_scene(data)
assert renderer.render().any()
print("drawn")
"""


class NoVideo(RuntimeError):
    """No video can be made here; the text says why, in one line."""


def require_mp4(file: Path) -> None:
    if file.suffix != ".mp4":
        raise InvalidInput(f"video is {str(file)!r}; its name must end in .mp4")


def prepare() -> None:
    """Choose a GL backend that can draw here; call it before mujoco is first imported."""
    try:
        import imageio_ffmpeg  # noqa: F401
    except ImportError:
        raise NoVideo(
            "no video: it needs the extra 'video'; run `pip install 'slsac[video]'`"
        ) from None
    if sys.platform != "linux" or importlib.util.find_spec("mujoco") is None:
        return  # an env that draws by other means needs no backend of MuJoCo's
    asked = os.environ.get("MUJOCO_GL")
    tried = (asked,) if asked else BACKENDS
    backend = next(filter(can_draw, tried), None)
    if backend is None:
        raise NoVideo(
            f"no video: no GL backend draws here (tried {', '.join(tried)}); on Debian, "
            "`apt-get install libosmesa6` brings one that needs no graphics card"
        )
    if not asked and "mujoco" in sys.modules:
        raise NoVideo(
            "no video: mujoco was imported before a GL backend was chosen; start Python with the "
            f"environment variable MUJOCO_GL={backend}"
        )
    os.environ["MUJOCO_GL"] = backend


@functools.cache
def can_draw(backend: str) -> bool:
    """Whether MuJoCo can draw with a backend; tried in a process that a bad driver may kill."""
    try:
        process = subprocess.run(
            [sys.executable, "-P", "-c", PROBE], env={**os.environ, "MUJOCO_GL": backend},
            capture_output=True, text=True, timeout=120,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return False
    return process.returncode == 0 and "drawn" in process.stdout


def record(
    env: Any, predict: Predict, file: Path, *, episodes: int, seed: int, cost_limit: float
) -> int:
    """Writes the first episodes of `evaluate` as MP4 in real time; returns the number of frames.

    Args:
        env: a ``SafeEnv`` that also has ``render``.
    """
    import imageio.v2 as imageio

    if not hasattr(env, "render"):
        raise NoVideo(f"no video: {type(env).__name__} cannot be drawn")
    steps_per_second = frame_rate(env)
    stride = max(1, -(-steps_per_second // MAX_FRAMES_PER_SECOND))
    file.parent.mkdir(parents=True, exist_ok=True)
    frames = 0
    rate = steps_per_second / stride
    writer: Any = imageio.get_writer(file, fps=rate, macro_block_size=16)
    with warnings.catch_warnings(), writer:
        # The writer forks to start ffmpeg, and does nothing in between that JAX could disturb.
        warnings.filterwarnings("ignore", r"os\.fork\(\) was called", RuntimeWarning)
        for episode, env_seed in enumerate(evaluation_seeds(seed, episodes), 1):
            total_return = total_cost = 0.0
            for steps, transition in enumerate(play([env], predict, [env_seed]), 1):
                total_return += transition.step.reward
                total_cost += transition.step.cost
                if steps % stride == 0 or transition.ends_episode:
                    earned = number(total_return, 1)
                    text = f"episode {episode}   step {steps}   return {earned}   "
                    cost = f"cost {total_cost:g} of {cost_limit:g}"
                    over_limit = total_cost > cost_limit
                    writer.append_data(captioned(render(env), text, cost, over_limit))
                    frames += 1
    return frames


def render(env: Any) -> np.ndarray:
    """The env's picture of itself, ``[height, width, 3]``; raises NoVideo where there is none."""
    try:
        frame = env.render()
    except Exception as error:
        raise NoVideo(f"no video: {env_failure(error)}") from error
    if not isinstance(frame, np.ndarray):
        raise NoVideo(f"no video: render gave {type(frame).__name__}; it must be a picture")
    if frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[2] not in (3, 4):
        raise NoVideo(
            f"no video: render gave {frame.dtype} of shape {frame.shape}; it must be uint8, "
            "(height, width, 3)"
        )
    return frame


def frame_rate(env: Any) -> int:
    """Steps per second of simulated time."""
    metadata = getattr(getattr(env, "env", None), "metadata", None) or {}
    return int(metadata.get("render_fps") or DEFAULT_FRAMES_PER_SECOND)


def captioned(frame: np.ndarray, text: str, cost: str, over_limit: bool) -> np.ndarray:
    """A frame with a line of text at its top; the cost is red once it exceeds the limit."""
    from PIL import Image, ImageDraw, ImageFont

    picture = Image.fromarray(np.ascontiguousarray(frame))
    draw = ImageDraw.Draw(picture, "RGBA")
    font = ImageFont.load_default(size=15)
    draw.rectangle((0, 0, picture.width, 26), fill=(0, 0, 0, 150))
    draw.text((8, 4), text, font=font, fill=(255, 255, 255))
    start = 8 + draw.textlength(text, font=font)
    draw.text((start, 4), cost, font=font, fill=(255, 120, 110) if over_limit else (255, 255, 255))
    return np.asarray(picture)
