# SPDX-License-Identifier: Apache-2.0
"""`Sequence`: launches that are replayed as one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
import warp as wp

from rollouts.envs.kernel.emulation import recording


class Sequence:
    """Launches that are captured in a graph once and replayed from then on.

    On a GPU it is a graph of CUDA's, of Warp's launches and of kernels of ours. On the host it is
    a list: Warp's own graphs, which are loops over what was launched, and kernels of ours between
    them.
    """

    def __init__(self, launch_all: Callable[[], None], device: torch.device) -> None:
        """Captures them. They must have run before, since a capture compiles nothing."""
        self._device = device
        # each is called with a stream of Warp's
        self._parts: list[Callable[[Any], None]] = []
        with as_warp(device), recording(self._cut):
            wp.capture_begin()
            try:
                launch_all()
            finally:
                self._end()

    def _end(self) -> None:
        self._parts.append(partial(wp.capture_launch, wp.capture_end()))

    def _cut(self, call: Callable[[], None]) -> None:
        """Puts a kernel of ours between two of Warp's graphs."""
        self._end()
        self._parts.append(lambda stream: call())
        wp.capture_begin()

    def replay(self) -> None:
        """Puts them on torch's current stream."""
        stream = stream_of(self._device)
        for part in self._parts:
            part(stream)


def stream_of(device: torch.device) -> Any:
    """Torch's current one, as Warp has it."""
    if device.type != "cuda":
        return None
    return wp.stream_from_torch(torch.cuda.current_stream(device))


def as_warp(device: torch.device) -> AbstractContextManager[Any]:
    """Makes Warp's stream torch's current one, on which kernels of ours are launched."""
    if device.type != "cuda":
        return nullcontext()
    current: AbstractContextManager[Any] = torch.cuda.stream(wp.stream_to_torch(wp.get_stream()))
    return current
