"""The presets: the numbers of the paper, what each algorithm changes, and that all can be built."""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from dataclasses import replace
from typing import Any, get_args, get_type_hints

import jax
import numpy as np
import pytest

from slsac.algorithms.off_policy import agent as off_policy
from slsac.config import Config, MultiplierConfig, OffPolicyConfig, OnPolicyConfig
from slsac.config.overrides import field_names, with_overrides
from slsac.config.presets import ALGORITHMS, BASELINES, FAMILIES, METADRIVE, START_STEPS, preset
from slsac.errors import InvalidInput
from slsac.networks import Largest
from slsac.types import Batch, EnvSpec
from tests.support.paths import ROOT

VELOCITY = "SafetyHopperVelocity-v1"
NAVIGATION = "SafetyPointGoal1-v0"
DRIVING = "MetaDriveSafe-v0"
SPEC = EnvSpec(11, 3, 1000, (-1.0,) * 3, (1.0,) * 3)
ABLATIONS = [name for name in ALGORITHMS if name.startswith("sl-sac/")]
ON_POLICY = [name for name, one in ALGORITHMS.items() if isinstance(one.config, OnPolicyConfig)]
OFF_POLICY = [name for name in ALGORITHMS if name not in ON_POLICY]
OMNISAFE = [name for name in OFF_POLICY if name.endswith("/omnisafe")]
DEFAULTS = {
    "sl-sac/reward-asgld", "sl-sac/tail-0.5", "sl-sac/pairs-3", "sl-sac/aggregation-mean-min",
    "sl-sac/cost-adamw", "sl-sac/signal-empirical-cvar",
}  # fmt: skip
"""Members of an ablation that are SL-SAC itself."""
every_algorithm = pytest.mark.parametrize("algo", OFF_POLICY)
every_algorithm_with_families = pytest.mark.parametrize(
    "algo", [name for name in OFF_POLICY if not ALGORITHMS[name].every_task]
)


def at(config: Any, dotted_name: str) -> Any:
    return functools.reduce(getattr, dotted_name.split("."), config)


def differences(one: Config, other: Config) -> dict[str, tuple[Any, Any]]:
    """Every field in which two configs differ, the algorithm's name aside."""
    pairs = {name: (at(one, name), at(other, name)) for name in field_names(type(one))}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1] and name != "algo"}


def cells(config: Config) -> set[str]:
    """The top-level cells in which a config differs from SL-SAC."""
    base = preset("sl-sac", config.env)
    names = [field.name for field in dataclasses.fields(OffPolicyConfig) if field.name != "algo"]
    return {name for name in names if getattr(config, name) != getattr(base, name)}


def test_names_are_those_of_the_paper_and_our_own() -> None:
    plain = [name for name in ALGORITHMS if "/" not in name]
    assert plain == [
        "sl-sac-2", "sl-sac", "sac-lag", "td3-lag", "sac-pid", "td3-pid", "wcsac", "ppo-lag", "cpo",
    ]  # fmt: skip
    assert [name for name in OFF_POLICY if "/" in name] == ABLATIONS + OMNISAFE
    assert ON_POLICY == ["ppo-lag", "cpo", "ppo-lag/omnisafe", "cpo/omnisafe"]
    assert set(OMNISAFE) == {
        "sac-lag/omnisafe", "sac-pid/omnisafe", "td3-lag/omnisafe", "td3-pid/omnisafe",
    }  # fmt: skip
    assert len(ABLATIONS) == 5 + 4 + 4 + 2 + 2 + 3
    assert all(algorithm.description for algorithm in ALGORITHMS.values())


@every_algorithm
def test_every_preset_builds_an_agent(algo: str) -> None:
    # What the other families of tasks change, which is no shape, is pinned below.
    config = preset(algo, VELOCITY)
    assert (config.algo, config.env) == (algo, VELOCITY)
    state = jax.eval_shape(off_policy.build(config, SPEC).init, jax.random.PRNGKey(0))
    # Mean and log-std of three actions, or the actions themselves.
    outputs = 3 if config.policy.head == "deterministic" else 6
    network = state.policy.network if config.normalise_observations else state.policy
    assert network.biases[-1].shape == (outputs,)
    assert (state.target_policy is not None) == config.policy.target_network
    assert state.reward_critics.weights[0].shape == (2 * config.reward_critic.pairs, 14, 256)
    critic = state.cost_critic
    critic = critic.members if isinstance(critic, Largest) else critic
    quantile = isinstance(critic, off_policy.cost_critics.QuantileNetwork)
    assert quantile == (config.cost_critic.kind == "quantile")


@pytest.mark.parametrize("algo", [*(name for name in ABLATIONS if name not in DEFAULTS), *OMNISAFE])
def test_every_variant_takes_a_finite_step(algo: str) -> None:
    """The algorithms themselves take many on probe tasks, in test_probes and test_baselines."""
    small = {f"{part}.hidden": (8, 8) for part in ("policy", "reward_critic", "cost_critic")}
    config = with_overrides(preset(algo, VELOCITY), small | {"cost_critic.quantiles": 8})
    agent = off_policy.build(config, SPEC)
    rng = np.random.default_rng(0)
    rows = {"observation": (4, 11), "action": (4, 3), "reward": (4,), "cost": (4,),
            "next_observation": (4, 11), "terminated": (4,)}  # fmt: skip
    batch = Batch(**{name: rng.uniform(0.1, 0.9, shape) for name, shape in rows.items()})
    before = jax.jit(agent.init)(jax.random.PRNGKey(0))
    after, metrics = jax.jit(agent.update, static_argnums=3)(before, batch, np.float32(0.5), True)
    for leaf in jax.tree.leaves((after, metrics)):
        assert np.isfinite(leaf).all()
    for name in ("policy", "reward_critics", "cost_critic"):
        old, new = (jax.tree.leaves(getattr(state, name)) for state in (before, after))
        assert any(np.any(one != two) for one, two in zip(old, new, strict=True)), name


@every_algorithm_with_families
def test_every_preset_is_a_task_familys_and_navigation_changes_the_documented_fields_only(
    algo: str,
) -> None:
    velocity, navigation = preset(algo, VELOCITY), preset(algo, NAVIGATION)
    expected: dict[str, tuple[Any, Any]] = {
        "env": (VELOCITY, NAVIGATION),
        "policy.optimiser.learning_rate": (3e-4, 5e-6),
        "reward_critic.optimiser.learning_rate": (3e-4, 1e-3),
        "cost_critic.optimiser.learning_rate": (3e-4, 1e-3),
    }
    if velocity.policy.head != "deterministic" and not velocity.policy.automatic_temperature:
        expected["policy.temperature"] = (0.2, 1e-5)
    if velocity.multiplier.rule in ("ascent", "adam"):
        expected["multiplier.initial"] = (1e-3, 0.0)
        expected["multiplier.learning_rate"] = (1e-5, 5e-7)
    if velocity.multiplier.rule == "pid":
        expected["multiplier.proportional_gain"] = (1e-6, 5e-7)
        expected["multiplier.integral_gain"] = (1e-7, 1e-8)
        expected["multiplier.derivative_gain"] = (1e-7, 1e-8)
    if algo.endswith("/omnisafe"):
        expected["cost_critic.cost_scaling"] = ("standardised", "none")
    if algo.endswith("pid/omnisafe"):
        expected["policy.optimiser.learning_rate"] = (1e-4, 5e-6)
    assert differences(velocity, navigation) == expected


def test_sl_sac_2_has_one_set_of_settings_for_every_task() -> None:
    velocity = preset("sl-sac-2", VELOCITY)
    for task in (NAVIGATION, "CartPole-v1"):
        assert differences(velocity, preset("sl-sac-2", task)) == {"env": (VELOCITY, task)}
    # The limit and the simulator are the task's, not the algorithm's.
    assert differences(velocity, preset("sl-sac-2", DRIVING)) == {
        "env": (VELOCITY, DRIVING),
        "cost_limit": (25.0, 0.1),
        "metadrive": (None, METADRIVE),
    }


def test_navigation_leaves_the_softplus_multiplier_and_its_temperature_alone() -> None:
    velocity, navigation = preset("wcsac", VELOCITY), preset("wcsac", NAVIGATION)
    assert navigation.multiplier == velocity.multiplier
    assert (navigation.policy.temperature, navigation.policy.automatic_temperature) == (0.2, True)


@pytest.mark.parametrize("rule", get_args(get_type_hints(MultiplierConfig)["rule"]))
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_knows_every_multiplier_rule(rule: Any, family: str) -> None:
    config = preset("sl-sac", VELOCITY)
    assert isinstance(config, OffPolicyConfig)
    multiplier = replace(config.multiplier, rule=rule, initial=0.5)
    assert FAMILIES[family](replace(config, multiplier=multiplier)).multiplier.rule == rule


@every_algorithm_with_families
def test_driving_scales_the_multiplier_by_the_ratio_of_the_limits(algo: str) -> None:
    velocity, driving = preset(algo, VELOCITY), preset(algo, DRIVING)
    expected: dict[str, tuple[Any, Any]] = {
        "env": (VELOCITY, DRIVING),
        "cost_limit": (25.0, 0.1),
        "multiplier.window": (10, 50),
        "metadrive": (None, METADRIVE),
    }
    if velocity.policy.head != "deterministic" and not velocity.policy.automatic_temperature:
        expected["policy.temperature"] = (0.2, 0.02)
    # 25 / 0.1 = 250.
    if velocity.multiplier.rule == "ascent":
        expected["multiplier.learning_rate"] = (1e-5, pytest.approx(2.5e-3))
    if velocity.multiplier.rule == "pid":
        expected["multiplier.proportional_gain"] = (1e-6, pytest.approx(2.5e-4))
        expected["multiplier.integral_gain"] = (1e-7, pytest.approx(2.5e-5))
        expected["multiplier.derivative_gain"] = (1e-7, pytest.approx(2.5e-5))
    if velocity.multiplier.rule == "softplus":
        expected["multiplier.damping"] = (10.0, pytest.approx(2_500.0))
    if algo.endswith("/omnisafe"):
        expected["cost_critic.cost_scaling"] = ("standardised", "none")
    assert differences(velocity, driving) == expected


SCALAR_MEAN = {
    "reward_critic.pairs": 1,
    "reward_critic.optimiser.kind": "adam",
    "cost_critic.kind": "scalar",
    "cost_critic.optimiser.kind": "adam",
    "multiplier.signal": "mean",
}
GAUSSIAN = {"policy.head": "squashed-gaussian", "policy.target_network": False}
DETERMINISTIC = {"policy.head": "deterministic", "policy.target_network": True}
COMPOSITION: dict[str, dict[str, Any]] = {
    "sl-sac": {
        "policy.head": "squashed-gaussian",
        "policy.target_network": True,
        "reward_critic.pairs": 3,
        "reward_critic.aggregation": "mean-min",
        "reward_critic.optimiser.kind": "asgld",
        "cost_critic.kind": "quantile",
        "cost_critic.optimiser.kind": "adamw",
        "multiplier.signal": "empirical-cvar",
        "multiplier.rule": "ascent",
    },
    "sac-lag": SCALAR_MEAN | GAUSSIAN | {"multiplier.rule": "ascent"},
    "sac-pid": SCALAR_MEAN | GAUSSIAN | {"multiplier.rule": "pid"},
    "td3-lag": SCALAR_MEAN | DETERMINISTIC | {"multiplier.rule": "ascent"},
    "td3-pid": SCALAR_MEAN | DETERMINISTIC | {"multiplier.rule": "pid"},
    "wcsac": GAUSSIAN
    | {
        "policy.automatic_temperature": True,
        "reward_critic.pairs": 1,
        "reward_critic.optimiser.kind": "adam",
        "cost_critic.kind": "quantile",
        "cost_critic.quantiles": 32,
        "cost_critic.hidden": (256, 256),
        "cost_critic.optimiser.kind": "adam",
        "multiplier.signal": "critic",
        "multiplier.rule": "softplus",
        "multiplier.learning_rate": 0.02,
        "multiplier.damping": 10.0,
    },
}


@pytest.mark.parametrize("algo", COMPOSITION)
def test_composition_is_that_of_the_specification(algo: str) -> None:
    config = preset(algo, VELOCITY)
    assert {name: at(config, name) for name in COMPOSITION[algo]} == COMPOSITION[algo]


@pytest.mark.parametrize("algo", BASELINES)
def test_baselines_share_everything_that_is_not_what_they_are(algo: str) -> None:
    allowed = {*COMPOSITION[algo], "policy.temperature", "multiplier.initial"}
    if algo == "wcsac":
        allowed |= {"multiplier_warmup_steps"}
    assert set(differences(preset("sl-sac", VELOCITY), preset(algo, VELOCITY))) <= allowed


def test_lag_and_pid_differ_in_the_rule_only() -> None:
    for policy in ("sac", "td3"):
        lag, pid = preset(f"{policy}-lag", VELOCITY), preset(f"{policy}-pid", VELOCITY)
        assert differences(lag, pid) == {"multiplier.rule": ("ascent", "pid")}


def test_sac_and_td3_differ_in_the_policy_only() -> None:
    for rule in ("lag", "pid"):
        assert differences(preset(f"sac-{rule}", VELOCITY), preset(f"td3-{rule}", VELOCITY)) == {
            "policy.head": ("squashed-gaussian", "deterministic"),
            "policy.target_network": (False, True),
            "policy.temperature": (0.2, 0.0),
        }


@pytest.mark.parametrize("env", [VELOCITY, NAVIGATION])
def test_td3_has_no_temperature(env: str) -> None:
    for algo in ("td3-lag", "td3-pid", "td3-lag/omnisafe", "td3-pid/omnisafe"):
        policy = preset(algo, env).policy
        assert (policy.temperature, policy.automatic_temperature) == (0.0, False)
        noises = (policy.exploration_noise, policy.target_noise, policy.target_noise_clip)
        assert noises == (0.1, 0.2, 0.5)


def test_wcsac_starts_its_multiplier_with_its_updates() -> None:
    config = preset("wcsac", VELOCITY)
    assert config.multiplier_warmup_steps == config.warmup_steps == 5_000
    # softplus(0), to four digits.
    assert config.multiplier.initial == pytest.approx(math.log(2), abs=5e-5)


def test_pid_constants_are_omnisafes() -> None:
    for algo in ("sac-pid", "td3-pid"):
        multiplier = preset(algo, VELOCITY).multiplier
        assert (multiplier.smoothing, multiplier.derivative_delay) == (0.95, 10)
        assert (multiplier.window, multiplier.initial) == (10, 1e-3)


@pytest.mark.parametrize("env", [VELOCITY, NAVIGATION])
@pytest.mark.parametrize("algo", ABLATIONS)
def test_ablation_changes_one_cell_and_the_default_member_none(algo: str, env: str) -> None:
    config = preset(algo, env)
    count = 0 if algo in DEFAULTS else 1
    assert len(cells(config)) == count
    assert len(differences(preset("sl-sac", env), config)) == count


def test_page_of_ablations_says_what_each_one_changes() -> None:
    page = (ROOT / "docs" / "algorithms" / "ablations.md").read_text()
    rows = re.findall(r"^\| `(sl-sac/[^`]+)` \| `([^`]+)` \| `([^`]+)` \|", page, re.MULTILINE)
    assert [name for name, _, _ in rows] == ABLATIONS
    base = preset("sl-sac", VELOCITY)
    for name, field, value in rows:
        assert with_overrides(base, {field: value, "algo": name}) == preset(name, VELOCITY)


@pytest.mark.parametrize("algo", OMNISAFE)
def test_omnisafe_presets_are_the_baselines_with_omnisafes_settings(algo: str) -> None:
    base = algo.removesuffix("/omnisafe")
    start_steps = 25_000 if base.startswith("td3") else 10_000
    expected: dict[str, tuple[Any, Any]] = {
        "warmup_steps": (5_000, start_steps),
        "multiplier_warmup_steps": (100_000, 200_000),
        "policy.optimiser.max_gradient_norm": (None, 40.0),
        "reward_critic.optimiser.max_gradient_norm": (None, 40.0),
        "cost_critic.optimiser.max_gradient_norm": (None, 40.0),
        "cost_critic.target_action": ("shared", "online-mean"),
        "cost_critic.cost_floor": (0.0, None),
        "cost_critic.cost_scaling": ("none", "standardised"),
    }
    if base.endswith("pid"):
        expected["policy.optimiser.learning_rate"] = (3e-4, 1e-4)
    if base.endswith("lag"):
        expected["multiplier.rule"] = ("ascent", "adam")
    assert differences(preset(base, VELOCITY), preset(algo, VELOCITY)) == expected
    assert START_STEPS[base] == start_steps


def test_family_of_an_unknown_task_has_the_velocity_settings() -> None:
    for algo in ("sl-sac", "td3-pid", "wcsac"):
        other = preset(algo, "SomebodysEnv-v0")
        assert replace(other, env=VELOCITY) == preset(algo, VELOCITY)


def test_on_policy_presets_have_the_specifications_numbers_on_every_task() -> None:
    shared = {
        "steps_per_epoch": 20_000,
        "policy.hidden": (64, 64),
        "reward_critic.trace_decay": 0.95,
        "cost_critic.trace_decay": 0.95,
        "normalise_observations": True,
    }
    own: dict[str, dict[str, Any]] = {
        "ppo-lag": {
            "passes": 40, "batch_size": 64, "clipped.ratio": 0.2, "clipped.maximum_kl": 0.02,
            "multiplier.signal": "mean", "multiplier.rule": "adam",
            "multiplier.learning_rate": 0.035, "multiplier.window": 100,
        },
        "cpo": {
            "passes": 10, "reward_critic.optimiser.learning_rate": 1e-3,
            "trust_region.maximum_kl": 0.01, "trust_region.conjugate_gradient_steps": 15,
            "trust_region.damping": 0.1, "trust_region.line_search_steps": 20,
            "trust_region.line_search_decay": 0.8, "trust_region.kl_over_actions": "sum",
        },
    }  # fmt: skip
    for algo, numbers in own.items():
        config = preset(algo, VELOCITY)
        assert {name: at(config, name) for name in shared | numbers} == shared | numbers
        assert differences(config, preset(algo, NAVIGATION)) == {"env": (VELOCITY, NAVIGATION)}
        assert set(differences(config, preset(f"{algo}/omnisafe", VELOCITY))) == {
            "reward_critic.weight_penalty", "cost_critic.weight_penalty",
            "clipped.learning_rate_decay", "trust_region.kl_over_actions",
            "trust_region.violation_unit", *(["multiplier.window"] if algo == "cpo" else []),
        }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("num_envs", 3, "num_envs is 3; it must be a divisor of steps_per_epoch = 20000"),
        ("worker_processes", 3, "worker_processes is 3; it must be in [0, num_envs = 2]"),
        ("clipped.ratio", 1, "clipped.ratio is 1.0; it must be in (0, 1)"),
        ("trust_region.damping", -1, "trust_region.damping is -1.0; it must be at least 0"),
        ("steps", 25_001, "steps is 25001; it must be a multiple of num_envs = 2"),
        ("multiplier.tighten", True, "multiplier.tighten is True; it must be false on-policy"),
        (
            "cost_critic.optimiser.kind", "asgld",
            "cost_critic.optimiser.kind is asgld; it must be adam or adamw on-policy",
        ),
    ],
)  # fmt: skip
def test_bad_on_policy_values_are_named(name: str, value: Any, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        with_overrides(preset("ppo-lag", VELOCITY), {name: value})
    assert str(caught.value) == message


def test_a_trust_region_is_held_against_the_mean() -> None:
    with pytest.raises(InvalidInput, match=r"multiplier\.signal is empirical-cvar; it must be m"):
        with_overrides(preset("cpo", VELOCITY), {"multiplier.signal": "empirical-cvar"})


def test_a_field_of_the_other_kind_of_run_is_unknown() -> None:
    with pytest.raises(InvalidInput, match="'polyak' is for off-policy algorithms only"):
        with_overrides(preset("cpo", VELOCITY), {"polyak": 0.1})
    with pytest.raises(InvalidInput, match="'num_envs' is for on-policy algorithms only"):
        with_overrides(preset("sl-sac", VELOCITY), {"num_envs": 2})


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
    assert {name: at(preset("sl-sac", VELOCITY), name) for name in expected} == expected


def test_unknown_algorithm_suggests_the_nearest() -> None:
    with pytest.raises(InvalidInput, match=r"algo 'sl-sax' does not exist; did you mean sl-sac"):
        preset("sl-sax", VELOCITY)
