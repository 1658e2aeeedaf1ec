# SPDX-License-Identifier: Apache-2.0
"""Sets crafted states one after the other and steps each: run in a process, which may crash.

Writes the number of each mutation before it is set, so that its parent knows which one
ended the process.
"""

from __future__ import annotations

import contextlib
import functools
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from crafted import HEADER, mutated, sealed, sealed_replay
from replay_model import ACTION_SPACE, OBS_SPACE, TERMINATED, TRUNCATED, World

import rollouts
from rollouts import _native
from rollouts.errors import RolloutsError
from rollouts.replay import Episodes, NStep, ReplayBuffer, Sequences, TableConfig, files

STEPS = 4  # steps from each state that was taken
MOST_MEMORY = 8 << 30  # bytes

Try = Callable[[np.random.Generator], bool]


def make(env_id: str, **options: Any) -> Any:
    return rollouts.make_vec(env_id, 1, num_threads=1, seed=5, **options)


def state_tries(env_id: str, **options: Any) -> Try:
    """Mutations of states of an environment, from the beginning of an episode and from within."""
    env = make(env_id, **options)
    env.action_space.seed(0)
    env.reset()
    actions = [env.action_space.sample() for _ in range(STEPS)]
    states = [env.get_state()[0]]
    for _ in range(30):
        env.step(env.action_space.sample())
    states.append(env.get_state()[0])

    def try_one(generator: np.random.Generator) -> bool:
        state = states[int(generator.integers(len(states)))]
        begin = HEADER.size + HEADER.unpack_from(state)[2]
        crafted = sealed(state[:begin] + mutated(state[begin:], generator))
        try:
            env.set_state([0], [crafted])
        except RolloutsError:
            return False
        for action in actions:
            try:
                env.step(action)
            except rollouts.EnvError:
                # an environment that fails by itself has said so, and begins again
                env.reset()
        env.get_state()
        return True

    return try_one


SAMPLERS = ["uniform", "prioritized", "fifo", "lifo", "max_heap", "min_heap"]


def store_tries(stack: int) -> Try:
    """Mutations of a store's state; `stack` frames make an observation."""
    columns = [("obs", "uint8", (3,), stack, "zero"), ("x", "int64", (), 1, "zero")]
    tables = [
        {
            "name": sampler,
            "max_size": 9,
            "sampler": sampler,
            "remover": remover,
            "limiter": ("min_size", 1),
            "max_times_sampled": 3,
            "sampler_exponent": 0.6,
        }
        for sampler, remover in zip(SAMPLERS, SAMPLERS[2:] + SAMPLERS[:2], strict=True)
    ]
    store = _native.ReplayStore(columns, tables, num_streams=2, chunk_rows=3, history_rows=6)
    plan = _native.GatherPlan(store, [("obs", "obs", 0, 2), ("x", "x", -1, 0)])
    frames = np.random.default_rng(0)

    def go_on(steps: int) -> None:
        for step in range(steps):
            shape = (2, stack, 3) if stack > 1 else (2, 3)
            ended = np.array([step % 5 == 4, step % 7 == 6])
            obs = frames.integers(0, 256, shape).astype(np.uint8)
            final = {"obs": obs[ended]}
            store.append([0, 1], {"obs": obs, "x": np.arange(2)}, ended=ended, final=final)
            for name in SAMPLERS:
                oldest, following = store.stream_rows([0, 1])
                length = np.minimum(following - oldest, 2)
                store.insert(name, [0, 1], following - length, length, np.ones(2))
                batch = store.sample(name, plan, 2, timeout_s=0.0)
                store.update_priorities(name, batch["key"], np.full(len(batch["key"]), 2.0))

    def try_one(generator: np.random.Generator) -> bool:
        state = states[int(generator.integers(len(states)))]
        crafted = sealed_replay(state[:32] + mutated(state[32:-8], generator) + state[-8:])
        try:
            store.load_state(crafted)
        except RolloutsError:
            return False
        for call in (lambda: go_on(2), store.save_state):
            with contextlib.suppress(RolloutsError, TimeoutError):
                call()
        return True

    states = []
    for steps in (1, 4, 20):
        go_on(steps)
        states.append(store.save_state().tobytes())
    return try_one


class Whole:
    """Bytes as `files.pack` takes a store's."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.nbytes = array.nbytes
        self._array = array

    def __iter__(self) -> Iterator[np.ndarray[Any, Any]]:
        yield self._array


def buffer_tries() -> Try:
    """Mutations of the arrays of a ReplayBuffer's file, and of its header's numbers."""
    tables = [
        TableConfig(items=NStep(2, 0.5), sampler="prioritized", max_size=50),
        TableConfig("sequences", Sequences(4, 2, burn_in=1), max_size=50),
        TableConfig("episodes", Episodes(8), max_size=50),
    ]
    buffer = ReplayBuffer(OBS_SPACE, ACTION_SPACE, tables)
    world = World([[(5, TERMINATED), (7, TRUNCATED)], [(4, TRUNCATED)]], env_id=[3, 8])

    def go_on(steps: int) -> None:
        buffer.add_batch(world.rollout(steps), timeout_s=0.0)
        for table in buffer.tables:
            with contextlib.suppress(TimeoutError):
                buffer.sample(3, table=table, timeout_s=0.0)

    def try_one(generator: np.random.Generator) -> bool:
        state = states[int(generator.integers(len(states)))]
        header, arrays = files.unpack(state)
        arrays = dict(arrays)
        name = sorted(arrays)[int(generator.integers(len(arrays)))]
        array = arrays[name]
        spoilt = mutated(array.tobytes() or bytes(8), generator)
        if name == "native":
            spoilt = sealed_replay(spoilt) if len(spoilt) > 40 else spoilt
            arrays[name] = np.frombuffer(spoilt, np.uint8)
        else:
            # the same size, most often, else another one
            size = array.nbytes if generator.random() < 0.8 else len(spoilt)
            spoilt = (spoilt + bytes(size))[: size - size % max(1, array.itemsize)]
            flat = np.frombuffer(spoilt, array.dtype)
            arrays[name] = flat.reshape(array.shape) if flat.size == array.size else flat
        native = Whole(arrays.pop("native"))
        plain = {k: v for k, v in header.items() if k not in ("arrays", "nbytes")}
        try:
            buffer.load_state(files.pack(plain, arrays, native))
        except RolloutsError:
            return False
        with contextlib.suppress(RolloutsError, TimeoutError):
            go_on(3)
        with contextlib.suppress(RolloutsError):
            buffer.state()
        return True

    states = []
    for steps in (1, 9, 30):
        go_on(steps)
        states.append(buffer.state())
    return try_one


OTHERS: dict[str, Callable[[], Try]] = {
    "replay store": functools.partial(store_tries, 1),
    "replay store of stacks": functools.partial(store_tries, 4),
    "replay buffer": buffer_tries,
    "ALE/Pong-v5 by ALE": functools.partial(state_tries, "ALE/Pong-v5", engine="ale"),
    "TagContinuous-v0 of the nearest": functools.partial(
        state_tries, "TagContinuous-v0", use_full_observation=False
    ),
    "CartPole-v1 in wrappers": functools.partial(
        state_tries, "CartPole-v1", frame_stack=3, normalize_reward=True
    ),
}


def tries_of(name: str) -> Try:
    return OTHERS[name]() if name in OTHERS else state_tries(name)


def main(name: str, seed: int, first: int, count: int, said: Path) -> int:
    """Tries some mutations and tells how many were taken; the number of each goes to a file."""
    # a state that asks for all memory is a failure of its process, not of the machine
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    try_one = tries_of(name)
    taken = 0
    with said.open("w") as file:
        for number in range(first, first + count):
            file.write(f"{number}\n")
            file.flush()
            taken += try_one(np.random.default_rng([seed, number]))
    return taken
