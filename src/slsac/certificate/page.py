"""The certificate as one HTML file that needs nothing else: no script, no network."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np

from slsac.formatting import cost_digits

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
svg text { fill: var(--soft); font-size: 12px; } code { overflow-wrap: anywhere; }
@media print { body { padding: 0; font-size: 12px; } h2 { break-after: avoid; } }
"""
OUTCOMES = {
    "kept": ("kept", "Kept"),
    "broken": ("broken", "Not kept"),
    "kept in sample": ("unsure", "Kept in the sample, not proven"),
    "over in sample": ("unsure", "Not kept in the sample, not proven"),
}


def page(certificate: dict[str, Any], costs: np.ndarray) -> str:
    """The whole document."""
    run, protocol = certificate["run"], certificate["protocol"]
    tone, heading = OUTCOMES[certificate["verdict"]["outcome"]]
    sure = f"{100 * protocol['confidence']:g} %"
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Tail-risk certificate: {escape(run["algo"])} on {escape(run["env"])}</title>
<style>{STYLE}</style></head><body>
<h1>Tail-risk certificate</h1>
<p class="soft">{escape(run["algo"])} on {escape(run["env"])}, seed {run["seed"]}, trained for
{run["steps"]:,} steps; {protocol["actions"]} actions</p>
<div class="verdict {tone}"><p><strong>{heading}</strong></p>
<p>{escape(certificate["verdict"]["sentence"])}</p></div>
{_sample(certificate, sure)}
{_histogram(costs, run["cost_limit"])}
{_cvar(certificate, sure)}
{_tail(certificate["tail"])}
{_calibration(certificate["calibration"])}
{_protocol(certificate, sure)}
</body></html>"""


def _facts(rows: list[tuple[str, str]]) -> str:
    cells = "".join(f"<tr><td>{name}</td><td>{value}</td></tr>" for name, value in rows)
    return f'<table class="facts">{cells}</table>'


def _sample(certificate: dict[str, Any], sure: str) -> str:
    sample, violation = certificate["sample"], certificate["violation"]
    limit, n = certificate["run"]["cost_limit"], certificate["protocol"]["episodes"]
    return "<h2>What was seen</h2>" + _facts(
        [
            ("Return", f"{sample['return_mean']:.1f} ± {sample['return_se']:.1f}"),
            (
                "Cost of an episode",
                f"{sample['cost_mean']:.2f} ± {sample['cost_se']:.2f}, largest "
                f"{sample['cost_max']:.4g}; the limit is {limit:g}",
            ),
            (
                "Episodes over the limit",
                f"{violation['episodes']} of {n}; of all episodes at least "
                f"{100 * violation['lower_bound']:.3g} % and at most "
                f"<strong>{100 * violation['upper_bound']:.3g} %</strong>, each with {sure} "
                "confidence",
            ),
        ]
    )


def _cvar(certificate: dict[str, Any], sure: str) -> str:
    rows, digits = "", cost_digits(certificate["run"]["cost_limit"])
    for one in certificate["cvar"]:
        bound = "unknown" if one["upper_bound"] is None else f"{one['upper_bound']:.{digits}f}"
        low, high = one["interval"]
        few = " (too few)" if one["too_few"] else ""
        rows += (
            f"<tr><td>{100 * one['tail_fraction']:g} %</td><td>{one['episodes']}{few}</td>"
            f"<td>{one['estimate']:.{digits}f}</td><td>{low:.{digits}f} to {high:.{digits}f}</td>"
            f"<td>{bound}</td></tr>"
        )
    return (
        "<h2>Mean cost of the worst episodes (CVaR)</h2>"
        f"<table><tr><th>worst share</th><th>episodes in it</th><th>estimate</th>"
        f"<th>{sure} interval</th><th>{sure} upper bound</th></tr>{rows}</table>"
        '<p class="soft">The interval resamples the episodes and cannot know of costs that were '
        "never seen. The upper bound assumes nothing but the largest cost an episode can have, "
        "and holds for all rows together.</p>"
    )


def _tail(tail: dict[str, Any]) -> str:
    head = "<h2>Fitted tail (generalised Pareto)</h2>"
    if not tail["credible"]:
        return head + f"<p><strong>Not credible:</strong> {escape(tail['reason'])}.</p>"
    low, high = tail["shape_interval"]
    rows = [
        ("Threshold", f"{tail['threshold']:.4g}, exceeded by {tail['exceedances']} episodes"),
        (
            "Shape",
            f"{tail['shape']:.2f} ({low:.2f} to {high:.2f}), "
            f"by moments {tail['moments_shape']:.2f}",
        ),
        ("Scale", f"{tail['scale']:.4g}; by moments {tail['moments_scale']:.4g}"),
        ("Test of fit", f"p = {tail['fit_p_value']:.3f}"),
        ("Over the limit", f"{100 * tail['violation_estimate']:.3g} % of episodes by this fit"),
    ]
    if tail["violation_bound_applies"]:
        rows.append(
            (
                "Bound",
                f"{100 * tail['violation_bound']:.3g} % at most, if CVaR is at most the limit",
            )
        )
    return head + _facts(rows)


def _calibration(found: dict[str, Any]) -> str:
    head = "<h2>Is the cost critic right?</h2>"
    if "reason" in found:
        return head + f"<p><strong>Not measured:</strong> {escape(found['reason'])}.</p>"
    base = (
        f"{found['points']} points of {found['episodes']} episodes with sampled actions; costs "
        f"discounted at {found['discount']:g}"
    )
    rows = [
        ("Measured on", base),
        (
            "Mean cost to go",
            f"predicted {found['predicted_mean']:.3g}, realised {found['realised_mean']:.3g}; "
            f"{100 * found['realised_zero_share']:.0f} % of points were followed by no cost",
        ),
    ]
    if found["kind"] == "scalar":
        low, high = found["bias_interval"]
        rows.append(("Bias", f"{found['bias']:+.3g} ({low:+.3g} to {high:+.3g})"))
        return head + _facts(rows)
    low, high = found["delta_interval"]
    rows += [
        ("Wasserstein distance", f"{found['wasserstein']:.3g}"),
        (
            "Quantile error δ",
            f"{found['delta']:.3g} ({low:.3g} to {high:.3g}); "
            f"chance alone would show {found['delta_if_perfect']:.3g}",
        ),
        (
            "So its CVaR may be off by",
            f"{found['cvar_error_bound']:.3g} discounted, about "
            f"{found['cvar_error_bound_undiscounted']:.3g} of cost in an episode",
        ),
    ]
    return head + _facts(rows) + _reliability(found["nominal"], found["observed"])


def _protocol(certificate: dict[str, Any], sure: str) -> str:
    run, protocol = certificate["run"], certificate["protocol"]
    largest, steps = protocol["largest_cost"], protocol["costly_steps"]
    return (
        "<h2>How it was made</h2>"
        + _facts(
            [
                ("Episodes", f"{protocol['episodes']}, seed {protocol['seed']}, none of training"),
                (
                    "Largest possible cost",
                    "unknown"
                    if largest is None
                    else f"{largest:g}: "
                    + (f"{steps} steps" if steps > 1 else "one step, which ends the episode,")
                    + f" of at most {protocol['max_step_cost']:g}",
                ),
                ("Policy (SHA-256)", f"<code>{run['policy_sha256']}</code>"),
            ]
        )
        + f'<p class="soft">Each bound holds with {sure} confidence by itself. Everything here is '
        "about the simulated task as it is started by its seeds, and about nothing else.</p>"
    )


def _histogram(costs: np.ndarray, limit: float) -> str:
    """Episode costs as bars, and the limit as a line."""
    width, height, left, bottom = 760, 200, 40, 30
    start = min(0.0, float(costs.min()))
    end = start + (max(float(costs.max()), limit, 1e-9) - start) * 1.08
    counts, edges = np.histogram(costs, bins=40, range=(start, end))
    top = max(1, int(counts.max()))

    def x(cost: float) -> float:
        return left + (width - left - 10) * (cost - start) / (end - start)

    def y(count: float) -> float:
        return height - bottom - (height - bottom - 20) * count / top

    bars = "".join(
        f'<rect x="{x(low):.1f}" y="{y(count):.1f}" width="{x(high) - x(low) - 1:.1f}" '
        f'height="{y(0) - y(count):.1f}" fill="var(--{"limit" if low >= limit else "bar"})"/>'
        for count, low, high in zip(counts, edges, edges[1:], strict=False)
        if count
    )
    side = "end" if limit > start + 0.8 * (end - start) else "start"
    shift = -6 if side == "end" else 6
    return (
        f'<figure><svg viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="Histogram of episode costs">{bars}'
        f'<line x1="{left}" x2="{width - 10}" y1="{y(0)}" y2="{y(0)}" stroke="var(--line)"/>'
        f'<line x1="{x(limit):.1f}" x2="{x(limit):.1f}" y1="8" y2="{y(0)}" stroke="var(--limit)" '
        f'stroke-width="2" stroke-dasharray="5 3"/>'
        f'<text x="{x(limit) + shift:.1f}" y="18" text-anchor="{side}" '
        f'style="fill:var(--limit)">limit {limit:g}</text>'
        f'<text x="{left}" y="{height - 8}">{start:.3g}</text>'
        f'<text x="{width - 10}" y="{height - 8}" text-anchor="end">{end:.3g}</text>'
        f'<text x="{left - 6}" y="{y(top) + 4:.1f}" text-anchor="end">{top}</text></svg>'
        "<figcaption>Cost of each episode (across) and how many had it.</figcaption></figure>"
    )


def _reliability(nominal: list[float], observed: list[float]) -> str:
    """Predicted against realised shares; a critic that is right is on the diagonal."""
    size, edge = 260, 36

    def at(across: float, up: float) -> tuple[float, float]:
        return edge + (size - edge - 8) * across, size - edge - (size - edge - 8) * up

    def point(across: float, up: float) -> str:
        return "{:.1f},{:.1f}".format(*at(across, up))

    curve = " ".join(point(a, b) for a, b in zip(nominal, observed, strict=True))
    (x0, y0), (x1, y1) = at(0.0, 0.0), at(1.0, 1.0)
    return (
        f'<figure style="max-width:22rem"><svg viewBox="0 0 {size} {size}" role="img" '
        f'aria-label="Reliability curve"><rect x="{x0}" y="{y1}" width="{x1 - x0}" '
        f'height="{y0 - y1}" fill="none" stroke="var(--line)"/>'
        f'<line x1="{x0}" y1="{y0}" x2="{x1}" y2="{y1}" stroke="var(--soft)" '
        f'stroke-dasharray="4 4"/><polyline points="{curve}" fill="none" stroke="var(--bar)" '
        f'stroke-width="2.5"/><text x="{x0}" y="{size - 16}">0</text>'
        f'<text x="{x1}" y="{size - 16}" text-anchor="end">1</text>'
        f'<text x="{x0 - 6}" y="{y1 + 10}" text-anchor="end">1</text></svg>'
        "<figcaption>Share of costs that should stay below a predicted quantile (across) and the "
        "share that did (up). Above the diagonal the critic is cautious, below it bold; many equal "
        "costs lift the curve by themselves.</figcaption></figure>"
    )
