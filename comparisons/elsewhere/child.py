# SPDX-License-Identifier: Apache-2.0
"""Child: a library in another interpreter, which only runs in its own turns."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rollouts.bench.measurement import NotMeasured
from rollouts.errors import EngineError

FOLDER = Path(".venv-peers")  # where `make peers` puts interpreters, in the working directory

_HERE = Path(__file__).parent
_MAKE_TIMEOUT_S = 180.0
_CLOSE_TIMEOUT_S = 20.0
_TOLD_LINES = 3  # number of a failed interpreter's last lines that an error shows


def version_there(python: Path, distribution: str) -> str:
    """The version of a distribution in an interpreter, or "not installed".

    Raises:
      EngineError: The file is no Python interpreter.
    """
    code = (
        "import importlib.metadata as m, sys\n"
        "try: print('version', m.version(sys.argv[1]))\n"
        "except m.PackageNotFoundError: print('version not installed')"
    )
    try:
        done = subprocess.run(
            [python, "-I", "-c", code, distribution], capture_output=True, text=True, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EngineError(f"{python} cannot be run ({error}): expected a Python") from error
    word, _, found = done.stdout.strip().partition(" ")
    if word != "version":
        raise EngineError(f"{python} is no Python: it answered {done.stdout[:80]!r}")
    return found


class Child:
    """One script of this folder in another interpreter. Not thread-safe.

    All its processes are stopped by SIGSTOP except while an answer is awaited, so that busy waiting
    takes no time from the other contestants. If this process dies, the system wakes and ends them,
    because their process group is orphaned.
    """

    def __init__(self, peer: str, python: Path, script: str, request: Mapping[str, Any]) -> None:
        """Starts the script, and waits until it can be measured.

        Args:
          peer: Name of the peer, for errors.
          python: The interpreter.
          script: File of this folder that defines `make`.
          request: Arguments of `make`, as JSON has them.

        Raises:
          NotMeasured: It cannot be measured; the message has the reason.
        """
        self._peer = peer
        self._buffer = b""
        # some libraries write to the working directory when they are imported
        self._folder = tempfile.TemporaryDirectory(
            prefix="rollouts_peer_", ignore_cleanup_errors=True
        )
        self._errors = Path(self._folder.name) / "errors"
        try:
            with self._errors.open("wb") as errors:
                self._process = subprocess.Popen(
                    [str(python), "-I", str(_HERE / "serve.py"), str(_HERE / script)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    cwd=self._folder.name,
                    process_group=0,
                )
        except OSError as error:
            self._folder.cleanup()
            raise NotMeasured(f"{python} cannot be run ({error})") from error
        try:
            self.told = self.ask({"make": dict(request)}, timeout_s=_MAKE_TIMEOUT_S)
        except BaseException:
            self.close()
            raise

    def ask(self, request: Mapping[str, Any], *, timeout_s: float) -> dict[str, Any]:
        """Wakes it, waits for its answer, and stops it.

        Raises:
          NotMeasured: It failed, it ended, or no answer came within timeout_s.
        """
        self._signal(signal.SIGCONT)
        answer = self._answer(request, timeout_s)
        self._stop()
        if "error" in answer:
            raise NotMeasured(str(answer["error"]))
        return answer

    def close(self) -> None:
        """Ends all processes of the child; may be called at any time."""
        self._signal(signal.SIGCONT)
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        with contextlib.suppress(OSError):
            stdin.close()  # closing it ends the child
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_CLOSE_TIMEOUT_S)
        self._signal(signal.SIGKILL)
        self._process.wait()
        stdout.close()
        self._folder.cleanup()

    def _answer(self, request: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        with contextlib.suppress(OSError):  # the child ended, which is reported below
            stdin.write(json.dumps(request).encode() + b"\n")
            stdin.flush()
        deadline_s = time.monotonic() + timeout_s
        while b"\n" not in self._buffer:
            # checked at intervals, since workers that outlive the child keep its pipe open
            ready, _, _ = select.select([stdout], [], [], 0.5)
            got = os.read(stdout.fileno(), 2**16) if ready else b""
            self._buffer += got
            if not got and (ready or self._process.poll() is not None):
                self._process.wait()
                raise NotMeasured(
                    f"its process ended with status {self._process.returncode}{self._last_words()}"
                )
            if not got and time.monotonic() > deadline_s:
                raise NotMeasured(f"it gave no answer within {timeout_s:.0f} s{self._last_words()}")
        line, _, self._buffer = self._buffer.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _last_words(self) -> str:
        lines = self._errors.read_text(errors="replace").strip().splitlines()
        return f": {' / '.join(lines[-_TOLD_LINES:])}" if lines else ""

    def _stop(self) -> None:
        self._signal(signal.SIGSTOP)
        # waits for the stop: if this process dies, the system ends processes that have stopped, but
        # not those that stop later
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def _signal(self, number: int) -> None:
        # for an ended group, systems raise either of these errors
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)
