"""`slsac bench`: how fast this machine trains, as ratios taken within one run.

Subjects take turns, several rounds of them, and medians are shown: the machine may be busy with
other things, and a ratio within one run suffers least from that. Each section is a list of records;
`table` shows them and the command line writes them as JSON.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from slsac import rundir
from slsac.agent import off_policy, reward_critic
from slsac.agent.optimisers import build_optimiser
from slsac.config import OffPolicyConfig
from slsac.envs import list_envs, make_env
from slsac.errors import InvalidInput
from slsac.overrides import with_overrides
from slsac.presets import off_policy_preset, preset
from slsac.replay import Replay
from slsac.types import Batch, EnvSpec

Record = dict[str, Any]
Product = tuple[int, int, int, int, float]
"""(stack, rows, inner, columns, times in one update)."""

PEERS = {"omnisafe": ("omnisafe_loop.py", "SACLag"), "sbx": ("sbx_loop.py", "SAC")}
"""Script under benchmarks/peers, and the algorithm that it trains."""


def matrix_products(config: OffPolicyConfig, spec: EnvSpec) -> list[Product]:
    """The products of one update on average.

    A layer costs one product forwards, and two backwards: for its weights and for its input. The
    first layer's input needs no gradient, except in the policy's update, where the action does.
    """
    batch, inputs = config.batch_size, spec.observation_size + spec.action_size
    often = 1.0 / config.policy_delay
    found: list[Product] = []

    def network(
        stack: int, sizes: tuple[int, ...], forward: float, weights: float, data: float,
        first_data: float,
    ) -> None:  # fmt: skip
        for layer, (rows, columns) in enumerate(itertools.pairwise(sizes)):
            found.append((stack, batch, rows, columns, forward))
            found.append((stack, rows, batch, columns, weights))
            found.append((stack, batch, columns, rows, data if layer else first_data))

    reward, cost, policy = config.reward_critic, config.cost_critic, config.policy
    # Targets and predictions always; once more through the critics for the policy.
    network(2 * reward.pairs, (inputs, *reward.hidden, 1), 2 + often, 1.0, 1 + often, often)
    network(1, (inputs, *cost.hidden), 2 + often, 1.0, 1 + often, often)
    if cost.kind == "quantile":
        found.append((1, batch, cost.hidden[-1], cost.quantiles, 2 + often + 2 * (1 + often)))
        found.append((1, cost.quantiles, cost.embedding, cost.hidden[-1], 2 + often + 1.0))
    outputs = 2 * spec.action_size if policy.head == "squashed-gaussian" else spec.action_size
    network(
        1, (spec.observation_size, *policy.hidden, outputs), 1 + often, often, often, 0.0
    )  # fmt: skip
    return [product for product in found if product[-1] > 0]


def floor_call(products: Sequence[Product]) -> Callable[[], Any]:
    """One jitted call with the products of two updates and nothing else."""
    rng = np.random.default_rng(0)
    pairs = []
    for stack, rows, inner, columns, times in products:
        for _ in range(round(2 * times)):
            # Operands of their own and whole results: nothing can be merged or left out.
            left = rng.normal(size=(stack, rows, inner)).astype(np.float32)
            right = rng.normal(size=(stack, inner, columns)).astype(np.float32)
            pairs.append((jnp.asarray(left), jnp.asarray(right)))
    run = jax.jit(lambda operands: [left @ right for left, right in operands])
    return lambda: jax.block_until_ready(run(pairs))


def seconds(call: Callable[[], Any]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def in_turns(
    calls: dict[str, Callable[[], Any]], rounds: int, repeats: int = 1
) -> dict[str, list[float]]:
    """Seconds of each call, ``rounds`` times; each figure is a median of ``repeats``."""
    for call in calls.values():
        call()  # compiles
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            taken[name].append(median(seconds(call) for _ in range(repeats)))
    return taken


def ratio(over: Sequence[float], under: Sequence[float]) -> float:
    """Median of the rounds' ratios."""
    return median(a / b for a, b in zip(over, under, strict=True))


def training(
    algos: Sequence[str], env: str, rounds: int, steps: int, peer: Callable[[], float] | None
) -> list[Record]:
    """Whole training, the update alone and its products alone, beside a peer's training."""
    fill = 1_000
    with tempfile.TemporaryDirectory() as folder:
        trainers = {}
        calls: dict[str, Callable[[], Any]] = {}
        for algo in algos:
            config = with_overrides(
                off_policy_preset(algo, env),
                {"warmup_steps": fill, "evaluate_every_epochs": 1_000_000},
            )
            trainer = rundir.start(config, Path(folder) / algo.replace("/", "-"))
            trainer.advance(fill + 2 * config.policy_delay)
            trainers[algo] = trainer
            calls[f"{algo} floor"] = floor_call(matrix_products(config, trainer.spec))
            calls[f"{algo} update"] = lambda trainer=trainer: [  # type: ignore[misc]
                trainer._learn() for _ in range(trainer.config.policy_delay)
            ]
        found: dict[str, list[float]] = {name: [] for name in (*calls, *algos, "peer")}
        for _ in range(rounds):
            for algo, trainer in trainers.items():
                taken = seconds(lambda t=trainer: t.advance(t.step + steps))  # type: ignore[misc]
                found[algo].append(steps / taken)
            for name, values in in_turns(calls, 1, repeats=15).items():
                found[name] += values
            if peer is not None:
                found["peer"].append(peer())
        for trainer in trainers.values():
            trainer.close()
    records: list[Record] = []
    for algo in algos:
        config = cast(OffPolicyConfig, trainers[algo].config)
        products = matrix_products(config, trainers[algo].spec)
        update = [t / config.policy_delay for t in found[f"{algo} update"]]
        floor = [t / 2 for t in found[f"{algo} floor"]]
        records.append(
            {
                "algo": algo,
                "steps_per_second": median(found[algo]),
                "update_ms": 1e3 * median(update),
                "floor_ms": 1e3 * median(floor),
                "gflop": 2e-9 * sum(s * r * i * c * times for s, r, i, c, times in products),
                "share_of_floor": ratio(floor, update),
                "against_peer": ratio(found[algo], found["peer"]) if peer is not None else None,
            }
        )
    if peer is not None:
        records.append({"algo": "peer", "steps_per_second": median(found["peer"])})
    return records


def peer_training(name: str, python: Path, env: str) -> Callable[[], float]:
    """A function that trains a peer in its own environment and returns its steps per second."""
    script, algo = PEERS[name]
    return functools.partial(run_peer, python, script, algo, env, "500")


def run_peer(python: Path, script: str, *arguments: str) -> float:
    """Steps per second that a peer's own loop reports."""
    path = Path(__file__).resolve().parents[2] / "benchmarks" / "peers" / script
    if not path.exists():
        raise InvalidInput(f"{script}, the peer's loop, is in a clone of slsac only")
    if not python.exists():
        raise InvalidInput(
            f"peer-python is {python}, which does not exist; benchmarks/README.md says how to "
            "make an environment for a peer"
        )
    done = subprocess.run([python, path, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise InvalidInput(f"{script} failed: {(done.stderr.splitlines() or ['?'])[-1]}")
    return float(json.loads(done.stdout.splitlines()[-1])["steps_per_second"])


def on_policy(rounds: int, peer_python: Path | None) -> list[Record]:
    """PPO-Lagrangian, playing and learning whole epochs, in turns with OmniSafe's.

    The same settings on both sides, OmniSafe's own, and the same number of steps in an epoch; the
    first epoch of each, which compiles, is not timed.
    """
    steps, epochs = 4_000, 1
    records: list[Record] = []
    for env in ("SafetyPointGoal1-v0", "SafetyAntVelocity-v1"):
        ours: dict[int, list[float]] = {0: [], 2: []}
        peer: list[float] = []
        for _ in range(rounds):
            for workers, found in ours.items():
                found.append(epoch_speed(env, steps, epochs, workers))
            if peer_python is not None:
                peer.append(
                    run_peer(
                        peer_python, "omnisafe_ppo_loop.py", "PPOLag", env, str(steps), str(epochs)
                    )
                )
        records += [
            {
                "env": env,
                "workers": workers,
                "steps_per_second": median(found),
                "peer": median(peer) if peer else None,
                "against_peer": ratio(found, peer) if peer else None,
            }
            for workers, found in ours.items()
        ]
    return records


def epoch_speed(env: str, steps: int, epochs: int, workers: int) -> float:
    """Steps per second of ppo-lag/omnisafe over ``epochs`` epochs, after one that compiles."""
    config = with_overrides(
        preset("ppo-lag/omnisafe", env),
        {"steps_per_epoch": steps, "worker_processes": workers, "evaluate_every_epochs": 10**6},
    )
    with tempfile.TemporaryDirectory() as folder:
        trainer = rundir.start(config, Path(folder) / "run")
        trainer.advance(steps)
        taken = seconds(lambda: trainer.advance((1 + epochs) * steps))
        trainer.close()
    return epochs * steps / taken


def env_steps(envs: Iterable[str], rounds: int, steps: int) -> list[Record]:
    """Random steps per second of each task, resets included."""
    made = {env_id: make_env(env_id) for env_id in envs}
    rng = np.random.default_rng(0)

    def play(env_id: str) -> None:
        env = made[env_id]
        env.reset(0)
        for action in rng.uniform(-1.0, 1.0, (steps, env.spec.action_size)).astype(np.float32):
            step = env.step(action)
            if step.terminated or step.truncated:
                env.reset(0)

    taken = in_turns({env_id: functools.partial(play, env_id) for env_id in made}, rounds)
    for env in made.values():
        env.close()
    return [{"env": e, "steps_per_second": steps / median(taken[e])} for e in made]


def random_batch(spec: EnvSpec, size: int) -> Batch:
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> Any:
        return rng.normal(size=shape).astype(np.float32)

    observation, next_observation = normal(2, size, spec.observation_size)
    action = np.tanh(normal(size, spec.action_size))
    terminated: Any = np.zeros(size, np.float32)
    return Batch(
        observation, action, normal(size), np.abs(normal(size)), next_observation, terminated
    )


def update_call(config: OffPolicyConfig, spec: EnvSpec) -> Callable[[], Any]:
    """Updates of ``config`` on made-up data: as many as it takes to move the policy once."""
    agent = off_policy.build(config, spec)
    update = jax.jit(off_policy.PackedUpdate(agent), static_argnums=3, donate_argnums=0)
    state = [jax.jit(agent.init)(jax.random.PRNGKey(0))]
    batch = random_batch(spec, config.batch_size)

    def call() -> None:
        for number in range(1, config.policy_delay + 1):
            with_policy = number == config.policy_delay
            state[0], values, _ = update(state[0], batch, np.float32(0.5), with_policy)
            np.asarray(values)

    return call


def critics_call(config: OffPolicyConfig, spec: EnvSpec) -> Callable[[], Any]:
    """The reward critics' part of an update alone: targets, gradient and optimiser."""
    critics = reward_critic.build(config.reward_critic, spec)
    optimiser = build_optimiser(
        config.reward_critic.optimiser, jax.random.PRNGKey(1), stacked=True
    )  # fmt: skip
    batch = random_batch(spec, config.batch_size)

    def update(params: Any, state: Any) -> Any:
        target = critics.aggregate(critics.values(params, batch.next_observation, batch.action))
        gradient = jax.grad(critics.loss, has_aux=True)(params, batch, target)[0]
        return off_policy.descend(optimiser, gradient, state, params)

    step = jax.jit(update, donate_argnums=(0, 1))
    params = critics.init(jax.random.PRNGKey(0))
    held = [(params, jax.jit(optimiser.init)(params))]

    def call() -> None:
        held[0] = step(*held[0])
        jax.block_until_ready(held[0])

    return call


def growth(rounds: int) -> list[Record]:
    """How SL-SAC's update grows with its ensemble, quantiles and task, and sampling with replay."""
    config = off_policy_preset("sl-sac", "SafetyAntVelocity-v1")
    ant = EnvSpec(27, 8, 1000, (-1.0,) * 8, (1.0,) * 8)
    configs = {
        "reward critics alone, M": {
            pairs: with_overrides(config, {"reward_critic.pairs": pairs}) for pairs in (1, 3, 5, 10)
        },
        "update, M": {
            pairs: with_overrides(config, {"reward_critic.pairs": pairs}) for pairs in (1, 3, 5, 10)
        },
        "update, quantiles": {
            count: with_overrides(config, {"cost_critic.quantiles": count}) for count in (8, 32, 64)
        },
        "update, observation size": dict.fromkeys((11, 60, 376), config),
    }
    records = []
    with tempfile.TemporaryDirectory() as folder:
        for what, cells in configs.items():
            make = critics_call if what.startswith("reward") else update_call
            updates = 1 if what.startswith("reward") else config.policy_delay
            calls = {
                str(size): make(
                    cell, ant._replace(observation_size=size) if "observation" in what else ant
                )
                for size, cell in cells.items()
            }
            taken = in_turns(calls, rounds, repeats=7)
            records += [
                {"what": what, "size": size, "ms": 1e3 * median(times) / updates}
                for size, times in taken.items()
            ]
        replays = {str(n): filled_replay(Path(folder) / str(n), ant, n) for n in (10**4, 10**6)}
        calls = {
            n: lambda r=r: [r.sample(config.batch_size) for _ in range(20)]  # type: ignore[misc]
            for n, r in replays.items()
        }
        records += [
            {"what": "minibatch, replay size", "size": n, "ms": 1e3 * median(times) / 20}
            for n, times in in_turns(calls, rounds, repeats=7).items()
        ]
    return records


def filled_replay(folder: Path, spec: EnvSpec, size: int) -> Replay:
    replay = Replay(folder, spec, size, reserve=spec.horizon, seed=0)
    observation = np.zeros(spec.observation_size, np.float32)
    action = np.zeros(spec.action_size, np.float32)
    replay.begin_episode(observation)
    for _ in range(size):
        replay.add(action, 0.0, 0.0, False, observation)
    return replay


def several_seeds(algo: str, env: str, counts: Sequence[int], rounds: int) -> list[Record]:
    """An update vmapped over seeds, for each seed, against an update of one."""
    with contextlib.closing(make_env(env)) as made:
        spec = made.spec
    config = off_policy_preset(algo, env)
    agent = off_policy.build(config, spec)
    batch = random_batch(spec, config.batch_size)

    def call_for(count: int) -> Callable[[], Any]:
        keys = jax.random.split(jax.random.PRNGKey(0), count)
        held = [jax.jit(jax.vmap(agent.init))(keys)]
        batches = jax.tree.map(lambda field: np.stack([field] * count), batch)
        multipliers = np.full(count, 0.5, np.float32)
        update = jax.jit(
            lambda state, with_policy: jax.vmap(
                lambda s, b, m: agent.update(s, b, m, with_policy)[0]
            )(state, batches, multipliers),
            static_argnums=1,
            donate_argnums=0,
        )

        def call() -> None:
            for number in range(1, config.policy_delay + 1):
                held[0] = update(held[0], number == config.policy_delay)
            jax.block_until_ready(held[0])

        return call

    taken = in_turns({str(n): call_for(n) for n in (1, *counts)}, rounds, repeats=5)
    return [
        {
            "seeds": n,
            "update_ms_per_seed": 1e3 * median(taken[str(n)]) / n / config.policy_delay,
            "speedup": ratio([n * t for t in taken["1"]], taken[str(n)]),
        }
        for n in (1, *counts)
    ]


def startup(env: str) -> Record:
    """Seconds from the command to the end of the first update, compiled before and cached."""
    with tempfile.TemporaryDirectory() as folder:

        def train(run: str) -> None:
            options = {"--warmup-steps": 300, "--steps": 302, "--final-evaluation-episodes": 0}
            flags = [str(part) for option in options.items() for part in option]
            command = [sys.executable, "-m", "slsac.cli", "train", "--env", env, "--run"]
            done = subprocess.run(
                [*command, f"{folder}/{run}", *flags], capture_output=True, text=True, check=False
            )
            if done.returncode:
                raise InvalidInput(f"slsac train failed: {done.stderr.strip()}")

        return {"env": env, "first": seconds(lambda: train("a")), "again": seconds(
            lambda: train("b")
        )}  # fmt: skip


def table(records: Sequence[Record], columns: dict[str, tuple[str, str]]) -> str:
    """A Markdown table; ``columns`` is field -> (heading, format)."""

    def cell(record: Record, name: str, form: str) -> str:
        value = record.get(name)
        return "" if value is None else format(value, form)

    lines = [[heading for heading, _ in columns.values()], ["---"] * len(columns)]
    lines += [[cell(record, n, form) for n, (_, form) in columns.items()] for record in records]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


COLUMNS: dict[str, dict[str, tuple[str, str]]] = {
    "training": {
        "algo": ("algorithm", ""),
        "steps_per_second": ("training steps/s", ".1f"),
        "update_ms": ("update ms", ".1f"),
        "floor_ms": ("its matrix products ms", ".1f"),
        "gflop": ("GFLOP", ".2f"),
        "share_of_floor": ("share of the products' speed", ".0%"),
        "against_peer": ("against the peer", ".2f"),
    },
    "envs": {"env": ("task", ""), "steps_per_second": ("random steps/s", ",.0f")},
    "growth": {"what": ("what", ""), "size": ("size", ""), "ms": ("ms", ".2f")},
    "seeds": {
        "seeds": ("seeds", ""),
        "update_ms_per_seed": ("update ms per seed", ".1f"),
        "speedup": ("against one at a time", ".2f"),
    },
    "on-policy": {
        "env": ("ppo-lag/omnisafe on", ""),
        "workers": ("worker processes", ""),
        "steps_per_second": ("steps/s, learning included", ",.0f"),
        "peer": ("OmniSafe's PPOLag", ",.0f"),
        "against_peer": ("ratio", ".2f"),
    },
    "startup": {
        "env": ("task", ""),
        "first": ("first time, s", ".1f"),
        "again": ("compilation cached, s", ".1f"),
    },
}


def write_page(page: Path, paragraphs: Sequence[str]) -> None:
    """Puts the tables between the two marks of ``page``, in place of what is there."""
    start, end = "<!-- bench -->", "<!-- end of bench -->"
    before, mark, rest = page.read_text().partition(start)
    if not mark or end not in rest:
        raise InvalidInput(f"page {page} has no {start} and {end} to write between")
    text = "\n\n".join(paragraphs)
    page.write_text(f"{before}{start}\n{text}\n{end}{rest.partition(end)[2]}")


def safety_gymnasium_tasks() -> list[str]:
    return [env_id for env_id, _ in list_envs() if env_id.startswith("Safety")]
