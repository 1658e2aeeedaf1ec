# SPDX-License-Identifier: Apache-2.0
"""Rows of a batch read from a host that is only arrays: statistics, infos, final observations."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gymnasium import Space, spaces
from gymnasium.vector import AutoresetMode
from hypothesis import given
from hypothesis import strategies as st

from rollouts.envs.hosted.batches import (
    Batch,
    BatchReader,
    HostedEpisodes,
    add_failures,
    add_statistics,
)
from rollouts.envs.hosted.leaves import leaves_of
from rollouts.envs.hosted.processes.failures import ProcessFailure
from rollouts.envs.hosted.processes.records import Record
from rollouts.envs.hosted.processes.shared_memory import batch_shapes
from rollouts.errors import EnvError

OFFSET = 10
N = 4
BOX = spaces.Box(-9, 9, (2,), np.float32)


def host_of(space: Space[Any]) -> Any:
    """A host of N environments, without processes: what a reader looks at."""
    leaves = leaves_of(space)
    shapes = batch_shapes(N, leaves, (), keeps_final=True)
    return SimpleNamespace(
        num_envs=N,
        arrays={name: np.zeros(shape, dtype) for name, shape, dtype in shapes},
        observation_leaves=leaves,
        objects=[()] * N,
        records={},
    )


def reader_of(
    host: Any, space: Space[Any], mode: AutoresetMode = AutoresetMode.SAME_STEP, **options: Any
) -> tuple[BatchReader, HostedEpisodes]:
    episodes = HostedEpisodes(N, mode)
    settings = {"env_id_offset": OFFSET, "copies": True} | options
    return BatchReader(host, space, episodes, **settings), episodes


def rows(*values: int) -> Any:
    return np.array(values, np.intp)


def add(
    episodes: HostedEpisodes, at: Any, reward: list[float], ended: list[int], reset: list[int]
) -> tuple[list[float], list[int]]:
    returns, lengths = episodes.add(
        at, np.array(reward), np.array(ended, np.bool_), np.array(reset, np.bool_)
    )
    assert returns.dtype == np.float64 and lengths.dtype == np.int32
    return returns.tolist(), lengths.tolist()


def test_a_reset_row_begins_an_episode_of_no_steps() -> None:
    episodes = HostedEpisodes(2, AutoresetMode.SAME_STEP)
    assert add(episodes, slice(None), [0, 0], [0, 0], [1, 1]) == ([0, 0], [0, 0])
    assert add(episodes, slice(None), [1, 2], [0, 1], [0, 0]) == ([1, 2], [1, 1])
    # the second begins anew with a step, the first goes on
    assert add(episodes, slice(None), [3, 4], [0, 0], [0, 0]) == ([4, 4], [2, 1])


def test_a_row_that_was_reset_in_the_next_step_counts_no_step() -> None:
    episodes = HostedEpisodes(1, AutoresetMode.NEXT_STEP)
    add(episodes, slice(None), [0], [0], [1])
    assert add(episodes, slice(None), [5], [1], [0]) == ([5], [1])
    assert add(episodes, slice(None), [0], [0], [1]) == ([0], [0])
    assert add(episodes, slice(None), [2], [0], [0]) == ([2], [1])


@pytest.mark.parametrize(
    ("mode", "needs"), [(AutoresetMode.SAME_STEP, False), (AutoresetMode.DISABLED, True)]
)
def test_an_ended_episode_needs_a_reset_where_none_comes_by_itself(
    mode: AutoresetMode, needs: bool
) -> None:
    episodes = HostedEpisodes(2, mode)
    assert episodes.needs_reset.tolist() == [True, True] and not episodes.all_can_step
    add(episodes, rows(1), [0], [0], [1])
    assert episodes.needs_reset.tolist() == [True, False] and not episodes.all_can_step
    add(episodes, rows(0), [0], [0], [1])
    assert episodes.all_can_step
    add(episodes, rows(0), [1], [1], [0])
    assert episodes.needs_reset.tolist() == [needs, False]
    assert episodes.all_can_step is not needs
    add(episodes, rows(0), [0], [0], [1])
    assert episodes.all_can_step and not episodes.needs_reset.any()


steps = st.lists(
    st.tuples(
        st.lists(st.integers(0, 2), min_size=1, max_size=3, unique=True),
        st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=3, max_size=3),
    ),
    max_size=12,
)


@given(steps)
def test_statistics_are_those_of_one_episode_after_the_other(rounds: list[Any]) -> None:
    episodes = HostedEpisodes(3, AutoresetMode.SAME_STEP)
    add(episodes, rows(0, 1, 2), [0, 0, 0], [0, 0, 0], [1, 1, 1])
    current = [(0.0, 0)] * 3
    for at, outcomes in rounds:
        chosen = outcomes[: len(at)]
        reward, ended = [float(r) for r, _ in chosen], [int(e) for _, e in chosen]
        expected = [
            (current[row][0] + r, current[row][1] + 1) for row, r in zip(at, reward, strict=True)
        ]
        found = add(episodes, rows(*at), reward, ended, [0] * len(at))
        assert list(zip(*found, strict=True)) == expected
        for row, over, so_far in zip(at, ended, expected, strict=True):
            current[row] = (0.0, 0) if over else so_far


def test_all_rows_come_in_order_and_as_copies() -> None:
    host = host_of(BOX)
    reader, _ = reader_of(host, BOX)
    host.arrays["obs/0"][...] = np.arange(8).reshape(N, 2)
    host.arrays["reward"][...] = 1.5
    batch = reader.read(None, {}, same_step=False)
    assert batch.env_id.tolist() == [10, 11, 12, 13] and batch.env_id.dtype == np.int32
    assert batch.obs.tolist() == host.arrays["obs/0"].tolist()
    assert batch.final_obs is None
    host.arrays["obs/0"][...] = -1
    host.arrays["reward"][...] = -1
    assert batch.obs[3].tolist() == [6, 7] and batch.reward.tolist() == [1.5] * N
    batch.env_id[...] = 0
    assert reader.read(None, {}, same_step=False).env_id.tolist() == [10, 11, 12, 13]


def test_observations_are_views_where_copies_are_not_wanted() -> None:
    host = host_of(BOX)
    reader, _ = reader_of(host, BOX, copies=False)
    obs = reader.read(None, {}, same_step=False).obs
    host.arrays["obs/0"][...] = 7
    assert (obs == 7).all()
    # rows that are picked are never views
    picked = reader.read(rows(1, 0), {}, same_step=False).obs
    host.arrays["obs/0"][...] = 8
    assert (picked == 7).all()


def test_picked_rows_come_in_the_order_asked_for() -> None:
    host = host_of(BOX)
    reader, episodes = reader_of(host, BOX)
    host.arrays["obs/0"][:, 0] = np.arange(N)
    host.arrays["terminated"][3] = True
    host.arrays["was_reset"][...] = True
    batch = reader.read(rows(3, 1), {}, same_step=False)
    assert batch.obs[:, 0].tolist() == [3, 1] and batch.env_id.tolist() == [13, 11]
    assert batch.terminated.tolist() == [True, False]
    assert episodes.has_begun.tolist() == [False, True, False, True]
    assert episodes.has_ended.tolist() == [False, False, False, True]


def test_records_go_to_their_places_and_are_taken_once() -> None:
    host = host_of(BOX)
    reader, _ = reader_of(host, BOX)
    failure = ProcessFailure("broke")
    host.records = {0: Record(0, {"a": 1}), 2: Record(2, failure=failure), 3: Record(3)}
    batch = reader.read(rows(2, 0), {}, same_step=False)
    assert [(place, record.index) for place, record in batch.records] == [(0, 2), (1, 0)]
    assert batch.failures == [(12, failure)]
    assert list(host.records) == [3]
    assert reader.read(rows(2, 0), {}, same_step=False).records == []


def test_out_is_filled_and_stands_in_the_batch() -> None:
    host = host_of(BOX)
    reader, _ = reader_of(host, BOX)
    host.arrays["reward"][...] = 2.0
    out = {"reward": np.zeros(N), "env_id": np.zeros(N, np.int32)}
    batch = reader.read(None, out, same_step=False)
    assert batch.reward is out["reward"] and batch.env_id is out["env_id"]
    assert out["reward"].tolist() == [2.0] * N and out["env_id"].tolist() == [10, 11, 12, 13]


NESTED = spaces.Dict({"say": spaces.Text(3), "at": spaces.Discrete(5), "hear": spaces.Text(3)})


def test_objects_of_observations_stand_at_their_leaves() -> None:
    host = host_of(NESTED)
    reader, _ = reader_of(host, NESTED)
    # the leaves are in the order of the space: at, hear, say
    host.objects = [("h0", "s0"), (), ("h2", "s2"), ("h3", "s3")]
    host.arrays["obs/0"][...] = [4, 3, 2, 1]
    obs = reader.observations(slice(None))
    assert obs["at"].tolist() == [4, 3, 2, 1]
    assert obs["hear"] == ("h0", None, "h2", "h3") and obs["say"] == ("s0", None, "s2", "s3")
    picked = reader.observations(rows(2, 0))
    assert picked["at"].tolist() == [2, 4] and picked["say"] == ("s2", "s0")


def test_final_observations_have_the_objects_of_their_records() -> None:
    host = host_of(NESTED)
    reader, _ = reader_of(host, NESTED)
    host.arrays["final_obs/0"][...] = [1, 2, 3, 4]
    host.records = {1: Record(1, final_objects=("h", "s"))}
    final = reader.read(rows(0, 1), {}, same_step=True).final_obs
    assert final["at"].tolist() == [1, 2]
    assert final["hear"] == (None, "h") and final["say"] == (None, "s")
    everything = reader.final_observations()
    assert everything["at"].tolist() == [1, 2, 3, 4] and everything["say"] == (None,) * N


def ended_batch(host: Any, reader: BatchReader) -> Batch:
    """Rows 1 and 2 end; the info of row 1 and the final info of row 2 are known."""
    host.arrays["terminated"][1] = host.arrays["truncated"][2] = True
    host.arrays["final_obs/0"][...] = np.arange(8).reshape(N, 2)
    host.records = {1: Record(1, {"a": 5}), 2: Record(2, final_info={"b": 6})}
    return reader.read(None, {}, same_step=True)


def test_infos_hold_final_observations_of_episodes_that_ended_alone() -> None:
    host = host_of(BOX)
    reader, _ = reader_of(host, BOX)
    batch = ended_batch(host, reader)
    info = reader.infos(batch, same_step=True)
    assert info["a"].tolist() == [0, 5, 0, 0] and info["_a"].tolist() == [False, True, False, False]
    assert info["_final_obs"].tolist() == [False, True, True, False]
    assert info["_final_info"].tolist() == [False, True, True, False]
    assert info["final_obs"][0] is None and info["final_obs"][1].tolist() == [2, 3]
    assert info["final_info"]["b"].tolist() == [0, 0, 6, 0]
    # memory of its own: the batch goes back to its buffer
    batch.final_obs[...] = -1
    assert info["final_obs"][2].tolist() == [4, 5]


def test_an_exact_final_observation_stands_for_the_shared_one() -> None:
    host = host_of(BOX)
    reader, _ = reader_of(host, BOX)
    host.arrays["terminated"][0] = True
    exact = {"more": "than an array"}
    host.records = {0: Record(0, final_exact=(exact,), final_info={"c": 1})}
    info = reader.infos(reader.read(None, {}, same_step=True), same_step=True)
    assert info["final_obs"][0] is exact and info["final_info"]["c"].tolist() == [1, 0, 0, 0]


def test_without_an_end_or_another_mode_there_is_no_final_info() -> None:
    host = host_of(BOX)
    reader, _ = reader_of(host, BOX)
    assert reader.infos(reader.read(None, {}, same_step=True), same_step=True) == {}
    host.arrays["terminated"][0] = True
    assert reader.infos(reader.read(None, {}, same_step=False), same_step=False) == {}


def test_statistics_stand_before_infos_and_those_of_the_ended_in_final_info() -> None:
    host = host_of(BOX)
    reader, _ = reader_of(host, BOX)
    host.arrays["reward"][...] = [1, 2, 3, 4]
    batch = ended_batch(host, reader)
    info = add_statistics(reader.infos(batch, same_step=True), batch, same_step=True)
    assert list(info)[:3] == ["env_id", "episode_return", "episode_length"]
    assert info["env_id"] is batch.env_id
    final = info["final_info"]
    assert final["episode_return"].tolist() == [0, 2, 3, 0]
    assert final["episode_length"].tolist() == [0, 1, 1, 0]
    assert final["env_id"].tolist() == [0, 11, 12, 0]
    for name in ("env_id", "episode_return", "episode_length"):
        assert final[f"_{name}"].tolist() == [False, True, True, False]
        assert final[name].dtype == getattr(batch, name).dtype


def test_statistics_add_no_final_info_where_there_is_none() -> None:
    host = host_of(BOX)
    reader, _ = reader_of(host, BOX)
    host.arrays["terminated"][1] = True
    batch = reader.read(None, {}, same_step=False)
    assert "final_info" not in add_statistics({}, batch, same_step=False)
    host.arrays["terminated"][1] = False
    assert "final_info" not in add_statistics(
        {}, reader.read(None, {}, same_step=True), same_step=True
    )


def test_the_first_failure_is_told_and_the_others_are_named() -> None:
    host = host_of(BOX)
    reader, _ = reader_of(host, BOX)
    host.records = {row: Record(row, failure=ProcessFailure(f"broke {row}")) for row in (0, 2, 3)}
    batch = reader.read(None, {}, same_step=False)
    error = batch.error()
    assert isinstance(error, EnvError)
    assert str(error) == "env_id 10 failed (and env_id 12, 13): broke 0"
    info: dict[str, Any] = {}
    add_failures(info, batch)
    assert info["env_error"].tolist() == ["broke 0", None, "broke 2", "broke 3"]
    assert info["_env_error"].tolist() == [True, False, True, True]


def test_a_single_failure_names_no_others_and_none_adds_nothing() -> None:
    host = host_of(BOX)
    reader, _ = reader_of(host, BOX)
    host.records = {1: Record(1, failure=ProcessFailure("broke"))}
    assert str(reader.read(rows(1), {}, same_step=False).error()) == "env_id 11 failed: broke"
    info: dict[str, Any] = {}
    add_failures(info, reader.read(rows(1), {}, same_step=False))
    assert info == {}
