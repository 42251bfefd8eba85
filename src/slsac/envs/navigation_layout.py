"""Where the objects of a navigation task are placed at the start of an episode."""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def build_layout(generator: Any, resampling_error: type[Exception]) -> dict[str, np.ndarray]:
    """Places that keep their distances, drawn like the generator's own from the same numbers.

    A crowded layout takes thousands of draws, for which arrays of two numbers are slow.
    """
    objects = []
    for name, (placements, keepout) in generator.placements.items():
        areas = [generator.placements_extents] if placements is None else placements
        assert len(areas) == 1, f"{name} has {len(areas)} areas to be placed in"
        left, bottom, right, top = generator.constrain_placement(areas[0], keepout)
        assert left <= right, f"{name} has no room"
        assert bottom <= top, f"{name} has no room"
        objects.append((name, keepout, left, bottom, right, top))
    for _ in range(10_000):
        layout = _sample_layout(objects, generator)
        if layout is not None:
            generator.layout = {name: np.array(place) for name, place in layout.items()}
            return generator.layout
    raise resampling_error("Failed to sample layout of objects")


def _sample_layout(
    objects: list[tuple[str, float, float, float, float, float]], generator: Any
) -> dict[str, tuple[float, float]] | None:
    """Each object in turn, a hundred tries for each; None if one finds no place."""
    uniform, margin = generator.random_generator.uniform, generator.placements_margin
    layout: dict[str, tuple[float, float]] = {}
    placed: list[tuple[float, float, float]] = []
    for name, keepout, left, bottom, right, top in objects:
        for _ in range(100):
            x, y = uniform(left, right), uniform(bottom, top)
            for other_x, other_y, room in placed:
                across, along = x - other_x, y - other_y
                if math.sqrt(across * across + along * along) < room + keepout:
                    break
            else:
                layout[name] = (x, y)
                placed.append((x, y, keepout + margin))
                break
        else:
            return None
    return layout
