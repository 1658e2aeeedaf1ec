# SPDX-License-Identifier: Apache-2.0
"""`gae` against a recursion written out one number at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from rollouts.errors import SpecError
from rollouts.returns import gae


def make_inputs(steps: int, envs: int, seed: int, ending_rate: float = 0.3) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    shape = (steps, envs)
    terminated = rng.random(shape) < ending_rate
    truncated = rng.random(shape) < ending_rate
    stand_in = rng.normal(size=shape).astype(np.float32)
    return {
        "reward": rng.normal(size=shape).astype(np.float32),
        "value": rng.normal(size=shape).astype(np.float32),
        "terminated": terminated,
        "truncated": truncated,
        "bootstrap_value": np.where(truncated & ~terminated, stand_in, 0),
        "last_value": rng.normal(size=envs).astype(np.float32),
    }


def slow_gae(
    inputs: dict[str, Any], gamma: float, gae_lambda: float
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The reference: Python floats (binary64, as inside `gae`), one step of one env at a time."""
    plain = {name: array.tolist() for name, array in inputs.items()}
    steps, envs = inputs["reward"].shape
    advantage = np.zeros((steps, envs), np.float32)
    target = np.zeros((steps, envs), np.float32)
    for b in range(envs):
        following, next_value = 0.0, plain["last_value"][b]
        for t in reversed(range(steps)):
            decay = gamma * gae_lambda
            if plain["terminated"][t][b]:
                next_value, decay = 0.0, 0.0
            elif plain["truncated"][t][b]:
                next_value, decay = plain["bootstrap_value"][t][b], 0.0
            value = plain["value"][t][b]
            delta = plain["reward"][t][b] + gamma * next_value - value
            following = delta + decay * following
            advantage[t, b], target[t, b] = following, following + value
            next_value = value
    return advantage, target


@settings(deadline=None, max_examples=60)
@given(
    steps=st.integers(1, 12),
    envs=st.integers(1, 5),
    seed=st.integers(0, 2**16),
    gamma=st.floats(0, 1),
    gae_lambda=st.floats(0, 1),
    ending_rate=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
)
def test_advantages_equal_the_slow_recursion(
    steps: int, envs: int, seed: int, gamma: float, gae_lambda: float, ending_rate: float
) -> None:
    inputs = make_inputs(steps, envs, seed, ending_rate)
    advantage, target = gae(**inputs, gamma=gamma, gae_lambda=gae_lambda)
    expected_advantage, expected_target = slow_gae(inputs, gamma, gae_lambda)
    np.testing.assert_array_equal(advantage, expected_advantage)
    np.testing.assert_array_equal(target, expected_target)


def one_env(**changes: Any) -> dict[str, Any]:
    """Three steps of reward 1 that nothing ends, value 0 everywhere."""
    zeros, flags = np.zeros((3, 1), np.float32), np.zeros((3, 1), np.bool_)
    base = {"reward": zeros + 1, "value": zeros, "terminated": flags, "truncated": flags}
    return {**base, "bootstrap_value": zeros, "last_value": np.zeros(1, np.float32), **changes}


def middle(value: Any) -> NDArray[Any]:
    """(3, 1) with `value` in the middle and 0 around it."""
    return np.array([[0], [value], [0]], type(value))


def test_an_episode_that_goes_on_is_worth_its_last_value() -> None:
    inputs = one_env(last_value=np.array([8.0]))
    _, target = gae(**inputs, gamma=0.5, gae_lambda=1.0)
    assert target[:, 0].tolist() == [1 + 0.5 + 0.25 + 1.0, 1 + 0.5 + 2.0, 1 + 4.0]


def test_a_terminated_step_has_no_future() -> None:
    _, target = gae(**one_env(terminated=middle(True)), gamma=0.5, gae_lambda=1.0)
    assert target[:, 0].tolist() == [1.5, 1.0, 1.0]


def test_a_truncated_step_has_the_future_of_its_final_observation() -> None:
    inputs = one_env(truncated=middle(True), bootstrap_value=middle(10.0))
    _, target = gae(**inputs, gamma=0.5, gae_lambda=1.0)
    assert target[:, 0].tolist() == [1 + 0.5 * 6.0, 6.0, 1.0]


def test_a_step_that_both_ends_counts_as_terminated() -> None:
    ended = middle(True)
    inputs = one_env(terminated=ended, truncated=ended, bootstrap_value=middle(10.0))
    _, target = gae(**inputs, gamma=0.5, gae_lambda=1.0)
    assert target[:, 0].tolist() == [1.5, 1.0, 1.0]


def test_the_next_episode_does_not_leak_into_the_one_before() -> None:
    inputs = make_inputs(9, 4, seed=1)
    inputs["truncated"][4] = True
    changed = {name: array.copy() for name, array in inputs.items()}
    for name in ("reward", "value"):
        changed[name][5:] += 100
    before, _ = gae(**inputs, gamma=0.99, gae_lambda=0.95)
    after, _ = gae(**changed, gamma=0.99, gae_lambda=0.95)
    np.testing.assert_array_equal(before[:5], after[:5])


def test_results_are_float32_and_inputs_stay_as_they_were() -> None:
    inputs = make_inputs(5, 3, seed=2)
    copies = {name: array.copy() for name, array in inputs.items()}
    for result in gae(**inputs, gamma=0.99, gae_lambda=0.95):
        assert result.dtype == np.float32 and result.shape == (5, 3)
    for name, copy in copies.items():
        np.testing.assert_array_equal(inputs[name], copy)


def test_shapes_that_do_not_fit_are_named() -> None:
    inputs = make_inputs(5, 3, seed=3)
    with pytest.raises(SpecError, match=r"truncated has shape \(4, 3\), expected \(5, 3\)"):
        gae(**(inputs | {"truncated": inputs["truncated"][1:]}), gamma=1.0, gae_lambda=1.0)
    with pytest.raises(SpecError, match=r"last_value has shape \(2,\), expected \(3,\)"):
        gae(**(inputs | {"last_value": np.zeros(2)}), gamma=1.0, gae_lambda=1.0)
    with pytest.raises(SpecError, match="time first"):
        gae(**(inputs | {"reward": np.zeros(5)}), gamma=1.0, gae_lambda=1.0)
