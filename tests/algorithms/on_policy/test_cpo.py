"""CPO's parts: the solver against dense algebra, the five cases against scipy, the line search."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.flatten_util import ravel_pytree
from scipy.optimize import minimize

from slsac.algorithms.on_policy import cpo
from slsac.algorithms.on_policy import policy as gaussian
from slsac.config.presets import CPO
from tests.support.gaussians import a_policy, some_samples

DELTA = 0.01
SOLVE = jax.jit(cpo.solve, static_argnums=4)
UPDATE = jax.jit(cpo.update_policy, static_argnums=3)


def test_conjugate_gradient_equals_a_dense_solve() -> None:
    rng = np.random.default_rng(0)
    root = rng.normal(size=(12, 12))
    matrix = jnp.float32(root @ root.T / 12 + 0.5 * np.eye(12))
    target = jnp.float32(rng.normal(size=12))
    solve = jax.jit(lambda: cpo.conjugate_gradient(lambda vector: matrix @ vector, target, 15))
    found = solve()
    assert np.asarray(found) == pytest.approx(np.linalg.solve(matrix, target), abs=1e-4)


def test_conjugate_gradient_stays_where_it_has_arrived() -> None:
    # Solved after one step; fourteen more must not divide by nothing.
    target = jnp.array([1.0, 2.0, -1.0])
    found = cpo.conjugate_gradient(lambda vector: 2.0 * vector, target, 15)
    assert np.asarray(found) == pytest.approx([0.5, 1.0, -0.5])
    assert not np.any(cpo.conjugate_gradient(lambda vector: vector, jnp.zeros(3), 15))


@pytest.mark.parametrize(("over_actions", "share"), [("sum", 1.0), ("mean", 0.5)])
def test_fisher_products_are_those_of_the_hessian_of_the_divergence(
    over_actions: str, share: float
) -> None:
    policy = a_policy()
    samples = some_samples(policy, 20)
    flat, unravel = ravel_pytree(policy)

    def divergence(parameters: jax.Array) -> jax.Array:
        new = unravel(parameters)
        mean = gaussian.mean_action(new, samples.observation)
        found = gaussian.divergence(samples.mean, policy.log_std, mean, new.log_std)
        return share * jnp.mean(jnp.sum(found, axis=-1))

    def products(vectors: jax.Array) -> jax.Array:
        return jax.vmap(cpo.fisher_product(policy, samples.observation, over_actions))(vectors)

    matrix = np.asarray(jax.jit(jax.hessian(divergence))(flat))
    columns = np.asarray(jax.jit(products)(jnp.eye(flat.size)))
    assert flat.size == 3 * 8 + 8 + 8 * 2 + 2 + 2
    assert columns == pytest.approx(matrix, abs=1e-4)


def numbers(g: np.ndarray, b: np.ndarray) -> tuple[float, float, float]:
    return float(g @ g), float(g @ b), float(b @ b)


def step_of(g: np.ndarray, b: np.ndarray, c: float) -> tuple[int, np.ndarray]:
    """The case and the step where H is the identity."""
    q, r, s = map(jnp.float32, numbers(g, b))
    found = SOLVE(q, r, s, jnp.float32(c), DELTA)
    return int(found.case), float(found.reward_weight) * g + float(found.cost_weight) * b


def best_step(g: np.ndarray, b: np.ndarray, c: float) -> np.ndarray:
    """The same by a general solver: best reward if anything is safe, least cost if nothing is."""
    # In units of the trust region's radius.
    radius = np.sqrt(2 * DELTA)
    trust = {"type": "ineq", "fun": lambda x: 1 - x @ x, "jac": lambda x: -2 * x}
    safe = {"type": "ineq", "fun": lambda x: -(c / radius + b @ x), "jac": lambda x: -b}
    reachable = c <= radius * np.linalg.norm(b)
    goal, constraints = (-g, [trust, safe]) if reachable else (b, [trust])
    start = -0.9 * b / max(np.linalg.norm(b), 1e-9) if c > 0 else np.zeros(2)
    # Asked for 1e-9 or less it may arrive, find no way further down and call that a failure.
    found = minimize(
        lambda x: goal @ x, start, jac=lambda x: goal, constraints=constraints, method="SLSQP",
        options={"ftol": 1e-6},
    )  # fmt: skip
    assert found.success, found.message
    return radius * found.x


# The trust region has radius sqrt(.02) = .141; |b| = 1, so that costs change by up to .141.
CASES = [
    pytest.param([1.0, 0.5], [1.0, 0.0], 0.2, cpo.RECOVERY, id="nothing-is-safe"),
    pytest.param([1.0, 0.5], [1.0, 0.0], 0.1, cpo.RECOVERABLE, id="some-is-but-not-here"),
    pytest.param([-1.0, 0.2], [1.0, 0.0], 0.05, cpo.RECOVERABLE, id="the-best-step-is-safe-anyway"),
    pytest.param([1.0, 0.5], [1.0, 0.0], -0.05, cpo.PARTLY_FEASIBLE, id="the-limit-binds"),
    pytest.param([-1.0, 0.5], [1.0, 0.0], -0.05, cpo.PARTLY_FEASIBLE, id="the-limit-is-behind"),
    pytest.param([0.3, 1.0], [1.0, 0.0], -0.05, cpo.PARTLY_FEASIBLE, id="the-limit-is-aside"),
    pytest.param([1.0, 0.5], [1.0, 0.0], 0.0, cpo.RECOVERABLE, id="on-the-limit-and-outwards"),
    pytest.param([-1.0, 0.5], [1.0, 0.0], 0.0, cpo.RECOVERABLE, id="on-the-limit-and-inwards"),
    pytest.param([1.0, 0.5], [1.0, 0.0], -0.2, cpo.FEASIBLE, id="all-is-safe"),
    pytest.param([1.0, 0.5], [0.0, 0.0], -0.2, cpo.NO_COST_GRADIENT, id="no-influence-on-cost"),
]


@pytest.mark.parametrize(("g", "b", "c", "case"), CASES)
def test_every_case_is_what_a_general_solver_finds(
    g: list[float], b: list[float], c: float, case: int
) -> None:
    reward, cost = np.array(g), np.array(b)
    found_case, step = step_of(reward, cost, c)
    assert found_case == case
    assert step == pytest.approx(best_step(reward, cost, c), abs=2e-4)


def test_the_five_cases_are_all_among_them() -> None:
    assert {case.values[3] for case in CASES} == set(range(5))


@settings(max_examples=200, deadline=None)
@given(
    angle=st.floats(0.1, 3.0),
    reward=st.floats(0.1, 10.0),
    cost=st.floats(0.1, 10.0),
    c=st.floats(-1.0, 1.0),
)
def test_no_other_safe_step_earns_more(angle: float, reward: float, cost: float, c: float) -> None:
    """Against 3,600 steps around the trust region's edge and 3,600 along the limit."""
    g, b = np.array([reward, 0.0]), cost * np.array([np.cos(angle), np.sin(angle)])
    case, step = step_of(g, b, c)
    radius = np.sqrt(2 * DELTA)
    slack = 1e-3 * cost * radius
    assert np.linalg.norm(step) <= radius * (1 + 1e-3)
    if case == cpo.RECOVERY:
        assert step == pytest.approx(-radius * b / cost, abs=1e-4)
        return
    assert c + b @ step <= slack
    turn = np.linspace(0, 2 * np.pi, 3_600)
    edge = radius * np.stack([np.cos(turn), np.sin(turn)], axis=1)
    along = np.linspace(-radius, radius, 3_600)[:, None] * np.array([-b[1], b[0]]) / cost
    line = along - c * b / cost**2
    tried = np.concatenate([edge, line])
    allowed = (np.linalg.norm(tried, axis=1) <= radius * (1 + 1e-9)) & (c + tried @ b <= 1e-12)
    if allowed.any():
        assert g @ step >= (tried[allowed] @ g).max() - 2e-3 * reward * radius


@pytest.mark.parametrize("share", [0.3, -0.3, 300.0])
@pytest.mark.parametrize("c", [0.1, 0.0, -0.05])
def test_parallel_gradients_give_the_one_best_step(share: float, c: float) -> None:
    # |b| = 1 and the radius is .141: only the distance moved along b matters.
    cost = np.array([0.8, 0.6])
    _, step = step_of(share * cost, cost, c)
    radius = np.sqrt(2 * DELTA)
    assert step == pytest.approx((-c if share > 0 else -radius) * cost, abs=1e-3 * radius)


def test_a_violation_without_influence_on_the_cost_gives_a_finite_step() -> None:
    case, step = step_of(np.array([1.0, 0.5]), np.zeros(2), 3.0)
    assert case == cpo.NO_COST_GRADIENT
    assert np.linalg.norm(step) == pytest.approx(np.sqrt(2 * DELTA), rel=1e-5)
    assert np.isfinite(step_of(np.zeros(2), np.zeros(2), 0.0)[1]).all()
    assert np.isfinite(step_of(np.zeros(2), np.array([1.0, 0.0]), -0.05)[1]).all()


@jax.jit
def search_table(table: cpo.ShortenedStep, case: jax.Array, violation: jax.Array) -> jax.Array:
    """The share found where the n-th try does what the table's n-th row says."""

    def attempt(share: jax.Array) -> cpo.ShortenedStep:
        tries = jnp.round(jnp.log(share) / jnp.log(0.8)).astype(jnp.int32)
        return cpo.ShortenedStep(*(column[tries] for column in table))

    return cpo.line_search(attempt, case, violation, CPO.trust_region)


# XLA takes subnormal numbers for 0.
finite = st.floats(-1.0, 1.0, width=32, allow_subnormal=False)


@settings(max_examples=100, deadline=None)
@given(
    gain=st.lists(finite, min_size=20, max_size=20),
    change=st.lists(finite, min_size=20, max_size=20),
    kl=st.lists(st.sampled_from([0.0, 0.005, 0.0099, 0.0101, 0.03]), min_size=20, max_size=20),
    case=st.sampled_from(range(5)),
    violation=finite,
)
def test_the_line_search_takes_the_first_step_that_breaks_nothing(
    gain: list[float], change: list[float], kl: list[float], case: int, violation: float
) -> None:
    table = cpo.ShortenedStep(*(np.float32(column) for column in (gain, change, kl)))
    share = float(search_table(table, case, violation))
    good = [
        kl[at] <= DELTA
        and change[at] <= max(-violation, 0.0)
        and (gain[at] >= 0 or case <= cpo.RECOVERABLE)
        for at in range(20)
    ]
    expected = 0.8 ** good.index(True) if any(good) else 0.0
    assert share == pytest.approx(expected, rel=1e-4)
    if share > 0:
        taken = round(np.log(share) / np.log(0.8))
        assert kl[taken] <= DELTA
        assert violation < 0 or change[taken] <= 0


@pytest.mark.parametrize("broken", [jnp.nan, jnp.inf])
def test_a_step_that_is_not_finite_is_not_taken(broken: float) -> None:
    table = cpo.ShortenedStep(jnp.full(20, broken), jnp.full(20, -1.0), jnp.zeros(20))
    assert float(search_table(table, cpo.FEASIBLE, -1.0)) == 0.0


def test_a_direction_that_is_not_finite_leaves_the_policy_and_the_metrics_alone() -> None:
    policy = a_policy()
    samples = some_samples(policy, 50)
    samples = samples._replace(cost_advantage=samples.cost_advantage.at[0].set(1e38))
    moved, metrics = UPDATE(policy, samples, jnp.float32(0.1), CPO.trust_region)
    assert float(metrics["step_share"]) == float(metrics["kl"]) == 0.0
    assert all(np.isfinite(float(number)) for number in metrics.values()), metrics
    assert np.array_equal(moved.log_std, policy.log_std)


@pytest.mark.parametrize("violation", [-1.0, -0.003, 0.003, 1.0])
def test_a_whole_update_keeps_the_trust_region_and_the_cost(violation: float) -> None:
    policy = a_policy()
    samples = some_samples(policy, 400)
    moved, metrics = UPDATE(policy, samples, jnp.float32(violation), CPO.trust_region)
    assert float(metrics["step_share"]) > 0
    assert 0 < float(metrics["kl"]) <= CPO.trust_region.maximum_kl
    assert float(metrics["cost_surrogate_change"]) <= max(-violation, 0.0) + 1e-6
    if violation == 1.0:
        assert int(metrics["case"]) == cpo.RECOVERY
        assert float(metrics["cost_surrogate_change"]) < 0
    if violation == -1.0:
        assert int(metrics["case"]) == cpo.FEASIBLE
        assert float(metrics["policy_loss"]) < 0
    assert np.any(moved.log_std != policy.log_std)
