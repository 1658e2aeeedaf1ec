# SPDX-License-Identifier: Apache-2.0
"""A torch loop over EnvPool, as its users write it, for `rollouts bench collect`."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from gymnasium import spaces

from comparisons.stepping.vector_libraries import EnvPool
from rollouts.bench.collect_task import Task
from rollouts.errors import SpecError
from rollouts.support.extras import needs

with needs("torch", "peer 'envpool-torch'"):
    import torch
    from torch import Tensor
    from torch.distributions import Categorical, Distribution, Normal

    from rollouts.policy import TorchPolicy


class EnvPoolTorch:
    """Forward, sample and log_prob in torch's inference mode; rollouts in arrays made once."""

    name = "EnvPool, torch loop"
    api = "step"
    notes: tuple[str, ...] = (
        "The row that begins an episode counts as a step; actions of a Box are clipped.",
    )

    def __init__(self, task: Task, num_envs: int) -> None:
        """Makes the pool and the network of our own policy.

        Raises:
          SpecError: EnvPool does not have the environment, or not with these options.
          EngineError: It is not installed.
        """
        policy = task.local_policy(num_envs)
        if not isinstance(policy, TorchPolicy):
            raise SpecError(f"peer 'envpool-torch' has no policy {task.policy.name!r}")
        sizes = dataclasses.replace(task.settings, num_envs=num_envs, batch_size=num_envs)
        opened = EnvPool().make(sizes, task.spec)
        self.num_envs, self.num_threads = num_envs, opened.num_threads
        self._version, self._close = opened.version, opened.close
        self._env, self._module = opened.env, policy.module
        space = task.spec.single_action_space
        self._bounds = (space.low, space.high) if isinstance(space, spaces.Box) else None
        self._obs = torch.from_numpy(self._env.reset()[0])
        self._arrays = _arrays(task.rollout_length, self._obs, space)

    def version(self) -> str:
        return self._version

    def resume(self) -> None:
        self.collect()

    @torch.inference_mode()
    def collect(self) -> int:
        arrays = self._arrays
        num_steps = len(arrays["reward"])
        for t in range(num_steps):
            *params, value = self._module(self._obs)
            distribution = self._distribution(params)
            action = distribution.sample()
            log_prob = distribution.log_prob(action)
            arrays["obs"][t] = self._obs
            arrays["action"][t] = action
            arrays["log_prob"][t] = log_prob if self._bounds is None else log_prob.flatten(1).sum(1)
            arrays["value"][t] = value.flatten()
            self._step(t, action)
        arrays["last_value"][:] = self._module(self._obs)[-1].flatten()
        return num_steps * self.num_envs

    def pause(self) -> None:
        """Every step is over when `collect` returns."""

    def close(self) -> None:
        self._close()

    def _distribution(self, params: list[Tensor]) -> Distribution:
        if self._bounds is None:
            return Categorical(logits=params[0])
        mean, log_std = params
        return Normal(mean, log_std.exp().expand_as(mean))

    def _step(self, t: int, action: Tensor) -> None:
        given = action.numpy()
        if self._bounds is not None:
            given = np.clip(given, *self._bounds)
        obs, reward, terminated, truncated, _ = self._env.step(given)
        self._obs = torch.from_numpy(obs)
        self._arrays["reward"][t] = torch.from_numpy(reward)
        self._arrays["terminated"][t] = torch.from_numpy(terminated)
        self._arrays["truncated"][t] = torch.from_numpy(truncated)


def _arrays(num_steps: int, obs: Tensor, space: spaces.Space[Any]) -> dict[str, Tensor]:
    """Tensors (T, B, ...) by name, and last_value (B,)."""
    rows = num_steps, len(obs)
    action_dtype = torch.float32 if isinstance(space, spaces.Box) else torch.int64
    scalars = {name: torch.zeros(rows) for name in ("log_prob", "value", "reward")}
    ends = {name: torch.zeros(rows, dtype=torch.bool) for name in ("terminated", "truncated")}
    return {
        "obs": torch.zeros((num_steps, *obs.shape), dtype=obs.dtype),
        "action": torch.zeros((*rows, *(space.shape or ())), dtype=action_dtype),
        "last_value": torch.zeros(len(obs)),
        **scalars,
        **ends,
    }
