"""The list of tasks, which is kept apart from the environments so that it needs no simulator."""

from __future__ import annotations

from slsac.envs.probe import PROBES
from slsac.tasks import METADRIVE_ID, PROBE_DESCRIPTIONS, SAFETY_GYMNASIUM, list_envs


def test_every_task_is_listed_once_and_every_listed_probe_can_be_made() -> None:
    ids = [env_id for env_id, _ in list_envs()]
    assert ids == [*SAFETY_GYMNASIUM, METADRIVE_ID, *PROBES]
    assert list(PROBES) == list(PROBE_DESCRIPTIONS)
