"""What JAX compiles while something runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import jax


@contextmanager
def compilations() -> Iterator[list[str]]:
    """A list to which every compilation within the block is added, cached on disk or not.

    Tracing alone does not count: `launch.start` asks for the shapes of a state before it makes one.
    """
    compiled: list[str] = []

    def note(event: str, seconds: float, **_: object) -> None:
        if "jaxpr_to_mlir" in event:
            compiled.append(event)

    jax.monitoring.register_event_duration_secs_listener(note)
    try:
        yield compiled
    finally:
        jax.monitoring.unregister_event_duration_listener(note)
