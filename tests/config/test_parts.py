"""Which values a part of a configuration may have, and which go together."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from typing import Any

import pytest

from slsac.config import Config
from slsac.config.overrides import with_overrides
from slsac.config.presets import preset
from slsac.errors import InvalidInput, brief

VELOCITY = "SafetyHopperVelocity-v1"


def sl_sac() -> Config:
    return preset("sl-sac", VELOCITY)


def test_fields_that_constrain_each_other_are_checked_together() -> None:
    # Either one alone would leave log_std_min above log_std_max.
    both = {"policy.log_std_min": 3.0, "policy.log_std_max": 4.0}
    assert with_overrides(sl_sac(), both).policy.log_std_max == 4.0


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("tail_fraction", 0, "tail_fraction is 0.0; it must be in (0, 1]"),
        ("tail_fraction", 1.5, "tail_fraction is 1.5; it must be in (0, 1]"),
        ("cost_limit", -1, "cost_limit is -1.0; it must be at least 0"),
        ("steps", 0, "steps is 0; it must be at least 1"),
        ("seed", -1, "seed is -1; it must be in [0, 2**32)"),
        ("seed", 2**32, "seed is 4294967296; it must be in [0, 2**32)"),
        ("polyak", 0, "polyak is 0.0; it must be in (0, 1]"),
        ("policy_delay", 0, "policy_delay is 0; it must be at least 1"),
        ("batch_size", 0, "batch_size is 0; it must be at least 1"),
        ("warmup_steps", -1, "warmup_steps is -1; it must be at least 0"),
        ("reward_critic.pairs", 0, "reward_critic.pairs is 0; it must be at least 1"),
        ("reward_critic.discount", 1, "reward_critic.discount is 1.0; it must be in [0, 1)"),
        ("cost_critic.discount", "1.0", "cost_critic.discount is 1.0; it must be in [0, 1)"),
        ("cost_critic.quantiles", 0, "cost_critic.quantiles is 0; it must be at least 1"),
        ("cost_critic.members", 0, "cost_critic.members is 0; it must be at least 1"),
        (
            "cost_critic.huber_threshold",
            0,
            "cost_critic.huber_threshold is 0.0; it must be above 0",
        ),
        (
            "policy.optimiser.learning_rate",
            0,
            "policy.optimiser.learning_rate is 0.0; it must be above 0",
        ),
        ("policy.optimiser.beta2", 1, "policy.optimiser.beta2 is 1.0; it must be in [0, 1)"),
        (
            "policy.optimiser.max_gradient_norm",
            0,
            "policy.optimiser.max_gradient_norm is 0.0; it must be above 0, or none",
        ),
        (
            "policy.hidden",
            "0",
            "policy.hidden is (0,); it must be one or more layer widths of at least 1",
        ),
        ("policy.log_std_min", 2, "policy.log_std_min is 2.0; it must be below log_std_max"),
        ("multiplier.window", 0, "multiplier.window is 0; it must be at least 1"),
        ("multiplier.initial", -0.1, "multiplier.initial is -0.1; it must be at least 0"),
        ("steps", "many", "steps is 'many'; it must be a whole number"),
        ("steps", 1.5, "steps is 1.5; it must be a whole number"),
        ("steps", True, "steps is True; it must be a whole number"),
        ("steps", "inf", "steps is 'inf'; it must be a whole number"),
        ("steps", None, "steps is None; it must be a whole number"),
        ("cost_limit", "low", "cost_limit is 'low'; it must be a finite number"),
        ("cost_limit", "nan", "cost_limit is 'nan'; it must be a finite number"),
        ("cost_limit", "none", "cost_limit is 'none'; it must be a finite number"),
        (
            "policy.automatic_temperature",
            "maybe",
            "policy.automatic_temperature is 'maybe'; it must be true or false",
        ),
        ("policy.target_network", 1, "policy.target_network is 1; it must be true or false"),
        (
            "reward_critic.aggregation",
            "max",
            "reward_critic.aggregation is 'max'; it must be one of mean-min, min-min",
        ),
        (
            "policy.hidden",
            "wide",
            "policy.hidden is 'wide'; it must be a whole number",
        ),
        ("policy.hidden", 64, "policy.hidden is 64; it must be a list of whole numbers"),
        ("env", 3, "env is 3; it must be text"),
        # Too large for a float, and so for the field; it must not end in an OverflowError.
        ("cost_limit", 10**400, f"cost_limit is {brief(10**400)}; it must be a finite number"),
        ("cost_limit", "1e400", "cost_limit is '1e400'; it must be a finite number"),
        ("steps", "1e400", "steps is '1e400'; it must be a whole number"),
        ("seed", 10**400, f"seed is {brief(10**400)}; it must be below 2**63"),
        ("policy.target_noise", -1, "policy.target_noise is -1.0; it must be at least 0"),
        ("multiplier.maximum", 0, "multiplier.maximum is 0.0; it must be above 0"),
        ("multiplier.smoothing", 1, "multiplier.smoothing is 1.0; it must be in [0, 1)"),
        ("multiplier.damping", -1, "multiplier.damping is -1.0; it must be at least 0"),
        (
            "multiplier.largest_tightening",
            1,
            "multiplier.largest_tightening is 1.0; it must be in [0, 1)",
        ),
        (
            "multiplier.tightening_window",
            1,
            "multiplier.tightening_window is 1; it must be at least 2",
        ),
        (
            "multiplier.derivative_delay",
            0,
            "multiplier.derivative_delay is 0; it must be at least 1",
        ),
        (
            "multiplier.integral_gain",
            -1e-9,
            "multiplier.integral_gain is -1e-09; it must be at least 0",
        ),
        (
            "multiplier",
            "adam",
            "multiplier is 'adam'; it is a group of fields: set one of them",
        ),
    ],
)
def test_bad_value_is_named_with_what_is_allowed(name: str, value: Any, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        with_overrides(sl_sac(), {name: value})
    assert str(caught.value) == message


def test_a_part_that_is_made_directly_checks_its_choices_too() -> None:
    with pytest.raises(InvalidInput, match=r"^rule is 'foo'; it must be one of ascent, balanced,"):
        replace(preset("sl-sac", "SafetyAntVelocity-v1").multiplier, rule="foo")


@pytest.mark.parametrize(
    ("algo", "changes", "message"),
    [
        (
            "sl-sac", {"multiplier.tighten": True, "closeness_rates": "3"},
            "multiplier.tighten is True; it must be false unless units is task, "
            "normalise_observations is false and closeness_rates none",
        ),
        (
            "sl-sac-2", {"cost_critic.cost_floor": -1.0},
            "cost_critic.cost_floor is -1.0; it must be 0 or none where units is scale-free",
        ),
        (
            "sl-sac-2", {"policy.normalise_by_multiplier": True, "multiplier.minimum": -1.0},
            "multiplier.minimum is -1.0; it must be above -1 where "
            "policy.normalise_by_multiplier is true",
        ),
        (
            "ppo-lag", {"multiplier.rule": "relative", "multiplier.minimum": -1.0},
            "multiplier.minimum is -1.0; it must be at least 0 on-policy",
        ),
        (
            "ppo-lag", {"multiplier.critic_gain": 0.5},
            "multiplier.critic_gain is 0.5; it must be 0 on-policy",
        ),
    ],
)  # fmt: skip
def test_settings_that_do_not_go_together_are_named(
    algo: str, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        with_overrides(preset(algo, "SafetyAntVelocity-v1"), changes)
    assert str(caught.value) == message


def test_automatic_temperature_needs_a_start_above_zero() -> None:
    with pytest.raises(
        InvalidInput, match=r"policy\.temperature is 0\.0; it must be above 0 where it is automatic"
    ):
        with_overrides(sl_sac(), {"policy.temperature": 0.0, "policy.automatic_temperature": "yes"})


def test_deterministic_policy_has_no_temperature_to_adapt() -> None:
    deterministic = {"policy.head": "deterministic", "policy.automatic_temperature": True}
    with pytest.raises(InvalidInput) as caught:
        with_overrides(sl_sac(), deterministic)
    assert str(caught.value) == (
        "policy.automatic_temperature is True; it must be false for a deterministic head"
    )


def test_softplus_needs_a_start_above_zero() -> None:
    with pytest.raises(InvalidInput) as caught:
        with_overrides(preset("wcsac", VELOCITY), {"multiplier.initial": 0})
    assert str(caught.value) == (
        "multiplier.initial is 0.0; it must be in [1e-12, 500] for the softplus rule"
    )
    # The others may start at 0.
    for rule in ("ascent", "adam", "pid"):
        with_overrides(sl_sac(), {"multiplier.rule": rule, "multiplier.initial": 0})


def test_scaled_costs_have_no_limit_to_hold_the_critic_against() -> None:
    with pytest.raises(InvalidInput) as caught:
        with_overrides(preset("wcsac", VELOCITY), {"cost_critic.cost_scaling": "deviation"})
    assert str(caught.value) == (
        "cost_critic.cost_scaling is deviation; it must be none where multiplier.signal is critic"
    )
    changed = with_overrides(sl_sac(), {"cost_critic.cost_scaling": "deviation"})
    assert changed.cost_critic.cost_scaling == "deviation"


def test_standardised_costs_are_signed_and_have_no_floor() -> None:
    scaling = {"cost_critic.cost_scaling": "standardised"}
    with pytest.raises(InvalidInput, match=r"cost_critic\.cost_floor is 0\.0; it must be none"):
        with_overrides(sl_sac(), scaling)
    with_overrides(sl_sac(), scaling | {"cost_critic.cost_floor": "none"})


def test_a_multiplier_cannot_start_above_its_maximum() -> None:
    with pytest.raises(InvalidInput, match=r"multiplier\.initial is 200\.0; it must be at most"):
        with_overrides(sl_sac(), {"multiplier.initial": 200.0})


def test_hidden_merge_needs_two_layers() -> None:
    with pytest.raises(InvalidInput, match=r"cost_critic\.hidden is \(8,\); .*merge is hidden"):
        with_overrides(sl_sac(), {"cost_critic.hidden": "8", "cost_critic.merge": "hidden"})


def test_config_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        sl_sac().steps = 1  # type: ignore[misc]


def test_a_bound_of_a_growing_discount_binds_no_other() -> None:
    config = with_overrides(preset("sl-sac", VELOCITY), {"reward_critic.discount": 0.9995})
    assert config.reward_critic.discount == 0.9995
    with pytest.raises(InvalidInput, match=r"discount is 0\.9995; it must be at most largest"):
        with_overrides(preset("sl-sac-2", VELOCITY), {"reward_critic.discount": 0.9995})
