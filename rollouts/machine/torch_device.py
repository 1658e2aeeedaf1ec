# SPDX-License-Identifier: Apache-2.0
"""Checks the device for torch."""

from __future__ import annotations

import torch

from rollouts.errors import SpecError


def read_device(device: str | torch.device) -> torch.device:
    """Reads a device.

    Raises:
      SpecError: torch has no such device, or it is a CUDA device and there is none.
    """
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise SpecError(
            f"device is {device!r}, expected one of torch, such as 'cpu' or 'cuda': {error}"
        ) from error
    if found.type == "cuda" and not torch.cuda.is_available():
        raise SpecError(
            f"device is {str(device)!r}, and torch {torch.__version__} finds no CUDA device here: "
            "leave it out to use the CPU"
        )
    if found.type == "cuda" and (found.index or 0) >= (count := torch.cuda.device_count()):
        raise SpecError(
            f"device is {str(device)!r}, expected 'cuda:0' to 'cuda:{count - 1}', which exist"
        )
    return found
