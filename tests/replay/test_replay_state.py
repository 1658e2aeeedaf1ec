# SPDX-License-Identifier: Apache-2.0
"""Saved states of the native replay store."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replay_models import StackedEnv, table

from rollouts import _native
from rollouts.errors import SpecError

KINDS = ["uniform", "prioritized", "fifo", "lifo", "max_heap", "min_heap"]
COLUMNS = [("obs", "uint8", (3,), 4, "zero"), ("x", "int64", (), 1, "zero")]


class Run:
    """A store under random calls, all drawn from one stream."""

    def __init__(self, seed: int, **options: Any) -> None:
        tables = [
            table(
                name=sampler, sampler=sampler, remover=remover, max_size=7, seed=seed,
                max_times_sampled=3, sampler_exponent=0.6, remover_exponent=0.6,
            )
            for sampler, remover in zip(KINDS, KINDS[2:] + KINDS[:2], strict=True)
        ]  # fmt: skip
        self.store = _native.ReplayStore(
            COLUMNS, tables, num_streams=2, chunk_rows=3, history_rows=6, **options
        )
        self.plan = _native.GatherPlan(
            self.store, [("obs", "obs", 0, 2), ("x", "x", -1, 0), ("first", "@first", 0, 0)]
        )

    def step(self, random: np.random.Generator, envs: list[StackedEnv]) -> list[Any]:
        ended = random.random(2) < 0.2
        for env in envs:
            env.push()
        obs = np.stack([env.stack for env in envs])
        columns = {"obs": obs, "x": random.integers(0, 99, 2)}
        self.store.append([0, 1], columns, ended=ended, final={"obs": obs[ended]})
        for env, end in zip(envs, ended, strict=True):
            if end:
                env.reset()
        seen: list[Any] = []
        for name in KINDS:
            oldest, following = self.store.stream_rows([0, 1])
            start = random.integers(oldest, following)
            length = np.minimum(following - start, 2)
            self.store.insert(name, [0, 1], start, length, random.integers(0, 4, 2))
            batch = self.store.sample(name, self.plan, int(random.integers(1, 3)))
            seen += [array.tolist() for array in batch.values()]
            self.store.update_priorities(name, batch["key"], random.random(len(batch["key"])))
            if random.random() < 0.2:
                self.store.delete(name, self.store.keys(name)[:1])
            seen.append(self.store.info(name))
        return seen


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**31), st.integers(0, 12))
def test_a_loaded_store_goes_on_as_the_saved_one(seed: int, steps: int) -> None:
    random = np.random.default_rng(seed)
    envs = [StackedEnv(seed + i, 4, (3,)) for i in range(2)]
    first = Run(seed)
    for _ in range(steps):
        first.step(random, envs)
    state = first.store.save_state()
    second = Run(seed + 1)
    for _ in range(3):
        second.step(np.random.default_rng(9), [StackedEnv(9 + i, 4, (3,)) for i in range(2)])
    second.store.load_state(state)
    np.testing.assert_array_equal(second.store.save_state(), state)

    results = []
    for run in (first, second):
        again = np.random.default_rng(seed + 7)
        copies = [StackedEnv(seed + 3 + i, 4, (3,)) for i in range(2)]
        for copy, env in zip(copies, envs, strict=True):
            copy.stack = env.stack.copy()
        results.append([run.step(again, copies) for _ in range(8)])
    assert results[0] == results[1]


def small_store(**changes: Any) -> _native.ReplayStore:
    options: dict[str, Any] = {"columns": COLUMNS, "tables": [table()], "num_streams": 1}
    return _native.ReplayStore(**(options | changes))


def filled_store() -> tuple[_native.ReplayStore, np.ndarray[Any, Any]]:
    store = small_store()
    obs = np.arange(5 * 12, dtype=np.uint8).reshape(5, 1, 4, 3)
    store.append([0], {"obs": obs, "x": np.arange(5)[:, None]})
    store.insert("t", [0] * 4, np.arange(4), 2)
    return store, store.save_state()


def test_damage_anywhere_is_found_and_changes_nothing() -> None:
    store, state = filled_store()
    for place in range(0, len(state), 7):
        damaged = state.copy()
        damaged[place] ^= 1 << (place % 8)
        with pytest.raises(SpecError, match="load_state: the state"):
            store.load_state(damaged)
    for size in (0, 5, 31, 32, 100, len(state) - 1):
        with pytest.raises(SpecError, match="load_state: the state"):
            store.load_state(state[:size].tobytes())
    np.testing.assert_array_equal(store.save_state(), state)


@pytest.mark.parametrize(
    "changes",
    [
        {"columns": COLUMNS[:1]},
        {"columns": [COLUMNS[0], ("x", "int32", (), 1, "zero")]},
        {"tables": [table(sampler="fifo")]},
        {"tables": [table(), table(name="u")]},
        {"chunk_rows": 5},
    ],
)
def test_states_of_other_stores_are_refused(changes: dict[str, Any]) -> None:
    _, state = filled_store()
    with pytest.raises(SpecError, match="other columns, tables or chunk_rows"):
        small_store(**changes).load_state(state)


def test_what_was_sampled_outlives_a_load() -> None:
    store, state = filled_store()
    plan = _native.GatherPlan(store, [("x", "x", 0, 0)])
    batch = store.sample("t", plan, 50)
    values = batch["x"].copy()
    store.load_state(state)
    assert store.sample("t", plan, 50)["x"].max() <= 3
    np.testing.assert_array_equal(batch["x"], values)
    assert store.memory()["num_chunks"] == 1
