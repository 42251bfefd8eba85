"""What a certificate holds, as records, and the same as JSON.

``certificate.json`` and ``calibration.json`` are file formats: fields here are keys there. Costs
and returns are undiscounted and per episode, except in a calibration.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from slsac.runs import schema
from slsac.runs.schema import Optional, list_of, number, record, text, whole
from slsac.stats.tail import SignalDecomposition, TailFit

Interval = tuple[float, float]
Outcome = Literal["kept", "broken", "kept in sample", "over in sample"]


EDITED = "config.json was changed by hand after training: its limit may not be the one trained for"
"""What a certificate of such a run says."""


class CertifiedRun(NamedTuple):
    """The policy that was played, and the limit that it was trained for."""

    algo: str
    env: str
    seed: int
    steps: int
    """Environment steps that the policy has learned from."""
    cost_limit: float
    tail_fraction: float
    horizon: int
    policy_sha256: str
    config_edited: bool = False
    """The config was changed by hand after training, so its limit may be another."""


class Protocol(NamedTuple):
    """How the episodes were played and what is known of their costs."""

    episodes: int
    actions: Literal["deterministic", "sampled"]
    confidence: float
    """The confidence of each bound by itself."""
    seed: int
    max_step_cost: float | None
    """Largest possible cost of one step; None where it is unknown."""
    costly_steps: int
    """How many steps of an episode can cost anything."""
    largest_cost: float | None
    """Largest possible cost of an episode; None where it is unknown."""


class Verdict(NamedTuple):
    """Whether the tail limit is kept."""

    outcome: Outcome
    sentence: str


class Sample(NamedTuple):
    """What was seen; see `slsac.stats.summary.summarise`."""

    episodes: int
    return_mean: float
    return_se: float
    return_cvar: float
    cost_mean: float
    cost_se: float
    cost_cvar: float
    violation_rate: float
    length_mean: float
    cost_limit: float
    tail_fraction: float
    cost_max: float
    extra_means: Mapping[str, float]
    """Means of figures that only this env reports, such as ``success_mean``."""


class CvarStatement(NamedTuple):
    """The mean cost of the worst ``tail_fraction`` of episodes."""

    tail_fraction: float
    episodes: int
    """How many make up the tail."""
    too_few: bool
    """The tail has so few episodes that its estimate says little."""
    estimate: float
    interval: Interval
    """By the bootstrap; it knows nothing of costs that were never seen."""
    upper_bound: float | None
    """None where the largest possible cost is unknown."""
    lower_bound: float | None
    """None where costs are negative."""


class ViolationStatement(NamedTuple):
    """Episodes whose cost exceeds the limit."""

    episodes: int
    share: float
    upper_bound: float
    """Bound on the share among all episodes, not only those played."""
    lower_bound: float


class TailAtLimit(NamedTuple):
    """What a credible fit says about the cost limit."""

    violation_estimate: float
    """Share of episodes over the limit."""
    violation_bound: float
    """The theorem's eps * gamma(nu): at most this share exceeds the limit if CVaR does not."""
    violation_bound_applies: bool
    """CVaR of the sample is at most the limit."""


class TailStatement(NamedTuple):
    """A generalised Pareto distribution fitted to the worst episodes."""

    tail_fraction: float
    fit: TailFit
    at_limit: TailAtLimit | None
    """None unless the fit is credible."""


class CostStatements(NamedTuple):
    """What independent episode costs show."""

    cvar: list[CvarStatement]
    """The first is at the tail fraction of training."""
    violation: ViolationStatement
    tail: TailStatement
    signal: SignalDecomposition


class QuantileError(NamedTuple):
    """How far a quantile critic is off, in discounted cost."""

    nominal: list[float]
    observed: list[float]
    """Share of costs at or below the predicted quantile at each ``nominal`` level."""
    wasserstein: float
    delta: float
    """Root mean square error of the quantile function."""
    delta_interval: Interval
    delta_if_perfect: float
    """The delta that chance alone shows for a critic without error."""
    predicted_mean: float
    cvar_error_bound: float
    cvar_error_bound_undiscounted: float
    """The same in the cost of an episode."""


class MeanError(NamedTuple):
    """How far a critic of the mean is off, in discounted cost."""

    bias: float
    bias_interval: Interval
    predicted_mean: float


class Calibration(NamedTuple):
    """The cost critic's predictions against the costs that followed."""

    error: QuantileError | MeanError
    confidence: float
    episodes: int
    points: int
    realised_mean: float
    realised_zero_share: float
    """Share of points that were followed by no cost."""
    discount: float
    tail_fraction: float
    policy_sha256: str


class NotCalibrated(NamedTuple):
    """Why there is no calibration."""

    reason: str
    policy_sha256: str | None = None
    """The policy that was played in vain; None if none was played."""


class Certificate(NamedTuple):
    run: CertifiedRun
    protocol: Protocol
    verdict: Verdict
    sample: Sample
    statements: CostStatements
    calibration: Calibration | NotCalibrated


_ANY_CRITIC: dict[str, schema.Check] = {
    "kind": text,
    "confidence": number,
    "episodes": whole,
    "points": whole,
    "realised_mean": number,
    "realised_zero_share": number,
    "discount": number,
    "tail_fraction": number,
    "policy_sha256": text,
    "predicted_mean": number,
}
_QUANTILE_CRITIC: dict[str, schema.Check] = {
    "nominal": list_of(number),
    "observed": list_of(number),
    "wasserstein": number,
    "delta": number,
    "delta_interval": list_of(number, 2),
    "delta_if_perfect": number,
    "cvar_error_bound": number,
    "cvar_error_bound_undiscounted": number,
}
_MEAN_CRITIC: dict[str, schema.Check] = {"bias": number, "bias_interval": list_of(number, 2)}
CALIBRATIONS = {
    "quantile": record(_ANY_CRITIC | _QUANTILE_CRITIC, others=schema.nothing),
    "scalar": record(_ANY_CRITIC | _MEAN_CRITIC, others=schema.nothing),
}
NOT_CALIBRATED = record({"reason": text, "policy_sha256": Optional(text)}, others=schema.nothing)
"""What the part "calibration" of a ``certificate.json`` holds, by the critic's kind, or without."""


def to_json(certificate: Certificate) -> str:
    """The text of ``certificate.json``."""
    statements, tail = certificate.statements, certificate.statements.tail
    run = certificate.run._asdict()
    if not certificate.run.config_edited:
        del run["config_edited"]  # stated only where it is so, as older certificates have no word
    values = {
        "run": run,
        "protocol": certificate.protocol._asdict(),
        "verdict": certificate.verdict._asdict(),
        "sample": _sample_values(certificate.sample),
        "cvar": [statement._asdict() for statement in statements.cvar],
        "violation": statements.violation._asdict(),
        "tail": {
            "tail_fraction": tail.tail_fraction,
            **tail.fit._asdict(),
            **(tail.at_limit._asdict() if tail.at_limit else {}),
        },
        "signal": statements.signal._asdict(),
        "calibration": _calibration_values(certificate.calibration),
    }
    return json.dumps(values, indent=1)


def from_json(text: str) -> Certificate:
    """The certificate whose `to_json` is ``text``."""
    values = json.loads(text)
    return Certificate(
        run=CertifiedRun(**values["run"]),
        protocol=Protocol(**values["protocol"]),
        verdict=Verdict(**values["verdict"]),
        sample=sample_from(values["sample"]),
        statements=CostStatements(
            cvar=[CvarStatement(**_with_intervals(row)) for row in values["cvar"]],
            violation=ViolationStatement(**values["violation"]),
            tail=_tail_from(_with_intervals(values["tail"])),
            signal=SignalDecomposition(**values["signal"]),
        ),
        calibration=_calibration_from(values["calibration"]),
    )


def calibration_to_json(calibration: Calibration | NotCalibrated) -> str:
    """The text of ``calibration.json``."""
    return json.dumps(_calibration_values(calibration), indent=1)


def calibration_from_json(data: bytes) -> Calibration | NotCalibrated:
    """The calibration within a ``certificate.json``. Raise `schema.Misfit` unless it is whole."""
    values = schema.parse_json(data, record({"calibration": record({})}))["calibration"]
    CALIBRATIONS.get(values.get("kind"), NOT_CALIBRATED)(values, "calibration")
    return _calibration_from(values)


def sample_from(values: Mapping[str, Any]) -> Sample:
    """The values of a summary and ``cost_max`` as a record; all else are means of extras."""
    known = {name: values[name] for name in Sample._fields if name != "extra_means"}
    extra = {name: value for name, value in values.items() if name not in known}
    return Sample(**known, extra_means=extra)


def _sample_values(sample: Sample) -> dict[str, Any]:
    values = sample._asdict()
    cost_max, extra = values.pop("cost_max"), values.pop("extra_means")
    return {**values, **extra, "cost_max": cost_max}


def _tail_from(values: dict[str, Any]) -> TailStatement:
    at_limit = {name: values[name] for name in TailAtLimit._fields if name in values}
    return TailStatement(
        values["tail_fraction"],
        TailFit(**{name: values[name] for name in TailFit._fields}),
        TailAtLimit(**at_limit) if at_limit else None,
    )


def _calibration_values(calibration: Calibration | NotCalibrated) -> dict[str, Any]:
    values = calibration._asdict()
    if isinstance(calibration, NotCalibrated):
        return {name: value for name, value in values.items() if value is not None}
    error = values.pop("error")
    kind = "quantile" if isinstance(error, QuantileError) else "scalar"
    return {**error._asdict(), "kind": kind, **values}


def _calibration_from(values: Mapping[str, Any]) -> Calibration | NotCalibrated:
    if "reason" in values:
        return NotCalibrated(**values)
    rest = _with_intervals(values)
    error_type = QuantileError if rest.pop("kind") == "quantile" else MeanError
    error = error_type(**{name: rest.pop(name) for name in error_type._fields})
    return Calibration(error, **rest)


def _with_intervals(values: Mapping[str, Any]) -> dict[str, Any]:
    """JSON has lists only; here an interval is a pair."""
    return {
        name: tuple(value) if name.endswith("interval") and value is not None else value
        for name, value in values.items()
    }
