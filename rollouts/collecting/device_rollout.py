# SPDX-License-Identifier: Apache-2.0
"""T steps of environments of a GPU, as tensors that stay there: of one agent, or of groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class DeviceRollout:
    """T steps of B rows, time-major: environments, or the agents of a group.

    What `rollouts.RolloutBatch` is of a C++ pool; rows of agents are those of the first
    environment, then those of the next. Tensors lie on the device of the environments, and may not
    be computed yet: they are ready for what follows on the same stream.

    Attributes:
      obs               (T, B, *obs_shape) obs_dtype
      action            (T, B, *action_shape): int64, of MultiDiscrete int32, of boxes float32 as
                        sampled, before clipping
      reward            (T, B) float32
      terminated        (T, B) bool
      truncated         (T, B) bool
      bootstrap_value   (T, B) float32   V(final_obs) where truncated & ~terminated, else 0
      log_prob          (T, B) float32
      value             (T, B) float32   V(obs)
      last_obs          (B, *obs_shape) obs_dtype   what follows row T - 1
      last_value        (B,) float32     V(last_obs)
      env_id            (B,) int32; of agents env_id * A + the agent's place in its group
      episode_return    (T, B) float64   so far; complete where terminated | truncated
      episode_length    (T, B) int32     so far; of agents their environment's
      policy_version    Version of the weights that chose the actions.
      extras            name -> (T, B, ...)   outputs and returns that were asked for; of agents
                        "active" bool: who took part in the step
      policy_state      tuple of (B, ...)     of a policy with memory, before row 0
      final_obs         (T, B, *obs_shape) obs_dtype   what episodes ended with: valid where
                        terminated | truncated; None unless it was asked for
    """

    obs: Tensor
    action: Tensor
    reward: Tensor
    terminated: Tensor
    truncated: Tensor
    bootstrap_value: Tensor
    log_prob: Tensor
    value: Tensor
    last_obs: Tensor
    last_value: Tensor
    env_id: Tensor
    episode_return: Tensor
    episode_length: Tensor
    policy_version: int
    extras: dict[str, Tensor] = field(default_factory=dict)
    policy_state: tuple[Tensor, ...] = ()
    final_obs: Tensor | None = None

    @property
    def num_steps(self) -> int:
        """Steps of all rows: T * B."""
        return self.reward.numel()

    @property
    def batch_shape(self) -> tuple[int, int]:
        """(T, B)."""
        return (len(self.reward), self.reward.shape[1])

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors together."""
        sizes: list[int] = []
        self._map(lambda one: sizes.append(one.nbytes))
        return sum(sizes)

    def on_host(self) -> DeviceRollout:
        """The same in the host's memory, each tensor contiguous; itself where it is so already."""
        return DeviceRollout(**self._map(lambda one: one.cpu().contiguous()))

    def contiguous(self) -> DeviceRollout:
        """The same with each tensor contiguous."""
        return DeviceRollout(**self._map(lambda one: one.contiguous()))

    def copied(self) -> DeviceRollout:
        """A copy on the same device, which is complete when this returns."""
        copy = DeviceRollout(**self._map(lambda one: one.clone()))
        if self.obs.is_cuda:
            torch.cuda.current_stream(self.obs.device).synchronize()
        return copy

    def _map(self, function: Callable[[Tensor], Any]) -> dict[str, Any]:
        """Every field by name, with the function's value in place of each tensor."""
        found: dict[str, Any] = {}
        for one in fields(self):
            value = getattr(self, one.name)
            if isinstance(value, Tensor):
                value = function(value)
            elif isinstance(value, dict):
                value = {name: function(each) for name, each in value.items()}
            elif isinstance(value, tuple):
                value = tuple(function(each) for each in value)
            found[one.name] = value
        return found


class MultiAgentDeviceRollout(dict[str, DeviceRollout]):
    """T steps of environments of a GPU with several agents: group -> the rows of its agents.

    Attributes:
      num_envs   Environments N.
    """

    def __init__(self, groups: Mapping[str, DeviceRollout], num_envs: int) -> None:
        """Takes the rollout of each group, all of the same T steps of `num_envs` environments."""
        super().__init__(groups)
        self.num_envs = num_envs

    @property
    def batch_shape(self) -> tuple[int, int]:
        """(T, N)."""
        return (len(next(iter(self.values())).reward), self.num_envs)

    @property
    def num_steps(self) -> int:
        """Environment steps: T * N."""
        steps, num_envs = self.batch_shape
        return steps * num_envs

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors together."""
        return sum(one.nbytes for one in self.values())

    @property
    def policy_version(self) -> int:
        """The oldest of the groups'."""
        return min(one.policy_version for one in self.values())

    def on_host(self) -> MultiAgentDeviceRollout:
        """As of a `DeviceRollout`."""
        return self._map(DeviceRollout.on_host)

    def contiguous(self) -> MultiAgentDeviceRollout:
        """As of a `DeviceRollout`."""
        return self._map(DeviceRollout.contiguous)

    def copied(self) -> MultiAgentDeviceRollout:
        """As of a `DeviceRollout`."""
        return self._map(DeviceRollout.copied)

    def _map(self, function: Callable[[DeviceRollout], DeviceRollout]) -> MultiAgentDeviceRollout:
        groups = {name: function(one) for name, one in self.items()}
        return MultiAgentDeviceRollout(groups, self.num_envs)
