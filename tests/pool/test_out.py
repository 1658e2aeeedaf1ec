# SPDX-License-Identifier: Apache-2.0
"""Arrays of the caller that environments write into."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import rollouts
from rollouts.collecting.collector import Collector
from rollouts.policy import PolicyOutput


class CoinPolicy:
    """Chooses 0 or 1 at random."""

    policy_version = 0

    def __init__(self) -> None:
        self.random = np.random.default_rng(0)

    def act(self, obs: np.ndarray) -> PolicyOutput:
        zeros = np.zeros(len(obs), np.float32)
        return PolicyOutput(self.random.integers(0, 2, len(obs)), zeros, zeros, {})

    def value(self, obs: np.ndarray) -> np.ndarray:
        return np.zeros(len(obs), np.float32)


@pytest.mark.parametrize("num_envs", [5, 3000])  # on the caller's thread, and queued
@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_out_gets_what_recv_would_return(num_envs: int, mode: str) -> None:
    arguments = {"seed": 1, "autoreset_mode": mode, "num_threads": 2}
    actions = np.random.default_rng(0).integers(0, 2, (60, num_envs))
    fields = ["obs", "reward", "terminated", "truncated", "env_id"]
    fields += ["episode_return", "episode_length"] + ["final_obs"] * (mode == "same_step")
    with (
        rollouts.make_vec("CartPole-v1", num_envs, **arguments) as plain,
        rollouts.make_vec("CartPole-v1", num_envs, **arguments) as redirected,
    ):
        plain.reset()
        redirected.reset()
        for t, action in enumerate(actions):
            plain.send(action)
            expected = plain.recv_batch()
            chosen = fields[t % len(fields) :]
            out = {name: np.full_like(getattr(expected, name), 7) for name in chosen}
            redirected.send(action, out=out)
            step = redirected.recv_batch()
            ended = expected.terminated | expected.truncated
            for name in fields:
                got, want = getattr(step, name), getattr(expected, name)
                rows = ended if name == "final_obs" else slice(None)
                np.testing.assert_array_equal(got[rows], want[rows], err_msg=name)
                assert (got is out.get(name)) == (name in out)


def test_step_with_out_writes_rows_of_an_arena(sync_env) -> None:
    arena = np.zeros((4, 6, 4), np.float32)
    for t in range(3):
        obs = sync_env.step(np.zeros(6, int), out={"obs": arena[t + 1]})[0]
        assert np.shares_memory(obs, arena)
    with rollouts.make_vec("CartPole-v1", 6, seed=1, env_id_offset=10) as other:
        other.reset()
        for t in range(3):
            np.testing.assert_array_equal(arena[t + 1], other.step(np.zeros(6, int))[0])


def test_out_of_a_subset_has_a_row_per_environment_sent(sync_env) -> None:
    obs = np.empty((2, 4), np.float32)
    sync_env.send([0, 1], [15, 11], out={"obs": obs})
    with pytest.raises(rollouts.ProtocolError, match="only one before the next recv"):
        sync_env.send([0], [12])
    assert sync_env.recv()[0] is obs
    sync_env.send([0], [12])
    with pytest.raises(rollouts.ProtocolError, match="only one before the next recv"):
        sync_env.send([0, 1], [15, 11], out={"obs": obs})
    assert sync_env.recv()[4]["env_id"].tolist() == [12]


@pytest.mark.parametrize(
    ("out", "error", "match"),
    [
        ({"obs": np.empty((6, 4))}, rollouts.SpecError, "float64, expected .6, 4. and float32"),
        ({"obs": np.empty((5, 4), np.float32)}, rollouts.SpecError, r"shape \(5, 4\)"),
        ({"obs": np.empty((4, 6), np.float32).T}, rollouts.SpecError, "contiguous"),
        ({"obs": [1]}, rollouts.DTypeError, "must be a NumPy array"),
        ({"rewards": np.empty(6)}, rollouts.SpecError, "unknown key 'rewards'"),
        ({"final_obs": np.empty((6, 4), np.float32)}, rollouts.SpecError, "same_step"),
        (np.empty((6, 4), np.float32), rollouts.DTypeError, "dict"),
    ],
)
def test_arrays_that_do_not_fit_are_refused_and_nothing_is_sent(
    sync_env, out, error, match
) -> None:
    with pytest.raises(error, match=match):
        sync_env.step(np.zeros(6, int), out=out)
    assert sync_env.num_in_flight == 0


def test_a_read_only_array_is_refused(sync_env) -> None:
    frozen = np.zeros((6, 4), np.float32)
    frozen.flags.writeable = False
    with pytest.raises(rollouts.SpecError, match="writable"):
        sync_env.step(np.zeros(6, int), out={"obs": frozen})


def test_out_needs_synchronous_mode(async_env) -> None:
    ids = async_env.recv()[4]["env_id"]
    with pytest.raises(rollouts.ProtocolError, match="batch_size == num_envs"):
        async_env.send([0, 0], ids, out={"obs": np.empty((2, 4), np.float32)})


def test_the_pool_lets_go_of_the_array_once_it_is_received_discarded_or_closed() -> None:
    num_envs = 3000
    with rollouts.make_vec("CartPole-v1", num_envs, seed=1, num_threads=2) as env:
        env.reset()

        def sent() -> weakref.ref[np.ndarray]:
            out = np.empty((num_envs, 4), np.float32)
            env.send(np.zeros(num_envs, int), out={"obs": out})
            return weakref.ref(out)

        for finish in (env.recv, env.reset, env.close):
            array = sent()
            gc.collect()
            assert array() is not None
            finish()
            gc.collect()
            assert array() is None


def test_rollouts_of_the_collector_are_what_step_returns() -> None:
    with rollouts.make_vec("CartPole-v1", 6, seed=1, autoreset_mode="same_step") as env:
        batch = Collector(env, CoinPolicy(), rollout_length=50).collect()
    with rollouts.make_vec("CartPole-v1", 6, seed=1, autoreset_mode="same_step") as env:
        obs, _ = env.reset()
        for t in range(50):
            np.testing.assert_array_equal(batch.obs[t], obs)
            obs = env.step(batch.action[t])[0]
        np.testing.assert_array_equal(batch.last_obs, obs)
