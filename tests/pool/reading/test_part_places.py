# SPDX-License-Identifier: Apache-2.0
"""Flat observations as dicts, specs and native spaces, without a pool."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from rollouts.envs.observation_parts import ObservationParts
from rollouts.envs.stats import PoolStats, TimePercentiles
from rollouts.errors import SpecError
from rollouts.specs import EnvSpec, space_from_native

PARTS = (("vel", (2,)), ("arm", (2, 3)), ("height", ()), ("grip", (1,)))
FLAT = spaces.Box(-np.inf, np.inf, (10,), np.float64)


def spec(env_id: str, parts: Any = PARTS) -> EnvSpec:
    return EnvSpec(
        id=env_id,
        single_observation_space=FLAT,
        single_action_space=spaces.Discrete(2),
        max_episode_steps=None,
        reward_threshold=None,
        observation_parts=parts,
    )


def test_parts_lie_one_after_the_other_in_their_order() -> None:
    parts = ObservationParts(FLAT, PARTS).split(np.arange(20.0).reshape(2, 10))
    assert list(parts) == ["vel", "arm", "height", "grip"]
    assert parts["vel"].tolist() == [[0, 1], [10, 11]]
    assert parts["arm"].tolist() == [[[2, 3, 4], [5, 6, 7]], [[12, 13, 14], [15, 16, 17]]]
    assert parts["height"].tolist() == [8, 18]
    assert parts["grip"].tolist() == [[9], [19]]


def test_parts_are_views_of_their_batch() -> None:
    obs = np.zeros((2, 10))
    parts = ObservationParts(FLAT, PARTS).split(obs)
    obs[1, 9] = 7
    obs[0, 0] = 3
    assert parts["grip"][1, 0] == 7 and parts["vel"][0, 0] == 3


def test_no_rows_have_parts_of_no_rows() -> None:
    parts = ObservationParts(FLAT, PARTS).split(np.zeros((0, 10)))
    assert {name: part.shape for name, part in parts.items()} == {
        "vel": (0, 2),
        "arm": (0, 2, 3),
        "height": (0,),
        "grip": (0, 1),
    }


def test_a_single_observation_has_parts_without_rows() -> None:
    parts = ObservationParts(FLAT, PARTS).split_row(np.arange(10.0))
    assert parts["arm"].tolist() == [[2, 3, 4], [5, 6, 7]]
    assert parts["height"] == 8 and np.ndim(parts["height"]) == 0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("rows", [None, 4])
def test_the_space_has_the_parts_in_their_order(dtype: Any, rows: int | None) -> None:
    flat = spaces.Box(-np.inf, np.inf, (10,), dtype)
    parts = ObservationParts(flat, PARTS)
    space = parts.space(rows)
    assert list(space.spaces) == ["vel", "arm", "height", "grip"]
    leading = () if rows is None else (rows,)
    assert space["arm"].shape == (*leading, 2, 3) and space["height"].shape == leading
    assert all(part.dtype == dtype for part in space.spaces.values())
    flat_obs = np.zeros((*leading, 10), dtype)
    value = parts.split_row(flat_obs) if rows is None else parts.split(flat_obs)
    assert space.contains({name: np.asarray(part) for name, part in value.items()})


@given(
    st.lists(st.lists(st.integers(0, 3), max_size=2).map(tuple), min_size=1, max_size=5),
    st.integers(0, 3),
)
def test_parts_put_together_are_the_flat_observation(shapes: list[Any], rows: int) -> None:
    size = sum(int(np.prod(shape)) for shape in shapes)
    named = tuple((f"p{i}", shape) for i, shape in enumerate(shapes))
    flat = spaces.Box(-np.inf, np.inf, (size,), np.float64)
    obs = np.arange(float(rows * size)).reshape(rows, size)
    parts = ObservationParts(flat, named).split(obs)
    pieces = [parts[name].reshape(rows, int(np.prod(shape))) for name, shape in named]
    assert np.array_equal(np.concatenate(pieces, 1), obs)


def test_all_ids_of_a_pool_need_the_same_parts() -> None:
    one, other = spec("One-v1"), spec("Other-v1")
    assert list(ObservationParts.of_pool({"One-v1": one, "Other-v1": other}).space()) == [
        "vel",
        "arm",
        "height",
        "grip",
    ]
    fewer = replace(other, observation_parts=PARTS[:2])
    with pytest.raises(SpecError) as caught:
        ObservationParts.of_pool({"One-v1": one, "Other-v1": fewer})
    assert "must have the same parts of observations: One-v1 has " in str(caught.value)
    assert str(caught.value).endswith("flat observations may share a pool")


def test_an_id_without_parts_is_named() -> None:
    with pytest.raises(SpecError, match="those of One-v1 have none"):
        ObservationParts.of_pool({"One-v1": spec("One-v1", ())})


def native(**changes: Any) -> dict[str, Any]:
    return {
        "n": 0,
        "dtype": np.dtype(np.float32),
        "shape": (2, 2),
        "low": [-1.0],
        "high": [2.0],
        "multi_discrete": False,
        "elementwise": False,
    } | changes


def test_numbers_of_actions_are_a_discrete_space() -> None:
    assert space_from_native(native(n=3)) == spaces.Discrete(3)


def test_one_bound_stands_for_all_elements_and_several_for_each() -> None:
    assert space_from_native(native()) == spaces.Box(-1, 2, (2, 2), np.float32)
    each = native(low=[0, 1, 2, 3], high=[4, 5, 6, 7], elementwise=True)
    space = space_from_native(each)
    assert isinstance(space, spaces.Box)
    assert space.low.tolist() == [[0, 1], [2, 3]] and space.high.tolist() == [[4, 5], [6, 7]]


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.float64])
def test_bounds_have_the_dtype_of_the_space(dtype: Any) -> None:
    space = space_from_native(native(dtype=np.dtype(dtype), low=[0], high=[255], shape=(3,)))
    assert isinstance(space, spaces.Box)
    assert space.dtype == dtype and space.low.dtype == dtype and space.high.tolist() == [255] * 3


def test_the_highest_action_of_each_is_one_less_than_their_number() -> None:
    space = space_from_native(
        native(dtype=np.dtype(np.int64), shape=(2,), low=[0, 0], high=[2, 4], multi_discrete=True)
    )
    assert space == spaces.MultiDiscrete([3, 5], dtype=np.int64)


def test_stats_of_the_core_are_named() -> None:
    times = {name: (2, 0.1, 0.2, 0.3, 0.4) for name in ("step_time_s", "queue_wait_s")}
    values: dict[str, Any] = {
        **times,
        "batch_wait_s": (1, 1.0, 2.0, 3.0, 4.0),
        "env_steps": 5,
        "num_recvs": 6,
        "num_env_errors": 7,
        "num_steps_in_lanes": 3,
        "num_steps_by_mujoco": 2,
        "env_step_time_s": np.zeros(2),
        "num_in_flight": 8,
        "buffer_bytes": 9,
    }
    stats = PoolStats.from_native(values)
    assert stats.batch_wait_s == TimePercentiles(1, 1.0, 2.0, 3.0, 4.0)
    assert (stats.step_time_s.count, stats.step_time_s.p99) == (2, 0.3)
    assert (stats.env_steps, stats.num_in_flight, stats.buffer_bytes) == (5, 8, 9)
    # the values that were read are as they were
    assert values["step_time_s"] == (2, 0.1, 0.2, 0.3, 0.4)
