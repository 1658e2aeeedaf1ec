# SPDX-License-Identifier: Apache-2.0
"""Native gradient steps of several processes: one mean of their gradients, by torch.distributed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollouts.errors import SpecError
from rollouts.learner.module_steps import Average
from rollouts.support.extras import needs

with needs("torch", "mean_over_processes"):
    import torch
    import torch.distributed as dist
    from torch import nn


def mean_over_processes(group: Any = None) -> Average:
    """Returns the `average` for a learner that trains together with those of other processes.

    Args:
      group: A group of torch.distributed, with a backend that adds arrays on CPUs, such as "gloo";
        None: the default group.

    Raises:
      SpecError: There is no group: init_process_group was not called.
    """
    _check_group()
    count = dist.get_world_size(group)

    def average(numbers: NDArray[np.float32]) -> None:
        tensor = torch.from_numpy(numbers)
        dist.all_reduce(tensor, group=group)
        tensor /= count

    return average


def share_weights(module: nn.Module, group: Any = None) -> None:
    """Copies the parameters and buffers of the first process's module to all processes, in place.

    Args:
      module: The module of the calling process.
      group: As for `mean_over_processes`.

    Raises:
      SpecError: As `mean_over_processes`.
    """
    _check_group()
    first = 0 if group is None else dist.get_global_rank(group, 0)
    with torch.no_grad():
        for each in (*module.parameters(), *module.buffers()):
            dist.broadcast(each, first, group=group)


def _check_group() -> None:
    if not (dist.is_available() and dist.is_initialized()):
        raise SpecError(
            "there is no group of processes: call torch.distributed.init_process_group('gloo'), "
            "for which torchrun says to each process which it is"
        )
