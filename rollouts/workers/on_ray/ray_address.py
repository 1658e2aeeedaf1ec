# SPDX-License-Identifier: Apache-2.0
"""Checks whether a Ray listens at an address; Ray itself tries for most of a minute."""

from __future__ import annotations

import os
import socket
import time

from rollouts.errors import SpecError

# opens an HTTP/2 connection, as gRPC does; the server answers with a frame of settings
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
_FRAME_HEADER_BYTES = 9
_TYPE_AT, _SETTINGS = 3, 4


def check_address(address: str, timeout_s: float) -> None:
    """Raises SpecError where `address` is host:port, with or without "ray://", and no Ray is there.

    Other addresses, such as "auto", are left to Ray. Only opens a connection.

    Args:
      address: As `ray.init` takes it.
      timeout_s: Seconds that the other side may take.
    """
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if address in ("auto", "local") or ("://" in address and not address.startswith("ray://")):
        return
    if not host or not port.isdigit():
        raise SpecError(
            f'ray_address is {address!r}, expected "auto", "local" or host:port such as '
            '"10.0.0.1:6379"'
        )
    started = time.monotonic()
    try:
        what = _listener(host.strip("[]"), int(port), timeout_s)
    except (OSError, OverflowError) as error:
        what = str(error) or type(error).__name__
    if what:
        seconds = time.monotonic() - started
        raise SpecError(
            f"no Ray answers at ray_address {address!r} ({what}, after {seconds:.1f} s), expected "
            "a cluster's head: is it running, and is this the port that `ray start --head` named, "
            "6379 by default, not the dashboard's?"
        )


def _listener(host: str, port: int, timeout_s: float) -> str:
    """Returns what is wrong with the server at an address, "" where it may be a Ray."""
    with socket.create_connection((host, port), timeout_s) as connection:
        if os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true"):
            return ""  # the server's answer would be encrypted
        connection.settimeout(timeout_s)
        connection.sendall(_PREFACE)
        header = b""
        while len(header) < _FRAME_HEADER_BYTES:
            more = connection.recv(_FRAME_HEADER_BYTES - len(header))
            if not more:
                return "who listens there closed the connection"
            header += more
    return "" if header[_TYPE_AT] == _SETTINGS else "who listens there does not speak gRPC"
