# SPDX-License-Identifier: Apache-2.0
"""Finds what is wrong with a node of a cluster, from the node's report. No Ray."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

# a clock that is further off makes logs, tokens and certificates of several nodes disagree
MAX_CLOCK_OFFSET_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    """The report of a node on itself.

    Attributes:
      python: Version, such as 3.11.7.
      affinity_cpus: CPUs in the affinity mask of Ray's processes.
      usable_cpus: The same, cut to the cgroup's quota.
      shm_bytes: Size of /dev/shm; None where there is none.
      gpus: Number of NVIDIA's device files.
      versions: Distribution -> version, None where it is not installed.
      torch_cuda: CUDA version of torch's wheel; None where it has none, or there is no GPU.
      release_error: How its release of rollouts differs from this process's; None where it is the
        same.
    """

    python: str
    affinity_cpus: int
    usable_cpus: int
    shm_bytes: int | None
    gpus: int
    versions: Mapping[str, str | None]
    torch_cuda: str | None = None
    release_error: str | None = None


@dataclass(slots=True, kw_only=True)
class NodeState:
    """The outcome of the checks of a node.

    Attributes:
      node_id: Ray's id of the node.
      address: Its IP address.
      host: Its host name.
      offers: Resource -> amount that Ray may give away there: CPU, GPU, object_store_memory.
      report: Its report; None where it did not answer.
      error: Why it did not answer.
      clock_offset_s: Seconds that its clock is ahead of this process's, at least; 0 where the time
        that messages took may explain the difference.
      first_fragment_s: Seconds from asking for a worker to its first arrays here; None where there
        was none.
      fragment_error: Why no fragment came; None where one came, or none was asked for.
    """

    node_id: str
    address: str
    host: str
    offers: Mapping[str, float]
    report: NodeReport | None = None
    error: str | None = None
    clock_offset_s: float = 0.0
    first_fragment_s: float | None = None
    fragment_error: str | None = None


def troubles(node: NodeState, driver: NodeReport) -> list[str]:
    """Returns sentences about faults of a node that must be mended before a run.

    Args:
      node: The outcome of the node's checks.
      driver: The report of the process that will start the workers.
    """
    if node.report is None:
        return [f"it does not answer: {node.error}"]
    found = [*_of_software(node.report, driver), *_of_machine(node, node.report)]
    if abs(node.clock_offset_s) > MAX_CLOCK_OFFSET_S:
        way = "ahead of" if node.clock_offset_s > 0 else "behind"
        found.append(
            f"its clock is {abs(node.clock_offset_s):.1f} s {way} that of this process: start NTP "
            "(chrony, systemd-timesyncd) on both"
        )
    if node.fragment_error is not None:
        found.append(f"no fragment came from a worker here: {node.fragment_error}")
    return found


def notes(node: NodeState, driver: NodeReport) -> list[str]:
    """Returns sentences about oddities of a node that may be intended."""
    if node.report is None:
        return []
    found = []
    if not node.offers.get("CPU", 0):
        found.append("Ray offers no CPUs here: no worker will run on it")
    missing = [
        name
        for name, version in driver.versions.items()
        if version is not None and node.report.versions.get(name) is None
    ]
    if missing:
        found.append(f"not installed here, but where this command runs: {', '.join(missing)}")
    if node.report.gpus > node.offers.get("GPU", 0):
        found.append(
            f"{node.report.gpus} GPUs are here and Ray offers {node.offers.get('GPU', 0):g}: give "
            "--num-gpus to `ray start` if workers shall have them"
        )
    return found


def _of_software(node: NodeReport, driver: NodeReport) -> Iterator[str]:
    if node.python.split(".")[:2] != driver.python.split(".")[:2]:
        yield (
            f"it has Python {node.python}, and this process {driver.python}: functions travel as "
            "bytecode, so install the same minor release on all nodes"
        )
    if node.release_error is not None:
        yield node.release_error
    for name, version in node.versions.items():
        expected = driver.versions.get(name)
        if version is not None and expected is not None and version != expected:
            yield (
                f"it has {name} {version}, and this process {expected}: install the same release "
                "on all nodes, by constraints.txt for example"
            )


def _of_machine(node: NodeState, report: NodeReport) -> Iterator[str]:
    num_cpus = node.offers.get("CPU", 0)
    if num_cpus > report.usable_cpus:
        yield (
            f"Ray offers {num_cpus:g} CPUs, and its processes may use {report.usable_cpus} "
            f"({report.affinity_cpus} in the affinity mask, the rest is the cgroup's quota): give "
            f"--num-cpus={report.usable_cpus} to `ray start`, or the job or container more CPUs"
        )
    store = node.offers.get("object_store_memory", 0)
    if report.shm_bytes is not None and report.shm_bytes < store:
        yield (
            f"/dev/shm has {_mib(report.shm_bytes)} MiB, and Ray's object store {_mib(store)} MiB, "
            "which then lies on disk: make /dev/shm larger (docker run --shm-size, an emptyDir of "
            "medium Memory) or give a smaller --object-store-memory to `ray start`"
        )
    num_gpus = node.offers.get("GPU", 0)
    if num_gpus > report.gpus:
        yield (
            f"Ray offers {num_gpus:g} GPUs, and {report.gpus} of NVIDIA are here: give "
            f"--num-gpus={report.gpus} to `ray start`, or the container its devices"
        )
    elif num_gpus and report.versions.get("torch") and report.torch_cuda is None:
        yield (
            f"Ray offers {num_gpus:g} GPUs, and torch {report.versions['torch']} was built without "
            "CUDA: install a torch for CUDA"
        )


def _mib(num_bytes: float) -> int:
    return round(num_bytes / 2**20)
