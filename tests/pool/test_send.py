# SPDX-License-Identifier: Apache-2.0
"""Arguments that send refuses, by row and value, without sending anything."""

from __future__ import annotations

import numpy as np
import pytest

import rollouts


def zeros(rows: int) -> np.ndarray:
    return np.zeros(rows, dtype=np.int64)


def test_second_send_without_recv_is_refused_and_changes_nothing(sync_env) -> None:
    sync_env.send(zeros(6))
    with pytest.raises(rollouts.ProtocolError, match=r"env_id 10 in row 0 was sent already"):
        sync_env.send(zeros(6))
    assert sync_env.num_in_flight == 6
    assert sync_env.recv()[4]["episode_length"].tolist() == [1] * 6


@pytest.mark.parametrize("env_id", [[9], [16], [-1], [2**40], [10, 99]])
def test_unknown_env_id_is_refused_by_row_and_value(sync_env, env_id: list[int]) -> None:
    with pytest.raises(rollouts.SpecError, match=rf"env_id {env_id[-1]} in row {len(env_id) - 1}"):
        sync_env.send(zeros(len(env_id)), env_id)
    assert sync_env.num_in_flight == 0


def test_env_id_listed_twice_is_refused(sync_env) -> None:
    with pytest.raises(rollouts.ProtocolError, match="env_id 11 in row 2"):
        sync_env.send(zeros(3), [11, 12, 11])
    assert sync_env.num_in_flight == 0
    sync_env.step(zeros(6))


@pytest.mark.parametrize("env_id", [[10.0], [[10]], "10", [True], np.array([10 + 0j])])
def test_env_id_that_is_no_integer_array_is_refused(sync_env, env_id: object) -> None:
    with pytest.raises(rollouts.DTypeError, match="env_id must be"):
        sync_env.send(zeros(1), env_id)


@pytest.mark.parametrize(
    ("actions", "error", "message"),
    [
        (np.zeros(5, np.int64), rollouts.SpecError, r"\(5,\), expected \(6,\)"),
        (np.zeros((6, 1), np.int64), rollouts.SpecError, r"\(6, 1\), expected \(6,\)"),
        (np.zeros(6), rollouts.DTypeError, "float64"),
        (np.zeros(6, np.bool_), rollouts.DTypeError, "bool"),
        (np.array(["0"] * 6), rollouts.DTypeError, "<U1"),
        (0, rollouts.DTypeError, "scalar"),
        (object(), rollouts.DTypeError, "actions"),
        (None, rollouts.DTypeError, "actions"),
        ([[0], [0, 1]], rollouts.DTypeError, "actions"),
        ([0, 0, 2, 0, 0, 0], rollouts.SpecError, "action 2 in row 2"),
        ([0, 0, 0, -1, 0, 0], rollouts.SpecError, "action -1 in row 3"),
        (np.array([0, 2**32, 0, 0, 0, 0]), rollouts.SpecError, "action 4294967296 in row 1"),
        (np.array([2**64 - 1] * 6, np.uint64), rollouts.SpecError, "row 0"),
    ],
)
def test_wrong_discrete_actions_are_refused(
    sync_env, actions: object, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        sync_env.send(actions)
    assert sync_env.num_in_flight == 0
    assert sync_env.step(zeros(6))[4]["episode_length"].tolist() == [1] * 6


@pytest.mark.parametrize(
    ("actions", "error", "message"),
    [
        (np.zeros(3, np.float32), rollouts.SpecError, r"\(3,\), expected \(3, 1\)"),
        (np.zeros((3, 2), np.float32), rollouts.SpecError, r"expected \(3, 1\)"),
        (np.array([[0], [np.nan], [0]]), rollouts.SpecError, "row 1, element 0 is -?nan"),
        (np.array([[0], [0], [-np.inf]]), rollouts.SpecError, "row 2, element 0 is -inf"),
        (np.zeros((3, 1), complex), rollouts.DTypeError, "complex128"),
        (1.0, rollouts.DTypeError, "scalar"),
    ],
)
def test_wrong_box_actions_are_refused(
    actions: object, error: type[Exception], message: str
) -> None:
    with rollouts.make_vec("Pendulum-v1", 3, seed=1) as env:
        env.reset()
        with pytest.raises(error, match=message):
            env.send(actions)
        assert env.num_in_flight == 0
        env.step(np.zeros((3, 1), np.float32))


@pytest.mark.parametrize("bad_row", [0, 8191, 19_999, None])
@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1"])
def test_threads_that_check_a_large_pool_s_actions_find_what_one_finds(
    env_id: str, bad_row: int | None
) -> None:
    num_envs = 20_000
    with (
        rollouts.make_vec(env_id, num_envs, num_threads=3, seed=1) as env,
        rollouts.make_vec(env_id, num_envs, num_threads=1, seed=1) as alone,
    ):
        env.reset()
        alone.reset()
        actions = np.random.default_rng(1).integers(0, 2, num_envs)
        if env_id == "Pendulum-v1":
            actions = actions.astype(np.float32)[:, None]
        if bad_row is not None:
            bad = actions.copy()
            bad[bad_row] = 2 if env_id == "CartPole-v1" else np.inf
            with pytest.raises(rollouts.SpecError, match=rf"action .*in row {bad_row}\b"):
                env.send(bad)
            assert env.num_in_flight == 0
        for _ in range(3):
            np.testing.assert_array_equal(env.step(actions)[0], alone.step(actions)[0])


@pytest.mark.parametrize("dtype", ["i1", "u1", "<i4", ">i4", "<i8", ">i8", "u8", "i2"])
@pytest.mark.parametrize("layout", ["plain", "strided", "unaligned", "list"])
def test_actions_of_every_integer_dtype_and_layout_mean_the_same(dtype: str, layout: str) -> None:
    actions = np.array([0, 1, 1, 0, 1, 0], dtype=dtype)
    if layout == "strided":
        actions = np.repeat(actions, 2)[::2]
    elif layout == "unaligned":
        raw = np.frombuffer(b"\0" + actions.tobytes(), dtype=np.uint8)
        actions = raw[1:].view(dtype)
    elif layout == "list":
        actions = actions.tolist()
    with rollouts.make_vec("CartPole-v1", 6) as env:
        env.reset(seed=1)
        got = env.step(actions)[0].copy()
        env.reset(seed=1)
        np.testing.assert_array_equal(got, env.step(np.array([0, 1, 1, 0, 1, 0]))[0])


def test_send_before_reset_is_refused() -> None:
    with rollouts.make_vec("CartPole-v1", 2) as env:
        with pytest.raises(rollouts.ProtocolError, match="never reset"):
            env.send(zeros(2))
        with pytest.raises(rollouts.ProtocolError):
            env.recv(timeout_s=0)


def test_actions_whose_conversion_uses_the_pool_cannot_send_twice() -> None:
    class Reentrant:
        def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
            env.send(zeros(4))
            return zeros(4)

    with rollouts.make_vec("CartPole-v1", 4, seed=1) as env:
        env.reset()
        with pytest.raises(rollouts.ProtocolError, match="sent already"):
            env.send(Reentrant())
        assert env.num_in_flight == 4
        assert env.recv()[4]["episode_length"].tolist() == [1] * 4


@pytest.mark.parametrize(
    "arguments",
    [
        {"num_envs": 0},
        {"num_envs": 2.5},
        {"num_envs": 2**25},
        {"batch_size": 0},
        {"batch_size": 5},
        {"num_threads": 0},
        {"num_threads": 5000},
        {"seed": -1},
        {"seed": 2**64},
        {"seed": 1.5},
        {"env_id_offset": -1},
        {"env_id_offset": 2**31},
        {"autoreset_mode": "sometimes"},
        {"autoreset_mode": 1},
        {"max_episode_steps": -1},
        {"max_episode_steps": 2**31},
        {"max_episode_steps": 1.5},
        {"gravity": "strong"},
        {"gravity": 2**70},
        {"sutton_barto_reward": 3},
        {"gravity": None},
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, object]) -> None:
    with pytest.raises(rollouts.SpecError):
        rollouts.make_vec("CartPole-v1", **{"num_envs": 4, **arguments})


@pytest.mark.parametrize("env_id", ["CartPole-v9", "", "ALE/NoSuchGame-v5", 3, None])
def test_unknown_ids_are_refused(env_id: object) -> None:
    with pytest.raises(rollouts.SpecError):
        rollouts.make_vec(env_id, 1)
