"""Where JAX computes, and a cache of its compiled programs on disk: the second start of the same
agent is quick."""

from __future__ import annotations

import os
from pathlib import Path

import jax

from slsac.errors import InvalidInput

KINDS = ("cpu", "gpu")


def prepare(device: str | None = None) -> None:
    """Set JAX up for a command: its device, and the cache of compiled programs."""
    use_device(device)
    use_cache()


def use_device(name: str | None) -> None:
    """Compute on ``cpu``, ``gpu`` or ``gpu:1``; on JAX's own choice if None.

    Raise InvalidInput, in one line, where there is no such device.
    """
    kind, colon, number = (name or "").partition(":")
    if name is not None and (kind not in KINDS or (colon and not number.isdecimal())):
        raise InvalidInput(f"device is {name!r}; it must be cpu, gpu or gpu:N")
    if kind == "cpu":
        jax.config.update("jax_platforms", kind)  # starts no other, whatever JAX_PLATFORMS says
    try:
        # A backend that JAX_PLATFORMS asks for and that does not start fails here, in any case.
        devices = jax.devices(kind or None)
    except (RuntimeError, AssertionError) as error:
        raise InvalidInput(_no_device(name, error)) from None
    if name is None:
        return
    if int(number or 0) >= len(devices):
        raise InvalidInput(f"device is {name}; this machine has {len(devices)}, counted from 0")
    jax.config.update("jax_default_device", devices[int(number or 0)])


def _no_device(name: str | None, error: Exception) -> str:
    reason = " ".join(str(error).split())[:200] or type(error).__name__
    if name is None:
        wanted = os.environ.get("JAX_PLATFORMS", "")
        return (
            f"JAX_PLATFORMS is {wanted!r}, and JAX cannot start it; unset it or set cpu ({reason})"
        )
    return (
        f"device is {name}; JAX finds none here: pass --device cpu, or install JAX for your "
        f"accelerator ({reason})"
    )


def use_cache() -> None:
    """Turn JAX's persistent cache on, unless JAX_COMPILATION_CACHE_DIR already places it."""
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        jax.config.update("jax_compilation_cache_dir", str(home / "slsac" / "jax"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)
