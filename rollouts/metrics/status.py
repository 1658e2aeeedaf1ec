# SPDX-License-Identifier: Apache-2.0
"""The status file of a run, which `rollouts top` reads: a local file, without any server."""

from __future__ import annotations

import contextlib
import json
import math
import os
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rollouts.errors import SpecError
from rollouts.metrics.metrics_table import workers_of
from rollouts.metrics.sample import Sample
from rollouts.support.whole_file import replace_whole

FILE_NAME = "status.json"
_FORMAT = "rollouts status 1"

_MAX_BYTES = 2**25  # far more than any status needs; a larger file is something else

# a run counts as silent if its status is older than this many intervals plus this many seconds
_PATIENCE = 3.0
_PATIENCE_S = 5.0

State = Literal["running", "finished", "gone", "silent"]


class StatusFileSink:
    """Keeps `<run_dir>/status.json` up to date, replacing it whole each time.

    The file is JSON, readable by this user only, and holds the last sample.
    """

    def __init__(
        self,
        run_dir: str | os.PathLike[str],
        *,
        interval_s: float = 5.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Makes the directory.

        Args:
          run_dir: Directory of the run's outputs.
          interval_s: Interval of the reporter, which decides when a run without a new status counts
            as silent.
          clock: Seconds since the epoch.
        """
        self._path = Path(run_dir) / FILE_NAME
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._interval_s = interval_s
        self._clock = clock
        self._start_s = clock()

    def write(self, sample: Sample) -> None:
        """Replaces the file."""
        status = {
            "format": _FORMAT,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "start_s": self._start_s,
            "time_s": self._clock(),
            "interval_s": self._interval_s,
            "finished": sample.is_last,
            "metrics": [
                {"name": r.metric.name, "label": r.label, "value": r.value, "per_s": r.per_s}
                for r in sample.readings
                if math.isfinite(r.value)
            ],
            "workers": [
                _worker({**worker, "worker_id": worker_id})
                for worker_id, worker in workers_of(sample.stats).items()
            ],
        }
        text = json.dumps(status, allow_nan=False)
        # the file need not survive a crash of the machine, which ends the run
        with replace_whole(self._path, lasting=False) as file:
            file.write(text.encode())

    def close(self) -> None:
        """Does nothing: the last sample has recorded that the run is finished."""


@dataclass(frozen=True, slots=True)
class Status:
    """A status file that was read. `metrics` maps (name, label) to (value, per_s)."""

    path: Path
    pid: int
    host: str
    start_s: float
    time_s: float
    interval_s: float
    finished: bool
    metrics: Mapping[tuple[str, str | None], tuple[float, float | None]]
    workers: tuple[Mapping[str, Any], ...]

    def value(self, name: str, label: str | None = None) -> float | None:
        """Returns a metric's value; None if the run does not report it."""
        return self.metrics.get((name, label), (None, None))[0]

    def per_s(self, name: str, label: str | None = None) -> float | None:
        """Returns a counter's increase per second; None if it is not known."""
        return self.metrics.get((name, label), (None, None))[1]

    def labels(self, name: str) -> dict[str, float]:
        """Returns label -> value of a metric with a label."""
        return {
            label: value
            for (other, label), (value, _) in self.metrics.items()
            if other == name and label is not None
        }

    def state(self, now_s: float) -> State:
        """Returns the state of the run.

        finished  the file says so
        gone      its process is no longer on this machine, and did not report its end
        silent    the process may exist, but its last status is old
        running   none of these
        """
        if self.finished:
            return "finished"
        if self.host == socket.gethostname() and not _is_alive(self.pid):
            return "gone"
        late = now_s - self.time_s > _PATIENCE * self.interval_s + _PATIENCE_S
        return "silent" if late else "running"


def read_status(path: Path) -> Status:
    """Reads a status file.

    Raises:
      SpecError: There is no file, or it is not a status file of this version.
    """
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise ValueError(f"it has more than {_MAX_BYTES:,} bytes")
        data = json.loads(path.read_text(), parse_constant=_refuse)
        if data["format"] != _FORMAT:
            raise ValueError(f"its format is {data['format']!r}, expected {_FORMAT!r}")
        return Status(
            path=path,
            pid=_pid(data["pid"]),
            host=str(data["host"]),
            start_s=_finite(data["start_s"]),
            time_s=_finite(data["time_s"]),
            interval_s=_finite(data["interval_s"]),
            finished=bool(data["finished"]),
            metrics={
                (str(m["name"]), None if m["label"] is None else str(m["label"])): (
                    _finite(m["value"]),
                    None if m["per_s"] is None else _finite(m["per_s"]),
                )
                for m in data["metrics"]
            },
            workers=tuple(_plain(_worker(worker)) for worker in data["workers"]),
        )
    except (
        *(OSError, ValueError, TypeError, KeyError, AttributeError),
        *(OverflowError, RecursionError),  # numbers and nesting that no sink writes
    ) as error:
        raise SpecError(
            f"{path} is not a readable status file ({type(error).__name__}: {error}): "
            "expected one written by StatusFileSink of this version of rollouts"
        ) from error


def find_status(directory: Path, now_s: float) -> Status:
    """Finds the run to show: in `directory` itself, or the newest below it, living ones first.

    Args:
      directory: A run's directory, a directory of runs, or one that has them in `runs/`.
      now_s: Seconds since the epoch.
    Raises:
      SpecError: there is no run.
    """
    if (directory / FILE_NAME).is_file():
        return read_status(directory / FILE_NAME)
    found = []
    for path in [*directory.glob(f"*/{FILE_NAME}"), *directory.glob(f"runs/*/{FILE_NAME}")]:
        # a damaged file of a run does not hide the other runs
        with contextlib.suppress(SpecError):
            found.append(read_status(path))
    if not found:
        raise SpecError(
            f"no {FILE_NAME} in {directory}, its directories or its runs/: give the directory of a "
            "run with --run-dir; a run writes the file if its MetricsReporter has a StatusFileSink"
        )
    return max(found, key=lambda s: (s.state(now_s) == "running", s.time_s))


def _worker(worker: Mapping[str, Any]) -> dict[str, Any]:
    """A worker's state, place and last error: what a reader needs besides its numbers."""
    keys = ("worker_id", "incarnation", "state", "pid", "host", "node", "last_error")
    return {key: worker.get(key) for key in keys}


def _plain(worker: dict[str, Any]) -> dict[str, Any]:
    """Refuses a dict that holds containers, which a cell cannot show."""
    for key, value in worker.items():
        if not isinstance(value, (str, int, float, type(None))):
            raise TypeError(f"{key} of a worker is a {type(value).__name__}, expected plain text")
    return worker


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is no number of JSON")


def _finite(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"a number is {number}, expected a finite one")
    return number


def _pid(value: Any) -> int:
    number = int(value)
    if not 0 < number < 2**31:
        raise ValueError(f"pid is {number}, expected that of a process")
    return number


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
