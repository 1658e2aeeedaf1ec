# SPDX-License-Identifier: Apache-2.0
"""dm_env's own contract, and batches of TimeSteps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rollouts
from rollouts.errors import SpecError

dm_env = pytest.importorskip("dm_env", reason="dm-env is not installed")
test_utils = pytest.importorskip("dm_env.test_utils", reason="dm-env's tests need absl")
adapter = pytest.importorskip("rollouts.integrations.dm_env", reason="dm-env is not installed")

from absl.testing import absltest  # noqa: E402


class Contract(test_utils.EnvironmentTestMixin, absltest.TestCase):  # type: ignore[misc]
    """The demands of dm_env on every environment."""

    ENV_ID = "CartPole-v1"

    def make_object_under_test(self) -> Any:
        return adapter.Environment(self.ENV_ID, seed=1)

    def make_action_sequence(self) -> Any:
        spec = self.environment.action_spec()
        rng = np.random.default_rng(0)
        for _ in range(300):
            if hasattr(spec, "num_values"):
                yield spec.dtype.type(rng.integers(spec.num_values))
            else:
                yield rng.uniform(spec.minimum, spec.maximum, spec.shape).astype(spec.dtype)


class PendulumContract(Contract):
    ENV_ID = "Pendulum-v1"


class TaxiContract(Contract):
    ENV_ID = "Taxi-v3"


class BlackjackContract(Contract):
    ENV_ID = "Blackjack-v1"


def test_discount_is_0_at_a_termination_and_1_at_a_truncation() -> None:
    fell = adapter.Environment("CartPole-v1", seed=1)
    step = fell.reset()
    assert step.first() and step.reward is None and step.discount is None
    while not step.last():
        step = fell.step(0)
    assert step.discount == 0.0 and step.reward == 1.0
    assert fell.step(0).first()

    timed_out = adapter.Environment("Pendulum-v1", seed=1, max_episode_steps=3)
    timed_out.reset()
    steps = [timed_out.step(np.zeros(1, np.float32)) for _ in range(4)]
    assert [step.step_type for step in steps] == [1, 1, 2, 0]
    assert steps[2].discount == 1.0


def test_last_carries_the_observation_that_ended_the_episode() -> None:
    env = adapter.Environment("CartPole-v1", seed=1)
    step = env.reset()
    while not step.last():
        step = env.step(0)
    assert abs(step.observation[2]) > 0.2  # rad; it fell
    assert abs(env.step(0).observation[2]) < 0.06


def test_batches_are_time_steps_of_arrays() -> None:
    with adapter.BatchedEnvironment("CartPole-v1", 5, seed=1, gravity=9.0) as envs:
        step = envs.reset()
        assert (step.step_type == dm_env.StepType.FIRST).all()
        reference = rollouts.make_vec("CartPole-v1", 5, seed=1, gravity=9.0)
        np.testing.assert_array_equal(step.observation, reference.reset()[0])
        was_last = np.zeros(5, bool)
        for _ in range(40):
            step = envs.step(np.zeros(5, int))
            obs, reward, terminated, truncated, _ = reference.step(np.zeros(5, int))
            np.testing.assert_array_equal(step.observation, obs)
            np.testing.assert_array_equal(step.reward, reward)
            np.testing.assert_array_equal(step.discount, 1.0 - terminated)
            np.testing.assert_array_equal(step.step_type == 2, terminated | truncated)
            np.testing.assert_array_equal(step.step_type == 0, was_last)
            was_last = step.step_type == 2
        assert envs.env_id.tolist() == [0, 1, 2, 3, 4]
        assert envs.observation_spec().shape == (4,) and envs.action_spec().num_values == 2


def test_asynchronous_batches_name_their_environments() -> None:
    envs = adapter.BatchedEnvironment("CartPole-v1", 6, batch_size=2, seed=1)
    step = envs.reset()
    for _ in range(30):
        envs.send(np.zeros(2, int), envs.env_id)
        step = envs.recv()
    assert step.observation.shape == (2, 4)


def test_another_autoreset_mode_is_refused() -> None:
    # what would happen else: LAST with the next episode's first observation
    env = rollouts.make_vec("CartPole-v1", 1, seed=1, autoreset_mode="same_step")
    env.reset()
    terminated = np.zeros(1, bool)
    while not terminated.any():
        obs, _, terminated, _, _ = env.step(np.zeros(1, int))
    assert abs(obs[0, 2]) < 0.06
    with pytest.raises(SpecError, match="SAME_STEP"):
        adapter.BatchedEnvironment(env)
    with pytest.raises(SpecError, match="give an id"):
        adapter.BatchedEnvironment(rollouts.make_vec("CartPole-v1"), 3)


@pytest.mark.parametrize("env_id", ["LqrLqr21-v1", "LqrLqr62-v1"])
def test_actions_without_limits_have_the_bounds_of_dm_control(env_id: str) -> None:
    mujoco = pytest.importorskip("mujoco", reason="mujoco is not installed")
    # as suite.load("lqr", ...).action_spec() has for actuators without ctrlrange
    most = mujoco.mjMAXVAL
    spec = adapter.Environment(env_id, seed=1).action_spec()
    assert np.broadcast_to(spec.minimum, spec.shape).tolist() == [-most] * spec.shape[0]
    assert np.broadcast_to(spec.maximum, spec.shape).tolist() == [most] * spec.shape[0]
