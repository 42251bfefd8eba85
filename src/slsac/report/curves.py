"""``slsac plot``: training curves, mean and standard deviation over seeds.

The arithmetic is here once; the report's charts are drawn from the same series.
"""

from __future__ import annotations

import io
import itertools
import math
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from slsac.errors import InvalidInput
from slsac.formatting import printable
from slsac.report.read import Group, Run
from slsac.report.table import algorithms, marks, summarise_runs, task_label
from slsac.runs.layout import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GRID_POINTS = 150
COLOURS = {
    "sl-sac-2": "#0b62c4", "sl-sac": "#c2410c", "wcsac": "#006d8f", "sac-lag": "#0f8a66",
    "td3-lag": "#9333a8", "sac-pid": "#a16b00", "td3-pid": "#c5215d", "ppo-lag": "#4d6b1c",
    "cpo": "#5b5f6b",
}  # fmt: skip
SPARE_COLOURS = ("#8a4b2a", "#5a3fc0", "#3f7d20", "#b0307a", "#6b6b00")
MARKERS = "osD^vhpX"
LINES: tuple[Literal["-", "--", "-.", ":"], ...] = ("-", "--", "-.", ":")
OF_EPISODES = ("return", "cost")
"""What is drawn from the training episodes, smoothed, with the evaluations as points."""
OLDER_NAMES = {"window_cvar": "window_signal"}
"""The oldest recorded runs' name of a logged figure."""
UNDATED: dict[str, dict[str, Any]] = {
    ".png": {"Software": None}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}
}  # fmt: skip
"""The endings of a picture's name, and the metadata that keeps its bytes the same."""
IN_COST_UNITS = ("cost", "window_mean", "window_cvar")
"""What the cost limit is drawn beside."""


class Band(NamedTuple):
    """A quantity over training: mean and standard deviation over seeds on a grid of steps."""

    steps: np.ndarray
    mean: np.ndarray
    deviation: np.ndarray
    """NaN where fewer than two seeds have a value."""


def window_steps(run: Run) -> int:
    """Width of the smoothing window in environment steps: a 50th of the run, or 4 episodes."""
    return max(run.config.steps // 50, 4 * run.horizon)


def smoothed(run: Run, name: str, grid: np.ndarray) -> np.ndarray:
    """Mean of ``name`` over the training episodes that ended in the window before each point."""
    steps = np.array([line["step"] for line in run.episodes], dtype=np.int64)
    sums = np.concatenate([[0.0], np.cumsum([line[name] for line in run.episodes])])
    last = np.searchsorted(steps, grid, side="right")
    first = np.searchsorted(steps, grid - window_steps(run), side="right")
    counts = last - first
    with np.errstate(invalid="ignore"):
        means = (sums[last] - sums[first]) / np.where(counts > 0, counts, np.nan)
    # An unfinished run has no curve beyond its last episode.
    return np.where(grid <= (steps[-1] if len(steps) else 0) + run.horizon, means, np.nan)


def grid_of(group: Group) -> np.ndarray:
    """Steps at which curves are drawn, the last one the run's end."""
    points = min(GRID_POINTS, group.config.steps)
    return np.unique(np.linspace(0, group.config.steps, points + 1).astype(np.int64)[1:])


def training_band(group: Group, name: str) -> Band:
    """Smoothed ``return`` or ``cost`` of training episodes."""
    grid = grid_of(group)
    return over_seeds(grid, np.array([smoothed(run, name, grid) for run in group.runs]))


def logged(line: dict[str, Any], name: str) -> float | None:
    """A figure of one epoch by its present name; None where the line has none."""
    value = line.get(name, line.get(OLDER_NAMES.get(name, name)))
    return None if value is None or not math.isfinite(value) else float(value)


def logged_band(group: Group, name: str) -> Band:
    """A quantity that is logged after each epoch."""

    def value(line: dict[str, Any]) -> float:
        number = logged(line, name)
        return float("nan") if number is None else number

    by_run = [{line["step"]: value(line) for line in run.progress} for run in group.runs]
    return _at_common_steps(by_run)


def evaluation_band(group: Group, name: str) -> Band:
    """Mean ``return_mean`` or ``cost_mean`` of the deterministic evaluations during training."""
    by_run = [{line["step"]: line[name] for line in run.evaluations} for run in group.runs]
    return _at_common_steps(by_run)


def _at_common_steps(by_run: Sequence[dict[int, float]]) -> Band:
    steps = sorted(set().union(*by_run))
    values = [[run.get(step, np.nan) for step in steps] for run in by_run]
    return over_seeds(np.array(steps, dtype=np.int64), np.array(values, dtype=np.float64))


def over_seeds(steps: np.ndarray, values: np.ndarray) -> Band:
    """Mean and standard deviation of ``values``, ``[runs, steps]``, over the runs that have one."""
    there = ~np.isnan(values)
    counts = there.sum(axis=0)
    filled = np.where(there, values, 0.0)
    mean = filled.sum(axis=0) / np.where(counts > 0, counts, np.nan)
    squares = np.where(there, (values - mean) ** 2, 0.0).sum(axis=0)
    deviation = np.sqrt(squares / np.where(counts > 1, counts - 1, np.nan))
    return Band(steps, mean, deviation)


def colours(groups: Iterable[Group]) -> dict[str, str]:
    """A colour for each algorithm, the same in every picture."""
    chosen, spare = {}, 0
    for algo in algorithms(groups):
        if algo in COLOURS:
            chosen[algo] = COLOURS[algo]
        else:
            chosen[algo] = SPARE_COLOURS[spare % len(SPARE_COLOURS)]
            spare += 1
    return chosen


class Look(NamedTuple):
    """How a group's curve is drawn: colour and marker show the algorithm, the line its settings."""

    colour: str
    marker: str
    line: Literal["-", "--", "-.", ":"]


def curve_label(group: Group, mark: dict[str, str]) -> str:
    """The legend's text: the algorithm, the mark of its settings, and whether it is stale."""
    return task_label(group._replace(env=group.algo), mark)


def looks(groups: Sequence[Group], mark: dict[str, str]) -> dict[str, Look]:
    """A look for every label of the legend, in the order of the table's columns."""
    by_label = {}
    for number, (algo, colour) in enumerate(colours(groups).items()):
        labels = dict.fromkeys(curve_label(group, mark) for group in groups if group.algo == algo)
        for label, line in zip(labels, itertools.cycle(LINES)):
            by_label[label] = Look(colour, MARKERS[number % len(MARKERS)], line)
    return by_label


def write_curves(
    runs: Sequence[Path],
    out: Path,
    names: Sequence[str] = OF_EPISODES,
) -> None:
    """Draw the training curves of all runs at or below ``runs`` as PNG, SVG or PDF.

    Args:
        names: what to draw: return, cost, or any other figure that is logged after each epoch.
    """
    if out.suffix not in UNDATED:
        raise InvalidInput(f"out is {str(out)!r}; its name must end in .png, .svg or .pdf")
    try:
        import matplotlib as mpl
    except ImportError:
        raise InvalidInput(
            "plots need the extra 'report'; run `pip install 'slsac[report]'`"
        ) from None
    groups = summarise_runs(runs).groups
    require_logged(groups, names)
    figure = curves_figure(groups, names)
    out.parent.mkdir(parents=True, exist_ok=True)
    # The same runs give the same bytes, with text as text, which makes smaller files.
    with (
        mpl.rc_context({"svg.hashsalt": "slsac", "svg.fonttype": "none", "pdf.fonttype": 42}),
        warnings.catch_warnings(),
    ):
        # A name may have characters that the font lacks; a box stands for them.
        warnings.filterwarnings("ignore", message="Glyph")
        drawn = io.BytesIO()
        figure.savefig(drawn, dpi=150, metadata=UNDATED[out.suffix], format=out.suffix[1:])
    write_atomically(out, drawn.getvalue())


def curves_figure(groups: Sequence[Group], names: Sequence[str]) -> Figure:
    """A row of panels for each task; see `write_curves`."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.ticker import MaxNLocator

    mark = marks(groups)
    tasks = list(dict.fromkeys(group.env for group in groups))
    by_label = looks(groups, mark)
    panels = [(task, name) for task in tasks for name in names]
    columns = min(2, len(names))
    rows = len(tasks) * math.ceil(len(names) / columns)
    figure = Figure(figsize=(5.5 * columns, 3.6 * rows + 0.9), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    # A task begins a row of its own; with an odd number of names its last row has a gap.
    by_task = axes.reshape(len(tasks), -1)
    for spare in by_task[:, len(names) :].flat:
        spare.set_axis_off()
    for axis, (task, name) in zip(by_task[:, : len(names)].flat, panels, strict=True):
        members = [group for group in groups if group.env == task]
        for group in members:
            _draw(axis, group, name, by_label[curve_label(group, mark)])
        axis.set_xlabel("environment steps")
        axis.set_ylabel(f"{name} of an episode" if name in OF_EPISODES else _literal(name))
        axis.set_title(_literal(f"{task}: {name}"), fontsize=10, loc="left")
        axis.set_xlim(0, 1.03 * max(group.config.steps for group in members))
        axis.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10], integer=True))
        axis.xaxis.set_major_formatter(_steps_text)
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
        if name in IN_COST_UNITS:
            _draw_limits(axis, members)
    handles = [
        Line2D([], [], color=look.colour, linestyle=look.line, marker=look.marker, markersize=4,
               label=_literal(label))
        for label, look in by_label.items()
    ]  # fmt: skip
    figure.legend(handles=handles, loc="outside upper center", ncols=min(3 * columns, len(handles)),
                  frameon=False)  # fmt: skip
    figure.supxlabel(
        _literal(caption(groups, mark, names)), x=0.005, ha="left", fontsize=7, color="0.35"
    )
    return figure


def _steps_text(step: float, _: int | None = None) -> str:
    """A number of steps in few characters: 500, 20k, 1.5M."""
    for scale, suffix in ((1e6, "M"), (1e3, "k")):
        if abs(step) >= scale:
            return f"{step / scale:g}{suffix}"
    return f"{step:g}"


def _literal(text: str) -> str:
    """Text in which a dollar sign does not begin a formula."""
    return printable(text).replace("$", r"\$")


def require_logged(groups: Sequence[Group], names: Sequence[str]) -> None:
    """Raise InvalidInput unless some run has each of ``names``."""
    lines = (line for group in groups for run in group.runs for line in run.progress)
    newer = {old: name for name, old in OLDER_NAMES.items()}
    columns = {newer.get(name, name) for line in lines for name in line}
    known = (columns - {"step", "epoch"}) | {*OF_EPISODES}
    for name in names:
        if name not in known:
            early = "" if columns else "; the rest is logged when an epoch ends, and none has yet"
            raise InvalidInput(
                f"--of {name!r} is not logged; these runs have {', '.join(sorted(known))}{early}"
            )


def caption(groups: Sequence[Group], mark: dict[str, str], names: Sequence[str]) -> str:
    """The meaning of lines, bands and points, the window, and the settings of each mark."""
    windows = sorted({window_steps(group.runs[0]) for group in groups})
    parts = []
    if any(name in OF_EPISODES for name in names):
        width = " / ".join(f"{window:,}" for window in windows)
        parts.append(
            f"Lines of return and cost: training episodes, mean over the last {width} steps and "
            "over seeds; points: deterministic evaluations."
        )
    if any(name not in OF_EPISODES for name in names):
        parts.append("Other lines: as logged after each epoch, mean over seeds.")
    parts.append("Bands: standard deviation over seeds (none with one seed).")
    return "\n".join([*parts, *(f"{letter} {settings}" for settings, letter in mark.items())])


def _draw(axis: Any, group: Group, name: str, look: Look) -> None:
    of_episodes = name in OF_EPISODES
    band = training_band(group, name) if of_episodes else logged_band(group, name)
    # One value makes no line.
    alone = look.marker if np.isfinite(band.mean).sum() == 1 else None
    axis.plot(
        band.steps, band.mean, look.line, color=look.colour, linewidth=1.4, marker=alone,
        markersize=4,
    )  # fmt: skip
    axis.fill_between(
        band.steps, band.mean - band.deviation, band.mean + band.deviation,
        color=look.colour, alpha=0.18, linewidth=0,
    )  # fmt: skip
    if of_episodes:
        points = evaluation_band(group, f"{name}_mean")
        axis.plot(
            points.steps, points.mean, look.marker, color=look.colour, markersize=4,
            markeredgewidth=0,
        )  # fmt: skip


def _draw_limits(axis: Any, groups: Sequence[Group]) -> None:
    limits = sorted({group.config.cost_limit for group in groups})
    for limit in limits:
        axis.axhline(limit, color="black", linestyle="--", linewidth=1)
    drawn = np.concatenate([np.asarray(line.get_ydata(), float) for line in axis.get_lines()])
    if not (drawn < 0.0).any():  # costs may be signed
        axis.set_ylim(bottom=0)
    # Beside the panel, where no curve can be, and one above the other.
    bottom, top = axis.get_ylim()
    free = -math.inf
    for limit in limits:
        height = max((limit - bottom) / (top - bottom), free)
        axis.annotate(
            f"limit {limit:g}", (1, height), xycoords="axes fraction", xytext=(4, 0),
            textcoords="offset points", ha="left", va="center", fontsize=8,
        )  # fmt: skip
        free = height + 0.055
