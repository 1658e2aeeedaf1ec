# SPDX-License-Identifier: Apache-2.0
"""The project's tests on a card, and NVIDIA's tools around its kernels."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from card_common import (
    CROWD,
    ON_CARD,
    OUT,
    ROOT,
    SITE,
    WIDE_CROWD,
    agent,
    make,
    make_collector,
    result,
    trying,
    version,
    wait,
)

CHECK = Path(__file__).with_name("card_check.py")
PROFILED: dict[str, tuple[str, int, dict[str, Any]]] = {
    "tag": ("TagContinuous-v0", 2000, CROWD),
    "cartpole": ("CartPole-v1", 1_000_000, {}),
    "tag_wide": ("TagContinuous-v0", 2000, WIDE_CROWD),
    "grid": ("TagGridWorld-v0", 10_000, {"num_taggers": 4}),
}
_SECTIONS = ("LaunchStats", "Occupancy", "SpeedOfLight", "MemoryWorkloadAnalysis")
_SECTIONS += ("SchedulerStats", "WarpStateStats", "InstructionStats")
_SHOWN = (
    "Duration",
    "Achieved Occupancy",
    "Theoretical Occupancy",
    "Registers Per Thread",
    "DRAM Throughput",
    "Compute (SM) Throughput",
    "L1/TEX Hit Rate",
    "Executed Ipc Active",
    "Driver Shared Memory Per Block",
    "Shared Memory Configuration Size",
)


def tests() -> None:
    """Runs the tests of a card, in several processes."""
    run_pytest("tests", ["tests/device", "tests/learner"], processes=8)


def physics_tests() -> None:
    """Runs the tests of physics beside Warp's CPU device, where that is in the pack."""
    if not (SITE / "warp/bin/warp-clang.so").exists():
        print("no warp-clang.so: Warp has no CPU device to compare with")
        return
    run_pytest("physics tests", ["tests/physics"], processes=4)


def run_pytest(name: str, folders: list[str], processes: int) -> None:
    """Runs tests of these folders that need a card, or in emulation a file that needs none."""
    marks = "cuda" if ON_CARD else "not cuda and not system and not slow and not wheels"
    options = ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT), "-q", "-rfE"]
    options += ["-p", "no:cacheprovider", "--tb=short", "-m", marks]
    options += [f"--junitxml={OUT / name.replace(' ', '_')}.xml"]
    if version("pytest-xdist") != "none":
        options += ["-n", str(processes if ON_CARD else 2)]
    if version("pytest-timeout") != "none":
        options += ["--timeout", "100"]
    chosen = folders if ON_CARD else ["tests/device/test_device_graph.py"]
    command = [sys.executable, "-m", "pytest", *options, *[str(ROOT / one) for one in chosen]]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    last = ""
    for line in process.stdout or ():
        print(line, end="", flush=True)
        if line.startswith(("FAILED", "ERROR")):
            result(line.strip()[:150])
        last = line.strip() or last
    result(name, exit=process.wait(), said=last[:100])


def sanitizer() -> None:
    """Looks for bad accesses and races of our kernels, on few small environments."""
    tool = shutil.which("compute-sanitizer")
    if tool is None:
        print("no compute-sanitizer")
        return
    for check in ("memcheck", "racecheck", "synccheck", "initcheck"):
        with trying(check):
            command = [tool, "--tool", check, "--print-limit", "20"]
            done = _run_part(command, "tiny", 35)
            if done is None:
                result(check, said="cut off after 35 s")
                continue
            print(done.stdout[-6000:], done.stderr[-2000:])
            said = [one for one in done.stdout.splitlines() if "SUMMARY" in one]
            shown = said[-1][:80] if said else done.stderr[-80:]
            result(check, exit=done.returncode, said=shown)


def _run_part(
    before: list[str], part: str, timeout_s: float
) -> subprocess.CompletedProcess[str] | None:
    """Runs a part of the check under a tool; None where it takes longer."""
    command = [*before, sys.executable, "-u", str(CHECK), "--part", part]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        return None


def tiny() -> None:
    """Runs every kind of kernel for some steps of few environments, for the sanitizer."""
    small = {**CROWD, "num_runners": 40, "max_episode_steps": 5}
    cases: tuple[tuple[str, int, dict[str, Any]], ...] = (
        ("CartPole-v1", 200, {"max_episode_steps": 5}),
        ("FrozenLake-v1", 200, {}),
        ("TagContinuous-v0", 3, small),
        ("TagGridWorld-v0", 21, {"num_taggers": 4}),
        ("simple_tag_v3", 33, {"max_episode_steps": 5}),
    )
    for env_id, num_envs, options in cases:
        env = make(env_id, num_envs, **options)
        env.reset()
        for step in range(7):
            env.rollout(1, "random", action_seed=step)
        env.rollout(7, "random")
        env.synchronize()
        print(env_id, "is through", flush=True)
    for dtype in ("float32", "bfloat16"):
        env = make("CartPole-v1", 200, max_episode_steps=3)
        collector = make_collector(env, 4, policy_dtype=dtype, engine="native")
        collector.collect()
        collector.synchronize()
        wait()
        print(f"the policy in {dtype} is through")


def ncu() -> None:
    """Profiles one launch of each main kernel."""
    tool = shutil.which("ncu")
    if tool is None:
        print("no ncu")
        return
    for case in (*PROFILED, "policy", "policy_bfloat16"):
        with trying(case):
            kernel = "rollouts_policy" if case.startswith("policy") else "rollouts_step"
            command = [tool, "--clock-control", "none", "--kernel-name", f"regex:{kernel}"]
            command += ["--launch-skip", "4", "--launch-count", "1"]
            command += [word for one in _SECTIONS for word in ("--section", one)]
            done = _run_part(command, f"profiled_{case}", 40)
            if done is None:
                result(f"ncu {case}", said="cut off after 40 s")
                continue
            with (OUT / "ncu.txt").open("a") as file:
                file.write(f"===== {case}\n{done.stdout}\n{done.stderr}\n")
            lines = [line.strip() for line in done.stdout.splitlines()]
            found = {
                name: " ".join(line.split()[:-3:-1])
                for line in lines
                for name in _SHOWN
                if line.startswith(name)
            }
            result(f"ncu {case}", exit=done.returncode, **found)


def profiled(case: str) -> None:
    """Makes the launches of which the profiler takes one."""
    if case == "policy":
        make_collector(make("CartPole-v1", 100_000), 8, engine="native").collect()
    elif case == "policy_bfloat16":
        module = agent(4, 2, (256, 256))
        env = make("CartPole-v1", 100_000)
        make_collector(env, 8, module, policy_dtype="bfloat16").collect()
    else:
        env_id, num_envs, options = PROFILED[case]
        env = make(env_id, num_envs, **options)
        env.reset()
        for step in range(8):
            env.rollout(1, "random", action_seed=step)
    wait()


def ray() -> None:
    """Hands fragments and weights from workers to a learner on one card."""
    if version("ray") == "none":
        print("no Ray in the pack")
        return
    if not ON_CARD:
        print("transfers on a card need one; tests/cluster has the others")
        return
    files = ("cluster/test_weights.py", "cluster/test_refused_starts.py")
    folders = [f"tests/{one}" for one in (*files, "device/test_device_transport.py")]
    run_pytest("tests with Ray", folders, processes=2)
