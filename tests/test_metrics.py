"""docs/metrics.md lists exactly what runs log."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from slsac.config import OnPolicyConfig
from slsac.training import launch
from tests.support.agents import small_config
from tests.support.paths import ROOT

OFF_POLICY = {"steps": 60, "warmup_steps": 20, "batch_size": 8, "steps_per_epoch": 30}
ON_POLICY = {"steps": 60, "steps_per_epoch": 30, "batch_size": 10, "passes": 2}


def listed() -> dict[str, str]:
    """Who logs each metric, by the page's tables."""
    page = (ROOT / "docs" / "metrics.md").read_text()
    return dict(re.findall(r"^\| `(\w+)` \|.*\| ([^|]+) \|$", page, re.MULTILINE))


@pytest.mark.parametrize(
    ("algo", "settings", "more"),
    [
        ("sl-sac", OFF_POLICY, set()),
        (
            "sl-sac-2",
            OFF_POLICY | {"policy__temperature": 0.1},
            {"`reward_critic.discount_span`, as in `sl-sac-2`"},
        ),
        ("td3-pid", OFF_POLICY, set()),
        (
            "wcsac",
            OFF_POLICY | {"policy__temperature": 0.1, "multiplier__initial": 0.5},
            {"`multiplier.signal` `critic`, as in `wcsac`"},
        ),
        ("sl-sac", OFF_POLICY | {"multiplier__tighten": True}, {"`multiplier.tighten`"}),
        ("ppo-lag", ON_POLICY, {"`ppo-lag`"}),
        ("cpo", ON_POLICY, {"`cpo`"}),
    ],
)
def test_a_run_logs_what_the_page_says(
    tmp_path: Path, algo: str, settings: dict[str, Any], more: set[str]
) -> None:
    config = small_config("ProbeChoice-v0", algo, **settings)
    trainer = launch.start(config, tmp_path / "run")
    trainer.advance(config.steps)
    trainer.close()
    lines = (tmp_path / "run" / "progress.jsonl").read_text().splitlines()
    logged = {name for line in lines for name in json.loads(line)}
    kind = "on policy" if isinstance(config, OnPolicyConfig) else "off policy"
    assert logged == {name for name, by in listed().items() if by in {"all", kind, *more}}


def test_every_line_of_the_page_is_logged_by_somebody() -> None:
    known = {"all", "off policy", "on policy", "`ppo-lag`", "`cpo`", "`multiplier.tighten`",
             "`multiplier.signal` `critic`, as in `wcsac`",
             "`reward_critic.discount_span`, as in `sl-sac-2`"}  # fmt: skip
    assert set(listed().values()) == known
    rows = re.findall(r"^\| `", (ROOT / "docs" / "metrics.md").read_text(), re.MULTILINE)
    assert len(rows) == len(listed())
