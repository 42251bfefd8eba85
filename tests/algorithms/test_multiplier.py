"""The multiplier: signals, rules and bounds by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slsac.algorithms import multiplier
from slsac.algorithms.multiplier import Multiplier
from slsac.config import MultiplierConfig
from slsac.config.overrides import with_overrides
from slsac.config.presets import SL_SAC, preset
from slsac.errors import InvalidInput

ASCENT = replace(
    SL_SAC.multiplier, signal="mean", rule="ascent", learning_rate=0.5, initial=1.0, window=10
)
ADAM = replace(ASCENT, rule="adam", learning_rate=0.01)
PID = replace(
    ASCENT, rule="pid", initial=0.3, maximum=1.5, smoothing=0.95,
    proportional_gain=0.01, integral_gain=0.01, derivative_gain=0.02,
)  # fmt: skip
SOFTPLUS = replace(
    ASCENT, signal="critic", rule="softplus", initial=math.log(2), learning_rate=0.1, damping=0.5
)
BALANCED = replace(ASCENT, rule="balanced")
RULES = {
    "ascent": ASCENT, "balanced": BALANCED, "adam": ADAM, "pid": PID, "softplus": SOFTPLUS,
}  # fmt: skip


def build(config: MultiplierConfig, **given: Any) -> Multiplier:
    limits: dict[str, Any] = {
        "tail_fraction": 0.5, "cost_limit": 25.0, "discounted_cost_limit": 2.5, "horizon": 1_000,
    }  # fmt: skip
    return multiplier.build(config, **limits | given)


def values(config: MultiplierConfig, signals: Sequence[float], limit: float = 0.0) -> list[float]:
    """The multiplier at the start and after each signal; a limit of 0 makes them violations."""
    built = build(config, cost_limit=limit, discounted_cost_limit=limit)
    state = built.init()
    found = [state.value]
    for signal in signals:
        state = built.update(state, signal)
        found.append(state.value)
    return found


def test_no_episode_and_no_update_give_no_signal() -> None:
    for signal in ("mean", "empirical-cvar"):
        assert build(replace(ASCENT, signal=signal)).signal([], None) is None
        # What the critic says is no substitute for an episode.
        assert build(replace(ASCENT, signal=signal)).signal([], 3.0) is None
    critic = build(replace(ASCENT, signal="critic"))
    assert critic.signal([], None) is None
    assert critic.signal([30.0], None) is None


def test_signal_is_the_mean_or_the_tail_of_the_window() -> None:
    costs = [0.0, 40.0, 20.0, 10.0]
    assert build(replace(ASCENT, signal="mean")).signal(costs, None) == 17.5
    tail = replace(ASCENT, signal="empirical-cvar")
    assert build(tail, tail_fraction=0.5).signal(costs, None) == 30.0
    assert build(tail, tail_fraction=0.25).signal(costs, None) == 40.0
    assert build(tail, tail_fraction=1.0).signal(costs, None) == 17.5


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(0, 1000), min_size=2, max_size=10), st.data())
def test_tail_signal_exceeds_the_mean_by_the_bodys_share_of_the_gap(
    costs: list[int], data: st.DataObject
) -> None:
    n = len(costs)
    k = data.draw(st.integers(1, n - 1))
    tail = build(replace(ASCENT, signal="empirical-cvar"), tail_fraction=k / n).signal(costs, None)
    mean = build(replace(ASCENT, signal="mean"), tail_fraction=k / n).signal(costs, None)
    assert tail is not None
    assert mean is not None
    assert tail >= mean
    body = np.mean(sorted(costs)[: n - k])
    assert tail - mean == pytest.approx((1 - k / n) * (tail - body), abs=1e-9)


def test_window_is_held_against_the_limit_of_an_episode() -> None:
    for signal in ("mean", "empirical-cvar"):
        built = build(replace(ASCENT, signal=signal))
        assert built.limit == 25.0
        # 1 + .5 * (27 - 25).
        assert built.update(built.init(), 27.0).value == 2.0


def test_balanced_ascent_rises_no_faster_than_it_falls() -> None:
    config = replace(BALANCED, initial=10.0, maximum=100.0)
    # Steps of .5 * violation, which counts as 20 at most and -20 at least.
    assert values(config, [900.0, 22.0, 0.0], limit=20.0) == [10.0, 20.0, 21.0, 11.0]
    plain = replace(config, rule="ascent")
    assert values(plain, [900.0, 22.0, 0.0], limit=20.0) == [10.0, 100.0, 100.0, 90.0]


def test_balanced_ascent_needs_a_limit() -> None:
    config = preset("sl-sac", "ProbeChoice-v0")
    with pytest.raises(InvalidInput, match=r"^cost_limit is 0.0; it must be above 0 where"):
        with_overrides(config, {"cost_limit": 0, "multiplier.rule": "balanced"})


def test_critic_is_held_against_the_discounted_limit_and_the_window_is_ignored() -> None:
    built = build(replace(ASCENT, signal="critic"))
    assert built.limit == 2.5
    assert built.signal([], 4.5) == 4.5
    assert built.signal([1000.0, 0.0], 4.5) == 4.5
    # 1 + .5 * (4.5 - 2.5).
    assert built.update(built.init(), 4.5).value == 2.0


@settings(deadline=None, max_examples=100)
@given(
    st.sampled_from(sorted(RULES)),
    st.floats(0.5, 50.0),
    st.lists(st.floats(0.0, 1e3), max_size=30),
)
def test_never_negative_and_never_above_the_maximum(
    rule: str, maximum: float, signals: list[float]
) -> None:
    config = replace(RULES[rule], initial=0.5, maximum=maximum)
    found = values(config, signals, limit=25.0)
    assert min(found) >= 0.0
    assert max(found) <= maximum


@pytest.mark.parametrize("rule", RULES)
def test_update_leaves_the_old_state_as_it_was(rule: str) -> None:
    built = build(RULES[rule])
    state = built.init()
    assert built.update(state, 3.0) == built.update(state, 3.0)
    assert state == built.init()


@pytest.mark.parametrize("rule", RULES)
def test_first_value_is_the_initial_one(rule: str) -> None:
    assert build(replace(RULES[rule], initial=0.125)).init().value == 0.125


def test_ascent_by_hand() -> None:
    # lambda + violation / 2, but never below 0; it leaves 0 without delay.
    assert values(ASCENT, [2.0, -1.0, -10.0, -3.0, 1.0]) == [1.0, 2.0, 1.5, 0.0, 0.0, 0.5]


def test_ascent_stops_at_the_maximum_and_leaves_it_without_delay() -> None:
    found = values(replace(ASCENT, maximum=2.0), [1.0, 50.0, 50.0, -1.0])
    assert found == [1.0, 1.5, 2.0, 2.0, 1.5]


def test_ascent_gains_what_the_specification_says() -> None:
    # eta = 1e-5 and a violation of 80: .8 per 1,000 steps.
    config = replace(ASCENT, learning_rate=1e-5, initial=0.0)
    assert values(config, [80.0] * 1000)[-1] == pytest.approx(0.8)


def test_zero_learning_rate_keeps_the_multiplier() -> None:
    assert values(replace(ASCENT, learning_rate=0.0), [100.0, -100.0]) == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e3])
def test_adams_first_step_is_the_learning_rate_whatever_the_violation(size: float) -> None:
    assert values(ADAM, [size])[1] == pytest.approx(1.01, abs=1e-6)
    assert values(ADAM, [-size])[1] == pytest.approx(0.99, abs=1e-6)


def test_adams_second_step_by_hand() -> None:
    # Violations 1, then -2. First moment: .1, then .09 - .2 = -.11; corrected -.11 / .19.
    # Second: .001, then .000999 + .004 = .004999; corrected .004999 / .001999.
    step = (-0.11 / 0.19) / (0.004999 / 0.001999) ** 0.5
    assert values(ADAM, [1.0, -2.0])[2] == pytest.approx(1.01 + 0.01 * step, abs=1e-9)


COSTS = [0, 0, 60, 100, 80, 40, 25, 10, 0, 0]


def test_integral_alone_is_a_sum_that_stops_at_both_bounds() -> None:
    config = replace(PID, proportional_gain=0.0, derivative_gain=0.0)
    found = values(config, COSTS, limit=25.0)
    # A hundredth of each violation. The second would lead to -.2, the fifth to 1.65.
    expected = [0.3, 0.05, 0.0, 0.35, 1.1, 1.5, 1.5, 1.5, 1.35, 1.1, 0.85]
    assert found == pytest.approx(expected, abs=1e-12)


def test_proportional_part_alone_is_the_smoothed_violation() -> None:
    config = replace(PID, initial=0.0, integral_gain=0.0, derivative_gain=0.0)
    # Violations 100, 20, -100: P is 5, then 4.75 + 1, then 5.4625 - 5.
    found = values(config, [100.0, 20.0, -100.0])
    assert found == pytest.approx([0.0, 0.05, 0.0575, 0.004625], abs=1e-12)


@pytest.mark.parametrize("delay", [1, 3, 10])
def test_derivative_alone_is_the_rise_over_the_delay(delay: int) -> None:
    config = replace(
        PID, initial=0.0, maximum=1e3, proportional_gain=0.0, integral_gain=0.0,
        derivative_gain=1.0, derivative_delay=delay,
    )  # fmt: skip
    found = values(config, [40.0] * 15 + [0.0] * 15, limit=25.0)
    # Smoothed from 0, a cost of 40 reads 40 (1 - .95^t) after t updates.
    smoothed = [40.0 * (1 - 0.95**t) for t in range(16)]
    rises = [smoothed[t] - smoothed[max(t - delay, 0)] for t in range(16)]
    assert found[:16] == pytest.approx(rises, abs=1e-9)
    # Once the reading is below that of ``delay`` updates ago there is no derivative.
    assert found[15 + delay :] == [0.0] * (16 - delay)


@pytest.mark.parametrize(
    ("delay", "expected"),
    [
        # I as above; P = -1.25, -2.4375, -.565625, 3.21265625, ..; the smoothed cost is
        # 0, 0, 3, 7.85, 11.4575, 12.884625, .., and its rise over the last three readings
        # is 0, 0, 3, 7.85, 11.4575, 9.884625, 5.640394, 1.858374, and 0 from then on.
        (
            3,
            [
                0.3, 0.0375, 0.0, 0.40434375, 1.2891265625, 1.5, 1.5, 1.5,
                1.4361813297, 1.134063156, 0.8698599982,
            ],
        ),
        # Over ten readings the whole way up from 0 counts, to the end of this sequence.
        (
            10,
            [
                0.3, 0.0375, 0.0, 0.40434375, 1.2891265625, 1.5, 1.5, 1.5,
                1.5, 1.3870647632, 1.1102115251,
            ],
        ),
    ],
)  # fmt: skip
def test_pid_on_ten_costs(delay: int, expected: list[float]) -> None:
    found = values(replace(PID, derivative_delay=delay), COSTS, limit=25.0)
    assert found == pytest.approx(expected, abs=1e-9)


def test_integral_does_not_wind_up() -> None:
    # 1,000 violations of 75 would sum to 750. The bound of 1.5 holds for the integral itself, so
    # that six updates .25 apart bring it to 0; and a safe time leaves nothing to climb out of.
    config = replace(PID, proportional_gain=0.0, derivative_gain=0.0)
    found = values(config, [100.0] * 1000 + [0.0] * 1000 + [50.0], limit=25.0)
    assert found[1000:1008] == pytest.approx([1.5, 1.25, 1.0, 0.75, 0.5, 0.25, 0.0, 0.0])
    assert found[-1] == pytest.approx(0.25)


def test_softplus_by_hand() -> None:
    # rho = 0, where softplus is log 2 and its slope 1/2. A violation of 1: the gradient is -1/2,
    # Adam's first step +.1, and softplus(.1) + .5 * 1 = 1.24439666.
    # A violation of -1 with slope sigmoid(.1) = .52497919: the gradient is +.52497919, its first
    # moment (-.045 + .052497919) / .19, its second (.00024975 + .00027560315) / .001999; rho goes
    # down by .1 * .07697823, and softplus(.09230218) - .5 * 1 = .24036285.
    found = values(SOFTPLUS, [3.5, 1.5], limit=2.5)
    assert found == pytest.approx([math.log(2), 1.24439666, 0.24036285], abs=1e-8)


def test_damping_is_a_share_of_the_present_violation_only() -> None:
    signals = [3.5, 1.9, 2.5]
    plain = values(replace(SOFTPLUS, damping=0.0), signals, limit=2.5)
    damped = values(replace(SOFTPLUS, damping=0.5), signals, limit=2.5)
    difference = [one - other for one, other in zip(damped, plain, strict=True)]
    assert difference == pytest.approx([0.0, 0.5, -0.3, 0.0], abs=1e-12)


def test_softplus_under_strong_damping_is_zero_and_comes_back() -> None:
    # Ten times -1 outweighs softplus(rho), which itself stays positive.
    found = values(replace(SOFTPLUS, damping=10.0), [1.5, 1.5, 2.5], limit=2.5)
    assert found[1:3] == [0.0, 0.0]
    assert 0.0 < found[3] < math.log(2)


def test_softplus_without_damping_never_reaches_zero() -> None:
    found = values(replace(SOFTPLUS, damping=0.0, learning_rate=0.02), [0.0] * 5000, limit=25.0)
    assert 0.0 < found[-1] < 1e-3
    assert found == sorted(found, reverse=True)


def test_softplus_leaves_nothing_to_unwind_after_a_long_unsafe_time() -> None:
    config = replace(SOFTPLUS, damping=0.0, maximum=3.0)
    # At .1 a step, rho would have gone to 50 and taken hundreds of steps to come back.
    found = values(config, [100.0] * 500 + [0.0] * 100, limit=25.0)
    assert found[500] == pytest.approx(3.0)
    assert found[-1] < 2.0


@pytest.mark.parametrize("config", RULES.values(), ids=RULES)
def test_a_margin_lowers_the_limit(config: MultiplierConfig) -> None:
    tightened = build(config, cost_limit=20.0, discounted_cost_limit=20.0)
    lower = build(config, cost_limit=15.0, discounted_cost_limit=15.0)
    one, two = tightened.init(), lower.init()
    for signal in (40.0, 10.0, 17.0, 0.0):
        one, two = tightened.update(one, signal, 5.0), lower.update(two, signal)
        assert one == two


def test_balanced_ascent_falls_as_fast_as_it_rises_under_a_margin() -> None:
    built = build(replace(BALANCED, learning_rate=1.0, initial=50.0))
    # An enforced limit of 10: 10 up at most, and 10 down at most.
    assert built.update(built.init(), 1_000.0, 15.0).value == 60.0
    assert built.update(built.init(), 0.0, 15.0).value == 40.0


RELATIVE = replace(
    ASCENT, rule="relative", initial=0.0, minimum=-0.5, maximum=2.0, integral_gain=0.25
)


def test_relative_integral_by_hand() -> None:
    # In units of the limit of 10 the violations are 1 (of 39), 0.5, 0, -0.5 and -1.
    found = values(RELATIVE, [400.0, 15.0, 10.0, 5.0, 0.0], limit=10.0)
    assert found == pytest.approx([0.0, 0.25, 0.375, 0.375, 0.25, 0.0])


def test_relative_integral_stays_within_its_bounds_and_does_not_wind_up() -> None:
    found = values(RELATIVE, [1e9] * 100 + [0.0] * 100, limit=10.0)
    assert max(found) == 2.0
    assert min(found) == -0.5
    assert found[101] == 1.75


def test_relative_integral_moves_as_far_in_every_short_episode() -> None:
    def after(steps: int, horizon: int) -> float:
        rule = build(replace(RELATIVE, integral_gain=2.0**-10), cost_limit=10.0, horizon=horizon)
        state = rule.init()
        for _ in range(steps):
            state = rule.update(state, 15.0)
        return state.value

    one_episode = pytest.approx(0.5 * 500 * 2.0**-10)
    assert after(500, horizon=500) == after(50, horizon=50) == after(10, horizon=10) == one_episode
    # Long ones do not slow it down: what an agent can learn in a step stays the same.
    assert after(500, horizon=1_000) == after(500, horizon=500)


def test_relative_integral_with_a_limit_of_zero_rises_at_any_cost() -> None:
    assert values(RELATIVE, [1e-9]) == [0.0, 0.25]
    # Nothing is below such a limit, so nothing is discounted for it.
    assert values(replace(RELATIVE, initial=0.5), [0.0, 0.0, 0.0]) == [0.5, 0.25, 0.0, 0.0]


def test_the_running_episode_counts_once_it_raises_the_recent_tail() -> None:
    signal = build(replace(RELATIVE, signal="recent-cvar"), cost_limit=10.0).signal
    # The tail fraction is 0.5: of four costs the worst two count.
    assert signal([1.0, 2.0, 3.0, 4.0]) == 3.5
    assert signal([1.0, 2.0, 3.0, 4.0], None, 0.0) == 3.5
    assert signal([1.0, 2.0, 3.0, 4.0], None, 8.0) == 5.0
    # Before an episode has ended, only a cost that is over the limit already says anything.
    assert signal([], None, 9.0) is None
    assert signal([], None, 11.0) == 11.0


def test_a_reserve_lowers_what_the_signal_is_held_against() -> None:
    kept = replace(ASCENT, rule="relative", integral_gain=0.1, reserve=0.25)
    rule = build(kept, cost_limit=20.0)
    assert rule.limit == 15.0
    # 18 is below the limit of 20, and a fifth above 15.
    assert rule.update(rule.init(), 18.0).value == pytest.approx(1.0 + 0.1 * 0.2)
