# SPDX-License-Identifier: Apache-2.0
"""`DeviceStats`: what a pool of a GPU has done; `StepCost`: what its steps ask of one."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from rollouts.device.kernel import BlockShape
from rollouts.device.kernel_source import KernelSource


@dataclass(frozen=True, slots=True)
class DeviceStats:
    """Counts since the environments were made. Tensors are on the device: reading them waits.

    Attributes:
      env_steps: Steps of single environments that were launched; `reset` is none.
      num_launches: Kernels that were launched.
      num_episodes: () int64, episodes that ended.
      episode_length: () float64, their mean length; NaN where none ended.
      episode_return: () float64, their mean return; NaN where none ended.
    """

    env_steps: int
    num_launches: int
    num_episodes: Tensor
    episode_length: Tensor
    episode_return: Tensor


@dataclass(frozen=True, slots=True)
class StepCost:
    """What a step asks of a GPU.

    Attributes:
      source: The kernel's text.
      block: Of its launch.
      env_bytes: Moved to and from the GPU's memory for each environment: rows written, actions
        read, state read and written.
    """

    source: KernelSource
    block: BlockShape
    env_bytes: float
