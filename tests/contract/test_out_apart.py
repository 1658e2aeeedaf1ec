# SPDX-License-Identifier: Apache-2.0
"""Arrays into which a pool writes are refused where two of them share memory."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

import rollouts
from rollouts.envs.hosted import from_env_fns
from rollouts.errors import SpecError

SHARED = "out['reward'] and out['episode_return'] share memory: give each an array of its own"


def pools() -> list:
    return [
        rollouts.make_vec("CartPole-v1", 4, seed=1),
        rollouts.make_vec("CartPole-v1", 4, seed=1, normalize_reward=True),
        from_env_fns(
            [lambda: gymnasium.make("CartPole-v1")] * 4, num_processes=0, episode_statistics=True
        ),
    ]


def test_one_array_twice_and_arrays_that_overlap_are_refused_before_anything_is_sent() -> None:
    for env in pools():
        with env:
            env.reset(seed=1)
            memory = np.zeros(7)
            for second in (memory[:4], memory[3:]):
                out = {"reward": memory[:4], "episode_return": second}
                with pytest.raises(SpecError) as refused:
                    env.step(np.zeros(4, np.int64), out=out)
                assert str(refused.value) == SHARED
            # neighbours in one memory are apart
            memory = np.zeros(8)
            out = {"reward": memory[:4], "episode_return": memory[4:]}
            _, reward, *_, info = env.step(np.zeros(4, np.int64), out=out)
            assert reward is out["reward"] and info["episode_return"].tolist() == [1.0] * 4


def test_arrays_of_groups_of_agents_are_refused_too() -> None:
    with rollouts.make_vec("TagGridWorld-v0", 2, seed=1) as env:
        env.reset()
        name, other = (group.name for group in env.env_spec.groups)
        actions = env.action_space.sample()
        memory = np.zeros((2, 32))
        arrays = {group.name: memory[:, : group.num_agents] for group in env.env_spec.groups}
        del arrays[other]
        rewards = {name: np.ascontiguousarray(arrays[name])}
        with pytest.raises(SpecError, match=r"share memory: give each an array of its own"):
            env.send(actions, out={"reward": rewards, "episode_return": rewards})
        env.send(actions, out={"reward": rewards})
        env.recv()
