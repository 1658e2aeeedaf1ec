# SPDX-License-Identifier: Apache-2.0
"""The program that a node of Ray starts in place of Python, see warm_workers.py."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys


def ask(path: str) -> bool:
    """Asks the server for the worker; False where it is over."""
    request = {
        "argv": sys.argv[1:],
        "cwd": os.getcwd(),
        "env": dict(os.environ),
        "new_session": False,
        # a node kills the group of a worker's process
        "new_group": True,
        "unbuffered": False,
    }
    with (
        contextlib.suppress(OSError),
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection,
    ):
        connection.connect(path)
        socket.send_fds(connection, [json.dumps(request).encode()], [0, 1, 2])
        return True
    return False


path = os.environ.get("ROLLOUTS_WARM_PYTHON")
is_worker = len(sys.argv) > 1 and sys.argv[1].endswith("/default_worker.py")
if not (is_worker and path and ask(path)):
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
