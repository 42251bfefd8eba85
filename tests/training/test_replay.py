"""The replay: a ring on disk that a resumed run finds as it was."""

from __future__ import annotations

import errno
import json
import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from slsac.errors import RunDamaged
from slsac.training import launch
from slsac.training import replay as replay_module
from slsac.training.replay import Replay
from slsac.types import Batch, EnvSpec
from tests.support import runs

SPEC = EnvSpec(2, 1, 5, (-1.0,), (1.0,))


class Move(NamedTuple):
    """Step number ``step`` of training, taken at time ``time`` of episode ``episode``."""

    step: int
    episode: int
    time: int
    last: bool
    terminated: bool


def moves(lengths: Iterable[int]) -> list[Move]:
    """Whole episodes of the given lengths; those with an odd number end by termination."""
    found: list[Move] = []
    for episode, length in enumerate(lengths):
        for time in range(length):
            last = time == length - 1
            found.append(Move(len(found), episode, time, last, last and episode % 2 == 1))
    return found


def observation(episode: int, time: int) -> np.ndarray:
    return np.array([episode, time], np.float32)


def play(replay: Replay, steps: Iterable[Move]) -> None:
    """Rewards are the step's number, costs twice it, actions its negative."""
    for move in steps:
        if move.time == 0:
            replay.begin_episode(observation(move.episode, 0))
        replay.add(
            np.array([-move.step]),
            move.step,
            2 * move.step,
            move.terminated,
            observation(move.episode, move.time + 1),
        )


def make(folder: Path, capacity: int = 100, reserve: int = 0, seed: int = 0) -> Replay:
    create = not (folder / "rewards.bin").exists()
    return Replay(folder, SPEC, capacity, reserve, seed, create=create)


def assert_same(one: Batch, other: Batch) -> None:
    for field, left, right in zip(Batch._fields, one, other, strict=True):
        np.testing.assert_array_equal(left, right, err_msg=field)


def assert_true_to(steps: list[Move], batch: Batch) -> None:
    """Every sampled transition is the step that its reward names, in all fields."""
    for row in range(len(batch.reward)):
        move = steps[int(batch.reward[row])]
        assert batch.action[row] == -move.step
        assert batch.cost[row] == 2 * move.step
        assert batch.terminated[row] == float(move.terminated)
        np.testing.assert_array_equal(batch.observation[row], observation(move.episode, move.time))
        np.testing.assert_array_equal(
            batch.next_observation[row], observation(move.episode, move.time + 1)
        )


def test_samples_are_the_steps_taken_across_episode_boundaries(tmp_path: Path) -> None:
    steps = moves([3, 1, 4, 2, 1, 1, 5])
    replay = make(tmp_path)
    play(replay, steps)
    batch = replay.sample(500)
    assert set(np.asarray(batch.reward)) == set(range(17))
    assert_true_to(steps, batch)


def test_each_observation_takes_one_row(tmp_path: Path) -> None:
    replay = make(tmp_path)
    play(replay, moves([3, 4]))
    # Three steps see four observations, four steps five.
    assert replay.facts()["replay"]["row"] == 4 + 5
    stored = np.fromfile(tmp_path / "observations.bin", np.float32).reshape(-1, 2)
    np.testing.assert_array_equal(
        stored[1:10], [[0, 0], [0, 1], [0, 2], [0, 3], [1, 0], [1, 1], [1, 2], [1, 3], [1, 4]]
    )
    assert not stored[10:].any()


def test_running_episode_can_be_sampled(tmp_path: Path) -> None:
    steps = moves([3])
    replay = make(tmp_path)
    play(replay, steps[:2])
    assert len(replay) == 2
    assert_true_to(steps, replay.sample(50))


def test_ring_keeps_the_last_capacity_steps(tmp_path: Path) -> None:
    # One-step episodes take the most observation rows: two a step.
    for name, lengths in {"short": [1] * 40, "long": [5] * 8, "mixed": [1, 2, 3, 4] * 4}.items():
        steps = moves(lengths)
        replay = make(tmp_path / name, capacity=7, reserve=2)
        play(replay, steps)
        assert len(replay) == 7
        batch = replay.sample(300)
        assert set(np.asarray(batch.reward)) == set(range(len(steps) - 7, len(steps)))
        assert_true_to(steps, batch)


def test_sampling_is_determined_by_the_seed(tmp_path: Path) -> None:
    def draw(name: str, seed: int) -> Batch:
        replay = make(tmp_path / name, seed=seed)
        play(replay, moves([5, 5]))
        return replay.sample(32)

    assert_same(draw("a", 1), draw("b", 1))
    assert not np.array_equal(draw("c", 1).reward, draw("d", 2).reward)


def test_sampled_batch_does_not_follow_the_file(tmp_path: Path) -> None:
    replay = make(tmp_path, capacity=3)
    play(replay, moves([3]))
    batch = replay.sample(4)
    before = np.array(batch.observation)
    play(replay, moves([3, 3, 3]))
    np.testing.assert_array_equal(batch.observation, before)


def samples_along(replay: Replay, steps: list[Move]) -> list[Batch]:
    """Samples once before the steps and once after each."""
    found = [replay.sample(16)]
    for move in steps:
        play(replay, [move])
        found.append(replay.sample(16))
    return found


def resumed_and_undisturbed(
    folder: Path, reserve: int, lost: int
) -> tuple[list[Batch], list[Batch]]:
    """Samples after a crash ``lost`` steps past a checkpoint, and of a run that did not crash."""
    # The checkpoint falls at the end of the tenth episode, when the ring has wrapped.
    steps = moves([1, 2, 3, 1, 1, 4, 1, 1, 2, 1, 1, 3, 1, 2, 5, 1, 1])
    until_checkpoint = sum(move.episode < 10 for move in steps)
    head, tail = steps[:until_checkpoint], steps[until_checkpoint:]
    undisturbed = make(folder / "undisturbed", capacity=8, reserve=reserve)
    crashed = make(folder / "crashed", capacity=8, reserve=reserve)
    for replay in (undisturbed, crashed):
        play(replay, head)
        replay.sample(16)
    cursor: dict[str, Any] = crashed.facts()
    samples_along(crashed, tail[:lost])
    crashed.flush()
    reopened = make(folder / "crashed", capacity=8, reserve=reserve)
    reopened.restore(cursor)
    return samples_along(reopened, tail), samples_along(undisturbed, tail)


def test_resumed_replay_samples_what_an_undisturbed_one_does(tmp_path: Path) -> None:
    for lost in (0, 1, 3, 6):
        pairs = zip(*resumed_and_undisturbed(tmp_path / str(lost), 6, lost), strict=True)
        for resumed, undisturbed in pairs:
            assert_same(resumed, undisturbed)


def test_it_is_the_reserve_that_makes_resuming_exact(tmp_path: Path) -> None:
    resumed, undisturbed = resumed_and_undisturbed(tmp_path, reserve=0, lost=6)
    assert not np.array_equal(resumed[0].reward, undisturbed[0].reward)


def test_cursor_is_a_snapshot(tmp_path: Path) -> None:
    replay = make(tmp_path)
    play(replay, moves([4]))
    cursor = replay.facts()
    first = replay.sample(16)
    replay.restore(cursor)
    assert_same(replay.sample(16), first)


def test_files_keep_the_data(tmp_path: Path) -> None:
    steps = moves([3, 2, 4])
    written = make(tmp_path)
    play(written, steps)
    cursor = written.facts()
    expected = written.sample(64)
    written.flush()
    del written
    reopened = make(tmp_path)
    assert len(reopened) == 0
    reopened.restore(cursor)
    assert len(reopened) == 9
    batch = reopened.sample(64)
    assert_same(batch, expected)
    assert_true_to(steps, batch)


def play_costs(replay: Replay, costs: Iterable[float]) -> None:
    replay.begin_episode(observation(0, 0))
    for cost in costs:
        replay.add(np.zeros(1), 0.0, cost, False, observation(0, 0))


def test_cost_deviation_is_that_of_all_costs_ever_added(tmp_path: Path) -> None:
    costs = np.random.default_rng(3).exponential(size=50)
    # The ring holds the last ten only.
    replay = make(tmp_path, capacity=10)
    play_costs(replay, costs)
    np.testing.assert_allclose(replay.cost_moments()[1], np.std(costs), rtol=1e-12)


def test_cost_deviation_by_hand(tmp_path: Path) -> None:
    replay = make(tmp_path)
    # One step in four costs 4: mean 1, mean square 4.
    play_costs(replay, [0, 0, 0, 4])
    assert replay.cost_moments()[1] == math.sqrt(3)


def test_cost_deviation_is_zero_while_costs_do_not_differ(tmp_path: Path) -> None:
    replay = make(tmp_path)
    assert replay.cost_moments()[1] == 0.0
    play_costs(replay, [0, 0, 0])
    assert replay.cost_moments()[1] == 0.0
    replay = make(tmp_path / "other")
    play_costs(replay, [3])
    assert replay.cost_moments()[1] == 0.0
    play_costs(replay, [3, 3])
    assert replay.cost_moments()[1] == 0.0
    play_costs(replay, [7])
    # 3, 3, 3, 7: mean 4, deviations -1, -1, -1, 3.
    assert replay.cost_moments()[1] == math.sqrt(3)


def test_cost_deviation_goes_back_with_the_cursor(tmp_path: Path) -> None:
    replay = make(tmp_path)
    play_costs(replay, [0, 0, 0, 4])
    # A checkpoint keeps it as JSON.
    cursor = json.loads(json.dumps(replay.facts()))
    play_costs(replay, [100, 0])
    assert replay.cost_moments()[1] > 30.0
    reopened = make(tmp_path)
    for restored in (replay, reopened):
        restored.restore(cursor)
        assert restored.cost_moments()[1] == math.sqrt(3)
        assert restored.facts() == replay.facts()
    for restored in (replay, reopened):
        play_costs(restored, [1, 1])
        np.testing.assert_allclose(restored.cost_moments()[1], np.std([0, 0, 0, 4, 1, 1]))


@pytest.mark.parametrize("other", [{"capacity": 101}, {"capacity": 99}, {"reserve": 1}])
def test_file_of_another_size_is_refused(tmp_path: Path, other: dict[str, int]) -> None:
    make(tmp_path)
    sizes = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    # Observations of two float32, in twice as many rows as there are steps.
    needed = 2 * (other.get("capacity", 100) + other.get("reserve", 0)) * 2 * 4
    with pytest.raises(RunDamaged, match=rf"observations\.bin has 1600 bytes; .* {needed}$"):
        make(tmp_path, **other)
    assert {path.name: path.stat().st_size for path in tmp_path.iterdir()} == sizes


def test_cut_file_is_refused_by_name(tmp_path: Path) -> None:
    make(tmp_path)
    file = tmp_path / "costs.bin"
    file.write_bytes(file.read_bytes()[:-4])
    with pytest.raises(RunDamaged, match=r"costs\.bin has 396 bytes; .* need 400$"):
        make(tmp_path)


@pytest.mark.parametrize(
    ("costs", "scaling", "expected"),
    [
        # Mean 1, deviation sqrt(3) = 1.73205.
        ([0, 0, 0, 4], "none", [0.0, 4.0]),
        ([0, 0, 0, 4], "deviation", [0.0, 2.3094]),
        ([0, 0, 0, 4], "standardised", [-0.57735, 1.73205]),
        # Mean 1, deviation 9.94987: 100 is 9.95 deviations above the mean, cut at 5.
        ([0] * 99 + [100], "standardised", [-0.100504, 5.0]),
        # Nothing to scale by.
        ([3, 3, 3], "deviation", [3.0]),
        ([3, 3, 3], "standardised", [0.0]),
    ],
)
def test_costs_are_scaled_by_all_that_were_ever_added(
    tmp_path: Path, costs: list[int], scaling: str, expected: list[float]
) -> None:
    replay = make(tmp_path)
    replay.begin_episode(np.zeros(2, np.float32))
    for cost in costs:
        replay.add(np.zeros(1), 0.0, cost, False, np.zeros(2, np.float32))
    drawn = np.unique(replay.sample(2_000, scaling).cost)
    np.testing.assert_allclose(drawn, expected, rtol=1e-4)


def test_a_disk_that_fills_up_ends_a_run_that_resumes_exactly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = runs.quick_config("sac-lag", warmup_steps=500, steps=200)
    expected = runs.undisturbed(tmp_path / "a", config)
    monkeypatch.setattr(replay_module, "GROWTH", 32)
    allocate = os.posix_fallocate

    def full(file: int, offset: int, length: int) -> None:
        if offset + length > 96 * 4:  # rewards and costs of 96 steps
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        allocate(file, offset, length)

    run = tmp_path / "b"
    with monkeypatch.context() as patched:
        patched.setattr(os, "posix_fallocate", full)
        trainer = launch.start(config, run)
        with pytest.raises(OSError, match="No space left"):
            trainer.advance(config.steps)
        assert 0 < trainer.step < 96
        trainer.close()
    trainer = launch.resume(run)
    trainer.advance(config.steps)
    trainer.finish()
    trainer.close()
    assert runs.everything(run) == expected


def test_space_is_taken_before_it_is_written_to(tmp_path: Path) -> None:
    memory = Replay(tmp_path, SPEC, 100_000, 1_000, 0)
    before = (tmp_path / "rewards.bin").stat().st_blocks
    memory.begin_episode(observation(0, 0))
    memory.add(np.zeros(1), 0.0, 0.0, False, observation(0, 1))
    taken = (tmp_path / "rewards.bin").stat().st_blocks - before
    assert 512 * taken >= 4 * replay_module.GROWTH
    assert 512 * taken < 4 * 10 * replay_module.GROWTH


def test_checksums_cover_what_is_sampled_however_often_the_ring_wraps(tmp_path: Path) -> None:
    memory = Replay(tmp_path, SPEC, 64, 40, 0)
    for episode in range(60):
        memory.begin_episode(observation(episode, 0))
        for time in range(5):
            memory.add(np.full(1, time), episode, 0.0, False, observation(episode, time + 1))
        if episode % 7 == 0:  # a checkpoint is written from time to time, or never
            memory.facts()
    facts = {"run": "this", **memory.facts()}
    memory.flush()
    again = Replay(tmp_path, SPEC, 64, 40, 0, create=False)
    again.restore(facts)
    assert again.facts()["replay"]["checksums"] == facts["replay"]["checksums"]
    assert len(facts["replay"]["checksums"]) == 16
    rewards = np.memmap(tmp_path / "rewards.bin", np.float32, "r+")
    rewards[250 % 104] += 1.0  # within the last 64 of 300
    rewards.flush()
    with pytest.raises(RunDamaged, match="is not what the checkpoint was written with"):
        again.restore(facts)
