# SPDX-License-Identifier: Apache-2.0
"""`StepCost`: a GPU's work for a step of a pool."""

from __future__ import annotations

from dataclasses import dataclass

from rollouts.envs.kernel.kernel import BlockShape
from rollouts.envs.kernel.kernel_source import KernelSource


@dataclass(frozen=True, slots=True)
class StepCost:
    """Kernel, launch and memory traffic of a step.

    Attributes:
      source: The kernel's text.
      block: The block of its launch.
      env_bytes: Bytes that move to and from the GPU's memory for each environment: rows written,
        actions read, state read and written, except a state that is stepped in place.
    """

    source: KernelSource
    block: BlockShape
    env_bytes: float
