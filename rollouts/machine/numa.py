# SPDX-License-Identifier: Apache-2.0
"""Finds the CPUs of a NUMA node and keeps this process on them."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from rollouts.errors import SpecError

SYSFS = Path("/sys/devices/system/node")


def keep_on_node(index: int, num_nodes: int, sysfs: Path = SYSFS) -> tuple[int, ...]:
    """Keeps every thread of this process, and new threads, on the CPUs of one NUMA node.

    Memory follows: Linux takes a page from the node of the thread that first writes to it.

    Args:
      index, num_nodes, sysfs: See `node_cpus`.
    Returns:
      The CPUs, a subset of those that this process could use before.
    Raises:
      SpecError: The system is not Linux; also the errors of `node_cpus`.
    """
    if not hasattr(os, "sched_setaffinity"):
        raise SpecError("numa_nodes needs Linux; leave it out on this system")
    cpus = node_cpus(index, num_nodes, frozenset(os.sched_getaffinity(0)), sysfs)
    kept: set[str] = set()
    # repeated until there are no new threads, because a thread may have started others before
    while new := set(os.listdir("/proc/self/task")) - kept:
        for task in new:
            with contextlib.suppress(ProcessLookupError):  # it has ended since
                os.sched_setaffinity(int(task), cpus)
        kept |= new
    return cpus


def node_cpus(
    index: int, num_nodes: int, usable: frozenset[int], sysfs: Path = SYSFS
) -> tuple[int, ...]:
    """Returns the usable CPUs of a machine's NUMA node.

    Args:
      index: Number, from 0, among the machine's nodes that have CPUs; nodes with only memory do not
        count.
      num_nodes: The least number of nodes that the machine is expected to have.
      usable: CPUs that this process may use.
      sysfs: The kernel's folder that describes the nodes.
    Raises:
      SpecError: The machine has fewer nodes, does not describe them, or the node has no usable CPU.
    """
    nodes = _nodes_with_cpus(sysfs)
    if num_nodes > len(nodes):
        listed = ", ".join(f"node {node}" for node in nodes)
        raise SpecError(
            f"numa_nodes is {num_nodes}, and this machine has {len(nodes)} with CPUs ({listed}): "
            f"pass numa_nodes={len(nodes)} or less"
        )
    node = sorted(nodes)[index]
    cpus = tuple(cpu for cpu in nodes[node] if cpu in usable)
    if not cpus:
        raise SpecError(
            f"NUMA node {node} has CPUs {_shown(nodes[node])}, of which this process may use none "
            f"(its affinity mask has {_shown(sorted(usable))}): widen the mask or the container's "
            "set of CPUs, or leave numa_nodes out"
        )
    return cpus


def _nodes_with_cpus(sysfs: Path) -> dict[int, list[int]]:
    """CPUs by the number of their node."""
    try:
        online = _numbers((sysfs / "online").read_text())
        lists = {node: _numbers((sysfs / f"node{node}" / "cpulist").read_text()) for node in online}
    except (OSError, ValueError) as error:
        raise SpecError(
            f"{sysfs} does not tell which NUMA nodes this machine has ({error}): leave numa_nodes "
            "out, or name each worker's CPUs with pin_threads"
        ) from error
    return {node: cpus for node, cpus in lists.items() if cpus}


def _numbers(text: str) -> list[int]:
    """Reads the kernel's lists, such as "0-3,8"."""
    numbers: list[int] = []
    for part in text.strip().split(","):
        if part:
            first, _, last = part.partition("-")
            numbers += range(int(first), int(last or first) + 1)
    return numbers


def _shown(cpus: list[int]) -> str:
    return ", ".join(map(str, cpus))
