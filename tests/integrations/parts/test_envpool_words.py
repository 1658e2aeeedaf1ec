# SPDX-License-Identifier: Apache-2.0
"""EnvPool's words read without a pool: ids, defaults, threads, seeds, spaces of arrays."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from rollouts.integrations.envpool.envpool_options import (
    NO_LIMIT,
    first_seeds,
    num_threads,
    pinned_cpus,
    read_task,
)
from rollouts.integrations.envpool.python.env_spec import (
    ArraySpec,
    envpool_space,
    in_package,
    make_spec,
)

from rollouts.errors import SpecError


def config(**changes: Any) -> dict[str, Any]:
    return {
        "num_envs": 8,
        "batch_size": 8,
        "num_threads": 0,
        "thread_affinity_offset": -1,
        "seed": 42,
        "env_seed": (),
    } | changes


@pytest.fixture
def four_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {7, 1, 5, 3})


def test_what_is_not_given_is_envpool_s_default() -> None:
    task = read_task("CartPole-v1", {})
    assert task.id == task.task_id == "CartPole-v1" and not task.is_atari
    assert task.config["num_envs"] == task.config["batch_size"] == 1
    assert task.config["seed"] == 42 and task.config["max_episode_steps"] == 500
    assert task.config["reward_threshold"] == 475
    assert task.frames["render_mode"] is None and task.frames["render_camera_id"] == -1
    assert "render_mode" not in task.config
    # the environment's own options under their own names
    assert task.env_options["gravity"] == task.config["gravity"]


def test_what_is_given_stands_in_the_order_of_the_defaults() -> None:
    task = read_task("CartPole-v1", {"gravity": 3.0, "num_envs": 4, "render_width": 64})
    assert task.env_options["gravity"] == 3.0 and task.frames["render_width"] == 64
    assert list(task.config)[:3] == ["num_envs", "batch_size", "num_threads"]
    assert task.config["batch_size"] == 4


@pytest.mark.parametrize(
    ("task_id", "env_id"),
    [("cartpole-v1", "CartPole-v1"), ("CliffWalking-v0", "CliffWalking-v1")],
)
def test_ids_are_found_in_any_case_and_by_their_old_names(task_id: str, env_id: str) -> None:
    task = read_task(task_id, {})
    assert (task.task_id, task.id) == (task_id, env_id)


def test_an_episode_without_a_limit_has_envpool_s() -> None:
    assert read_task("Blackjack-v1", {}).config["max_episode_steps"] == NO_LIMIT == 2**31 - 1


@pytest.mark.parametrize(
    ("task_id", "given", "message"),
    [
        ("CartPole-v7", {}, "unknown task_id 'CartPole-v7'. Did you mean CartPole-v1"),
        ("CartPole-v1", {"gravty": 1}, "CartPole-v1 has no options gravty; it takes"),
        ("CartPole-v1", {"b": 1, "a": 2}, "has no options a, b; it takes"),
        ("CartPole-v1", {"from_pixels": True}, "from_pixels is True, expected False"),
        ("CartPole-v1", {"batch_size": 2}, r"batch_size is 2, expected 0 \(num_envs\) to num_envs"),
        ("CartPole-v1", {"batch_size": -1}, "batch_size is -1, expected 0"),
        ("CartPole-v1", {"max_num_players": 2}, "max_num_players is 2, expected 1"),
        ("CartPole-v1", {"env_seed": [1, 2]}, "got 2 seeds for num_envs=1: give one number"),
        ("CartPole-v1", {"seed": np.arange(3)}, "got 3 seeds for num_envs=1"),
    ],
)
def test_what_envpool_would_not_take_is_refused(
    task_id: str, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(SpecError, match=message):
        read_task(task_id, given)


def test_seeds_are_one_of_the_pool_or_one_each() -> None:
    assert first_seeds(config()) == (42, None)
    assert first_seeds(config(seed=np.int64(3))) == (3, None)
    assert first_seeds(config(seed=np.array(3))) == (3, None)
    assert first_seeds(config(seed=[1, 2])) == (None, [1, 2])
    # those of environments come before that of the pool
    assert first_seeds(config(env_seed=(4, 5))) == (None, [4, 5])
    assert first_seeds(config(env_seed=np.array([4, 5]))) == (None, [4, 5])


def test_threads_are_those_of_the_cpus_or_as_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rollouts.integrations.envpool.envpool_options.usable_cpus", lambda: 4)
    assert num_threads(config()) == 4
    assert num_threads(config(num_envs=2)) == 2
    assert num_threads(config(num_threads=9)) == 9


def test_pinned_threads_are_no_more_than_cpus(four_cpus: None) -> None:
    asked = {"num_threads": 9, "thread_affinity_offset": 0}
    # the caller of a synchronous pool is one of them and is not pinned
    assert num_threads(config(**asked)) == 5
    assert num_threads(config(batch_size=4, **asked)) == 4


@pytest.mark.parametrize(
    ("changes", "cpus"),
    [
        ({"thread_affinity_offset": -1}, False),
        ({"thread_affinity_offset": 0, "num_threads": 3}, [1, 3]),
        ({"thread_affinity_offset": 3, "num_threads": 3}, [7, 1]),
        ({"thread_affinity_offset": 6, "num_threads": 3, "batch_size": 2}, [5, 7, 1]),
        ({"thread_affinity_offset": 0, "num_threads": 9, "batch_size": 2}, [1, 3, 5, 7]),
        ({"thread_affinity_offset": 0, "num_threads": 1}, []),
    ],
)
def test_workers_go_round_the_cpus_from_the_offset(
    four_cpus: None, changes: dict[str, Any], cpus: Any
) -> None:
    assert pinned_cpus(config(**changes)) == cpus


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        (spaces.Discrete(3), spaces.Discrete(3)),
        (spaces.Box(0, 255, (4, 84, 84), np.uint8), spaces.Box(0, 255, (4, 84, 84), np.uint8)),
        (spaces.Box(0, 255, (4, 8, 6, 3), np.uint8), spaces.Box(0, 255, (12, 8, 6), np.uint8)),
        (spaces.MultiDiscrete([32, 11, 2]), spaces.Box(0, 31, (3,), np.int32)),
    ],
)
def test_observations_have_envpool_s_spaces(space: Any, expected: Any) -> None:
    assert envpool_space(space) == expected


def test_spaces_of_another_package_have_the_same_numbers() -> None:
    calls: list[tuple[str, Any]] = []
    package = SimpleNamespace(
        Discrete=lambda n: calls.append(("Discrete", n)),
        MultiDiscrete=lambda nvec: calls.append(("MultiDiscrete", nvec.tolist())),
        Box=lambda low, high, shape, dtype: calls.append(("Box", (low.max(), shape, dtype))),
    )
    in_package(spaces.Discrete(3), package)
    in_package(spaces.MultiDiscrete([2, 3]), package)
    in_package(spaces.Box(-1, 1, (2,), np.float32), package)
    assert calls == [("Discrete", 3), ("MultiDiscrete", [2, 3]), ("Box", (-1.0, (2,), np.float32))]
    assert type(calls[0][1]) is int


def test_arrays_of_a_step_are_described_with_one_bound_where_all_are_equal() -> None:
    spec = make_spec("CartPole-v1", num_envs=2)
    states = spec.state_array_spec
    obs = states["obs"]
    # bounds that differ are arrays
    assert obs.shape == [4] and isinstance(obs.minimum, np.ndarray)
    assert states["reward"].shape == [-1] and states["reward"].maximum == np.finfo(np.float32).max
    assert states["done"] == ArraySpec([], np.dtype(bool), False, True)
    assert "info:ram" not in states
    action = spec.action_array_spec["action"]
    assert action == ArraySpec([-1], np.dtype(np.int32), 0, 1)


def test_the_config_is_a_named_tuple_in_envpool_s_words() -> None:
    spec = make_spec("CartPole-v1", num_envs=3, gravity=2.0)
    assert spec.config.num_envs == 3 and spec.config.gravity == 2.0
    assert spec.gen_config._fields == tuple(spec.task.config)
    assert repr(spec).startswith("EnvSpec('CartPole-v1', Config(num_envs=3, batch_size=3, ")
    assert spec.reward_threshold == 475


def test_a_box_of_one_bound_has_numbers() -> None:
    action = make_spec("Pendulum-v1").action_array_spec["action"]
    assert action.shape == [-1, 1] and (action.minimum, action.maximum) == (-2.0, 2.0)


def test_the_package_gym_is_looked_for_only_by_its_face(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    made: list[int] = []
    old = SimpleNamespace(spaces=SimpleNamespace(Discrete=made.append))
    monkeypatch.setitem(sys.modules, "gym", old)
    spec = make_spec("CartPole-v1")
    assert spec.action_space == spaces.Discrete(2) and made == []
    spec.for_gym = True
    assert spec.action_space is None and made == [2]
    # a stand-in for gym without spaces is none
    monkeypatch.setitem(sys.modules, "gym", SimpleNamespace())
    assert spec.action_space == spaces.Discrete(2)
