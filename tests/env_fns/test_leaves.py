# SPDX-License-Identifier: Apache-2.0
"""Nested spaces as flat lists of leaves, and actions as one column per leaf."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import Space, spaces
from gymnasium.vector.utils import batch_space
from hypothesis import given
from hypothesis import strategies as st

from rollouts.envs.hosted.leaves import Leaf, action_columns, leaves_of, nest
from rollouts.errors import DTypeError, SpecError

ROWS = 3
PLAIN = [
    spaces.Box(-1, 1, (2,), np.float32),
    spaces.Discrete(4),
    spaces.MultiDiscrete([2, 3]),
    spaces.MultiBinary(5),
    spaces.Text(4),
]
nested: st.SearchStrategy[Space[Any]] = st.recursive(
    st.sampled_from(PLAIN),
    lambda part: st.one_of(
        st.lists(part, min_size=1, max_size=3).map(spaces.Tuple),
        st.dictionaries(st.sampled_from("abc"), part, min_size=1, max_size=3).map(spaces.Dict),
    ),
    max_leaves=6,
)


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return list(one) == list(other) and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(equal, one, other))
    return bool(np.array_equal(one, other))


@given(nested)
def test_leaves_put_together_are_the_whole_value(space: Space[Any]) -> None:
    space.seed(0)
    value = space.sample()
    leaves = leaves_of(space)
    assert equal(nest(space, [leaf.of(value) for leaf in leaves]), value)
    assert len({leaf.path for leaf in leaves}) == len(leaves)


@given(nested)
def test_each_row_of_the_columns_is_one_environments_action(space: Space[Any]) -> None:
    batched = batch_space(space, ROWS)
    batched.seed(0)
    leaves = leaves_of(space)
    columns = action_columns(leaves, batched.sample(), ROWS)
    for row in range(ROWS):
        one = nest(space, [column[row] for column in columns])
        assert space.contains(one), (space, one)


def test_a_leaf_is_named_by_the_way_to_it() -> None:
    space = spaces.Dict({"camera": spaces.Tuple([spaces.Discrete(2), spaces.Text(3)])})
    first, second = leaves_of(space)
    assert first == Leaf(("camera", 0), (), np.dtype(np.int64))
    assert first.name == "['camera'][0]" and second.name == "['camera'][1]"
    assert second.dtype is None
    assert leaves_of(spaces.Discrete(2))[0].name == ""


LEAVES = leaves_of(spaces.Dict({"turn": spaces.Discrete(3), "say": spaces.Text(4)}))
GOOD: dict[str, Any] = {"turn": np.zeros(ROWS, np.int64), "say": ["a"] * ROWS}


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"turn": np.zeros(2, np.int64)}, SpecError, r"\['turn'\] has shape \(2,\), expected \(3,"),
        ({"turn": 1}, DTypeError, r"\['turn'\] is the single value 1, expected 3 actions"),
        ({"turn": np.full(ROWS, 0.5)}, DTypeError, "a conversion would change values"),
        ({"turn": np.array(["x"] * ROWS)}, DTypeError, "has dtype <U1, expected int64"),
        ({"turn": [[1], [1, 2], [3]]}, SpecError, r"\['turn'\] is no array"),
        ({"say": "abc"}, DTypeError, r"\['say'\] is of type str, expected a sequence of 3"),
        ({"say": ["a"]}, SpecError, r"\['say'\] has 1 entries, expected 3: one per env_id"),
    ],
)
def test_what_is_no_batch_of_actions_is_refused(
    changed: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        action_columns(LEAVES, {**GOOD, **changed}, ROWS)


@pytest.mark.parametrize("actions", [{"turn": GOOD["turn"]}, [1, 2, 3], None])
def test_a_part_that_is_missing_is_named(actions: Any) -> None:
    with pytest.raises(SpecError, match=r"actions has no part \['"):
        action_columns(LEAVES, actions, ROWS)


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float64, np.bool_])
def test_another_dtype_with_the_same_values_is_converted(dtype: Any) -> None:
    _, column = action_columns(LEAVES, {**GOOD, "turn": np.array([0, 1, 1], dtype)}, ROWS)
    # what casts to the space's dtype stays as it is, floats and the like do not
    assert column.tolist() == [0, 1, 1] and column.dtype.kind in "iub"
