# SPDX-License-Identifier: Apache-2.0
"""Messages between a host and one of its processes: a kind, a length, bytes.

One socket per process carries a few bytes per step; arrays lie in shared memory. The end of the
socket also shows that the other side is gone.
"""

from __future__ import annotations

import enum
import os
import pickle
import select
import socket
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

_HEADER = struct.Struct("<BQ")  # kind, bytes that follow
_CHUNK_BYTES = 1 << 18
_PARENT_CHECK_MS = 2000


class Kind(enum.IntEnum):
    """The kinds of messages."""

    # to a process
    MEMORY = 1  # pickled BlockLayout, with the descriptor
    STEP_ALL = 2
    STEP = 3  # int32 indices
    STEP_OBJECTS = 4  # pickled: indices, one column of objects per leaf that needs them
    RESET = 5  # pickled: indices, seeds, options
    CALL = 6  # pickled: name, args, kwargs
    SET_ATTR = 7  # pickled: name, one value per environment
    # from a process
    HELLO = 20  # pickled Hello
    CANNOT_START = 21  # pickled Failure
    RECORDS = 22  # pickled: index and pickled Record of rows; sent before they are DONE
    DONE = 23  # int32 indices
    DONE_ALL = 24
    ANSWER = 25  # pickled: one result per environment, or a Failure


def frame(kind: Kind, payload: bytes = b"") -> bytes:
    """Makes a message."""
    return _HEADER.pack(kind, len(payload)) + payload


class Parser:
    """Cuts a stream of bytes into messages."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Adds bytes; yields the kind and payload of every message that is complete."""
        buffer = self._bytes
        buffer += data
        start = 0
        while len(buffer) - start >= _HEADER.size:
            kind, length = _HEADER.unpack_from(buffer, start)
            end = start + _HEADER.size + length
            if len(buffer) < end:
                break
            payload = bytes(buffer[start + _HEADER.size : end])
            start = end
            yield kind, payload
        del buffer[:start]


class WorkerLink:
    """A process's end of the socket: it blocks, and it ends when the host is gone."""

    def __init__(self, sock: socket.socket, is_orphan: Callable[[], bool]) -> None:
        """Args: sock: connected to the host. is_orphan: whether the host's process has ended."""
        self._socket = sock
        self._is_orphan = is_orphan
        self._parser = Parser()
        self._messages: Iterator[tuple[int, bytes]] = iter(())
        self._poller = select.poll()
        self._poller.register(sock, select.POLLIN)

    def receive_memory(self) -> tuple[Any, int] | None:
        """Waits for the first message: a BlockLayout and a descriptor; None: the host is gone."""
        if not self._wait():
            return None
        # the descriptor comes with the first bytes, so nothing may be read past the header
        header, fds, _, _ = socket.recv_fds(self._socket, _HEADER.size, 1)
        if not fds:
            return None
        header += self._read(_HEADER.size - len(header))
        kind, length = _HEADER.unpack(header)
        assert kind == Kind.MEMORY
        return pickle.loads(self._read(length)), fds[0]

    def receive(self) -> tuple[int, bytes] | None:
        """Waits for the next message; None: the host closed the socket or is gone."""
        while True:
            for message in self._messages:
                return message
            if not self._wait():
                return None
            try:
                data = self._socket.recv(_CHUNK_BYTES)
            except ConnectionError:
                return None
            if not data:
                return None
            self._messages = self._parser.feed(data)

    def send(self, data: bytes) -> None:
        """Sends; waits for the host to make room.

        Raises:
          OSError: The host is gone.
        """
        self._socket.sendall(data)

    def _read(self, nbytes: int) -> bytes:
        data = b""
        while len(data) < nbytes:
            part = self._socket.recv(nbytes - len(data))
            if not part:
                raise ConnectionError("the host closed the socket")
            data += part
        return data

    def _wait(self) -> bool:
        # end-of-file shows that the host is gone, unless another child of it holds the socket
        while not self._poller.poll(_PARENT_CHECK_MS):
            if self._is_orphan():
                return False
        return True


class HostLink:
    """The host's end of a process's socket: never blocks, and keeps what could not be sent yet."""

    def __init__(self, sock: socket.socket) -> None:
        """Takes a connected socket over."""
        sock.setblocking(False)
        self.socket = sock
        self._parser = Parser()

    def send_memory(self, payload: bytes, fd: int) -> None:
        """Sends the first message. The socket is empty then, so there is room."""
        data = frame(Kind.MEMORY, payload)
        sent = socket.send_fds(self.socket, [data], [fd])
        self.send(data[sent:], lambda: None)

    def send(self, data: bytes, receive: Callable[[], None]) -> None:
        """Sends; without room it calls `receive`, because the process may wait for room too.

        Raises:
          OSError: The process is gone.
        """
        view = memoryview(data)
        while view:
            try:
                view = view[self.socket.send(view) :]
            except BlockingIOError:
                poller = select.poll()
                poller.register(self.socket, select.POLLIN | select.POLLOUT)
                poller.poll(1000)
                receive()

    def receive(self) -> list[tuple[int, bytes]] | None:
        """Returns the messages that have come; None: the process closed its end."""
        messages: list[tuple[int, bytes]] = []
        while True:
            try:
                data = self.socket.recv(_CHUNK_BYTES)
            except BlockingIOError:
                return messages
            except OSError:
                data = b""
            if not data:
                # messages sent before the end still count
                return messages or None
            messages += self._parser.feed(data)
            if len(data) < _CHUNK_BYTES:
                return messages

    def close(self) -> None:
        """Closes the socket, which ends the process at its next wait."""
        self.socket.close()


def make_orphan_test(host_pid: int) -> Callable[[], bool]:
    """Makes a function that tells a process of multiprocessing whether its host has ended."""
    import multiprocessing

    is_child = os.getppid() == host_pid  # False if a fork server started this process

    def is_orphan() -> bool:
        if is_child and os.getppid() != host_pid:
            return True
        parent = multiprocessing.parent_process()
        return parent is not None and not parent.is_alive()

    return is_orphan


def deadline_of(timeout_s: float | None) -> float:
    """The monotonic time at which a wait of `timeout_s` ends; inf for None."""
    return float("inf") if timeout_s is None else time.monotonic() + timeout_s
