# SPDX-License-Identifier: Apache-2.0
"""`LogWriter`: a thread that writes records into the parts of a log, and keeps it small."""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy.typing as npt

from rollouts.errors import FileError, SpecError
from rollouts.run_log.log_format import to_bytes
from rollouts.run_log.record_options import RunLog
from rollouts.support import at_exit
from rollouts.support.no_room import start_thread
from rollouts.support.whole_file import naming_the_file

_PART = re.compile(r"worker-(\d+)\.incarnation-(\d+)\.part-(\d+)\.rlog")
_NUM_PARTS = 8  # a full log has this many parts; the oldest is dropped as a whole
_MAX_WAITING_BYTES = 64 << 20
# a part has at least this size, because its header and first state take room themselves
_MIN_PART_BYTES = 1 << 13
# several records are written at once, because waking the thread costs more than writing a record
_AT_ONCE_BYTES, _AT_ONCE_S = 1 << 18, 0.1

Facts = Mapping[str, Any]
Arrays = Mapping[str, npt.NDArray[Any]]
# the bytes, or a function that the thread calls to make them, where making them takes long
_Record = bytes | Callable[[], bytes]


def part_name(worker_id: int, incarnation: int, number: int) -> str:
    """Returns the file name of a part."""
    return f"worker-{worker_id}.incarnation-{incarnation}.part-{number:05d}.rlog"


def parts_in(folder: Path) -> dict[tuple[int, int, int], Path]:
    """Returns (worker_id, incarnation, number) -> file of the parts in a folder, in that order."""
    found = {}
    for path in folder.iterdir() if folder.is_dir() else ():
        if match := _PART.fullmatch(path.name):
            found[(int(match[1]), int(match[2]), int(match[3]))] = path
    return dict(sorted(found.items()))


class LogWriter:
    """Writes the records that `put` is given, in their order, on a thread of its own.

    `put` itself encodes a fragment, because handing its arrays to the thread takes longer; the
    thread encodes a state. `put` waits while 64 MiB are not written yet. `_changed` guards the
    queue and the error.

    Attributes:
      error: Why nothing is written any more; None while it is.
    """

    def __init__(self, log: RunLog, header: Facts, *, can_rotate: bool) -> None:
        """Makes the folder, and the first part with the header.

        Args:
          log: The folder and the bounds of the log.
          header: Facts that each part begins with.
          can_rotate: Whether records after a saved state can be read without those before it.

        Raises:
          FileError: The folder or the file cannot be made. SpecError: There is a log of this
            worker's incarnation already, or the system gives no thread.
        """
        self._log, self._header, self._can_rotate = log, dict(header), can_rotate
        self._folder = Path(log.path)
        with naming_the_file(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
        self._number, self._bytes_of_part = 0, 0
        self._refuse_old()
        self._find_old()
        self.error: FileError | None = None
        self._changed = threading.Condition()
        self._waiting: deque[tuple[str, _Record, int]] = deque()
        self._waiting_bytes, self._is_busy, self._is_closed = 0, False, False
        self._is_flushed = False  # `flush` waits for all that was put
        self._joined: list[bytes] = []  # counted in _bytes_of_part, but not written yet
        self._open()
        self._thread = threading.Thread(target=self._run, name="rollouts-log", daemon=True)
        start_thread(self._thread)
        at_exit.call_at_exit(self.close)

    def put(self, kind: str, facts: Facts, arrays: Arrays) -> None:
        """Hands a record over; the arrays of a state must not change any more."""
        record: _Record
        if kind == "state":
            record = partial(to_bytes, kind, facts, arrays)
            size = sum(array.nbytes for array in arrays.values())
        else:
            record = to_bytes(kind, facts, arrays)
            size = len(record)
        with self._changed:
            while not (self._waiting_bytes < _MAX_WAITING_BYTES or self.error or self._is_closed):
                self._changed.wait()
            if self.error is not None or self._is_closed:
                return
            self._waiting.append((kind, record, size))
            self._waiting_bytes += size
            if len(self._waiting) == 1 or self._waiting_bytes >= _AT_ONCE_BYTES:
                self._changed.notify_all()

    def flush(self, timeout_s: float | None = None) -> None:
        """Waits until everything is written, or `error` is set."""
        with self._changed:
            self._is_flushed = True
            self._changed.notify_all()
            self._changed.wait_for(
                lambda: not (self._waiting or self._is_busy) or self.error is not None, timeout_s
            )

    def close(self) -> None:
        """Writes what waits, and ends the thread; may be called twice."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _refuse_old(self) -> None:
        own = (self._log.worker_id, self._log.incarnation)
        if old := [path for key, path in parts_in(self._folder).items() if key[:2] == own]:
            raise SpecError(
                f"record is {os.fspath(self._log.path)}, which has a log already ({old[0].name}): "
                "give each run a folder of its own, or remove the old log"
            )

    def _run(self) -> None:
        while taken := self._take():
            try:
                self._write(taken)
            except OSError as error:
                self._fail(error)
        self._file.close()

    def _take(self) -> list[tuple[str, _Record]]:
        """Waits for some records and returns them; none once the log is closed or has failed."""
        with self._changed:
            self._is_busy = False
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._waiting or self._is_closed)
            self._changed.wait_for(
                lambda: (
                    self._is_closed or self._is_flushed or self._waiting_bytes >= _AT_ONCE_BYTES
                ),
                _AT_ONCE_S,
            )
            if self.error is not None:
                return []
            taken = [(kind, record) for kind, record, _ in self._waiting]
            self._waiting.clear()
            self._waiting_bytes, self._is_flushed = 0, False
            self._is_busy = bool(taken)
            return taken

    def _fail(self, error: OSError) -> None:
        """Cuts off a record that was not written whole, and writes no more."""
        # readers stop at a record that is not whole; ValueError: the next part could not be opened
        with contextlib.suppress(OSError, ValueError):
            os.ftruncate(self._file.fileno(), self._bytes_of_part)
        named = error if isinstance(error, FileError) else _named(self._path, error)
        with self._changed:
            self.error = named
            self._waiting.clear()
            self._waiting_bytes = 0
            self._changed.notify_all()

    def _write(self, records: list[tuple[str, _Record]]) -> None:
        """Writes records, with one system call for those of one part."""
        try:
            for kind, record in records:
                data = record if isinstance(record, bytes) else record()
                is_full = self._bytes_of_part > max(
                    self._log.max_bytes // _NUM_PARTS, _MIN_PART_BYTES
                )
                if kind == "state" and self._can_rotate and is_full:
                    self._write_joined()
                    self._next_part()
                self._make_room(len(data))
                self._joined.append(data)
                self._bytes_of_part += len(data)
        finally:
            self._write_joined()

    def _write_joined(self) -> None:
        joined, self._joined = self._joined, []
        if not joined:
            return
        try:
            _write_all(self._file.fileno(), b"".join(joined))
        except OSError:
            whole = self._bytes_of_part - sum(map(len, joined))
            there = os.fstat(self._file.fileno()).st_size
            for data in joined:
                if whole + len(data) > there:
                    break
                whole += len(data)
            self._bytes_of_part = whole
            raise

    def _make_room(self, wanted: int) -> None:
        """Removes the worker's oldest parts until a record fits.

        Raises:
          FileError: It does not fit even then.
        """
        while self._old_bytes + self._bytes_of_part + wanted > self._log.max_bytes:
            if not self._old or not self._can_rotate:
                raise FileError(
                    f"{self._path} has reached max_bytes={self._log.max_bytes:,} and nothing in it "
                    "may be dropped yet: give RunLog more max_bytes, or a smaller state_every"
                )
            path, size = self._old.popleft()
            path.unlink(missing_ok=True)
            self._old_bytes -= size

    def _find_old(self) -> None:
        """Finds the parts of the worker's earlier incarnations, which may be dropped."""
        parts = parts_in(self._folder).items()
        own = [path for key, path in parts if key[0] == self._log.worker_id]
        self._old = deque((path, path.stat().st_size) for path in own)
        self._old_bytes = sum(size for _, size in self._old)

    def _next_part(self) -> None:
        self._file.close()
        self._old.append((self._path, self._bytes_of_part))
        self._old_bytes += self._bytes_of_part
        self._number += 1
        self._open()

    def _open(self) -> None:
        own = self._log
        self._path = self._folder / part_name(own.worker_id, own.incarnation, self._number)
        data = to_bytes("log", self._header, {})
        with naming_the_file(self._path):
            # unbuffered: what was written is there when the process is killed
            self._file = open(self._path, "xb", buffering=0)  # noqa: SIM115
            _write_all(self._file.fileno(), data)
        self._bytes_of_part = len(data)


def _named(path: Path, error: OSError) -> FileError:
    """Returns the error that names the file."""
    made = FileError(f"{path} cannot be written: {error}")
    made.errno = error.errno
    return made


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
