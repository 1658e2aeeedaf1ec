# SPDX-License-Identifier: Apache-2.0
"""`RolloutBatch`: what it accepts, what it counts, how it is joined."""

from __future__ import annotations

import pickle
from dataclasses import fields, replace

import numpy as np
import pytest
from random_batches import make_batch

from rollouts.batch import RolloutBatch
from rollouts.errors import SpecError


def test_joined_batches_keep_every_column_and_episode_in_order() -> None:
    parts = [make_batch(4, envs, envs - 1, seed=envs) for envs in (1, 3, 2)]
    joined = RolloutBatch.concatenate(parts)
    assert joined.reward.shape == (4, 6)
    columns = [(part, column) for part in parts for column in range(len(part.env_id))]
    for name in ("obs", "action", "reward", "truncated", "value", "policy_version"):
        for index, (part, column) in enumerate(columns):
            expected = getattr(part, name)[:, column]
            np.testing.assert_array_equal(getattr(joined, name)[:, index], expected)
    for index, (part, column) in enumerate(columns):
        np.testing.assert_array_equal(joined.last_obs[index], part.last_obs[column])
        np.testing.assert_array_equal(
            joined.extras["hidden"][:, index], part.extras["hidden"][:, column]
        )
    lengths = [length for part in parts for length in part.episode_length]
    assert joined.episode_length.tolist() == lengths


def test_joining_keeps_dtypes() -> None:
    part = make_batch(2, 2, 1)
    joined = RolloutBatch.concatenate([part, part])
    for f in fields(part):
        if f.name not in ("extras", "policy_state", "final_obs"):
            assert getattr(joined, f.name).dtype == getattr(part, f.name).dtype


def test_one_batch_is_joined_without_a_copy() -> None:
    batch = make_batch(2, 2, 1)
    assert RolloutBatch.concatenate([batch]) is batch


def test_num_steps_and_nbytes_count_every_array() -> None:
    batch = make_batch(4, 3, 2)
    per_step = 6 + 8 + 4 + 1 + 1 + 4 + 4 + 4 + 8 + 5 * 8
    assert batch.num_steps == 12
    assert batch.nbytes == 12 * per_step + 3 * (6 + 4 + 4) + 2 * (8 + 4 + 4)


def test_batches_survive_pickling() -> None:
    batch = make_batch(4, 3, 2)
    copy = pickle.loads(pickle.dumps(batch, protocol=5))
    np.testing.assert_array_equal(copy.obs, batch.obs)
    np.testing.assert_array_equal(copy.extras["hidden"], batch.extras["hidden"])


def test_an_array_of_the_wrong_shape_is_named() -> None:
    batch = make_batch(4, 3, 2)
    with pytest.raises(SpecError, match=r"value has shape \(3, 3\), expected .* \(4, 3\)"):
        replace(batch, value=batch.value[1:])
    with pytest.raises(SpecError, match="extras"):
        replace(batch, extras={"hidden": batch.reward.T})
    with pytest.raises(SpecError, match=r"reward has shape \(12,\)"):
        replace(batch, reward=batch.reward.ravel())


def test_nothing_cannot_be_joined() -> None:
    with pytest.raises(SpecError, match="no batches"):
        RolloutBatch.concatenate([])


def test_batches_of_different_lengths_cannot_be_joined() -> None:
    with pytest.raises(SpecError, match="batch 1 has T = 5 steps, expected 4"):
        RolloutBatch.concatenate([make_batch(4, 2, 1), make_batch(5, 2, 1)])


def test_batches_with_different_extras_cannot_be_joined() -> None:
    batch = make_batch(4, 2, 1)
    with pytest.raises(SpecError, match="extras"):
        RolloutBatch.concatenate([batch, replace(batch, extras={})])
