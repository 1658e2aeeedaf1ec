# SPDX-License-Identifier: Apache-2.0
"""`StepCost`: what a step of a pool asks of a GPU."""

from __future__ import annotations

from dataclasses import dataclass

from rollouts.envs.kernel.kernel import BlockShape
from rollouts.envs.kernel.kernel_source import KernelSource


@dataclass(frozen=True, slots=True)
class StepCost:
    """Kernel, launch and memory traffic of a step.

    Attributes:
      source: The kernel's text.
      block: Threads of a block of its launch.
      env_bytes: Moved to and from the GPU's memory for each environment: rows written, actions
        read, state read and written; none of a state that is stepped where it lies.
    """

    source: KernelSource
    block: BlockShape
    env_bytes: float
