# SPDX-License-Identifier: Apache-2.0
"""Model fields as users write them, read for a pool that is made up: shapes, bounds, files."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollouts.errors import SpecError
from rollouts.families.model_fields import Scaled, Uniform, model_columns, read_field

N = 3


class Pool:
    """Files of N environments: a field of three elements, one of a single number, one of each."""

    def __init__(self, mass: Any = None, *, bodies_of_last: int = 3) -> None:
        masses = np.tile([1.0, 2.0, -4.0], (N, 1)) if mass is None else np.asarray(mass)
        self.fields: list[dict[str, np.ndarray]] = [
            {"body_mass": masses[env], "gear": np.array(5.0)} for env in range(N)
        ]
        if bodies_of_last != 3:
            self.fields[-1]["body_mass"] = np.ones(bodies_of_last)
        self.read: list[tuple[int, str, bool]] = []

    def read_model(self, env: int, field: str, of_file: bool) -> np.ndarray:
        self.read.append((env, field, of_file))
        if field not in self.fields[env]:
            raise SpecError(f"there is no model field {field!r}")
        return self.fields[env][field]

    def model_fields(self, env: int) -> list[str]:
        return list(self.fields[env])


def columns(given: Any, pool: Any = None, mask: list[int] | None = None) -> list[Any]:
    at = None if mask is None else np.array(mask, np.bool_)
    return model_columns(given, pool or Pool(), N, at)


def column(value: Any, field: str = "body_mass", **options: Any) -> tuple[bool, Any, Any]:
    ((name, by_env, low, high),) = columns({field: value}, **options)
    assert name == field
    for bound in (low, high):
        if bound is not None:
            assert bound.dtype == np.float64 and bound.flags.c_contiguous
    return by_env, low, high


def test_values_of_all_environments_have_the_field_s_shape() -> None:
    by_env, low, high = column([1, 2, 3])
    assert not by_env and low.tolist() == [1, 2, 3] and high is None
    by_env, low, high = column(7, "gear")
    assert not by_env and low.ravel().tolist() == [7]


def test_values_of_each_environment_have_one_axis_more() -> None:
    by_env, low, _ = column(np.arange(9).reshape(N, 3))
    assert by_env and low[2].tolist() == [6, 7, 8]
    by_env, low, _ = column([1.0, 2.0, 3.0], "gear")
    assert by_env and low.tolist() == [1, 2, 3]


def test_none_gives_the_file_s_values_back() -> None:
    assert columns({"body_mass": None}) == [("body_mass", False, None, None)]


def test_fields_come_in_the_order_given() -> None:
    assert [name for name, *_ in columns({"gear": 1, "body_mass": None})] == ["gear", "body_mass"]
    assert columns({}) == []


@pytest.mark.parametrize("value", [[1, 2], 1.0, np.zeros((2, 3)), np.zeros((N, 3, 1)), []])
def test_another_shape_is_told_both_that_there_are(value: Any) -> None:
    with pytest.raises(SpecError) as caught:
        column(value)
    assert str(caught.value) == (
        f"model field 'body_mass' has shape {np.shape(value)}, expected (3,) for all environments "
        "or (3, 3) for each"
    )


@pytest.mark.parametrize("value", ["heavy", ["a", "b", "c"], [1, [2], 3], [1j, 2, 3], object()])
def test_what_is_no_number_is_refused(value: Any) -> None:
    with pytest.raises(SpecError, match="model field 'body_mass' must be numbers, got"):
        column(value)


@pytest.mark.parametrize("given_options", [None, [("body_mass", 1)], "body_mass"])
def test_fields_come_in_a_mapping(given_options: Any) -> None:
    with pytest.raises(SpecError, match=r"options\['model'\] must be a mapping of fields"):
        columns(given_options)


def test_integers_and_booleans_become_doubles() -> None:
    for value in (np.ones(3, np.int8), np.ones(3, np.bool_), np.ones(3, np.float32)):
        assert column(value)[1].tolist() == [1, 1, 1]


def test_the_caller_s_array_is_not_kept() -> None:
    value = np.ones(3)
    _, low, _ = column(value)
    value[0] = 9
    assert low.tolist() == [1, 1, 1]


def test_a_plain_bound_stands_for_every_element() -> None:
    by_env, low, high = column(Uniform(0.5, 2))
    assert not by_env and low.tolist() == [0.5] * 3 and high.tolist() == [2] * 3


def test_bounds_may_differ_by_element_and_one_of_them_by_environment() -> None:
    by_env, low, high = column(Uniform(0, [1, 2, 3]))
    assert not by_env and low.tolist() == [0, 0, 0] and high.tolist() == [1, 2, 3]
    by_env, low, high = column(Uniform(np.zeros((N, 3)), [1, 2, 3]))
    assert by_env and low.shape == high.shape == (N, 3) and high[2].tolist() == [1, 2, 3]


def test_bounds_of_a_number_may_differ_by_environment() -> None:
    by_env, low, high = column(Uniform([1, 2, 3], 4), "gear")
    assert by_env and low.tolist() == [1, 2, 3] and high.tolist() == [4, 4, 4]


@pytest.mark.parametrize("bound", [[1, 2], np.ones((2, 3))])
def test_a_bound_of_another_shape_is_refused(bound: Any) -> None:
    for value in (Uniform(bound, 2), Uniform(0, bound), Scaled(1, bound)):
        with pytest.raises(SpecError, match="model field 'body_mass' has shape"):
            column(value)


def test_scaled_bounds_are_multiples_of_the_file_s_values_in_order() -> None:
    by_env, low, high = column(Scaled(0.5, 2))
    # the larger factor is the lower bound of a negative value
    assert not by_env
    assert low.tolist() == [0.5, 1, -8] and high.tolist() == [2, 4, -2]


def test_scaled_bounds_follow_files_that_differ() -> None:
    masses = [[1.0, 2, 3], [10, 20, 30], [100, 200, 300]]
    by_env, low, high = column(Scaled(1, 2), pool=Pool(masses))
    assert by_env and low.tolist() == masses
    assert high[1].tolist() == [20, 40, 60]


def test_files_of_environments_that_keep_theirs_are_not_read() -> None:
    pool = Pool([[1.0, 2, 3], [10, 20, 30], [1, 2, 3]])
    by_env, low, _ = column(Scaled(1, 1), pool=pool, mask=[1, 0, 1])
    assert {env for env, _, _ in pool.read} == {0, 2}
    assert not by_env and low.tolist() == [1, 2, 3]


def test_the_first_marked_environment_s_file_tells_the_shape() -> None:
    pool = Pool(bodies_of_last=2)
    assert column([1, 2], pool=pool, mask=[0, 0, 1])[1].tolist() == [1, 2]
    with pytest.raises(SpecError, match="expected \\(3,\\) for all"):
        column([1, 2], pool=pool)


def test_multiples_of_files_of_several_shapes_are_refused() -> None:
    with pytest.raises(SpecError, match="'body_mass' has another shape in other environments"):
        column(Scaled(1, 2), pool=Pool(bodies_of_last=2))


def test_a_field_is_read_from_the_file_or_as_it_is() -> None:
    pool: Any = Pool()
    assert read_field(pool, 2, "gear", of_file=False) == 5
    assert pool.read == [(2, "gear", False)]


def test_an_unknown_field_is_answered_with_those_that_are_close() -> None:
    pool: Any = Pool()
    with pytest.raises(SpecError) as caught:
        read_field(pool, 0, "body_mas", of_file=True)
    assert str(caught.value) == (
        "there is no model field 'body_mas'; did you mean 'body_mass'? VectorEnv.model_fields "
        "lists what can be set"
    )
    with pytest.raises(SpecError, match=r"field 'xyz'; VectorEnv\.model_fields lists"):
        read_field(pool, 0, "xyz", of_file=True)


@pytest.mark.parametrize("field", [3, None, ("body_mass",)])
def test_a_field_that_is_no_text_is_refused(field: Any) -> None:
    pool: Any = Pool()
    with pytest.raises(SpecError, match="a model field is a str such as 'body_mass', got"):
        read_field(pool, 0, field, of_file=True)
    with pytest.raises(SpecError, match="a model field is a str"):
        columns({field: 1.0})


finite = st.floats(-1e6, 1e6)


@given(finite, finite, st.lists(finite, min_size=3, max_size=3))
def test_scaled_bounds_never_cross(one: float, other: float, masses: list[float]) -> None:
    low_factor, high_factor = sorted((one, other))
    _, low, high = column(Scaled(low_factor, high_factor), pool=Pool([masses] * N))
    assert (low <= high).all()
    for i, mass in enumerate(masses):
        assert {low[i], high[i]} == {low_factor * mass, high_factor * mass}
