# SPDX-License-Identifier: Apache-2.0
"""A robot of one's own in a Ray worker: functions travel there, fragments come back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from own_robot_world import INFO, OBSERVATION, SKIP, XML

import rollouts
from rollouts.policy import PolicyOutput

pytestmark = pytest.mark.system

HANG_S = 300.0


class Still:
    """Pushes with 0.5."""

    policy_version = 0

    def act(self, obs: Any) -> PolicyOutput:
        zeros = np.zeros(len(obs), np.float32)
        return PolicyOutput(np.full((len(obs), 2), 0.5, np.float32), zeros, zeros, {})

    def value(self, obs: Any) -> Any:
        return np.zeros(len(obs), np.float32)

    def load_weights(self, weights: Any, version: int) -> None:
        self.policy_version = version


@pytest.fixture
def coordinator() -> Iterator[Any]:
    pytest.importorskip("ray")
    from rollouts import RolloutCoordinator

    # functions without a module, as in a notebook
    scale = 2.0
    options = {
        "xml_file": XML,
        "frame_skip": SKIP,
        "observation": OBSERVATION,
        "info": INFO,
        "reward": lambda step: scale * step["time"][:, 0],
        "terminated": lambda step: step["time"][:, 0] > 0.099,
    }
    made = RolloutCoordinator(
        "MuJoCo-v0",
        lambda spec: Still(),
        num_workers=1,
        num_envs_per_worker=4,
        rollout_length=12,
        env_options=options,
    )
    yield made
    made.close()


def test_a_worker_steps_it_with_the_functions_of_the_driver(coordinator: Any) -> None:
    coordinator.publish_weights({})
    batch = coordinator.get(timeout_s=HANG_S)
    # an episode lasts 5 steps of 0.02 s, after which the next begins in the same step
    times = np.array([[0.02 * (1 + t % 5)] * 4 for t in range(12)])
    np.testing.assert_allclose(batch.reward, 2 * times, rtol=1e-6)
    np.testing.assert_array_equal(batch.terminated, np.isclose(times, 0.1))
    assert not batch.truncated.any()
    assert (
        batch.obs.shape[-1]
        == rollouts.env_spec(
            "MuJoCo-v0", xml_file=XML, observation=OBSERVATION
        ).single_observation_space.shape[0]
    )
