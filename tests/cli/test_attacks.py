"""Generated attacks: every file of a run, every config field and spec, changed in every way.

Allowed is success, or exit code 1 or 2 with one line; and a run that a command refuses stays as it
was. Nothing is learned in the run that is attacked, so that a case takes milliseconds.
"""

from __future__ import annotations

import contextlib
import copy
import io
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from safetensors.numpy import save as format_tensors

from slsac.cli import main
from slsac.config import OffPolicyConfig, OnPolicyConfig
from slsac.config.overrides import field_names
from slsac.runs import checkpoint
from slsac.runs.identity import digest
from slsac.runs.layout import policy_digest
from tests.support.runs import quick_config, undisturbed
from tests.support.sweeps import SMALL_SPEC

JSON_FILES = ("config.json", "calibration.json")
LOGS = ("progress.jsonl", "episodes.jsonl", "evaluations.jsonl", "timing.jsonl")
STRANGE: list[Any] = [
    None, True, 0, -1, 1, 10**30, 0.5, -1e308, float("nan"), float("inf"), "", "x", "\x1b[2J$|",
    "\ud800", "a" * 5000, [], [[]], [None], {}, {"x": 1}, [1, "2"], [[0.0, 1.0]] * 3,
]  # fmt: skip
"""What may stand in the place of any value."""


def cases(number: int) -> Callable[[Any], Any]:
    """So many generated cases; a run that is made once serves them all."""
    return settings(max_examples=number, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run whose actions were all random."""
    run = tmp_path_factory.mktemp("attacked") / "run"
    undisturbed(run, quick_config("sac-lag", steps=60, warmup_steps=500, replay_capacity=50))
    curve = {"nominal": [0.25, 0.75], "observed": [0.3, 0.6], "wasserstein": 0.1, "delta": 0.2}
    curve["policy_sha256"] = policy_digest(run)
    (run / "calibration.json").write_text(json.dumps(curve))
    return run


@contextlib.contextmanager
def attacked(made: Path) -> Iterator[Path]:
    """A copy of the run, in the working directory of the commands."""
    scene = made.parent.parent / "scene"
    shutil.rmtree(scene, ignore_errors=True)
    shutil.copytree(made, scene / "run")
    before = Path.cwd()
    os.chdir(scene)
    try:
        yield scene / "run"
    finally:
        os.chdir(before)


def contents(run: Path) -> dict[str, bytes]:
    return {
        str(path): path.read_bytes()
        for path in sorted(run.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


def outcome(*arguments: str) -> int:
    """The exit code of a command. Fails unless the command ends as it may."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        code = main(arguments)
    text = said.getvalue()
    errors = [line for line in text.splitlines() if line.startswith("slsac: ")]
    assert code in (0, 1, 2), text
    assert "Traceback" not in text
    assert "unexpected" not in text, text
    assert "\x1b" not in text
    assert len(errors) == (code != 0), text
    assert all(len(error) < 3000 for error in errors)
    return code


def refused_or_done(run: Path, *arguments: str) -> None:
    """Runs a command; where it fails, the run must be as it was."""
    before = contents(run)
    if outcome(*arguments) != 0:
        assert contents(run) == before


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path to every value within JSON data, long lists by their ends."""
    found = [path]
    if isinstance(value, dict):
        items: list[tuple[Any, Any]] = list(value.items())
    elif isinstance(value, list):
        items = [*enumerate(value)][:2]
    else:
        return found
    for name, inner in items:
        found += places(inner, (*path, name))
    return found


def changed(draw: st.DrawFn, value: Any) -> Any:
    """JSON data with one value replaced, removed, or something added."""
    value = copy.deepcopy(value)
    path = draw(st.sampled_from(places(value)))
    replacement = draw(st.sampled_from(STRANGE))
    if not path:
        return replacement
    holder = value
    for name in path[:-1]:
        holder = holder[name]
    how = draw(st.sampled_from(["replace", "replace", "remove", "add"]))
    if how == "remove":
        del holder[path[-1]]
    elif how == "add" and isinstance(holder, dict):
        holder[draw(st.sampled_from(["x", "", "\x1b[2J", "a" * 300]))] = replacement
    else:
        holder[path[-1]] = replacement
    return value


def damaged(draw: st.DrawFn, data: bytes) -> bytes:
    """Bytes cut off, overwritten, doubled, or replaced."""
    at = draw(st.integers(0, max(0, len(data) - 1)))
    junk = draw(st.binary(min_size=1, max_size=12))
    ways = [data[:at], data[:at] + junk + data[at + len(junk) :], data + junk, data * 2, junk]
    ways += [b"", bytes(len(data)), b"[" * 5000, b'{"a":' * 5000, b"\xff\xfe" + data, b"null\n"]
    return draw(st.sampled_from(ways))


def resigned(values: Any) -> Any:
    """A config or a checkpoint's facts with checksums that fit again, as a forger would do it."""
    if isinstance(values, dict) and isinstance(values.get("identity"), dict):
        rest = {name: value for name, value in values.items() if name != "identity"}
        return {**rest, "identity": {**values["identity"], "config": digest(rest)}}
    if isinstance(values, dict) and "facts_sha256" in values:
        rest = {name: value for name, value in values.items() if name != "facts_sha256"}
        return {**rest, "facts_sha256": digest(rest)}
    return values


def attack(draw: st.DrawFn, path: Path) -> None:
    """Changes one file, as text or as bytes."""
    data = path.read_bytes()
    if draw(st.integers(0, 3)) == 0 or path.suffix not in (".json", ".jsonl"):
        path.write_bytes(damaged(draw, data))
    elif path.suffix == ".jsonl":
        lines = data.splitlines()
        number = draw(st.integers(0, len(lines) - 1))
        lines[number] = json.dumps(changed(draw, json.loads(lines[number]))).encode()
        path.write_bytes(b"\n".join(lines) + b"\n")
    else:
        values = changed(draw, json.loads(data))
        forged = draw(st.booleans())
        path.write_text(json.dumps(resigned(values) if forged else values))


@given(data=st.data())
@cases(220)
def test_reading_results_survives_any_file(made: Path, data: st.DataObject) -> None:
    with attacked(made) as run:
        name = data.draw(st.sampled_from([*JSON_FILES, *LOGS]))
        attack(data.draw, run / name)
        command = data.draw(st.sampled_from(["table", "table", "table", "report", "markdown"]))
        arguments = {"report": ["report", "run", "--out", "r.html"]}.get(command, ["table", "run"])
        arguments += ["--format", "markdown"] if command == "markdown" else []
        refused_or_done(run, *arguments)


@given(data=st.data())
@cases(4)
def test_plotting_survives_any_log(made: Path, data: st.DataObject) -> None:
    with attacked(made) as run:
        attack(data.draw, run / data.draw(st.sampled_from(LOGS)))
        refused_or_done(run, "plot", "run", "--out", "p.svg")


def attackable(run: Path) -> list[Path]:
    replay = sorted((run / "replay").iterdir())
    states = sorted((run / "checkpoints").rglob("state.*"))
    return [run / "config.json", *(run / name for name in LOGS), *states, *states, *replay]


@given(data=st.data())
@cases(110)
def test_resuming_survives_any_file(made: Path, data: st.DataObject) -> None:
    with attacked(made) as run:
        path = data.draw(st.sampled_from(attackable(run)))
        how = data.draw(st.integers(0, 9))
        if how == 0 and path.parent.parent.name == "checkpoints":
            path.parent.rename(run / "checkpoints" / data.draw(
                st.sampled_from(["step-notanumber", "step-1", "step-000000099999", "step-", "x"])
            ))  # fmt: skip
        elif how == 1:
            path.unlink()
        elif how == 2:
            path.unlink()
            path.mkdir()
        else:
            attack(data.draw, path)
        refused_or_done(run, "resume", "run", "--steps", "70", *data.draw(
            st.sampled_from([[], ["--inexact"]])
        ))  # fmt: skip


TENSORS: list[Callable[[dict[str, np.ndarray], str], bytes]] = [
    lambda arrays, name: format_tensors({**arrays, name: arrays[name].astype(np.float64)}),
    lambda arrays, name: format_tensors({**arrays, name: arrays[name] * np.float32(np.nan)}),
    lambda arrays, name: format_tensors({**arrays, name: arrays[name].reshape(-1)}),
    lambda arrays, name: format_tensors({**arrays, "more": arrays[name]}),
    lambda arrays, name: format_tensors({k: v for k, v in arrays.items() if k != name}),
    lambda arrays, name: format_tensors({}),
    lambda arrays, name: format_tensors(arrays).replace(b'"F32"', b'"BF16"'),
    lambda arrays, name: format_tensors(arrays).replace(b'"F32"', b'"F8"'),
    lambda arrays, name: b"\xff" * 8 + format_tensors(arrays)[8:],
]
"""Ways to forge a file of arrays."""


@given(data=st.data())
@cases(60)
def test_evaluating_survives_any_policy(made: Path, data: st.DataObject) -> None:
    with attacked(made) as run:
        path = run / data.draw(st.sampled_from(["policy.safetensors"] * 3 + ["config.json"]))
        if path.suffix == ".json" or data.draw(st.integers(0, 2)) == 0:
            attack(data.draw, path)
        else:
            arrays = checkpoint.schema.parse_tensors(path.read_bytes())
            name = data.draw(st.sampled_from(sorted(arrays)))
            path.write_bytes(data.draw(st.sampled_from(TENSORS))(arrays, name))
        seed = data.draw(st.sampled_from([[], [], ["--seed", str(2**70)], ["--seed", "-1"]]))
        refused_or_done(run, "evaluate", "run", "--episodes", "1", *seed)


@given(data=st.data())
@cases(60)
def test_a_sweep_survives_any_spec(made: Path, data: st.DataObject) -> None:
    with attacked(made):
        text = yaml.safe_dump(SMALL_SPEC)
        if data.draw(st.booleans()):
            text = yaml.safe_dump(changed(data.draw, SMALL_SPEC), allow_unicode=False)
            Path("spec.yaml").write_text(text)
        else:
            Path("spec.yaml").write_bytes(damaged(data.draw, text.encode()))
        outcome("sweep", "spec.yaml", "--dry-run")


EXTREMES = [
    "0",
    "-1",
    "1e18",
    "1e300",
    "1e-300",
    "nan",
    "-inf",
    "none",
    "",
    "x",
    "[]",
    "1,0",
    "true",
]
FIELDS = sorted({*field_names(OffPolicyConfig), *field_names(OnPolicyConfig)} - {"algo", "env"})


@given(
    field=st.sampled_from(FIELDS),
    value=st.sampled_from(EXTREMES),
    algo=st.sampled_from(["sl-sac", "ppo-lag"]),
)
@cases(120)
def test_a_config_survives_every_extreme(made: Path, field: str, value: str, algo: str) -> None:
    with attacked(made):
        axes = {"seed": "seeds", "steps": "steps"}
        spec = SMALL_SPEC | {"algos": [algo], "overrides": {"common": {}}}
        if field in axes:
            spec[axes[field]] = [value] if field == "seed" else value
        else:
            spec["overrides"] = {"common": {field: value}}
        Path("spec.yaml").write_text(yaml.safe_dump(spec))
        outcome("sweep", "spec.yaml", "--dry-run")


@given(arguments=st.lists(st.sampled_from([
    "train", "resume", "evaluate", "table", "plot", "certify", "--run", "--env", "ProbeChoice-v0",
    "--seed", str(2**70), "-1", "nan", "run", "a\0b", "--steps", "\ud800", "--episodes",
    "1e9", "no-such", "--policy.hidden", "--seeds", "--out", "x.html", "--from", "--", "",
]), max_size=5))  # fmt: skip
@cases(60)
def test_any_arguments_are_refused_in_one_line(made: Path, arguments: list[str]) -> None:
    if "--steps" not in arguments:  # a command that is complete by chance must end soon
        arguments = [word for word in arguments if word not in ("train", "certify")]
    elif "train" in arguments:
        arguments = [*arguments, "--steps", "x"]
    with attacked(made):
        outcome(*arguments, *(["--out", "p.svg"] if arguments[:1] == ["plot"] else []))
