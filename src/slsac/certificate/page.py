"""The certificate as one HTML file that needs nothing else: no script, no network."""

from __future__ import annotations

import math
from html import escape

import numpy as np

from slsac.certificate.contents import (
    EDITED,
    Calibration,
    Certificate,
    CertifiedRun,
    CvarStatement,
    MeanError,
    NotCalibrated,
    Outcome,
    Protocol,
    TailStatement,
)
from slsac.formatting import cost_digits, number, percent

STYLE = """
:root { --ink: #1c2430; --soft: #5b6675; --line: #d9dfe7; --paper: #fff; --tint: #f4f6f9;
  --bar: #7d93ad; --limit: #b4232a; --kept: #1c7a4a; --unsure: #8a6100; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6eaf0; --soft: #9aa6b5; --line: #333d4a;
  --paper: #141a21; --tint: #1d252e; --bar: #6d88a8; --limit: #ff7b7f; --kept: #63cf96;
  --unsure: #e3b34f; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2.5rem 1.25rem; max-width: 50rem; color: var(--ink);
  background: var(--paper); font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin: 0; } h2 { font-size: 1.1rem; margin: 2.2rem 0 .5rem; }
p { margin: .4rem 0; } .soft, figcaption { color: var(--soft); font-size: .9rem; }
.verdict { margin: 1.4rem 0; padding: 1rem 1.2rem; background: var(--tint);
  border-left: .4rem solid var(--tone); border-radius: .3rem; }
.verdict strong { color: var(--tone); }
.kept { --tone: var(--kept); } .broken { --tone: var(--limit); } .unsure { --tone: var(--unsure); }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .6rem; border-bottom: 1px solid var(--line); text-align: right; }
th { color: var(--soft); font-weight: 600; font-size: .85rem; }
th:first-child, td:first-child { text-align: left; }
.facts td { text-align: left; } .facts td:first-child { color: var(--soft); width: 11rem; }
figure { margin: 1rem 0; break-inside: avoid; } svg { width: 100%; height: auto; }
svg text { fill: var(--soft); font-size: 12px; }
.scroll { overflow-x: auto; } .scroll td { white-space: nowrap; } code { overflow-wrap: anywhere; }
@media print { body { padding: 0; font-size: 12px; } h2 { break-after: avoid; } }
"""
OUTCOMES: dict[Outcome, tuple[str, str]] = {
    "kept": ("kept", "Kept"),
    "broken": ("broken", "Not kept"),
    "kept in sample": ("unsure", "Kept in the sample, not proven"),
    "over in sample": ("unsure", "Over the limit in the sample, not proven"),
}
"""The style and the heading of each verdict."""


def html_page(certificate: Certificate, costs: np.ndarray) -> str:
    """The whole document; ``costs`` are those of the episodes, for the histogram."""
    run, protocol = certificate.run, certificate.protocol
    tone, heading = OUTCOMES[certificate.verdict.outcome]
    sure = percent(protocol.confidence, digits=12)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Tail-risk certificate: {escape(run.algo)} on {escape(run.env)}</title>
<style>{STYLE}</style></head><body>
<h1>Tail-risk certificate</h1>
<p class="soft">{escape(run.algo)} on {escape(run.env)}, seed {run.seed}, trained for
{run.steps:,} steps; {protocol.actions} actions</p>
{f"<p><strong>{EDITED}</strong></p>" if run.config_edited else ""}
<div class="verdict {tone}"><p><strong>{heading}</strong></p>
<p>{escape(certificate.verdict.sentence)}</p></div>
{_sample(certificate, sure)}
{_histogram(costs, run.cost_limit)}
{_cvar(certificate.statements.cvar, cost_digits(run.cost_limit), sure)}
{_tail(certificate.statements.tail)}
{_calibration(certificate.calibration)}
{_protocol(run, protocol, sure)}
</body></html>"""


def _table(rows: list[tuple[str, str]]) -> str:
    """Names on the left, values on the right."""
    cells = "".join(f"<tr><td>{name}</td><td>{value}</td></tr>" for name, value in rows)
    return f'<table class="facts">{cells}</table>'


def _sample(certificate: Certificate, sure: str) -> str:
    sample, violation = certificate.sample, certificate.statements.violation
    return "<h2>What was seen</h2>" + _table(
        [
            ("Return", f"{number(sample.return_mean, 1)} ± {number(sample.return_se, 1)}"),
            (
                "Cost of an episode",
                f"{number(sample.cost_mean, 2)} ± {number(sample.cost_se, 2)}, largest "
                f"{sample.cost_max:.4g}; the limit is {certificate.run.cost_limit:g}",
            ),
            (
                "Episodes over the limit",
                f"{violation.episodes} of {certificate.protocol.episodes}; of all episodes at "
                f"least {percent(violation.lower_bound, towards='down')} and at most "
                f"<strong>{percent(violation.upper_bound, towards='up')}</strong>, each with "
                f"{sure} confidence",
            ),
        ]
    )


def _cvar(statements: list[CvarStatement], digits: int, sure: str) -> str:
    rows = ""
    for row in statements:
        upper, (low, high) = row.upper_bound, row.interval
        bound = "unknown" if upper is None else number(upper, digits, towards="up")
        few = " (too few)" if row.too_few else ""
        rows += (
            f"<tr><td>{percent(row.tail_fraction, digits=6)}</td><td>{row.episodes}{few}</td>"
            f"<td>{number(row.estimate, digits)}</td>"
            f"<td>{number(low, digits)} to {number(high, digits)}</td>"
            f"<td>{bound}</td></tr>"
        )
    return (
        "<h2>Mean cost of the worst episodes (CVaR)</h2>"
        f'<div class="scroll"><table><tr><th>worst share</th><th>episodes in it</th>'
        f"<th>estimate</th><th>{sure} interval</th><th>{sure} upper bound</th></tr>"
        f"{rows}</table></div>"
        '<p class="soft">The interval resamples the episodes and cannot know of costs that were '
        "never seen. The upper bound assumes nothing but the largest cost an episode can have, "
        "and holds for all rows together.</p>"
    )


def _tail(tail: TailStatement) -> str:
    head, fit = "<h2>Fitted tail (generalised Pareto)</h2>", tail.fit
    if tail.at_limit is None:
        return head + f"<p><strong>Not credible:</strong> {escape(fit.reason)}.</p>"
    assert fit.shape_interval is not None
    low, high = fit.shape_interval
    rows = [
        ("Threshold", f"{fit.threshold:.4g}, exceeded by {fit.exceedances} episodes"),
        (
            "Shape",
            f"{fit.shape:.2f} ({low:.2f} to {high:.2f}), by moments {fit.moments_shape:.2f}",
        ),
        ("Scale", f"{fit.scale:.4g}; by moments {fit.moments_scale:.4g}"),
        ("Test of fit", f"p = {fit.fit_p_value:.3f}"),
        ("Over the limit", f"{percent(tail.at_limit.violation_estimate)} of episodes by this fit"),
    ]
    if tail.at_limit.violation_bound_applies:
        bound = percent(tail.at_limit.violation_bound, towards="up")
        rows.append(("Bound", f"{bound} at most, if CVaR is at most the limit"))
    return head + _table(rows)


def _calibration(calibration: Calibration | NotCalibrated) -> str:
    head = "<h2>Is the cost critic right?</h2>"
    if isinstance(calibration, NotCalibrated):
        return head + f"<p><strong>Not measured:</strong> {escape(calibration.reason)}.</p>"
    error = calibration.error
    rows = [
        (
            "Measured on",
            f"{calibration.points} points of {calibration.episodes} episodes with sampled "
            f"actions; costs discounted at {calibration.discount:g}",
        ),
        (
            "Mean cost to go",
            f"predicted {error.predicted_mean:.3g}, realised {calibration.realised_mean:.3g}; "
            f"{100 * calibration.realised_zero_share:.0f} % of points were followed by no cost",
        ),
    ]
    if isinstance(error, MeanError):
        low, high = error.bias_interval
        rows.append(("Bias", f"{error.bias:+.3g} ({low:+.3g} to {high:+.3g})"))
        return head + _table(rows)
    low, high = error.delta_interval
    rows += [
        ("Wasserstein distance", f"{error.wasserstein:.3g}"),
        (
            "Quantile error δ",
            f"{error.delta:.3g} ({low:.3g} to {high:.3g}); "
            f"chance alone would show {error.delta_if_perfect:.3g}",
        ),
        (
            "So its CVaR may be off by",
            f"{error.cvar_error_bound:.3g} discounted, about "
            f"{error.cvar_error_bound_undiscounted:.3g} of cost in an episode",
        ),
    ]
    return head + _table(rows) + _reliability(error.nominal, error.observed)


def _protocol(run: CertifiedRun, protocol: Protocol, sure: str) -> str:
    return (
        "<h2>How it was made</h2>"
        + _table(
            [
                ("Episodes", f"{protocol.episodes}, seed {protocol.seed}, none of training"),
                ("Largest possible cost", _largest_cost(protocol)),
                ("Policy (SHA-256)", f"<code>{run.policy_sha256}</code>"),
            ]
        )
        + f'<p class="soft">Each bound holds with {sure} confidence by itself. Everything here is '
        "about the simulated task as it is started by its seeds, and about nothing else.</p>"
    )


def _largest_cost(protocol: Protocol) -> str:
    if protocol.largest_cost is None:
        return "unknown"
    steps = protocol.costly_steps
    counted = f"{steps} steps" if steps > 1 else "one step, which ends the episode,"
    return f"{protocol.largest_cost:g}: {counted} of at most {protocol.max_step_cost:g}"


def _histogram(costs: np.ndarray, limit: float) -> str:
    """Episode costs as bars, and the limit as a line."""
    width, height, left, bottom = 480, 210, 58, 48
    start = min(0.0, float(costs.min()))
    end = start + (max(float(costs.max()), limit, 1e-9) - start) * 1.08
    counts, edges = np.histogram(costs, bins=40, range=(start, end))
    ups = [tick for tick in ticks(0.0, max(1.0, float(counts.max())), 4) if tick == int(tick)]
    top = max(1, int(counts.max()))

    def x(cost: float) -> float:
        return left + (width - left - 10) * (cost - start) / (end - start)

    def y(count: float) -> float:
        return height - bottom - (height - bottom - 26) * count / top

    bars = "".join(
        f'<rect x="{x(low):.1f}" y="{y(count):.1f}" width="{x(high) - x(low) - 1:.1f}" '
        f'height="{y(0) - y(count):.1f}" fill="var(--{"limit" if low >= limit else "bar"})"/>'
        for count, low, high in zip(counts, edges, edges[1:], strict=False)
        if count
    )
    grid = "".join(
        f'<line x1="{left}" x2="{width - 10}" y1="{y(up):.1f}" y2="{y(up):.1f}" '
        f'stroke="var(--line)"/><text class="y-tick" x="{left - 6}" y="{y(up) + 4:.1f}" '
        f'text-anchor="end">{up:g}</text>'
        for up in ups
    )
    acrosses = "".join(
        f'<line x1="{x(cost):.1f}" x2="{x(cost):.1f}" y1="{y(0)}" y2="{y(0) + 5}" '
        f'stroke="var(--soft)"/><text class="x-tick" x="{x(cost):.1f}" y="{y(0) + 19}" '
        f'text-anchor="middle">{cost:.12g}</text>'
        for cost in ticks(start, end, 6)
    )
    middle = (26 + y(0)) / 2
    return (
        f'<figure style="max-width:36rem"><svg viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="Histogram of episode costs">{grid}{bars}{acrosses}'
        f'<line x1="{left}" x2="{width - 10}" y1="{y(0)}" y2="{y(0)}" stroke="var(--soft)"/>'
        f'<line x1="{x(limit):.1f}" x2="{x(limit):.1f}" y1="18" y2="{y(0)}" stroke="var(--limit)" '
        f'stroke-width="2" stroke-dasharray="5 3"/>'
        f'<text x="{x(limit):.1f}" y="13" text-anchor="middle" '
        f'style="fill:var(--limit)">limit {limit:g}</text>'
        f'<text x="{(left + width - 10) / 2}" y="{height - 6}" text-anchor="middle">'
        "cost of an episode</text>"
        f'<text transform="translate(13 {middle:.1f}) rotate(-90)" text-anchor="middle">'
        "episodes</text></svg>"
        f"<figcaption>Costs of the {len(costs)} episodes. Bars in the limit's colour lie wholly "
        "over it.</figcaption></figure>"
    )


def ticks(low: float, high: float, count: int) -> list[float]:
    """Round numbers from ``low`` to ``high``, about ``count`` of them."""
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = power * next(factor for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [number * step for number in range(first, last + 1)]


def _reliability(nominal: list[float], observed: list[float]) -> str:
    """Predicted against realised shares; the curve of a perfect critic is the diagonal."""
    size, edge = 280, 52

    def at(across: float, up: float) -> tuple[float, float]:
        return edge + (size - edge - 8) * across, size - edge - (size - edge - 8) * up

    def point(across: float, up: float) -> str:
        return "{:.1f},{:.1f}".format(*at(across, up))

    curve = " ".join(point(a, b) for a, b in zip(nominal, observed, strict=True))
    (x0, y0), (x1, y1) = at(0.0, 0.0), at(1.0, 1.0)
    shares = (0.0, 0.25, 0.5, 0.75, 1.0)
    acrosses = "".join(
        f'<line x1="{at(share, 0)[0]}" x2="{at(share, 0)[0]}" y1="{y0}" y2="{y0 + 4}" '
        f'stroke="var(--soft)"/><text class="x-tick" x="{at(share, 0)[0]}" y="{y0 + 17}" '
        f'text-anchor="middle">{share:g}</text>'
        for share in shares
    )
    ups = "".join(
        f'<line x1="{x0}" x2="{x1}" y1="{at(0, share)[1]}" y2="{at(0, share)[1]}" '
        f'stroke="var(--line)"/><text class="y-tick" x="{x0 - 6}" y="{at(0, share)[1] + 4}" '
        f'text-anchor="end">{share:g}</text>'
        for share in shares
    )
    middle = (y0 + y1) / 2
    return (
        f'<figure style="max-width:22rem"><svg viewBox="0 0 {size} {size}" role="img" '
        f'aria-label="Reliability curve"><rect x="{x0}" y="{y1}" width="{x1 - x0}" '
        f'height="{y0 - y1}" fill="none" stroke="var(--line)"/>{acrosses}{ups}'
        f'<line x1="{x0}" y1="{y0}" x2="{x1}" y2="{y1}" stroke="var(--soft)" '
        f'stroke-dasharray="4 4"/><polyline points="{curve}" fill="none" stroke="var(--bar)" '
        f'stroke-width="2.5"/><text x="{(x0 + x1) / 2}" y="{size - 14}" text-anchor="middle">'
        f'predicted share</text><text transform="translate(13 {middle:.1f}) rotate(-90)" '
        'text-anchor="middle">observed share</text></svg>'
        "<figcaption>The share of costs that should stay below a predicted quantile, and the "
        "share that did. Above the diagonal the critic is cautious, below it bold; many equal "
        "costs lift the curve by themselves.</figcaption></figure>"
    )
