# SPDX-License-Identifier: Apache-2.0
"""final_obs and final_info, made natively, against their slow and obvious form."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import rollouts
from rollouts import SpecError, _native

Array = NDArray[Any]
NUM_ENVS = 6


def add_final_slowly(
    info: dict[str, Any], final_obs: Array, terminated: Array, truncated: Array
) -> None:
    """Gymnasium's layout of what same-step autoreset keeps; rows without an end are empty."""
    ended = terminated | truncated
    if not ended.any():
        return
    rows = np.full(len(ended), None, dtype=object)
    for row in np.flatnonzero(ended):
        rows[row] = final_obs[row]
    final_info: dict[str, Any] = {}
    for name, values in info.items():
        rows_ended = ended.reshape(-1, *[1] * (values.ndim - 1))
        final_info[name] = np.where(rows_ended, values, np.zeros((), values.dtype))
        final_info[f"_{name}"] = ended
    info["final_obs"], info["_final_obs"] = rows, ended
    info["final_info"], info["_final_info"] = final_info, ended


def assert_equal_infos(ours: dict[str, Any], slow: dict[str, Any]) -> None:
    assert list(ours) == list(slow)
    for name, expected in slow.items():
        if isinstance(expected, dict):
            assert_equal_infos(ours[name], expected)
            continue
        assert ours[name].dtype == expected.dtype, name
        assert ours[name].shape == expected.shape, name
        for got, want in zip(ours[name], expected, strict=True):
            assert type(got) is type(want), name
            np.testing.assert_array_equal(got, want, err_msg=name)


def columns(rng: np.random.Generator) -> dict[str, Array]:
    told = rng.random((NUM_ENVS, 5))
    return {
        "env_id": rng.integers(100, size=NUM_ENVS, dtype=np.int32),
        "episode_return": rng.random(NUM_ENVS),
        "mask": rng.integers(2, size=(NUM_ENVS, 3), dtype=np.int8),
        "strided": told[:, 3],
        "strided_rows": told[:, 1:4],
        "not_dense": told[:, ::2],
        "backwards": told[::-1, 0],
        "text": np.array([f"{i}" for i in range(NUM_ENVS)], dtype=object),
    }


@pytest.mark.parametrize("shape", [(), (4,), (3, 2, 5), (40, 40)])
def test_only_the_rows_that_ended_are_there(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    final_rows = _native.FinalRows()
    for _ in range(30):
        final_obs = rng.integers(255, size=(NUM_ENVS, *shape), dtype=np.uint8)
        terminated, truncated = rng.random((2, NUM_ENVS)) < 0.25
        ours = columns(rng)
        slow = dict(ours)
        given = list(ours)
        add_final_slowly(slow, final_obs, terminated, truncated)
        ended = final_rows.add(ours, final_obs, terminated, truncated)
        assert ended == bool((terminated | truncated).any())
        assert ended or list(ours) == given
        assert_equal_infos(ours, slow)


def test_rows_that_are_kept_stay_as_they_were() -> None:
    with rollouts.make_vec("CartPole-v1", 8, seed=0, autoreset_mode="same_step") as env:
        env.reset()
        kept: list[tuple[Array, Array]] = []
        for step in range(300):
            *_, info = env.step(np.full(8, step % 2))
            for row in info.get("final_obs", ()):
                if row is not None:
                    kept.append((row, row.copy()))
        assert len(kept) > 10
        for row, as_it_was in kept:
            assert row.flags.writeable
            np.testing.assert_array_equal(row, as_it_was)


def test_what_is_kept_of_a_step_is_not_written_by_later_ones() -> None:
    rng = np.random.default_rng(1)
    final_rows = _native.FinalRows()
    kept: list[tuple[dict[str, Any], dict[str, Any]]] = []
    for step in range(60):
        final_obs = rng.random((NUM_ENVS, 4 if step < 30 else 200))
        terminated, truncated = rng.random((2, NUM_ENVS)) < 0.3
        info = columns(rng)
        slow = dict(info)
        final_rows.add(info, final_obs, terminated, truncated)
        add_final_slowly(slow, final_obs, terminated, truncated)
        # most are dropped at once, as a training loop does, and others changed before that
        if step % 5 == 0:
            kept.append((info, slow))
        elif "final_obs" in info:
            info["final_obs"][:] = "mine"
            info["final_info"]["env_id"][:] = -1
            info["final_info"]["env_id"].flags.writeable = step % 2 == 0
            if step % 3 == 0:
                info["final_info"]["mine"] = info["final_info"].pop("mask")
            elif step % 3 == 1:
                info["final_info"]["mask"] = info["final_info"]["_mask"]
    for info, slow in kept:
        assert_equal_infos(info, slow)


def test_rows_that_were_dropped_hold_no_batch() -> None:
    final_rows = _native.FinalRows()
    final_obs = np.zeros((NUM_ENVS, 200))  # rows of it are shown, not copied
    ended, none = np.ones(NUM_ENVS, np.bool_), np.zeros(NUM_ENVS, np.bool_)
    info: dict[str, Any] = {}
    final_rows.add(info, final_obs, ended, none)
    holders = sys.getrefcount(final_obs)
    info.clear()
    final_rows.add({}, final_obs, none, none)
    assert sys.getrefcount(final_obs) == holders - NUM_ENVS


def test_a_changed_final_info_is_not_written_again() -> None:
    final_rows = _native.FinalRows()
    ended, final_obs = np.ones(NUM_ENVS, np.bool_), np.zeros((NUM_ENVS, 4))

    def info_of(*names: str) -> dict[str, Any]:
        info: dict[str, Any] = {name: np.arange(NUM_ENVS) for name in names}
        final_rows.add(info, final_obs, ended, ~ended)
        return info

    # as many as are kept, each with a key that the next info has too
    for _ in range(3):
        final_info = info_of("x")["final_info"]
        final_info["y"], final_info["_y"] = final_info["x"], final_info["_x"]
        del final_info
    for _ in range(3):
        final_info = info_of("x", "y")["final_info"]
        np.testing.assert_equal(final_info["y"], np.arange(NUM_ENVS))
        assert final_info["y"] is not final_info["x"]


def test_wrong_rows_are_refused() -> None:
    ended = np.ones(3, np.bool_)
    for info, final_obs, truncated in (
        ({}, np.zeros((2, 4)), ended),
        ({}, np.zeros((3, 4)), ended[:2]),
        ({"short": np.zeros(2)}, np.zeros((3, 4)), ended),
        ({"scalar": np.zeros(())}, np.zeros((3, 4)), ended),
    ):
        with pytest.raises(SpecError, match="one row for each of the 3"):
            _native.FinalRows().add(info, final_obs, ended, truncated)
