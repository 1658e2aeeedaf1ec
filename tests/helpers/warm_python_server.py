# SPDX-License-Identifier: Apache-2.0
"""The process that warm_python.py and warm_workers.py fork from.

Arguments: descriptors, of a pipe that closes when all is over and of the socket for requests, and
modules.

Each request is one message on a connection of its own, with four descriptors: standard input,
output and error of the script, and a pipe that is told the script's process id and then its exit
status. Without the fourth nobody is told.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import json
import os
import random
import runpy
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

WORKER_MODULES = ("ray._private.workers.default_worker", "rollouts.workers.on_ray.coordinator")


def serve(requests: socket.socket, life: int) -> tuple[dict[str, Any], int | None]:
    """Forks for each request; returns it and its pipe, if any, in the script's own process."""
    # the kernel forgets a process that has ended, and nobody finds it as a zombie
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        if life in select.select([requests, life], [], [])[0]:
            os._exit(0)
        connection, _ = requests.accept()
        with connection:
            message, files, *_ = socket.recv_fds(connection, 1 << 20, 4)
        if message and os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            requests.close()
            os.close(life)
            status = files.pop() if len(files) == 4 else None
            if status is not None:
                guard(status)
            request: dict[str, Any] = json.loads(message)
            for number, file in enumerate(files):
                os.dup2(file, number)
                os.close(file)
            return request, status
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


def hides(entry: str) -> bool:
    """Tells if a script with this folder in its PYTHONPATH would import other modules from it."""
    place = Path(entry)
    if not entry or str(place) in sys.path:
        return False
    names = {name.partition(".")[0] for name in sys.argv[3:]}
    return any((place / name).exists() or (place / f"{name}.py").exists() for name in names)


def become(request: dict[str, Any], status: int | None) -> None:
    """Makes this process the one that `python script` would begin with."""
    if request["new_session"]:
        os.setsid()
    elif request.get("new_group"):
        os.setpgrp()
    if status is not None:
        os.write(status, f"{os.getpid()}\n".encode())
        os.close(status)
    path = [one for one in request["env"].get("PYTHONPATH", "").split(os.pathsep) if one]
    if any(map(hides, path)) or "LD_PRELOAD" in request["env"]:
        os.chdir(request["cwd"])
        os.execve(sys.executable, [sys.executable, *request["argv"]], request["env"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.argv = request["argv"]
    sys.path[:1] = [str(Path(sys.argv[0]).resolve().parent), *path]
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


def prepare() -> None:
    """Imports modules. Ray is left out: its library reads variables of its process when loaded."""
    sys.modules["ray"] = None  # type: ignore[assignment]
    for module in [*sys.argv[3:], *_modules_of_a_worker()]:
        with contextlib.suppress(ImportError):  # the script will say so
            importlib.import_module(module)
    del sys.modules["ray"]
    # a collection of garbage in a script would copy all pages of what was imported
    gc.collect()
    gc.freeze()


def _modules_of_a_worker() -> list[str]:
    """The modules that a worker of Ray imports before its first task."""
    code = f"import {', '.join(WORKER_MODULES)}, sys; print(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    names = result.stdout.split()
    return [name for name in names if name.partition(".")[0] not in ("ray", "__main__")]


def main() -> None:
    requests = socket.socket(fileno=int(sys.argv[2]))
    prepare()
    become(*serve(requests, int(sys.argv[1])))
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
