# SPDX-License-Identifier: Apache-2.0
"""Small fragments as bytes: the same arrays come out, read-only; large ones stay as they are."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from acted_worker import worker_config
from counter_world import make_policy, weights

from rollouts.batch import MultiAgentRollout, RolloutBatch
from rollouts.collecting.frame_stacks import PackedRollout
from rollouts.workers import RolloutWorker
from rollouts.workers.offers import WeightOffer
from rollouts.workers.small_arrays import LARGE_BYTES, as_bytes, from_bytes


@pytest.fixture
def rollout() -> RolloutBatch:
    payload = RolloutWorker(worker_config(), make_policy).collect(WeightOffer.of(1, weights()))
    assert isinstance(payload.payload, RolloutBatch)
    return payload.payload


def assert_same_and_read_only(got: Any, expected: Any) -> None:
    assert type(got) is type(expected)
    for name in (field.name for field in fields(expected)):
        a, b = getattr(got, name), getattr(expected, name)
        if isinstance(b, np.ndarray):
            assert a.dtype == b.dtype and not a.flags.writeable, name
            np.testing.assert_array_equal(a, b, err_msg=name)


def test_arrays_come_back_read_only(rollout: RolloutBatch) -> None:
    sent = as_bytes(rollout)
    assert isinstance(sent, bytes)
    # little is sent beside the arrays
    assert len(sent) < rollout.nbytes + 1500
    assert_same_and_read_only(from_bytes(sent), rollout)


def test_packed_stacks_and_batches_of_several_agents_come_back_too(rollout: RolloutBatch) -> None:
    frames = np.arange(24, dtype=np.uint8).reshape(6, 2, 2)
    packed = PackedRollout(frames, np.zeros((5, 2, 4), np.int32), rollout)
    assert_same_and_read_only(from_bytes(as_bytes(packed)), packed)
    both = MultiAgentRollout({"red": rollout, "blue": rollout}, 2)
    agents = from_bytes(as_bytes(both))
    assert isinstance(agents, MultiAgentRollout)
    assert [*agents] == ["red", "blue"] and agents.num_envs == 2
    assert_same_and_read_only(agents["blue"], rollout)


def test_a_large_fragment_stays_as_it_is(rollout: RolloutBatch) -> None:
    rest_bytes = rollout.nbytes - rollout.obs.nbytes
    shape = (4, 2, (LARGE_BYTES - rest_bytes) // 8)
    obs = np.zeros(shape, np.uint8)
    large = replace(rollout, obs=np.zeros((4, 2, shape[2] + 1), np.uint8))
    assert rest_bytes + obs.nbytes <= LARGE_BYTES <= large.nbytes
    assert as_bytes(large) is large
    assert from_bytes(large) is large


def test_a_class_that_pickle_cannot_send_stays_as_it_is() -> None:
    class OfTheProgram:
        nbytes = 8

    odd: Any = OfTheProgram()
    assert as_bytes(odd) is odd
