# SPDX-License-Identifier: Apache-2.0
"""Figures of a card with their targets beside them: steps, a training, policies, physics."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from card_common import (
    CROWD,
    DEVICE,
    ON_CARD,
    WIDE_CROWD,
    as_graph,
    device_time,
    make,
    make_collector,
    per_call,
    result,
    trying,
    version,
    wait,
)

# id, environments, options, env-steps/s of an H200
ROWS: tuple[tuple[str, int, dict[str, Any], dict[str, float]], ...] = (
    ("CartPole-v1", 100_000, {}, {"target_graph": 2e10, "target_launched": 1e10}),
    ("TagContinuous-v0", 2000, CROWD, {"target_graph": 2e7}),
    ("TagContinuous-v0", 2000, WIDE_CROWD, {"target_graph": 1e6}),
    ("CartPole-v1", 1_000_000, {}, {"target_graph": 4e10}),
    (
        "TagGridWorld-v0",
        10_000,
        {"num_taggers": 4, "max_episode_steps": 100},
        {"target_graph": 3e9},
    ),
    ("MiniGrid-DoorKey-5x5-v0", 16_384, {}, {"target_graph": 5e8}),
    ("simple_spread_v3", 10_000, {}, {}),
    ("Pendulum-v1", 100_000, {}, {}),
    ("BabyAI-BossLevel-v0", 16_384, {}, {}),
)


def bench() -> None:
    """Measures env-steps per second, each way of stepping."""
    for env_id, num_envs, options, targets in ROWS:
        count = max(2, num_envs // (1 if ON_CARD else 500))
        agents = sum(options.get(name, 0) for name in ("num_taggers", "num_runners"))
        name = f"{env_id} x {count}" + (f", {agents} agents" if agents > 4 else "")
        with trying(name):
            result(name, **_bench_one(env_id, count, options), **targets)


def _bench_one(env_id: str, num_envs: int, options: dict[str, Any]) -> dict[str, float]:
    begun = time.perf_counter()
    env = make(env_id, num_envs, **options)
    env.reset(), wait()
    row: dict[str, float] = {"made_s": time.perf_counter() - begun}
    actions = env.rollout(1, record=True)[4]["action"]
    if isinstance(actions, dict):
        actions = {name: one[0].clone() for name, one in actions.items()}
    else:
        actions = actions[0].clone()
    for _ in range(5):
        env.step(actions)
    cost = env.engine.step_cost()
    row |= {"threads": cost.block.num_threads, "shared": cost.block.shared_bytes}
    row["bytes"] = cost.env_bytes
    row["launched"] = num_envs / per_call(lambda: env.step(actions))
    slow = num_envs / row["launched"] > 2e-3
    # rows of the wide Tag take a gigabyte
    steps, recorded = (20, 4) if slow else (100, 20)
    took = per_call(lambda: env.rollout(steps, "random"))
    row[f"{steps}_steps_a_launch"] = num_envs * steps / took
    if ON_CARD:
        row |= _of_card(env, actions, num_envs, recorded, 5 if slow else 30)
    row["cpu_pool"] = num_envs / _pool_seconds(env_id, num_envs, options, actions)
    return row


def _of_card(env: Any, actions: Any, num_envs: int, recorded: int, count: int) -> dict[str, float]:
    """Seconds of the kernel alone, and steps as one graph."""
    import torch

    row = {"device_us": device_time(lambda: env.step(actions), count) * 1e6}
    # every step of the graph writes the same rows, which nobody holds
    graph = as_graph(lambda: env.step(actions), recorded)
    row["graph"] = recorded * num_envs / per_call(graph.replay)
    held: list[Any] = []
    # each has rows of its own
    graph = as_graph(lambda: held.append(env.step(actions)), recorded)
    row["graph_rows_held"] = recorded * num_envs / per_call(graph.replay)
    row["gib"] = torch.cuda.max_memory_allocated() / 2**30
    torch.cuda.reset_peak_memory_stats()
    env.synchronize()
    return row


def _pool_seconds(env_id: str, num_envs: int, options: dict[str, Any], actions: Any) -> float:
    """Seconds of a step by the C++ pool."""
    import rollouts

    pool = rollouts.make_vec(env_id, num_envs, seed=0, autoreset_mode="same_step", **options)
    pool.reset()
    on_host: Any
    if isinstance(actions, dict):
        on_host = {name: one.cpu().numpy() for name, one in actions.items()}
    else:
        on_host = actions.cpu().numpy()
    begun, count = time.perf_counter(), 0
    while time.perf_counter() - begun < 0.3:
        pool.step(on_host)
        count += 1
    return (time.perf_counter() - begun) / count


def limits() -> None:
    """Measures plain kernels of the same work on the same card."""
    if version("cupy-cuda13x") == version("cupy-cuda12x") == "none":
        print("no CuPy, by which plain kernels are launched")
        return
    script = Path(__file__).with_name("plain_kernels.py")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=30)
    print(done.stdout, done.stderr[-1000:])
    for line in done.stdout.splitlines():
        row = json.loads(line)
        result(f"plain kernel: {row.pop('kernel')}", **row)


def ppo() -> None:
    """Trains CartPole to a mean return of 475; the seconds are those of training."""
    import torch

    torch.set_num_threads(1)
    for extra in (
        ["--engine", "native"],
        ["--engine", "torch"],
        ["--engine", "native", "--cuda-graph"],
        ["--engine", "native", "--prefetch"],
        ["--engine", "native", "--num-envs", "4096", "--rollout-length", "16"],
    ):
        name = f"CartPole by PPO {' '.join(extra)}"
        with trying(name):
            result(name, **_train(extra + ["--total-steps", "20000"] * (not ON_CARD)))


def _train(options: list[str]) -> dict[str, float]:
    import ppo_on_device
    from common.data_parallel import Processes

    args = ppo_on_device.parse_args(["--device", DEVICE, *options])
    processes = Processes(args.device)
    first = ppo_on_device.Trainer(args, processes)
    for _ in range(2):
        first.update(args.learning_rate)
    wait()
    trainer = ppo_on_device.Trainer(args, processes)
    steps, mean, collecting = 0, float("nan"), 0.0
    collect = trainer.collector.collect

    def timed() -> Any:
        nonlocal collecting
        begun = time.perf_counter()
        found = collect()
        collecting += time.perf_counter() - begun
        return found

    trainer.collector.collect = timed
    begun = time.perf_counter()
    while steps < args.total_steps and not mean >= 475:
        left = 1 - steps / args.total_steps
        mean = trainer.update(args.learning_rate * left)[""]
        steps += args.num_envs * args.rollout_length
    took = time.perf_counter() - begun
    trainer.collector.close()
    updates = steps // (args.num_envs * args.rollout_length)
    row = {"seconds": took, "env_steps": steps, "mean": mean, "ms_per_update": 1e3 * took / updates}
    return row | {"host_ms_collect": 1e3 * collecting / updates, "target_seconds": 2.0}


def mlp() -> None:
    """Measures rollouts of Tag 5+100 by a network of 256 and 256."""
    import torch
    from torch import nn

    num_envs, length = (2000, 10) if ON_CARD else (4, 3)

    class Shared(nn.Module):
        def __init__(self, dtype: torch.dtype) -> None:
            super().__init__()
            self.dtype = dtype
            layers = [nn.Linear(71, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU()]
            self.body = nn.Sequential(*layers).to(dtype)
            self.heads = nn.Linear(256, 43).to(dtype)

        def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            out = self.heads(self.body(obs.to(self.dtype))).float()
            return out[:, :42], out[:, 42]

    half = {"policy_dtype": "bfloat16"}
    options: dict[str, Any]
    for name, engine, dtype, precision, options in (
        ("torch float32", "torch", torch.float32, "highest", {}),
        ("torch float32, graph", "torch", torch.float32, "highest", {"cuda_graph": True}),
        ("torch tf32, graph", "torch", torch.float32, "high", {"cuda_graph": True}),
        ("torch bfloat16, graph", "torch", torch.bfloat16, "highest", {"cuda_graph": True}),
        ("kernel", "native", torch.float32, "highest", {}),
        ("kernel bfloat16", "native", torch.float32, "highest", half),
        ("kernel bfloat16, graph", "native", torch.float32, "highest", half | {"cuda_graph": True}),
    ):
        with trying(name):
            torch.set_float32_matmul_precision(precision)
            env = make("TagContinuous-v0", num_envs, **CROWD)
            module = Shared(dtype).to(env.device)
            collector = make_collector(env, length, module, engine=engine, **options)
            for _ in range(3):
                collector.collect()
            took = per_call(collector.collect, 0.5, 3)
            collector.synchronize()
            speeds = {"env_steps_per_s": num_envs * length / took, "target": 7.1e6}
            result(f"Tag 5+100 x {num_envs} with 256-256, {name}", **speeds)
            collector.close()


def physics() -> None:
    """Measures Humanoid beside mujoco_warp alone, and runs loops within a graph."""
    import torch

    if version("warp-lang") == "none":
        print("no Warp in the pack")
        return
    from rollouts.bench.physics_device import measure_physics

    count = 8192 if ON_CARD else 4
    duration_s, repeats = (2.0, 3) if ON_CARD else (0.1, 1)
    with trying("Humanoid-v5"):
        ours, bare = measure_physics(
            "Humanoid-v5", count, DEVICE, duration_s=duration_s, repeats=repeats
        )
        free, total = torch.cuda.mem_get_info() if ON_CARD else (0, 0)
        result(
            f"Humanoid-v5 x {count}, physics steps/s",
            ours=ours.physics_steps_per_s,
            mujoco_warp=bare.physics_steps_per_s,
            share=ours.median / bare.median,
            target_share=0.95,
            nconmax=ours.nconmax,
            njmax=ours.njmax,
            gib=(total - free) / 2**30,
        )
    for env_id in ("CheetahRun-v1", "FingerTurnHard-v1") if ON_CARD else ():
        with trying(env_id):
            begun = time.perf_counter()
            env = make(env_id, 256)
            env.reset()
            actions = torch.zeros(256, *env.single_action_space.shape, device=env.device)
            for _ in range(20):
                obs = env.step(actions)[0]
            env.synchronize()
            finite = bool(torch.isfinite(obs).all())
            whole_s = time.perf_counter() - begun
            result(f"{env_id}, a loop in the graph", finite=finite, whole_s=whole_s)
