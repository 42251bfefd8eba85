"""Recorded certificates, to look at or to change."""

from __future__ import annotations

from slsac.certificate.contents import Certificate, from_json
from tests.support.paths import ROOT


def certificate_of(algo: str) -> Certificate:
    """Of the recorded Hopper run: ``sl-sac`` has a quantile critic, ``sac-lag`` a scalar one."""
    run = ROOT / "results" / algo / "SafetyHopperVelocity-v1" / "seed0"
    return from_json((run / "certificate.json").read_text())


def with_bounds(certificate: Certificate) -> Certificate:
    """Bounds between two numbers of a decimal, with a confidence of eight nines."""
    statements = certificate.statements
    violation = statements.violation._replace(lower_bound=0.010229, upper_bound=0.014861)
    first, *others = statements.cvar
    return certificate._replace(
        protocol=certificate.protocol._replace(confidence=0.99999999),
        statements=statements._replace(
            violation=violation, cvar=[first._replace(upper_bound=7.04), *others]
        ),
    )


def with_small_costs(certificate: Certificate) -> Certificate:
    """Costs of a few hundredths under a limit of a tenth."""
    first, *others = certificate.statements.cvar
    first = first._replace(estimate=0.04, interval=(0.02, 0.06), upper_bound=0.12)
    return certificate._replace(
        run=certificate.run._replace(cost_limit=0.1),
        statements=certificate.statements._replace(cvar=[first, *others]),
    )
