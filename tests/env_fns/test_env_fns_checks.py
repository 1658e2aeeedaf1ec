# SPDX-License-Identifier: Apache-2.0
"""Checks of what is passed to send and recv of hosted environments, without any process."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from rollouts.envs.hosted.call_checks import checked_out, rows_of, rows_wanted
from rollouts.envs.hosted.leaves import leaves_of
from rollouts.errors import DTypeError, SpecError

PLAIN = leaves_of(spaces.Box(0, 1, (2,), np.float32))
NESTED = leaves_of(spaces.Dict({"a": spaces.Discrete(2)}))
TEXT = leaves_of(spaces.Text(3))


@given(st.lists(st.integers(5, 8), max_size=6), st.sampled_from([np.uint8, np.int32, np.int64]))
def test_rows_are_ids_less_the_offset(ids: list[int], dtype: Any) -> None:
    rows = rows_of(np.array(ids, dtype), 5, 4)
    assert rows.tolist() == [env_id - 5 for env_id in ids]
    assert rows.dtype == np.intp


def test_unsigned_ids_below_the_offset_do_not_wrap_around() -> None:
    with pytest.raises(SpecError, match=r"env_id\[1\] is 2, expected 5 to 8"):
        rows_of(np.array([5, 2], np.uint8), 5, 4)


@pytest.mark.parametrize("ids", [[], np.empty(0, np.float64), ()])
def test_no_ids_are_no_rows_whatever_their_dtype(ids: Any) -> None:
    assert rows_of(ids, 5, 4).shape == (0,)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (3, r"one-dimensional integers, got shape \(\) and int64"),
        ([[0]], r"got shape \(1, 1\) and int64"),
        ([0.0], r"got shape \(1,\) and float64"),
        ([True], "and bool"),
        (["0"], "and <U1"),
    ],
)
def test_ids_that_are_no_list_of_integers_are_refused(ids: Any, message: str) -> None:
    with pytest.raises(DTypeError, match=message):
        rows_of(ids, 0, 4)


@pytest.mark.parametrize(
    ("ids", "place", "value"), [([8, 4, 9], 1, 4), ([8, 9, -1], 1, 9), ([-1], 0, -1)]
)
def test_the_first_id_that_is_not_ours_is_named(ids: list[int], place: int, value: int) -> None:
    with pytest.raises(SpecError) as caught:
        rows_of(ids, 5, 4)
    assert str(caught.value) == f"env_id[{place}] is {value}, expected 5 to 8"


def test_a_recv_without_bounds_wants_a_batch() -> None:
    assert rows_wanted(None, None, 4, 4) == (4, 4)
    assert rows_wanted(None, None, 3, 8) == (3, 3)


@pytest.mark.parametrize(
    ("least", "most", "expected"),
    [
        (1, None, (1, 3)),
        (3, None, (3, 3)),
        (5, None, (5, 5)),
        (None, 2, (2, 2)),
        (None, 3, (3, 3)),
        (None, 7, (3, 7)),
        (2, 6, (2, 6)),
        (8, 8, (8, 8)),
    ],
)
def test_one_bound_implies_the_other(
    least: int | None, most: int | None, expected: tuple[int, int]
) -> None:
    assert rows_wanted(least, most, 3, 8) == expected


@pytest.mark.parametrize(
    ("least", "most", "name"),
    [
        (0, None, "min_envs"),
        (9, None, "min_envs"),
        (None, 0, "max_envs"),
        (None, 9, "max_envs"),
        (4, 3, "max_envs"),
        (2, 9, "max_envs"),
    ],
)
def test_a_bound_out_of_range_is_named(least: int | None, most: int | None, name: str) -> None:
    with pytest.raises(SpecError, match=f"^{name} "):
        rows_wanted(least, most, 3, 8)


@pytest.mark.parametrize(("least", "most"), [(1, None), (None, 4), (4, 4)])
def test_bounds_need_the_asynchronous_mode(least: int | None, most: int | None) -> None:
    with pytest.raises(SpecError, match="this one has batch_size 4 and num_envs 4"):
        rows_wanted(least, most, 4, 4)


@given(st.integers(1, 9), st.integers(2, 9), st.data())
def test_what_is_wanted_can_always_come(batch_size: int, num_envs: int, data: Any) -> None:
    batch_size = min(batch_size, num_envs - 1)
    bound = st.none() | st.integers(1, num_envs)
    least, most = data.draw(bound), data.draw(bound)
    if least is not None and most is not None and least > most:
        least, most = most, least
    low, high = rows_wanted(least, most, batch_size, num_envs)
    assert 1 <= low <= high <= num_envs
    assert least in (None, low) and most in (None, high)


def out(array: Any, name: str = "reward", leaves: Any = PLAIN, **changes: Any) -> dict[str, Any]:
    settings = {"is_synchronous": True, "keeps_final": True} | changes
    return checked_out({name: array}, leaves, 3, **settings)


def test_no_out_is_an_empty_one_in_any_mode() -> None:
    assert checked_out(None, PLAIN, 3, is_synchronous=False, keeps_final=False) == {}


def test_the_caller_s_arrays_come_back_in_a_dict_of_its_own() -> None:
    given = {"reward": np.zeros(3), "obs": np.zeros((3, 2), np.float32)}
    found = checked_out(given, PLAIN, 3, is_synchronous=True, keeps_final=True)
    assert found == given and found is not given
    assert found["reward"] is given["reward"]


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("reward", np.float64),
        ("terminated", np.bool_),
        ("truncated", np.bool_),
        ("env_id", np.int32),
        ("episode_return", np.float64),
        ("episode_length", np.int32),
    ],
)
def test_each_name_has_its_dtype_alone(name: str, dtype: Any) -> None:
    assert name in out(np.zeros(3, dtype), name)
    other = np.float32 if dtype == np.float64 else np.int64
    with pytest.raises(SpecError) as caught:
        out(np.zeros(3, other), name)
    assert str(caught.value) == (
        f"out[{name!r}] has shape (3,) and dtype {np.dtype(other)}, expected (3,) and "
        f"{np.dtype(dtype)}, C-contiguous, aligned and writable: one row per environment sent"
    )


@pytest.mark.parametrize("name", ["obs", "final_obs"])
def test_observations_have_the_space_s_shape_and_dtype(name: str) -> None:
    assert name in out(np.zeros((3, 2), np.float32), name)
    for wrong in (np.zeros((3, 2)), np.zeros((3, 3), np.float32), np.zeros((2, 2), np.float32)):
        with pytest.raises(SpecError, match=r"expected \(3, 2\) and float32"):
            out(wrong, name)


@pytest.mark.parametrize("leaves", [NESTED, TEXT])
def test_observations_that_are_no_single_array_cannot_be_redirected(leaves: Any) -> None:
    with pytest.raises(SpecError, match=r"out\['obs'\] needs an observation space that is one"):
        out(np.zeros((3, 2), np.float32), "obs", leaves)
    assert out(np.zeros(3), "reward", leaves)


def test_arrays_that_cannot_be_written_row_by_row_are_refused() -> None:
    read_only = np.zeros(3)
    read_only.flags.writeable = False
    for wrong in (read_only, np.zeros(6)[::2], np.asfortranarray(np.zeros((3, 2), np.float32))):
        with pytest.raises(SpecError, match="C-contiguous, aligned and writable"):
            out(wrong, "obs" if wrong.ndim == 2 else "reward")
    bytes_ = np.zeros(25, np.uint8)[1:]
    with pytest.raises(SpecError, match="aligned"):
        out(bytes_.view(np.float64), "reward")


@pytest.mark.parametrize("array", [[0.0] * 3, None, 3.0])
def test_what_is_no_array_is_refused(array: Any) -> None:
    with pytest.raises(DTypeError, match=r"out\['reward'\] must be a NumPy array, got"):
        out(array)


def test_what_is_no_dict_is_refused() -> None:
    with pytest.raises(DTypeError, match=r"out must be a dict of arrays such as .*, got list"):
        checked_out([np.zeros(3)], PLAIN, 3, is_synchronous=True, keeps_final=True)


def test_an_unknown_name_is_told_all_that_there_are() -> None:
    with pytest.raises(SpecError) as caught:
        out(np.zeros(3), "rewards")
    assert "unknown key 'rewards'; expected some of obs, reward, terminated" in str(caught.value)


def test_final_observations_need_the_mode_that_keeps_them() -> None:
    with pytest.raises(SpecError, match="needs autoreset_mode='same_step'"):
        out(np.zeros((3, 2), np.float32), "final_obs", keeps_final=False)


@pytest.mark.parametrize("given", [{}, {"reward": np.zeros(3)}])
def test_out_needs_the_synchronous_mode(given: Any) -> None:
    with pytest.raises(SpecError, match="out needs a synchronous environment"):
        checked_out(given, PLAIN, 3, is_synchronous=False, keeps_final=True)
