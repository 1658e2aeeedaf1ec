# SPDX-License-Identifier: Apache-2.0
"""The interface of a kernel, on a GPU or on the host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from rollouts import _native
from rollouts.envs.kernel.kernel_source import KernelSource
from rollouts.envs.kernel.launch_args import Launch


@dataclass(frozen=True, slots=True)
class BlockShape:
    """A block of threads.

    Attributes:
      num_envs: Environments that it steps.
      num_threads: Its threads.
      shared_bytes: Bytes of memory that they share.
    """

    num_envs: int
    num_threads: int
    shared_bytes: int = 0


class Kernel(Protocol):
    """One compiled kernel.

    Attributes:
      most_shared_bytes: Bytes of memory that the threads of a block may share.
    """

    most_shared_bytes: int

    @property
    def num_launches(self) -> int:
        """The number of launches so far."""

    def step_entry(self, shared_bytes: int) -> _native.CudaEntry | None:
        """The object by which native code launches a step, with this much shared memory per block;
        None: only `launch` can launch."""

    def launch(
        self, args: Launch, num_blocks: int, num_threads: int, shared_bytes: int = 0
    ) -> None:
        """Runs `num_blocks` blocks of `num_threads` threads, which share memory."""
        ...


def make_kernel(source: KernelSource, device: torch.device, *, emulated: bool) -> Kernel:
    """Compiles a kernel for a device, or for the host in its place.

    Raises:
      EngineError: A compiler or library is missing. SpecError: The text does not compile.
    """
    if emulated:
        from rollouts.envs.kernel.emulation import HostKernel

        return HostKernel(source)
    from rollouts.envs.kernel.cuda import CudaKernel

    return CudaKernel(source, device)
