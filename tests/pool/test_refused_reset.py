# SPDX-License-Identifier: Apache-2.0
"""A reset that is refused changes nothing, random streams included."""

from __future__ import annotations

import numpy as np
import pytest

import rollouts


def make() -> rollouts.VectorEnv:
    return rollouts.make_vec("CartPole-v1", 3, num_threads=1, seed=1)


def test_reset_mask_refused_while_something_is_in_flight_seeds_nothing() -> None:
    with make() as env:
        env.reset()
        before = env.get_state([0, 2])
        env.send([0], [1])
        with pytest.raises(rollouts.ProtocolError, match="in flight"):
            env.reset(seed=99, options={"reset_mask": np.array([True, False, True])})
        assert env.get_state([0, 2]) == before
        assert env.num_in_flight == 1
        assert env.recv()[4]["episode_length"].tolist() == [1]


def test_reset_mask_refused_for_what_was_never_reset_seeds_nothing() -> None:
    options = {"reset_mask": np.array([True, True, False])}
    with make() as env, make() as watched:
        with pytest.raises(rollouts.ProtocolError, match="env_id 2 was never reset"):
            env.reset(seed=99, options=options)
        np.testing.assert_array_equal(env.reset()[0], watched.reset()[0])


def test_bad_seed_of_one_environment_seeds_none() -> None:
    with make() as env:
        env.reset()
        before = env.get_state()
        with pytest.raises(rollouts.SpecError, match="seed"):
            env.reset(seed=[5, 6, -1])
        assert env.get_state() == before


def test_asynchronous_pool_refuses_a_mask_and_goes_on(async_env) -> None:
    with pytest.raises(rollouts.SpecError, match="needs a synchronous"):
        async_env.reset(seed=3, options={"reset_mask": np.ones(6, np.bool_)})
    assert async_env.num_in_flight == 6
    assert not async_env.recv()[4]["episode_length"].any()
