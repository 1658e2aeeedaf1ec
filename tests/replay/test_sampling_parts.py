# SPDX-License-Identifier: Apache-2.0
"""Parts of a sample, without a store: weights, columns of rows, batches of other arrays."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st
from random_batches import make_batch

from rollouts.errors import DTypeError, SpecError
from rollouts.replay.columns import Columns, stack_num
from rollouts.replay.dataset import ReplayDataset
from rollouts.replay.sampling import importance_weights, map_arrays

BOX = spaces.Box(0, 255, (2, 3), np.uint8)
GO = spaces.Discrete(4)


@given(st.lists(st.floats(1e-6, 1), min_size=1, max_size=8), st.integers(1, 10**9), st.floats(0, 1))
def test_weights_are_those_of_the_formula(given_p: list[float], size: int, beta: float) -> None:
    probability, sizes = np.array(given_p), np.full(len(given_p), size)
    found = importance_weights(probability, sizes, beta)
    weights = [(size * p) ** -beta for p in given_p]
    assert found.dtype == np.float32 and found.max() == 1.0
    np.testing.assert_allclose(found, np.array(weights) / max(weights), rtol=1e-5)


def test_weights_of_equal_probabilities_are_exactly_one() -> None:
    # whatever the size of the table was when each was drawn
    assert importance_weights(np.full(3, 0.1), np.array([5, 6, 7]), 0.4).tolist() == [1, 1, 1]
    assert importance_weights(np.zeros(0), np.zeros(0), 0.4).shape == (0,)


@pytest.mark.parametrize("beta", [0.4, 1.0, 50.0])
def test_weights_of_an_impossible_item_are_numbers(beta: float) -> None:
    found = importance_weights(np.array([0.0, 0.5]), np.array([10, 10]), beta)
    assert np.isfinite(found).all() and found[0] == 1.0


def columns(obs: Any = BOX, action: Any = GO, **changes: Any) -> Columns:
    options = {"stack_num": 1, "policy_state": (), "extras": {}} | changes
    return Columns(obs, action, **options)


def test_a_row_has_the_observation_first_and_then_its_step() -> None:
    made = columns(extras={"hidden": np.zeros(5)}, policy_state=[np.zeros((2, 2), np.float32)])
    assert [name for name, *_ in made.native] == [
        "obs",
        "action",
        "reward",
        "terminated",
        "truncated",
        "policy_version",
        "extras.hidden",
        "policy_state.0",
    ]
    assert made.native[0][1:] == (np.uint8, (2, 3), 1, "repeat")
    assert made.steps["extras.hidden"] == (np.dtype(np.float64), (5,))
    assert made.describe()[0] == ["obs", "|u1", [2, 3], 1]


def test_of_stacked_observations_single_frames_are_kept() -> None:
    made = columns(stack_num=2)
    assert made.native[0][2:4] == ((3,), 2) and made.obs_shape == (2, 3)
    assert made.describe() != columns().describe()
    for wrong in (3, 0, 65):
        with pytest.raises(SpecError, match="stack_num is"):
            columns(stack_num=wrong)


@pytest.mark.parametrize(
    ("obs", "error", "message"),
    [
        (spaces.Dict({"a": GO}), SpecError, "single_observation_space is Dict.*flatten others"),
        (spaces.Text(3), SpecError, "single_observation_space is"),
        ((2, 3), DTypeError, r"single_observation_space is \(2, 3\), expected a gymnasium.Space"),
    ],
)
def test_spaces_without_one_shape_are_refused(obs: Any, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        columns(obs)


def test_a_rollout_s_arrays_come_in_the_order_of_the_columns() -> None:
    batch = make_batch(2, 3)
    found = columns(extras={"hidden": np.zeros(5), "value": 0.0}).of_batch(batch)
    assert found[0] is batch.obs and found[5] is batch.policy_version
    # values and log-probabilities may be asked for as extras
    assert found[6] is batch.extras["hidden"] and found[7] is batch.value
    with pytest.raises(SpecError, match=r"the batch has no extras\['lives'\].*\['hidden'\]"):
        columns(extras={"lives": 0}).of_batch(batch)
    with pytest.raises(SpecError, match="come with keep_states=True"):
        columns(policy_state=[np.zeros(2)]).of_batch(batch)


@pytest.mark.parametrize(
    ("value", "dtype", "message"),
    [
        (np.zeros((2, 4)), np.float32, r"x has shape \(2, 4\), expected \(2, 3\)"),
        ([[1], [2, 3]], np.float32, "x is no array"),
        (np.zeros((2, 3)), np.int64, "x has dtype float64, expected int64"),
        (np.zeros((2, 3), np.int64), np.bool_, "x has dtype int64, expected bool"),
    ],
)
def test_arrays_that_do_not_fit_a_column_are_named(value: Any, dtype: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        columns().convert("x", value, (2,), np.dtype(dtype), (3,))


@pytest.mark.parametrize(
    "value", [np.ones((3, 2)).T, [[1, 2, 3], [4, 5, 6]], np.ones((2, 3), "i1")]
)
def test_arrays_that_fit_are_converted_and_contiguous(value: Any) -> None:
    found = columns().convert("x", value, (2,), np.dtype(np.float32), (3,))
    assert found.dtype == np.float32 and found.flags.carray
    assert np.array_equal(found, np.asarray(value))


def test_stacks_are_those_of_the_environment_s_option() -> None:
    spec: Any = SimpleNamespace(options={"stack_num": 4})
    assert stack_num(spec) == 4
    spec.options = {}
    assert stack_num(spec) == 1


@dataclass
class Mixed:
    """A batch with arrays in every kind of place."""

    obs: Any
    size: int
    extras: dict[str, Any] = field(default_factory=dict)
    states: tuple[Any, ...] = ()


def test_each_array_of_a_batch_is_converted_under_its_path() -> None:
    batch = Mixed(np.zeros(1), 7, {"a": np.zeros(2)}, (np.zeros(3), np.zeros(4)))
    found = map_arrays(batch, lambda path, array: (path, len(array)))
    assert found == Mixed(("obs", 1), 7, {"a": ("extras.a", 2)}, (("states.0", 3), ("states.1", 4)))


def test_a_dataset_samples_anew_in_each_iteration() -> None:
    asked: list[Any] = []

    def sample(batch_size: int, **options: Any) -> Any:
        asked.append((batch_size, options))
        return len(asked)

    replay: Any = SimpleNamespace(sample=sample)
    dataset = ReplayDataset(replay, 5, table="t", beta=0.5, timeout_s=1.0, num_batches=2)
    assert [list(dataset), list(dataset)] == [[1, 2], [3, 4]]
    assert asked[0] == (5, {"table": "t", "beta": 0.5, "timeout_s": 1.0, "device": "cpu"})
    endless = iter(ReplayDataset(replay, 5))
    assert [next(endless) for _ in range(3)] == [5, 6, 7]
    with pytest.raises(SpecError, match="num_batches is 0, expected at least 1, or None"):
        ReplayDataset(replay, 5, num_batches=0)
