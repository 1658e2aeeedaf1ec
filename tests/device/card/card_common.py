# SPDX-License-Identifier: Apache-2.0
"""Everything that the parts of the check have in common: the device, figures, times, pools."""

from __future__ import annotations

import importlib.metadata
import itertools
import json
import os
import statistics
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from common.tag import OPTIONS

DEVICE = os.environ.get("CARD_DEVICE", "cuda")
ON_CARD = DEVICE == "cuda"
ROOT = Path(os.environ.get("CARD_ROOT", "."))
OUT = Path(os.environ.get("CARD_OUT", "."))
SITE = Path("/tmp/card_site")  # packages that the machine's Python lacks
WORK = Path("/tmp/card_work")  # where parts run: in the checkout its folder would hide the package
CACHE = Path("/tmp/card_cache")
# Tag as its published figures have it
CROWD = OPTIONS["TagContinuous-v0"] | {"num_runners": 100, "max_episode_steps": 500}
WIDE_CROWD = CROWD | {"num_runners": 995}


def result(name: str, **values: object) -> None:
    """Prints a row of figures, which the driver collects."""
    print("RESULT " + json.dumps({"what": name, **values}, default=str), flush=True)


@contextmanager
def trying(name: str) -> Iterator[None]:
    """Reports a failure as a row and lets the part go on."""
    begun = time.perf_counter()
    try:
        yield
        print(f"{name}: {time.perf_counter() - begun:.2f} s", flush=True)
    except Exception as error:
        traceback.print_exc()
        first, *_ = [*str(error).splitlines(), ""]
        result(name, FAILED=f"{type(error).__name__}: {first}"[:150])


def version(name: str) -> str:
    """The version of an installed package, or "none"."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "none"


def wait() -> None:
    """Waits for the card."""
    import torch

    if ON_CARD:
        torch.cuda.synchronize()


def per_call(call: Callable[[], Any], seconds: float = 0.3, repeats: int = 3) -> float:
    """Seconds of a call: the median of repeats, each of many calls and one wait."""
    call(), wait()
    count, times = 1, []
    while True:
        begun = time.perf_counter()
        for _ in range(count):
            call()
        wait()
        if (took := time.perf_counter() - begun) > seconds / 4 or count > 10**6:
            break
        count *= 4
    count = max(1, round(count * seconds / took))
    for _ in range(repeats):
        begun = time.perf_counter()
        for _ in range(count):
            call()
        wait()
        times.append((time.perf_counter() - begun) / count)
    return statistics.median(times)


def device_time(call: Callable[[], Any], count: int = 30) -> float:
    """Seconds of a call on the card alone: launches wait in the queue behind a sleep."""
    import torch

    call(), wait()
    begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(int(2e9 * (2e-3 + count * 60e-6)))
    begun.record()
    for _ in range(count):
        call()
    ended.record()
    wait()
    return begun.elapsed_time(ended) / 1e3 / count


def as_graph(call: Callable[[], Any], count: int) -> Any:
    """Records `count` calls as one CUDA graph."""
    import torch

    call(), wait()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(count):
            call()
    return graph


def make(env_id: str, num_envs: int, device: str = DEVICE, **options: Any) -> Any:
    """A pool of the device, which autoresets in the same step."""
    import rollouts

    arguments = {"seed": 0, "autoreset_mode": "same_step", **options}
    return rollouts.make_vec(env_id, num_envs, device=device, **arguments)


def kernel_ids() -> tuple[list[str], list[str]]:
    """Ids that stand for all kernels, with one agent and with several."""
    from kernel_ids import light_kernel_ids

    import rollouts

    return list(light_kernel_ids()), [one for one in rollouts.multi_agent_ids() if "/" not in one]


def agent(num_inputs: int, num_outputs: int, hidden: tuple[int, ...] = (64, 64)) -> Any:
    """Actor and critic, each with its own hidden layers."""
    import torch
    from torch import nn

    def layers(last: int) -> nn.Sequential:
        sizes, found = [num_inputs, *hidden], []
        for before, after in itertools.pairwise(sizes):
            found += [nn.Linear(before, after), nn.Tanh()]
        return nn.Sequential(*found, nn.Linear(sizes[-1], last))

    class Agent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.actor, self.critic = layers(num_outputs), layers(1)

        def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.actor(obs), self.critic(obs)

    return Agent()


def make_collector(env: Any, length: int, module: Any = None, **options: Any) -> Any:
    """A collector whose policy is `module`, by default an agent of 64 and 64."""
    import rollouts

    space = next(iter(env.groups.values())) if hasattr(env, "groups") else env
    if module is None:
        shape, actions = space.single_observation_space.shape, space.single_action_space
        module = agent(shape[0], int(actions.n))
    policy = rollouts.TorchPolicy(module, space.single_action_space, device=env.device)
    return rollouts.Collector(env, policy, length, **options)
