# SPDX-License-Identifier: Apache-2.0
"""`LaunchGraph`: many launches that are recorded once and started as one."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch

from rollouts.envs.kernel.emulation import recording
from rollouts.errors import SpecError


class LaunchGraph(ABC):
    """Launches with fixed arguments, whose data may change.

    The first time they are launched one by one, so that libraries allocate memory that they need.
    The second time they are recorded.
    """

    def __init__(self) -> None:
        """Makes an empty graph; the second `run` records."""
        self._key: Any = None
        self.is_recorded = False

    def run(self, key: Any, launch: Callable[[], None]) -> None:
        """Runs `launch()`, or replays what it launched before.

        Args:
          key: Equal as long as `launch` launches the same with the same arguments.
          launch: Launches all kernels, without waiting for the device.

        Raises:
          SpecError: `launch` does something that a graph cannot record.
        """
        if key != self._key:
            # if a launch fails, nothing counts as recorded
            self._key, self.is_recorded = None, False
            launch()
            self._key = key
            return
        if not self.is_recorded:
            self._record(launch)
            self.is_recorded = True
        self._replay()

    @abstractmethod
    def _record(self, launch: Callable[[], None]) -> None:
        """Records launches without running them."""

    @abstractmethod
    def _replay(self) -> None:
        """Runs the recorded launches."""


class CudaGraph(LaunchGraph):
    """A CUDA graph; all graphs of `pool` share its memory, so only one of them runs at a time."""

    def __init__(self, device: torch.device, pool: Any, stream: Any) -> None:
        """Records on a stream of `device`, the same for all graphs of a pool."""
        super().__init__()
        self._device, self._pool, self._stream = device, pool, stream
        self._graph: Any = None

    def _record(self, launch: Callable[[], None]) -> None:
        before = torch.cuda.current_stream(self._device)
        self._graph = torch.cuda.CUDAGraph()
        # torch's own stream for recording belongs to the first device that recorded; and the work
        # of other threads, such as allocations, must not disturb this recording
        graph = torch.cuda.graph(
            self._graph,
            pool=self._pool,
            stream=self._stream,
            capture_error_mode="thread_local",
        )
        try:
            # if a recording fails, torch does not restore the current stream
            with torch.cuda.device(self._device), torch.cuda.stream(before), graph:
                launch()
        except RuntimeError as error:
            self._end_memory()
            self._end_random_numbers()
            raise SpecError(
                "the policy's module does what a CUDA graph cannot record, such as waiting for a "
                f"number of the device: leave cuda_graph out ({error})"
            ) from error

    def _end_memory(self) -> None:
        """Ends torch's use of the graph's memory pool, which a failed recording leaves open."""
        with suppress(RuntimeError):
            torch._C._cuda_endAllocateToPool(self._device.index, self._pool)

    def _end_random_numbers(self) -> None:
        """Ends the recording of torch's random numbers, which otherwise raise after a failure.

        A recording that succeeds ends it, even an empty one.
        """
        with warnings.catch_warnings(), torch.cuda.device(self._device):
            warnings.filterwarnings("ignore", "The CUDA Graph is empty")
            with torch.cuda.graph(
                torch.cuda.CUDAGraph(), stream=self._stream, capture_error_mode="thread_local"
            ):
                pass

    def _replay(self) -> None:
        self._graph.replay()


class HostGraph(LaunchGraph):
    """HostGraph: records and replays kernels that the host runs, as CudaGraph does on a GPU."""

    def __init__(self) -> None:
        """Makes an empty graph; the second `run` records."""
        super().__init__()
        self._calls: list[Callable[[], None]] = []

    def _record(self, launch: Callable[[], None]) -> None:
        self._calls = []
        with recording(self._calls.append):
            launch()

    def _replay(self) -> None:
        for call in self._calls:
            call()


def make_graphs(device: torch.device, *, emulated: bool) -> Callable[[], LaunchGraph]:
    """Returns a function that makes graphs; one of them runs at a time."""
    if emulated:
        return HostGraph
    pool = torch.cuda.graph_pool_handle()
    stream: Any = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    return lambda: CudaGraph(device, pool, stream)
