# SPDX-License-Identifier: Apache-2.0
"""Counts the CPUs that this process may use, which may be fewer than the machine has."""

from __future__ import annotations

import math
import os
from pathlib import Path


def usable_cpus() -> int:
    """CPUs in the process's affinity mask, limited to its cgroup's quota; at least 1."""
    try:
        count = len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        count = os.cpu_count() or 1
    quota = _cgroup_quota()
    return max(1, count if quota is None else min(count, math.ceil(quota)))


def _cgroup_quota() -> float | None:
    """CPU time per period that the cgroup allows, in CPUs; None without a limit."""
    try:
        # version 2
        limit, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return None if limit == "max" else int(limit) / int(period)
    except (OSError, ValueError):
        pass
    try:
        # version 1
        cpu = Path("/sys/fs/cgroup/cpu")
        limit_us = int((cpu / "cpu.cfs_quota_us").read_text())
        return limit_us / int((cpu / "cpu.cfs_period_us").read_text()) if limit_us > 0 else None
    except (OSError, ValueError):
        return None
