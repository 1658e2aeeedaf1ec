# SPDX-License-Identifier: Apache-2.0
"""The process that warm_python.py forks scripts from. Arguments: socket's descriptor, modules.

Each request is one message with four descriptors: standard input, output and error of the script,
and a pipe that is told the script's process id and then its exit status.
"""

from __future__ import annotations

import array
import contextlib
import gc
import importlib
import io
import json
import os
import random
import runpy
import signal
import socket
import sys
from pathlib import Path
from typing import Any


def serve(requests: socket.socket) -> tuple[dict[str, Any], int]:
    """Forks for each request; returns the request and its pipe in the script's own process."""
    while True:
        space = socket.CMSG_SPACE(4 * array.array("i").itemsize)
        message, ancillary, *_ = requests.recvmsg(1 << 20, space)
        if not message:
            os._exit(0)
        with contextlib.suppress(ChildProcessError):  # there is none yet
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
        files = array.array("i")
        files.frombytes(ancillary[0][2])
        if os.fork() == 0:
            requests.close()
            guard(files[3])
            request: dict[str, Any] = json.loads(message)
            for number in range(3):
                os.dup2(files[number], number)
            for file in files[:3]:
                os.close(file)
            return request, files[3]
        for file in files:
            os.close(file)


def guard(status: int) -> None:
    """Forks once more and returns there; the process between them waits and tells the status."""
    pid = os.fork()
    if pid == 0:
        return
    os.closerange(0, 3)
    _, ended = os.waitpid(pid, 0)
    os.write(status, f"{os.waitstatus_to_exitcode(ended)}\n".encode())
    os._exit(0)


def become(request: dict[str, Any], status: int) -> None:
    """Makes this process the one that `python script` would begin with."""
    if request["new_session"]:
        os.setsid()
    os.write(status, f"{os.getpid()}\n".encode())
    os.close(status)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.argv = request["argv"]
    sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
    direct = {"write_through": request["unbuffered"]}
    streams = [io.FileIO(number, "wb" if number else "rb", closefd=False) for number in range(3)]
    sys.stdin = io.TextIOWrapper(io.BufferedReader(streams[0]))
    sys.stdout = io.TextIOWrapper(io.BufferedWriter(streams[1]), **direct)
    sys.stderr = io.TextIOWrapper(
        io.BufferedWriter(streams[2]), errors="backslashreplace", line_buffering=True, **direct
    )
    # what libraries drew when they were imported must not be all scripts' own
    random.seed()
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()
    # Ray read its variables, RAY_AUTH_MODE among them, when the server imported it
    if raylet := sys.modules.get("ray._raylet"):
        raylet.Config.initialize("")


def main() -> None:
    requests = socket.socket(fileno=int(sys.argv[1]))
    for module in sys.argv[2:]:
        with contextlib.suppress(ImportError):  # the script will say so
            importlib.import_module(module)
    # a collection of garbage in a script would copy all pages of what was imported
    gc.collect()
    gc.freeze()
    become(*serve(requests))
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
