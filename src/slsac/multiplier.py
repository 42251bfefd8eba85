"""The Lagrange multiplier: a signal held against the cost limit, and a rule that reacts to it.

It takes episode costs as an argument and never reads a log. It lives on the host: one scalar
per environment step is cheaper there than a jitted call.

======  ==========================================================================
rule    update, with violation = signal - limit
======  ==========================================================================
ascent  lambda <- max(0, lambda + lr * violation)
adam    Adam on -lambda * violation, then max(0, lambda); a step is about +-lr
======  ==========================================================================
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from slsac.config import MultiplierConfig
from slsac.risk import empirical_cvar


class MultiplierState(NamedTuple):
    """The multiplier's value and what its rule remembers, as plain floats."""

    value: float
    memory: tuple[float, ...] = ()


class Multiplier(NamedTuple):
    init: Callable[[], MultiplierState]
    update: Callable[[MultiplierState, float], MultiplierState]
    """(state, violation) -> state, once per environment step."""
    signal: Callable[[Sequence[float]], float | None]
    """Episode costs of the window -> the quantity held against the limit; None: no episode yet."""


def build(config: MultiplierConfig, tail_fraction: float) -> Multiplier:
    """Composes the configured signal and rule."""
    init, update = _RULES[config.rule](config)
    level = {"empirical-cvar": tail_fraction, "mean": 1.0}[config.signal]

    def signal(episode_costs: Sequence[float]) -> float | None:
        return empirical_cvar(episode_costs, level) if episode_costs else None

    return Multiplier(init, update, signal)


Rule = tuple[Callable[[], MultiplierState], Callable[[MultiplierState, float], MultiplierState]]


def projected_ascent(config: MultiplierConfig) -> Rule:
    def update(state: MultiplierState, violation: float) -> MultiplierState:
        return MultiplierState(max(0.0, state.value + config.learning_rate * violation))

    return lambda: MultiplierState(config.initial), update


def adam_ascent(config: MultiplierConfig) -> Rule:
    """Adam with its usual constants and bias correction, on -lambda * violation."""
    beta1, beta2, epsilon = 0.9, 0.999, 1e-8

    def update(state: MultiplierState, violation: float) -> MultiplierState:
        first, second, count = state.memory
        first = beta1 * first - (1.0 - beta1) * violation
        second = beta2 * second + (1.0 - beta2) * violation**2
        count += 1.0
        direction = (first / (1.0 - beta1**count)) / (
            math.sqrt(second / (1.0 - beta2**count)) + epsilon
        )
        value = max(0.0, state.value - config.learning_rate * direction)
        return MultiplierState(value, (first, second, count))

    return lambda: MultiplierState(config.initial, (0.0, 0.0, 0.0)), update


_RULES: dict[str, Callable[[MultiplierConfig], Rule]] = {
    "ascent": projected_ascent,
    "adam": adam_ascent,
}
