"""Every named algorithm as a configuration; the only home of numbers.

An algorithm is a `replace` of another one, and a task family a `replace` of the settings of the
velocity tasks. The sources are the paper's hyperparameter table and, for what it takes over from
there, OmniSafe's published defaults.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from slsac.config import (
    Config,
    CostCriticConfig,
    MultiplierConfig,
    OptimiserConfig,
    PolicyConfig,
    RewardCriticConfig,
)
from slsac.envs import family
from slsac.errors import unknown_name

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

SL_SAC = Config(
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
    policy=PolicyConfig(
        head="squashed-gaussian",
        hidden=(256, 256),
        optimiser=ADAM,
        temperature=0.2,
        automatic_temperature=False,
        target_network=True,
        normalise_by_multiplier=True,
        log_std_min=-20.0,
        log_std_max=2.0,
    ),
    reward_critic=RewardCriticConfig(
        pairs=3,
        aggregation="mean-min",
        hidden=(256, 256),
        discount=0.99,
        optimiser=ASGLD,
    ),
    cost_critic=CostCriticConfig(
        kind="quantile",
        merge="late",
        fractions="shared",
        stratified=True,
        quantiles=32,
        embedding=64,
        huber_threshold=1.0,
        cost_floor=0.0,
        hidden=(256, 256),
        discount=0.99,
        optimiser=ADAMW,
    ),
    multiplier=MultiplierConfig(
        signal="empirical-cvar",
        rule="ascent",
        learning_rate=1e-5,
        initial=1e-3,
        window=10,
    ),
)


def _navigation(config: Config) -> Config:
    """The navigation tasks' settings: slow actor, fast critics, next to no entropy."""
    actor = replace(config.policy.optimiser, learning_rate=5e-6)
    reward = replace(config.reward_critic.optimiser, learning_rate=1e-3)
    cost = replace(config.cost_critic.optimiser, learning_rate=1e-3)
    return replace(
        config,
        policy=replace(config.policy, optimiser=actor, temperature=1e-5),
        reward_critic=replace(config.reward_critic, optimiser=reward),
        cost_critic=replace(config.cost_critic, optimiser=cost),
        multiplier=replace(config.multiplier, learning_rate=5e-7, initial=0.0),
    )


FAMILIES: dict[str, Callable[[Config], Config]] = {
    "velocity": lambda config: config,
    "navigation": _navigation,
    "other": lambda config: config,
}


class Algorithm(NamedTuple):
    config: Config
    description: str


ALGORITHMS: dict[str, Algorithm] = {
    "sl-sac": Algorithm(
        SL_SAC, "aSGLD critic ensemble, IQN cost critic, multiplier on the empirical CVaR"
    ),
}


def preset(algo: str, env: str) -> Config:
    """The full configuration of a named algorithm on a task, before any override."""
    if algo not in ALGORITHMS:
        raise unknown_name("algo", algo, ALGORITHMS)
    config = replace(ALGORITHMS[algo].config, algo=algo, env=env)
    return FAMILIES[family(env)](config)
