# SPDX-License-Identifier: Apache-2.0
"""Bounds of the items that further steps bring, keys as bits, and tables as the core gets them."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replay_model import CUT, TERMINATED, Episode, hindsight_steps, n_steps, runs

from rollouts.errors import DTypeError, SpecError
from rollouts.replay import (
    Episodes,
    GoalColumns,
    Hindsight,
    MinSize,
    NStep,
    Queue,
    SampleToInsertRatio,
    Sequences,
    SparseReward,
    Stack,
    TableConfig,
    Transitions,
)
from rollouts.replay.items import item_rows, most_items, native_kind, reach_rows
from rollouts.replay.shards.keys import KeyLayout
from rollouts.replay.tables import by_name, history_rows

kinds = st.one_of(
    st.builds(NStep, st.integers(1, 5)),
    st.builds(
        Sequences,
        st.integers(1, 6),
        st.integers(1, 8),
        end_of_episode=st.sampled_from(["write", "truncate", "pad"]),
    ),
    st.builds(Episodes, st.integers(1, 6)),
    st.builds(
        Hindsight,
        st.just(GoalColumns((2, 3), (0, 1))),
        st.just(SparseReward(0)),
        max_length=st.integers(1, 6),
    ),
)


def items_after(kind: Any, lengths: list[int], num_steps: int) -> int:
    """Items of a stream of such episodes that are complete after `num_steps`: the slow count."""
    total = 0
    for length in lengths:
        seen = min(length, num_steps)
        is_over = seen == length
        episode = Episode(0, 0, seen, TERMINATED if is_over else CUT)
        make: Any = {NStep: n_steps, Hindsight: hindsight_steps}.get(type(kind), runs)
        total += len(list(make(kind, episode, is_over=is_over)))
        num_steps -= seen
        if num_steps == 0:
            break
    return total


@settings(max_examples=100)
@given(kinds, st.lists(st.integers(1, 9), min_size=1, max_size=8), st.data())
def test_no_steps_bring_more_items_than_the_bound(kind: Any, lengths: list[int], data: Any) -> None:
    before = data.draw(st.integers(0, sum(lengths)))
    further = data.draw(st.integers(0, sum(lengths) - before))
    brought = items_after(kind, lengths, before + further) - items_after(kind, lengths, before)
    assert brought <= most_items(kind, further, 1)
    assert most_items(kind, further, 3) == 3 * most_items(kind, further, 1)


@pytest.mark.parametrize(
    ("kind", "lengths", "before", "further"),
    [
        # the two before were not followed by three steps yet, and the episode ends
        (NStep(3), [6], 2, 4),
        (Sequences(2), [2, 2, 2], 0, 6),
        (Sequences(4, 1), [9], 3, 6),
        # one at the end of each episode, and bounds of their ends alone
        (Sequences(6, 3, end_of_episode="truncate"), [1] * 6, 0, 6),
        (Sequences(4), [4, 4, 4], 0, 12),
    ],
)
def test_the_bound_is_not_far_from_what_may_come(
    kind: Any, lengths: list[int], before: int, further: int
) -> None:
    brought = items_after(kind, lengths, before + further) - items_after(kind, lengths, before)
    assert brought >= most_items(kind, further, 1) - 5 and brought > 0


@pytest.mark.parametrize(
    ("kind", "rows", "reach", "native"),
    [
        (NStep(3), 4, 4, (3, 1, "shorten")),
        (Transitions(), 2, 2, (1, 1, "shorten")),
        (Sequences(8, 3), 9, 12, (8, 3, "write")),
        (Sequences(8, end_of_episode="pad"), 9, 17, (8, 8, "keep")),
        (Sequences(8, 2, end_of_episode="truncate"), 9, 11, (8, 2, "keep")),
        (Episodes(5), 6, 6, (5, 5, "keep")),
    ],
)
def test_rows_of_an_item_and_how_the_core_is_told(
    kind: Any, rows: int, reach: int, native: Any
) -> None:
    assert item_rows(kind) == rows and reach_rows(kind) == reach and native_kind(kind) == native


def test_history_has_room_for_the_longest_item_of_any_table() -> None:
    tables = by_name([TableConfig(name="a"), TableConfig(name="b", items=Sequences(8, 3))])
    assert history_rows(tables, 10) == 2 * 10 + 12 + 4
    for wrong in (0, -1, 1.5, None):
        with pytest.raises(SpecError, match="max_batch_length is"):
            history_rows(tables, wrong)  # type: ignore[arg-type]


def test_tables_are_named_in_their_order() -> None:
    assert list(by_name(None)) == ["replay"]
    assert list(by_name(TableConfig(name="x"))) == ["x"]
    tables = by_name([TableConfig(name="b"), TableConfig(name="a")])
    assert list(tables) == ["b", "a"]
    with pytest.raises(TypeError):
        tables["c"] = TableConfig()  # type: ignore[index]


@pytest.mark.parametrize("tables", [[], [TableConfig(), TableConfig()]])
def test_tables_without_names_of_their_own_are_refused(tables: Any) -> None:
    with pytest.raises(SpecError, match="expected at least one and no name twice"):
        by_name(tables)


@pytest.mark.parametrize("tables", ["replay", [3], {"a": TableConfig()}, [TableConfig]])
def test_what_is_no_table_is_refused(tables: Any) -> None:
    with pytest.raises(DTypeError, match="expected a TableConfig"):
        by_name(tables)


@pytest.mark.parametrize(
    ("limiter", "native"),
    [
        (MinSize(3), ("min_size", 3)),
        (Queue(4), ("queue", 4)),
        (Stack(5), ("stack", 5)),
        (SampleToInsertRatio(2, 10, 4.0), ("sample_to_insert_ratio", 2.0, 10, 16.0, 24.0)),
        (SampleToInsertRatio(2, 10, (0, 9)), ("sample_to_insert_ratio", 2.0, 10, 0.0, 9.0)),
    ],
)
def test_limiters_are_told_with_their_bounds(limiter: Any, native: Any) -> None:
    assert TableConfig(limiter=limiter).to_native(7)["limiter"] == native


@pytest.mark.parametrize(("limiter", "order"), [(Queue(4), "fifo"), (Stack(4), "lifo")])
def test_queues_bring_their_order_and_size_with_them(limiter: Any, order: str) -> None:
    native = TableConfig(limiter=limiter, sampler="uniform", max_size=99).to_native(7)
    assert native["sampler"] == native["remover"] == order
    assert (native["max_size"], native["max_times_sampled"], native["seed"]) == (4, 1, 7)
    plain = TableConfig(max_size=99, max_times_sampled=3).to_native(7)
    assert (plain["max_size"], plain["max_times_sampled"], plain["sampler"]) == (99, 3, "uniform")


def test_the_highest_priority_is_that_of_the_steepest_sum() -> None:
    assert TableConfig().most_priority == sys.float_info.max
    steep = TableConfig(sampler="prioritized", exponent=2.0)
    both = TableConfig(
        sampler="prioritized", exponent=0.5, remover="prioritized", remover_exponent=2.0
    )
    assert steep.most_priority == both.most_priority < sys.float_info.max
    # an exponent that nobody uses bounds nothing
    assert TableConfig(exponent=50.0).most_priority == sys.float_info.max


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MinSize(0), "size is 0, expected a whole number from 1"),
        (lambda: Queue(1.5), "size is 1.5"),  # type: ignore[arg-type]
        (lambda: Stack(True - 1), "size is 0"),
        (lambda: SampleToInsertRatio(0, 1, 1.0), "samples_per_insert is 0, expected a number"),
        (lambda: SampleToInsertRatio(math.inf, 1, 1.0), "samples_per_insert is inf"),
        (lambda: SampleToInsertRatio(1, 0, 1.0), "min_size is 0"),
        (lambda: SampleToInsertRatio(1, 1, (1.0,)), r"error_buffer is \(1.0,\), expected a"),  # type: ignore[arg-type]
        (lambda: SampleToInsertRatio(1, 1, (0, math.nan)), "error_buffer is nan"),
        (lambda: SampleToInsertRatio(1, 1, "ab"), "error_buffer is 'a'"),  # type: ignore[arg-type]
        (lambda: NStep(0), "n is 0"),
        (lambda: NStep(1, 1.1), "discount is 1.1, expected a finite number from 0 to 1"),
        (lambda: Sequences(0), "length is 0"),
        (lambda: Sequences(4, 0), "period is 0"),
        (lambda: Sequences(4, burn_in=4), "burn_in is 4, expected a whole number from 0 to 3"),
        (lambda: Sequences(4, end_of_episode="drop"), "end_of_episode is 'drop', expected one"),  # type: ignore[arg-type]
        (lambda: Episodes(0), "max_length is 0"),
        (lambda: TableConfig(name=""), "name of a table is ''"),
        (lambda: TableConfig(items="steps"), "items is 'steps', expected one of"),  # type: ignore[arg-type]
        (lambda: TableConfig(limiter=3), "limiter is 3"),  # type: ignore[arg-type]
        (lambda: TableConfig(max_size=2**31), "max_size is 2147483648"),
        (lambda: TableConfig(exponent=-1), "exponent is -1, expected a finite number from 0"),
        (lambda: TableConfig(sampler="oldest"), "sampler is 'oldest', expected one of 'uniform'"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_table_s_value_is_named(make: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        make()


slots = st.integers(1, 2**31 - 2)


@given(slots, st.integers(1, 64), st.data())
def test_keys_say_again_what_they_were_made_of(max_size: int, num_shards: int, data: Any) -> None:
    try:
        layout = KeyLayout(max_size, num_shards)
    except SpecError:
        assert max_size.bit_length() + (num_shards - 1).bit_length() > 28
        return
    shard = data.draw(st.integers(0, num_shards - 1))
    incarnation = data.draw(st.integers(0, 2**40))
    uses = data.draw(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=4))
    slot = data.draw(st.integers(0, max_size - 1))
    own = np.array([use << 32 | slot for use in uses], np.int64)
    keys = layout.join(own, shard, incarnation)
    parts = layout.split(keys)
    assert keys.dtype == np.int64 and (keys >= 0).all()
    assert parts.key.tolist() == own.tolist() and parts.key.dtype == np.int64
    assert set(parts.shard_id.tolist()) == {shard}
    assert set(parts.life.tolist()) == {layout.life(incarnation)}
    # the next incarnation's keys are others
    assert not set(keys.tolist()) & set(layout.join(own, shard, incarnation + 1).tolist())


def test_more_items_and_shards_than_keys_are_refused() -> None:
    KeyLayout(2**27, 1)
    with pytest.raises(SpecError, match="64 shards of 134217728 items need more than the 63 bits"):
        KeyLayout(2**27, 64)


def test_lives_go_round_where_bits_run_out() -> None:
    layout = KeyLayout(2**20, 1)
    lives = [layout.life(i) for i in range(3000)]
    assert max(lives) + 1 == 2 ** (63 - 31 - 21) == len(set(lives))
    assert layout.life(0) == layout.life(2**11)
