# SPDX-License-Identifier: Apache-2.0
"""A kernel, wherever it runs."""

from __future__ import annotations

from typing import Protocol

import torch

from rollouts.device.kernel_source import KernelSource
from rollouts.device.launch_args import Launch


class Kernel(Protocol):
    """One compiled kernel; `num_launches` counts its launches."""

    num_launches: int

    def launch(
        self, args: Launch, num_blocks: int, num_threads: int, shared_bytes: int = 0
    ) -> None:
        """Runs `num_blocks` blocks of `num_threads` threads, which share memory."""
        ...


def make_kernel(source: KernelSource, device: torch.device, *, emulated: bool) -> Kernel:
    """Compiles a kernel for a device, or for the host in its place.

    Raises:
      EngineError: What it needs is missing. SpecError: The text does not compile.
    """
    if emulated:
        from rollouts.device.emulation import HostKernel

        return HostKernel(source)
    from rollouts.device.cuda import CudaKernel

    return CudaKernel(source, device)
