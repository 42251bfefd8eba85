"""The documentation site: built in strict mode, complete in itself, with search and formulas."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from slsac.config.presets import ALGORITHMS
from tests.support.browser import Page
from tests.support.paths import ROOT
from tools.site import listing, rewritten, typeset


def build(config: Path, site: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--config-file", config, "--site-dir", site]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    built = build(ROOT / "mkdocs.yml", folder)
    assert built.returncode == 0, built.stderr
    return folder


def test_a_link_that_leads_nowhere_fails_the_build(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# A page\n\n[a link](nowhere.md)\n")
    config = tmp_path / "mkdocs.yml"
    config.write_text(
        f"INHERIT: {ROOT / 'mkdocs.yml'}\ndocs_dir: docs\nnav: [index.md]\nplugins: []\nhooks: []\n"
    )
    built = build(config, tmp_path / "site")
    assert built.returncode != 0
    assert "contains a link 'nowhere.md'" in built.stderr


def test_every_page_of_the_repository_is_on_the_site(site: Path) -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        assert (site / page.relative_to(ROOT / "docs").with_suffix(".html")).exists()
    for name in ("index", "contributing", "changelog", "benchmarks"):
        assert (site / f"{name}.html").exists()


def test_nothing_is_loaded_from_a_network(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 50
    for page in pages:
        loaded = re.findall(r"<(?:script|link|img|iframe)[^>]*(?:src|href)=\"?(\w+:[^\s\">]*)",
                            page.read_text())  # fmt: skip
        assert [url for url in loaded if not url.startswith("data:")] == [], page
    for style in site.rglob("*.css"):
        assert "url(http" not in style.read_text()


@pytest.mark.parametrize("width", [420, 1280])
@pytest.mark.parametrize("name", ["index", "api", "metrics", "algorithms/sl-sac", "results"])
def test_a_page_opens_from_the_file_system(tab: Page, site: Path, name: str, width: int) -> None:
    tab.open(site / f"{name}.html", width, 900)
    assert tab.problems == []
    assert tab.run("document.documentElement.scrollWidth") == width


def test_search_works_from_the_file_system(tab: Page, site: Path) -> None:
    tab.open(site / "index.html", 1280, 900)
    tab.run(
        "(() => { const field = document.querySelector('input.md-search__input'); field.focus();"
        "field.value = 'tail_fraction'; field.dispatchEvent(new Event('input', {bubbles: true}));"
        "field.dispatchEvent(new KeyboardEvent('keyup', {bubbles: true, key: 'n'})); })()"
    )
    found = "[...document.querySelectorAll('.md-search-result__link')].map(link => link.href)"
    end = time.monotonic() + 60.0
    while not (links := tab.run(found)):
        assert time.monotonic() < end, "the search found nothing in a minute"
        time.sleep(0.1)
    assert any("/config.html" in link for link in links)
    assert tab.problems == []


def test_formulas_are_typeset(tab: Page, site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text()
        assert "mathplace" not in text, page
        assert "$`" not in re.sub(r"<pre>.*?</pre>", "", text, flags=re.DOTALL), page
    for algo in ALGORITHMS:
        if "/" not in algo:
            assert "<math" in (site / "algorithms" / f"{algo}.html").read_text(), algo
    tab.open(site / "algorithms" / "sl-sac.html", 1280, 900)
    # The objective above the rule of the multiplier, in the font that the site brings along.
    rows = tab.run(
        "[...document.querySelectorAll('.equation mtr')].map(row => row.getBoundingClientRect().y)"
    )
    assert len(rows) == 2
    assert rows[0] + 15 < rows[1]
    assert tab.run("document.fonts.check('16px \"STIX Two Math\"')")
    assert tab.run("[...document.fonts].filter(font => font.status === 'loaded').length") == 1


def test_the_api_reference_holds_the_docstrings(site: Path) -> None:
    text = (site / "api.html").read_text()
    for name in ("Agent.learn", "check_safe_env", "KeepBest", "certify", "asgld", "InvalidInput"):
        assert re.search(rf'id="slsac[\w.]*\.{re.escape(name)}"', text), name
    assert "twice 1,000 equals 2,000 at once" in text


@pytest.mark.parametrize(
    ("page", "link", "on_the_site"),
    [
        ("index.md", "[x](docs/risk.md)", "[x](risk.md)"),
        ("index.md", "![x](docs/pictures/tail.svg)", "![x](pictures/tail.svg)"),
        ("guide.md", "[x](../README.md#status)", "[x](index.md#status)"),
        ("results/ant.md", "[x](../../CONTRIBUTING.md)", "[x](../contributing.md)"),
        ("guide.md", "[x](../examples/custom_env.py)", "[x](source/examples/custom_env.py.md)"),
        # A folder is no page, a fence is no text, and an address is left alone.
        ("guide.md", "[x](../results/sl-sac)", "x"),
        ("guide.md", "```\n[x](../README.md)\n```\n", "```\n[x](../README.md)\n```\n"),
        ("guide.md", "[x](https://example.org/a.md)", "[x](https://example.org/a.md)"),
        ("guide.md", "[x](nowhere.md)", "[x](nowhere.md)"),
    ],
)
def test_where_links_lead(page: str, link: str, on_the_site: str) -> None:
    assert rewritten(link, page) == on_the_site


def test_files_that_are_linked_to_come_along(site: Path) -> None:
    needed: list[str] = []
    rewritten("[a](../examples/custom_env.py) [b](risk.md)", "guide.md", needed.append)
    assert needed == ["examples/custom_env.py"]
    assert "class Speeding" in listing("examples/custom_env.py")
    assert "Speeding" in (site / "source" / "examples" / "custom_env.py.html").read_text()
    run = "results/sl-sac/SafetyHopperVelocity-v1/seed0"
    page = (site / "results" / "certificates.html").read_text()
    assert f'href="{run.removeprefix("results/")}/certificate.html"' in page
    assert (site / run / "certificate.html").read_bytes() == (
        ROOT / run / "certificate.html"
    ).read_bytes()


def test_a_formula_is_mathml() -> None:
    formula = typeset(r"x_1^2", "inline")
    assert formula.startswith("<math")
    assert "<msubsup><mi>x</mi><mn>1</mn><mn>2</mn></msubsup>" in formula
    assert typeset("x", "block").startswith('<div class="equation"><math')
