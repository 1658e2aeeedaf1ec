# SPDX-License-Identifier: Apache-2.0
"""Checks of what users pass to a VectorEnv, function by function."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from hypothesis import given
from hypothesis import strategies as st

from rollouts.checks import (
    add_errors,
    as_bytes,
    first_value,
    flag,
    one_of,
    option_array,
    option_columns,
    options_dict,
    seconds,
    seed_list,
    seed_value,
    to_autoreset_mode,
    whole_number,
)
from rollouts.errors import DTypeError, RolloutsError, SpecError


def test_no_failures_add_no_keys() -> None:
    info: dict[str, Any] = {"a": 1}
    add_errors(info, np.arange(3), [])
    assert info == {"a": 1}


def test_failures_stand_in_the_rows_of_their_environments() -> None:
    info: dict[str, Any] = {}
    add_errors(info, np.array([7, 5, 6], np.int32), [(6, "six"), (7, "seven")])
    assert info["env_error"].tolist() == ["seven", None, "six"]
    assert info["_env_error"].tolist() == [True, False, True]


def test_a_failure_of_an_environment_that_is_not_in_the_batch_marks_no_row() -> None:
    info: dict[str, Any] = {}
    add_errors(info, np.array([1, 2]), [(9, "nine")])
    assert info["env_error"].tolist() == [None, None]
    assert info["_env_error"].tolist() == [False, False]


def test_saved_states_of_any_kind_of_bytes_are_copied() -> None:
    changing, view = bytearray(b"abc"), memoryview(b"xyz")[1:]
    fixed = b"fixed"
    states = as_bytes([fixed, changing, view])
    changing[0] = 0
    assert states == [b"fixed", b"abc", b"yz"]
    assert states[0] is fixed  # what cannot change needs no copy


def test_a_subclass_of_bytes_becomes_plain_bytes() -> None:
    class Sly(bytes):
        pass

    (state,) = as_bytes([Sly(b"a")])
    assert type(state) is bytes


def test_arrays_and_their_rows_are_states_too() -> None:
    assert as_bytes(np.array([b"ab", b"cd"])) == [b"ab", b"cd"]  # type: ignore[arg-type]
    assert as_bytes([np.arange(2, dtype=np.uint8)]) == [b"\x00\x01"]  # type: ignore[list-item]
    assert as_bytes([]) == []


@pytest.mark.parametrize("state", [b"abc", bytearray(b"abc"), memoryview(b"abc")])
def test_a_single_state_is_no_sequence_of_states(state: Any) -> None:
    with pytest.raises(DTypeError, match="state is a single state, expected a sequence of one per"):
        as_bytes(state)


@pytest.mark.parametrize("states", [None, 3, np.array(b"ab")])
def test_what_is_no_sequence_of_states_is_refused(states: Any) -> None:
    with pytest.raises(DTypeError, match="state must be a sequence of one saved state per"):
        as_bytes(states)


@pytest.mark.parametrize("state", ["text", None, 3, np.array(["2020"], "M8[D]")])
def test_the_place_of_a_wrong_state_is_named(state: Any) -> None:
    with pytest.raises(DTypeError, match=r"state 1 is of type \w+, expected bytes of get_state"):
        as_bytes([b"a", state])


def test_options_are_single_values_or_lists() -> None:
    columns = option_columns(
        {
            "a": 1.5,
            "b": [1, 2, 3],
            "c": ("x", "y", "z"),
            "d": np.array([True, False, True]),
            "e": np.float32(0.5),
            "f": np.array(4),
            "g": "word",
        },
        3,
    )
    assert columns == {
        "a": 1.5,
        "b": [1, 2, 3],
        "c": ["x", "y", "z"],
        "d": [True, False, True],
        "e": 0.5,
        "f": 4,
        "g": "word",
    }
    # Python's own types: the core knows no others
    assert type(columns["e"]) is float and type(columns["f"]) is int
    assert all(type(value) is bool for value in columns["d"])  # type: ignore[union-attr]


def test_numpy_numbers_inside_a_list_become_pythons() -> None:
    (column,) = option_columns({"a": [np.int64(1), np.bool_(True)]}, 2).values()
    assert [type(value) for value in column] == [int, bool]  # type: ignore[union-attr]


def test_a_list_of_one_is_a_single_value() -> None:
    assert option_columns({"a": [5], "b": np.array([6])}, 1) == {"a": 5, "b": 6}


@pytest.mark.parametrize("value", [[], [1], [1, 2, 3], np.zeros(3), ()])
def test_another_number_of_values_is_refused(value: Any) -> None:
    expected = "expected a single value or one for each of the 2 environments"
    with pytest.raises(SpecError, match=f"option 'a' has {len(value)} values, {expected}"):
        option_columns({"a": value}, 2)


def test_an_array_of_two_axes_is_no_option() -> None:
    with pytest.raises(SpecError, match=r"option 'a' has shape \(2, 1\), expected a single value"):
        option_columns({"a": np.zeros((2, 1))}, 2)


@pytest.mark.parametrize(
    ("column", "expected"),
    [([1, 1, 1], 1), (["x"], "x"), ([None, None], None), ([True, 1], True)],
)
def test_a_value_that_all_share_stands_for_the_array(column: list[Any], expected: Any) -> None:
    assert option_array(column) == expected


def test_values_that_differ_make_an_array_of_their_type() -> None:
    floats = option_array([1.5, 2.5])
    assert isinstance(floats, np.ndarray) and floats.dtype == np.float64
    words = option_array(["a", "bc"])
    assert isinstance(words, np.ndarray) and words.tolist() == ["a", "bc"]
    some = option_array([1.5, None])
    assert isinstance(some, np.ndarray) and some.dtype == object and some.tolist() == [1.5, None]


@pytest.mark.parametrize(
    ("value", "expected"),
    [(2.5, 2.5), ([1, 2], 1), ((3,), 3), (np.array([4, 5]), 4), (np.array(6), 6), ("ab", "ab")],
)
def test_the_first_environment_s_value_stands_for_the_option(value: Any, expected: Any) -> None:
    assert first_value("a", value) == expected


@pytest.mark.parametrize("value", [[], (), np.empty(0), np.zeros((1, 1))])
def test_an_option_without_a_first_value_is_refused(value: Any) -> None:
    with pytest.raises(SpecError, match="option 'a'"):
        first_value("a", value)


@given(st.integers(-5, 5), st.integers(-3, 3), st.integers(-3, 3))
def test_ints_are_taken_from_low_to_high_alone(value: int, one: int, other: int) -> None:
    low, high = sorted((one, other))
    if low <= value <= high:
        assert whole_number("n", value, low, high) == value
    else:
        with pytest.raises(SpecError) as caught:
            whole_number("n", value, low, high)
        assert str(caught.value) == f"n is {value}, expected a whole number from {low} to {high}"


@pytest.mark.parametrize("value", [np.int8(3), np.array(3), np.uint64(3)])
def test_whatever_is_an_index_is_an_int(value: Any) -> None:
    found = whole_number("n", value, 0, 9)
    assert found == 3 and type(found) is int


@pytest.mark.parametrize(
    "value", [3.0, np.float32(3), True, "3", None, [3], np.array([3.0]), math.nan, 2j]
)
def test_what_is_no_int_is_refused_and_shown(value: Any) -> None:
    with pytest.raises(SpecError, match=r"n is .*, expected a whole number from 0 to 9"):
        whole_number("n", value, 0, 9)


def test_without_a_greatest_number_the_message_names_the_least() -> None:
    assert whole_number("n", 10**30, 2) == 10**30
    with pytest.raises(SpecError, match="n is 1, expected a whole number of at least 2"):
        whole_number("n", 1, 2)


def test_a_choice_is_its_place_among_the_choices() -> None:
    assert [one_of("c", word, ("a", "b")) for word in "ba"] == [1, 0]
    for wrong in ("c", "", "A", None, 0, ["a"]):
        with pytest.raises(SpecError, match=r"c must be one of \['a', 'b'\], got"):
            one_of("c", wrong, ("a", "b"))


def test_seeds_have_64_bits_and_no_sign() -> None:
    assert seed_value(0) == 0 and seed_value(2**64 - 1) == 2**64 - 1
    assert seed_value(np.uint64(2**64 - 1)) == 2**64 - 1
    for wrong in (-1, 2**64):
        with pytest.raises(SpecError, match="expected a whole number from 0 to 18446744"):
            seed_value(wrong)


def test_seeds_of_a_reset() -> None:
    assert seed_list(None, 3) == []
    assert seed_list(5, 3) == [5, 5, 5]
    assert seed_list(np.int64(5), 2) == [5, 5]
    assert seed_list(np.array(5), 2) == [5, 5]
    assert seed_list([1, None, 3], 3) == [1, None, 3]
    assert seed_list(np.array([1, 2]), 2) == [1, 2]  # type: ignore[arg-type]
    assert seed_list((), 0) == []


@pytest.mark.parametrize("seed", [[1, 2], range(4), np.arange(2)])
def test_another_number_of_seeds_is_refused(seed: Any) -> None:
    with pytest.raises(SpecError, match=rf"seed has {len(seed)} entries, expected an int or one"):
        seed_list(seed, 3)


@pytest.mark.parametrize("seed", [1.5, {1, 2, 3}, {"a": 1}])
def test_what_is_no_seed_is_refused(seed: Any) -> None:
    with pytest.raises(
        SpecError, match=r"^seed is .*expected an int or one entry for each of the 3"
    ):
        seed_list(seed, 3)


@pytest.mark.parametrize("seed", [[1, -1, 2], [1, 2.5, 3], ["1", "2", "3"], "123"])
def test_a_wrong_seed_among_others_is_refused(seed: Any) -> None:
    with pytest.raises(SpecError, match=r"^seed is .*, expected a whole number"):
        seed_list(seed, 3)


def test_options_of_a_reset_are_a_dict_or_nothing() -> None:
    given = {"gravity": 1.0}
    assert options_dict(given) is given and options_dict(None) == {}
    for wrong in ([("gravity", 1.0)], "gravity", 3):
        with pytest.raises(DTypeError, match="reset's options must be a dict such as"):
            options_dict(wrong)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(1, 1.0), (0.5, 0.5), (np.float32(0.5), 0.5), (np.int8(2), 2.0), (True, 1.0), (None, None)],
)
def test_seconds_are_numbers_or_nothing(value: Any, expected: Any) -> None:
    assert seconds("timeout_s", value) == expected


def test_seconds_beyond_all_floats_are_for_ever() -> None:
    assert seconds("timeout_s", 10**400) == math.inf
    assert seconds("timeout_s", -(10**400)) == -math.inf


@pytest.mark.parametrize("value", ["1", [1], 1j, np.array([1.0])])
def test_what_is_no_number_of_seconds_is_refused(value: Any) -> None:
    with pytest.raises(DTypeError, match="timeout_s must be a number of seconds, or None to wait"):
        seconds("timeout_s", value)


def test_flags_are_booleans_and_nothing_that_counts_as_true() -> None:
    assert flag("f", True) is True and flag("f", np.bool_(False)) is False
    for wrong in (1, 0, None, "yes", np.array(True)):
        with pytest.raises(DTypeError, match="f must be True or False, got"):
            flag("f", wrong)


@pytest.mark.parametrize("member", list(AutoresetMode))
def test_autoreset_modes_by_member_name_and_value(member: AutoresetMode) -> None:
    for given_mode in (member, member.value, member.name.lower(), member.name):
        assert to_autoreset_mode(given_mode) is member


@pytest.mark.parametrize("mode", ["", "same step", "nextstep", None, 1])
def test_another_autoreset_mode_is_refused_with_all_that_there_are(mode: Any) -> None:
    with pytest.raises(SpecError) as caught:
        to_autoreset_mode(mode)
    names = "['disabled', 'next_step', 'same_step']"
    assert str(caught.value) == f"autoreset_mode must be one of {names}, got {mode!r}"


def test_errors_are_ours_and_the_builtin() -> None:
    assert issubclass(SpecError, RolloutsError) and issubclass(SpecError, ValueError)
    assert issubclass(DTypeError, RolloutsError) and issubclass(DTypeError, TypeError)
