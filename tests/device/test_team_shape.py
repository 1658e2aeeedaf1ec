# SPDX-License-Identifier: Apache-2.0
"""Shares of threads and shared memory, over what worlds may be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollouts import SpecError
from rollouts.envs.kernel.alone_shape import MOST_AGENTS, choose_alone
from rollouts.envs.kernel.team_shape import choose_team

KIB = 1024


@given(
    num_agents=st.integers(1, 5000),
    agent_bytes=st.integers(16, 300),
    action_bytes=st.sampled_from([4, 8, 40]),
    obs_bytes=st.integers(1, 20_000),
    converts_obs=st.booleans(),
    room=st.sampled_from([700, 48 * KIB, 99 * KIB, 163 * KIB, 227 * KIB]),
)
def test_what_is_shared_fits_and_does_not_overlap(
    num_agents: int,
    agent_bytes: int,
    action_bytes: int,
    obs_bytes: int,
    converts_obs: bool,
    room: int,
) -> None:
    world_bytes = -(-num_agents * agent_bytes // 64) * 64
    try:
        shape = choose_team(
            num_agents=num_agents,
            team_bytes=336,
            world_bytes=world_bytes,
            action_bytes=num_agents * action_bytes,
            obs_bytes=obs_bytes,
            converts_obs=converts_obs,
            most_shared_bytes=room,
        )
    except SpecError:
        assert converts_obs
        return
    memory, block = shape.memory, shape.block
    assert block.num_threads <= 256
    assert block.shared_bytes <= room
    assert memory.bytes % 16 == 0
    # a power of two up to a warp, or whole warps
    assert shape.size % 32 == 0 or 32 % shape.size == 0
    assert shape.teams == 1 or shape.size <= 32
    parts = [(0, 336)]
    for at, size in (
        (memory.actions, num_agents * action_bytes),
        (memory.world, world_bytes),
        (memory.obs, memory.obs_rows * obs_bytes),
        (memory.sums, 32 * 16),
    ):
        if at:
            assert at % 16 == 0
            parts.append((at, size))
    parts.sort()
    for (at, size), (following, _) in zip(parts, [*parts[1:], (memory.bytes, 0)], strict=True):
        assert at + size <= following
    assert memory.obs_rows <= min(num_agents, shape.size)
    assert not converts_obs or memory.obs_rows > 0


def test_large_worlds_leave_room_for_a_second_block() -> None:
    def shared(num_agents: int) -> tuple[bool, int]:
        shape = choose_team(
            num_agents=num_agents,
            team_bytes=336,
            world_bytes=134 * num_agents,
            action_bytes=8 * num_agents,
            obs_bytes=284,
            converts_obs=False,
            most_shared_bytes=227 * KIB,
        )
        return bool(shape.memory.world), shape.block.shared_bytes

    assert shared(105)[0]
    assert not shared(1000)[0]
    assert all(shared(count)[1] <= 227 * KIB // 2 for count in range(1, 3000, 37))


def test_an_observation_that_cannot_be_converted_is_refused() -> None:
    with pytest.raises(SpecError, match="observation of 500000 bytes is too large"):
        choose_team(
            num_agents=2,
            team_bytes=336,
            world_bytes=64,
            action_bytes=8,
            obs_bytes=500_000,
            converts_obs=True,
            most_shared_bytes=227 * KIB,
        )


@given(
    groups=st.lists(
        st.tuples(st.integers(1, 5), st.integers(1, 200), st.integers(1, 5)), max_size=3, min_size=1
    ),
    world_bytes=st.integers(1, 40).map(lambda parts: 16 * parts),
    obs_itemsize=st.sampled_from([1, 4, 8]),
)
def test_threads_alone_have_slots_without_conflicts(
    groups: list[tuple[int, int, int]], world_bytes: int, obs_itemsize: int
) -> None:
    shape = choose_alone(world_bytes, groups, obs_itemsize)
    if shape is None:
        few = sum(agents for agents, _, _ in groups) <= MOST_AGENTS
        assert (
            not few or world_bytes > 256 or max(obs for _, obs, _ in groups) * obs_itemsize > 1024
        )
        return
    slot = int(shape.memory.bytes)
    assert slot >= max(obs for _, obs, _ in groups) * obs_itemsize
    assert slot % obs_itemsize == slot % 4 == 0
    # neighbours' slots begin at different banks of 4 or of 8 bytes
    assert slot // max(4, obs_itemsize) % 2 == 1
    # blocks ask for no more than every kernel may have
    assert shape.num_threads % 32 == 0
    assert shape.num_threads * slot <= 48 * KIB
