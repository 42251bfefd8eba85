"""Checkpoints: the same bits come back, damage is noticed, and nothing is pickled."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import slsac
from slsac.errors import RunDamaged
from slsac.networks import MLP
from slsac.runs import checkpoint, tensors


class State(NamedTuple):
    network: MLP
    missing: Any
    key: jax.Array
    updates: jax.Array
    odd: jax.Array


def state(seed: int = 0) -> State:
    key = jax.random.PRNGKey(seed)
    odd = jnp.array([jnp.nan, jnp.inf, -0.0, 1e-45, 3.4e38])
    return State(MLP((3, 4, 1), key=key), None, key, jnp.asarray(7 + seed, jnp.int32), odd)


def save(folder: Path, step: int, tree: Any = None, **facts: Any) -> Path:
    arrays = tensors.tensors_of(state() if tree is None else tree)
    return checkpoint.save(folder, checkpoint.step_name(step), arrays, {"step": step, **facts})


def assert_bit_equal(one: Any, other: Any) -> None:
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for left, right in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert left.dtype == right.dtype
        assert left.shape == right.shape
        assert np.asarray(left).tobytes() == np.asarray(right).tobytes()


def test_state_comes_back_bit_for_bit(tmp_path: Path) -> None:
    path = save(tmp_path, 12, state(1), window=[1.5, 0.1])
    loaded = checkpoint.load(path)
    assert_bit_equal(tensors.tree_from(loaded.tensors, state(2), path), state(1))
    assert loaded.facts["step"] == 12
    assert loaded.facts["window"] == [1.5, 0.1]


def test_tensors_have_readable_names(tmp_path: Path) -> None:
    assert sorted(checkpoint.load(save(tmp_path, 1)).tensors) == [
        "key",
        "network.biases[0]",
        "network.biases[1]",
        "network.weights[0]",
        "network.weights[1]",
        "odd",
        "updates",
    ]


def test_other_shape_is_named(tmp_path: Path) -> None:
    path = save(tmp_path, 1)
    wider = state()._replace(network=MLP((3, 5, 1), key=jax.random.PRNGKey(0)))
    with pytest.raises(
        RunDamaged,
        match=r"weights\[0\] is float32 of shape \(3, 4\); .* for float32 of shape \(3, 5\)",
    ):
        tensors.tree_from(checkpoint.load(path).tensors, wider, path)


def test_missing_tensor_is_named(tmp_path: Path) -> None:
    path = save(tmp_path, 1)
    longer = state()._replace(missing=jnp.zeros(2))
    with pytest.raises(RunDamaged, match=r"missing is missing; .* for float32 of shape \(2,\)"):
        tensors.tree_from(checkpoint.load(path).tensors, longer, path)


def test_other_dtype_is_named(tmp_path: Path) -> None:
    path = save(tmp_path, 1)
    counted = state()._replace(updates=jnp.asarray(7.0, jnp.float32))
    with pytest.raises(
        RunDamaged,
        match=r"updates is int32 of shape \(\); .* for float32 of shape \(\)",
    ):
        tensors.tree_from(checkpoint.load(path).tensors, counted, path)


def test_same_state_gives_the_same_bytes(tmp_path: Path) -> None:
    one = save(tmp_path / "one", 3, window=[1.0], episode=2)
    other = save(tmp_path / "other", 3, episode=2, window=[1.0])
    for name in ("state.safetensors", "state.json"):
        assert (one / name).read_bytes() == (other / name).read_bytes()


def test_last_two_steps_are_kept_and_the_final_state_with_them(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, checkpoint.FINAL, tensors.tensors_of(state()), {"step": 5})
    # 900 and 1000 sort by number, not as text.
    for step in (5, 900, 1000):
        save(tmp_path, step)
    names = [checkpoint.step_name(900), checkpoint.step_name(1000)]
    assert checkpoint.step_names(tmp_path) == names
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*names, "final"])
    assert checkpoint.saved_step(tmp_path, checkpoint.FINAL) == 5


def test_saving_again_replaces(tmp_path: Path) -> None:
    save(tmp_path, 1, state(1))
    path = save(tmp_path, 1, state(2))
    assert_bit_equal(tensors.tree_from(checkpoint.load(path).tensors, state(), path), state(2))


def truncate_tensors(path: Path) -> None:
    file = path / "state.safetensors"
    file.write_bytes(file.read_bytes()[:-10])


def empty_tensors(path: Path) -> None:
    (path / "state.safetensors").write_bytes(b"")


def flip_a_bit(path: Path) -> None:
    file = path / "state.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)


def remove_tensors(path: Path) -> None:
    (path / "state.safetensors").unlink()


def remove_facts(path: Path) -> None:
    (path / "state.json").unlink()


def truncate_facts(path: Path) -> None:
    file = path / "state.json"
    file.write_bytes(file.read_bytes()[:-10])


def change_a_number(path: Path) -> None:
    file = path / "state.json"
    text = file.read_text()
    step = json.loads(text)["step"]
    assert text.count(f'"step": {step}') == 1
    file.write_text(text.replace(f'"step": {step}', f'"step": {step + 1}'))


def drop_a_fact(path: Path) -> None:
    file = path / "state.json"
    facts = json.loads(file.read_text())
    del facts["step"]
    file.write_text(json.dumps(facts))


def drop_the_checksum(path: Path) -> None:
    file = path / "state.json"
    facts = json.loads(file.read_text())
    del facts["facts_sha256"]
    file.write_text(json.dumps(facts))


every_damage = pytest.mark.parametrize(
    "damage",
    [
        truncate_tensors, empty_tensors, flip_a_bit, remove_tensors, remove_facts, truncate_facts,
        change_a_number, drop_a_fact, drop_the_checksum,
    ],
)  # fmt: skip


@every_damage
def test_damaged_checkpoint_falls_back_to_the_one_before(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    save(tmp_path, 10, state(1))
    newest = save(tmp_path, 20, state(2))
    damage(newest)
    found, messages = checkpoint.load_newest(tmp_path)
    assert found.facts["step"] == 10
    assert_bit_equal(tensors.tree_from(found.tensors, state(), found.path), state(1))
    (message,) = messages
    assert "damaged" in message
    assert str(newest) in message


@pytest.mark.parametrize("text", ["[]", "null", "3", "{}", '"facts_sha256"', ""])
def test_facts_of_another_kind_are_damage(tmp_path: Path, text: str) -> None:
    path = save(tmp_path, 1)
    (path / "state.json").write_text(text)
    with pytest.raises(checkpoint.Damaged, match=re.escape(str(path))):
        checkpoint.load(path)


def test_changed_number_is_named_as_a_checksum_that_does_not_match(tmp_path: Path) -> None:
    path = save(tmp_path, 20)
    change_a_number(path)
    with pytest.raises(checkpoint.Damaged, match=r"checksum of state\.json does not match"):
        checkpoint.load(path)


def test_sound_newest_checkpoint_is_taken_without_a_message(tmp_path: Path) -> None:
    save(tmp_path, 10)
    save(tmp_path, 20)
    found, messages = checkpoint.load_newest(tmp_path)
    assert (found.facts["step"], messages) == (20, [])


@every_damage
def test_nothing_readable_is_a_failure_that_names_what_was_tried(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    paths = [save(tmp_path, 10), save(tmp_path, 20)]
    for path in paths:
        damage(path)
    with pytest.raises(RunDamaged, match="holds no readable checkpoint") as caught:
        checkpoint.load_newest(tmp_path)
    assert all(str(path) in str(caught.value) for path in paths)


def test_empty_folder_is_a_failure(tmp_path: Path) -> None:
    with pytest.raises(RunDamaged, match="holds no readable checkpoint"):
        checkpoint.load_newest(tmp_path)


def test_unfinished_checkpoint_is_ignored_and_written_over(tmp_path: Path) -> None:
    save(tmp_path, 10)
    leftover = tmp_path / f".writing-{checkpoint.step_name(20)}"
    leftover.mkdir()
    (leftover / "state.safetensors").write_bytes(b"half")
    found, messages = checkpoint.load_newest(tmp_path)
    assert (found.facts["step"], messages) == (10, [])
    save(tmp_path, 20)
    assert not leftover.exists()
    assert checkpoint.load_newest(tmp_path)[0].facts["step"] == 20


def test_what_was_saved_last_counts_although_a_later_checkpoint_is_damaged(tmp_path: Path) -> None:
    save(tmp_path, 50)
    flip_a_bit(save(tmp_path, 100))
    arrays = tensors.tensors_of(state(3))
    checkpoint.write(tmp_path, checkpoint.LAST, arrays, {"step": 80})
    assert checkpoint.load_newest(tmp_path)[0].facts["step"] == 80
    # One that a killed save has left behind:
    checkpoint.write(tmp_path, checkpoint.LAST, arrays, {"step": 40})
    assert checkpoint.load_newest(tmp_path)[0].facts["step"] == 50


def test_nothing_that_is_stored_is_pickled() -> None:
    # These two send an env's factory to a process of their own; neither touches a file.
    between_processes = {"envs/worker.py", "envs/vector.py"}
    package = Path(slsac.__file__).parent
    uses = re.compile(r"(import|from)\s+(pickle|dill|cloudpickle|joblib)\b|allow_pickle\s*=\s*True")
    sources = list(package.rglob("*.py"))
    assert len(sources) > 15
    found = {str(p.relative_to(package)) for p in sources if uses.search(p.read_text())}
    assert found == between_processes
