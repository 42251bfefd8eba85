"""Hooks of `make docs`: pages from outside docs/, links that lead there, and typeset formulas.

The pages stay what a code host shows: links are paths in the repository, formulas stand in fences
named ``math`` or between a dollar sign with a backtick and its mirror image.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from importlib import resources
from pathlib import Path

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "benchmarks/README.md": "benchmarks.md",
}
"""Files outside docs/ that are pages of the site."""
FONT = "site/STIXTwoMath-Regular.ttf"
FENCE = re.compile(r"^(```+)(\w*)\n(.*?)^\1 *$", re.DOTALL | re.MULTILINE)
INLINE_MATH = re.compile(r"\$`([^`]+)`\$")
LINK = re.compile(r"\[([^\[\]]*)\]\(([^()\s#:]+)(#[^()\s]*)?\)")
PATH = re.compile(r"<code>[\w.-]+/[^<\n]*</code>")
PLACE = "mathplace{}x"
"""Stands for a formula until the page is HTML: Markdown would take its underscores for emphasis."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from outside docs/, and every file that some page links to."""
    for path, uri in PAGES.items():
        files.append(File.generated(config, uri, content=(ROOT / path).read_text()))
    # A font for formulas: without one a browser sets indices badly.
    font = resources.files("ziamath") / "fonts" / "STIXTwoMath-Regular.ttf"
    files.append(File.generated(config, FONT, abs_src_path=str(font)))
    linked: set[str] = set()
    for file in list(files.documentation_pages()):
        rewritten(file.content_string, file.src_uri, linked.add)
    for path in sorted(linked):
        if path.endswith(".html"):
            files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
        else:
            files.append(File.generated(config, source_page(path), content=listing(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links lead to pages of the site, and put the formulas aside."""
    formulas: list[str] = []

    def aside(latex: str, display: str) -> str:
        formulas.append(typeset(latex, display))
        return PLACE.format(len(formulas) - 1)

    def in_fence(match: re.Match[str]) -> str:
        return aside(match[3], "block") if match[2] == "math" else match[0]

    text = FENCE.sub(in_fence, rewritten(markdown, page.file.src_uri))
    text = outside_fences(text, lambda part: INLINE_MATH.sub(lambda m: aside(m[1], "inline"), part))
    page.meta["formulas"] = formulas
    return text


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put the formulas into the page."""
    for number, formula in enumerate(page.meta["formulas"]):
        place = PLACE.format(number)
        html = html.replace(f"<p>{place}</p>", formula).replace(place, formula)
    # A path in a narrow table breaks between its folders.
    return PATH.sub(lambda match: match[0].replace("/", "/<wbr>").replace("</<wbr>", "</"), html)


def typeset(latex: str, display: str) -> str:
    """A formula as MathML, which browsers draw without a script."""
    formula = convert(latex.strip(), display=display)
    return f'<div class="equation">{formula}</div>' if display == "block" else formula


def rewritten(markdown: str, uri: str, need: Callable[[str], object] = lambda path: None) -> str:
    """A page with its links as they must be on the site.

    Args:
        uri: the page's place on the site.
        need: is told the path of every file outside docs/ that must be on the site too.
    """
    origin = next((path for path, at in PAGES.items() if at == uri), f"docs/{uri}")
    here = posixpath.dirname(uri)

    def link(match: re.Match[str]) -> str:
        text, target, anchor = match[1], match[2], match[3] or ""
        path = posixpath.normpath(posixpath.join(posixpath.dirname(origin), target))
        if path.startswith("docs/"):
            place = path.removeprefix("docs/")
        elif path in PAGES:
            place = PAGES[path]
        elif path.endswith(".html"):
            need(path)
            place = path
        elif (ROOT / path).is_file():
            need(path)
            place = source_page(path)
        elif (ROOT / path).is_dir():
            return text  # a folder is no page
        else:
            return match[0]  # which strict mode reports
        return f"[{text}]({posixpath.relpath(place, here or '.')}{anchor})"

    return outside_fences(markdown, lambda part: LINK.sub(link, part))


def outside_fences(markdown: str, change: Callable[[str], str]) -> str:
    """Apply ``change`` to all of a page but its blocks of code."""
    parts, start = [], 0
    for fence in FENCE.finditer(markdown):
        parts += [change(markdown[start : fence.start()]), fence[0]]
        start = fence.end()
    return "".join([*parts, change(markdown[start:])])


def source_page(path: str) -> str:
    return f"source/{path}.md"


def listing(path: str) -> str:
    """A page that shows one file, and that the search leaves out."""
    language = {".py": "python", ".yaml": "yaml", ".toml": "toml"}.get(Path(path).suffix, "")
    fence = "`" * 5
    text = (ROOT / path).read_text()
    return f"---\nsearch:\n  exclude: true\n---\n# {path}\n\n{fence}{language}\n{text}\n{fence}\n"
