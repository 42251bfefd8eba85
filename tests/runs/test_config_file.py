"""config.json: read back from older runs, and refused where it has lost something."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slsac.errors import InvalidInput
from slsac.runs import config_file
from slsac.training import launch
from tests.support.agents import small_config
from tests.support.recorded import make_run
from tests.support.runs import quick_config


def test_a_config_from_before_a_field_existed_reads_with_the_preset_value(tmp_path: Path) -> None:
    launch.start(quick_config(), tmp_path).close()
    config = json.loads((tmp_path / "config.json").read_text())
    del config["multiplier"]["damping"], config["cost_critic"]["members"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    read, _, _ = config_file.read(tmp_path)
    assert read.multiplier.damping == 10.0
    assert read.cost_critic.members == 1
    assert read.cost_limit == 1.0
    config["polyack"] = 1.0
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(InvalidInput, match="polyack"):
        config_file.read(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [("[]", "it must be an object"), (None, "config field cost_limit is missing")],
)
def test_a_config_that_has_lost_something_is_refused(
    text: str | None, message: str, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    launch.start(small_config("ProbeChoice-v0"), run).close()
    path = run / "config.json"
    values = json.loads(path.read_text())
    del values["cost_limit"]
    path.write_text(json.dumps(values) if text is None else text)
    with pytest.raises(InvalidInput, match=message):
        config_file.read(run)


def test_a_run_from_before_noiseless_episodes_had_none(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "sl-sac-2")
    assert config_file.read(run).config.noiseless_every == 3
    path = run / "config.json"
    values = json.loads(path.read_text())
    del values["noiseless_every"]
    path.write_text(json.dumps(values))
    assert config_file.read(run).config.noiseless_every is None


@pytest.mark.parametrize(("env", "rates"), [
    ("SafetyPointGoal1-v0", ()),
    ("SafetyHopperVelocity-v1", (3.0, 10.0, 30.0)),  # it has no lidar: they change nothing
    ("SafetyCarCircle1-v0", (3.0, 10.0, 30.0)),  # its lidar sees no objects
    ("MetaDriveSafe-v0", (3.0, 10.0, 30.0)),  # it does not state its lidar
])  # fmt: skip
def test_a_run_from_before_nearness_did_without(
    env: str, rates: tuple[float, ...], tmp_path: Path
) -> None:
    run = make_run(tmp_path / "run", "sl-sac-2")
    path = run / "config.json"
    values = json.loads(path.read_text()) | {"env": env}
    del values["closeness_rates"], values["spec"]["closeness"]
    path.write_text(json.dumps(values))
    old = config_file.read(run)
    assert old.config.closeness_rates == rates
    # An env that states its lidar by now is the same task for a run that does not look at it.
    stated = old.spec._replace(closeness=(0,))
    if rates:
        with pytest.raises(InvalidInput, match=r"closeness of the env is \(0,\)"):
            config_file.require_same_task(stated, old.spec, old.config)
    else:
        config_file.require_same_task(stated, old.spec, old.config)


@pytest.mark.parametrize("closeness", [[99], [-1], [0, 0]])
def test_a_closeness_outside_the_observation_is_refused(
    closeness: list[int], tmp_path: Path
) -> None:
    run = make_run(tmp_path / "run", "sl-sac-2")
    path = run / "config.json"
    values = json.loads(path.read_text())
    values["spec"]["closeness"] = closeness
    path.write_text(json.dumps(values))
    with pytest.raises(InvalidInput, match="closeness"):
        config_file.read(run)


def test_layer_norm_is_read_by_the_name_that_it_had(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "sl-sac-2")
    path = run / "config.json"
    values = json.loads(path.read_text())
    del values["reward_critic"]["layer_norm"]
    for kind, normalised in (("layer", True), ("none", False)):
        values["reward_critic"]["normalisation"] = kind
        path.write_text(json.dumps(values))
        assert config_file.read(run).config.reward_critic.layer_norm is normalised
    values["reward_critic"]["normalisation"] = "batch"
    path.write_text(json.dumps(values))
    with pytest.raises(InvalidInput, match="is 'batch'; it must be one of none, layer"):
        config_file.read(run)
