"""An exported policy acts like the one that it was made from."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from slsac import algorithms
from slsac.cli import main
from slsac.errors import Failed, InvalidInput
from slsac.networks import Normaliser
from slsac.runs import config_file, export, layout, tensors
from slsac.types import EnvSpec
from tests.support.agents import small_config
from tests.support.paths import ROOT

SPEC = EnvSpec(3, 2, 10, (-1.0, 10.0), (3.0, 20.0), closeness=(1, 2))
HEADS = {
    # Squashed Gaussian; a deterministic head; an average, with normalised observations and inputs
    # for what is near; a clipped mean with tanh layers.
    "sl-sac": {}, "td3-lag": {}, "sl-sac-2": {"policy__temperature": 0.1}, "ppo-lag": {},
}  # fmt: skip


def untrained(algo: str, run: Path) -> tuple[Any, Any]:
    """A run with a policy whose observations lie around (5, 0, -5); its agent and policy."""
    config = small_config("ProbeChoice-v0", algo, **HEADS[algo])
    agent = algorithms.build(config, SPEC)
    policy = agent.init(jax.random.PRNGKey(3)).policy
    if hasattr(policy, "normaliser"):
        moments = np.float32([5.0, 0.0, -5.0]), np.float32([2.0, 1.0, 0.1])
        policy = policy._replace(normaliser=Normaliser(*moments))
    if getattr(policy, "average", None) is not None:
        policy = policy._replace(average=agent.init(jax.random.PRNGKey(4)).policy.network)
    run.mkdir()
    config_file.write(config, run, SPEC, {})
    tensors.save_tensors(run / layout.POLICY, policy)
    return agent, policy


def observations() -> np.ndarray:
    """Some of them so far out that they are clipped where observations are normalised."""
    return np.random.default_rng(1).normal(0.0, 20.0, (50, 3)).astype(np.float32)


def expected(agent: Any, policy: Any) -> np.ndarray:
    unit = np.asarray(agent.predict(policy, observations()))
    # The bounds of the second action are 10 and 20.
    return unit * np.float32([2.0, 5.0]) + np.float32([1.0, 15.0])


def player_on_the_page() -> str:
    page = (ROOT / "docs" / "deploy.md").read_text()
    (code,) = re.findall(r"```python\n(import numpy.*?)```", page, re.DOTALL)
    return code


@pytest.mark.parametrize("algo", HEADS)
def test_the_player_of_twenty_lines_acts_like_the_policy(algo: str, tmp_path: Path) -> None:
    agent, policy = untrained(algo, tmp_path / "run")
    written = export.export(tmp_path / "run", tmp_path / "policy.npz")
    assert (written.observation_size, written.action_size) == (3, 2)
    assert written.error is not None
    assert written.error < 1e-4
    names: dict[str, Any] = {}
    exec(player_on_the_page(), names)
    play = names["Policy"](tmp_path / "policy.npz")
    np.testing.assert_allclose(play(observations()), expected(agent, policy), atol=1e-4)
    np.testing.assert_allclose(play(observations()[0]), expected(agent, policy)[0], atol=1e-4)
    assert len(player_on_the_page().splitlines()) <= 20


@pytest.mark.parametrize("algo", HEADS)
def test_an_onnx_file_acts_like_the_policy(algo: str, tmp_path: Path) -> None:
    pytest.importorskip("onnx", reason="needs the extra export")
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs the extra export")
    agent, policy = untrained(algo, tmp_path / "run")
    written = export.export(tmp_path / "run", tmp_path / "policy.onnx")
    assert written.error is not None
    assert written.error < 1e-4
    session = onnxruntime.InferenceSession(str(tmp_path / "policy.onnx"))
    for rows in (slice(None), slice(0, 1)):
        (actions,) = session.run(None, {"observation": observations()[rows]})
        np.testing.assert_allclose(actions, expected(agent, policy)[rows], atol=1e-4)
    assert session.get_modelmeta().custom_metadata_map["algo"] == algo


def test_a_file_that_acts_otherwise_is_not_called_exported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    untrained("sl-sac", tmp_path / "run")
    real = export.play_arrays
    monkeypatch.setattr(export, "play_arrays", lambda arrays, rows: 1.01 * real(arrays, rows))
    for earlier in (False, True):
        if earlier:
            (tmp_path / "policy.npz").write_text("earlier")
        with pytest.raises(Failed, match=r"differs from the run's by .*; no file was written"):
            export.export(tmp_path / "run", tmp_path / "policy.npz")
        # Nothing that could be taken for the policy is left behind, and what was there is kept.
        assert (tmp_path / "policy.npz").exists() == earlier
    assert (tmp_path / "policy.npz").read_text() == "earlier"


def test_a_recorded_run_is_exported_by_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = ROOT / "results" / "sl-sac" / "SafetyHopperVelocity-v1" / "seed0"
    assert main(["export", str(run), str(tmp_path / "deep" / "hopper.npz")]) == 0
    assert "observation of 11 numbers -> action of 3" in capsys.readouterr().out
    assert main(["export", str(run), str(tmp_path / "hopper.pt")]) == 2
    assert "its name must end in .onnx or .npz" in capsys.readouterr().err


def test_without_onnx_the_cure_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    untrained("sl-sac", tmp_path / "run")
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(InvalidInput, match=r"pip install 'slsac\[export\]'"):
        export.export(tmp_path / "run", tmp_path / "policy.onnx")


def test_the_player_needs_numpy_alone(tmp_path: Path) -> None:
    code = player_on_the_page() + "import sys; assert not {'jax', 'slsac'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
