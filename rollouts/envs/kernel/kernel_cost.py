# SPDX-License-Identifier: Apache-2.0
"""The registers and memory of kernels, and limits of their speed, without a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any

from rollouts.envs.kernel.cuda import kernel_usage
from rollouts.envs.kernel.device_arguments import EMULATION
from rollouts.envs.kernel.kernel_engine import KernelEngine
from rollouts.envs.kernel.team_shape import SYSTEM_BYTES
from rollouts.errors import SpecError

_REGISTERS = 65536  # registers of one multiprocessor
# most shared KiB of a block; and a multiprocessor's shared KiB, threads and blocks
_LIMITS = {
    "sm_80": (163, 164, 2048, 32),
    "sm_86": (99, 100, 1536, 16),
    "sm_89": (99, 100, 1536, 24),
    "sm_90": (227, 228, 2048, 32),
    "sm_100": (227, 228, 2048, 32),
    "sm_120": (99, 100, 1536, 24),
}
_ENVS = 4096  # any number: sizes per environment do not depend on it


@dataclass(frozen=True, slots=True)
class KernelCost:
    """One entry of an environment's kernel.

    Attributes:
      id, arch: The environment, and the GPU's architecture.
      entry: The kernel's function: rollouts_step, or rollouts_steps for many steps per launch.
      num_agents: Agents of an environment.
      registers, stack_bytes, spill_bytes: Use of a thread, from the compiler's report.
      num_threads, shared_bytes, envs_of_block: Use of a block.
      resident_envs: Environments that a multiprocessor works on at once.
      env_bytes: Bytes that are moved for each environment in a step.
      env_steps_per_s: Upper limit by the bandwidth of the GPU's memory. Data in its cache allow
        more, and environments that compute much reach less.
    """

    id: str
    arch: str
    entry: str
    num_agents: int
    registers: int
    stack_bytes: int
    spill_bytes: int
    num_threads: int
    shared_bytes: int
    envs_of_block: int
    resident_envs: int
    env_bytes: float
    env_steps_per_s: float


def kernel_costs(
    id: str,
    arch: str,
    *,
    env_options: Mapping[str, Any] | None = None,
    bandwidth: float = 4.3e12,
) -> list[KernelCost]:
    """Compiles an environment's kernel and reads the compiler's report.

    Args:
      id: An id whose `env_spec(id).runs_on_gpu` is True.
      arch: "sm_80", "sm_86", "sm_89", "sm_90", "sm_100" or "sm_120".
      env_options: The environment's options.
      bandwidth: Bandwidth of that GPU's memory, bytes per second.

    Raises:
      SpecError, EngineError: As `make_vec` and `compile_cubin`; SpecError for another arch.
    """
    if arch not in _LIMITS:
        raise SpecError(f"arch is {arch!r}, expected one of {', '.join(_LIMITS)}")
    most_of_block, shared_kib, most_threads, most_blocks = _LIMITS[arch]
    engine = KernelEngine(
        id, _ENVS, device=EMULATION, autoreset_mode="same_step", env_options=env_options
    )
    with closing(engine):
        cost = engine.step_cost(1024 * most_of_block)
    block = cost.block
    costs = []
    for entry, usage in kernel_usage(cost.source, arch).items():
        # warps get registers in units of 8 per thread
        of_block = -(-usage.registers // 8) * 8 * block.num_threads
        blocks = min(
            most_blocks,
            most_threads // block.num_threads,
            _REGISTERS // of_block,
            1024 * shared_kib // (block.shared_bytes + SYSTEM_BYTES),
        )
        costs.append(
            KernelCost(
                id=id,
                arch=arch,
                entry=entry,
                num_agents=sum(group.num_agents for group in engine.env_spec.groups) or 1,
                registers=usage.registers,
                stack_bytes=usage.stack_bytes,
                spill_bytes=usage.spill_bytes,
                num_threads=block.num_threads,
                shared_bytes=block.shared_bytes,
                envs_of_block=block.num_envs,
                resident_envs=blocks * block.num_envs,
                env_bytes=cost.env_bytes,
                env_steps_per_s=bandwidth / cost.env_bytes,
            )
        )
    return costs


def as_table(costs: list[KernelCost]) -> str:
    """Aligned text, a row for each entry."""
    lines = [
        f"{'':<44}{'registers':>10}{'stack':>8}{'spills':>8}{'threads':>9}{'shared':>9}{'envs':>6}"
        f"{'resident':>10}{'bytes/step':>12}{'at most':>12}"
    ]
    for one in costs:
        agents = f" ({one.num_agents} agents)" if one.num_agents > 1 else ""
        lines.append(
            f"{f'{one.id}{agents} {one.entry}':<40}{one.registers:>10}{one.stack_bytes:>8}"
            f"{one.spill_bytes:>8}{one.num_threads:>9}{one.shared_bytes:>9}{one.envs_of_block:>6}"
            f"{one.resident_envs:>10}{one.env_bytes:>12.0f}{one.env_steps_per_s:>12.2g}"
        )
    lines.append(
        "stack and spills: bytes of a thread; shared, threads, envs: of a block; resident: envs "
        "that a multiprocessor works on at once; at most: env-steps/s by the memory's bandwidth"
    )
    return "\n".join(lines)


def as_json(costs: list[KernelCost]) -> list[dict[str, Any]]:
    """Rows as plain values."""
    return [asdict(one) for one in costs]
