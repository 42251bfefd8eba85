"""Makes a certificate: plays fresh episodes of a run's newest policy and states what they show.

What the costs show, and the verdict on them, is `slsac.certificate.statements`.

Fresh means that the seeds come from a branch of their own: no evaluation during training, by which
somebody may have chosen this run, has played any of these episodes.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import jax
import numpy as np

from slsac.algorithms.off_policy.agent import OffPolicyAgent
from slsac.certificate import calibration
from slsac.certificate.contents import (
    Calibration,
    Certificate,
    CertifiedRun,
    NotCalibrated,
    Protocol,
    calibration_from_json,
    sample_from,
)
from slsac.certificate.statements import cost_statements, verdict
from slsac.config import Config, OffPolicyConfig
from slsac.envs import (
    copies_of,
    env_source,
    for_certificate,
    for_evaluation,
    import_installed,
    make_env,
)
from slsac.envs.play import Lanes, Predict
from slsac.errors import InvalidInput
from slsac.evaluate import evaluate, require_episodes
from slsac.networks import row_by_row
from slsac.runs.config_file import require_same_task
from slsac.runs.layout import CERTIFICATE
from slsac.runs.policy import TrainedRun, load_learned
from slsac.runs.schema import Misfit
from slsac.seeds import Branch, episode_seed, require_seed
from slsac.stats.confidence import at_least_seen, require_confidence
from slsac.stats.summary import Evaluation, joined, summarise
from slsac.tasks import METADRIVE_ID, family
from slsac.training.discount import Discount
from slsac.training.units import Units

TAIL_FRACTIONS = (0.1, 0.05, 0.01)
"""Stated beside the tail fraction of training."""
MOST_EPISODES = 20_000
"""The exact bounds take a minute at this size; the time grows with its square."""
CALIBRATION_EPISODES = 30
CHUNK = 20
"""Episodes between two reports of progress; every chunk has a seed of its own."""

Tick = Callable[[str, int, int], None]
"""Reports progress: what is counted, how many are done, and how many there are."""


def certify(
    run: str | Path,
    episodes: int = 200,
    *,
    deterministic: bool = True,
    confidence: float = 0.95,
    seed: int | None = None,
    max_step_cost: float | None = None,
    env: Any = None,
    trust_env: bool = False,
    tick: Tick = lambda what, done, total: None,
) -> tuple[Certificate, Evaluation]:
    """The certificate of a run's newest policy, and the episodes behind it.

    Args:
        max_step_cost: largest possible cost of one step; needed only for tasks of your own.
        env: needed where the run was made on an env object or a function.
        trust_env: import the module that the run's files name from the working directory too.
    """
    run = Path(run)
    require_confidence(confidence)
    require_episodes(episodes, least=2, most=MOST_EPISODES)
    if seed is not None:
        require_seed(seed)
    if max_step_cost is not None and not (math.isfinite(max_step_cost) and max_step_cost > 0.0):
        raise InvalidInput(f"max_step_cost is {max_step_cost}; it must be finite and above 0")

    # Everything is read before the first episode: a run in training may replace its files.
    learned = load_learned(run)
    substitute = _without_critic(run, learned) if learned.cost_critic is None else None
    config, spec = learned.config, learned.spec
    if env is None and not trust_env:
        import_installed(config.env)
    source = for_certificate(env_source(config.env if env is None else env, config))
    if max_step_cost is None and family(config.env) != "other":
        max_step_cost = 1.0
    steps = costly_steps(config, spec.horizon)
    protocol = Protocol(
        episodes=episodes,
        actions="deterministic" if deterministic else "sampled",
        confidence=confidence,
        seed=config.seed if seed is None else seed,
        max_step_cost=max_step_cost,
        costly_steps=steps,
        largest_cost=None if max_step_cost is None else max_step_cost * steps,
    )
    played = _play(learned, source, protocol, tick)
    statements = cost_statements(
        played.costs,
        cost_limit=config.cost_limit,
        tail_fractions=(config.tail_fraction, *TAIL_FRACTIONS),
        confidence=confidence,
        largest_cost=protocol.largest_cost,
        seed=protocol.seed,
    )
    certificate = Certificate(
        run=CertifiedRun(
            algo=config.algo,
            env=config.env,
            seed=config.seed,
            steps=learned.steps,
            cost_limit=config.cost_limit,
            tail_fraction=config.tail_fraction,
            horizon=spec.horizon,
            policy_sha256=learned.policy_sha256,
            config_edited=learned.config_edited,
        ),
        protocol=protocol,
        verdict=verdict(
            statements, episodes=episodes, confidence=confidence, cost_limit=config.cost_limit
        ),
        sample=sample_from(
            {
                **summarise(played, config.cost_limit, config.tail_fraction),
                "cost_max": float(played.costs.max()),
            }
        ),
        statements=statements,
        calibration=substitute or _calibrate(learned, source, protocol, tick),
    )
    return certificate, played


def costly_steps(config: Config, horizon: int) -> int:
    """How many steps of an episode can cost anything; in some tasks the first one ends it."""
    simulator = config.metadrive if config.env == METADRIVE_ID else None
    return 1 if simulator is not None and simulator.end_at_violation else horizon


def _play(learned: TrainedRun, source: Any, protocol: Protocol, tick: Tick) -> Evaluation:
    """The episodes of the certificate, on copies of the env that ``source`` makes."""
    deterministic = protocol.actions == "deterministic"
    mode = jax.jit(row_by_row(learned.agent.predict))
    sample = jax.jit(learned.agent.sample)

    def predict_from(seed: int) -> Predict:
        if deterministic:
            return lambda observations: np.asarray(mode(learned.policy, observations))
        return _sampled_actions(sample, learned.policy, seed)

    parts: list[Evaluation] = []
    with contextlib.closing(Lanes(copies_of(source).evaluation)) as lanes:
        require_same_task(lanes.take(1)[0].spec, learned.spec, learned.config)
        for number, first in enumerate(range(0, protocol.episodes, CHUNK)):
            tick("episodes", first, protocol.episodes)
            seed = episode_seed(protocol.seed, Branch.CERTIFICATE, number)
            part = evaluate(
                lanes,
                predict_from(seed),
                min(CHUNK, protocol.episodes - first),
                seed,
                max_lanes=None if deterministic else 1,
            )
            if protocol.largest_cost is not None:  # reported now, and not after all episodes
                at_least_seen(protocol.largest_cost, part.costs.max())
            parts.append(part)
    tick("episodes", protocol.episodes, protocol.episodes)
    return joined(parts)


def _sampled_actions(sample: Callable[..., Any], policy: Any, seed: int) -> Predict:
    """Every call draws with the next key, so one lane must play the episodes in order."""
    key = jax.random.PRNGKey(seed)

    def act(observation: np.ndarray) -> np.ndarray:
        nonlocal key
        key, drawn = jax.random.split(key)
        return np.asarray(sample(policy, observation, drawn))

    return act


def _without_critic(run: Path, learned: TrainedRun) -> Calibration | NotCalibrated:
    """The last certificate's calibration if it is of the same policy; else why there is none."""
    if not isinstance(learned.config, OffPolicyConfig):
        algo = learned.config.algo
        return NotCalibrated(f"the cost critic of {algo} values states, not actions")
    with contextlib.suppress(FileNotFoundError, Misfit):
        recorded = calibration_from_json((run / CERTIFICATE).read_bytes())
        if recorded.policy_sha256 == learned.policy_sha256:
            return recorded
    return NotCalibrated("no checkpoint in the run's folder holds this policy's critic")


def _calibrate(
    learned: TrainedRun, source: Any, protocol: Protocol, tick: Tick
) -> Calibration | NotCalibrated:
    """The cost critic's predictions against fresh episodes with sampled actions."""
    assert isinstance(learned.config, OffPolicyConfig)
    unit = _cost_unit(learned.config, learned.spec.horizon, learned.facts)
    if unit is None:
        return NotCalibrated(
            "the run is of an older version, which did not save the critic's unit of cost",
            learned.policy_sha256,
        )
    # The critic learned what the policy costs that learns, not its average.
    sample = jax.jit(cast(OffPolicyAgent, learned.agent).explore)
    seed = episode_seed(protocol.seed, Branch.CERTIFICATE, 2**31)
    trajectories = []
    with contextlib.closing(make_env(for_evaluation(source))) as env:
        for episode in range(CALIBRATION_EPISODES):
            trajectories.append(
                calibration.play_sampled(
                    env,
                    lambda observation, key: sample(learned.policy, observation, key),
                    seed,
                    episode,
                )
            )
            tick("calibration", episode + 1, CALIBRATION_EPISODES)
    if learned.config.cost_critic.after_termination == "continued":
        trajectories = [trajectory._replace(terminated=False) for trajectory in trajectories]
    return calibration.calibrate(
        trajectories,
        _predict_cost(learned, unit),
        learned.config.cost_critic,
        tail_fraction=learned.config.tail_fraction,
        horizon=learned.spec.horizon,
        confidence=protocol.confidence,
        seed=protocol.seed,
        policy_sha256=learned.policy_sha256,
    )


def _cost_unit(config: OffPolicyConfig, horizon: int, facts: Mapping[str, Any]) -> float | None:
    """What the cost critic calls 1, in the task's own costs, by the facts of its checkpoint.

    Final checkpoints of older versions do not say it. It was the limit then, and is unknown (None)
    where that is 0.
    """
    units = Units(config, horizon, Discount(config.reward_critic, horizon))
    if "units" in facts:
        units.restore(facts)
    elif config.units == "scale-free" and config.cost_limit == 0.0:
        return None
    return units.cost


def _predict_cost(learned: TrainedRun, unit: float) -> calibration.PredictCost:
    agent = cast(OffPolicyAgent, learned.agent)
    quantiles = jax.jit(agent.predict_cost)

    def predict(observations: np.ndarray, actions: np.ndarray, fractions: np.ndarray) -> np.ndarray:
        values = quantiles(learned.policy, learned.cost_critic, observations, actions, fractions)
        return unit * np.asarray(values, np.float64)

    return predict
