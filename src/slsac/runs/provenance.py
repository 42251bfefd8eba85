"""What a run was made with: versions, commit, and the machine facts that decide its bits."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import jax

PACKAGES = ("slsac", "jax", "jaxlib", "equinox", "optax", "numpy", "gymnasium", "mujoco",
            "safety-gymnasium", "metadrive-simulator")  # fmt: skip

DECIDES_BITS = ("cores", "python", "versions", "xla_flags", "machine", "cpu", "backend", "source",
                "together")  # fmt: skip
"""Facts that must be equal for a resumed run to repeat an undisturbed one bit for bit."""


PACKAGE = Path(__file__).resolve().parent.parent
SOURCE_THAT_DECIDES_BITS = (
    "algorithms", "config", "envs", "evaluate.py", "langevin.py", "networks.py", "risk.py", "runs",
    "seeds.py", "stats", "tasks.py", "training", "types.py",
)  # fmt: skip
"""Rooms of the package on which a run's numbers depend. What only shows, reports or schedules runs
may change between a run and its resumption."""


CPU_NUMBERS = ("cpu family", "model", "CPU implementer", "CPU part", "CPU variant")
VECTOR_FLAGS = ("sse", "ssse", "avx", "fma", "f16c", "bmi", "amx", "asimd", "sve", "sme", "bf16")


def available_cores() -> int:
    """Cores this process may use; XLA splits its sums by it, so results depend on it."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def describe(together: int = 1) -> dict[str, Any]:
    """The facts as JSON takes them; ``together`` is the number of seeds in one update."""
    versions: dict[str, str | None] = {}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = None
    return {
        "cores": available_cores(),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cpu": cpu_model(),
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
        "backend": backend(),
        "source": source_digest(),
        "together": together,
        "versions": versions,
        "commit": commit(),
    }


def backend() -> str:
    """The kind of device that JAX computes on: cpu, gpu, ..."""
    chosen = getattr(jax.config, "jax_default_device", None)
    return chosen.platform if isinstance(chosen, jax.Device) else jax.default_backend()


def source_digest(package: Path = PACKAGE) -> str:
    """A short hash of the source that decides bits: another may draw or round differently."""
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        name = path.relative_to(package)
        if name.parts[0] in SOURCE_THAT_DECIDES_BITS:
            digest.update(str(name).encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def cpu_model(info: Path = Path("/proc/cpuinfo")) -> str:
    """The processor by its name, its numbers, and a hash of its vector instructions and cache.

    The name alone will not do: virtual machines call processors with and without AVX-512 alike,
    and XLA chooses instructions, and blocks of a product, by what it finds.
    """
    if not info.exists():
        return platform.processor()
    first_core = info.read_text(encoding="utf-8", errors="replace").strip().partition("\n\n")[0]
    facts = {
        name.strip(): value.strip()
        for name, _, value in (line.partition(":") for line in first_core.splitlines())
    }
    numbers = [f"{name} {facts[name]}" for name in CPU_NUMBERS if name in facts]
    # Not all of a processor's flags: some of them are the kernel's, and change with it.
    flags = (facts.get("flags") or facts.get("Features") or "").split()
    decisive = sorted(flag for flag in flags if flag.startswith(VECTOR_FLAGS))
    digest = hashlib.sha256(" ".join([*decisive, facts.get("cache size", "")]).encode())
    name = facts.get("model name") or platform.processor()
    return ", ".join([name, *numbers, f"instructions and cache {digest.hexdigest()[:8]}"])


def commit() -> str | None:
    """Commit of the source tree this runs from, with ``-dirty`` where it was changed since."""
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
            cwd=PACKAGE, capture_output=True, text=True, timeout=10, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return described.stdout.strip()


def differences(recorded: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Facts that decide a run's bits and have changed, as ``name: before -> now``."""
    changed = []
    for name in DECIDES_BITS:
        before, after = recorded.get(name), now.get(name)
        if name == "versions":
            before, after = dict(before or {}), dict(after or {})
            # A package that was not installed then has no part in the run.
            absent = {package for package, version in before.items() if version is None}
            for package in sorted((before.keys() | after.keys()) - absent):
                if before.get(package) != after.get(package):
                    changed.append(f"{package}: {before.get(package)} -> {after.get(package)}")
        elif before != after:
            changed.append(f"{name}: {before} -> {after}")
    return changed
