"""Configurations to and from plain data, flags and changes of single fields."""

from __future__ import annotations

import dataclasses
import json
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
        ("closeness_rates", "3,1e1,.5", (3.0, 10.0, 0.5)),
        ("closeness_rates", "none", ()),
        ("closeness_rates", None, ()),
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


@pytest.mark.parametrize("env", ["SafetyPointGoal1-v0", "MetaDriveSafe-v0"])
@pytest.mark.parametrize("algo", ["wcsac", "cpo", "sl-sac-2"])
def test_flags_give_the_config_that_they_were_made_of(algo: str, env: str) -> None:
    changed = {
        "policy.hidden": (8, 4), "cost_limit": 0.125, "seed": 3, "steps": 12_344,
        "cost_critic.optimiser.max_gradient_norm": None,
    } | {
        "wcsac": {"cost_critic.cost_floor": -2.5},
        "cpo": {"num_envs": 4},
        "sl-sac-2": {"closeness_rates": ()},
    }[algo]  # fmt: skip
    config = with_overrides(preset(algo, env), changed)
    given = parse_overrides(as_flags(config))
    assert (given.pop("algo"), given.pop("env")) == (algo, env)
    assert with_overrides(preset(algo, env), given) == config


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


def test_a_group_of_fields_cannot_be_taken_away() -> None:
    # Without its settings MetaDrive would be evaluated on the scenarios of training.
    driving = preset("sl-sac", "MetaDriveSafe-v0")
    with pytest.raises(InvalidInput, match="metadrive is 'none'; it is a group of fields"):
        with_overrides(driving, {"metadrive": "none"})
    # Elsewhere it says what is so anyway.
    plain = preset("sl-sac", "SafetyHopperVelocity-v1")
    assert with_overrides(plain, {"metadrive": None}) == plain


@pytest.mark.parametrize(
    ("name", "field"),
    [("lr", "policy.optimiser.learning_rate"), ("total_timesteps", "steps"), ("tau", "polyak")],
)
def test_names_of_other_libraries_lead_to_ours(name: str, field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        with_overrides(preset("sl-sac", "SafetyHopperVelocity-v1"), {name: 1})
    assert field in str(caught.value).partition("did you mean ")[2]
