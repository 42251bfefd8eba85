"""A trained policy as a file that is played without slsac: ONNX, or numpy's ``.npz``.

The file holds the whole way from an observation to an action in the env's own units: normalisation,
layers, squashing and bounds. The action is the deterministic one.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from slsac._version import __version__
from slsac.algorithms.off_policy.policy import TrainedPolicy
from slsac.config import Config, OnPolicyConfig
from slsac.errors import Failed, InvalidInput
from slsac.networks import MLP, NEAR, Normaliser, nearness
from slsac.runs.layout import write_atomically
from slsac.runs.policy import TrainedRun, load_learned
from slsac.types import EnvSpec

FORMATS = (".onnx", ".npz")
TRIED = 1_000
"""Observations on which a file is compared with the policy it is made from."""
TOLERANCE = 1e-4
"""Largest difference from the policy, as a share of the action's range."""

Play = Callable[[np.ndarray], np.ndarray]
"""Actions of observations ``[batch, ...]``."""


class Exported(NamedTuple):
    """A file that has been written."""

    observation_size: int
    action_size: int
    error: float | None
    """Largest difference from the policy's actions, in the env's units; None if not compared."""


def export(run: Path, file: Path) -> Exported:
    """Writes the newest policy of ``run`` to ``file``, once the two have been compared."""
    if file.suffix not in FORMATS:
        raise InvalidInput(f"file is {str(file)!r}; its name must end in {' or '.join(FORMATS)}")
    learned = load_learned(run)
    arrays = layers(learned.config, learned.spec, learned.policy)
    if file.suffix == ".npz":
        data = _npz(arrays)
        play: Play | None = lambda rows: play_arrays(dict(np.load(io.BytesIO(data))), rows)  # noqa: E731
    else:
        data = _onnx(arrays, learned)
        play = _onnx_player(data)
    error = None if play is None else _compare(play, learned, arrays)
    # Not before: whoever finds a file takes it for the policy.
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, data)
    return Exported(learned.spec.observation_size, learned.spec.action_size, error)


def layers(config: Config, spec: EnvSpec, policy: Any) -> dict[str, np.ndarray]:
    """All that decides the deterministic action, as named arrays.

    ``mean``, ``deviation`` and ``bound`` say how observations are normalised; `nearness` of the
    entries ``closeness`` at ``rates`` follows them. ``weight0``, ``bias0``, ... are the layers.
    ``hidden`` (relu or tanh) follows all but the last, ``output`` (tanh or clip) the last.
    ``middle`` and ``scale`` lead to the env's units.
    """
    on_policy = isinstance(config, OnPolicyConfig)
    network: MLP = policy.gaussian.network if on_policy else policy
    normaliser: Normaliser | None = policy.normaliser if on_policy else None
    if isinstance(policy, TrainedPolicy):
        normaliser = policy.normaliser
        network = policy.network if policy.average is None else policy.average
    if normaliser is None or not config.normalise_observations:
        size, bound = spec.observation_size, np.inf
        normaliser = Normaliser(np.zeros(size, np.float32), np.ones(size, np.float32))
    else:
        bound = config.observation_clip
    rates = () if isinstance(config, OnPolicyConfig) else config.closeness_rates
    entries = spec.closeness if rates else ()
    arrays: dict[str, Any] = {}
    for number, (weight, bias) in enumerate(zip(network.weights, network.biases, strict=True)):
        arrays |= {f"weight{number}": weight, f"bias{number}": bias}
    # A Gaussian's deviations stand beside its means, and are not needed.
    last = len(network.weights) - 1
    arrays[f"weight{last}"] = network.weights[-1][:, : spec.action_size]
    arrays[f"bias{last}"] = network.biases[-1][: spec.action_size]
    arrays |= {
        "mean": normaliser.mean,
        "deviation": normaliser.deviation,
        "bound": np.float32(bound),
        "closeness": np.array(entries, np.int64),
        "rates": np.array(rates if entries else (), np.float32),
        "middle": spec.action_middle,
        "scale": spec.action_scale,
        "hidden": "tanh" if on_policy else "relu",
        "output": "clip" if on_policy else "tanh",
    }
    return {name: np.asarray(value) for name, value in arrays.items()}


def play_arrays(arrays: dict[str, np.ndarray], observation: np.ndarray) -> np.ndarray:
    """The action of `layers` for one observation or a batch, in the env's units."""
    observation = np.asarray(observation, np.float32)
    x = (observation - arrays["mean"]) / arrays["deviation"]
    x = np.clip(x, -arrays["bound"], arrays["bound"])
    if arrays["closeness"].size:
        near = nearness(observation[..., arrays["closeness"]], arrays["rates"].tolist())
        x = np.concatenate([x, near], axis=-1)
    count = sum(name.startswith("weight") for name in arrays)
    for number in range(count):
        x = x @ arrays[f"weight{number}"] + arrays[f"bias{number}"]
        if number < count - 1:
            x = np.tanh(x) if arrays["hidden"] == "tanh" else np.maximum(x, 0.0)
    x = np.tanh(x) if arrays["output"] == "tanh" else np.clip(x, -1.0, 1.0)
    return arrays["middle"] + arrays["scale"] * x


def _compare(play: Play, learned: TrainedRun, arrays: dict[str, np.ndarray]) -> float:
    """The largest difference from the policy's own actions; raise Failed where it is not small."""
    rng = np.random.default_rng(0)
    size = (TRIED, learned.spec.observation_size)
    rows = (arrays["mean"] + 2 * arrays["deviation"] * rng.normal(size=size)).astype(np.float32)
    unit = np.asarray(jax.jit(learned.agent.predict)(learned.policy, rows))
    expected = arrays["middle"] + arrays["scale"] * unit
    differences = np.abs(play(rows) - expected)
    differences = np.maximum(differences, np.abs(play(rows[:1]) - expected[:1]))
    if not (differences <= TOLERANCE * (1e-6 + arrays["scale"])).all():
        raise Failed(
            f"the exported policy differs from the run's by {differences.max():.2g}; no file was "
            "written"
        )
    return float(differences.max())


def _npz(arrays: dict[str, np.ndarray]) -> bytes:
    data = io.BytesIO()
    np.savez(data, **arrays)  # type: ignore[arg-type]
    return data.getvalue()


def _onnx(arrays: dict[str, np.ndarray], learned: TrainedRun) -> bytes:
    try:
        import onnx
        from onnx import TensorProto, helper, numpy_helper
    except ImportError:
        raise InvalidInput(
            "onnx is not installed; run `pip install 'slsac[export]'`; a .npz file needs nothing"
        ) from None
    nodes: list[Any] = []
    constants: dict[str, np.ndarray] = {}

    def add(
        op: str,
        x: str,
        more: dict[str, np.ndarray] | None = None,
        inputs: tuple[str, ...] = (),
        **options: Any,
    ) -> str:
        """Appends one operation on ``x``, ``inputs`` and named constants; its result's name."""
        constants.update(more or {})
        name = f"{op.lower()}{len(nodes)}"
        nodes.append(helper.make_node(op, [x, *inputs, *(more or {})], [name], **options))
        return name

    def bounded(x: str, bound: float, name: str) -> str:
        low, high = np.asarray(-bound, np.float32), np.asarray(bound, np.float32)
        return add("Clip", x, {f"{name}_low": low, f"{name}_high": high})

    x = "observation"
    if np.isfinite(arrays["bound"]):
        x = add("Sub", x, {"mean": arrays["mean"]})
        x = add("Div", x, {"deviation": arrays["deviation"]})
        x = bounded(x, float(arrays["bound"]), "bound")
    if arrays["closeness"].size:
        x = _with_nearness(add, x, arrays)
    count = sum(name.startswith("weight") for name in arrays)
    for number in range(count):
        for op, name in (("MatMul", f"weight{number}"), ("Add", f"bias{number}")):
            x = add(op, x, {name: arrays[name]})
        if number < count - 1:
            x = add("Tanh" if arrays["hidden"] == "tanh" else "Relu", x)
    x = add("Tanh", x) if arrays["output"] == "tanh" else bounded(x, 1.0, "unit")
    x = add("Mul", x, {"scale": arrays["scale"]})
    constants["middle"] = arrays["middle"]
    nodes.append(helper.make_node("Add", [x, "middle"], ["action"]))

    def batch(name: str, size: int) -> Any:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", size])

    graph = helper.make_graph(
        nodes,
        "policy",
        [batch("observation", learned.spec.observation_size)],
        [batch("action", learned.spec.action_size)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = helper.make_model(
        graph,
        producer_name="slsac",
        producer_version=__version__,
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    facts = {
        "algo": learned.config.algo,
        "env": learned.config.env,
        "steps": str(learned.steps),
        "policy_sha256": learned.policy_sha256,
    }
    helper.set_model_props(model, facts)
    onnx.checker.check_model(model, full_check=True)
    return bytes(model.SerializeToString())


def _with_nearness(add: Callable[..., str], x: str, arrays: dict[str, np.ndarray]) -> str:
    """``x`` followed by `nearness` of the observation; the name of the result."""
    one, size = np.float32(1.0), np.float32(NEAR)
    read = add("Gather", "observation", {"closeness": arrays["closeness"]}, axis=1)
    limits = {"out_of_sight": np.float32(-1.0), "touching": np.float32(0.0)}
    closeness_less_one = add("Clip", add("Sub", read, {"one": one}), limits)
    for number, rate in enumerate(arrays["rates"]):
        near = add("Exp", add("Mul", closeness_less_one, {f"rate{number}": rate}))
        near = add("Mul", near, {f"near{number}": size})
        x = add("Concat", x, inputs=(near,), axis=1)
    return x


def _onnx_player(data: bytes) -> Play | None:
    """Plays an ONNX file's content; None where there is no onnxruntime."""
    try:
        import onnxruntime
    except ImportError:
        return None
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    return lambda rows: session.run(["action"], {"observation": rows})[0]
