# SPDX-License-Identifier: Apache-2.0
"""The function that reports what a node has; Ray ships its code, so it runs under any release."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rollouts.support.same_release import Check

# distributions whose release affects what is sampled or learned, or whether that works at all
COMPARED = ("ray", "numpy", "gymnasium", "torch", "mujoco", "ale-py", "vizdoom", "mujoco-warp")

Probe = Callable[[Sequence[str], Check], dict[str, Any]]


def make_probe() -> Probe:
    """Makes the function, local so that cloudpickle ships its code.

    It returns the fields of `NodeReport`. If `rollouts` is missing or broken on the node, a field
    has the reason, and nothing is raised.
    """
    compared = COMPARED

    def probe(sys_path: Sequence[str], check: Check) -> dict[str, Any]:
        import glob
        import importlib.metadata
        import os
        import platform
        import shutil
        import sys

        # as a worker does, see `RolloutWorkerHost`
        sys.path[:] = [*sys_path, *(entry for entry in sys.path if entry not in sys_path)]
        affinity = getattr(os, "sched_getaffinity", None)
        num_cpus = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
        report: dict[str, Any] = {"python": platform.python_version(), "affinity_cpus": num_cpus}
        try:
            report["release_error"] = check()
            from rollouts.machine.cpu_count import usable_cpus

            num_cpus = usable_cpus()
        except Exception as error:
            report["release_error"] = f"rollouts cannot be imported: {error!r}"
        report["usable_cpus"] = num_cpus
        shm = "/dev/shm"
        report["shm_bytes"] = shutil.disk_usage(shm).total if os.path.isdir(shm) else None
        report["gpus"] = len(glob.glob("/dev/nvidia[0-9]*"))
        versions: dict[str, str | None] = {}
        for name in compared:
            try:
                versions[name] = importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                versions[name] = None
        report["versions"] = versions
        report["torch_cuda"] = None
        # torch takes seconds to import
        if report["gpus"] and versions["torch"]:
            import torch

            report["torch_cuda"] = torch.version.cuda
        return report

    return probe
