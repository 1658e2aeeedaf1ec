# SPDX-License-Identifier: Apache-2.0
"""Kernels compile for GPUs that are not there: NVRTC needs none."""

from __future__ import annotations

import dataclasses
import re
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from long_forms import slow_beside
from own_envs import keep_between_runs
from quick_nvrtc import Compile, quick_compiler

from rollouts import EngineError, SpecError, _native, env_spec
from rollouts.envs.kernel import cuda
from rollouts.envs.kernel.agent_teams import alone_shape
from rollouts.envs.kernel.kernel_source import EnvKernelSource, PolicyKernelSource, TaskKernelSource
from rollouts.envs.physics.supported import PHYSICS_IDS
from rollouts.own_env.registrations import env_source

pytestmark = pytest.mark.system

# a cubin is found again by a digest of its text, its headers, the options and NVRTC's version
keep_between_runs()

# one per type: ids may share a type
ALL = {
    entry["type"]: entry["id"]
    for entry in _native.registry()
    # own ones are compiled in test_own_env.py
    if not entry["cpu_only"] and not entry["header"].startswith("own/")
}
# kernels of MuJoCo's tasks
TASKS = {
    facts["type"]: (env_id, facts["is_suite"])
    for env_id in sorted(PHYSICS_IDS - {"MuJoCo-v0"})
    for facts in [_native.task_facts(env_id, {}, 1, of_model=False)]
}
ARCHS = ("sm_90", "sm_80", "sm_100", "sm_120")


@pytest.fixture(autouse=True)
def needs_nvrtc() -> None:
    try:
        cuda._bindings("nvrtc")
    except EngineError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def compile_quickly() -> Iterator[Compile]:
    with quick_compiler() as compile_quickly:
        yield compile_quickly


def source_of(env_type: str, obs_dtype: str | None = None) -> EnvKernelSource:
    env_id = ALL[env_type]
    env = env_source(env_id)
    if env.multi_agent:
        alone = alone_shape(env_spec(env_id), _native.device_facts(env_id, {}, 1))
        return EnvKernelSource(env, obs_dtype or "float32", alone=alone)
    own = _native.make_spec(env_id, {})["observation"]["dtype"].name
    words = _native.device_facts(env_id, {}, 1)["state_fields"]
    return EnvKernelSource(env, obs_dtype or own, words)


def assert_is_kernel(cubin: bytes, env_type: str) -> None:
    assert cubin[:4] == b"\x7fELF"
    assert all(name.encode() in cubin for name in source_of(env_type).entries)


# No source asks for which GPU it is compiled: what the first one compiles, the others do, too, and
# `make test-all` sees it.
on_archs = pytest.mark.parametrize(
    "arch",
    slow_beside(ARCHS[:1], ARCHS),
)


# the first one's are compiled below, as pools compile them
@pytest.mark.parametrize("arch", ARCHS[1:])
@pytest.mark.parametrize(
    "env_type",
    slow_beside(["CartPole"], ALL),
)
def test_kernels_compile_for_every_gpu(compile_quickly: Compile, env_type: str, arch: str) -> None:
    assert_is_kernel(compile_quickly(source_of(env_type), arch), env_type)


@on_archs
@pytest.mark.parametrize("env_type", ALL)
def test_optimised_kernels_compile_for_every_gpu(env_type: str, arch: str) -> None:
    assert_is_kernel(cuda.compile_cubin(source_of(env_type), arch).read_bytes(), env_type)


@pytest.mark.parametrize("obs_dtype", ("float16", "bfloat16"))
@pytest.mark.parametrize("env_type", ("CartPole", "TagGridWorld"))
def test_kernels_write_narrow_observations(env_type: str, obs_dtype: str) -> None:
    assert cuda.compile_cubin(source_of(env_type, obs_dtype), "sm_90").read_bytes()


@pytest.mark.parametrize("task_type", sorted(TASKS))
def test_tasks_of_mujoco_compile_for_a_gpu(compile_quickly: Compile, task_type: str) -> None:
    env_id, is_suite = TASKS[task_type]
    source = TaskKernelSource(env_source(env_id), task_type, is_suite)
    assert b"rollouts_task" in compile_quickly(source, ARCHS[0])


def assert_sums_stay_in_registers(source: PolicyKernelSource, arch: str) -> None:
    assert b"rollouts_policy" in cuda.compile_cubin(source, arch).read_bytes()
    usage = cuda.kernel_usage(source, arch)["rollouts_policy"]
    assert usage.spill_bytes == 0
    assert usage.registers <= 128


@on_archs
def test_policies_keep_their_sums_in_registers_on_every_gpu(arch: str) -> None:
    assert_sums_stay_in_registers(PolicyKernelSource("float32"), arch)


@on_archs
def test_policies_on_tensor_cores_keep_a_layer_in_registers_on_every_gpu(arch: str) -> None:
    source = PolicyKernelSource("float32", "bfloat16")
    assert num_matrix_products(cuda.compile_cubin(source, arch).read_bytes()) == 64
    usage = cuda.kernel_usage(source, arch)["rollouts_policy"]
    # later generations keep some words elsewhere while they draw actions, not within the network
    assert usage.spill_bytes <= (256 if arch in ("sm_100", "sm_120") else 0)
    # as many as twelve warps of a multiprocessor may have
    assert usage.registers <= 168


def num_matrix_products(cubin: bytes) -> int:
    """The number of HMMA instructions in the text of a policy's kernel."""
    (headers,) = struct.unpack_from("<Q", cubin, 40)
    count, names = struct.unpack_from("<HH", cubin, 60)
    # name, and from the fifth member on where a section lies and its size
    sections = [struct.unpack_from("<IIQQQQ", cubin, headers + 64 * i) for i in range(count)]
    for name, _, _, _, at, size in sections:
        begins = sections[names][4] + name
        if cubin[begins : cubin.index(b"\0", begins)] == b".text.rollouts_policy":
            words = struct.unpack_from(f"<{size // 8}Q", cubin, at)
            # an instruction has 16 bytes, and its operation the lowest 12 bits
            return sum(word & 0xFFF == 0x23C for word in words[::2])
    raise AssertionError("the kernel has no text")


# whole numbers are only read in another way
@on_archs
def test_policies_of_whole_numbers_do_so_too(arch: str) -> None:
    assert_sums_stay_in_registers(PolicyKernelSource("int64"), arch)


# a GPU keeps local memory for each thread that it may hold: 270 000 of an H100
@on_archs
@pytest.mark.parametrize("env_type", ("MiniGrid", "MiniGridObstacles", "BabyAI"))
def test_large_states_are_stepped_where_they_lie(env_type: str, arch: str) -> None:
    source = source_of(env_type)
    assert 4 * source.state_words > 2500
    for usage in cuda.kernel_usage(source, arch).values():
        assert usage.stack_bytes <= 2304


@on_archs
def test_small_worlds_of_few_agents_are_in_registers(arch: str) -> None:
    id, options = "TagGridWorld-v0", {"num_taggers": 4}
    alone = alone_shape(env_spec(id, **options), _native.device_facts(id, options, 1))
    assert alone is not None
    (usage,) = cuda.kernel_usage(
        EnvKernelSource(env_source(id), "float32", alone=alone), arch
    ).values()
    assert usage.spill_bytes == 0
    assert usage.stack_bytes <= 512


def test_an_error_names_file_and_line() -> None:
    env = dataclasses.replace(source_of("CartPole").env, type="NoSuchEnv")
    with pytest.raises(SpecError, match=re.compile(r"kernel\.cu\(5\): error", re.DOTALL)):
        cuda.compile_cubin(EnvKernelSource(env, "float32", 4), "sm_90")


def test_a_cubin_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROLLOUTS_CACHE_DIR", str(tmp_path))
    path = cuda.compile_cubin(source_of("CartPole"), "sm_90")
    monkeypatch.setattr(cuda, "_run_nvrtc", None)
    assert cuda.compile_cubin(source_of("CartPole"), "sm_90") == path
    # the same compilation has said what a thread takes
    assert cuda.kernel_usage(source_of("CartPole"), "sm_90").keys() == set(
        source_of("CartPole").entries
    )


AFTER_TORCH = """
import ctypes, sys
from pathlib import Path

# as torch loads it
ctypes.CDLL(sys.argv[1])
from rollouts.envs.kernel import cuda

cuda._bindings("nvrtc")
sys.exit("libnvrtc-builtins" not in Path("/proc/self/maps").read_text())
"""


def test_both_halves_of_nvrtc_are_loaded_where_torch_has_loaded_one() -> None:
    cuda._bindings("nvrtc")
    maps = Path("/proc/self/maps").read_text()
    found = re.search(r"/.*/libnvrtc\.so[.\d]*$", maps, re.MULTILINE)
    assert found is not None
    subprocess.run([sys.executable, "-c", AFTER_TORCH, found[0]], check=True)
