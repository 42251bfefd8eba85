"""How much SafetyPointCircle1-v0 can pay at most: the best drive of a point that may push anywhere.

The point weighs 5.19 g, pushes with at most .015 N along its heading and is dragged by .01 N s/m,
so its speed ends at 1.5 m/s and no episode of 500 steps can return more than 75. Here it may push
in any direction at any moment, which the real one cannot. Each drive starts at rest where an
episode may start, and is improved by gradient ascent through the dynamics. So it earns more than a
policy can, up to how well the ascent converges.

    python benchmarks/circle_optimum.py
"""

from __future__ import annotations

import argparse
from typing import Any

import jax
import jax.numpy as jnp
import optax

MASS, PUSH, DRAG = 0.00518879, 0.015, 0.01
"""Of the task's own model: `body_mass`, force range times gear, `dof_damping`."""
STEPS, SUBSTEPS, TIME_STEP = 500, 2, 0.02
RADIUS, WALL, LIMIT = 1.5, 1.125, 25
START = 0.8
"""Largest |x| and |y| that an episode begins at."""


def drive(start: jax.Array, angles: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Rewards and x of a drive that pushes as hard as it can towards ``angles``."""
    dt = TIME_STEP / SUBSTEPS
    kept = jnp.exp(-DRAG / MASS * dt)

    def step(state: Any, angle: jax.Array) -> Any:
        position, velocity = state
        terminal = PUSH / DRAG * jnp.stack([jnp.cos(angle), jnp.sin(angle)])
        for _ in range(SUBSTEPS):
            velocity = terminal + (velocity - terminal) * kept
            position = position + dt * velocity
        (x, y), (u, v) = position, velocity
        radius = jnp.sqrt(x**2 + y**2 + 1e-12)
        reward = 0.1 * (v * x - u * y) / radius / (1.0 + jnp.abs(radius - RADIUS))
        return (position, velocity), (reward, x)

    _, (rewards, x) = jax.lax.scan(step, (start, jnp.zeros(2)), angles)
    return rewards, x


def best_drives(walls: bool, drives: int, updates: int) -> tuple[jax.Array, jax.Array]:
    """Returns and costs of drives from random starts, each improved ``updates`` times."""
    start_key, phase_key, turn_key = jax.random.split(jax.random.PRNGKey(0), 3)
    starts = jax.random.uniform(start_key, (drives, 2), minval=-START, maxval=START)
    phase = jax.random.uniform(phase_key, (drives, 1), maxval=2 * jnp.pi)
    turn = jax.random.uniform(turn_key, (drives, 1), minval=0.6, maxval=1.4)
    angles = phase + turn * TIME_STEP * jnp.arange(STEPS)
    optimiser = optax.adam(optax.cosine_decay_schedule(0.03, updates))

    def loss(angles: jax.Array, price: jax.Array) -> jax.Array:
        rewards, x = jax.vmap(drive)(starts, angles)
        beyond = jnp.maximum(jnp.abs(x) - WALL, 0.0)
        return jnp.sum(price * beyond) - jnp.sum(rewards)

    @jax.jit
    def improve(carry: Any, share: jax.Array) -> Any:
        angles, state = carry
        price = 5.0 * share if walls else jnp.zeros(())
        change, state = optimiser.update(jax.grad(loss)(angles, price), state)
        return (optax.apply_updates(angles, change), state), None

    carry = (angles, optimiser.init(angles))
    (angles, _), _ = jax.lax.scan(improve, carry, jnp.linspace(0.0, 1.0, updates))
    rewards, x = jax.vmap(drive)(starts, angles)
    return rewards.sum(axis=1), (jnp.abs(x) > WALL).sum(axis=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--drives", type=int, default=64)
    parser.add_argument("--updates", type=int, default=3_000)
    options = parser.parse_args()
    for walls in (False, True):
        returns, costs = best_drives(walls, options.drives, options.updates)
        if walls:
            returns, costs = returns[costs <= LIMIT], costs[costs <= LIMIT]
        subject, median = "within the limit" if walls else "no limit", jnp.median(returns)
        print(
            f"{subject}: best {returns.max():.1f}, median {median:.1f} of {len(returns)} drives; "
            f"median cost {jnp.median(costs):.0f}"
        )


if __name__ == "__main__":
    main()
