"""The list of tasks, which is kept apart from the environments so that it needs no simulator."""

from __future__ import annotations

import pytest

from slsac.config.presets import ALGORITHMS, preset
from slsac.envs.probe import PROBES
from slsac.envs.registry import require_known
from slsac.errors import InvalidInput
from slsac.tasks import (
    IN_THE_PAPER,
    METADRIVE_ID,
    PROBE_DESCRIPTIONS,
    SAFETY_GYMNASIUM,
    family,
    list_envs,
    why_left_out,
)


def test_every_task_is_listed_once_and_every_listed_probe_can_be_made() -> None:
    ids = [env_id for env_id, _ in list_envs()]
    assert ids == [*SAFETY_GYMNASIUM, METADRIVE_ID, *PROBES]
    assert list(PROBES) == list(PROBE_DESCRIPTIONS)


def test_there_are_six_robots_with_two_thresholds_and_nineteen_tasks_of_five_agents() -> None:
    velocity = [env_id for env_id in SAFETY_GYMNASIUM if family(env_id) == "velocity"]
    navigation = [env_id for env_id in SAFETY_GYMNASIUM if family(env_id) == "navigation"]
    assert len(velocity) == 6 * 2
    assert all("Velocity-v" in env_id for env_id in velocity)
    assert len(navigation) == 19 * 5
    assert set(IN_THE_PAPER) <= SAFETY_GYMNASIUM.keys()
    assert family("Pendulum-v1") == "other"


def test_all_tasks_of_a_family_have_the_settings_of_its_published_ones() -> None:
    published = {"velocity": "SafetyHopperVelocity-v1", "navigation": "SafetyPointGoal1-v0"}
    for algo in ALGORITHMS:
        for env_id, task in SAFETY_GYMNASIUM.items():
            alike = preset(algo, published[task.family])
            assert preset(algo, env_id) == type(alike)(**{**vars(alike), "env": env_id})


@pytest.mark.parametrize(
    ("env_id", "why"),
    [
        ("SafetyPointGoal1Vision-v0", "observations are pictures"),
        ("SafetyCarRace2-v0", "textures are missing"),
        ("Safety2x4AntVelocity-v0", "slsac trains one agent"),
        ("SafetyPointMultiGoal1-v0", "slsac trains one agent"),
        ("SafetyCarGoal0Debug-v0", "steered by keyboard"),
        ("SafetyHopperVelocityGymnasium-v1", "the same as the id without 'Gymnasium'"),
    ],
)
def test_what_is_left_out_says_why(env_id: str, why: str) -> None:
    with pytest.raises(InvalidInput, match=f"env '{env_id}' is left out: {why}"):
        require_known(env_id)


def test_no_task_is_both_there_and_left_out() -> None:
    assert not [env_id for env_id, _ in list_envs() if why_left_out(env_id)]
