"""Finding run directories, and grouping runs that differ in their seed alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from slsac.errors import InvalidInput, RunDamaged
from slsac.report.read import changes, command, find_runs, group_runs, repetition
from slsac.runs import layout
from tests.support.recorded import FACTS, HOPPER, make_run


def test_only_the_seed_may_differ_within_a_group(tmp_path: Path) -> None:
    make_run(tmp_path / "short-0")
    make_run(tmp_path / "short-1", seed=1)
    make_run(tmp_path / "paper", steps=1_000_000)
    make_run(tmp_path / "limit", cost_limit=10.0)
    stale = make_run(tmp_path / "stale", seed=2)
    (stale / "STALE").write_text("")
    groups, _ = group_runs(find_runs([tmp_path]))
    found = {
        (group.settings, group.stale): [run.config.seed for run in group.runs] for group in groups
    }
    assert found == {
        ("steps=10,000", False): [0, 1],
        ("", False): [0],
        ("steps=10,000, cost_limit=10.0", False): [0],
        ("steps=10,000", True): [2],
    }


def test_a_copy_of_a_run_is_not_a_second_seed(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    make_run(tmp_path / "copy")
    groups, notes = group_runs(find_runs([tmp_path, tmp_path / "run"]))
    assert [len(group.runs) for group in groups] == [1]
    assert notes == [
        f"{tmp_path / 'run'} repeats {tmp_path / 'copy'} (same configuration and seed) and is "
        "left out"
    ]


def test_an_attempt_that_was_cut_short_does_not_hide_the_run_that_repeats_it(
    tmp_path: Path,
) -> None:
    make_run(tmp_path / "a-crashed", finished=False)
    make_run(tmp_path / "b-finished")
    groups, notes = group_runs(find_runs([tmp_path]))
    assert [run.path.name for run in groups[0].runs] == ["b-finished"]
    assert f"{tmp_path / 'a-crashed'} repeats" in notes[0]


def test_the_command_repeats_the_configuration(tmp_path: Path) -> None:
    (run,) = find_runs([make_run(tmp_path / "run", seed=3, policy__hidden=(8, 8))])
    assert changes(run.config) == {"steps": 10_000, "policy.hidden": (8, 8)}
    assert command(run.config) == (
        f"slsac train --algo sl-sac --env {HOPPER} --seed 3 --steps 10000 --policy.hidden 8,8"
    )


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="does not exist"):
        find_runs([tmp_path / "none"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidInput, match="holds no run"):
        find_runs([tmp_path / "empty"])
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match="file' holds no run"):
        find_runs([tmp_path / "file"])


def test_a_log_is_read_when_it_is_asked_for_and_once(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run")
    (run,) = find_runs([folder])
    (folder / layout.EPISODES).write_text("not JSON\n")
    assert len(run.progress) == 5
    (folder / layout.PROGRESS).unlink()
    assert len(run.progress) == 5
    with pytest.raises(RunDamaged, match=r"episodes.jsonl, line 1, cannot be read"):
        _ = run.episodes


def test_a_run_that_began_with_another_is_no_further_seed(tmp_path: Path) -> None:
    make_run(tmp_path / "fresh")
    origin = {"run": "runs/old one", "steps": 5_000, "keep_replay": False}
    for seed in (1, 2):
        facts = FACTS | {"initialised_from": origin}
        make_run(tmp_path / f"tuned-{seed}", seed=seed, provenance=facts)
    runs = find_runs([tmp_path])
    found = {group.settings: len(group.runs) for group in group_runs(runs)[0]}
    assert found == {"steps=10,000": 1, "init=5,000 steps, steps=10,000": 2}
    assert repetition(runs[1]).endswith("--seed 1 --steps 10000 --init 'runs/old one'")


def test_algorithms_after_equal_steps_share_a_row(tmp_path: Path) -> None:
    make_run(tmp_path / "ours", "sl-sac-2", steps=200_000)  # what its preset has
    make_run(tmp_path / "theirs", "sl-sac", steps=200_000)
    groups, _ = group_runs(find_runs([tmp_path]))
    assert {group.settings for group in groups} == {"steps=200,000"}
