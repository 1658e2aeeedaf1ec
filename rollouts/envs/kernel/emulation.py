# SPDX-License-Identifier: Apache-2.0
"""`HostKernel`: a kernel compiled by the system's C++ compiler, its grid as loops."""

from __future__ import annotations

import ctypes
import hashlib
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any

from rollouts import _native
from rollouts.envs.kernel.kernel_source import KernelSource
from rollouts.envs.kernel.launch_args import Launch
from rollouts.errors import EngineError, SpecError
from rollouts.own_env.cache import cache_folder, find_or_make
from rollouts.own_env.compiler import find_compiler

_LIBRARY = "kernel.so"
Call = Callable[[], None]
_recorded: ContextVar[Callable[[Call], None] | None] = ContextVar("recorded", default=None)


@contextmanager
def recording(keep: Callable[[Call], None]) -> Iterator[None]:
    """Passes kernels that the block launches to `keep`, with copied arguments, and runs none."""
    token = _recorded.set(keep)
    try:
        yield
    finally:
        _recorded.reset(token)


def current_recording() -> object | None:
    """The function that records kernels now; None if they run."""
    return _recorded.get()


def run_or_record(call: Call) -> None:
    """Calls it, or records it during a recording; on a GPU, graphs record torch's work."""
    keep = _recorded.get()
    if keep is None:
        call()
    else:
        keep(call)


class HostKernel:
    """A kernel as a function of the host; `num_launches` counts its launches."""

    def __init__(self, source: KernelSource, *, backwards: bool = False) -> None:
        """Compiles it, or takes it from the cache.

        Args:
          source: Its text.
          backwards: Whether blocks and threads run in reverse order, which must not matter.

        Raises:
          EngineError: There is no C++ compiler. SpecError: It refuses the text.
        """
        library = ctypes.CDLL(str(_compiled(source)))
        library.rollouts_launch_bytes.restype = ctypes.c_int64
        args = source.launch_type
        if library.rollouts_launch_bytes() != ctypes.sizeof(args):
            raise EngineError(
                f"{args.__name__} differs between the headers and rollouts/envs/kernel"
            )
        self._entries = [getattr(library, name) for name in source.entries]
        for entry in self._entries:
            pointer = ctypes.POINTER(args)
            entry.argtypes = [pointer, ctypes.c_int64, ctypes.c_int32, ctypes.c_int32]
            entry.restype = None
        self._backwards = backwards
        # allows interrupts, because a step of a user's environment may never end
        self._call = _native.NativeCall()
        self.num_launches = 0
        self.most_shared_bytes = 227 * 1024  # an H100's

    def step_entry(self, shared_bytes: int) -> None:
        """Returns None: recordings and interrupts are Python's."""

    def launch(
        self, args: Launch, num_blocks: int, num_threads: int, shared_bytes: int = 0
    ) -> None:
        """Runs `num_blocks` blocks of `num_threads` threads to their end."""
        self.num_launches += 1
        entry = self._entries[-1 if args.takes_many_steps else 0]
        if _recorded.get() is not None:
            args = type(args).from_buffer_copy(args)
        run_or_record(partial(self._run, entry, args, num_blocks, num_threads))

    def _run(self, entry: Any, args: Launch, num_blocks: int, num_threads: int) -> None:
        with self._call:
            entry(args, num_blocks, num_threads, self._backwards)


def _compiled(source: KernelSource) -> Path:
    compiler = find_compiler()
    options = [*compiler.library_options, "-O2"]
    where = [f"-I{folder}" for folder in source.include_dirs]
    parts = [source.digest, *compiler.command, compiler.version, *options]
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]

    def make(folder: Path) -> None:
        command = [*compiler.command, *options, *where, "-x", "c++", "-"]
        result = subprocess.run(
            [*command, "-o", str(folder / _LIBRARY)],
            input=source.text,
            capture_output=True,
            text=True,
        )
        if result.returncode != 0:
            raise SpecError(
                f"{source.name} does not compile as a kernel:\n{source.explain(result.stderr)}"
            )

    return find_or_make(cache_folder("emulation"), key, _LIBRARY, make)
