from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slsac import multiplier
from slsac.config import MultiplierConfig
from slsac.presets import SL_SAC

ASCENT = replace(
    SL_SAC.multiplier, signal="mean", rule="ascent", learning_rate=0.5, initial=1.0, window=10
)


def values(config: MultiplierConfig, violations: list[float]) -> list[float]:
    """The multiplier at the start and after each violation."""
    built = multiplier.build(config, 0.5)
    state = built.init()
    found = [state.value]
    for violation in violations:
        state = built.update(state, violation)
        found.append(state.value)
    return found


def test_ascent_by_hand() -> None:
    # lambda + violation / 2, but never below 0; it leaves 0 without delay.
    assert values(ASCENT, [2.0, -1.0, -10.0, -3.0, 1.0]) == [1.0, 2.0, 1.5, 0.0, 0.0, 0.5]


def test_ascent_gains_what_the_specification_says() -> None:
    # eta = 1e-5 and a violation of 80: .8 per 1,000 steps.
    config = replace(ASCENT, learning_rate=1e-5, initial=0.0)
    assert values(config, [80.0] * 1000)[-1] == pytest.approx(0.8)


def test_zero_learning_rate_keeps_the_multiplier() -> None:
    assert values(replace(ASCENT, learning_rate=0.0), [100.0, -100.0]) == [1.0, 1.0, 1.0]


@settings(deadline=None, max_examples=50)
@given(
    st.sampled_from(["ascent", "adam"]),
    st.lists(st.floats(-1e3, 1e3), max_size=30),
)
def test_never_negative(rule: str, violations: list[float]) -> None:
    assert min(values(replace(ASCENT, rule=rule), violations)) >= 0.0


def test_no_episode_gives_no_signal() -> None:
    for signal in ("mean", "empirical-cvar"):
        assert multiplier.build(replace(ASCENT, signal=signal), 0.5).signal([]) is None


def test_signal_is_the_mean_or_the_tail_of_the_window() -> None:
    costs = [0.0, 40.0, 20.0, 10.0]
    assert multiplier.build(replace(ASCENT, signal="mean"), 0.5).signal(costs) == 17.5
    tail = replace(ASCENT, signal="empirical-cvar")
    assert multiplier.build(tail, 0.5).signal(costs) == 30.0
    assert multiplier.build(tail, 0.25).signal(costs) == 40.0
    assert multiplier.build(tail, 1.0).signal(costs) == 17.5


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e3])
def test_adams_first_step_is_the_learning_rate_whatever_the_violation(size: float) -> None:
    config = replace(ASCENT, rule="adam", learning_rate=0.01)
    assert values(config, [size])[1] == pytest.approx(1.01, abs=1e-6)
    assert values(config, [-size])[1] == pytest.approx(0.99, abs=1e-6)


def test_adams_second_step_by_hand() -> None:
    # Violations 1, then -2. First moment: .1, then .09 - .2 = -.11; corrected -.11 / .19.
    # Second: .001, then .000999 + .004 = .004999; corrected .004999 / .001999.
    step = (-0.11 / 0.19) / (0.004999 / 0.001999) ** 0.5
    config = replace(ASCENT, rule="adam", learning_rate=0.01)
    assert values(config, [1.0, -2.0])[2] == pytest.approx(1.01 + 0.01 * step, abs=1e-9)


def test_update_leaves_the_old_state_as_it_was() -> None:
    built = multiplier.build(replace(ASCENT, rule="adam"), 0.5)
    state = built.init()
    assert built.update(state, 3.0) == built.update(state, 3.0)
    assert state == built.init()
