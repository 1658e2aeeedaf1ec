# SPDX-License-Identifier: Apache-2.0
"""`CudaKernel`: a kernel compiled by NVRTC for the present card, launched on torch's stream.

This is the only Python code that calls CUDA, through `cuda.bindings` (extra `cuda`). The launches
themselves are calls of native code, `native/bindings/cuda_entry.h`.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import importlib
import re
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from rollouts import _native
from rollouts.envs.kernel.kernel_source import KernelSource
from rollouts.envs.kernel.launch_args import Launch
from rollouts.errors import EngineError, SpecError
from rollouts.own_env.cache import cache_folder, find_or_make

_CUBIN = "kernel.cubin"
_LOG = "compiler.log"
_ALWAYS_ALLOWED = 48 * 1024  # bytes of shared memory that every kernel may use
_INSTALL = "pip install 'rollouts[cuda]'"


class CudaKernel:
    """A kernel of one device."""

    def __init__(self, source: KernelSource, device: torch.device) -> None:
        """Compiles it, or takes it from the cache, and loads it.

        Raises:
          EngineError: No GPU, driver or `cuda.bindings`. SpecError: NVRTC refuses the text.
        """
        if not torch.cuda.is_available():
            raise EngineError(
                "device='cuda' needs an NVIDIA GPU, its driver and a build of torch with CUDA, and "
                "torch finds none (torch.cuda.is_available() is False): leave device out for the "
                "C++ pool; device='cpu-emulation' runs the GPU's kernels on the CPU, for tests"
            )
        self._driver = _bindings("driver")
        self._device = device
        # torch creates the context, which all calls below use
        with torch.cuda.device(device):
            torch.cuda.current_stream()
            torch.zeros(1, device=device)
            major, minor = torch.cuda.get_device_capability(device)
            context = self._check(self._driver.cuCtxGetCurrent())
            cubin = compile_cubin(source, f"sm_{major}{minor}")
            self._loaded = _load(self._driver, cubin, device.index, source.entries)
        addresses = driver_addresses(ctypes.CDLL("libcuda.so.1"))
        stream: Callable[[int], int] = torch._C._cuda_getCurrentRawStream
        self._entries = [
            _native.CudaEntry(addresses, int(context), int(one), stream, device.index)
            for one in self._loaded.entries
        ]
        attributes = self._driver.CUdevice_attribute
        self.most_shared_bytes = int(
            self._check(
                self._driver.cuDeviceGetAttribute(
                    attributes.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, device.index
                )
            )
        )

    @property
    def num_launches(self) -> int:
        """The number of launches so far."""
        return sum(one.num_launches for one in self._entries)

    def step_entry(self, shared_bytes: int) -> _native.CudaEntry:
        """As in `Kernel`."""
        self._loaded.allow(shared_bytes)
        return self._entries[0]

    def launch(
        self, args: Launch, num_blocks: int, num_threads: int, shared_bytes: int = 0
    ) -> None:
        """Puts a launch on torch's current stream and returns; data of `args` must stay valid."""
        self._loaded.allow(shared_bytes)
        entry = self._entries[-1 if args.takes_many_steps else 0]
        entry.launch(ctypes.addressof(args), num_blocks, num_threads, shared_bytes)

    def _check(self, result: tuple[Any, ...]) -> Any:
        return _checked(self._driver, result)


def driver_addresses(libcuda: ctypes.CDLL) -> dict[str, int]:
    """Name -> address of the functions that native code calls."""
    names = (
        *("cuLaunchKernel", "cuStreamIsCapturing", "cuGetErrorString"),
        *("cuCtxGetCurrent", "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2"),
    )
    found = {name: ctypes.cast(getattr(libcuda, name), ctypes.c_void_p) for name in names}
    return {name: one.value or 0 for name, one in found.items()}


def current_capture() -> int | None:
    """The number of the capture that torch's current stream is in; None outside one."""
    # checked first, so that a process without a context, such as one that emulates, gets none
    is_initialized = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    if not (is_initialized and torch.cuda.is_current_stream_capturing()):
        return None
    driver = _bindings("driver")
    status, _, number, *_ = driver.cuStreamGetCaptureInfo(torch.cuda.current_stream().cuda_stream)
    _checked(driver, (status,))
    return int(number)


def _checked(driver: Any, result: tuple[Any, ...]) -> Any:
    status, *values = result
    if status != driver.CUresult.CUDA_SUCCESS:
        _, text = driver.cuGetErrorString(status)
        raise EngineError(f"CUDA: {(text or str(status).encode()).decode()}")
    return values[0] if values else None


class Loaded:
    """A cubin's functions on a device, shared by all pools with this kernel."""

    def __init__(self, driver: Any, image: bytes, entries: tuple[str, ...]) -> None:
        """Loads it on the current device."""
        self._driver = driver
        module = _checked(driver, driver.cuModuleLoadData(image))
        self.entries = [
            _checked(driver, driver.cuModuleGetFunction(module, name.encode())) for name in entries
        ]
        self._lock = threading.Lock()
        self._allowed_bytes = _ALWAYS_ALLOWED

    def allow(self, shared_bytes: int) -> None:
        """Allows a block this much shared memory; larger limits of other pools stay."""
        attributes = self._driver.CUfunction_attribute
        most = attributes.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        with self._lock:
            if shared_bytes <= self._allowed_bytes:
                return
            for one in self.entries:
                _checked(self._driver, self._driver.cuFuncSetAttribute(one, most, shared_bytes))
            self._allowed_bytes = shared_bytes


@functools.cache
def _load(driver: Any, cubin: Path, device: int, entries: tuple[str, ...]) -> Loaded:
    """Loads a kernel's functions on the current device, once for all pools."""
    return Loaded(driver, cubin.read_bytes(), entries)


def compile_cubin(source: KernelSource, arch: str) -> Path:
    """Compiles a kernel for `arch`, such as "sm_90"; needs no GPU.

    Raises:
      EngineError: NVRTC is missing. SpecError: It refuses the text, with file and line.
    """
    nvrtc = _bindings("nvrtc")
    options, where = _options(source, arch)

    def make(folder: Path) -> None:
        cubin, said = _run_nvrtc(nvrtc, source, [*options, *where])
        (folder / _CUBIN).write_bytes(cubin)
        (folder / _LOG).write_text(said)

    status, *version = nvrtc.nvrtcVersion()
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise EngineError(f"NVRTC does not start ({status}): {_INSTALL}")
    parts = [source.digest, *options, repr(version)]
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
    return find_or_make(cache_folder("cuda"), key, _CUBIN, make)


@dataclass(frozen=True, slots=True)
class KernelUsage:
    """Registers and memory that a thread of a kernel takes.

    Attributes:
      registers: Registers of 32 bits.
      stack_bytes: Bytes of local memory, spilled registers among them.
      spill_bytes: Stores and loads of spilled registers in the kernel's text.
    """

    registers: int
    stack_bytes: int
    spill_bytes: int


def kernel_usage(source: KernelSource, arch: str) -> dict[str, KernelUsage]:
    """Entry -> the compiler's report on it; needs no GPU.

    Reads the compiler's output from the build of the cubin, which is kept beside it in the cache.

    Raises:
      As `compile_cubin`.
    """
    log = compile_cubin(source, arch).with_name(_LOG).read_text()
    usage = {}
    for entry in source.entries:
        text = log.partition(f"Compiling entry function '{entry}'")[2]
        registers = re.search(r"Used (\d+) registers", text)
        stack = re.search(r"(\d+) bytes cumulative stack", text)
        spilled = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", text)
        if registers is None or spilled is None:
            raise EngineError(f"NVRTC does not say what {entry} takes: {log[-500:]}")
        usage[entry] = KernelUsage(
            int(registers[1]),
            int(stack[1]) if stack else 0,
            int(spilled[1]) + int(spilled[2]),
        )
    return usage


def _options(source: KernelSource, arch: str) -> tuple[list[str], list[str]]:
    """Returns options that change the code, and options for the headers' folders."""
    options = [
        "--std=c++20",
        f"--gpu-architecture={arch}",
        # no fused operations, so that sums equal the host's
        "--fmad=false",
        # functions that only the host calls, such as VisitConfig, have no annotation
        "--device-as-default-execution-space",
        # reports registers and memory, without a change of code
        "--ptxas-options=-v",
    ]
    return options, [f"--include-path={folder}" for folder in source.include_dirs]


def _run_nvrtc(nvrtc: Any, source: KernelSource, options: list[str]) -> tuple[bytes, str]:
    """Returns the cubin, and the compiler's output."""

    def check(result: tuple[Any, ...]) -> Any:
        status, *values = result
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise EngineError(f"NVRTC: {status}")
        return values[0] if values else None

    program = check(nvrtc.nvrtcCreateProgram(source.text.encode(), b"kernel.cu", 0, [], []))
    try:
        (status,) = nvrtc.nvrtcCompileProgram(
            program, len(options), [option.encode() for option in options]
        )
        log = b" " * check(nvrtc.nvrtcGetProgramLogSize(program))
        check(nvrtc.nvrtcGetProgramLog(program, log))
        text = log.rstrip(b"\0 ").decode()
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise SpecError(f"{source.name} does not compile for a GPU:\n{source.explain(text)}")
        cubin = b" " * check(nvrtc.nvrtcGetCUBINSize(program))
        check(nvrtc.nvrtcGetCUBIN(program, cubin))
        return bytes(cubin), text
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _bindings(name: str) -> Any:
    try:
        module = importlib.import_module(f"cuda.bindings.{name}")
        if name == "nvrtc":
            _load_builtins(*module.nvrtcVersion()[1:])
        return module
    except (ImportError, RuntimeError) as error:
        reason = str(error).partition("\n")[0]
        raise EngineError(f"pools on a GPU need cuda.bindings ({reason}): {_INSTALL}") from error


@functools.cache
def _load_builtins(major: int, minor: int) -> None:
    """Loads libnvrtc-builtins from the folder of the NVRTC that this process has loaded.

    NVRTC opens the library by name only, when it first compiles. In CUDA 13.0's wheel it does not
    find the library if torch loaded NVRTC before cuda.bindings could.
    """
    with suppress(OSError):
        maps = Path("/proc/self/maps").read_text()
        found = re.search(r"(/.*)/libnvrtc\.so[.\d]*$", maps, re.MULTILINE)
        if found is not None:
            ctypes.CDLL(f"{found[1]}/libnvrtc-builtins.so.{major}.{minor}")
