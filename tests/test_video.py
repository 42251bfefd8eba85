"""`slsac evaluate --video`: a real MP4 where MuJoCo can draw, one line where it cannot."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slsac import Agent
from slsac.cli import main
from slsac.envs.safety_gymnasium_packages import REFERENCE_ENGINE
from slsac.errors import InvalidInput
from slsac.training.off_policy import OffPolicyTrainer
from slsac.video import NoVideo, captioned, render

HOPPER = "SafetyHopperVelocity-v1"
# Apart from the tests, since imageio's reader forks and leaves pipes open.
READ = """
import json, sys
import imageio.v2 as imageio, numpy as np
reader = imageio.get_reader(sys.argv[1])
frames = [np.asarray(frame).astype(float) for frame in reader]
print(json.dumps({
    "frames": len(frames), "shape": frames[0].shape, "fps": reader.get_meta_data()["fps"],
    "contrast": frames[0][60:].std(), "movement": np.abs(frames[0][60:] - frames[-1][60:]).max(),
}))
"""


def evaluate(run: Path, video: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    # A process of its own: the GL backend is chosen when mujoco is imported.
    return subprocess.run(
        [sys.executable, "-m", "slsac", "evaluate", str(run), "--episodes", "3", "--json",
         "--video", str(video), "--video-episodes", "2"],
        env={**os.environ, **environment}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip


def said_by(done: subprocess.CompletedProcess[str]) -> list[str]:
    """The lines of an evaluation, without the one about an engine that is not the reference."""
    lines = done.stderr.splitlines()
    if (engine := version("mujoco")) != REFERENCE_ENGINE:
        lines.remove(
            f"slsac: mujoco is {engine}, not the reference engine "
            f"({REFERENCE_ENGINE}): trajectories differ from the published ones"
        )
    return lines


@pytest.fixture
def run(start: Callable[..., OffPolicyTrainer]) -> Path:
    """An untrained policy, which falls within a second."""
    trainer = start(HOPPER)
    trainer.save_final()
    return trainer.run


def test_a_video_of_the_first_episodes(run: Path, tmp_path: Path) -> None:
    file = tmp_path / "new" / "hopper.mp4"
    done = evaluate(run, file)
    assert done.returncode == 0, done.stderr
    if not file.exists():
        assert "no GL backend draws here" in done.stderr
        if os.environ.get("SLSAC_REQUIRE_GL") == "1":
            pytest.fail(done.stderr)
        pytest.skip(f"{done.stderr.strip()} (CI sets SLSAC_REQUIRE_GL=1)")
    lengths = json.loads(done.stdout)["lengths"]
    # Hopper takes 125 steps a second: a frame for every third, and one for the last of an episode.
    expected = sum(-(-length // 3) for length in lengths[:2])
    assert said_by(done) == [f"slsac: {file} has {expected} frames"]
    read = subprocess.run(
        [sys.executable, "-c", READ, str(file)], capture_output=True, text=True, check=True
    )
    film = json.loads(read.stdout)
    assert film["frames"] == expected
    assert film["shape"] == [480, 480, 3]
    assert film["fps"] == pytest.approx(125 / 3, rel=0.01)
    assert film["contrast"] > 10
    assert film["movement"] > 50

    # Where nothing draws: one line, the same figures, no failure.
    none = evaluate(run, tmp_path / "none.mp4", MUJOCO_GL="disable")
    assert none.returncode == 0
    (line,) = said_by(none)
    assert line.startswith("slsac: no video: no GL backend draws here (tried disable)")
    assert none.stdout == done.stdout
    assert not (tmp_path / "none.mp4").exists()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--video", "film.avi"], "video is 'film.avi'; its name must end in .mp4"),
        (["--video", "film.mp4", "--video-episodes", "0"], "video_episodes is 0; it must be at"),
        (["--video-episodes", "2"], "--video-episodes has no effect without --video"),
    ],
)
def test_bad_input(
    arguments: list[str], expected: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", str(run), *arguments]) == 2
    error = capsys.readouterr().err
    assert expected in error
    assert error.count("\n") == 1


def test_a_video_of_no_episodes_is_refused(run: Path) -> None:
    with Agent.load(run) as agent, pytest.raises(InvalidInput, match=r"^episodes is 0; it must"):
        agent.video("film.mp4", episodes=0)


class Undrawn:
    def __init__(self, picture: Any) -> None:
        self.picture = picture

    def render(self) -> Any:
        return self.picture()


@pytest.mark.parametrize(
    ("picture", "reason"), [(lambda: None, "render gave NoneType"), (lambda: 1 / 0, "ZeroDivision")]
)
def test_an_env_that_gives_no_picture_gives_no_video(picture: Any, reason: str) -> None:
    with pytest.raises(NoVideo, match=f"no video: {reason}"):
        render(Undrawn(picture))


def test_the_caption_turns_red_over_the_limit() -> None:
    frame = np.zeros((480, 480, 3), np.uint8)
    safe, unsafe = (captioned(frame, "step 1 ", "cost 30 of 25", over) for over in (False, True))
    assert safe.shape == frame.shape
    assert (safe[..., 0] == safe[..., 2]).all()  # white on black
    assert (unsafe[..., 0] > unsafe[..., 2].astype(int) + 50).any()
    assert not safe[30:].any()
