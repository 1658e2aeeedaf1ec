# SPDX-License-Identifier: Apache-2.0
"""A driver in the place of libcuda: what it launches is a function of the host."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rollouts import _native
from rollouts.envs.kernel.cuda import CudaKernel, driver_addresses
from rollouts.envs.kernel.emulation import HostKernel
from rollouts.own_env.compiler import find_compiler

_TEXT = """
#include <cstddef>
#include <cstdint>
namespace {
thread_local void* current = nullptr;
}
extern "C" {
int standin_capturing = 0, standin_result = 0, standin_pushes = 0;
void* standin_stream = nullptr;
void standin_nothing(const void*, std::int64_t, std::int32_t, std::int32_t) {}
int cuCtxGetCurrent(void** context) { *context = current; return 0; }
int cuCtxPushCurrent_v2(void* context) { current = context; ++standin_pushes; return 0; }
int cuCtxPopCurrent_v2(void** context) { *context = current; current = nullptr; return 0; }
int cuStreamIsCapturing(void*, int* status) { *status = standin_capturing; return 0; }
int cuGetErrorString(int, const char** text) { *text = "stand-in refuses"; return 0; }
int cuLaunchKernel(void* function, unsigned blocks, unsigned, unsigned, unsigned threads, unsigned,
                   unsigned, unsigned, void* stream, void** params, void**) {
  if (current == nullptr) return 201;
  standin_stream = stream;
  if (standin_result == 0) {
    reinterpret_cast<void (*)(const void*, std::int64_t, std::int32_t, std::int32_t)>(function)(
        params[0], blocks, static_cast<std::int32_t>(threads), 0);
  }
  return standin_result;
}
}
"""
CONTEXT, STREAM = 77, 88


class StandInDriver:
    """A library with the driver's functions; `numbers` reads and sets what it does.

    Attributes:
      library: Its functions.
      addresses: As of `driver_addresses`.
    """

    def __init__(self, folder: Path) -> None:
        """Compiles it."""
        compiler = find_compiler()
        made = folder / "standin_driver.so"
        command = [*compiler.command, *compiler.library_options, "-O2", "-x", "c++", "-"]
        subprocess.run([*command, "-o", str(made)], input=_TEXT, text=True, check=True)
        self.library = ctypes.CDLL(str(made))
        self.addresses = driver_addresses(self.library)

    def number(self, name: str) -> ctypes.c_int:
        """`standin_capturing`, `_result` and `_pushes`, to read and to set."""
        return ctypes.c_int.in_dll(self.library, f"standin_{name}")

    @property
    def stream(self) -> int | None:
        """The stream of the last launch."""
        return ctypes.c_void_p.in_dll(self.library, "standin_stream").value

    def entry(self, function: Any) -> _native.CudaEntry:
        """A function of the host as a kernel."""
        address = ctypes.cast(function, ctypes.c_void_p).value or 0
        return _native.CudaEntry(self.addresses, CONTEXT, address, lambda device: STREAM, 0)

    def take_over(self, env: Any, *, runs: bool = True) -> None:
        """Makes an emulated pool launch by this driver; not `runs`: its kernels do nothing."""
        steps = env.engine.steps
        steps.kernel = _DriverKernel(self, steps.kernel, runs)
        steps._launches = steps._native_launches()


class _DriverKernel(CudaKernel):
    """A kernel of the host, launched as one of a GPU."""

    def __init__(self, driver: StandInDriver, host: HostKernel, runs: bool) -> None:
        functions = host._entries if runs else [driver.library.standin_nothing]
        self._loaded: Any = SimpleNamespace(allow=lambda shared_bytes: None)
        self._entries = [driver.entry(one) for one in functions]
        self.most_shared_bytes = host.most_shared_bytes
