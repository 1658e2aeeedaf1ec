# SPDX-License-Identifier: Apache-2.0
"""The arrays that native code writes a rollout into: theirs, the arena's and the next arena's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from rollouts.collecting.arena import Arena

IMAGES = spaces.Box(0, 255, (2, 3), np.uint8)
T, N = 4, 3


def arena_of(space: spaces.Space[Any] = IMAGES, *, keeps: bool = False) -> Arena:
    return Arena(T, N, space, keep_final_obs=keeps)


def ended(
    arena: Arena, terminated: list[tuple[int, int]], truncated: list[tuple[int, int]]
) -> None:
    for name, cells in (("terminated", terminated), ("truncated", truncated)):
        arena.outcome[name][:] = False
        for cell in cells:
            arena.outcome[name][cell] = True


@pytest.mark.parametrize(
    ("space", "shape", "dtype"),
    [
        (spaces.Discrete(3), (T, N), np.int64),
        (spaces.Box(-1, 1, (2,), np.float32), (T, N, 2), np.float32),
        (spaces.Box(-1, 1, (2, 1), np.float64), (T, N, 2, 1), np.float64),
    ],
)
def test_actions_have_the_shape_and_dtype_of_their_space(
    space: spaces.Space[Any], shape: tuple[int, ...], dtype: Any
) -> None:
    arrays = arena_of().native_arrays(space, 1)
    assert arrays["action"].shape == shape and arrays["action"].dtype == dtype


def test_arrays_are_named_once_and_contiguous() -> None:
    arrays = arena_of().native_arrays(spaces.Discrete(2), 1)
    assert set(arrays) == {
        *("obs", "action", "log_prob", "value", "policy_version", "reward", "terminated"),
        *("truncated", "bootstrap_value", "episode_return", "episode_length"),
    }
    assert arrays["obs"].shape == (T + 1, N, 2, 3)
    assert all(array.flags.c_contiguous for array in arrays.values())
    assert len({array.ctypes.data for array in arrays.values()}) == len(arrays)


def test_what_is_written_into_them_is_handed_out() -> None:
    arena = arena_of()
    arrays = arena.native_arrays(spaces.Discrete(2), 8)
    for number, name in enumerate(sorted(arrays)):
        if name != "policy_version":
            arrays[name][...] = number % 2
    ended(arena, [], [])
    env_id = np.arange(N, dtype=np.int32)
    batch = arena.first_steps(T, env_id, np.zeros(N, np.float32), ())
    for name in ("obs", "action", "log_prob", "value", "reward", "bootstrap_value"):
        assert np.shares_memory(getattr(batch, name), arrays[name])
    assert (batch.policy_version == 8).all()
    assert np.shares_memory(batch.last_obs, arrays["obs"][T])


def test_a_later_rollout_has_the_same_arrays_and_its_own_version() -> None:
    arena = arena_of()
    first = arena.native_arrays(spaces.Discrete(2), 3)
    second = arena.native_arrays(spaces.Discrete(2), 4)
    assert all(first[name] is second[name] for name in first)
    assert (second["policy_version"] == 4).all()


def test_the_next_arena_shares_nothing() -> None:
    arena = arena_of()
    old = arena.native_arrays(spaces.Discrete(2), 3)
    old["obs"][T] = 7
    new = arena.next_arena(slice(T, None)).native_arrays(spaces.Discrete(2), 4)
    assert not any(np.shares_memory(old[name], new[name]) for name in old)
    assert (new["obs"][0] == 7).all() and (old["policy_version"] == 3).all()


def test_final_observations_go_to_the_cells_that_ended_in_c_order() -> None:
    arena = arena_of(keeps=True)
    ended(arena, [(2, 1), (0, 2)], [(2, 0), (2, 1)])
    rows = np.arange(18, dtype=np.uint8).reshape(3, 6)
    arena.keep_final(rows)
    assert arena.final_obs is not None
    assert list(arena.final_obs) == [(0, 2), (2, 0), (2, 1)]
    assert arena.final_obs[2, 0].tolist() == [[6, 7, 8], [9, 10, 11]]


def test_final_observations_are_of_the_dtype_of_the_space() -> None:
    arena = arena_of(spaces.Box(-1, 1, (2,), np.float64), keeps=True)
    ended(arena, [(1, 1)], [])
    numbers = np.array([[0.25, -0.5]])
    arena.keep_final(numbers.view(np.uint8))
    assert arena.final_obs is not None
    assert arena.final_obs[1, 1].tolist() == [0.25, -0.5]
    assert arena.final_obs[1, 1].dtype == np.float64


def test_no_end_leaves_no_final_observation() -> None:
    arena = arena_of(keeps=True)
    ended(arena, [(0, 0)], [])
    arena.keep_final(np.zeros((1, 6), np.uint8))
    # those of the rollout before are gone
    ended(arena, [], [])
    arena.keep_final(np.zeros((0, 6), np.uint8))
    assert arena.final_obs == {}


@pytest.mark.parametrize("rows", [1, 3])
def test_as_many_final_observations_as_ends_are_taken(rows: int) -> None:
    arena = arena_of(keeps=True)
    ended(arena, [(0, 0), (1, 1)], [])
    with pytest.raises(ValueError, match="zip"):
        arena.keep_final(np.zeros((rows, 6), np.uint8))
