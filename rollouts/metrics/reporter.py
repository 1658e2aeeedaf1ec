# SPDX-License-Identifier: Apache-2.0
"""MetricsReporter: reads stats at an interval and passes them to sinks; never stops a training."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Protocol, Self

from rollouts.errors import ClosedError, SpecError
from rollouts.metrics.sample import Sample, Sampler
from rollouts.support import at_exit
from rollouts.support.no_room import start_thread

_log = logging.getLogger(__name__)

_JOIN_TIMEOUT_S = 10.0


class Sink(Protocol):
    """A receiver of samples, called by one thread at a time; an exception loses one sample."""

    def write(self, sample: Sample) -> None: ...

    def close(self) -> None: ...


class MetricsReporter:
    """Reads `stats` every `interval_s` on a thread of its own and writes each sample to the sinks.

    An exception of `stats` or of a sink is logged, once for each of them; the other sinks go on.
    """

    def __init__(
        self,
        stats: Callable[[], Mapping[str, Any]],
        sinks: Sequence[Sink],
        *,
        interval_s: float | None = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Starts the thread; the first sample is taken at once.

        Args:
          stats: A function such as `coordinator.stats`; called from the thread.
          sinks: Closed together with the reporter.
          interval_s: Seconds between samples; None starts no thread: call `report`.
          clock: Returns seconds that never go back.
        Raises:
          SpecError: interval_s is not above 0.
        """
        if interval_s is not None and not interval_s > 0:
            raise SpecError(f"interval_s is {interval_s}, expected more than 0, or None")
        self._stats = stats
        self._sinks = list(sinks)
        self._clock = clock
        self._sampler = Sampler()
        self._logged: set[int] = set()
        self._lock = threading.Lock()  # held while sampling and writing
        self._closed = False
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        if interval_s is not None:
            self._thread = threading.Thread(
                target=self._run, args=(interval_s,), name="rollouts-metrics", daemon=True
            )
            start_thread(self._thread)
        at_exit.call_at_exit(self._close)

    def report(self) -> Sample | None:
        """Takes a sample now and writes it. May be called from any thread.

        Returns:
          The sample; None if `stats` raised.
        Raises:
          ClosedError: the reporter was closed.
        """
        with self._lock:
            if self._closed:
                raise ClosedError("the metrics reporter is closed")
            return self._report(is_last=False)

    def close(self) -> None:
        """Stops the thread, writes a last sample and closes the sinks. Idempotent.

        Call it before closing the object behind `stats`, so that the last sample is the final
        count. Waits at most 10 s for a sink that hangs, and then does not close the sinks.
        """
        self._close(_JOIN_TIMEOUT_S)

    def _close(self, timeout_s: float = at_exit.TIMEOUT_S) -> None:
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(timeout_s)
            if self._thread.is_alive():
                _log.warning("a metrics sink hangs: the last metrics are not written")
                return
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._report(is_last=True)
            for sink in self._sinks:
                self._guard(sink, sink.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _run(self, interval_s: float) -> None:
        while not self._stopping.is_set():
            with self._lock:
                self._report(is_last=False)
            self._stopping.wait(interval_s)

    def _report(self, *, is_last: bool) -> Sample | None:
        try:
            stats = self._stats()
            sample = self._sampler.sample(stats, self._clock(), is_last=is_last)
        except Exception:
            self._log_once(self._stats, "reading the stats failed")
            return None
        for sink in self._sinks:
            self._guard(sink, lambda sink=sink: sink.write(sample))  # type: ignore[misc]
        return sample

    def _guard(self, sink: Sink, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception:
            self._log_once(sink, f"{type(sink).__name__} failed")

    def _log_once(self, source: object, what: str) -> None:
        if id(source) not in self._logged:
            self._logged.add(id(source))
            _log.warning(
                "%s; the training goes on, later errors are not shown", what, exc_info=True
            )
