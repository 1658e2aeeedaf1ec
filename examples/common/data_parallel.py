# SPDX-License-Identifier: Apache-2.0
"""Several processes that learn one policy, each with environments and a device of its own.

`torchrun` starts them and gives each its number; without it there is one process.
"""

from __future__ import annotations

import os
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn


class Processes:
    """The processes that train together.

    Attributes:
      rank, count: This process's number, and the number of processes.
      device: This process's device; with "cuda" each process of a machine has a GPU of its own.
    """

    def __init__(self, device: str) -> None:
        """Connects to the others: by NCCL where they have GPUs, else by Gloo."""
        self.rank, self.count = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
        self.device = device
        if self.count > 1:
            if device == "cuda":
                self.device = f"cuda:{os.environ.get('LOCAL_RANK', 0)}"
                torch.cuda.set_device(self.device)
            dist.init_process_group("nccl" if device.startswith("cuda") else "gloo")
            # A group of its own, whose threads end in `close`. After DistributedDataParallel the
            # default group's threads go on, and a thread of Gloo that frees a tensor of Python
            # while the interpreter ends aborts the process.
            self._sums = dist.new_group()

    @property
    def is_first(self) -> bool:
        """Tells if this process prints and writes files."""
        return self.rank == 0

    def wrap(self, module: nn.Module) -> Any:
        """A module around this one, whose gradients are the mean over all processes."""
        return nn.parallel.DistributedDataParallel(module) if self.count > 1 else module

    def add_up(self, tensor: Tensor) -> Tensor:
        """Adds a tensor up over all processes, in place; returns it."""
        if self.count > 1:
            dist.all_reduce(tensor, group=self._sums)
        return tensor

    def close(self) -> None:
        """Disconnects from the others; may be called twice."""
        if self.count > 1 and dist.is_initialized():
            dist.destroy_process_group(self._sums)
            del self._sums  # ends the group's threads
            dist.destroy_process_group()
