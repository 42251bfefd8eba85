"""What a file must hold: every misfit is one line that names the place and what is allowed."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from slsac.errors import RunDamaged, brief
from slsac.runs import log, schema
from slsac.runs.schema import (
    Misfit,
    Optional,
    figure,
    flag,
    list_of,
    nullable,
    number,
    positive,
    record,
    text,
    whole,
)
from tests.support.paths import ROOT

LINE = record({"step": whole, "costs": list_of(number), "note": Optional(nullable(text))})


@pytest.mark.parametrize(
    ("check", "allowed", "refused"),
    [
        (number, [0, -1.5, 1e300], [math.nan, math.inf, 10**400, "1", None, True, []]),
        (figure, [0, math.nan, None], ["1", True, {}]),
        (whole, [0, 2**63 - 1], [-1, 1.0, 2**63, True, None]),
        (positive, [1], [0, -1]),
        (text, ["", "x"], [None, 1]),
        (flag, [True, False], [0, "true", None]),
        (nullable(whole), [None, 3], [-1]),
        (list_of(whole), [[], [1, 2]], [[-1], {}, "12", None]),
        (list_of(whole, 2), [[1, 2]], [[1], [1, 2, 3]]),
        (
            LINE,
            [{"step": 1, "costs": []}, {"step": 1, "costs": [0.5], "note": None, "more": "x"}],
            [[], {"step": 1}, {"step": -1, "costs": []}, {"step": 1, "costs": [], "note": 3}],
        ),
    ],
)
def test_checks(check: schema.Check, allowed: list[Any], refused: list[Any]) -> None:
    for value in allowed:
        check(value, "it")
    for value in refused:
        with pytest.raises(Misfit) as misfit:
            check(value, "it")
        assert "\n" not in str(misfit.value)
        assert len(str(misfit.value)) < 200


def test_a_misfit_names_its_place() -> None:
    with pytest.raises(Misfit, match=r"costs\[1\] is nan; it must be a finite number"):
        schema.parse_json(b'{"step": 1, "costs": [0, NaN]}', LINE)
    with pytest.raises(Misfit, match="costs is missing"):
        schema.parse_json(b'{"step": 1}', LINE)


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"[" * 100_000, b"1" * 5_000])
def test_what_is_no_json_is_said_to_be_none(data: bytes) -> None:
    with pytest.raises(Misfit, match="it is not JSON"):
        schema.parse_json(data, schema.anything)


def test_nesting_and_size_have_a_limit() -> None:
    nested: Any = 0
    for _ in range(schema.DEEPEST):
        nested = [nested]
    with pytest.raises(Misfit, match="nested deeper"):
        schema.require_modest(nested)
    laughs: Any = ["ha"] * 1_000
    with pytest.raises(Misfit, match="more than"):
        schema.require_modest([[laughs] * 1_000] * 1_000)
    schema.require_modest(nested[0])


def test_a_long_value_is_cut_off() -> None:
    assert brief("x" * 1_000) == "'" + "x" * 79 + "..."
    assert brief([0] * 1_000) == "a list of 1,000 items"
    assert brief(10**5_000) == "a very large int"


def test_a_line_of_a_log_is_named(tmp_path: Path) -> None:
    lines = [{"step": 1, "return": 0.0, "cost": 1.0, "length": 1}] * 2
    path = tmp_path / "episodes.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"step": "x"}\n')
    with pytest.raises(RunDamaged, match=r"episodes\.jsonl, line 3, cannot be read: step is 'x'"):
        log.read_lines(path)


def test_every_recorded_log_fits() -> None:
    files = [path for name in log.LINES for path in (ROOT / "results").rglob(name)]
    assert len(files) > 100
    for path in files:
        assert log.read_lines(path)
