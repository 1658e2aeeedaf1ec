# SPDX-License-Identifier: Apache-2.0
"""Fetches rollouts ahead of the learner and moves them to its device.

For a GPU the arrays of a batch are put into one pinned buffer and copied in one transfer, on a
stream of its own, while the learner works on the batch before. For the CPU nothing is copied.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from rollouts.batch import PER_ENV, TIME_MAJOR, EndedEpisodes, RolloutBatch, check_rollout
from rollouts.checks import check_source
from rollouts.errors import ClosedError, SpecError
from rollouts.support import at_exit
from rollouts.support.extras import needs
from rollouts.support.no_room import start_thread

with needs("torch", "moving batches to a device"):
    import torch
    from torch import Tensor

    from rollouts.machine.torch_device import read_device
    from rollouts.policy import as_tensor

_log = logging.getLogger(__name__)

Array = NDArray[Any]
Source = Callable[[float], RolloutBatch]

# longest time that one call of the source may wait, so that close() is noticed
_SLICE_S = 0.5
_JOIN_TIMEOUT_S = 10.0

# bytes; the alignment of CUDA's own allocations
_ALIGNMENT = 512


class DeviceQueue:
    """Yields batches of tensors in the order of the source, fetched by a thread of its own.

    Their `episodes` are NumPy arrays that are counted already, because reading them from a GPU
    would make the learner wait. On the CPU the tensors share the memory of the source's batch,
    which is read-only if it came through Ray: do not write to them. final_obs is for a replay and
    is left out. Rollouts of a device's environments need no queue, and are refused; for
    environments with several agents the source returns one group's.

    At most `depth` batches are fetched but not taken, including the one on its way: a slow learner
    makes the source wait, and thereby the workers. Any number of threads may take batches.

    `get` and iteration end with a batch, `timeout_s`, the source's exception (after the batches
    before it), the source's StopIteration, which ends iteration, or `close`.

    Example:
      with DeviceQueue(lambda timeout_s: coordinator.get(4, timeout_s), "cuda") as batches:
          for batch in batches:
              learn(batch)
    """

    def __init__(
        self, source: Source, device: str | torch.device = "cpu", *, depth: int = 2
    ) -> None:
        """Starts fetching.

        Args:
          source: Called with timeout_s, from one thread; returns the next batch. It may raise
            TimeoutError after about timeout_s, and is then called again; StopIteration when there
            is no other batch; or any other exception, which `get` raises. A source that ignores
            timeout_s delays `close`.
          device: The learner's device: the CPU or a CUDA device.
          depth: Most batches fetched and not yet taken; 2 lets one be copied while one waits.
        Raises:
          SpecError: depth < 1, or the device is neither CPU nor CUDA, or does not exist.
          DTypeError: source cannot be called.
        """
        check_source(source)
        if depth < 1:
            raise SpecError(f"depth is {depth}, expected at least 1 batch")
        self.device = read_device(device)
        if self.device.type not in ("cpu", "cuda"):
            raise SpecError(f"device is {device}, expected the CPU or a CUDA device")
        self._source = source
        self._depth = depth
        if self.device.type == "cuda" and self.device.index is None:
            self.device = torch.device("cuda", torch.cuda.current_device())
        self._mover = self._make_mover()
        # guards all attributes below
        self._changed = threading.Condition(threading.Lock())
        self._ready: deque[tuple[RolloutBatch[Tensor], Callable[[], None]]] = deque()
        self._num_reserved = 0
        self._failure: BaseException | None = None
        self._endless: set[int] = set()  # threads that wait without a timeout
        self._refusal: Exception | None = None  # raised in one of them, as it would wait for ever
        self._closed = False
        self._num_delivered = self._num_discarded = 0
        self._thread = threading.Thread(target=self._run, name="rollouts-device", daemon=True)
        start_thread(self._thread)
        at_exit.call_at_exit(self._close)

    def get(self, timeout_s: float | None = None) -> RolloutBatch[Tensor]:
        """Takes the next batch; on CUDA the caller's current stream waits for it, not the caller.

        Raises:
          TimeoutError: no batch within timeout_s; None waits for ever.
          ClosedError: the queue was closed, or the source has ended.
          DTypeError: the source did not return one group's rollout of NumPy arrays.
          Exception: the source's exception; every later call raises it too.
        """
        with at_exit.silent_at_exit(), self._changed:
            self._wait_for_batch(timeout_s)
            if self._closed:
                raise ClosedError("the device queue is closed")
            if not self._ready:
                assert self._failure is not None
                if isinstance(self._failure, StopIteration):
                    raise ClosedError("the source of the device queue has no more batches")
                raise self._failure
            batch, hand_over = self._ready.popleft()
            self._num_reserved -= 1
            self._num_delivered += 1
            self._changed.notify_all()
        hand_over()
        return batch

    def _wait_for_batch(self, timeout_s: float | None) -> None:
        """Waits, with the lock, until there is a batch or the queue has ended; see `get`."""
        if timeout_s is not None:
            if not self._changed.wait_for(lambda: self._ready or self._is_over, timeout_s):
                raise TimeoutError(f"no batch reached the device queue within {timeout_s} s")
            return
        thread = threading.get_ident()
        self._endless.add(thread)
        try:
            self._changed.wait_for(lambda: self._ready or self._is_over or self._refusal)
        finally:
            self._endless.discard(thread)
            refusal, self._refusal = self._refusal, None
        if refusal is not None and not (self._ready or self._is_over):
            raise refusal

    def __iter__(self) -> Iterator[RolloutBatch[Tensor]]:
        """Takes batches until the source ends or the queue is closed."""
        while True:
            try:
                yield self.get()
            except ClosedError:
                # a ClosedError of the source itself is passed on to the learner
                with self._changed:
                    if self._closed or isinstance(self._failure, StopIteration):
                        return
                raise

    def stats(self) -> dict[str, int]:
        """Returns batches "delivered", "held" (fetched, not taken) and "discarded" by close."""
        with self._changed:
            return {
                "delivered": self._num_delivered,
                "held": len(self._ready),
                "discarded": self._num_discarded,
            }

    def close(self) -> None:
        """Wakes all threads that wait, and drops fetched batches, which `stats` counts. Idempotent.

        Waits for the call of the source that is in progress, at most 10 s.
        """
        self._close(_JOIN_TIMEOUT_S)
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            _log.warning("the source of a device queue does not return: close the source too")

    def _close(self, timeout_s: float = at_exit.TIMEOUT_S) -> None:
        with self._changed:
            self._closed = True
            self._num_discarded += len(self._ready)
            self._ready.clear()
            self._changed.notify_all()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _make_mover(self) -> _Mover:
        return _CpuMover() if self.device.type == "cpu" else CudaMover(self.device)

    @property
    def _is_over(self) -> bool:
        return self._closed or self._failure is not None

    def _is_closed(self) -> bool:
        with self._changed:
            return self._closed

    def _run(self) -> None:
        try:
            while self._reserve():
                batch = self._fetch()
                if batch is None:
                    return
                moved = self._mover.move(batch)
                del batch
                with self._changed:
                    if self._closed:
                        self._num_discarded += 1
                        return
                    self._ready.append(moved)
                    self._changed.notify_all()
                del moved
        except BaseException as error:
            # threads that wait for batches must not wait for ever after an error
            with self._changed:
                self._failure = error
                self._changed.notify_all()

    def _reserve(self) -> bool:
        """Waits for room for one more batch; False once closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._num_reserved < self._depth)
            self._num_reserved += 1
            return not self._closed

    def _ask(self, timeout_s: float) -> RolloutBatch:
        return self._source(timeout_s)

    def _fetch(self) -> RolloutBatch | None:
        """Calls the source until it returns a batch; None once closed."""
        while not self._is_closed():
            start = time.monotonic()
            try:
                return self._ask(_SLICE_S)
            except TimeoutError:
                # a source that gives up at once must not be called in a busy loop
                rest_s = _SLICE_S - (time.monotonic() - start)
                with self._changed:
                    self._changed.wait_for(lambda: self._closed, max(0.0, rest_s))
        return None


class _Mover(Protocol):
    """A mover of batches to a device; used by one thread."""

    def move(self, batch: RolloutBatch) -> tuple[RolloutBatch[Tensor], Callable[[], None]]:
        """Returns the batch, and a function that the thread that takes it must call first."""
        ...


class _CpuMover:
    def move(self, batch: RolloutBatch) -> tuple[RolloutBatch[Tensor], Callable[[], None]]:
        tensors = {name: as_tensor(array) for name, array in _arrays(batch).items()}
        return _device_batch(tensors, batch.episodes()), lambda: None


class CudaMover:
    """Copies batches to a GPU through two pinned buffers, which are used in turn."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream: torch.cuda.Stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._buffers: list[tuple[Tensor, torch.cuda.Event] | None] = [None, None]
        self._turn = 0

    def move(self, batch: RolloutBatch) -> tuple[RolloutBatch[Tensor], Callable[[], None]]:
        """Starts the transfer; the returned function makes the taker's stream wait for its end."""
        tensors, hand_over = self.transfer(_arrays(batch))
        return _device_batch(tensors, batch.episodes()), hand_over

    def transfer(self, arrays: Mapping[str, Array]) -> tuple[dict[str, Tensor], Callable[[], None]]:
        """Does the work of `move` for named arrays, in one copy."""
        layout = BufferLayout(arrays)
        pinned, copied = self._free_buffer(layout.nbytes)
        layout.write(pinned)
        with torch.cuda.stream(self._stream):
            flat = torch.empty(layout.nbytes, dtype=torch.uint8, device=self._device)
            flat.copy_(pinned[: layout.nbytes], non_blocking=True)
            copied.record(self._stream)
        ready = _event()
        ready.record(self._stream)

        def hand_over() -> None:
            stream = torch.cuda.current_stream(self._device)
            stream.wait_event(ready)
            # the memory belongs to the copying stream: record_stream delays its reuse until the
            # taker's stream has used it
            flat.record_stream(stream)

        return layout.views(flat), hand_over

    def _free_buffer(self, nbytes: int) -> tuple[Tensor, torch.cuda.Event]:
        """Returns a pinned buffer of at least `nbytes` whose last transfer is over."""
        index = self._turn
        self._turn = 1 - self._turn
        current = self._buffers[index]
        if current is not None:
            current[1].synchronize()
            if current[0].numel() >= nbytes:
                return current
        buffer = torch.empty(nbytes, dtype=torch.uint8, pin_memory=True)
        self._buffers[index] = current = buffer, _event()
        return current


def _event() -> torch.cuda.Event:
    event: torch.cuda.Event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    return event


class BufferLayout:
    """Arrays side by side in one buffer of bytes, each at an aligned offset."""

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        self._arrays = arrays
        self._offsets: dict[str, int] = {}
        self.nbytes = 0
        for name, array in arrays.items():
            self._offsets[name] = self.nbytes
            self.nbytes += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT

    def write(self, buffer: Tensor) -> None:
        """Copies the arrays into a buffer (at least nbytes,) uint8 in host memory."""
        target = buffer.numpy()
        for name, array in self._arrays.items():
            start = self._offsets[name]
            room = target[start : start + array.nbytes]
            np.copyto(room.view(array.dtype).reshape(array.shape), array)

    def views(self, buffer: Tensor) -> dict[str, Tensor]:
        """Returns the arrays as tensors on the memory of a buffer on any device."""
        views = {}
        for name, array in self._arrays.items():
            start = self._offsets[name]
            dtype = torch.from_numpy(np.empty(0, array.dtype)).dtype
            room = buffer[start : start + array.nbytes]
            views[name] = room.view(dtype).reshape(array.shape)
        return views


def _arrays(batch: RolloutBatch) -> dict[str, Array]:
    """Returns the arrays to move by name; also "extras.<name>" and "policy_state.<index>"."""
    check_rollout(batch, "a DeviceQueue")
    arrays = {name: getattr(batch, name) for name in (*TIME_MAJOR, *PER_ENV)}
    arrays |= {f"extras.{name}": array for name, array in batch.extras.items()}
    return arrays | {f"policy_state.{i}": array for i, array in enumerate(batch.policy_state)}


def _device_batch(tensors: dict[str, Any], episodes: EndedEpisodes) -> RolloutBatch[Tensor]:
    extras, policy_state = {}, []
    for name in [name for name in tensors if name not in (*TIME_MAJOR, *PER_ENV)]:
        if name.startswith("extras."):
            extras[name.removeprefix("extras.")] = tensors.pop(name)
        else:
            policy_state.append(tensors.pop(name))
    return RolloutBatch(
        **tensors,
        extras=extras,
        policy_state=tuple(policy_state),
        counted=episodes._replace(final_obs=None),
    )
