# SPDX-License-Identifier: Apache-2.0
"""Env-steps per second of a GPU's pool: launched, by a CUDA graph, and by K steps a launch."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch

import rollouts
from rollouts.checks import whole_number
from rollouts.envs.kernel.device_arguments import EMULATION
from rollouts.errors import SpecError

_GRAPH_STEPS = 20  # steps of one graph, which share the cost of starting it


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """The result of one way of stepping.

    Attributes:
      id, num_envs, device: The environments.
      num_agents: Agents in an environment.
      way: "C++ pool", "launched", "graph" or "K steps a launch".
      env_steps_per_s: Speed in each repeat, by the wall clock, resets included.
    """

    id: str
    num_envs: int
    device: str
    num_agents: int
    way: str
    env_steps_per_s: tuple[float, ...]

    @property
    def median(self) -> float:
        """Median of the repeats."""
        return statistics.median(self.env_steps_per_s)


def measure_device(
    id: str,
    num_envs: int,
    device: str,
    *,
    env_options: Mapping[str, Any] | None = None,
    num_steps: int = 100,
    duration_s: float = 1.0,
    repeats: int = 5,
) -> list[DeviceRow]:
    """Measures an environment on a device and the C++ pool in turns.

    Args:
      id: An id whose `env_spec(id).runs_on_gpu` is True.
      num_envs: Environments N, in both.
      device: "cuda", or "cpu-emulation", whose speed does not predict a GPU's.
      env_options: Options of the environments.
      num_steps: K of one launch.
      duration_s: Approximate duration of one repeat of each.
      repeats: Repeats of each.

    Raises:
      SpecError: The id is not one that runs_on_gpu. SpecError, EngineError: As `make_vec`.
    """
    whole_number("repeats", repeats, 1, 10**6)
    if not duration_s > 0:
        raise SpecError(f"duration_s must be above 0, got {duration_s}")
    if not rollouts.env_spec(id).runs_on_gpu:
        raise SpecError(
            f"{id} hosts an engine of the CPU, which no GPU steps: `rollouts bench` measures it"
        )
    arguments: dict[str, Any] = {"seed": 0, "autoreset_mode": "same_step", **(env_options or {})}
    env = rollouts.make_vec(id, num_envs, device=device, **arguments)
    num_agents = sum(group.num_agents for group in env.env_spec.groups) or 1
    pool = rollouts.make_vec(id, num_envs, **arguments)
    with env, pool:
        ways = _ways(env, pool, num_steps)
        calls = {name: _calls_for(duration_s, call) for name, (call, _) in ways.items()}
        speeds: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(repeats):
            for name, (call, env_steps) in ways.items():
                seconds = _time(call, calls[name])
                speeds[name].append(calls[name] * env_steps / seconds)
    return [
        DeviceRow(id, num_envs, device, num_agents, name, tuple(each))
        for name, each in speeds.items()
    ]


# a function that makes a number of calls and waits for them, and the env-steps of a call
_Way = tuple[Callable[[int], None], int]


def _ways(
    env: rollouts.VectorEnv[torch.Tensor], pool: rollouts.VectorEnv, num_steps: int
) -> dict[str, _Way]:
    env.reset()
    pool.reset()
    actions: Any = env.rollout(1, record=True)[4]["action"]
    on_host: Any
    if isinstance(actions, dict):
        actions = {name: one[0] for name, one in actions.items()}
        on_host = {name: one.cpu().numpy() for name, one in actions.items()}
    else:
        actions = actions[0]
        on_host = actions.cpu().numpy()

    def step_pool(count: int) -> None:
        for _ in range(count):
            pool.step(on_host)

    def step(count: int) -> None:
        for _ in range(count):
            env.step(actions)
        env.synchronize()

    def steps(count: int) -> None:
        for _ in range(count):
            env.rollout(num_steps, "random")
        env.synchronize()

    ways: dict[str, _Way] = {
        "C++ pool": (step_pool, env.num_envs),
        "launched": (step, env.num_envs),
    }
    if env.device.type == "cuda":
        ways["graph"] = (_graph(env, actions), env.num_envs * _GRAPH_STEPS)
    ways[f"{num_steps} steps a launch"] = (steps, env.num_envs * num_steps)
    return ways


def _graph(env: rollouts.VectorEnv[torch.Tensor], actions: Any) -> Callable[[int], None]:
    env.step(actions)
    env.synchronize()
    graph = torch.cuda.CUDAGraph()
    # a graph captures a stream of the current device, which must be that of the environments
    with torch.cuda.device(env.device), torch.cuda.graph(graph):
        for _ in range(_GRAPH_STEPS):
            env.step(actions)

    def replay(count: int) -> None:
        with torch.cuda.device(env.device):
            for _ in range(count):
                graph.replay()
        env.synchronize()

    return replay


def _time(call: Callable[[int], None], count: int) -> float:
    start = time.perf_counter()
    call(count)
    return time.perf_counter() - start


def _calls_for(duration_s: float, call: Callable[[int], None]) -> int:
    """Calls that take about this long; the first ones warm up."""
    count = 1
    while (seconds := _time(call, count)) < duration_s / 4:
        count *= 4
    return max(1, round(count * duration_s / seconds))


def as_table(rows: list[DeviceRow]) -> str:
    """Aligned text, a row for each way, with its share of the C++ pool."""
    lines = [f"{'':<22}{'env-steps/s':>14}{'range':>26}{'of C++ pool':>14}"]
    for row in rows:
        pool = next(each for each in rows if each.way == "C++ pool" and _same(each, row))
        spread = f"{min(row.env_steps_per_s):.3g} to {max(row.env_steps_per_s):.3g}"
        ratio = f"{row.median / pool.median:.2f}x"
        if row is pool:
            agents = f" of {row.num_agents} agents" if row.num_agents > 1 else ""
            lines.append(f"{row.id}, {row.num_envs} environments{agents}, {row.device}")
        lines.append(f"  {row.way:<20}{row.median:>14.3g}{spread:>26}{ratio:>14}")
    if any(row.device == EMULATION for row in rows):
        lines.append("cpu-emulation runs kernels as loops: its speed says nothing of a GPU's")
    return "\n".join(lines)


def _same(one: DeviceRow, other: DeviceRow) -> bool:
    return (one.id, one.num_envs) == (other.id, other.num_envs)


def as_json(rows: list[DeviceRow]) -> list[dict[str, Any]]:
    """Rows as plain values."""
    return [
        asdict(row) | {"median": row.median, "agent_steps_per_s": row.median * row.num_agents}
        for row in rows
    ]
