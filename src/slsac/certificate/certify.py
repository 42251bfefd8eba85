"""A certificate of tail risk: what a number of episodes shows of a trained policy, and how surely.

The episodes are fresh: their seeds come from a branch of their own, so that none of them was
played in the evaluations of training, after which somebody may have chosen this run.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from slsac.algorithms.off_policy.agent import OffPolicyAgent
from slsac.api import Agent
from slsac.certificate import calibration
from slsac.certificate.page import page
from slsac.config import Config, OffPolicyConfig
from slsac.envs import env_source, for_certificate, for_evaluation, make_env
from slsac.errors import Failed, InvalidInput
from slsac.formatting import cost_digits
from slsac.runs import config_file, layout, policy
from slsac.runs.layout import write_atomically
from slsac.runs.steps import trained_steps
from slsac.seeds import Branch, episode_seed, generator
from slsac.stats import pareto
from slsac.stats.confidence import (
    at_least_seen,
    bootstrap_cvar_interval,
    cvar_lower_bound,
    cvar_upper_bound,
    require_confidence,
    share_lower_bound,
    share_upper_bound,
)
from slsac.stats.summary import Evaluation, as_record, joined, summarise
from slsac.stats.tail import empirical_cvar, fit_tail, signal_decomposition, tail_count
from slsac.tasks import family
from slsac.types import EnvSpec

TAIL_FRACTIONS = (0.1, 0.05, 0.01)
"""Looked at beside the one that was trained with."""
CALIBRATION_EPISODES = 30
CHUNK = 20
FEW = 10
"""Episodes in a tail below which an estimate of it says little."""

Tick = Callable[[str, int, int], None]
"""(what, done, in all), for whoever waits."""


def cost_statements(
    costs: np.ndarray,
    *,
    cost_limit: float,
    tail_fractions: Sequence[float],
    confidence: float,
    largest_cost: float | None,
    seed: int = 0,
) -> dict[str, Any]:
    """What independent episode costs show: CVaR, the chance of a violation, and the fitted tail.

    Args:
        tail_fractions: the first is the one that was trained with, and whose tail is fitted.
        largest_cost: that an episode can have at all; None: unknown, and no bound on CVaR.
    """
    require_confidence(confidence)
    if not np.isfinite(costs).all():
        raise InvalidInput(f"costs has {costs[~np.isfinite(costs)][0]}; all must be finite")
    episodes, over = len(costs), int((costs > cost_limit).sum())
    rng = generator(seed, Branch.CERTIFICATE)

    def about(tail_fraction: float) -> dict[str, Any]:
        k = tail_count(episodes, tail_fraction)
        return {
            "tail_fraction": tail_fraction,
            "episodes": k,
            "too_few": k < FEW,
            "estimate": empirical_cvar(costs, tail_fraction),
            "interval": list(bootstrap_cvar_interval(costs, tail_fraction, confidence, rng)),
            "upper_bound": None
            if largest_cost is None
            else cvar_upper_bound(costs, tail_fraction, confidence, largest_cost),
            "lower_bound": None
            if costs.min() < 0.0
            else cvar_lower_bound(costs, tail_fraction, confidence),
        }

    cvar = [about(tail_fraction) for tail_fraction in dict.fromkeys(tail_fractions)]
    return {
        "cvar": cvar,
        "violation": {
            "episodes": over,
            "share": over / episodes,
            "upper_bound": share_upper_bound(over, episodes, confidence),
            "lower_bound": share_lower_bound(over, episodes, confidence),
        },
        "tail": _about_tail(costs, tail_fractions[0], cost_limit, confidence),
        "signal": signal_decomposition(costs, tail_fractions[0])._asdict(),
    }


def _about_tail(
    costs: np.ndarray, tail_fraction: float, cost_limit: float, confidence: float
) -> dict[str, Any]:
    """The fit, and what it says of the limit where it is credible.

    ``violation_bound`` is the theorem's eps * gamma(nu), at the lightest tail of the shape's
    interval since gamma falls with nu; it holds if CVaR is at most the limit.
    """
    fit = fit_tail(costs, tail_fraction, confidence=confidence)
    found: dict[str, Any] = {"tail_fraction": tail_fraction, **fit._asdict()}
    if fit.credible:
        assert fit.shape is not None
        assert fit.scale is not None
        assert fit.shape_interval is not None
        above = cost_limit - fit.threshold
        # Below the threshold the fit says nothing, and the sample speaks for itself.
        found["violation_estimate"] = (
            fit.exceedances / len(costs) * pareto.survival(above, fit.shape, fit.scale)
            if above >= 0.0
            else float((costs > cost_limit).mean())
        )
        found["violation_bound"] = tail_fraction * pareto.share_above_mean(fit.shape_interval[0])
        found["violation_bound_applies"] = empirical_cvar(costs, tail_fraction) <= cost_limit
    return found


def verdict(statements: dict[str, Any], protocol: dict[str, Any], limit: float) -> dict[str, str]:
    """One sentence, and its outcome: kept, broken, or, where nothing is proven, what was seen."""
    sure = f"{100 * protocol['confidence']:g} %"
    tail, violation = statements["cvar"][0], statements["violation"]
    eps, n = tail["tail_fraction"], protocol["episodes"]
    measured = f"CVaR at {eps:g} is {tail['estimate']:.3g} over {n} episodes"
    if tail["estimate"] > limit:
        least = tail["lower_bound"]
        broken = least is not None and least > limit
        proven = (
            "no lower bound on it can be given where costs are negative"
            if least is None
            else f"with {sure} confidence it is at least {least:.3g}"
        )
        return {
            "outcome": "broken" if broken else "over in sample",
            "sentence": f"The tail limit is not kept{'' if broken else ' in the sample'}: "
            f"{measured}, above {limit:g}, and {proven}; also with {sure} confidence at least "
            f"{percent(violation['lower_bound'])} of episodes exceed the limit "
            f"({violation['episodes']} of {n} did).",
        }
    probability = (
        f"with {sure} confidence at most {percent(violation['upper_bound'])} of episodes exceed "
        f"the cost limit of {limit:g} ({violation['episodes']} of {n} did)"
    )
    bound = tail["upper_bound"]
    if bound is not None and bound <= limit:
        return {
            "outcome": "kept",
            "sentence": f"The tail limit is kept: {probability}, and, also with {sure} confidence, "
            f"CVaR at {eps:g} is at most {bound:.3g}.",
        }
    unproven = (
        "no bound on it can be given without the largest cost of a step"
        if bound is None
        else f"what such a sample could have missed bounds it by {bound:.3g} only"
    )
    return {
        "outcome": "kept in sample",
        "sentence": f"The tail limit is kept in the sample but not proven: {probability}; "
        f"{measured}, and {unproven}.",
    }


def percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def costly_steps(config: Config, horizon: int) -> int:
    """How many steps of an episode can cost anything; on some tasks the first one ends it."""
    return 1 if config.metadrive is not None and config.metadrive.end_at_violation else horizon


def certify(
    run: Path,
    episodes: int = 200,
    *,
    deterministic: bool = True,
    confidence: float = 0.95,
    seed: int | None = None,
    max_step_cost: float | None = None,
    env: Any = None,
    tick: Tick = lambda what, done, total: None,
) -> tuple[dict[str, Any], Evaluation]:
    """The certificate of a run's newest policy, and the episodes behind it.

    Args:
        max_step_cost: the largest cost of one step; known for all tasks but one's own.
        env: needed where the run was made on an object or a function.
    """
    require_confidence(confidence)
    if episodes < 2:
        raise InvalidInput(f"episodes is {episodes}; it must be at least 2")
    if seed is not None and seed < 0:
        raise InvalidInput(f"seed is {seed}; it must be at least 0")
    if max_step_cost is not None and not (math.isfinite(max_step_cost) and max_step_cost > 0.0):
        raise InvalidInput(f"max_step_cost is {max_step_cost}; it must be finite and above 0")
    config, spec, _ = config_file.read(run)
    env = for_certificate(env_source(config.env if env is None else env, config))
    if max_step_cost is None and family(config.env) != "other":
        max_step_cost = 1.0
    most_steps = costly_steps(config, spec.horizon)
    largest_cost = None if max_step_cost is None else max_step_cost * most_steps
    seed = config.seed if seed is None else seed

    # All of it is read before the first episode: the run may be in training, and go on.
    digest, steps = layout.policy_digest(run), trained_steps(run)
    critic = critic_of(run)
    parts = []
    with contextlib.closing(Agent.load(run, env=env)) as agent:
        if layout.policy_digest(run) != digest:
            raise Failed(f"run {str(run)!r} saved another policy just now; try again")
        for number, first in enumerate(range(0, episodes, CHUNK)):
            tick("episodes", first, episodes)
            parts.append(
                agent.evaluate(
                    min(CHUNK, episodes - first),
                    seed=episode_seed(seed, Branch.CERTIFICATE, number),
                    deterministic=deterministic,
                )
            )
            if largest_cost is not None:  # said now, and not after all episodes
                at_least_seen(largest_cost, parts[-1].costs.max())
    tick("episodes", episodes, episodes)
    played = joined(parts)

    protocol = {
        "episodes": episodes,
        "actions": "deterministic" if deterministic else "sampled",
        "confidence": confidence,
        "seed": seed,
        "max_step_cost": max_step_cost,
        "costly_steps": most_steps,
        "largest_cost": largest_cost,
    }
    statements = cost_statements(
        played.costs,
        cost_limit=config.cost_limit,
        tail_fractions=(config.tail_fraction, *TAIL_FRACTIONS),
        confidence=confidence,
        largest_cost=largest_cost,
        seed=seed,
    )
    certificate = {
        "run": {
            "algo": config.algo,
            "env": config.env,
            "seed": config.seed,
            "steps": steps,
            "cost_limit": config.cost_limit,
            "tail_fraction": config.tail_fraction,
            "horizon": spec.horizon,
            "policy_sha256": digest,
        },
        "protocol": protocol,
        "verdict": verdict(statements, protocol, config.cost_limit),
        "sample": {
            **summarise(played, config.cost_limit, config.tail_fraction),
            "cost_max": float(played.costs.max()),
        },
        **statements,
        "calibration": critic
        if isinstance(critic, dict)
        else {
            **calibrate(critic, config, spec, confidence, seed, env, tick),
            "policy_sha256": digest,
        },
    }
    return certificate, played


Critic = tuple[OffPolicyAgent, Any, Any]
"""Functions of an agent, and its policy and cost critic."""


def critic_of(run: Path) -> Critic | dict[str, Any]:
    """The cost critic to calibrate; where there is none, the calibration that stands for it.

    That is the last certificate's if it is of the same policy, and otherwise the reason why not.
    """
    config, _, _ = config_file.read(run)
    if not isinstance(config, OffPolicyConfig):
        return {"reason": f"the cost critic of {config.algo} values states, not actions"}
    found = policy.load_cost_critic(run)
    if found is not None:
        return found
    with contextlib.suppress(FileNotFoundError, ValueError, KeyError, TypeError):
        recorded: dict[str, Any] = json.loads((run / "certificate.json").read_text())["calibration"]
        if recorded["policy_sha256"] == layout.policy_digest(run):
            return recorded
    return {"reason": "the critic is not there: the folder holds no checkpoint of this policy"}


def calibrate(
    critic: Critic,
    config: Config,
    spec: EnvSpec,
    confidence: float,
    seed: int,
    env: Any,
    tick: Tick,
) -> dict[str, Any]:
    """What a critic predicts against what follows, in fresh episodes with sampled actions."""
    assert isinstance(config, OffPolicyConfig)
    functions, policy, cost_critic = critic
    explore = jax.jit(functions.explore)
    first_seed = episode_seed(seed, Branch.CERTIFICATE, 2**31)
    trajectories = []
    with contextlib.closing(make_env(for_evaluation(env))) as played_env:
        for episode in range(CALIBRATION_EPISODES):
            trajectories.append(
                calibration.play_sampled(
                    played_env,
                    lambda observation, key: explore(policy, observation, key),
                    first_seed,
                    episode,
                )
            )
            tick("calibration", episode + 1, CALIBRATION_EPISODES)
    return calibration.calibrate(
        trajectories,
        cost_critic,
        config.cost_critic,
        tail_fraction=config.tail_fraction,
        horizon=spec.horizon,
        confidence=confidence,
        seed=seed,
    )


def base_of(out: Path) -> Path:
    """The name that the files of a certificate begin with; .html or .json at its end is none."""
    base = out.with_suffix("") if out.suffix in (".html", ".json") else out
    if not base.name or out.is_dir():
        raise InvalidInput(f"out is {str(out)!r}; it must be the name of a file")
    return base


def write(certificate: dict[str, Any], played: Evaluation, run: Path, base: Path | None) -> Path:
    """Writes ``base``.json, .html and -episodes.json; None: certificate.* in the run's folder.

    Returns the page's path. With None a quantile critic's calibration goes to the run's
    calibration.json as well, where reports look for it.
    """
    in_run = base is None
    base = base or run / "certificate"
    base.parent.mkdir(parents=True, exist_ok=True)

    def put(path: Path, text: str) -> Path:
        write_atomically(path, text.encode() + b"\n")
        return path

    put(base.with_name(base.name + ".json"), json.dumps(certificate, indent=1))
    put(base.with_name(base.name + "-episodes.json"), json.dumps(as_record(played)))
    if in_run and "delta" in certificate["calibration"]:
        put(run / "calibration.json", json.dumps(certificate["calibration"], indent=1))
    return put(base.with_name(base.name + ".html"), page(certificate, played.costs))


def text(certificate: dict[str, Any]) -> str:
    """The certificate as a page of plain text."""
    run, protocol, sample = (certificate[name] for name in ("run", "protocol", "sample"))
    violation, tail = certificate["violation"], certificate["tail"]
    sure = f"{100 * protocol['confidence']:g} %"
    digits = cost_digits(run["cost_limit"])
    lines = [
        certificate["verdict"]["sentence"],
        "",
        f"policy       {run['algo']} on {run['env']}, seed {run['seed']}, {run['steps']:,} steps; "
        f"{protocol['actions']} actions",
        f"episodes     {protocol['episodes']} fresh ones, seed {protocol['seed']}",
        f"return       {sample['return_mean']:.1f} +- {sample['return_se']:.1f}",
        f"cost         {sample['cost_mean']:.2f} +- {sample['cost_se']:.2f}, largest "
        f"{sample['cost_max']:.4g}; limit {run['cost_limit']:g}",
        f"over limit   {violation['episodes']} episodes; of all episodes at least "
        f"{percent(violation['lower_bound'])} and at most {percent(violation['upper_bound'])}, "
        f"each with {sure} confidence",
        "",
        f"CVaR of cost      estimate   {sure} interval        {sure} upper bound   episodes",
    ]
    for one in certificate["cvar"]:
        low, high = one["interval"]
        bound = "-" if one["upper_bound"] is None else f"{one['upper_bound']:.{digits}f}"
        lines.append(
            f"  worst {percent(one['tail_fraction']):<9}{one['estimate']:>9.{digits}f}   "
            f"{f'{low:.{digits}f} .. {high:.{digits}f}':<18}{bound:>15}   {one['episodes']:>8}"
            + ("  too few to trust" if one["too_few"] else "")
        )
    lines += ["", *_tail_lines(tail), *_calibration_lines(certificate["calibration"])]
    return "\n".join(lines)


def _tail_lines(tail: dict[str, Any]) -> list[str]:
    if not tail["credible"]:
        return [f"fitted tail  not credible: {tail['reason']}"]
    low, high = tail["shape_interval"]
    told = [
        f"fitted tail  generalised Pareto above {tail['threshold']:.3g}: shape {tail['shape']:.2f} "
        f"({low:.2f} .. {high:.2f}), scale {tail['scale']:.3g}, p = {tail['fit_p_value']:.2f}; it "
        f"puts {percent(tail['violation_estimate'])} of episodes over the limit"
    ]
    if tail["violation_bound_applies"]:
        told.append(
            f"             if CVaR is at most the limit, at most "
            f"{percent(tail['violation_bound'])} exceed it"
        )
    return told


def _calibration_lines(found: dict[str, Any]) -> list[str]:
    if "reason" in found:
        return [f"cost critic  not calibrated: {found['reason']}"]
    where = f"{found['points']} points of {found['episodes']} episodes with sampled actions"
    if found["kind"] == "scalar":
        low, high = found["bias_interval"]
        return [
            f"cost critic  predicts {found['predicted_mean']:.2f}, realised "
            f"{found['realised_mean']:.2f} (discounted): bias {found['bias']:+.2f} "
            f"({low:+.2f} .. {high:+.2f}); {where}"
        ]
    low, high = found["delta_interval"]
    return [
        f"cost critic  delta {found['delta']:.3g} ({low:.3g} .. {high:.3g}; chance alone "
        f"{found['delta_if_perfect']:.3g}), discounted; {where}",
        f"             so its CVaR may be off by {found['cvar_error_bound']:.3g} discounted, about "
        f"{found['cvar_error_bound_undiscounted']:.3g} of cost in an episode",
    ]
