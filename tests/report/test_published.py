"""Published figures, some of them checked by hand against their source."""

from __future__ import annotations

from slsac.report.published import (
    ALGORITHM_ORDER,
    TASK_ORDER,
    Reference,
    hours_per_million_steps,
    reference,
)
from tests.support.recorded import HOPPER


def test_published_figures() -> None:
    assert reference("sl-sac", "SafetyAntVelocity-v1") == Reference(3104, 3.6, "paper")
    assert reference("td3-pid", "SafetyPointGoal1-v0") == Reference(16.4, 17.4, "paper")
    assert reference("cpo", "SafetyHumanoidVelocity-v1") == Reference(6465, 0.2, "OmniSafe")
    assert reference("sac-lag/omnisafe", HOPPER) == Reference(963, 20, "OmniSafe")
    assert reference("cpo", "SafetyCarCircle1-v0") is None
    assert reference("sl-sac/tail-1", HOPPER) is None
    assert reference("sl-sac", "ProbeChoice-v0") is None
    assert hours_per_million_steps("sac-pid", "SafetyAntVelocity-v1") == 4.79
    for algo in ALGORITHM_ORDER:
        missing = [env for env in TASK_ORDER if reference(algo, env) is None]
        assert len(missing) == (2 if algo in ("ppo-lag", "cpo") else 0)
