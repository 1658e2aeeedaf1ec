# SPDX-License-Identifier: Apache-2.0
"""Code as users write it, which the project's `mypy` checks: each call has the type that it states.

Nothing runs it. mypy is strict: it also complains of an ignored error that is none.
"""

from __future__ import annotations

from typing import Any, assert_type

import numpy as np
import torch
from numpy.typing import NDArray

import rollouts

pool = rollouts.make_vec("CartPole-v1", 4, seed=1, gravity=9.8)
assert_type(pool, rollouts.VectorEnv[NDArray[Any]])
obs, info = pool.reset()
assert_type(obs, NDArray[Any])
assert_type(pool.stats(), rollouts.PoolStats)
obs, reward, terminated, truncated, info = pool.step(np.zeros(4, np.int64))
pool.send(np.zeros(4, np.int64), info["env_id"])
assert_type(pool.recv_batch(), rollouts.StepBatch)

device = rollouts.make_vec("CartPole-v1", 4, device="cuda", autoreset_mode="same_step")
assert_type(device, rollouts.VectorEnv[torch.Tensor])
seen, info = device.reset(options={"reset_mask": torch.ones(4, dtype=torch.bool)})
assert_type(seen, torch.Tensor)
seen, rewards, *_ = device.step(torch.zeros(4, dtype=torch.int64, device=device.device))
assert_type(device.rollout(10)[1], torch.Tensor)
assert_type(device.stats(), rollouts.DeviceStats)
device.synchronize()

agents = rollouts.make_vec("TagGridWorld-v0", 4)
assert_type(agents, rollouts.MultiAgentVectorEnv)
spaces = agents.single_action_spaces["tagger"]
there = rollouts.make_vec("simple_spread_v3", 4, device="cuda:1", obs_dtype="float16")
assert_type(there, rollouts.MultiAgentVectorEnv)
env_id: str = "simple_v3"
assert_type(rollouts.make_multi_agent_vec(env_id, 4), rollouts.MultiAgentVectorEnv)


def make(where: str | None) -> rollouts.VectorEnv[Any]:
    return rollouts.make_vec(env_id, device=where)


mixed = rollouts.make_vec(["CartPole-v0", "CartPole-v1"])
assert_type(mixed, rollouts.VectorEnv[NDArray[Any]])
rollouts.make_vec("CartPole-v1", num_threads=2, render_mode="rgb_array")
rollouts.make_vec("CartPole-v1", batchsize=2)  # type: ignore[call-overload]
rollouts.make_vec("CartPole-v1", seed="one")  # type: ignore[call-overload]
