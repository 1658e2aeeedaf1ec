# SPDX-License-Identifier: Apache-2.0
"""`RolloutBatch`: what it accepts, what it counts, how it is joined."""

from __future__ import annotations

import pickle
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import torch
from random_batches import make_batch
from torch.utils._python_dispatch import TorchDispatchMode

from rollouts.batch import RolloutBatch
from rollouts.errors import SpecError


def test_joined_batches_keep_every_column_and_episode_in_order() -> None:
    parts = [make_batch(4, envs, seed=envs) for envs in (1, 3, 2)]
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
    lengths = sorted(length for part in parts for length in part.episodes().lengths)
    assert sorted(joined.episodes().lengths) == lengths and len(lengths) > 3


def test_joined_final_observations_are_in_the_order_of_the_joined_episodes() -> None:
    parts = [make_batch(5, envs, seed=envs) for envs in (3, 2)]
    parts = [replace(p, final_obs=p.obs[p.terminated | p.truncated] + np.uint8(1)) for p in parts]
    joined = RolloutBatch.concatenate(parts)
    ended = joined.terminated | joined.truncated
    np.testing.assert_array_equal(joined.final_obs, joined.obs[ended] + np.uint8(1))


def test_tensors_have_the_episodes_of_arrays_and_are_joined_alike() -> None:
    arrays = make_batch(4, 3)
    ended = arrays.terminated | arrays.truncated
    arrays = replace(arrays, final_obs=arrays.obs[ended])
    tensors = as_tensors(arrays)
    assert tensors.num_steps == 12 and tensors.batch_shape == (4, 3)
    for mine, theirs in zip(tensors.episodes(), arrays.episodes(), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    joined = RolloutBatch.concatenate([tensors, tensors])
    twice = RolloutBatch.concatenate([arrays, arrays])
    for mine, theirs in zip(joined.episodes(), twice.episodes(), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert joined.on_host().copied().contiguous().nbytes == joined.nbytes > tensors.nbytes


def with_agents(batch: RolloutBatch, active: Any) -> RolloutBatch:
    """The same rollout as one of agents, with final observations that say where they were seen."""
    ended = batch.terminated | batch.truncated
    return replace(batch, extras={"active": active}, final_obs=batch.obs[ended])


def as_tensors(batch: RolloutBatch) -> RolloutBatch[torch.Tensor]:
    """The same rollout as a device has it: final observations by cell."""
    given = {f.name: getattr(batch, f.name) for f in fields(batch)}
    if batch.final_obs is not None:
        given["final_obs"] = batch.obs
    given["extras"] = {name: torch.from_numpy(one) for name, one in batch.extras.items()}
    given = {k: torch.from_numpy(v) if isinstance(v, np.ndarray) else v for k, v in given.items()}
    return RolloutBatch(**given)


@pytest.mark.parametrize("kind", ["arrays", "tensors"])
def test_agents_that_left_are_not_listed_again_when_their_environment_ends(kind: str) -> None:
    plain = make_batch(6, 4)
    active = np.random.default_rng(1).random((6, 4)) < 0.5
    arrays = with_agents(plain, active)
    batch: Any = arrays if kind == "arrays" else as_tensors(arrays)
    listed = (plain.terminated | plain.truncated) & active
    assert 0 < listed.sum() < (plain.terminated | plain.truncated).sum()
    env_id, returns, lengths, final_obs = batch.episodes()
    np.testing.assert_array_equal(env_id, np.nonzero(listed)[1])
    np.testing.assert_array_equal(returns, plain.episode_return[listed])
    np.testing.assert_array_equal(lengths, plain.episode_length[listed])
    np.testing.assert_array_equal(final_obs, plain.obs[listed])
    joined = RolloutBatch.concatenate([batch, batch]).episodes()
    twice = [row for each in listed for row in [*np.flatnonzero(each)] * 2]
    assert joined.env_id.tolist() == twice
    np.testing.assert_array_equal(
        joined.final_obs, np.tile(plain.obs, (1, 2, 1, 1))[np.tile(listed, 2)]
    )


def test_extras_of_a_policy_that_are_named_active_are_not_agents() -> None:
    batch = make_batch(6, 4)
    expected = batch.episodes()
    for active in (np.zeros((6, 4), np.float32), np.zeros((6, 4, 2), np.bool_)):
        for found, wanted in zip(
            replace(batch, extras={"active": active}).episodes(), expected, strict=True
        ):
            np.testing.assert_array_equal(found, wanted)


class Waits(TorchDispatchMode):
    """Counts operations whose size or value the host has to wait for on a device."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        picks = name == "index" and any(
            one is not None and one.dtype == torch.bool for one in args[1]
        )
        self.count += picks or name in ("nonzero", "item", "_local_scalar_dense", "masked_select")
        return func(*args, **(kwargs or {}))


def test_episodes_of_tensors_wait_for_the_device_once() -> None:
    batch = as_tensors(with_agents(make_batch(6, 4), np.ones((6, 4), np.bool_)))
    with Waits() as waits:
        batch.episodes()
    assert waits.count == 1


def test_joining_keeps_dtypes() -> None:
    part = make_batch(2, 2)
    joined = RolloutBatch.concatenate([part, part])
    for f in fields(part):
        if f.name not in ("extras", "policy_state", "final_obs", "counted"):
            assert getattr(joined, f.name).dtype == getattr(part, f.name).dtype


def test_one_batch_is_joined_without_a_copy() -> None:
    batch = make_batch(2, 2)
    assert RolloutBatch.concatenate([batch]) is batch


def test_num_steps_and_nbytes_count_every_array() -> None:
    batch = make_batch(4, 3)
    per_step = 6 + 8 + 4 + 1 + 1 + 4 + 4 + 4 + 8 + 8 + 4 + 5 * 8
    assert batch.num_steps == 12
    assert batch.nbytes == 12 * per_step + 3 * (6 + 4 + 4)


def test_batches_survive_pickling() -> None:
    batch = make_batch(4, 3)
    copy = pickle.loads(pickle.dumps(batch, protocol=5))
    np.testing.assert_array_equal(copy.obs, batch.obs)
    np.testing.assert_array_equal(copy.extras["hidden"], batch.extras["hidden"])


def test_an_array_of_the_wrong_shape_is_named() -> None:
    batch = make_batch(4, 3)
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
        RolloutBatch.concatenate([make_batch(4, 2), make_batch(5, 2)])


def test_batches_with_different_extras_cannot_be_joined() -> None:
    batch = make_batch(4, 2)
    with pytest.raises(SpecError, match="extras"):
        RolloutBatch.concatenate([batch, replace(batch, extras={})])
