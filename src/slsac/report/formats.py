"""A table's sections and the ways to render them: Markdown, LaTeX, HTML and terminal text."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal, NamedTuple

from slsac.formatting import one_line

if TYPE_CHECKING:  # slow to import, and most formats need none of it
    from rich.console import Console

TEXT_COLUMNS = ("task", "algorithm", "source", "pair", "commit")
"""Columns that a terminal shows flush left."""
PLAIN_WIDTH = 400
"""Characters in a line of a table for a file or a pipe, where nothing needs to be folded."""


MARKDOWN = str.maketrans(
    {"\\": r"\\", "|": r"\|", "*": r"\*", "`": r"\`", "<": "&lt;", ">": "&gt;"}
)
LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "_": r"\_", "#": r"\#", "$": r"\$",
        "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
        "<": r"\textless{}", ">": r"\textgreater{}", "±": r"$\pm$",
    }
)  # fmt: skip
"""Characters that would not stand for themselves: a task may have any name."""


class Cell(NamedTuple):
    """One cell of a table."""

    text: str
    style: Literal["plain", "bold", "grey"] = "plain"
    algo: str = ""
    """The algorithm that it is about, so that a page can hide it."""


class Section(NamedTuple):
    """A table with its title, notes below it, and lines to copy."""

    title: str
    header: tuple[str, ...]
    rows: list[tuple[Cell, ...]]
    notes: tuple[str, ...] = ()
    code: tuple[str, ...] = ()
    """Lines to copy, such as commands."""


def as_markdown(sections: Iterable[Section]) -> str:
    style = {"plain": "{}", "bold": "**{}**", "grey": "*{}*"}
    text = []
    for section in sections:
        text.append(f"## {section.title}\n")
        rows = [tuple(map(_markdown, section.header)), ("---",) * len(section.header)]
        for row in section.rows:
            rows.append(tuple(style[cell.style].format(_markdown(cell.text)) for cell in row))
        text += ["| " + " | ".join(row) + " |" for row in rows] if section.rows else []
        text += [line for note in section.notes for line in ("", _markdown(note))] + [""]
        if section.code:
            code = [*map(one_line, section.code)]
            fence = "```"
            while any(fence in line for line in code):
                fence += "`"
            text += [fence, *code, fence, ""]
    return _paragraphs(text)


def _markdown(text: str) -> str:
    # A mark such as [a] stays as it is; only before a bracket would it become a link.
    return one_line(text).translate(MARKDOWN).replace("](", "]\\(")


def _paragraphs(lines: Iterable[str]) -> str:
    """Lines with at most one empty line between them."""
    kept: list[str] = []
    for line in "\n".join(lines).splitlines():
        if line or (kept and kept[-1]):
            kept.append(line)
    return "\n".join(kept).rstrip() + "\n"


def as_latex(sections: Iterable[Section]) -> str:
    """Tables for ``booktabs`` and ``xcolor``; commands become comments."""
    style = {"plain": "{}", "bold": r"\textbf{{{}}}", "grey": r"\textcolor{{gray}}{{{}}}"}
    text = []
    for section in sections:
        text.append(f"% {section.title}")
        if section.rows:
            text += [rf"\begin{{tabular}}{{l{'r' * (len(section.header) - 1)}}}", r"\toprule"]
            text += [" & ".join(map(_escape, section.header)) + r" \\", r"\midrule"]
            for row in section.rows:
                cells = (style[cell.style].format(_escape(cell.text)) for cell in row)
                text.append(" & ".join(cells) + r" \\")
            text += [r"\bottomrule", r"\end{tabular}"]
        text += [f"% {one_line(line)}" for line in (*section.notes, *section.code)]
        text.append("")
    return "\n".join(text)


def _escape(text: str) -> str:
    return one_line(text).translate(LATEX)


def as_html(section: Section) -> str:
    """A table whose cells name their algorithm; see templates/report.html."""

    def data_cell(cell: Cell) -> str:
        algo = f' data-algo="{html.escape(cell.algo)}"' if cell.algo else ""
        return f'<td class="{cell.style}"{algo}>{breakable(cell.text)}</td>'

    def header(name: str, column: tuple[Cell, ...]) -> str:
        # A column whose cells are all about one algorithm is hidden with them.
        algos = {cell.algo for cell in column}
        whole = len(algos) == 1 and not section.rows[0][0].algo
        algo = f' data-algo="{html.escape(owner)}"' if whole and (owner := algos.pop()) else ""
        return f'<th scope="col"{algo}>{_html(name)}</th>'

    heads = map(header, section.header, zip(*section.rows, strict=True))
    lines = ["<table><thead><tr>", *heads, "</tr></thead><tbody>"]
    for row in section.rows:
        # A row about one algorithm is hidden whole.
        owner = f' data-algo="{html.escape(row[0].algo)}"' if row[0].algo else ""
        lines.append(f"<tr{owner}>" + "".join(map(data_cell, row)) + "</tr>")
    return "".join(lines) + "</tbody></table>"


def breakable(text: str) -> str:
    """HTML of a name that may break between its words alone: Safety, Hopper, Velocity-v1."""
    words = re.split(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[:_/])(?=\w)", _html(text))
    if len(words) == 1:
        return words[0]
    return "".join(f'<span class="word">{word}</span>' for word in words)


def _html(text: str) -> str:
    return html.escape(one_line(text))


def as_plain(sections: Iterable[Section]) -> str:
    """Text without styles, the same whatever the terminal is."""
    from rich.console import Console

    return _as_text(sections, Console(highlight=False, width=PLAIN_WIDTH, force_terminal=False))


def as_terminal(sections: Iterable[Section]) -> str:
    """Text with ANSI styles where standard output is a terminal, and plain where it is not."""
    from rich.console import Console

    console = Console(highlight=False)
    return _as_text(sections, console) if console.is_terminal else as_plain(sections)


def _as_text(sections: Iterable[Section], console: Console) -> str:
    from rich.table import Table
    from rich.text import Text

    style = {"plain": "", "bold": "bold green", "grey": "grey50"}
    with console.capture() as captured:
        for section in sections:
            table = Table(title=section.title, title_justify="left", title_style="bold")
            for name in section.header:
                # Folded where the terminal is narrow: a figure that is cut off is another figure.
                table.add_column(
                    Text(one_line(name)),
                    justify="left" if name in TEXT_COLUMNS else "right",
                    overflow="fold",
                )
            for row in section.rows:
                table.add_row(*(Text(one_line(cell.text), style=style[cell.style]) for cell in row))
            if section.rows:
                console.print(table)
            for line in section.notes:
                console.print(one_line(line), markup=False)
            for line in section.code:
                console.print(one_line(line), markup=False, soft_wrap=True)
            console.print()
    return captured.get()
