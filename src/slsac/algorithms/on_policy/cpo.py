"""CPO's update: the best step within a trust region that keeps the linearised constraint.

With g and b the gradients of the reward and cost surrogates, H the Fisher matrix, c the violation
and delta the largest KL divergence, the step x solves

    maximise  g.x   subject to   c + b.x <= 0   and   x.H.x / 2 <= delta.

It is a combination of H^-1 g and H^-1 b whose weights depend on four numbers only: c,
q = g.H^-1 g, r = g.H^-1 b and s = b.H^-1 b. A line search then shortens x until the true surrogates
and the true divergence agree.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from slsac.algorithms.on_policy import critics
from slsac.algorithms.on_policy import policy as gaussian
from slsac.algorithms.on_policy.critics import Constraint, Learn, LearnedState
from slsac.algorithms.on_policy.policy import Gaussian
from slsac.algorithms.on_policy.samples import Metrics, Samples, run_passes
from slsac.config import OnPolicyConfig, TrustRegionConfig

RECOVERY, RECOVERABLE, PARTLY_FEASIBLE, FEASIBLE, NO_COST_GRADIENT = range(5)
"""Nothing in the trust region is safe; some of it is, not the present policy; the present policy is
and some of it is not; all of it is; the policy has no influence on the cost."""

TINY = 1e-10
PARALLEL = 1e-6
"""Least share of q that A counts as; float32 knows the difference to about 1e-7."""


class Direction(NamedTuple):
    """x = reward_weight * H^-1 g + cost_weight * H^-1 b."""

    case: jax.Array
    reward_weight: jax.Array
    cost_weight: jax.Array
    multiplier: jax.Array
    """The constraint's dual variable nu: reward lost for a unit of cost avoided."""


def conjugate_gradient(
    product: Callable[[jax.Array], jax.Array], target: jax.Array, steps: int
) -> jax.Array:
    """x with H x = target, H positive definite and given by its products with vectors."""

    def step(_: int, carry: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        solution, residual, direction, size = carry
        image = product(direction)
        # Once the residual is gone there is no direction, and 0/0 must give a step of 0.
        length = size / jnp.maximum(direction @ image, TINY * TINY)
        solution, residual = solution + length * direction, residual - length * image
        left = residual @ residual
        direction = residual + left / jnp.maximum(size, TINY * TINY) * direction
        return solution, residual, direction, left

    start = (jnp.zeros_like(target), target, target, target @ target)
    return jax.lax.fori_loop(0, steps, step, start)[0]


def fisher_product(
    policy: Gaussian, observation: jax.Array, kl_over_actions: str
) -> Callable[[jax.Array], jax.Array]:
    """Products of the mean Fisher matrix over states with flat vectors of parameters.

    The matrix is J' M J, J the Jacobian of (mean, log-std) and M the Hessian of the divergence in
    these: 1 / sigma^2 for a mean and 2 for a log-std.
    """
    flat, unravel = ravel_pytree(policy)

    def moments(parameters: jax.Array) -> tuple[jax.Array, jax.Array]:
        gaussian_policy = unravel(parameters)
        mean = gaussian.mean_action(gaussian_policy, observation)
        return mean, gaussian_policy.log_std

    _, transposed = jax.vjp(moments, flat)
    precision = jnp.exp(-2.0 * policy.log_std)
    share = 1.0 if kl_over_actions == "sum" else 1.0 / policy.log_std.size

    def product(vector: jax.Array) -> jax.Array:
        _, (mean, log_std) = jax.jvp(moments, (flat,), (vector,))
        states = mean.shape[0]
        return share * transposed((mean * precision / states, 2.0 * log_std))[0]

    return product


def solve(q: jax.Array, r: jax.Array, s: jax.Array, c: jax.Array, maximum_kl: float) -> Direction:
    """The five cases in closed form.

    The dual is the minimum over lambda, nu >= 0 of
    (q - 2 nu r + nu^2 s) / (2 lambda) - nu c + lambda delta. For a given lambda the best nu is
    (lambda c + r) / s or 0. Where it is positive the dual is A / (2 lambda) + lambda B / 2 - rc/s
    with A = q - r^2 / s and B = 2 delta - c^2 / s; where it is 0, q / (2 lambda) + lambda delta.
    """
    no_gradient = s <= TINY
    safe_s = jnp.where(no_gradient, 1.0, s)
    # Where g and b are parallel A is 0, and by lambda = 0 both weights would be infinite.
    a = jnp.maximum(q - r**2 / safe_s, PARALLEL * q)
    b = 2.0 * maximum_kl - c**2 / safe_s
    case = jnp.where(
        no_gradient,
        NO_COST_GRADIENT,
        jnp.where(
            c < 0,
            jnp.where(b < 0, FEASIBLE, PARTLY_FEASIBLE),
            jnp.where(b < 0, RECOVERY, RECOVERABLE),
        ),
    )

    unconstrained = jnp.sqrt(jnp.maximum(q, TINY * TINY) / (2.0 * maximum_kl))
    # nu > 0 where lambda c + r > 0: below the edge for c < 0, above it for c > 0.
    edge = -r / jnp.where(c == 0, 1.0, c)
    low = jnp.where(c > 0, jnp.maximum(edge, 0.0), 0.0)
    high = jnp.where(c < 0, edge, jnp.where((c > 0) | (r > 0), jnp.inf, -jnp.inf))
    with_nu = jnp.clip(jnp.sqrt(a / jnp.maximum(b, TINY)), low, jnp.maximum(high, low))
    with_nu = jnp.maximum(with_nu, TINY)
    dual_with = jnp.where(
        high > low, a / (2.0 * with_nu) + with_nu * b / 2.0 - r * c / safe_s, jnp.inf
    )
    low = jnp.where(c < 0, jnp.maximum(edge, 0.0), 0.0)
    high = jnp.where(c > 0, edge, jnp.where((c < 0) | (r <= 0), jnp.inf, -jnp.inf))
    without_nu = jnp.maximum(jnp.clip(unconstrained, low, jnp.maximum(high, low)), TINY)
    dual_without = jnp.where(high > low, q / (2.0 * without_nu) + without_nu * maximum_kl, jnp.inf)
    lam = jnp.where(dual_with < dual_without, with_nu, without_nu)
    bound = (case == RECOVERABLE) | (case == PARTLY_FEASIBLE)
    lam = jnp.where(bound, lam, unconstrained)
    nu = jnp.where(bound, jnp.maximum(0.0, (lam * c + r) / safe_s), 0.0)

    recovery = case == RECOVERY
    return Direction(
        case=case,
        reward_weight=jnp.where(recovery, 0.0, 1.0 / lam),
        cost_weight=jnp.where(recovery, -jnp.sqrt(2.0 * maximum_kl / safe_s), -nu / lam),
        multiplier=nu,
    )


class ShortenedStep(NamedTuple):
    """What a shortened step does, measured on the epoch's steps."""

    reward_gain: jax.Array
    cost_change: jax.Array
    kl: jax.Array


def acceptable(
    trial: ShortenedStep, case: jax.Array, violation: jax.Array, maximum_kl: float
) -> jax.Array:
    """Within the trust region, no dearer than the slack allows, and of use.

    Reward may fall while the policy is not safe; cost may not rise then.
    """
    finite = jnp.isfinite(trial.reward_gain) & jnp.isfinite(trial.cost_change)
    useful = (trial.reward_gain >= 0) | (case <= RECOVERABLE)
    cheap = trial.cost_change <= jnp.maximum(-violation, 0.0)
    return finite & useful & cheap & (trial.kl <= maximum_kl)


def line_search(
    attempt: Callable[[jax.Array], ShortenedStep],
    case: jax.Array,
    violation: jax.Array,
    config: TrustRegionConfig,
) -> jax.Array:
    """The longest acceptable share of the step, 0 if there is none.

    Args:
        attempt: share of the step -> what it does.
    """

    def rejected(carry: tuple[jax.Array, ...]) -> jax.Array:
        tries, _, accepted = carry
        return (tries < config.line_search_steps) & ~accepted

    def shorten(carry: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        tries, _, _ = carry
        share = jnp.float32(config.line_search_decay) ** tries
        trial = attempt(share)
        return tries + 1, share, acceptable(trial, case, violation, config.maximum_kl)

    start: tuple[jax.Array, ...] = (jnp.int32(0), jnp.float32(0.0), jnp.bool_(False))
    _, share, accepted = jax.lax.while_loop(rejected, shorten, start)
    return jnp.where(accepted, share, 0.0)


def update_policy(
    policy: Gaussian, samples: Samples, violation: jax.Array, config: TrustRegionConfig
) -> tuple[Gaussian, Metrics]:
    """One constrained step of the policy.

    Args:
        violation: c, cost above the limit; negative is slack.
    """
    start, unravel = ravel_pytree(policy)
    over_actions = {"sum": jnp.sum, "mean": jnp.mean}[config.kl_over_actions]

    def surrogate(parameters: jax.Array, advantage: jax.Array) -> jax.Array:
        moved = unravel(parameters)
        mean = gaussian.mean_action(moved, samples.observation)
        log_ratio = gaussian.log_prob(samples.action, mean, moved.log_std) - samples.log_prob
        return jnp.mean(jnp.exp(log_ratio) * advantage)

    def attempt_from(step: jax.Array) -> Callable[[jax.Array], ShortenedStep]:
        def attempt(share: jax.Array) -> ShortenedStep:
            moved = unravel(start + share * step)
            mean = gaussian.mean_action(moved, samples.observation)
            ratio = jnp.exp(
                gaussian.log_prob(samples.action, mean, moved.log_std) - samples.log_prob
            )
            divergence = gaussian.divergence(samples.mean, policy.log_std, mean, moved.log_std)
            return ShortenedStep(
                jnp.mean((ratio - 1.0) * samples.reward_advantage),
                jnp.mean((ratio - 1.0) * samples.cost_advantage),
                jnp.mean(over_actions(divergence, axis=-1)),
            )

        return attempt

    fisher = fisher_product(policy, samples.observation, config.kl_over_actions)

    def product(vector: jax.Array) -> jax.Array:
        return fisher(vector) + config.damping * vector

    def solved(target: jax.Array) -> jax.Array:
        return conjugate_gradient(product, target, config.conjugate_gradient_steps)

    reward_gradient = jax.grad(surrogate)(start, samples.reward_advantage)
    cost_gradient = jax.grad(surrogate)(start, samples.cost_advantage)
    reward_solved, cost_solved = solved(reward_gradient), solved(cost_gradient)
    direction = solve(
        q=reward_gradient @ reward_solved,
        r=reward_gradient @ cost_solved,
        s=cost_gradient @ cost_solved,
        c=violation,
        maximum_kl=config.maximum_kl,
    )
    step = direction.reward_weight * reward_solved + direction.cost_weight * cost_solved
    # Of a direction that is not finite no share is taken.
    usable = jnp.all(jnp.isfinite(step))
    step = jnp.where(usable, step, 0.0)
    attempt = attempt_from(step)
    share = jnp.where(usable, line_search(attempt, direction.case, violation, config), 0.0)
    moved: Any = unravel(start + share * step)
    trial = attempt(share)
    return moved, {
        "case": direction.case.astype(jnp.float32),
        "step_share": share,
        "constraint_multiplier": jnp.where(usable, direction.multiplier, 0.0),
        "policy_loss": -trial.reward_gain,
        "cost_surrogate_change": trial.cost_change,
        "kl": trial.kl,
    }


def build(config: OnPolicyConfig) -> Learn:
    """One step of the policy on the whole epoch, then the critics by minibatches."""
    update_critics = critics.build(config)

    def learn(
        learned: LearnedState,
        samples: Samples,
        constraint: Constraint,
        rate_scale: jax.Array,
        key: jax.Array,
    ) -> tuple[LearnedState, Metrics]:
        policy, policy_metrics = update_policy(
            learned.policy, samples, constraint.violation, config.trust_region
        )
        learned, metrics = run_passes(
            update_critics,
            learned,
            samples,
            passes=config.passes,
            batch_size=config.batch_size,
            key=key,
            drift=lambda now: jnp.float32(0.0),
            maximum_drift=config.clipped.maximum_kl,
        )
        return learned._replace(policy=policy), metrics | policy_metrics

    return learn
