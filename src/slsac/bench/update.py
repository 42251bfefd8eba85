"""The update alone: against its matrix products, as it grows, and for several seeds at once."""

from __future__ import annotations

import contextlib
import itertools
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from slsac.algorithms.off_policy import agent as off_policy
from slsac.algorithms.off_policy import reward_critic
from slsac.algorithms.optimisers import build_optimiser, descend
from slsac.bench.timing import Record, in_turns, ratio
from slsac.config import OffPolicyConfig
from slsac.config.overrides import with_overrides
from slsac.config.presets import off_policy_preset
from slsac.envs import make_env
from slsac.training.replay import Replay
from slsac.types import Batch, EnvSpec

Product = tuple[int, int, int, int, float]
"""(stack, rows, inner, columns, times in one update)."""


def matrix_products(config: OffPolicyConfig, spec: EnvSpec) -> list[Product]:
    """The products of one update on average.

    A layer costs one product forwards, and two backwards: for its weights and for its input. The
    first layer's input needs no gradient, except in the policy's update, where the action does.
    """
    spec = off_policy.spec_seen(spec, config.closeness_rates)
    batch, inputs = config.batch_size, spec.observation_size + spec.action_size
    often = 1.0 / config.policy_delay
    products: list[Product] = []

    def network(
        stack: int, sizes: tuple[int, ...], forward: float, weights: float, data: float,
        first_data: float,
    ) -> None:  # fmt: skip
        for layer, (rows, columns) in enumerate(itertools.pairwise(sizes)):
            products.append((stack, batch, rows, columns, forward))
            products.append((stack, rows, batch, columns, weights))
            products.append((stack, batch, columns, rows, data if layer else first_data))

    reward, cost, policy = config.reward_critic, config.cost_critic, config.policy
    # Targets and predictions always; once more through the critics for the policy.
    network(2 * reward.pairs, (inputs, *reward.hidden, 1), 2 + often, 1.0, 1 + often, often)
    members = cost.members
    network(members, (inputs, *cost.hidden), 2 + often, 1.0, 1 + often, often)
    if cost.kind == "quantile":
        width = cost.hidden[-1]
        products.append((members, batch, width, cost.quantiles, 2 + often + 2 * (1 + often)))
        products.append((members, cost.quantiles, cost.embedding, width, 2 + often + 1.0))
    outputs = 2 * spec.action_size if policy.head == "squashed-gaussian" else spec.action_size
    network(
        1, (spec.observation_size, *policy.hidden, outputs), 1 + often, often, often, 0.0
    )  # fmt: skip
    return [product for product in products if product[-1] > 0]


def floor_call(products: Sequence[Product]) -> Callable[[], Any]:
    """One jitted call with the products of two updates and nothing else."""
    rng = np.random.default_rng(0)
    pairs = []
    for stack, rows, inner, columns, times in products:
        for _ in range(round(2 * times)):
            # Operands of their own and whole results: nothing can be merged or left out.
            left = rng.normal(size=(stack, rows, inner)).astype(np.float32)
            right = rng.normal(size=(stack, inner, columns)).astype(np.float32)
            pairs.append((jnp.asarray(left), jnp.asarray(right)))
    run = jax.jit(lambda operands: [left @ right for left, right in operands])
    return lambda: jax.block_until_ready(run(pairs))


def random_batch(spec: EnvSpec, size: int) -> Batch:
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> Any:
        return rng.normal(size=shape).astype(np.float32)

    observation, next_observation = normal(2, size, spec.observation_size)
    action = np.tanh(normal(size, spec.action_size))
    terminated: Any = np.zeros(size, np.float32)
    return Batch(
        observation, action, normal(size), np.abs(normal(size)), next_observation, terminated
    )


def update_call(config: OffPolicyConfig, spec: EnvSpec) -> Callable[[], Any]:
    """Updates of ``config`` on made-up data: as many as it takes to move the policy once."""
    agent = off_policy.build(config, spec)
    update = jax.jit(off_policy.PackedUpdate(agent), static_argnums=3, donate_argnums=0)
    state = [jax.jit(agent.init)(jax.random.PRNGKey(0))]
    batch = random_batch(spec, config.batch_size)

    def call() -> None:
        for number in range(1, config.policy_delay + 1):
            with_policy = number == config.policy_delay
            state[0], values, _ = update(state[0], batch, np.float32(0.5), with_policy)
            np.asarray(values)

    return call


def critics_call(config: OffPolicyConfig, spec: EnvSpec) -> Callable[[], Any]:
    """The reward critics' part of an update alone: targets, gradient and optimiser."""
    critics = reward_critic.build(config.reward_critic, spec)
    optimiser = build_optimiser(
        config.reward_critic.optimiser, jax.random.PRNGKey(1), stacked=True
    )  # fmt: skip
    batch = random_batch(spec, config.batch_size)

    def update(params: Any, state: Any) -> Any:
        target = critics.aggregate(critics.values(params, batch.next_observation, batch.action))
        gradient = jax.grad(critics.loss, has_aux=True)(params, batch, target)[0]
        return descend(optimiser, gradient, state, params)

    step = jax.jit(update, donate_argnums=(0, 1))
    params = critics.init(jax.random.PRNGKey(0))
    held = [(params, jax.jit(optimiser.init)(params))]

    def call() -> None:
        held[0] = step(*held[0])
        jax.block_until_ready(held[0])

    return call


def growth(rounds: int) -> list[Record]:
    """How SL-SAC's update grows with its ensemble, quantiles and task, and sampling with replay."""
    config = off_policy_preset("sl-sac", "SafetyAntVelocity-v1")
    ant = EnvSpec(27, 8, 1000, (-1.0,) * 8, (1.0,) * 8)
    configs = {
        "reward critics alone, M": {
            pairs: with_overrides(config, {"reward_critic.pairs": pairs}) for pairs in (1, 3, 5, 10)
        },
        "update, M": {
            pairs: with_overrides(config, {"reward_critic.pairs": pairs}) for pairs in (1, 3, 5, 10)
        },
        "update, quantiles": {
            count: with_overrides(config, {"cost_critic.quantiles": count}) for count in (8, 32, 64)
        },
        "update, observation size": dict.fromkeys((11, 60, 376), config),
    }
    records = []
    with tempfile.TemporaryDirectory() as folder:
        for what, cells in configs.items():
            make = critics_call if what.startswith("reward") else update_call
            updates = 1 if what.startswith("reward") else config.policy_delay
            calls = {
                str(size): make(
                    cell, ant._replace(observation_size=size) if "observation" in what else ant
                )
                for size, cell in cells.items()
            }
            taken = in_turns(calls, rounds, repeats=7)
            records += [
                {"what": what, "size": size, "ms": 1e3 * median(times) / updates}
                for size, times in taken.items()
            ]
        replays = {str(n): filled_replay(Path(folder) / str(n), ant, n) for n in (10**4, 10**6)}
        calls = {
            n: lambda r=r: [r.sample(config.batch_size) for _ in range(20)]  # type: ignore[misc]
            for n, r in replays.items()
        }
        records += [
            {"what": "minibatch, replay size", "size": n, "ms": 1e3 * median(times) / 20}
            for n, times in in_turns(calls, rounds, repeats=7).items()
        ]
    return records


def filled_replay(folder: Path, spec: EnvSpec, size: int) -> Replay:
    replay = Replay(folder, spec, size, reserve=spec.horizon, seed=0)
    observation = np.zeros(spec.observation_size, np.float32)
    action = np.zeros(spec.action_size, np.float32)
    replay.begin_episode(observation)
    for _ in range(size):
        replay.add(action, 0.0, 0.0, False, observation)
    return replay


def several_seeds(algo: str, env: str, counts: Sequence[int], rounds: int) -> list[Record]:
    """An update vmapped over seeds, for each seed, against an update of one."""
    with contextlib.closing(make_env(env)) as opened:
        spec = opened.spec
    config = off_policy_preset(algo, env)
    agent = off_policy.build(config, spec)
    batch = random_batch(spec, config.batch_size)

    def call_for(count: int) -> Callable[[], Any]:
        keys = jax.random.split(jax.random.PRNGKey(0), count)
        held = [jax.jit(jax.vmap(agent.init))(keys)]
        batches = jax.tree.map(lambda field: np.stack([field] * count), batch)
        multipliers = np.full(count, 0.5, np.float32)
        update = jax.jit(
            lambda state, with_policy: jax.vmap(
                lambda s, b, m: agent.update(s, b, m, with_policy)[0]
            )(state, batches, multipliers),
            static_argnums=1,
            donate_argnums=0,
        )

        def call() -> None:
            for number in range(1, config.policy_delay + 1):
                held[0] = update(held[0], number == config.policy_delay)
            jax.block_until_ready(held[0])

        return call

    taken = in_turns({str(n): call_for(n) for n in (1, *counts)}, rounds, repeats=5)
    return [
        {
            "seeds": n,
            "update_ms_per_seed": 1e3 * median(taken[str(n)]) / n / config.policy_delay,
            "speedup": ratio([n * t for t in taken["1"]], taken[str(n)]),
        }
        for n in (1, *counts)
    ]
