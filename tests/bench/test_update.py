"""The matrix products of an update."""

from __future__ import annotations

from slsac.bench.update import matrix_products
from slsac.config.overrides import with_overrides
from slsac.config.presets import off_policy_preset
from slsac.envs import make_env


def test_products_of_an_update_by_hand() -> None:
    env = make_env("ProbeCounts-v0")
    observation, action = env.spec.observation_size, env.spec.action_size
    config = with_overrides(
        off_policy_preset("sac-lag", "ProbeCounts-v0"),
        {
            "batch_size": 10,
            "policy_delay": 1,
            "reward_critic.hidden": (4,),
            "cost_critic.hidden": (4,),
            "policy.hidden": (4,),
        },
    )

    multiplications = sum(
        stack * rows * inner * columns * times
        for stack, rows, inner, columns, times in matrix_products(config, env.spec)
    )

    # Layers (inputs x 4) and (4 x 1) of three critics, 10 rows: three times forwards (target,
    # prediction, policy's update), weights once; inputs' gradient twice, the first layer's once.
    first, last = 10 * (observation + action) * 4, 10 * 4 * 1
    critic = first * (3 + 1 + 1) + last * (3 + 1 + 2)
    # The count leaves out the cost critic's one output column.
    cost_critic = first * (3 + 1 + 1)
    # The policy: forwards for the targets and for itself, and one gradient.
    policy = 10 * observation * 4 * (2 + 1) + 10 * 4 * 2 * action * (2 + 1 + 1)
    assert multiplications == 2 * critic + cost_critic + policy


def test_products_count_the_inputs_for_what_is_near() -> None:
    spec = make_env("ProbeCounts-v0").spec
    config = off_policy_preset("sl-sac-2", "ProbeCounts-v0")
    near = matrix_products(config, spec._replace(closeness=(0,)))
    # Three rates, and so three inputs more.
    wider = spec._replace(observation_size=spec.observation_size + 3)
    assert near == matrix_products(config, wider) != matrix_products(config, spec)
