# SPDX-License-Identifier: Apache-2.0
"""One trial in a process of its own: `python -m rollouts.tuning.trial`.

A separate process has its own peak of memory, and its end affects no other if it is killed.
"""

from __future__ import annotations

import json
import pickle
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rollouts import _native
from rollouts.errors import RolloutsError
from rollouts.machine.memory import peak_memory, usable_memory

CPU = "cpu"


@dataclass(frozen=True, slots=True)
class CollectRequest:
    """The parameters of one trial.

    Attributes:
      id, env_options: The environments; a user's own is registered where the id is unpickled.
      policy: A name for `bench.policy_kinds.read_policy`.
      device: "cpu" for a C++ pool, or a device of `make_vec`.
      num_envs, rollout_length: The size.
      num_threads: Threads of a C++ pool.
      duration_s, repeats, seed: Approximate duration of a repeat, number of repeats, and seed.
    """

    id: str
    env_options: dict[str, Any]
    policy: str
    device: str
    num_envs: int
    rollout_length: int
    num_threads: int
    duration_s: float
    repeats: int
    seed: int


def collect(request: CollectRequest) -> dict[str, Any]:
    """Collects with that size, and returns fields of a `Trial`.

    Raises:
      SpecError, EngineError: As `make_vec` and the collectors.
    """
    from rollouts.envs.make import make_vec

    usable, used = _memory(request.device)
    arguments: dict[str, Any] = {"seed": request.seed, "autoreset_mode": "same_step"}
    if request.device == CPU:
        arguments["num_threads"] = min(request.num_threads, request.num_envs)
    else:
        arguments["device"] = request.device
    with make_vec(request.id, request.num_envs, **arguments, **request.env_options) as env:
        collector, wait = _collector(env, request)
        # a learner holds one rollout while the next is collected
        held = [collector.collect(), collector.collect()]
        wait()

        def run(count: int) -> float:
            begun = time.perf_counter()
            for _ in range(count):
                held[0], held[1] = held[1], collector.collect()
            wait()
            return time.perf_counter() - begun

        count = 1
        while (seconds := run(count)) < request.duration_s / 4:
            count *= 2
        count = max(1, round(count * request.duration_s / seconds))
        steps = count * request.num_envs * request.rollout_length
        speeds = [steps / run(count) for _ in range(request.repeats)]
        return {
            "engine": getattr(collector, "engine", "native"),
            "env_steps_per_s": speeds,
            "memory_bytes": used(),
            "usable_bytes": usable,
        }


def _collector(env: Any, request: CollectRequest) -> tuple[Any, Callable[[], None]]:
    """A collector, and a function that waits until the device has finished."""
    from rollouts.bench.policies import make_policy
    from rollouts.bench.policy_kinds import read_policy
    from rollouts.collecting.collector import Collector
    from rollouts.workers.worker_config import PolicySpec

    def policy_of(one: Any, num_rows: int) -> Any:
        spec = PolicySpec.here(request.id, one, num_envs=num_rows, seed=request.seed)
        policy: Any = make_policy(spec, kind=read_policy(request.policy))
        if request.device.startswith("cuda"):
            policy.module.to(env.device)
        return policy

    groups = getattr(env, "groups", None)
    policy: Any = (
        {name: policy_of(one, env.num_envs * one.num_agents) for name, one in groups.items()}
        if groups
        else policy_of(env, env.num_envs)
    )
    collector = Collector(env, policy, request.rollout_length)
    return collector, collector.synchronize


def _memory(device: str) -> tuple[int, Callable[[], int]]:
    """Free bytes, and a function that returns the bytes taken since."""
    if not device.startswith("cuda"):
        return usable_memory(), peak_memory
    import torch

    from rollouts.envs.kernel.device_arguments import read_device

    where, _ = read_device(device)
    if not torch.cuda.is_available():  # make_vec raises the error
        return 0, lambda: 0
    torch.zeros(1, device=where)  # takes the memory that every process needs
    free = torch.cuda.mem_get_info(where)[0]
    return free, lambda: free - torch.cuda.mem_get_info(where)[0]


def is_out_of_memory(error: RuntimeError) -> bool:
    """Tells if an error of torch, CUDA or Warp is a failed allocation."""
    words = str(error)
    return (
        type(error).__name__ == "OutOfMemoryError"
        or "memory" in words
        or words.startswith("Failed to allocate")
    )


def main() -> None:
    """Reads a pickled `CollectRequest` from stdin; the last line of stdout is the JSON answer."""
    _native.end_after_parent(1)
    try:
        answer = collect(pickle.load(sys.stdin.buffer))
    except RolloutsError as error:
        answer = {"error": type(error).__name__, "message": str(error)}
        # a kernel launch fails with this message where torch's tensors fill the GPU's memory
        if str(error) == "CUDA: out of memory":
            answer = {"failure": "out of memory: a kernel could not be launched"}
    except MemoryError:
        answer = {"failure": "out of memory"}
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        answer = {"failure": f"out of memory: {str(error).splitlines()[0]}"}
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
