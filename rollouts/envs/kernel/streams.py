# SPDX-License-Identifier: Apache-2.0
"""`SideStream`: a stream for device work that the caller does not wait for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


class SideStream:
    """A second stream on a GPU; on the host, which has no streams, work is done at once."""

    def __init__(self, device: torch.device) -> None:
        """Makes the stream."""
        self._device = device
        self._done: torch.cuda.Event | None = None
        self._caller: torch.cuda.Stream | None = None
        self._stream: torch.cuda.Stream | None = None
        if device.type == "cuda":
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    @contextmanager
    def begin(self) -> Iterator[None]:
        """Runs the block's launches after all earlier work of the caller's stream, and beside its
        later work."""
        if self._stream is None:
            yield
            return
        self._caller = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(self._caller)
        with torch.cuda.stream(self._stream):
            try:
                yield
            finally:
                self._done = self._stream.record_event()

    def join(self) -> None:
        """Makes the caller's later launches follow the work that was begun; does not wait."""
        if self._done is not None:
            torch.cuda.current_stream(self._device).wait_event(self._done)
            self._done = None

    def __del__(self) -> None:
        # the memory belongs to the caller's stream, which could reuse it while this stream still
        # writes
        if self._done is not None and self._caller is not None:
            self._caller.wait_event(self._done)
