"""Draw the pictures of the README and of docs/ from the recorded runs under results/.

    python -m tools.figures                 write docs/pictures/*.svg
    python -m tools.figures --preview DIR   write the same pictures as PNG files into DIR

Every picture has an opaque light ground, so that it reads the same on a light and on a dark page.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from slsac.report.curves import COLOURS, colours, evaluation_band, training_band
from slsac.report.published import reference
from slsac.report.read import Group, find_runs, group_runs
from slsac.report.table import summarise_runs
from slsac.tasks import family

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "results"
PICTURES = ROOT / "docs" / "pictures"
GROUND, INK, FAINT = "#ffffff", "#24292f", "#8b949e"
# Any: matplotlib types the keys of a style as a list of every one that it knows.
STYLE: Any = {
    "font.size": 9, "axes.titlesize": 10, "axes.titlelocation": "left", "axes.titleweight": "bold",
    "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": FAINT, "xtick.color": INK,
    "ytick.color": INK, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
    "grid.alpha": 0.25, "axes.axisbelow": True, "figure.facecolor": GROUND,
    "savefig.facecolor": GROUND, "svg.hashsalt": "slsac", "legend.frameon": False,
}  # fmt: skip

LIMIT_LINE: dict[str, Any] = {"color": INK, "linestyle": "--", "linewidth": 1.1}


def short_name(task: str) -> str:
    """``HalfCheetah`` for ``SafetyHalfCheetahVelocity-v1``."""
    return task.removeprefix("Safety").partition("-")[0].removesuffix("Velocity")


def follows_the_paper(group: Group) -> bool:
    """Whether a group was recorded as ``results/<algorithm>/<task>/seed<k>``; others have a folder
    of their own above that."""
    return len(group.runs[0].path.relative_to(RESULTS).parts) == 3


def group_at(folder: str) -> Group:
    """The runs at or below a folder of results/, which must differ in their seed alone."""
    (group,), _ = group_runs(find_runs([RESULTS / folder]))
    return group


def plot_limit(axis: Any, limit: float) -> None:
    axis.axhline(limit, **LIMIT_LINE)


def magnify_costs_below(axis: Any, limit: float) -> None:
    """Linear up to the limit, logarithmic above: costs before the constraint dwarf the limit."""
    axis.set_yscale("symlog", linthresh=limit)
    highest = max(axis.get_ylim()[1], 1.5 * limit)
    ticks = [tick * limit for tick in (0, 1, 2, 4, 10, 20, 40) if tick * limit <= 1.05 * highest]
    axis.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.yaxis.set_minor_locator(NullLocator())
    axis.set_ylim(0, highest)


def plot_group(axis: Any, group: Group, name: str, colour: str) -> None:
    """Training episodes as a line, deterministic evaluations as points."""
    line, points = training_band(group, name), evaluation_band(group, f"{name}_mean")
    axis.plot(line.steps, line.mean, color=colour, linewidth=1.3)
    axis.plot(points.steps, points.mean, "o", color=colour, markersize=3, markeredgewidth=0)


def count_steps_in_thousands(axis: Any) -> None:
    axis.xaxis.set_major_formatter(lambda steps, _: f"{steps / 1000:g}k" if steps else "0")
    axis.set_xlim(left=0)


LEARNED = ("Hopper", "Walker2d", "CarCircle1", "CarGoal1")


def learned_policy() -> Figure:
    """SL-SAC 2 on four tasks: evaluations of each seed, the paper's return, and the limit."""
    groups = {
        short_name(group.env): group for group in summarise_runs([RESULTS / "sl-sac-2"]).groups
    }
    figure = Figure(figsize=(10, 4.4), layout="constrained")
    axes = figure.subplots(2, len(LEARNED), height_ratios=(3, 2), sharex="col")
    for (of_return, of_cost), name in zip(axes.T, LEARNED, strict=True):
        group = groups[name]
        published = reference("sl-sac", group.env)
        assert published is not None
        for run in group.runs:
            steps = [line["step"] for line in run.evaluations]
            for axis, figures in ((of_return, "return_mean"), (of_cost, "cost_mean")):
                axis.plot(steps, [line[figures] for line in run.evaluations], "o-",
                          color=COLOURS["sl-sac-2"], linewidth=1.2, markersize=3)  # fmt: skip
        of_return.axhline(published.episode_return, color=COLOURS["sl-sac"], linestyle=":")
        of_return.set_title(name)
        magnify_costs_below(of_cost, group.config.cost_limit)
        plot_limit(of_cost, group.config.cost_limit)
        count_steps_in_thousands(of_cost)
    axes[0][0].set_ylabel("return")
    axes[1][0].set_ylabel("cost")
    figure.legend(
        handles=[
            Line2D([], [], color=COLOURS["sl-sac-2"], marker="o", markersize=3,
                   label="SL-SAC 2, a line for each seed"),
            Line2D([], [], color=COLOURS["sl-sac"], linestyle=":",
                   label="the paper's SL-SAC after 1,000,000 steps"),
            Line2D([], [], label="cost limit", **LIMIT_LINE),
        ],
        loc="outside upper center", ncols=3,
    )  # fmt: skip
    return figure


def family_curves(name: str) -> Figure:
    """Return and cost of every run of a family of tasks that follows the paper's settings."""
    groups = summarise_runs([RESULTS]).groups
    return curves([g for g in groups if family(g.env) == name and follows_the_paper(g)])


def six_algorithms() -> Figure:
    """All off-policy algorithms on Hopper with 60,000 steps."""
    return curves(summarise_runs([RESULTS / "short"]).groups)


def curves(groups: Sequence[Group]) -> Figure:
    """A column for each task, its return above its cost; a single task has them side by side."""
    tasks = list(dict.fromkeys(group.env for group in groups))
    columns = 4 if len(tasks) == 4 else 3
    colour = colours(groups)
    if len(tasks) == 1:
        figure = Figure(figsize=(9, 3.6), layout="constrained")
        places = [tuple(figure.subplots(1, 2))]
    else:
        bands = -(-len(tasks) // columns)
        figure = Figure(figsize=(9.6, 4.2 * bands + 0.5), layout="constrained")
        axes = figure.subplots(2 * bands, columns, squeeze=False)
        places = [
            (axes[2 * band][column], axes[2 * band + 1][column])
            for band in range(bands)
            for column in range(columns)
        ]
    for spare in places[len(tasks) :]:
        for axis in spare:
            axis.set_axis_off()
    for (of_return, of_cost), task in zip(places, tasks, strict=False):
        members = [group for group in groups if group.env == task]
        for group in members:
            plot_group(of_return, group, "return", colour[group.algo])
            plot_group(of_cost, group, "cost", colour[group.algo])
        limit = members[0].config.cost_limit
        magnify_costs_below(of_cost, limit)
        plot_limit(of_cost, limit)
        of_return.set_title(f"{short_name(task)}: return")
        of_cost.set_title("cost", fontweight="normal")
        for axis in (of_return, of_cost):
            count_steps_in_thousands(axis)
    handles = [Line2D([], [], color=shade, label=algo) for algo, shade in colour.items()]
    handles.append(Line2D([], [], label="cost limit", **LIMIT_LINE))
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles))
    return figure


def tail_of_costs() -> Figure:
    """What CVaR is: costs of training episodes of SL-SAC on Walker2d, the last 100,000 steps."""
    group = group_at("sl-sac/SafetyWalker2dVelocity-v1")
    config = group.config
    begin = config.steps - 100_000
    costs = np.sort([line["cost"] for line in group.runs[0].episodes if line["step"] > begin])
    worse = len(costs) - math.ceil(config.tail_fraction * len(costs))
    mean, cvar = float(costs.mean()), float(costs[worse:].mean())
    figure = Figure(figsize=(7, 3), layout="constrained")
    axis = figure.subplots()
    axis.hist(
        [costs[:worse], costs[worse:]], list(range(0, int(costs.max()) + 4, 4)), stacked=True,
        color=[FAINT, COLOURS["sl-sac"]], label=["better half", "worse half; its mean is CVaR"],
    )  # fmt: skip
    for value, label, side in (
        (mean, f"mean {mean:.1f}", "left"),
        (config.cost_limit, f"limit {config.cost_limit:g}", "left"),
        (cvar, f"CVaR {cvar:.1f}", "right"),
    ):
        style = LIMIT_LINE if value == config.cost_limit else {"color": INK, "linewidth": 1.4}
        axis.axvline(value, **style)
        axis.annotate(
            label, (value, 0.95), xycoords=("data", "axes fraction"), va="center",
            ha="right" if side == "left" else "left", xytext=(-4 if side == "left" else 4, 0),
            textcoords="offset points",
        )  # fmt: skip
    axis.set_xlabel("cost of an episode")
    axis.set_ylabel("episodes")
    axis.legend(loc="center right")
    return figure


def reliability() -> Figure:
    """Predicted against observed quantiles of the cost critics of three recorded runs."""
    figure = Figure(figsize=(4.6, 3.8), layout="constrained")
    axis = figure.subplots()
    axis.plot([0, 1], [0, 1], color=INK, linestyle="--", linewidth=1)
    for folder, label, colour in (
        ("sl-sac/SafetyHopperVelocity-v1", "SL-SAC, Hopper", COLOURS["sl-sac"]),
        ("sl-sac/SafetyWalker2dVelocity-v1", "SL-SAC, Walker2d", COLOURS["td3-lag"]),
        ("wcsac/SafetyHalfCheetahVelocity-v1", "WCSAC, HalfCheetah", COLOURS["wcsac"]),
    ):
        curve = json.loads((RESULTS / folder / "seed0" / "calibration.json").read_text())
        axis.plot(curve["nominal"], curve["observed"], "o-", color=colour, markersize=3,
                  label=label)  # fmt: skip
    axis.set_xlabel("predicted quantile")
    axis.set_ylabel("share of costs below it")
    axis.legend(fontsize=8)
    return figure


PICTURE_MAKERS: dict[str, Callable[[], Figure]] = {
    "learned-policy": learned_policy,
    "velocity": lambda: family_curves("velocity"),
    "navigation": lambda: family_curves("navigation"),
    "driving": lambda: family_curves("driving"),
    "hopper-60000": six_algorithms,
    "tail": tail_of_costs,
    "reliability": reliability,
}


def draw(folder: Path, suffix: str) -> None:
    """Write every picture; the same files under results/ give the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    metadata = {"Date": None} if suffix == ".svg" else {"Software": None}
    with mpl.rc_context(STYLE):
        for name, make in PICTURE_MAKERS.items():
            make().savefig(folder / f"{name}{suffix}", dpi=120, metadata=metadata)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.figures")
    parser.add_argument("--preview", type=Path, help="write PNG files into this folder instead")
    preview = parser.parse_args().preview
    draw(preview or PICTURES, ".png" if preview else ".svg")


if __name__ == "__main__":
    main()
