# SPDX-License-Identifier: Apache-2.0
"""Compiles kernels for GPUs in a tenth of the time, for tests of whether they do."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager

from rollouts.envs.kernel import cuda
from rollouts.envs.kernel.kernel_source import KernelSource

# (source, arch) -> cubin
Compile = Callable[[KernelSource, str], bytes]


@contextmanager
def quick_compiler() -> Iterator[Compile]:
    """Compiles without the optimisations on which NVRTC spends its time, in a process of its own.

    NVRTC 13 goes on without some of them in whatever the same process compiles for sm_100 later.
    """
    with ProcessPoolExecutor(1, multiprocessing.get_context("forkserver")) as process:
        yield lambda source, arch: process.submit(_compile, source, arch).result()


def _compile(source: KernelSource, arch: str) -> bytes:
    options, where = cuda._options(source, arch)
    quick = [*options, *where, "--Ofast-compile=max"]
    return cuda._run_nvrtc(cuda._bindings("nvrtc"), source, quick)[0]
