"""What costs show, and the verdict: on costs whose distribution is known."""

from __future__ import annotations

import numpy as np
import pytest

from slsac.certificate.contents import Verdict
from slsac.certificate.statements import cost_statements, verdict
from slsac.errors import InvalidInput
from slsac.stats import pareto


def judge(costs: np.ndarray, largest_cost: float | None = 1000.0) -> Verdict:
    statements = cost_statements(
        costs, cost_limit=25.0, tail_fractions=(0.5,), confidence=0.95, largest_cost=largest_cost
    )
    return verdict(statements, episodes=len(costs), confidence=0.95, cost_limit=25.0)


def test_a_limit_is_proven_by_enough_episodes_only() -> None:
    few, many = judge(np.zeros(200)), judge(np.zeros(600))
    assert few.outcome == "kept in sample"
    assert "at most 1.49 % of episodes exceed the cost limit of 25 (0 of 200 did)" in few.sentence
    assert many.outcome == "kept"
    assert judge(np.zeros(600), None).outcome == "kept in sample"


def test_a_broken_limit_is_said_to_be() -> None:
    broken = judge(np.full(200, 35.0))
    assert broken.outcome == "broken"
    assert "CVaR at 0.5 is 35 over 200 episodes, above 25" in broken.sentence
    assert "with 95 % confidence it is at least 35" in broken.sentence
    assert "at least 98.5 % of episodes exceed the limit (200 of 200 did)" in broken.sentence


def test_a_limit_is_broken_by_a_bound_and_not_by_an_estimate() -> None:
    # CVaR of the sample is 26, but of all episodes fewer than those seen may cost 52.
    unproven = judge(np.repeat([0.0, 52.0], [150, 50]))
    assert unproven.outcome == "over in sample"
    assert "The tail limit is not kept in the sample: CVaR at 0.5 is 26" in unproven.sentence
    assert "no lower bound" in judge(np.repeat([-1.0, 52.0], [100, 100])).sentence


def test_an_estimate_is_on_the_side_of_the_limit_that_the_sentence_says() -> None:
    assert "CVaR at 0.5 is 1000 over 200 episodes, above 25" in judge(np.full(200, 1e3)).sentence
    above = judge(np.full(200, 25.03)).sentence
    assert "CVaR at 0.5 is 25.03 over 200 episodes, above 25" in above
    assert "with 95 % confidence it is at least 25.03" in above


@pytest.mark.parametrize(
    ("cost", "bounds", "limit", "said"),
    [
        (0.0, {"upper_bound": 7.0615}, 25.0, "CVaR at 0.5 is at most 7.07."),
        (0.0, {"upper_bound": 24.98}, 24.99, "CVaR at 0.5 is at most 24.98."),
        (0.0, {"upper_bound": 71.21}, 25.0, "it is only known to be at most 71.3."),
        (35.0, {"lower_bound": 30.19}, 25.0, "it is at least 30.1;"),
    ],
)
def test_a_bound_that_is_shown_is_proven(
    cost: float, bounds: dict[str, float], limit: float, said: str
) -> None:
    statements = cost_statements(
        np.full(200, cost), cost_limit=limit, tail_fractions=(0.5,), confidence=0.95,
        largest_cost=1000.0,
    )  # fmt: skip
    statements = statements._replace(cvar=[statements.cvar[0]._replace(**bounds)])
    assert said in verdict(statements, episodes=200, confidence=0.95, cost_limit=limit).sentence


def test_a_confidence_is_never_rounded_to_certainty() -> None:
    statements = cost_statements(
        np.zeros(600), cost_limit=25.0, tail_fractions=(0.5,), confidence=0.99999999,
        largest_cost=1000.0,
    )  # fmt: skip
    said = verdict(statements, episodes=600, confidence=0.99999999, cost_limit=25.0).sentence
    assert "with 99.999999 % confidence" in said
    assert "100 %" not in said


def test_a_credible_tail_is_used() -> None:
    costs = pareto.draw(0.2, 5.0, (400,), np.random.default_rng(2))
    tail = cost_statements(
        costs, cost_limit=25.0, tail_fractions=(0.5,), confidence=0.95, largest_cost=None
    ).tail
    assert tail.fit.credible, tail.fit.reason
    assert tail.at_limit is not None
    # Pr(Z > 25) = (1 + .2 * 25 / 5)^-5 = 1/32, by the true distribution.
    assert tail.at_limit.violation_estimate == pytest.approx(1 / 32, abs=0.02)
    # At most the share above the mean of the lightest tail that the interval allows.
    assert tail.fit.shape_interval is not None
    lightest = tail.fit.shape_interval[0]
    assert tail.at_limit.violation_bound == pytest.approx(0.5 * pareto.share_above_mean(lightest))
    assert tail.at_limit.violation_bound_applies


def test_costs_must_be_finite() -> None:
    with pytest.raises(InvalidInput, match="costs has nan; all must be finite"):
        judge(np.array([0.0, np.nan]))
