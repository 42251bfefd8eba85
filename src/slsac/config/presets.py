"""Every named algorithm as a configuration; the only home of numbers.

An algorithm is a `replace` of another, and a task family is a `replace` of the velocity tasks'
settings. The numbers come from the paper's hyperparameter table and, where it relies on them, from
OmniSafe's published defaults.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, cast

from slsac.config import (
    ClippedConfig,
    Config,
    CostCriticConfig,
    GaussianPolicyConfig,
    MetaDriveConfig,
    MultiplierConfig,
    OffPolicyConfig,
    OnPolicyConfig,
    OptimiserConfig,
    PolicyConfig,
    RewardCriticConfig,
    TrustRegionConfig,
    ValueCriticConfig,
)
from slsac.errors import InvalidInput, unknown_name
from slsac.tasks import family

ADAM = OptimiserConfig(
    kind="adam",
    learning_rate=3e-4,
    beta1=0.9,
    beta2=0.999,
    epsilon=1e-8,
    weight_decay=0.01,
    max_gradient_norm=None,
    inverse_temperature=1e-8,
    bias_factor=1.0,
    clip_mode="drift-value",
    clip=0.7,
)
ADAMW = replace(ADAM, kind="adamw")
ASGLD = replace(ADAM, kind="asgld")

SL_SAC = OffPolicyConfig(
    algo="sl-sac",
    env="SafetyHalfCheetahVelocity-v1",
    seed=0,
    steps=1_000_000,
    cost_limit=25.0,
    tail_fraction=0.5,
    warmup_steps=5_000,
    multiplier_warmup_steps=100_000,
    policy_delay=2,
    polyak=0.005,
    batch_size=256,
    replay_capacity=1_000_000,
    steps_per_epoch=2_000,
    evaluate_every_epochs=5,
    evaluation_episodes=3,
    final_evaluation_episodes=30,
    checkpoint_every_steps=5_000,
    normalise_observations=False,
    observation_clip=5.0,
    lookahead_steps=1,
    noiseless_every=None,
    closeness_rates=(),
    units="task",
    policy=PolicyConfig(
        head="squashed-gaussian",
        hidden=(256, 256),
        optimiser=ADAM,
        temperature=0.2,
        automatic_temperature=False,
        target_entropy=-1.0,
        averaging_rate=1.0,
        target_network=True,
        normalise_by_multiplier=True,
        log_std_min=-20.0,
        log_std_max=2.0,
        temperature_learning_rate=3e-4,
        exploration_noise=0.1,
        target_noise=0.2,
        target_noise_clip=0.5,
    ),
    reward_critic=RewardCriticConfig(
        pairs=3,
        aggregation="mean-min",
        hidden=(256, 256),
        layer_norm=False,
        discount=0.99,
        discount_span=None,
        largest_discount=0.999,
        optimiser=ASGLD,
    ),
    cost_critic=CostCriticConfig(
        kind="quantile",
        risk_measure="cvar",
        risk_aversion=1.0,
        target_action="shared",
        cost_scaling="none",
        members=1,
        merge="late",
        fractions="shared",
        stratified=True,
        quantiles=32,
        embedding=64,
        huber_threshold=1.0,
        cost_floor=0.0,
        after_termination="free",
        hidden=(256, 256),
        layer_norm=False,
        discount=0.99,
        optimiser=ADAMW,
    ),
    multiplier=MultiplierConfig(
        signal="empirical-cvar",
        rule="ascent",
        learning_rate=1e-5,
        initial=1e-3,
        window=10,
        recent_horizons=3.0,
        minimum=1e-3,
        maximum=100.0,
        reserve=0.0,
        proportional_gain=1e-6,
        integral_gain=1e-7,
        critic_gain=0.0,
        critic_bound=0.5,
        derivative_gain=1e-7,
        smoothing=0.95,
        derivative_delay=10,
        damping=10.0,
        tighten=False,
        tightening_window=50,
        largest_tightening=0.5,
    ),
    metadrive=None,
)

SL_SAC_2 = replace(
    SL_SAC,
    steps=200_000,
    multiplier_warmup_steps=SL_SAC.warmup_steps,
    policy_delay=3,
    polyak=0.02,
    batch_size=128,
    lookahead_steps=3,
    noiseless_every=3,
    normalise_observations=True,
    observation_clip=10.0,
    closeness_rates=(3.0, 10.0, 30.0),
    units="scale-free",
    policy=replace(
        SL_SAC.policy,
        temperature=0.013,
        automatic_temperature=True,
        target_entropy=-0.3,
        temperature_learning_rate=1e-3,
        averaging_rate=0.005,
        target_network=False,
        normalise_by_multiplier=False,
        optimiser=replace(ADAM, learning_rate=1e-3, beta1=0.5),
    ),
    reward_critic=replace(
        SL_SAC.reward_critic,
        pairs=1,
        layer_norm=True,
        discount_span=0.2,
        largest_discount=0.995,
        optimiser=replace(ADAM, kind="langevin_adam", learning_rate=1e-3, beta1=0.5),
    ),
    cost_critic=replace(
        SL_SAC.cost_critic,
        members=2,
        layer_norm=True,
        huber_threshold=0.1,
        after_termination="continued",
        discount=0.97,
        optimiser=replace(ADAM, learning_rate=1e-3, beta1=0.5),
    ),
    multiplier=replace(
        SL_SAC.multiplier,
        signal="recent-cvar",
        rule="relative",
        initial=0.0,
        minimum=-0.5,
        maximum=1.0,
        reserve=0.25,
        integral_gain=3e-5,
        critic_gain=0.25,
    ),
)

METADRIVE = MetaDriveConfig(
    blocks=3,
    straight=0.2,
    curve=0.3,
    intersection=0.3,
    t_intersection=0.0,
    roundabout=0.2,
    traffic_density=0.12,
    obstacle_probability=0.0,
    lasers=240,
    lidar="closeness",
    violation_penalty=5.0,
    end_at_violation=True,
    horizon=1_000,
    training_scenarios=1_000,
    test_scenarios=200,
    first_test_scenario=10_000,
)

SAC_LAG = replace(
    SL_SAC,
    policy=replace(SL_SAC.policy, target_network=False),
    reward_critic=replace(SL_SAC.reward_critic, pairs=1, optimiser=ADAM),
    cost_critic=replace(SL_SAC.cost_critic, kind="scalar", optimiser=ADAM),
    multiplier=replace(SL_SAC.multiplier, signal="mean"),
)
SAC_PID = replace(SAC_LAG, multiplier=replace(SAC_LAG.multiplier, rule="pid"))
TD3_LAG = replace(
    SAC_LAG,
    policy=replace(SAC_LAG.policy, head="deterministic", target_network=True, temperature=0.0),
)
TD3_PID = replace(TD3_LAG, multiplier=SAC_PID.multiplier)
WCSAC = replace(
    SAC_LAG,
    # Its multiplier starts to move when learning starts.
    multiplier_warmup_steps=SAC_LAG.warmup_steps,
    policy=replace(SAC_LAG.policy, automatic_temperature=True),
    cost_critic=replace(SL_SAC.cost_critic, optimiser=ADAM),
    multiplier=replace(
        SAC_LAG.multiplier, signal="critic", rule="softplus", learning_rate=0.02, initial=0.6931
    ),
)


def _omnisafe(config: OffPolicyConfig, start_steps: int) -> OffPolicyConfig:
    """A baseline as OmniSafe runs it, for like-for-like comparisons."""

    def clipped(optimiser: OptimiserConfig) -> OptimiserConfig:
        return replace(optimiser, max_gradient_norm=40.0)

    by_pid = config.multiplier.rule == "pid"
    actor = replace(config.policy.optimiser, learning_rate=1e-4 if by_pid else 3e-4)
    return replace(
        config,
        warmup_steps=start_steps,
        multiplier_warmup_steps=200_000,
        policy=replace(config.policy, optimiser=clipped(actor)),
        reward_critic=replace(
            config.reward_critic, optimiser=clipped(config.reward_critic.optimiser)
        ),
        cost_critic=replace(
            config.cost_critic,
            target_action="online-mean",
            cost_scaling="standardised",
            cost_floor=None,
            optimiser=clipped(config.cost_critic.optimiser),
        ),
        multiplier=replace(config.multiplier, rule="pid" if by_pid else "adam"),
    )


def _navigation(config: OffPolicyConfig) -> OffPolicyConfig:
    """Settings of the navigation tasks: slow actor, fast critics, almost no entropy."""
    actor = replace(config.policy.optimiser, learning_rate=5e-6)
    reward = replace(config.reward_critic.optimiser, learning_rate=1e-3)
    cost = replace(config.cost_critic.optimiser, learning_rate=1e-3)
    # An automatic temperature finds its own value, and a deterministic policy has none.
    fixed = not config.policy.automatic_temperature and config.policy.temperature > 0
    multiplier: dict[str, Any] = {
        "ascent": {"learning_rate": 5e-7, "initial": 0.0},
        "balanced": {"learning_rate": 5e-7, "initial": 0.0},
        "adam": {"learning_rate": 5e-7, "initial": 0.0},
        "pid": {"proportional_gain": 5e-7, "integral_gain": 1e-8, "derivative_gain": 1e-8},
        "softplus": {},
        "relative": {},
    }[config.multiplier.rule]
    return replace(
        config,
        policy=replace(
            config.policy,
            optimiser=actor,
            temperature=1e-5 if fixed else config.policy.temperature,
        ),
        reward_critic=replace(config.reward_critic, optimiser=reward),
        cost_critic=replace(config.cost_critic, optimiser=cost, cost_scaling="none"),
        multiplier=replace(config.multiplier, **multiplier),
    )


DRIVING_COST_LIMIT = 0.1
"""250 times lower than the velocity tasks': an episode costs 0 or 1."""


def _driving_multiplier(config: Config) -> MultiplierConfig:
    """Rates scaled by the ratio of the limits: a violation of 0.1 counts as much as one of 25.

    Adam's step does not depend on the size of the violation, so its rate stays.
    """
    faster = config.cost_limit / DRIVING_COST_LIMIT
    scaled = {
        "ascent": ("learning_rate",),
        "balanced": ("learning_rate",),
        "adam": (),
        "pid": ("proportional_gain", "integral_gain", "derivative_gain"),
        "softplus": ("damping",),
        "relative": (),
    }[config.multiplier.rule]
    rates: dict[str, Any] = {name: faster * getattr(config.multiplier, name) for name in scaled}
    # In a window of ten episodes a single violation is already a CVaR of 0.2 and a mean of 0.1.
    return replace(config.multiplier, window=max(50, config.multiplier.window), **rates)


def _driving(config: OffPolicyConfig) -> OffPolicyConfig:
    fixed = not config.policy.automatic_temperature and config.policy.temperature > 0
    return replace(
        config,
        cost_limit=DRIVING_COST_LIMIT,
        # A random driver brakes as often as it accelerates and earns 0.015 a step. At the velocity
        # tasks' temperature entropy is worth 0.27 a step and would drown that.
        policy=replace(config.policy, temperature=0.02 if fixed else config.policy.temperature),
        cost_critic=replace(config.cost_critic, cost_scaling="none"),
        multiplier=_driving_multiplier(config),
        metadrive=METADRIVE,
    )


_VALUE_CRITIC = ValueCriticConfig(
    hidden=(64, 64),
    discount=0.99,
    trace_decay=0.95,
    weight_penalty=0.0,
    optimiser=replace(ADAM, max_gradient_norm=40.0),
)
PPO_LAG = OnPolicyConfig(
    algo="ppo-lag",
    env=SL_SAC.env,
    seed=0,
    steps=10_000_000,
    cost_limit=SL_SAC.cost_limit,
    tail_fraction=SL_SAC.tail_fraction,
    num_envs=2,
    # Messages to worker processes cost more than a second core gains (docs/performance.md).
    worker_processes=0,
    normalise_observations=True,
    observation_clip=SL_SAC.observation_clip,
    policy_update="clipped",
    passes=40,
    batch_size=64,
    steps_per_epoch=20_000,
    evaluate_every_epochs=5,
    evaluation_episodes=SL_SAC.evaluation_episodes,
    final_evaluation_episodes=SL_SAC.final_evaluation_episodes,
    checkpoint_every_steps=20_000,
    policy=GaussianPolicyConfig(
        hidden=(64, 64),
        initial_log_std=0.0,
        optimiser=replace(ADAM, max_gradient_norm=40.0),
    ),
    reward_critic=_VALUE_CRITIC,
    cost_critic=_VALUE_CRITIC,
    clipped=ClippedConfig(ratio=0.2, maximum_kl=0.02, learning_rate_decay="none"),
    trust_region=TrustRegionConfig(
        maximum_kl=0.01,
        kl_over_actions="sum",
        violation_unit="per-step",
        conjugate_gradient_steps=15,
        damping=0.1,
        line_search_steps=20,
        line_search_decay=0.8,
    ),
    multiplier=replace(
        SL_SAC.multiplier, signal="mean", rule="adam", learning_rate=0.035, window=100
    ),
    metadrive=None,
)
_FAST_CRITIC = replace(
    _VALUE_CRITIC, optimiser=replace(_VALUE_CRITIC.optimiser, learning_rate=1e-3)
)
CPO = replace(
    PPO_LAG,
    algo="cpo",
    policy_update="trust-region",
    passes=10,
    batch_size=128,
    reward_critic=_FAST_CRITIC,
    cost_critic=_FAST_CRITIC,
    # One epoch's episodes of 1,000 steps each: the update needs the cost of the current policy.
    multiplier=replace(PPO_LAG.multiplier, window=20),
)
ON_POLICY = {
    "ppo-lag": (PPO_LAG, "PPO, value critics, multiplier on the mean by Adam"),
    "cpo": (CPO, "a trust region that keeps the constraint; no multiplier is learned"),
}


def _on_policy_omnisafe(config: OnPolicyConfig) -> OnPolicyConfig:
    """An on-policy baseline as OmniSafe runs it."""
    return replace(
        config,
        reward_critic=replace(config.reward_critic, weight_penalty=1e-3),
        cost_critic=replace(config.cost_critic, weight_penalty=1e-3),
        clipped=replace(config.clipped, learning_rate_decay="linear"),
        trust_region=replace(
            config.trust_region, kl_over_actions="mean", violation_unit="per-episode"
        ),
        multiplier=replace(config.multiplier, window=100),
    )


FAMILIES: dict[str, Callable[[OffPolicyConfig], OffPolicyConfig]] = {
    "velocity": lambda config: config,
    "navigation": _navigation,
    "driving": _driving,
    "other": lambda config: config,
}


class Algorithm(NamedTuple):
    config: Config
    description: str
    every_task: bool = False
    """Its settings are the same for every task; only what a task itself asks for is set."""


def _ablations() -> dict[str, Algorithm]:
    """The cells of SL-SAC that the paper varies, one `replace` each."""
    reward, cost, multiplier = SL_SAC.reward_critic, SL_SAC.cost_critic, SL_SAC.multiplier
    ablations: dict[str, Algorithm] = {}

    def add(name: str, description: str, **cell: Any) -> None:
        ablations[f"sl-sac/{name}"] = Algorithm(replace(SL_SAC, **cell), description)

    for kind in ("asgld", "adamw", "sgld", "psgld", "preconditioned_asgld"):
        optimiser = replace(ASGLD, kind=kind)
        add(f"reward-{kind}", f"reward critics under {kind}",
            reward_critic=replace(reward, optimiser=optimiser))  # fmt: skip
    for tail_fraction in (0.2, 0.5, 0.75, 1.0):
        add(f"tail-{tail_fraction:g}", f"CVaR of the worst {100 * tail_fraction:g} %",
            tail_fraction=tail_fraction)  # fmt: skip
    for pairs in (1, 3, 5, 10):
        note = ", the size of the baselines' critics" if pairs == 1 else ""
        add(f"pairs-{pairs}", f"M = {pairs} twin reward critics{note}",
            reward_critic=replace(reward, pairs=pairs))  # fmt: skip
    for aggregation in ("mean-min", "min-min"):
        add(f"aggregation-{aggregation}", f"reward critics combined by {aggregation}",
            reward_critic=replace(reward, aggregation=aggregation))  # fmt: skip
    for optimiser in (ADAMW, ASGLD):
        add(f"cost-{optimiser.kind}", f"cost critic under {optimiser.kind}",
            cost_critic=replace(cost, optimiser=optimiser))  # fmt: skip
    for signal in ("empirical-cvar", "mean", "critic"):
        add(f"signal-{signal}", f"multiplier driven by: {signal}",
            multiplier=replace(multiplier, signal=signal))  # fmt: skip
    return ablations


BASELINES: dict[str, Algorithm] = {
    "sac-lag": Algorithm(SAC_LAG, "SAC, scalar cost critic, multiplier on the mean by ascent"),
    "td3-lag": Algorithm(TD3_LAG, "TD3, scalar cost critic, multiplier on the mean by ascent"),
    "sac-pid": Algorithm(SAC_PID, "SAC, scalar cost critic, multiplier on the mean by PID"),
    "td3-pid": Algorithm(TD3_PID, "TD3, scalar cost critic, multiplier on the mean by PID"),
    "wcsac": Algorithm(WCSAC, "SAC, IQN cost critic, multiplier on the critic's CVaR"),
}
START_STEPS = {"sac-lag": 10_000, "sac-pid": 10_000, "td3-lag": 25_000, "td3-pid": 25_000}

ALGORITHMS: dict[str, Algorithm] = {
    "sl-sac-2": Algorithm(
        SL_SAC_2,
        "scale-free SL-SAC: one set of settings for every task",
        every_task=True,
    ),
    "sl-sac": Algorithm(
        SL_SAC, "aSGLD critic ensemble, IQN cost critic, multiplier on the empirical CVaR"
    ),
    **BASELINES,
    **_ablations(),
    **{
        f"{name}/omnisafe": Algorithm(
            _omnisafe(cast(OffPolicyConfig, BASELINES[name].config), steps),
            f"{name} with OmniSafe's own settings",
        )
        for name, steps in START_STEPS.items()
    },
    **{name: Algorithm(*entry) for name, entry in ON_POLICY.items()},
    **{
        f"{name}/omnisafe": Algorithm(
            _on_policy_omnisafe(config), f"{name} with OmniSafe's own settings"
        )
        for name, (config, _) in ON_POLICY.items()
    },
}


def algorithm(algo: str) -> Algorithm:
    """A named algorithm. Raise InvalidInput, with the nearest names, if there is none."""
    if algo not in ALGORITHMS:
        raise unknown_name("algo", algo, ALGORITHMS)
    return ALGORITHMS[algo]


def preset(algo: str, env: str) -> Config:
    """The full configuration of a named algorithm on a task, before any override."""
    config = replace(algorithm(algo).config, algo=algo, env=env)
    every_task = algorithm(algo).every_task
    if isinstance(config, OffPolicyConfig) and not every_task:
        return FAMILIES[family(env)](config)
    # All others have one set of settings, but for the task's own limit and simulator.
    if family(env) == "driving":
        multiplier = config.multiplier if every_task else _driving_multiplier(config)
        return replace(
            config, cost_limit=DRIVING_COST_LIMIT, multiplier=multiplier, metadrive=METADRIVE
        )
    return config


def off_policy_preset(algo: str, env: str) -> OffPolicyConfig:
    """The preset of an off-policy algorithm. Raise InvalidInput if ``algo`` is on-policy."""
    config = preset(algo, env)
    if not isinstance(config, OffPolicyConfig):
        raise InvalidInput(f"algo is {algo}; it must be an off-policy algorithm")
    return config
