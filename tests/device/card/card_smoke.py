# SPDX-License-Identifier: Apache-2.0
"""The machine, its compilers, and a call of each kind beside the host's emulation."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from card_common import (
    CROWD,
    ON_CARD,
    WIDE_CROWD,
    as_graph,
    device_time,
    kernel_ids,
    make,
    make_collector,
    per_call,
    result,
    trying,
    version,
    wait,
)


def facts() -> None:
    """Reports versions, the card, and its two ceilings: memory and products."""
    import numpy
    import torch

    import rollouts

    names = ("cuda-bindings", "nvidia-cuda-nvrtc", "gymnasium", "mujoco", "mujoco-warp")
    packages = {name: version(name) for name in (*names, "warp-lang", "ray")}
    own = {"python": sys.version.split()[0], "torch": torch.__version__}
    result("versions", **own, numpy=numpy.__version__, **packages)
    shown = subprocess.run(["c++", "--version"], capture_output=True, text=True).stdout
    result("host", cores=os.cpu_count(), compiler=shown.splitlines()[0] if shown else "none")
    result("rollouts", where=rollouts.__file__, ids=len(rollouts.env_ids()))
    if not ON_CARD:
        return
    query = "--query-gpu=name,driver_version,clocks.sm,clocks.max.sm,memory.total"
    subprocess.run(["nvidia-smi", query, "--format=csv,noheader"])
    card = torch.cuda.get_device_properties(0)
    result(
        "card",
        name=card.name,
        sms=card.multi_processor_count,
        l2_mb=card.L2_cache_size >> 20,
        gib=card.total_memory >> 30,
        capability=torch.cuda.get_device_capability(),
    )
    big = torch.empty(2**30, dtype=torch.uint8, device="cuda")
    other = torch.empty_like(big)
    took = device_time(lambda: other.copy_(big), 10)
    result("copy, read and written", tb_per_s=2 * 2**30 / took / 1e12)
    small = torch.zeros(1, device="cuda")
    launched, graph = per_call(lambda: small.add_(1)), as_graph(lambda: small.add_(1), 100)
    node = per_call(graph.replay) / 100
    result("a launch by torch", us=launched * 1e6, graph_node_us=node * 1e6)
    a = torch.randn(4096, 4096, device="cuda")
    for name in ("highest", "high"):
        torch.set_float32_matmul_precision(name)
        tflops = 2 * 4096**3 / device_time(lambda: a @ a, 10) / 1e12
        result(f"float32 product, precision {name}", tflops=tflops)


def warm() -> None:
    """Compiles all kernels, for the host and for the card, in most of the cores."""
    begun = time.perf_counter()
    light, agents = kernel_ids()
    with ProcessPoolExecutor(max(2, (os.cpu_count() or 2) - 4)) as pool:
        for one in pool.map(_warm_one, [*agents, *light]):
            print(one, flush=True)
    print(f"all after {time.perf_counter() - begun:.0f} s")


def _warm_one(env_id: str) -> str:
    from rollouts.envs.kernel.cuda import compile_cubin

    try:
        begun = time.perf_counter()
        env = make(env_id, 4, "cpu-emulation")
        host = time.perf_counter()
        compile_cubin(env.engine.step_cost().source, "sm_90")
        return f"{env_id}: host {host - begun:.1f} s, NVRTC {time.perf_counter() - host:.1f} s"
    except Exception as error:
        return f"{env_id}: {error}"


def warm_physics() -> None:
    """Makes Warp compile Humanoid's kernels, which takes a minute or two."""
    begun = time.perf_counter()
    make("Humanoid-v5", 64).reset()
    wait()
    result("Warp compiles Humanoid-v5", seconds=time.perf_counter() - begun)


def smoke() -> None:
    """Makes one call of each kind, beside the host's emulation; the simplest first."""
    if ON_CARD:
        with trying("load and launch"):
            begun = time.perf_counter()
            make("CartPole-v1", 1000).reset()
            wait()
            result("first CartPole pool and reset", seconds=time.perf_counter() - begun)
    _compare("FrozenLake-v1", 300, 30, 0.0)
    _compare("CartPole-v1", 300, 30, 2e-5)
    _compare("TagGridWorld-v0", 100, 30, 0.0, num_taggers=4)
    _compare("TagContinuous-v0", 50, 10, 1e-5, randomize_starts=True, **CROWD)
    _compare("TagContinuous-v0", 4, 3, 1e-5, randomize_starts=True, **WIDE_CROWD)
    _compare("simple_tag_v3", 100, 20, 1e-5)
    _steps_of_a_launch()
    if ON_CARD:
        _replays()
    _collectors()
    _fault()
    if ON_CARD:
        # last, as torch may be left unable to draw
        _failed_recording()


def _compare(env_id: str, num_envs: int, steps: int, tolerance: float, **options: Any) -> None:
    """Steps the same states by the card and by the host."""
    agents = options.get("num_taggers", 0) + options.get("num_runners", 0)
    name = f"{env_id}{f' {agents} agents' * bool(agents)} beside the host"
    with trying(name):
        card, host = (make(env_id, num_envs, *of, **options) for of in ((), ("cpu-emulation",)))
        pairs = [*zip(_flat(card.reset()[0]), _flat(host.reset()[0]), strict=True)]
        start = max(float((a.cpu().float() - b.float()).abs().max()) for a, b in pairs)
        assert start <= tolerance, f"first observations are {start} off"
        worst, same, total = 0.0, 0, 0
        for step in range(steps):
            card.set_state(None, host.get_state())
            host.action_space.seed(step)
            actions = host.action_space.sample()
            found, expected = _flat(card.step(actions)[:4]), _flat(host.step(actions)[:4])
            for a, b in zip(found, expected, strict=True):
                off = (a.cpu().double() - b.double()).abs().reshape(num_envs, -1).amax(1)
                good = off <= tolerance
                worst = max(worst, float(off[good].max()) if good.any() else 0.0)
                same, total = same + int(good.sum()), total + num_envs
        card.synchronize()
        result(name, worst_of_same=worst, same=same / total)


def _flat(of: Any) -> list[Any]:
    """Tensors of tuples and dicts, in their order."""
    if isinstance(of, dict):
        of = (*of.values(),)
    return [each for one in of for each in _flat(one)] if isinstance(of, tuple | list) else [of]


def _steps_of_a_launch() -> None:
    import torch

    with trying("many steps of one launch are those of many"):
        one, many = make("CartPole-v1", 1000), make("CartPole-v1", 1000)
        one.reset(), many.reset()
        *rows, info = one.rollout(100, record=True)
        equal = True
        for step, actions in enumerate(info["action"]):
            for mine, theirs in zip(rows, many.step(actions)[:4], strict=False):
                equal &= torch.equal(mine[step], theirs)
        result("CartPole, 100 steps of one launch and 100 launches", equal=bool(equal))


def _replays() -> None:
    import torch

    with trying("graph of one step"):
        env, other = make("CartPole-v1", 1000), make("CartPole-v1", 1000)
        env.reset(), other.reset()
        actions = torch.zeros(1000, dtype=torch.int64, device="cuda")
        env.step(actions), other.step(actions), wait()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            obs = env.step(actions)[0]
        equal = True
        for _ in range(20):
            graph.replay()
            equal &= torch.equal(obs, other.step(actions)[0])
        env.synchronize()
        result("CartPole, replays of a graph and launches", equal=bool(equal))


def _collectors() -> None:
    import torch

    from rollouts.returns import Gae

    gae = Gae(gamma=0.99, gae_lambda=0.95)
    options: list[dict[str, Any]] = [{}, {"cuda_graph": True}, {"prefetch": 1}]
    options += [{"prefetch": 1, "cuda_graph": True}]
    half = {"policy_dtype": "bfloat16"}
    for engine, more in (("native", {}), ("torch", {}), ("native", half)):
        for each in ({**more, **one} for one in options):
            with trying(f"collect {engine} {each}"):
                torch.manual_seed(0)
                env = make("CartPole-v1", 256)
                collector = make_collector(env, 16, engine=engine, returns=gae, **each)
                for _ in range(5):
                    rollout = collector.collect()
                collector.synchronize()
                result(
                    f"CartPole, {engine} {each}",
                    finite=bool(torch.isfinite(rollout.extras["advantage"]).all()),
                    value=float(rollout.value.double().mean()),
                    log_prob=float(rollout.log_prob.double().mean()),
                )


def _fault() -> None:
    import torch

    import rollouts

    with trying("a fault is reported"):
        env = make("CartPole-v1", 1000)
        env.reset()
        actions = torch.zeros(1000, dtype=torch.int64, device=env.device)
        actions[[700, 300]] = 9
        env.step(actions)
        try:
            env.synchronize()
        except rollouts.EnvError as error:
            result("a fault", said=str(error)[:40])


def _failed_recording() -> None:
    import torch

    import rollouts

    with trying("random numbers of torch after a recording that failed"):
        collector = make_collector(make("CartPole-v1", 64), 4, engine="torch", cuda_graph=True)
        module = collector.policies[""].module
        module.register_forward_hook(lambda module, args, out: out[0].sum().item() and None)
        said = "no error"
        for _ in range(3):
            try:
                collector.collect()
            except rollouts.SpecError as error:
                said = str(error)[:40]
                break
        drawn = float(torch.rand(1, device="cuda"))
        result("a recording that fails, then torch.rand", said=said, drawn=drawn)
