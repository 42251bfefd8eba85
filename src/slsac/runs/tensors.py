"""Pytrees as safetensors files: every array under the name of its path in the tree."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np
from safetensors.numpy import save as format_tensors

from slsac.errors import InvalidInput, RunDamaged
from slsac.runs import schema
from slsac.runs.layout import write_atomically

Tree = TypeVar("Tree")


def tensors_of(tree: Any) -> dict[str, np.ndarray]:
    """Every array of a pytree by its path, as in ``reward_critics.weights[0]``."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {_name(path): np.asarray(leaf) for path, leaf in leaves}


def _kind(array: Any) -> str:
    return f"{np.dtype(array.dtype)} of shape {np.shape(array)}"


def tree_from(tensors: dict[str, np.ndarray], like: Tree, source: Path) -> Tree:
    """The arrays put back into the structure of ``like``; names and shapes must match."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(like)
    arrays = []
    for path, leaf in leaves:
        name = _name(path)
        wanted = _kind(leaf)
        seen = _kind(tensors[name]) if name in tensors else "missing"
        if seen != wanted:
            raise RunDamaged(f"{source}: {name} is {seen}; its config asks for {wanted}")
        arrays.append(jax.numpy.array(tensors[name]))
    return jax.tree_util.tree_unflatten(structure, arrays)


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path).lstrip(".")


def save_tensors(path: Path, tree: Any) -> None:
    """Writes the arrays of a pytree to one file, atomically."""
    save_arrays(path, tensors_of(tree))


def save_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Writes named arrays to one file, atomically."""
    write_atomically(path, format_tensors(arrays))


def load_tensors(path: Path, like: Tree) -> Tree:
    """Reads what `save_tensors` wrote into the structure of ``like``."""
    return load_hashed(path, like)[0]


def load_hashed(path: Path, like: Tree) -> tuple[Tree, str]:
    """What `load_tensors` returns, and the SHA-256 of the same bytes."""
    try:
        data = path.read_bytes()
        tensors = schema.parse_tensors(data)
    except (OSError, schema.Misfit) as error:
        raise InvalidInput(f"{path} cannot be read: {error}") from None
    for name, array in tensors.items():
        if not np.isfinite(array).all():
            raise RunDamaged(f"{path}: {name} holds a number that is not finite")
    return tree_from(tensors, like, path), hashlib.sha256(data).hexdigest()
