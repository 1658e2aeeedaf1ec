# SPDX-License-Identifier: Apache-2.0
"""Wrong types for every argument of a VectorEnv: ours is raised, and the environment goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rollouts
from rollouts import DTypeError, RolloutsError, SpecError

VALUES: list[Any] = [
    None, 1.5, -1, 7, 2**70, float("nan"), float("inf"), True, 1j, "a", b"a", bytearray(b"x"),
    [], [1.5], ["a"], [None], [[0]], [0, 1], (0,), {}, {"a": 1}, {1: 2}, set(), {0}, object(),
    object, len, range(2), slice(1), ..., np.array(1), np.array(1.5), np.array(["a", "b"]),
    np.array([None, 1], object), np.zeros((2, 2)), np.zeros(2, np.int64), np.zeros(2, bool),
    np.ones(2, bool), np.zeros(2, "M8[s]"), np.zeros(2, "i4,f8"), np.float32(1), np.int8(0),
    [b"a", b"b"], [1, 2], {"reset_mask": [True, False]}, {"reset_mask": 1}, {"model": 1},
    {"model": {"a": 1}}, {"model": {1: 1}}, {"model": {"body_mass": "a"}},
    {"xml_file": {"a": 1}}, {"gravity": {"a": 1}}, {"gravity": [1, {}]}, {"obs": 1},
    {"obs": np.zeros(2)}, {1: np.zeros(2)},
]  # fmt: skip

MAKES: list[tuple[str, dict[str, Any]]] = [
    ("CartPole-v1", {}),
    ("CartPole-v1", {"autoreset_mode": "same_step"}),
    ("CartPole-v1", {"batch_size": 1}),
    ("Hopper-v5", {}),
]


def attempt(call: Callable[[], object], where: str) -> None:
    """Right values may pass; wrong ones raise ours, with a message."""
    try:
        call()
    except (RolloutsError, TimeoutError) as error:
        assert str(error), where
    except Exception as error:
        raise AssertionError(f"{where}: {type(error).__name__}: {error}") from error


def calls(env: rollouts.VectorEnv, value: Any) -> dict[str, Callable[[], object]]:
    good = env.action_space.sample()
    states = env.get_state()
    return {
        "reset(seed)": lambda: env.reset(seed=value),
        "reset(seed=[...])": lambda: env.reset(seed=[value, value]),
        "reset(options)": lambda: env.reset(options=value),
        "reset(mask)": lambda: env.reset(options={"reset_mask": value}),
        "reset(gravity)": lambda: env.reset(options={"gravity": value}),
        "reset(xml_file)": lambda: env.reset(options={"xml_file": value}),
        "reset(model)": lambda: env.reset(options={"model": value}),
        "reset(body_mass)": lambda: env.reset(options={"model": {"body_mass": value}}),
        "step": lambda: env.step(value),
        "step(env_id)": lambda: env.step(good, value),
        "step(out)": lambda: env.step(good, out=value),
        "step(out obs)": lambda: env.step(good, out={"obs": value}),
        "send": lambda: env.send(value),
        "send(env_id)": lambda: env.send(good, value),
        "send(out)": lambda: env.send(good, out=value),
        # nothing is in flight: a wait for ever is refused
        "recv": lambda: env.recv(value),
        "recv(min_envs)": lambda: env.recv(0, min_envs=value),
        "recv(max_envs)": lambda: env.recv(0, max_envs=value),
        "recv_batch": lambda: env.recv_batch(value),
        "drain": lambda: env.drain(value),
        "get_state": lambda: env.get_state(value),
        "set_state(env_id)": lambda: env.set_state(value, states),
        "set_state": lambda: env.set_state(None, value),
        "set_state([...])": lambda: env.set_state([0], [value]),
        "render(camera)": lambda: env.render([], value),
        "render(env_ids)": lambda: env.render(value) if value is not None else None,
        "model_field": lambda: env.model_field(value),
        "model_field(of_file)": lambda: env.model_field("body_mass", of_file=value),
    }


@pytest.mark.parametrize(("env_id", "options"), MAKES, ids=str)
def test_wrong_types_raise_ours_and_the_environment_goes_on(
    env_id: str, options: dict[str, Any]
) -> None:
    with rollouts.make_vec(env_id, 2, seed=0, **options) as env:
        if env_id != "CartPole-v1":  # MuJoCo's needs OpenGL
            env.render = lambda *_: None  # type: ignore[assignment]
        for value in VALUES:
            env.drain(60)
            env.reset(seed=0)
            env.drain(60)
            for name, call in calls(env, value).items():
                attempt(call, f"{name} with {value!r}")
                env.drain(60)
        env.reset(seed=3)
        env.drain(60)
        assert env.num_in_flight == 0


ARGUMENTS = [
    "env_id", "num_envs", "batch_size", "num_threads", "seed", "autoreset_mode", "env_id_offset",
    "max_episode_steps", "on_env_error", "pin_threads", "render_mode", "flatten_observation",
    "gravity", "no_option",
]  # fmt: skip


@pytest.mark.parametrize("name", ARGUMENTS)
def test_wrong_types_for_make_vec_raise_ours(name: str) -> None:
    for value in VALUES:
        arguments: dict[str, Any] = {"id": "CartPole-v1", "num_envs": 2, name: value}

        def make(arguments: dict[str, Any] = arguments) -> None:
            rollouts.make_vec(**arguments).close()

        attempt(make, f"{name}={value!r}")


def test_messages_name_what_was_given_and_what_was_expected() -> None:
    with rollouts.make_vec("CartPole-v1", 2, seed=0) as env:
        env.reset()
        with pytest.raises(SpecError, match=r"seed is 1\.5, expected an int or one entry"):
            env.reset(seed=1.5)  # type: ignore[arg-type]
        with pytest.raises(DTypeError, match="one saved state per environment, got None"):
            env.set_state([0], None)  # type: ignore[arg-type]
        with pytest.raises(DTypeError, match=r"timeout_s must be a number of seconds.* got 'a'"):
            env.recv("a")  # type: ignore[arg-type]
        with pytest.raises(DTypeError, match=r"options must be a dict.* got 3"):
            env.reset(options=3)  # type: ignore[arg-type]
        with pytest.raises(SpecError, match="'gravity' must be a bool, int, float or str"):
            env.reset(options={"gravity": 1j})
    with rollouts.make_vec("Hopper-v5", 1) as env, pytest.raises(SpecError, match="xml_file"):
        env.reset(options={"xml_file": {"a": 1}})
