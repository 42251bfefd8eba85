from __future__ import annotations

import dataclasses
import json
from dataclasses import replace
from typing import Any

import pytest

from slsac.cli.train import parse_overrides
from slsac.config import Config
from slsac.config.overrides import as_flags, field_names, from_dict, to_dict, with_overrides
from slsac.config.presets import ALGORITHMS, preset
from slsac.errors import InvalidInput

VELOCITY = "SafetyHopperVelocity-v1"
NAVIGATION = "SafetyPointGoal1-v0"


def sl_sac() -> Config:
    return preset("sl-sac", VELOCITY)


def at(config: Any, dotted_name: str) -> Any:
    for name in dotted_name.split("."):
        config = getattr(config, name)
    return config


def overridden(name: str, value: Any) -> Any:
    return at(with_overrides(sl_sac(), {name: value}), name.replace("-", "_"))


@pytest.mark.parametrize("env", [VELOCITY, NAVIGATION, "SomebodysEnv-v0"])
@pytest.mark.parametrize("algo", ALGORITHMS)
def test_presets_survive_json(algo: str, env: str) -> None:
    config = preset(algo, env)
    assert (config.algo, config.env) == (algo, env)
    assert from_dict(json.loads(json.dumps(to_dict(config)))) == config


def test_papers_shared_numbers() -> None:
    expected = {
        "steps": 1_000_000,
        "cost_limit": 25.0,
        "tail_fraction": 0.5,
        "warmup_steps": 5_000,
        "multiplier_warmup_steps": 100_000,
        "policy_delay": 2,
        "polyak": 0.005,
        "batch_size": 256,
        "replay_capacity": 1_000_000,
        "steps_per_epoch": 2_000,
        "policy.hidden": (256, 256),
        "reward_critic.pairs": 3,
        "reward_critic.aggregation": "mean-min",
        "reward_critic.discount": 0.99,
        "reward_critic.optimiser.kind": "asgld",
        "reward_critic.optimiser.inverse_temperature": 1e-8,
        "reward_critic.optimiser.clip": 0.7,
        "cost_critic.quantiles": 32,
        "cost_critic.embedding": 64,
        "cost_critic.huber_threshold": 1.0,
        "cost_critic.optimiser.kind": "adamw",
        "multiplier.rule": "ascent",
        "multiplier.window": 10,
        "cost_critic.risk_measure": "cvar",
        "multiplier.tighten": False,
    }
    assert {name: at(sl_sac(), name) for name in expected} == expected


def test_unknown_algorithm_suggests_the_nearest() -> None:
    with pytest.raises(InvalidInput, match=r"algo 'sl-sax' does not exist; did you mean sl-sac"):
        preset("sl-sax", VELOCITY)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("cost_limit", 10, 10.0),
        ("cost_limit", "12.5", 12.5),
        ("steps", "1e6", 1_000_000),
        ("steps", "12", 12),
        ("steps", 2e5, 200_000),
        ("reward_critic.pairs", "5", 5),
        ("reward-critic.optimiser.learning-rate", "1e-4", 1e-4),
        ("reward_critic.aggregation", "min-min", "min-min"),
        ("policy.hidden", "64,32", (64, 32)),
        ("policy.hidden", "(64, 32)", (64, 32)),
        ("policy.hidden", "[64]", (64,)),
        ("policy.hidden", [64, 32], (64, 32)),
        ("policy.automatic_temperature", "true", True),
        ("policy.target_network", "Off", False),
        ("policy.target_network", False, False),
        ("cost_critic.cost_floor", "none", None),
        ("cost_critic.cost_floor", None, None),
        ("cost_critic.cost_floor", "-1", -1.0),
        ("policy.optimiser.max_gradient_norm", "40", 40.0),
    ],
)
def test_override_is_converted_to_the_fields_type(name: str, value: Any, expected: Any) -> None:
    found = overridden(name, value)
    assert found == expected
    assert type(found) is type(expected)


def test_overrides_touch_nothing_else() -> None:
    changed = with_overrides(sl_sac(), {"reward_critic.optimiser.clip": 0.5})
    assert with_overrides(changed, {"reward_critic.optimiser.clip": 0.7}) == sl_sac()
    different = [name for name in field_names() if at(changed, name) != at(sl_sac(), name)]
    assert different == ["reward_critic.optimiser.clip"]


def test_nested_and_dotted_overrides_mean_the_same_and_mix() -> None:
    nested = {"reward_critic": {"pairs": 2, "optimiser": {"clip-mode": "none"}}, "seed": 3}
    dotted = {"reward_critic.pairs": 2, "reward_critic.optimiser.clip_mode": "none", "seed": 3}
    mixed = {"reward_critic": {"pairs": 2}, "reward-critic.optimiser.clip-mode": "none", "seed": 3}
    config = with_overrides(sl_sac(), dotted)
    assert (config.reward_critic.pairs, config.reward_critic.optimiser.clip_mode) == (2, "none")
    assert with_overrides(sl_sac(), nested) == config
    assert with_overrides(sl_sac(), mixed) == config


def test_a_whole_part_can_be_replaced() -> None:
    part = dataclasses.replace(sl_sac().multiplier, rule="adam")
    assert with_overrides(sl_sac(), {"multiplier": part}).multiplier is part


def test_a_part_and_fields_of_it_can_be_given_together() -> None:
    part = dataclasses.replace(sl_sac().multiplier, rule="adam", window=3)
    expected = dataclasses.replace(part, window=7)
    # In either order the field goes on top of the part.
    for overrides in (
        {"multiplier": part, "multiplier.window": 7},
        {"multiplier.window": 7, "multiplier": part},
    ):
        assert with_overrides(sl_sac(), overrides).multiplier == expected
    optimiser = dataclasses.replace(sl_sac().policy.optimiser, kind="sgld", clip=2.0)
    found = with_overrides(sl_sac(), {"policy.optimiser": optimiser, "policy.optimiser.clip": 3.0})
    assert found.policy.optimiser == dataclasses.replace(optimiser, clip=3.0)


def test_a_key_that_is_no_text_is_an_unknown_field() -> None:
    # YAML reads `3: 1` as a number.
    with pytest.raises(InvalidInput, match=r"^config field '3' does not exist"):
        with_overrides(sl_sac(), {3: 1})  # type: ignore[dict-item]
    with pytest.raises(InvalidInput, match=r"^config field 'policy\.3' does not exist"):
        with_overrides(sl_sac(), {"policy": {3: 1}})
    with pytest.raises(InvalidInput, match=r"^config field 'None' does not exist"):
        with_overrides(sl_sac(), {None: 1})  # type: ignore[dict-item]


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
        ("cost_limit", 10**400, f"cost_limit is {10**400}; it must be a finite number"),
        ("cost_limit", "1e400", "cost_limit is '1e400'; it must be a finite number"),
        ("steps", "1e400", "steps is '1e400'; it must be a whole number"),
        ("seed", 10**400, f"seed is {10**400}; it must be in [0, 2**32)"),
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
            "multiplier is 'adam'; it is a group of fields, set one of them",
        ),
    ],
)
def test_bad_value_is_named_with_what_is_allowed(name: str, value: Any, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        with_overrides(sl_sac(), {name: value})
    assert str(caught.value) == message


@pytest.mark.parametrize("env", ["SafetyPointGoal1-v0", "MetaDriveSafe-v0"])
@pytest.mark.parametrize("algo", ["wcsac", "cpo"])
def test_flags_give_the_config_that_they_were_made_of(algo: str, env: str) -> None:
    changed = {
        "policy.hidden": (8, 4), "cost_limit": 0.125, "seed": 3, "steps": 12_344,
        "cost_critic.optimiser.max_gradient_norm": None,
    } | ({"cost_critic.cost_floor": -2.5} if algo == "wcsac" else {"num_envs": 4})  # fmt: skip
    config = with_overrides(preset(algo, env), changed)
    given = parse_overrides(as_flags(config))
    assert (given.pop("algo"), given.pop("env")) == (algo, env)
    assert with_overrides(preset(algo, env), given) == config


def test_a_part_that_is_made_directly_checks_its_choices_too() -> None:
    with pytest.raises(InvalidInput, match=r"^rule is 'foo'; it must be one of ascent, balanced,"):
        replace(preset("sl-sac", "SafetyAntVelocity-v1").multiplier, rule="foo")


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


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("tail_fractoin", "tail_fraction"),
        ("reward_critic.pair", "reward_critic.pairs"),
        # A leaf's name alone is answered with where it hangs.
        ("pairs", "reward_critic.pairs"),
        ("cost-floor", "cost_critic.cost_floor"),
        ("policy.pairs", "reward_critic.pairs"),
        ("learning_rate", "policy.optimiser.learning_rate"),
    ],
)
def test_unknown_field_suggests_one_that_exists(name: str, suggestion: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        with_overrides(sl_sac(), {name: 1})
    problem, _, hint = str(caught.value).partition("; did you mean ")
    assert problem == f"config field {name.replace('-', '_')!r} does not exist"
    assert suggestion in hint


def test_a_value_has_no_fields_below_it() -> None:
    with pytest.raises(InvalidInput, match=r"config field 'steps\.per\.epoch' does not exist"):
        with_overrides(sl_sac(), {"steps.per.epoch": 1})


def test_from_dict_wants_every_field_and_no_other() -> None:
    values = to_dict(sl_sac())
    del values["policy"]["hidden"]
    with pytest.raises(InvalidInput, match=r"^config field policy\.hidden is missing$"):
        from_dict(values)
    values = to_dict(sl_sac())
    values["policy"]["widths"] = [1]
    with pytest.raises(InvalidInput, match=r"config field 'policy\.widths' does not exist"):
        from_dict(values)
    values = to_dict(sl_sac())
    values["reward_critic"]["optimiser"]["clip"] = 0
    with pytest.raises(InvalidInput, match=r"^reward_critic\.optimiser\.clip is 0\.0; it must be"):
        from_dict(values)


def test_config_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        sl_sac().steps = 1  # type: ignore[misc]


def test_a_group_of_fields_cannot_be_taken_away() -> None:
    # Without its settings MetaDrive would be evaluated on the scenarios of training.
    driving = preset("sl-sac", "MetaDriveSafe-v0")
    with pytest.raises(InvalidInput, match="metadrive is 'none'; it is a group of fields"):
        with_overrides(driving, {"metadrive": "none"})
    # Elsewhere it says what is so anyway.
    plain = preset("sl-sac", "SafetyHopperVelocity-v1")
    assert with_overrides(plain, {"metadrive": None}) == plain
