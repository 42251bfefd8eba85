"""The Lagrange multiplier: a signal held against the cost limit, and a rule that reacts to it.

It takes episode costs as an argument and never reads a log. It lives on the host: one scalar
per environment step is cheaper there than a jitted call.

==============  ===================================================  ======================
signal          quantity                                             held against
==============  ===================================================  ======================
empirical-cvar  CVaR of the window's episode costs                   cost_limit
mean            mean of the window's episode costs                   cost_limit
recent-cvar     CVaR of the episodes that ended within the last      cost_limit
                ``recent_horizons`` horizons; the running one
                counts as soon as it raises the figure
critic          mean charge of the cost critic for replayed actions  discounted_cost_limit
==============  ===================================================  ======================

With violation = signal - (1 - reserve) limit, once per environment step (on-policy: per epoch):

=========  =====================================================================================
rule       update; the result is at most ``maximum`` and, but for relative, at least 0
=========  =====================================================================================
ascent     lambda <- lambda + lr * violation
balanced   the same with the violation kept within +-limit: it falls as fast as it can rise
adam       Adam on -lambda * violation: a step is about +-lr whatever the violation
pid        lambda = Kp P + I + Kd D, where I <- I + Ki * violation, kept within [0, maximum];
           P is the violation smoothed; D is how far the smoothed signal rose over the last
           ``derivative_delay`` updates, at least 0
softplus   lambda = softplus(rho) + damping * violation, with Adam on -softplus(rho) * violation
relative   lambda <- lambda + Ki e, kept within [minimum, maximum] ([0, maximum] where the limit is
           0), where e is the violation in units of the limit, kept within +-1: no cost can carry it
           away, and it falls as fast as it rises. So rare large costs count for little: where 300
           are paid in one episode of ten and nothing in the others, lambda still falls. Episodes
           below 500 steps answer sooner, and lambda moves faster in proportion
=========  =====================================================================================
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from slsac.config import Config, MultiplierConfig
from slsac.stats.bounds import discounted_cost_limit
from slsac.stats.tail import empirical_cvar

LONG_EPISODE = 500
"""Steps of an episode below which the relative rule moves faster, since its signal is fresher.
Above, it waits for the agent, which learns no slower there."""


class MultiplierState(NamedTuple):
    """The multiplier's value and what its rule remembers, as plain floats."""

    value: float
    memory: tuple[float, ...] = ()


def restored(facts: Sequence[Any]) -> MultiplierState:
    """The state as a checkpoint's JSON holds it."""
    value, memory = facts
    return MultiplierState(value, tuple(memory))


class Update(Protocol):
    def __call__(
        self, state: MultiplierState, signal: float, margin: float = 0.0
    ) -> MultiplierState:
        """One step of a rule; the limit is enforced as if it were lower by ``margin``."""
        ...


class Signal(Protocol):
    def __call__(
        self,
        episode_costs: Sequence[float],
        critic_signal: float | None = None,
        running_cost: float = 0.0,
    ) -> float | None:
        """What is held against the limit; None while there is nothing to go by.

        Args:
            episode_costs: of the episodes that count.
            critic_signal: what the cost critic charged in the last update.
            running_cost: what the present episode has cost so far.
        """
        ...


class Multiplier(NamedTuple):
    init: Callable[[], MultiplierState]
    update: Update
    """(state, signal) -> state, once per environment step, or on-policy once per epoch."""
    signal: Signal
    limit: float
    """What the signal is held against, in its unit: the limit less the reserve."""


def of_run(config: Config, horizon: int) -> Multiplier:
    """The multiplier of a run whose episodes have at most ``horizon`` steps."""
    return build(
        config.multiplier,
        tail_fraction=config.tail_fraction,
        cost_limit=config.cost_limit,
        discounted_cost_limit=discounted_cost_limit(
            config.cost_limit, config.cost_critic.discount, horizon
        ),
        horizon=horizon,
    )


def build(
    config: MultiplierConfig,
    *,
    tail_fraction: float,
    cost_limit: float,
    discounted_cost_limit: float,
    horizon: int,
) -> Multiplier:
    """Composes the configured signal and rule."""

    def cvar(
        episode_costs: Sequence[float],
        critic_signal: float | None = None,
        running_cost: float = 0.0,
    ) -> float | None:
        level = 1.0 if config.signal == "mean" else tail_fraction
        return empirical_cvar(episode_costs, level) if episode_costs else None

    def recent_cvar(
        episode_costs: Sequence[float],
        critic_signal: float | None = None,
        running_cost: float = 0.0,
    ) -> float | None:
        # What the running episode has cost so far is the least that it will cost.
        with_running = empirical_cvar([*episode_costs, running_cost], tail_fraction)
        if episode_costs:
            return max(empirical_cvar(episode_costs, tail_fraction), with_running)
        return with_running if running_cost > cost_limit else None

    def of_critic(
        episode_costs: Sequence[float],
        critic_signal: float | None = None,
        running_cost: float = 0.0,
    ) -> float | None:
        return critic_signal

    signals: dict[str, Signal] = {
        "empirical-cvar": cvar, "mean": cvar, "recent-cvar": recent_cvar, "critic": of_critic,
    }  # fmt: skip
    limit = discounted_cost_limit if config.signal == "critic" else cost_limit
    limit *= 1.0 - config.reserve
    of_horizon = functools.partial(relative, horizon=horizon)
    rule = of_horizon if config.rule == "relative" else _RULES[config.rule]
    init, update = rule(config, limit)
    return Multiplier(init, update, signals[config.signal], limit)


Rule = tuple[Callable[[], MultiplierState], Update]


def projected_ascent(config: MultiplierConfig, limit: float) -> Rule:
    def update(state: MultiplierState, signal: float, margin: float = 0.0) -> MultiplierState:
        value = state.value + config.learning_rate * (signal - (limit - margin))
        return MultiplierState(_bounded(value, config))

    return lambda: MultiplierState(config.initial), update


def balanced_ascent(config: MultiplierConfig, limit: float) -> Rule:
    """Ascent that a large violation cannot carry away.

    A cost can exceed the limit by many times the limit, but fall below it by the limit at most, so
    plain ascent rises in a few episodes what it then takes hundreds to lose. The limit must be
    above 0.
    """

    def update(state: MultiplierState, signal: float, margin: float = 0.0) -> MultiplierState:
        enforced = limit - margin
        violation = min(max(signal - enforced, -enforced), enforced)
        return MultiplierState(_bounded(state.value + config.learning_rate * violation, config))

    return lambda: MultiplierState(config.initial), update


def adam_ascent(config: MultiplierConfig, limit: float) -> Rule:
    """Adam with its usual constants and bias correction, on -lambda * violation."""

    def update(state: MultiplierState, signal: float, margin: float = 0.0) -> MultiplierState:
        direction, memory = _adam(limit - margin - signal, state.memory)
        value = _bounded(state.value - config.learning_rate * direction, config)
        return MultiplierState(value, memory)

    return lambda: MultiplierState(config.initial, (0.0, 0.0, 0.0)), update


def pid(config: MultiplierConfig, limit: float) -> Rule:
    """Remembers the integral, the smoothed violation, and the smoothed signal's recent past."""
    keep, delay = config.smoothing, config.derivative_delay

    def init() -> MultiplierState:
        return MultiplierState(config.initial, (config.initial, 0.0, 0.0))

    def update(state: MultiplierState, signal: float, margin: float = 0.0) -> MultiplierState:
        integral, violation, *past = state.memory
        excess = signal - (limit - margin)
        # Kept within its bounds, so that a long safe or unsafe time leaves nothing to unwind.
        integral = _bounded(integral + config.integral_gain * excess, config)
        violation = keep * violation + (1.0 - keep) * excess
        smoothed = keep * past[-1] + (1.0 - keep) * signal
        rise = max(0.0, smoothed - past[0])
        value = config.proportional_gain * violation + integral + config.derivative_gain * rise
        memory = (integral, violation, *[*past, smoothed][-delay:])
        return MultiplierState(_bounded(value, config), memory)

    return init, update


def softplus(config: MultiplierConfig, limit: float) -> Rule:
    """WCSAC's rule; the damping answers at once where rho needs many steps."""
    # Where softplus(rho) is the largest multiplier.
    ceiling = min(500.0, config.maximum + math.log(-math.expm1(-config.maximum)))

    def init() -> MultiplierState:
        rho = math.log(math.expm1(config.initial))
        return MultiplierState(config.initial, (rho, 0.0, 0.0, 0.0))

    def update(state: MultiplierState, signal: float, margin: float = 0.0) -> MultiplierState:
        rho, *moments = state.memory
        slope = 1.0 / (1.0 + math.exp(-rho))
        enforced = limit - margin
        direction, memory = _adam(slope * (enforced - signal), moments)
        # Above the ceiling a long unsafe time would leave something to unwind; below -500 the
        # exponential would overflow.
        rho = min(max(rho - config.learning_rate * direction, -500.0), ceiling)
        soft = math.log1p(math.exp(-abs(rho))) + max(rho, 0.0)
        value = soft + config.damping * (signal - enforced)
        return MultiplierState(_bounded(value, config), (rho, *memory))

    return init, update


def relative(config: MultiplierConfig, limit: float, horizon: int) -> Rule:
    """An integral of the relative violation, within bounds."""
    gain = config.integral_gain * max(1.0, LONG_EPISODE / horizon)
    # Nothing is below a limit of 0, so no state is to be discounted for it.
    minimum = config.minimum if limit > 0.0 else max(0.0, config.minimum)

    def update(state: MultiplierState, signal: float, margin: float = 0.0) -> MultiplierState:
        value = state.value + gain * relative_violation(signal, limit - margin)
        return MultiplierState(min(max(value, minimum), config.maximum))

    return lambda: MultiplierState(config.initial), update


def relative_violation(signal: float, limit: float) -> float:
    """How far the signal is beyond the limit in units of the limit, within +-1."""
    if limit > 0.0:
        return min(max((signal - limit) / limit, -1.0), 1.0)
    return 1.0 if signal > 0.0 else -1.0


def _bounded(value: float, config: MultiplierConfig) -> float:
    return min(max(0.0, value), config.maximum)


def _adam(gradient: float, memory: Sequence[float]) -> tuple[float, tuple[float, ...]]:
    """Adam's direction for one scalar, and its moments and count for the next time."""
    beta1, beta2, epsilon = 0.9, 0.999, 1e-8
    first, second, count = memory
    first = beta1 * first + (1.0 - beta1) * gradient
    second = beta2 * second + (1.0 - beta2) * gradient**2
    count += 1.0
    spread = math.sqrt(second / (1.0 - beta2**count)) + epsilon
    return first / (1.0 - beta1**count) / spread, (first, second, count)


_RULES: dict[str, Callable[[MultiplierConfig, float], Rule]] = {
    "ascent": projected_ascent,
    "balanced": balanced_ascent,
    "adam": adam_ascent,
    "pid": pid,
    "softplus": softplus,
}
