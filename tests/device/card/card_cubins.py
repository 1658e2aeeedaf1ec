# SPDX-License-Identifier: Apache-2.0
"""Compiles all kernels for a card into the cache; needs none.

python tests/device/card/card_cubins.py sm_90 [PROCESSES]
"""

from __future__ import annotations

import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path[:0] = [str(HERE), *(str(ROOT / one) for one in ("tests/helpers", "examples"))]

from card_common import kernel_ids  # noqa: E402

# kernels that the check launches and that options have made others than the id's own
OF_OPTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "TagGridWorld-v0 of 5": ("TagGridWorld-v0", {"num_taggers": 4}),
}


class Compiled(Exception):
    """Ends the making of a pool whose kernel is there."""


def compile_one(name: str, arch: str) -> float:
    """Seconds that NVRTC takes for an id, or for policies: "policy", dtypes of what they see and
    multiply."""
    import rollouts
    from rollouts.envs.kernel import agent_teams, cuda, kernel_source, one_agent

    begun = time.perf_counter()
    if name.startswith("policy "):
        cuda.compile_cubin(kernel_source.PolicyKernelSource(*name.split()[1:]), arch)
        return time.perf_counter() - begun

    def compile_only(source: kernel_source.KernelSource, *_: object, **__: object) -> None:
        cuda.compile_cubin(source, arch)
        raise Compiled

    one_agent.make_kernel = agent_teams.make_kernel = compile_only
    env_id, options = OF_OPTIONS.get(name, (name, {}))
    try:
        rollouts.make_vec(env_id, 4, device="cpu-emulation", **options)
    except Compiled:
        return time.perf_counter() - begun
    raise AssertionError(f"{name} has no kernel")


if __name__ == "__main__":
    arch, processes = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1
    light, agents = kernel_ids()
    names = [f"policy {dtype}" for dtype in ("float32", "int64", "uint8", "float32 bfloat16")]
    names += [*light, *agents, *OF_OPTIONS]
    with ProcessPoolExecutor(processes) as pool:
        times = pool.map(compile_one, names, [arch] * len(names))
        for name, seconds in zip(names, times, strict=True):
            print(f"{name}: {seconds:.1f} s", flush=True)
