# SPDX-License-Identifier: Apache-2.0
"""Stacked observations travel as single frames, and the learner gets what the worker collected."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from counter_world import wait_until

import rollouts
from rollouts import RolloutCoordinator
from rollouts.batch import RolloutBatch
from rollouts.collecting.frame_stacks import PackedRollout
from rollouts.policy import PolicyOutput
from rollouts.workers import CollectOptions, FaultPolicy, Fragment, PolicySpec, QueueLimits

pytest.importorskip("ale_py")

pytestmark = pytest.mark.system

TIMEOUT_S = 300.0
# a short limit, so that episodes are cut, valued and begun within every fragment
OPTIONS: dict[str, Any] = {"max_episode_steps": 13, "noop_max": 5}


class PixelPolicy:
    """A function of the observation alone, so that it does not matter where it runs."""

    def __init__(self, spec: PolicySpec) -> None:
        self.policy_version = 0
        self._num_actions = int(spec.single_action_space.n)  # type: ignore[attr-defined]

    def load_weights(self, weights: Mapping[str, np.ndarray], version: int) -> None:
        self.policy_version = version

    def weights(self) -> dict[str, np.ndarray]:
        return {}

    def act(self, obs: np.ndarray) -> PolicyOutput:
        value = self.value(obs)
        return PolicyOutput(value.astype(np.int64) % self._num_actions, -value, value)

    def value(self, obs: np.ndarray) -> np.ndarray:
        return (obs.reshape(len(obs), -1).sum(1, dtype=np.int64) % 1009).astype(np.float32)


def start(num_workers: int, **changes: Any) -> RolloutCoordinator:
    settings = {
        "num_envs_per_worker": 4,
        "rollout_length": 32,
        "env_options": OPTIONS,
        "queue": QueueLimits(credits_per_worker=1),
        "faults": FaultPolicy(start_timeout_s=TIMEOUT_S),
    } | changes
    coordinator = RolloutCoordinator(
        "ALE/Pong-v5", PixelPolicy, num_workers=num_workers, **settings
    )
    coordinator.publish_weights({})
    return coordinator


def assert_same(got: RolloutBatch, expected: RolloutBatch) -> None:
    for name in (field.name for field in fields(RolloutBatch)):
        if name in ("extras", "policy_state", "policy_version", "final_obs", "counted"):
            continue
        a, b = getattr(got, name), getattr(expected, name)
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b, err_msg=name)


def take(coordinator: RolloutCoordinator, num_fragments: int) -> list[Fragment]:
    return [coordinator.get_fragments(1, TIMEOUT_S)[0] for _ in range(num_fragments)]


@pytest.mark.parametrize("batch_size", [4, 2])
def test_learner_gets_the_stacks_that_the_environment_returned(
    ray_session: object, batch_size: int
) -> None:
    collect = CollectOptions(batch_size=batch_size)
    with start(0) as local, start(1, collect=collect) as remote:
        expected, got = take(local, 3), take(remote, 3)
    for mine, theirs in zip(got, expected, strict=True):
        assert isinstance(mine.payload, PackedRollout)
        assert isinstance(theirs.payload, RolloutBatch)
        assert mine.batch.truncated.any()
        assert mine.batch.bootstrap_value.any()
        for a, b in zip(mine.batch.episodes(), theirs.batch.episodes(), strict=True):
            np.testing.assert_array_equal(a, b)
        assert_same(mine.batch, theirs.batch)


def test_fragments_of_several_workers_are_joined_from_their_frames(ray_session: object) -> None:
    with start(0, num_envs_per_worker=4) as local:
        expected = local.get(timeout_s=TIMEOUT_S)
    with start(2, num_envs_per_worker=2, queue=QueueLimits(merge="ordered")) as remote:
        got = remote.get(2, TIMEOUT_S)
    np.testing.assert_array_equal(got.env_id, expected.env_id)
    for name in ("obs", "last_obs", "action", "reward", "value", "bootstrap_value", "last_value"):
        np.testing.assert_array_equal(getattr(got, name), getattr(expected, name), err_msg=name)


def queued_bytes(**changes: Any) -> int:
    """Returns the object-store bytes of one fragment of stacked observations."""
    with start(1, rollout_length=64, env_options={}, **changes) as coordinator:
        # one credit: a single fragment is made before the learner asks
        wait_until(lambda: coordinator.stats()["queue_depth"] == 1)
        return int(coordinator.stats()["queued_bytes"])


def test_a_queued_fragment_has_a_third_of_the_bytes(ray_session: object) -> None:
    unpacked = CollectOptions(pack_frame_stacks=False)
    stacks, frames = queued_bytes(collect=unpacked), queued_bytes()
    space = rollouts.env_spec("ALE/Pong-v5").single_observation_space
    assert space.shape is not None
    assert stacks > 65 * 4 * np.prod(space.shape)
    # 4 in the limit; the first stack of each environment has no stack before it
    assert stacks / frames > 3.5
