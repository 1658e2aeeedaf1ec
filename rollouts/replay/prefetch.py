# SPDX-License-Identifier: Apache-2.0
"""Samples ahead of the learner and moves the batches to its device."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any, cast

from numpy.typing import NDArray

from rollouts.errors import ProtocolError
from rollouts.replay.alone import sampling_ahead
from rollouts.replay.sampling import ReplayBatch, map_arrays
from rollouts.support.extras import needs

with needs("torch", "sampling to a device"):
    import torch

    from rollouts.device_queue import CudaMover, DeviceQueue
    from rollouts.policy import as_tensor

Array = NDArray[Any]


class ReplayPrefetcher(DeviceQueue):
    """Yields samples as tensors on one device, drawn by a thread of its own.

    At most `depth` batches are drawn but not yet taken. They are drawn with the priorities at the
    time of the draw. For a GPU a batch is put into pinned memory and copied in one transfer, on a
    stream of its own, while the learner works on the batch before.

    `get` and iteration end as those of `rollouts.device_queue.DeviceQueue`. Without a timeout they
    also raise the ProtocolError of `sample` where no thread is left that could add steps; the
    prefetcher goes on after this error.

    Example:
      with buffer.prefetch(256, device="cuda") as batches:
          for batch in batches:
              learn(batch)
    """

    def __init__(
        self,
        source: Callable[[float, Collection[int]], ReplayBatch],
        device: str | torch.device = "cpu",
        *,
        depth: int = 2,
    ) -> None:
        """Starts drawing; see `DeviceQueue`, except for the source.

        Args:
          source: Called with timeout_s and with the threads that wait without a timeout. If they
            would wait for ever it raises a ProtocolError, which one of them gets.
          device: As for `DeviceQueue`.
          depth: As for `DeviceQueue`.
        """
        self._sample = source
        super().__init__(cast(Any, source), device, depth=depth)

    def get(self, timeout_s: float | None = None) -> Any:
        """Takes the next batch, with tensors instead of arrays; see `DeviceQueue.get`."""
        return super().get(timeout_s)

    def __iter__(self) -> Iterator[Any]:
        """Takes batches until the prefetcher is closed."""
        return super().__iter__()

    def _run(self) -> None:
        with sampling_ahead(self._is_full):
            super()._run()

    def _is_full(self) -> bool:
        with self._changed:
            return len(self._ready) >= self._depth

    def _ask(self, timeout_s: float) -> Any:
        with self._changed:
            takers = set(self._endless)
        try:
            return self._sample(timeout_s, takers)
        except ProtocolError as error:
            if not takers:
                raise
            with self._changed:
                # a thread that has stopped waiting gets no error
                self._refusal = error if self._endless else None
                self._changed.notify_all()
            raise TimeoutError from None

    def _make_mover(self) -> Any:
        return _CpuMover() if self.device.type == "cpu" else _CudaMover(self.device)


def move(batch: ReplayBatch, device: str | torch.device) -> ReplayBatch:
    """Returns a batch with tensors instead of arrays; on the CPU they share the arrays' memory."""
    target = torch.device(device)
    moved: ReplayBatch = map_arrays(batch, lambda path, array: as_tensor(array).to(target))
    return moved


class _CpuMover:
    def move(self, batch: ReplayBatch) -> tuple[ReplayBatch, Callable[[], None]]:
        return move(batch, "cpu"), lambda: None


class _CudaMover:
    def __init__(self, device: torch.device) -> None:
        self._mover = CudaMover(device)

    def move(self, batch: ReplayBatch) -> tuple[ReplayBatch, Callable[[], None]]:
        """Starts the transfer; the returned function makes the taker's stream wait for its end."""
        arrays: dict[str, Array] = {}
        map_arrays(batch, lambda path, array: arrays.setdefault(path, array))
        tensors, hand_over = self._mover.transfer(arrays)
        return map_arrays(batch, lambda path, array: tensors[path]), hand_over
