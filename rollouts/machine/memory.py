# SPDX-License-Identifier: Apache-2.0
"""Measures the memory that this process can still allocate, and that it uses."""

from __future__ import annotations

import os
from pathlib import Path

_CGROUPS = (
    # limit and usage of version 2, then of version 1
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    (
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory/memory.usage_in_bytes",
    ),
)


def usable_memory(proc: Path = Path("/proc")) -> int:
    """Bytes that can be allocated without swapping, limited by the process's cgroup."""
    free = _kilobytes(proc / "meminfo", "MemAvailable")
    if free is None:  # not Linux
        free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for limit, usage in _CGROUPS:
        try:
            left = int(Path(limit).read_text()) - int(Path(usage).read_text())
        except (OSError, ValueError):  # no such file, or "max"
            continue
        return max(0, min(free, left))
    return free


def peak_memory(proc: Path = Path("/proc")) -> int:
    """The most bytes of memory that this process has used since its program began."""
    peak = _kilobytes(proc / "self/status", "VmHWM")
    if peak is not None:
        return peak
    import resource

    # not Linux; on Linux ru_maxrss also counts the process that started this one
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def resident_memory(proc: Path = Path("/proc")) -> int:
    """Bytes of memory that this process uses now; 0 if the system does not report it."""
    return _kilobytes(proc / "self/status", "VmRSS") or 0


def _kilobytes(path: Path, name: str) -> int | None:
    """Bytes in a line `name: 123 kB` of a file; None if there is no such line."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return None
