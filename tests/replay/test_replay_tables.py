# SPDX-License-Identifier: Apache-2.0
"""Samplers, removers and rate limiters of the native replay tables, against slow models."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replay_models import LimiterModel, counting_store, table

from rollouts.errors import SpecError

PRIORITIES = st.sampled_from([0.0, 0.5, 1.0, 1.0, 2.0, 7.25])


class TableModel:
    """Items in the order of their inserts."""

    def __init__(self, max_size: int, remover: str) -> None:
        self.max_size, self.remover = max_size, remover
        self.items: dict[int, tuple[int, float]] = {}  # key -> (start, priority)

    def choose(self, kind: str) -> int:
        keys = list(self.items)
        if kind == "fifo":
            return keys[0]
        if kind == "lifo":
            return keys[-1]
        priorities = [self.items[key][1] for key in keys]
        # the first of the equal ones is the oldest
        best = max(priorities) if kind == "max_heap" else min(priorities)
        return keys[priorities.index(best)]

    def insert(self, key: int, start: int, priority: float) -> None:
        if len(self.items) == self.max_size:
            del self.items[self.choose(self.remover)]
        self.items[key] = (start, priority)


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("insert"), st.integers(0, 9), PRIORITIES),
        st.tuples(st.just("update"), st.integers(0, 9), PRIORITIES),
        st.tuples(st.just("delete"), st.integers(0, 9), st.just(0.0)),
        st.tuples(st.just("sample"), st.just(0), st.just(0.0)),
    ),
    max_size=60,
)
ORDERED = ["fifo", "lifo", "max_heap", "min_heap"]


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(ORDERED), st.sampled_from(ORDERED), OPERATIONS)
def test_ordered_tables_equal_a_list(
    sampler: str, remover: str, operations: list[tuple[str, int, float]]
) -> None:
    store, plan = counting_store(10, table(max_size=5, sampler=sampler, remover=remover))
    model = TableModel(5, remover)
    for name, number, priority in operations:
        keys = list(model.items)
        if name == "insert":
            (key,) = store.insert("t", [0], [number], 1, [priority])
            model.insert(int(key), number, priority)
        elif keys and name == "update":
            key = keys[number % len(keys)]
            assert store.update_priorities("t", [key], [priority]) == 1
            model.items[key] = (model.items[key][0], priority)
        elif keys and name == "delete":
            assert store.delete("t", [keys[number % len(keys)]]) == 1
            del model.items[keys[number % len(keys)]]
        elif keys:
            key = model.choose(sampler)
            batch = store.sample("t", plan, 1)
            assert (batch["key"][0], batch["x"][0]) == (key, model.items[key][0])
            assert batch["probability"][0] == 1
            assert batch["priority"][0] == model.items[key][1]
        assert store.keys("t").tolist() == list(model.items)


@settings(max_examples=60, deadline=None)
@given(st.lists(PRIORITIES, min_size=1, max_size=90), st.sampled_from([0.0, 0.5, 1.0, 2.0]))
def test_probabilities_are_weight_over_total(priorities: list[float], exponent: float) -> None:
    n = len(priorities)
    store, plan = counting_store(n, table(sampler="prioritized", sampler_exponent=exponent))
    store.insert("t", np.zeros(n, int), np.arange(n), 1, priorities)
    weight = np.array([priority**exponent for priority in priorities])
    if weight.sum() == 0:
        weight = np.ones(n)
    batch = store.sample("t", plan, 64)
    expected = weight[batch["x"]] / weight.sum()
    # sums of the weights in another order than numpy's
    np.testing.assert_allclose(batch["probability"], expected, rtol=1e-14)
    assert (batch["probability"] > 0).all()


@pytest.mark.parametrize("sampler", ["uniform", "prioritized"])
def test_frequencies_are_the_probabilities(sampler: str) -> None:
    store, plan = counting_store(100, table(sampler=sampler, sampler_exponent=0.7, seed=5))
    priorities = np.linspace(0, 3, 100)
    keys = store.insert("t", np.zeros(100, int), np.arange(100), 1, np.ones(100))
    store.update_priorities("t", keys, priorities)
    draws = 200_000
    counts = np.bincount(store.sample("t", plan, draws)["x"], minlength=100)
    weight = priorities**0.7 if sampler == "prioritized" else np.ones(100)
    expected = draws * weight / weight.sum()
    assert counts[expected == 0].sum() == 0
    drawn = expected > 0
    chi_squared = ((counts - expected)[drawn] ** 2 / expected[drawn]).sum()
    # degrees of freedom +- 5 standard deviations; the seed is fixed
    freedom = drawn.sum() - 1
    assert abs(chi_squared - freedom) < 5 * np.sqrt(2 * freedom)


def test_equal_seeds_and_operations_give_equal_samples() -> None:
    def run(seed: int) -> list[Any]:
        store, plan = counting_store(
            50, table(sampler="prioritized", remover="uniform", max_size=20, seed=seed)
        )
        samples = []
        for start in range(50):
            store.insert("t", [0], [start], 1, [start % 7])
            batch = store.sample("t", plan, 4)
            store.update_priorities("t", batch["key"], (batch["x"] * 3 % 5) + 0.5)
            samples.append((batch["x"].tolist(), batch["key"].tolist()))
        return samples

    assert run(1) == run(1)
    assert run(1) != run(2)


def test_items_go_after_max_times_sampled() -> None:
    store, plan = counting_store(4, table(max_times_sampled=2))
    store.insert("t", [0] * 4, np.arange(4), 1)
    times = np.zeros(4, int)
    for _ in range(8):
        batch = store.sample("t", plan, 1)
        times[batch["x"][0]] += 1
        assert batch["times_sampled"][0] == times[batch["x"][0]]
    assert times.tolist() == [2, 2, 2, 2]
    assert store.info("t")["size"] == 0
    with pytest.raises(TimeoutError, match="it has 0 items"):
        store.sample("t", plan, 1, timeout_s=0)


def test_keys_of_removed_items_are_unknown() -> None:
    store, plan = counting_store(9, table(max_size=1))
    old = store.insert("t", [0], [0], 1)
    new = store.insert("t", [0], [1], 1)
    assert old[0] != new[0]
    assert store.update_priorities("t", np.append(old, new), [5, 6]) == 1
    assert store.delete("t", old) == 0
    with pytest.raises(SpecError, match="no item of table 't'"):
        store.gather("t", plan, old)
    assert store.gather("t", plan, new)["priority"].tolist() == [6]


def test_reset_drops_items_and_counters() -> None:
    store, plan = counting_store(9)
    store.insert("t", [0] * 9, np.arange(9), 1)
    store.sample("t", plan, 5)
    store.reset("t")
    info = store.info("t")
    assert [info[k] for k in ("size", "num_inserts", "num_samples", "num_deletes")] == [0] * 4


def test_a_new_item_has_the_highest_priority_seen() -> None:
    store, plan = counting_store(9)
    keys = store.insert("t", [0, 0], [0, 1], 1)
    store.update_priorities("t", keys[:1], [4.5])
    newest = store.insert("t", [0], [2], 1)
    assert store.gather("t", plan, [*keys, *newest])["priority"].tolist() == [4.5, 1, 4.5]


def test_inserts_since_are_told_with_a_sample() -> None:
    store, plan = counting_store(9, table(sampler="fifo"))
    store.insert("t", [0] * 9, np.arange(9), 1)
    batch = store.sample("t", plan, 1)
    assert (batch["num_inserts"] - batch["insert_index"] - 1)[0] == 8
    assert batch["table_size"][0] == 9


RATIO = st.tuples(
    st.sampled_from([0.25, 0.5, 1.0, 2.5, 4.0]), st.integers(1, 5), st.integers(0, 12)
)
ATTEMPTS = st.lists(st.tuples(st.booleans(), st.integers(1, 3)), max_size=60)


@settings(max_examples=100, deadline=None)
@given(RATIO, ATTEMPTS, st.integers(5, 8))
def test_admissions_are_reverbs(
    ratio: tuple[float, int, int], attempts: list[tuple[bool, int]], max_size: int
) -> None:
    per_insert, min_size, extra = ratio
    error = max(1.0, per_insert) + extra
    bounds = (per_insert * min_size - error, per_insert * min_size + error)
    model = LimiterModel(per_insert, min_size, *bounds)
    limiter = ("sample_to_insert_ratio", per_insert, min_size, *bounds)
    store, plan = counting_store(1, table(max_size=max_size, limiter=limiter))
    size = drawn = 0
    for insert, n in attempts:
        assert store.can_insert("t", n) == model.can_insert(n)
        assert store.can_sample("t", n) == (n <= drawn or model.can_sample(n - drawn))
        if insert:
            admitted = 0
            while admitted < n and model.can_insert(1):
                # a full table removes an item first
                model.deletes += size == max_size
                size = min(size + 1, max_size)
                model.inserts += 1
                admitted += 1
            assert len(store.insert("t", [0] * n, [0] * n, 1, timeout_s=0)) == admitted
            continue
        # a batch is admitted item by item; what does not make one yet is the next one's
        while drawn < n and model.can_sample(1):
            model.samples += 1
            drawn += 1
        if drawn >= n:
            store.sample("t", plan, n, timeout_s=0)
            drawn -= n
        else:
            with pytest.raises(TimeoutError):
                store.sample("t", plan, n, timeout_s=0)
    info = store.info("t")
    assert (info["num_inserts"], info["num_samples"]) == (model.inserts, model.samples)
    assert info["num_deletes"] == model.deletes


def test_a_queue_gives_each_item_once_and_in_order() -> None:
    queue = {"sampler": "fifo", "remover": "fifo", "max_times_sampled": 1}
    store, plan = counting_store(9, table(max_size=3, limiter=("queue", 3), **queue))
    assert len(store.insert("t", [0] * 9, np.arange(9), 1, timeout_s=0)) == 3
    assert store.sample("t", plan, 2)["x"].tolist() == [0, 1]
    assert len(store.insert("t", [0] * 6, np.arange(3, 9), 1, timeout_s=0)) == 2
    assert store.sample("t", plan, 3)["x"].tolist() == [2, 3, 4]
    with pytest.raises(TimeoutError):
        store.sample("t", plan, 1, timeout_s=0)


def test_a_stack_gives_the_newest_first() -> None:
    stack = {"sampler": "lifo", "remover": "lifo", "max_times_sampled": 1}
    store, plan = counting_store(9, table(max_size=3, limiter=("stack", 3), **stack))
    assert len(store.insert("t", [0] * 9, np.arange(9), 1, timeout_s=0)) == 3
    assert store.sample("t", plan, 3)["x"].tolist() == [2, 1, 0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"limiter": ("min_size", 0)}, "min_size is 0"),
        ({"limiter": ("min_size", 101)}, "above max_size 100"),
        ({"limiter": ("sample_to_insert_ratio", 0.0, 1, -9, 9)}, "samples_per_insert is 0"),
        ({"limiter": ("sample_to_insert_ratio", 4.0, 1, 0, 7.9)}, "expected at least 8"),
        ({"limiter": ("sample_to_insert_ratio", 1.0, 2, 3, 9)}, "lower bound is 3"),
        ({"limiter": ("queue", 5)}, "sampler and remover fifo"),
        ({"limiter": ("ratio", 5)}, "expected \\('min_size', n\\)"),
        ({"max_size": 0}, "max_size is 0"),
        ({"sampler": "random"}, "expected one of uniform"),
        ({"sampler": "prioritized", "sampler_exponent": -1.0}, "exponent is -1"),
        ({"max_times_sampled": -1}, "max_times_sampled is -1"),
        ({"size": 1}, "unknown key 'size'"),
    ],
)
def test_tables_that_cannot_work_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        counting_store(0, table(**changes))


@pytest.mark.parametrize("priority", [-1.0, float("nan"), float("inf")])
def test_priorities_are_finite_and_not_negative(priority: float) -> None:
    store, _ = counting_store(3)
    with pytest.raises(SpecError, match=r"priority\[1\] is"):
        store.insert("t", [0, 0], [0, 1], 1, [1.0, priority])
    assert store.info("t")["size"] == 0
