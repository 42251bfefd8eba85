"""What a sweep's spec stands for, and how a bad one is refused."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from slsac.cli import main
from slsac.cli.train import parse_overrides
from slsac.config.overrides import with_overrides
from slsac.config.presets import preset
from slsac.errors import InvalidInput
from slsac.sweep import spec as grid
from slsac.sweep.products import PRODUCTS
from tests.support.sweeps import SMALL_SPEC, write_spec


@pytest.mark.parametrize("path", sorted(grid.EXPERIMENTS.glob("*.yaml")), ids=lambda p: p.stem)
def test_every_shipped_spec_expands(path: Path, tmp_path: Path) -> None:
    spec = grid.load(path)
    assert spec.name == path.stem
    trials = grid.expand(spec, tmp_path)
    assert len(trials) == len(spec.algos) * len(spec.envs) * len(spec.seeds)
    assert spec.products == tuple(PRODUCTS)
    for trial in trials:
        assert trial.config.steps == spec.steps


def test_a_spec_is_found_by_its_path_or_by_the_name_of_one_that_comes_with_slsac(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert grid.find("quick") == grid.find("quick.yaml") == grid.EXPERIMENTS / "quick.yaml"
    (tmp_path / "quick").write_text("mine")
    assert grid.find("quick").read_text() == "mine"
    with pytest.raises(
        InvalidInput, match="spec 'qiuck' does not exist; it must be a YAML file or"
    ):
        grid.find("qiuck")


def test_table1_is_the_papers_grid_with_the_papers_settings(tmp_path: Path) -> None:
    spec = grid.load(grid.find("table1"))
    assert (len(spec.envs), len(spec.algos), len(spec.seeds)) == (10, 6, 5)
    trials = grid.expand(spec, tmp_path)
    assert len(trials) == 300
    for trial in trials:
        config = trial.config
        plain = preset(config.algo, config.env)
        assert config == with_overrides(plain, {"seed": config.seed, "steps": 1_000_000})


def test_overrides_apply_from_the_general_to_the_particular(tmp_path: Path) -> None:
    spec = grid.parse(
        {
            "name": "layers",
            "algos": ["sl-sac", "sac-lag"],
            "envs": ["ProbeChoice-v0", "SafetyPointGoal1-v0"],
            "seeds": [3],
            "steps": "1e4",
            "overrides": {
                "common": {"cost_limit": 1, "polyak": 0.1},
                "algos": {"sac-lag": {"cost_limit": 2, "reward-critic": {"pairs": 2}}},
                "envs": {"SafetyPointGoal1-v0": {"cost_limit": 3}},
            },
            "variants": {"plain": {}, "tight": {"cost_limit": 0.5}},
        }
    )
    found = {trial.name: trial.config for trial in grid.expand(spec, tmp_path)}
    limits = {name: config.cost_limit for name, config in found.items()}
    assert limits == {
        "plain/sl-sac/ProbeChoice-v0/seed3": 1.0,
        "plain/sac-lag/ProbeChoice-v0/seed3": 2.0,
        "plain/sl-sac/SafetyPointGoal1-v0/seed3": 3.0,
        "plain/sac-lag/SafetyPointGoal1-v0/seed3": 3.0,
        "tight/sl-sac/ProbeChoice-v0/seed3": 0.5,
        "tight/sac-lag/ProbeChoice-v0/seed3": 0.5,
        "tight/sl-sac/SafetyPointGoal1-v0/seed3": 0.5,
        "tight/sac-lag/SafetyPointGoal1-v0/seed3": 0.5,
    }
    for name, config in found.items():
        assert config.polyak == 0.1
        assert config.steps == 10_000
        assert config.reward_critic.pairs == (2 if "sac-lag" in name else 3)


def test_a_trials_command_line_makes_its_config(tmp_path: Path) -> None:
    values = SMALL_SPEC | {"algos": ["sl-sac/tail-0.2"]}
    values["overrides"] = {"common": {"cost_critic.cost_floor": None, "cost_limit": 0.1 + 0.2}}
    for trial in grid.expand(grid.parse(values), tmp_path):
        arguments = grid.train_arguments(trial)
        flags = parse_overrides(arguments)
        named = [flags.pop(name) for name in ("algo", "env", "run")]
        assert named == ["sl-sac/tail-0.2", "ProbeChoice-v0", str(trial.run)]
        assert with_overrides(preset("sl-sac/tail-0.2", "ProbeChoice-v0"), flags) == trial.config


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"seed": [0]}, "spec field 'seed' does not exist; did you mean seeds"),
        ({"seeds": None}, "seeds is None; it must be a list with at least one item"),
        ({"seeds": [0, 0]}, "seeds has 0 twice"),
        ({"seeds": [-1]}, "seeds is -1; it must be a whole number of at least 0"),
        ({"steps": "many"}, "steps is 'many'; it must be a whole number of at least 1"),
        ({"cores_per_trial": 0}, "cores_per_trial is 0; it must be a whole number of at least 1"),
        ({"name": "a/b"}, "name is 'a/b'; it must be made of letters"),
        ({"algos": ["slsac"]}, "algo 'slsac' does not exist; did you mean sl-sac"),
        ({"envs": ["ProbeChoise-v0"]}, "env 'ProbeChoise-v0' does not exist; did you mean Probe"),
        ({"products": ["tabel"]}, "product 'tabel' does not exist; did you mean table"),
        (
            {"overrides": {"all": {}}},
            "overrides field 'all' does not exist; known: algos",
        ),
        (
            {"overrides": {"algos": {"td3-lag": {}}}},
            "overrides.algos entry 'td3-lag' does not exist",
        ),
        ({"overrides": {"common": {"seed": 1}}}, "overrides.common.seed is 1; algos, envs, seeds"),
        (
            {"overrides": {"common": {"cost_limt": 1}}},
            "sac-lag/ProbeChoice-v0/seed0: config field 'cost_limt' does not exist; did you mean",
        ),
        (
            {"variants": {"odd": {"cost_limit": -1}}},
            "odd/sac-lag/ProbeChoice-v0/seed0: cost_limit is -1.0; it must be at least 0",
        ),
    ],
)
def test_a_bad_spec_is_one_line_and_exit_code_2(
    fields: dict[str, Any], expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(["sweep", str(write_spec(tmp_path, **fields)), "--out", str(out)]) == 2
    shown = capsys.readouterr()
    assert expected in shown.err
    assert shown.err.count("\n") == 1
    assert not out.exists()


def test_a_file_that_is_no_spec_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for text, expected in (("a: [", "cannot be read"), ("- a", "spec is ['a']")):
        path = tmp_path / "spec.yaml"
        path.write_text(text)
        assert main(["sweep", str(path)]) == 2
        shown = capsys.readouterr().err
        assert expected in shown
        assert shown.count("\n") == 1
    assert main(["sweep", str(tmp_path / "none.yaml")]) == 2
    assert "does not exist" in capsys.readouterr().err


def test_fields_of_several_layers_are_judged_together(tmp_path: Path) -> None:
    # Neither 12 envs nor the 1,200,000 steps fit the preset's other one; together they do.
    spec = grid.parse(
        {
            "name": "together",
            "algos": ["ppo-lag"],
            "envs": ["SafetyHopperVelocity-v1"],
            "seeds": [0],
            "steps": 1_200_000,
            "overrides": {"common": {"num_envs": 12, "steps-per-epoch": 24_000}},
        }
    )
    (trial,) = grid.expand(spec, tmp_path)
    assert (trial.config.steps, trial.config.steps_per_epoch) == (1_200_000, 24_000)


def test_what_ray_alone_does_is_refused_elsewhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = str(write_spec(tmp_path))
    for flag, value in (("--address", "auto"), ("--gpus-per-trial", "1")):
        assert main(["sweep", spec, flag, value, "--out", str(tmp_path / "out")]) == 2
        assert f"{flag} is for --backend ray; the backend is local" in capsys.readouterr().err


def test_more_cores_than_there_are_is_refused_before_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = str(write_spec(tmp_path, cores_per_trial=4096))
    assert main(["sweep", spec, "--out", str(tmp_path / "out")]) == 2
    assert "cores_per_trial is 4096; it must be at most" in capsys.readouterr().err


def test_a_spec_with_many_seeds_is_read_in_linear_time() -> None:
    begun = time.process_time()
    assert len(grid.parse(SMALL_SPEC | {"seeds": list(range(50_000))}).seeds) == 50_000
    assert time.process_time() - begun < 10.0  # half a minute if each is compared with each


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [*a]",
        "overrides: &a {common: *a}",
        "[" * 3000,
        "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\n"
        "c: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\n"
        "e: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\n"
        "g: &g [*f,*f,*f,*f,*f,*f,*f,*f,*f]\nh: [*g,*g,*g,*g,*g,*g,*g,*g,*g]",
        "seeds: !!python/object/apply:os.system [true]",
    ],
    ids=["cycle", "cyclic-mapping", "deep", "laughs", "code"],
)
def test_yaml_without_end_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text(text)
    with pytest.raises(InvalidInput, match="cannot be read"):
        grid.load(tmp_path / "spec.yaml")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "overrides: {common: {cost_limit: 5}}\noverrides: {common: {batch_size: 64}}",
            "overrides",
        ),
        ("overrides: {common: {cost_limit: 5, cost-limit: 6}}", "cost-limit"),
    ],
)
def test_a_key_that_is_there_twice_is_refused(tmp_path: Path, text: str, expected: str) -> None:
    file = tmp_path / "spec.yaml"
    file.write_text(f"name: x\n{text}\n")
    with pytest.raises(InvalidInput, match=f"gives {expected!r} a second time"):
        grid.load(file)
