# SPDX-License-Identifier: Apache-2.0
"""`Sequence`: launches that are replayed as one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import warp as wp


class Sequence:
    """Launches that are captured in a graph once and replayed from then on.

    A graph of CUDA's on a GPU; on the host Warp's own, a loop over what was launched.
    """

    def __init__(self, launch_all: Callable[[], None], device: torch.device) -> None:
        """Captures them. They must have run before, since a capture compiles nothing."""
        self._device = device
        with wp.ScopedCapture() as capture:
            launch_all()
        self._graph = capture.graph

    def replay(self) -> None:
        """Puts them on torch's current stream."""
        wp.capture_launch(self._graph, stream=stream_of(self._device))


def stream_of(device: torch.device) -> Any:
    """Torch's current one, as Warp has it."""
    if device.type != "cuda":
        return None
    return wp.stream_from_torch(torch.cuda.current_stream(device))
