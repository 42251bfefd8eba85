"""Generalised advantage estimation, for rewards and costs alike."""

from __future__ import annotations

import jax


def advantages(
    reward: jax.Array,
    value: jax.Array,
    next_value: jax.Array,
    terminated: jax.Array,
    ended: jax.Array,
    *,
    discount: float,
    trace_decay: float,
) -> jax.Array:
    """A_t = d_t + gamma lambda A_{t+1}, with d_t = r_t + gamma V(s_{t+1}) - V(s_t).

    Args:
        reward: rewards (or costs), ``[time, env]`` as all other arrays.
        next_value: V of the observation that followed, the episode's last one included.
        terminated: 1 where the task ended, so that V(s_{t+1}) is 0.
        ended: 1 where the next row belongs to another episode, for whatever reason; a time limit
            or the end of the epoch cuts the sum but leaves V(s_{t+1}) in it.
    """
    error = reward + discount * (1.0 - terminated) * next_value - value
    decay = discount * trace_decay * (1.0 - ended)

    def backwards(
        later: jax.Array, row: tuple[jax.Array, jax.Array]
    ) -> tuple[jax.Array, jax.Array]:
        advantage = row[0] + row[1] * later
        return advantage, advantage

    return jax.lax.scan(backwards, error[0] * 0.0, (error, decay), reverse=True)[1]
