# SPDX-License-Identifier: Apache-2.0
"""Policies, environments and comparisons of the tests of Tianshou's adapter."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import torch
from tianshou.algorithm.algorithm_base import Policy
from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
from tianshou.algorithm.modelfree.reinforce import DiscreteActorPolicy, ProbabilisticActorPolicy
from tianshou.data import Batch
from tianshou.utils.net.common import Net
from tianshou.utils.net.continuous import ContinuousActorProbabilistic
from tianshou.utils.net.discrete import DiscreteActor
from torch.distributions import Independent, Normal

import rollouts


def make_actor(env: Any) -> Policy:
    """A stochastic policy of random weights."""
    torch.manual_seed(0)
    net = Net(state_shape=env.observation_space[0].shape, hidden_sizes=[16])
    space = env.action_space[0]
    if isinstance(space, gym.spaces.Box):
        actor = ContinuousActorProbabilistic(
            preprocess_net=net, action_shape=space.shape, unbounded=True
        )
        return ProbabilisticActorPolicy(
            actor=actor,
            dist_fn=lambda parts: Independent(Normal(*parts), 1),
            action_space=space,
        )
    discrete = DiscreteActor(preprocess_net=net, action_shape=int(space.n), softmax_output=False)
    return DiscreteActorPolicy(actor=discrete, action_space=space)


def make_q(env: Any) -> Policy:
    """An epsilon-greedy policy of random weights."""
    torch.manual_seed(0)
    space = env.action_space[0]
    net = Net(
        state_shape=env.observation_space[0].shape, action_shape=int(space.n), hidden_sizes=[16]
    )
    return DiscreteQLearningPolicy(model=net, action_space=space, eps_inference=0.3)


class Remembering(Policy):
    """Counts the steps of each episode in its hidden state, which it changes in place."""

    def __init__(self, env: Any) -> None:
        super().__init__(action_space=env.action_space[0])

    def forward(self, batch: Any, state: Any = None, **kwargs: Any) -> Batch:
        """Pushes to the side that the count says; keeps a number of its own in the buffer."""
        if state is None:
            state = np.zeros((len(batch.obs), 1))
        state += 1
        kept = Batch(seen=batch.obs[:, 0].copy())
        return Batch(act=(state[:, 0] % 2).astype(np.int64), state=state, policy=kept)


class OneEnv(gym.Env[Any, Any]):
    """Environment number `index` of a pool, alone, for Tianshou's own vector environments."""

    def __init__(self, env_id: str, index: int, seed: int) -> None:
        self._pool = rollouts.make_vec(
            env_id, 1, seed=seed, env_id_offset=index, autoreset_mode="disabled", num_threads=1
        )
        self.observation_space = self._pool.single_observation_space
        self.action_space = self._pool.single_action_space
        self.action_space.seed(seed + index)

    def reset(self, **kwargs: Any) -> Any:
        """The first observation of the next episode."""
        obs, _ = self._pool.reset()
        return obs[0].copy(), {}

    def step(self, action: Any) -> Any:
        """As gymnasium.Env."""
        obs, reward, terminated, truncated, _ = self._pool.step(np.asarray(action)[None])
        return obs[0].copy(), float(reward[0]), bool(terminated[0]), bool(truncated[0]), {}

    def close(self) -> None:
        """Frees the pool."""
        self._pool.close()


def columns(batch: Any, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """The arrays of a Batch by path."""
    found: dict[tuple[str, ...], Any] = {}
    for key in batch.get_keys():
        value = batch[key]
        inside = isinstance(value, Batch)
        found.update(columns(value, (*path, key)) if inside else {(*path, key): value})
    return found


def assert_equal_buffers(ours: Any, theirs: Any) -> None:
    """Every column and every counter is equal."""
    mine, others = columns(ours._meta), columns(theirs._meta)
    assert mine.keys() == others.keys()
    for path, column in others.items():
        assert mine[path].dtype == column.dtype, path
        # what a hook fills in at an episode's end is NaN until then
        np.testing.assert_array_equal(mine[path], column, err_msg=str(path))
    assert np.array_equal(ours._lengths, theirs._lengths)
    assert np.array_equal(ours.last_index, theirs.last_index)
    counters = ("_insertion_idx", "_size", "_ep_return", "_ep_len", "_ep_start_idx", "last_index")
    for one, other in zip(ours.buffers, theirs.buffers, strict=True):
        for name in counters:
            assert one.__dict__[name] == other.__dict__[name], name


def assert_equal_stats(ours: Any, theirs: Any) -> None:
    """Everything but times is equal."""
    assert ours.n_collected_steps == theirs.n_collected_steps
    assert ours.n_collected_episodes == theirs.n_collected_episodes
    assert np.array_equal(ours.returns, theirs.returns)
    assert np.array_equal(ours.lens, theirs.lens)
    assert ours.returns_stat == theirs.returns_stat
    assert ours.lens_stat == theirs.lens_stat
    if theirs.pred_dist_std_array is None:
        assert ours.pred_dist_std_array is None
    else:
        # probabilities of many steps are summed at once
        np.testing.assert_allclose(
            ours.pred_dist_std_array, theirs.pred_dist_std_array, rtol=1e-6, atol=1e-6
        )
        assert ours.pred_dist_std_array_stat.keys() == theirs.pred_dist_std_array_stat.keys()
