# SPDX-License-Identifier: Apache-2.0
"""Functions in processes of their own, forked from one that has imported the library and torch.

What a process chooses once, such as an instruction set, is not chosen there yet.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

HANG_S = 3600.0


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a process: its exit code, what it wrote, and what its function returned."""

    exitcode: int
    stdout: str
    stderr: str
    returned: Any


def run_forked(
    body: Callable[..., Any],
    *arguments: object,
    environ: Mapping[str, str] | None = None,
    method: str = "forkserver",
) -> Ended:
    """Calls `body`, a function of a module, in a process with these environment variables."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        context: Any = multiprocessing.get_context(method)
        receiving, sending = context.Pipe(duplex=False)
        process = context.Process(
            target=_call, args=(sending, folder, dict(environ or {}), body, arguments)
        )
        process.start()
        sending.close()
        try:
            returned = receiving.recv() if receiving.poll(HANG_S) else None
        except EOFError:  # it has crashed, left or raised an error
            returned = None
        process.join(HANG_S)
        if process.exitcode is None:
            process.kill()
            process.join()
        assert process.exitcode is not None
        said = [folder / "stdout", folder / "stderr"]
        texts = [file.read_text() if file.exists() else "" for file in said]
        return Ended(process.exitcode, *texts, returned)


def run_forked_each(body: Callable[[], Any], environs: Sequence[Mapping[str, str]]) -> list[Ended]:
    """Calls `body` in a process for each of these environment variables.

    All are forked from one that has imported what optimisers of torch need, for seconds.
    """
    ended = run_forked(_each, body, environs)
    assert ended.exitcode == 0, ended.stderr
    found: list[Ended] = ended.returned
    return found


def _each(body: Callable[[], Any], environs: Sequence[Mapping[str, str]]) -> list[Ended]:
    importlib.import_module("torch._dynamo")
    return [run_forked(body, environ=environ, method="fork") for environ in environs]


def _call(
    sending: Connection,
    folder: Path,
    environ: Mapping[str, str],
    body: Callable[..., Any],
    arguments: tuple[object, ...],
) -> None:
    for number, name in ((1, "stdout"), (2, "stderr")):
        with (folder / name).open("wb") as file:
            os.dup2(file.fileno(), number)
    os.environ.update(environ)
    try:
        returned = body(*arguments)
    finally:
        sys.stdout.flush()
    sending.send(returned)
