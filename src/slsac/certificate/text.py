"""The certificate as plain text, for a terminal."""

from __future__ import annotations

from slsac.certificate.contents import (
    EDITED,
    Calibration,
    Certificate,
    CvarStatement,
    MeanError,
    NotCalibrated,
    TailStatement,
)
from slsac.formatting import cost_digits, number, percent


def plain_text(certificate: Certificate) -> str:
    """One page of text without a newline at its end."""
    run, protocol, sample = certificate.run, certificate.protocol, certificate.sample
    violation = certificate.statements.violation
    sure = percent(protocol.confidence, digits=12)
    lines = [
        certificate.verdict.sentence,
        "",
        f"policy       {run.algo} on {run.env}, seed {run.seed}, {run.steps:,} steps; "
        f"{protocol.actions} actions",
        *([f"             {EDITED}"] if run.config_edited else []),
        f"episodes     {protocol.episodes} fresh ones, seed {protocol.seed}",
        f"return       {number(sample.return_mean, 1)} +- {number(sample.return_se, 1)}",
        f"cost         {number(sample.cost_mean, 2)} +- {number(sample.cost_se, 2)}, largest "
        f"{sample.cost_max:.4g}; limit {run.cost_limit:g}",
        f"over limit   {violation.episodes} episodes; of all episodes at least "
        f"{percent(violation.lower_bound, towards='down')} and at most "
        f"{percent(violation.upper_bound, towards='up')}, each with {sure} confidence",
        "",
        f"CVaR of cost      estimate   {sure} interval        {sure} upper bound   episodes",
        *(_cvar_line(row, cost_digits(run.cost_limit)) for row in certificate.statements.cvar),
        "",
        *_tail_lines(certificate.statements.tail),
        *_calibration_lines(certificate.calibration),
    ]
    return "\n".join(lines)


def _cvar_line(row: CvarStatement, digits: int) -> str:
    low, high = row.interval
    bound = number(row.upper_bound, digits, towards="up")
    return (
        f"  worst {percent(row.tail_fraction):<9}{number(row.estimate, digits):>9}   "
        f"{f'{number(low, digits)} .. {number(high, digits)}':<18}{bound:>15}   {row.episodes:>8}"
        + ("  too few to trust" if row.too_few else "")
    )


def _tail_lines(tail: TailStatement) -> list[str]:
    fit = tail.fit
    if tail.at_limit is None:
        return [f"fitted tail  not credible: {fit.reason}"]
    assert fit.shape_interval is not None
    low, high = fit.shape_interval
    lines = [
        f"fitted tail  generalised Pareto above {fit.threshold:.3g}: shape {fit.shape:.2f} "
        f"({low:.2f} .. {high:.2f}), scale {fit.scale:.3g}, p = {fit.fit_p_value:.2f}; it "
        f"puts {percent(tail.at_limit.violation_estimate)} of episodes over the limit"
    ]
    if tail.at_limit.violation_bound_applies:
        lines.append(
            f"             if CVaR is at most the limit, at most "
            f"{percent(tail.at_limit.violation_bound, towards='up')} exceed it"
        )
    return lines


def _calibration_lines(calibration: Calibration | NotCalibrated) -> list[str]:
    if isinstance(calibration, NotCalibrated):
        return [f"cost critic  not measured: {calibration.reason}"]
    error = calibration.error
    points = f"{calibration.points} points of {calibration.episodes} episodes with sampled actions"
    if isinstance(error, MeanError):
        low, high = error.bias_interval
        return [
            f"cost critic  predicts {number(error.predicted_mean, 2)}, realised "
            f"{number(calibration.realised_mean, 2)} (discounted): bias "
            f"{number(error.bias, 2, sign=True)} ({number(low, 2, sign=True)} .. "
            f"{number(high, 2, sign=True)}); {points}"
        ]
    low, high = error.delta_interval
    return [
        f"cost critic  delta {error.delta:.3g} ({low:.3g} .. {high:.3g}; chance alone "
        f"{error.delta_if_perfect:.3g}), discounted; {points}",
        f"             so its CVaR may be off by {error.cvar_error_bound:.3g} discounted, about "
        f"{error.cvar_error_bound_undiscounted:.3g} of cost in an episode",
    ]
