"""A cache of compiled programs on disk: the second start of the same agent is quick."""

from __future__ import annotations

import os
from pathlib import Path

import jax


def use_cache() -> None:
    """Turn JAX's persistent cache on, unless JAX_COMPILATION_CACHE_DIR already places it."""
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        jax.config.update("jax_compilation_cache_dir", str(home / "slsac" / "jax"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)
