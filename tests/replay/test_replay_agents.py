# SPDX-License-Identifier: Apache-2.0
"""Replay of one group's transitions: agents that leave early, and nothing of what follows."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from leaving_agents import LEAVING
from torch import Tensor, nn

import rollouts
from rollouts import Collector
from rollouts.policy import TorchPolicy
from rollouts.replay import NStep, ReplayBuffer, TableConfig

TAG = LEAVING | {"seed": 4, "autoreset_mode": "same_step"}
ROLLOUTS, STEPS, ENVS = 5, 14, 3
Transition = tuple[bytes, bytes, float, bytes, bool, bool]


class Agent(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.layer = nn.Linear(size, 23)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        out = self.layer(obs)
        return out[:, :22], out[:, 22]


def collect(engine: Any, env: rollouts.MultiAgentVectorEnv) -> list[rollouts.MultiAgentRollout]:
    torch.manual_seed(0)
    policies = {}
    for name, group in env.groups.items():
        assert group.single_observation_space.shape is not None
        module = Agent(group.single_observation_space.shape[0])
        policies[name] = TorchPolicy(module, group.single_action_space, seed=1)
    collector = Collector(env, policies, STEPS, engine=engine, keep_final_obs=True)
    return [collector.collect() for _ in range(ROLLOUTS)]


def steps_of(batches: list[Any], num_steps: int, gamma: float) -> list[Transition]:
    """Steps an equal pool with the same actions; each active step as its n-step transition."""
    found: list[Transition] = []
    with rollouts.make_multi_agent_vec("TagContinuous-v0", ENVS, **TAG) as env:
        obs, _ = env.reset()
        shape = (ENVS, 6)
        open_steps: dict[tuple[int, int], list[list[Any]]] = {
            (e, a): [] for e in range(ENVS) for a in range(6)
        }
        for rollout, t in itertools.product(batches, range(STEPS)):
            # an open episode's last step waits for the next rollout
            is_last = rollout is batches[-1] and t == STEPS - 1
            actions = {
                name: batch.action[t].reshape(ENVS, -1, 2) for name, batch in rollout.items()
            }
            before = obs["runner"]
            obs, reward, terminated, truncated, info = env.step(actions)
            for e, a in np.ndindex(shape):
                if not info["active"]["runner"][e, a]:
                    continue
                is_over = bool(info["ended"][e])
                after = info["final_obs"]["runner"] if is_over else obs["runner"]
                ends = bool(terminated["runner"][e, a]), bool(truncated["runner"][e, a])
                action = actions["runner"][e, a].astype(np.int32)
                steps = open_steps[e, a]
                steps.append([before[e, a].tobytes(), action.tobytes(), 0.0, 0])
                for each in steps:
                    each[2] += float(np.float32(reward["runner"][e, a])) * gamma ** each[3]
                    each[3] += 1
                done = [
                    each for each in steps if any(ends) or (each[3] == num_steps and not is_last)
                ]
                for each in done:
                    found.append((each[0], each[1], each[2], after[e, a].tobytes(), *ends))
                open_steps[e, a] = [] if any(ends) else steps[len(done) :]
    return found


@pytest.mark.parametrize("num_steps", [1, 3])
@pytest.mark.parametrize("engine", ["native", "torch"])
def test_items_are_the_steps_that_agents_took(engine: Any, num_steps: int) -> None:
    with rollouts.make_multi_agent_vec("TagContinuous-v0", ENVS, **TAG) as env:
        batches = collect(engine, env)
        group = env.groups["runner"]
        table = TableConfig(items=NStep(num_steps, 0.5))
        buffer = ReplayBuffer(group.single_observation_space, group.single_action_space, [table])
        for rollout in batches:
            buffer.add_batch(rollout["runner"])
    expected = steps_of(batches, num_steps, 0.5)
    with buffer:
        got: Any = buffer.gather(buffer.store.keys("replay"))
        found = sorted(
            (o.tobytes(), a.tobytes(), n.tobytes(), bool(t), bool(c), round(float(r), 5))
            for o, a, n, t, c, r in zip(
                got.obs,
                got.action.astype(np.int32),
                got.next_obs,
                got.terminated,
                got.truncated,
                got.reward,
                strict=True,
            )
        )
        steps = buffer.stats()["steps"]["produced"]
    wanted = sorted((o, a, n, t, c, round(r, 5)) for o, a, r, n, t, c in expected)
    assert found == wanted
    active = sum(int(rollout["runner"].extras["active"].sum()) for rollout in batches)
    assert steps == active < ROLLOUTS * STEPS * ENVS * 6
