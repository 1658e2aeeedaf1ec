# SPDX-License-Identifier: Apache-2.0
"""Scripts in processes of their own, forked from one that has imported what most of them import.

A new interpreter spends seconds on torch, Ray and matplotlib before a script's first line. What a
script does itself (its imports, its signals, its exit) is as in a new interpreter; tests of what
imports what, and one run of each example, have a new one all the same.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

SOCKET = "ROLLOUTS_WARM_PYTHON"  # the variable that has the path of the server's socket
SERVER = Path(__file__).with_name("warm_python_server.py")
STARTER = Path(__file__).with_name("warm_worker.py")
MODULES = (
    "numpy",
    "torch",
    "torch._dynamo",  # an optimiser imports it when it is first made
    "torch.utils.tensorboard",
    "matplotlib.pyplot",
    "tqdm",
    "rollouts",
)


class Script:
    """One script that runs: what tests use of `subprocess.Popen`, in text mode."""

    def __init__(
        self, *argv: object, new_session: bool = False, unbuffered: bool = False, **where: Any
    ) -> None:
        """Starts it; `where` may have `cwd` and `env`."""
        self.args = [str(part) for part in argv]
        request = {
            "argv": self.args,
            "cwd": str(where.get("cwd") or os.getcwd()),
            "env": dict(os.environ if where.get("env") is None else where["env"]),
            "new_session": new_session,
            "unbuffered": unbuffered,
        }
        pipes = [os.pipe() for _ in range(3)]
        (self.stdout, self.stderr, self._status) = (os.fdopen(read) for read, _ in pipes)
        with open(os.devnull) as nothing:
            given = [nothing.fileno(), *(write for _, write in pipes)]
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
                connection.connect(server())
                socket.send_fds(connection, [json.dumps(request).encode()], given)
        for _, write in pipes:
            os.close(write)
        self.returncode: int | None = None
        self.pid = int(self._status.readline())

    def __enter__(self) -> Script:
        return self

    def __exit__(self, *error: object) -> None:
        self.wait()
        for file in (self.stdout, self.stderr, self._status):
            file.close()

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            self.returncode = int(self._status.readline())
        return self.returncode

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Reads both outputs to their end; kills the script where that takes too long."""
        with ThreadPoolExecutor(2) as readers:
            texts = [readers.submit(_read, file) for file in (self.stdout, self.stderr)]
            try:
                self.wait(timeout)
            except BaseException:
                self.kill()
                raise
            return texts[0].result(), texts[1].result()


def run_script(
    *argv: object,
    timeout: float,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Runs a script with its arguments to its end; what it wrote and how it ended."""
    with Script(*argv, cwd=cwd, env=env) as script:
        stdout, stderr = script.communicate(timeout)
    return subprocess.CompletedProcess(script.args, script.wait(), stdout, stderr)


def run_in_new_python(*argv: object, timeout: float) -> subprocess.CompletedProcess[str]:
    """As `run_script`, with an interpreter that has imported nothing."""
    command = [sys.executable, *map(str, argv)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout)


def _read(file: IO[str]) -> str:
    return file.read()


@functools.cache
def server() -> str:
    """Starts the process to fork from, which ends with this one; the path of its socket."""
    if (path := os.environ.get(SOCKET)) is not None:
        return path  # that of the test which this process is a part of
    folder = tempfile.TemporaryDirectory(prefix="warm_python")
    atexit.register(folder.cleanup)
    path = f"{folder.name}/socket"
    life, ours = os.pipe()
    atexit.register(os.close, ours)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as requests:
        requests.bind(path)
        requests.listen(64)
        given = (life, requests.fileno())
        command = [sys.executable, str(SERVER), *map(str, given), *MODULES]
        # a session of its own, so that Ctrl-C in a terminal is not all scripts'
        subprocess.Popen(command, pass_fds=given, start_new_session=True)
    os.close(life)
    starter = Path(path).with_name("python")
    starter.write_text(f"#!{sys.executable} -IS\n{STARTER.read_text()}")
    starter.chmod(0o755)
    os.environ[SOCKET] = path
    return path
