# SPDX-License-Identifier: Apache-2.0
"""`Sequence`: many launches that are replayed by one call."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
import warp as wp

from rollouts.envs.kernel.emulation import recording


class Sequence:
    """Launches that are captured in a graph once and replayed afterwards.

    On a GPU it is one CUDA graph of Warp's launches and of our own kernels. On the host it is a
    list: Warp's graphs, which loop over what was launched, and our own kernels between them.
    """

    def __init__(self, launch_all: Callable[[], None], device: torch.device) -> None:
        """Captures the launches. They must have run before, since a capture compiles nothing."""
        self._device = device
        # each is called with a Warp stream
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
        """Puts one of our own kernels between two of Warp's graphs."""
        self._end()
        self._parts.append(lambda stream: call())
        wp.capture_begin()

    def replay(self) -> None:
        """Launches the sequence on torch's current stream."""
        stream = stream_of(self._device)
        for part in self._parts:
            part(stream)


def stream_of(device: torch.device) -> Any:
    """Torch's current stream as a Warp object."""
    if device.type != "cuda":
        return None
    return wp.stream_from_torch(torch.cuda.current_stream(device))


def as_warp(device: torch.device) -> AbstractContextManager[Any]:
    """Makes Warp's stream torch's current one, on which our own kernels are launched."""
    if device.type != "cuda":
        return nullcontext()
    current: AbstractContextManager[Any] = torch.cuda.stream(wp.stream_to_torch(wp.get_stream()))
    return current
