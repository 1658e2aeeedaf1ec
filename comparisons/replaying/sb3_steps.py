# SPDX-License-Identifier: Apache-2.0
"""Stable-Baselines3's replay buffer, for `rollouts bench replay --workload add_step`."""

from __future__ import annotations

import importlib
from typing import Any

from rollouts.bench.replay_own import Given
from rollouts.bench.replay_steps import CAPACITY, step_spaces
from rollouts.replay.acted import GymnasiumStep


class Sb3:
    """stable_baselines3.common.buffers.ReplayBuffer on the CPU, as OffPolicyAlgorithm uses it."""

    def __init__(self, num_envs: int) -> None:
        """Makes an empty buffer."""
        buffers = importlib.import_module("stable_baselines3.common.buffers")
        self._buffer = buffers.ReplayBuffer(
            CAPACITY, *step_spaces(), device="cpu", n_envs=num_envs, handle_timeout_termination=True
        )
        self._infos: list[dict[str, Any]] = [{} for _ in range(num_envs)]

    def add(self, given: Given, step: GymnasiumStep) -> None:
        """See StepBuffer."""
        obs, action = given
        next_obs, reward, terminated, truncated, _ = step
        self._buffer.add(obs, next_obs, action, reward, terminated | truncated, self._infos)

    def sample(self, batch_size: int) -> Any:
        """See StepBuffer."""
        return self._buffer.sample(batch_size)
