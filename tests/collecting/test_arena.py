# SPDX-License-Identifier: Apache-2.0
"""The arena alone: cells by row or by pairs, what is handed out, what opens the next one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from rollouts.batch import RolloutBatch, StepBatch
from rollouts.collecting.arena import Arena
from rollouts.policies.protocol import PolicyOutput

SPACE = spaces.Box(-9, 9, (2,), np.float32)
N = 3


def arena_of(steps: int = 4, *, keeps: bool = False) -> Arena:
    arena = Arena(steps, N, SPACE, keep_final_obs=keeps)
    arena.obs[...] = np.arange(arena.obs.size).reshape(arena.obs.shape)
    return arena


def output(*numbers: float, **extras: Any) -> PolicyOutput:
    values = np.array(numbers, np.float32)
    return PolicyOutput(values.astype(np.int64), -values, 10 * values, extras)


def step(
    reward: list[float],
    terminated: list[int] | None = None,
    truncated: list[int] | None = None,
    *,
    info: dict[str, Any] | None = None,
) -> StepBatch:
    rows, none = len(reward), [0] * len(reward)
    return StepBatch(
        obs=np.zeros((rows, 2), np.float32),
        reward=np.array(reward, np.float64),
        terminated=np.array(terminated or none, np.bool_),
        truncated=np.array(truncated or none, np.bool_),
        env_id=np.arange(rows, dtype=np.int32),
        episode_return=100 * np.array(reward, np.float64),
        episode_length=np.array(reward).astype(np.int32),
        final_obs=np.array([[r, -r] for r in reward], np.float32),
        info=info or {},
    )


def pairs(*cells: tuple[int, int]) -> tuple[Any, Any]:
    t, rows = zip(*cells, strict=True)
    return np.array(t, np.intp), np.array(rows, np.intp)


def filled(steps: int = 4, *, keeps: bool = False) -> Arena:
    """Every cell (t, i) has the number 10 t + i."""
    arena = arena_of(steps, keeps=keeps)
    for t in range(steps):
        numbers = [10.0 * t + i for i in range(N)]
        arena.write_choice(t, None, output(*numbers, hidden=np.full((N, 2), t)), version=t)
        arena.write_outcome(t, None, step(numbers), None)
    return arena


def first(arena: Arena, steps: int, state: tuple[Any, ...] = ()) -> RolloutBatch:
    env_id = np.arange(5, 5 + N, dtype=np.int32)
    return arena.first_steps(steps, env_id, np.zeros(N, np.float32), state)


def test_a_row_of_all_environments_is_written_at_once() -> None:
    arena = filled()
    expected = np.array([[10 * t + i for i in range(N)] for t in range(4)])
    assert (arena.choice["action"] == expected).all()
    assert (arena.choice["log_prob"] == -expected).all()
    assert (arena.choice["value"] == 10 * expected).all()
    assert (arena.choice["policy_version"] == np.arange(4)[:, None]).all()
    assert (arena.outcome["reward"] == expected).all()
    assert (arena.outcome["episode_return"] == 100 * expected).all()
    assert (arena.extras["hidden"] == np.arange(4)[:, None, None]).all()


def test_pairs_of_indices_reach_their_cells_alone() -> None:
    arena = filled()
    t, rows = pairs((3, 0), (1, 2))
    arena.write_choice(t, rows, output(7, 8, hidden=np.full((2, 2), 9)), version=5)
    arena.write_outcome(t, rows, step([7, 8], [1, 0], [0, 1]), np.array([0.5, 0.25], np.float32))
    changed = np.zeros((4, N), np.bool_)
    changed[3, 0] = changed[1, 2] = True
    assert arena.choice["action"][3, 0] == 7 and arena.choice["action"][1, 2] == 8
    assert ((arena.choice["policy_version"] == 5) == changed).all()
    assert ((arena.extras["hidden"] == 9).all(-1) == changed).all()
    assert arena.outcome["bootstrap_value"][3, 0] == 0.5
    assert arena.outcome["bootstrap_value"][1, 2] == 0.25
    assert (arena.outcome["bootstrap_value"][~changed] == 0).all()
    assert arena.outcome["terminated"].sum() == arena.outcome["truncated"].sum() == 1


def test_an_outcome_without_a_bootstrap_clears_what_stood_there() -> None:
    arena = arena_of()
    arena.write_choice(0, None, output(0, 0, 0), 0)
    arena.write_outcome(0, None, step([0, 0, 0]), np.ones(N, np.float32))
    arena.write_outcome(0, None, step([0, 0, 0]), None)
    assert (arena.outcome["bootstrap_value"][0] == 0).all()


def test_the_first_output_decides_the_dtypes_and_shapes_of_all() -> None:
    arena = arena_of()
    action = np.zeros((N, 2, 3), np.int16)
    value = np.zeros(N, np.float32)
    arena.write_choice(0, None, PolicyOutput(action, value, value, {"x": np.zeros((N, 0))}), 0)
    assert arena.choice["action"].shape == (4, N, 2, 3)
    assert arena.choice["action"].dtype == np.int16
    assert arena.extras["x"].shape == (4, N, 0)
    assert arena.choice["policy_version"].dtype == np.int64


def test_what_is_handed_out_has_the_documented_dtypes() -> None:
    batch = first(filled(), 3)
    assert batch.reward.dtype == batch.bootstrap_value.dtype == np.float32
    assert batch.episode_return.dtype == np.float64 and batch.episode_length.dtype == np.int32
    assert batch.terminated.dtype == batch.truncated.dtype == np.bool_


def test_the_first_rows_and_the_observation_behind_them_are_handed_out() -> None:
    arena = filled()
    state = (np.arange(N),)
    batch = first(arena, 3, state)
    assert batch.obs.shape == (3, N, 2) and (batch.last_obs == arena.obs[3]).all()
    assert batch.action[2].tolist() == [20, 21, 22]
    assert batch.env_id.tolist() == [5, 6, 7] and batch.policy_state is state
    assert batch.extras["hidden"].shape == (3, N, 2)
    assert batch.final_obs is None
    # views: nothing is copied
    assert np.shares_memory(batch.obs, arena.obs)
    assert np.shares_memory(batch.reward, arena.outcome["reward"])


def test_episodes_that_ended_come_by_time_and_then_by_environment() -> None:
    arena = filled()
    arena.write_outcome(1, None, step([1, 2, 3], [0, 0, 1]), None)
    arena.write_outcome(0, None, step([4, 5, 6], [0, 1, 0], [0, 1, 1]), None)
    arena.write_outcome(3, None, step([7, 8, 9], [1, 1, 1]), None)  # beyond
    batch = first(arena, 3)
    env_id, returns, lengths, final_obs = batch.episodes()
    assert returns.tolist() == [500, 600, 300] and lengths.tolist() == [5, 6, 3]
    assert env_id.tolist() == [6, 7, 7] and final_obs is None


@pytest.mark.parametrize("ends", [{"terminated": [0, 1, 0]}, {"truncated": [0, 1, 0]}])
def test_final_observations_are_kept_in_the_order_of_the_episodes(ends: Any) -> None:
    arena = filled(keeps=True)
    t, rows = pairs((2, 1), (0, 2), (2, 0))
    arena.write_outcome(t, rows, step([1, 2, 3], [1, 1, 1]), None)
    arena.write_outcome(1, None, step([4, 5, 6], **ends), None)
    batch = first(arena, 4)
    assert batch.final_obs is not None
    # cells (0, 2), (1, 1), (2, 0), (2, 1)
    assert batch.final_obs.tolist() == [[2, -2], [5, -5], [3, -3], [1, -1]]
    assert batch.episodes().env_id.tolist() == [7, 6, 5, 6]
    assert batch.episodes().final_obs is batch.final_obs


def test_no_final_observation_is_an_empty_array_of_the_right_kind() -> None:
    final = first(filled(keeps=True), 4).final_obs
    assert final is not None and final.shape == (0, 2) and final.dtype == np.float32


def test_a_final_observation_is_memory_of_its_own() -> None:
    arena = filled(keeps=True)
    ended = step([1, 2, 3], [1, 0, 0])
    arena.write_outcome(0, None, ended, None)
    assert ended.final_obs is not None
    ended.final_obs[...] = 99
    final = first(arena, 1).final_obs
    assert final is not None and final.tolist() == [[1, -1]]


def test_a_failed_environment_ends_with_the_observation_it_failed_on() -> None:
    arena = filled(keeps=True)
    failed = {"_env_error": np.array([False, True, False])}
    arena.write_outcome(1, None, step([1, 2, 3], None, [1, 1, 0], info=failed), None)
    final = first(arena, 2).final_obs
    assert final is not None
    assert final.tolist() == [[1, -1], arena.obs[1, 1].tolist()]


def test_the_next_arena_opens_with_what_lies_beyond() -> None:
    arena = filled()
    kept = {name: array.copy() for name, array in (arena.outcome | arena.choice).items()}
    new = arena.next_arena(slice(2, 4))
    assert new.shape == arena.shape and new.obs.shape == arena.obs.shape
    assert (new.obs[:2] == arena.obs[2:4]).all()
    for name, array in (new.outcome | new.choice).items():
        assert (array[:2] == kept[name][2:4]).all() and array.shape == kept[name].shape
        assert array.dtype == kept[name].dtype
    assert (new.extras["hidden"][:2] == arena.extras["hidden"][2:4]).all()


def test_the_next_arena_shares_no_memory_with_what_was_handed_out() -> None:
    arena = filled(keeps=True)
    arena.write_outcome(3, None, step([1, 2, 3], [1, 0, 0]), None)
    batch = first(arena, 2)
    before = batch.obs.copy(), batch.reward.copy(), batch.extras["hidden"].copy()
    new = arena.next_arena(slice(2, 4))
    new.obs[...] = -1
    new.outcome["reward"][...] = -1
    new.extras["hidden"][...] = -1
    assert new.final_obs is not None
    new.final_obs.clear()
    assert (batch.obs == before[0]).all() and (batch.reward == before[1]).all()
    assert (batch.extras["hidden"] == before[2]).all()
    assert arena.final_obs


def test_final_observations_move_with_their_rows() -> None:
    arena = filled(keeps=True)
    t, rows = pairs((1, 0), (2, 1), (3, 2))
    arena.write_outcome(t, rows, step([1, 2, 3], [1, 1, 1]), None)
    new = arena.next_arena(slice(2, 4))
    assert new.final_obs is not None
    assert sorted(new.final_obs) == [(0, 1), (1, 2)]
    assert new.final_obs[1, 2].tolist() == [3, -3]
    # and the next one's own are found beside them
    final = first(new, 2).final_obs
    assert final is not None and final.tolist() == [[2, -2], [3, -3]]


def test_an_arena_that_keeps_none_has_a_next_one_that_keeps_none() -> None:
    assert filled().next_arena(slice(2, 3)).final_obs is None


def test_nothing_beyond_opens_an_empty_arena() -> None:
    new = filled(keeps=True).next_arena(slice(4, 4))
    assert new.final_obs == {} and new.obs.shape == (5, N, 2)


cells = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, N - 1)), min_size=1, max_size=8, unique=True
)


@given(cells)
def test_any_set_of_cells_is_written_as_one_by_one(chosen: list[tuple[int, int]]) -> None:
    at_once, one_by_one = filled(keeps=True), filled(keeps=True)
    numbers = [float(i + 1) for i in range(len(chosen))]
    bootstrap = np.array(numbers, np.float32)
    t, rows = pairs(*chosen)
    ends = [i % 2 for i in range(len(chosen))]
    at_once.write_outcome(t, rows, step(numbers, ends), bootstrap)
    for i, cell in enumerate(chosen):
        part = step([numbers[i]], [ends[i]])
        one_by_one.write_outcome(*pairs(cell), part, bootstrap[i : i + 1])
    for name, array in at_once.outcome.items():
        assert (array == one_by_one.outcome[name]).all(), name
    assert at_once.final_obs is not None and one_by_one.final_obs is not None
    assert at_once.final_obs.keys() == one_by_one.final_obs.keys()
