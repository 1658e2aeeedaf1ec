# SPDX-License-Identifier: Apache-2.0
"""Users' headers compile for the GPU, and light environments in its arithmetic for the host.

Our own environments are compiled for GPUs as the pools' kernels, in tests/device/test_compile.py.

NVRTC needs no GPU; `pip install cuda-core cuda-bindings nvidia-cuda-nvrtc` is all it takes.
"""

from __future__ import annotations

import importlib
import shutil
import subprocess
from pathlib import Path

import pytest
from own_envs import HEADERS

import rollouts
from rollouts import _native
from rollouts.cli.new_env import TEMPLATES

# a kernel in the manner of the GPU pool: every environment's command, one thread each
KERNEL = """
#include "rollouts/{header}"
#include "rollouts/core/step.h"

namespace rollouts {{
using Env = {type};
extern "C" __global__ void StepBatch(Env::Config config, StepRules rules, BatchView out,
                                     Env::State* states, EpisodeClock* clocks,
                                     const Command* commands, const Env::Action* actions,
                                     int num_envs) {{
  const int env = blockIdx.x * blockDim.x + threadIdx.x;
  if (env >= num_envs) return;
  LightEnv<Env> ref{{config, states[env]}};
  RunCommand(commands[env], rules, ref, clocks[env], actions + env * Env::kSpec.action.size(),
             [&] {{ return RowRef{{out, env}}; }},
             [&](const RowRef& row) {{ ref.WriteInfoRow(row.view.infos, row.row); }});
}}
}}
"""

# a world whose agents are stepped one after the other
AGENTS_KERNEL = """
#include "rollouts/{header}"

namespace rollouts {{
using Env = {type};
extern "C" __global__ void StepBatch(const Env::Config* config, Env::World* world,
                                     Env::Agents agents, AgentStatus status, AgentActions actions,
                                     const float* tables, int num_agents, Env::Obs* obs,
                                     int obs_size, StepResult* result) {{
  const WorldRef<Env> ref{{*config, *world, agents, status, actions, tables, num_agents, 1, 25}};
  Rng rng(1, 0, 0);
  Env::Reset(ref, rng);
  BeginAgents(status, num_agents);
  AgentLoops<Env>::Phases<0>(ref);
  *result = EndAgents(status, num_agents, Env::EndStep(ref, rng));
  AgentLoops<Env>::Observe(ref, 0, num_agents, obs, obs_size);
}}
}}
"""

HOST = """
#include "rollouts/{header}"
template class rollouts::LightEnvBatch<rollouts::{type}>;
"""
HOST_HEAD = """
#include "rollouts/pool/light_env_batch.h"
static_assert(std::is_same_v<rollouts::Real, float>);
"""

# one per type: ids may share a type, and types a header
LIGHT = {
    entry["type"]: entry
    for entry in _native.registry()
    if not entry["cpu_only"] and not entry["multi_agent"] and not entry["header"].startswith("own/")
}
# what `rollouts new-env` writes, and others that are none of ours
OWN = {
    TEMPLATES / "one_agent.h": (KERNEL, "::MyEnv"),
    TEMPLATES / "agents.h": (AGENTS_KERNEL, "::MyEnv"),
    HEADERS / "vault.h": (KERNEL, "::games::Vault"),
    HEADERS / "herd.h": (AGENTS_KERNEL, "::Herd"),
}


def compile_for_a_gpu(kernel: str, *folders: Path) -> None:
    try:
        nvrtc = importlib.import_module("cuda.bindings.nvrtc")
        core = importlib.import_module("cuda.core")
        nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError) as error:
        pytest.skip(f"needs cuda-core, cuda-bindings and nvidia-cuda-nvrtc: {error}")
    # functions for the host alone, such as VisitConfig, carry no annotation
    options = core.ProgramOptions(
        std="c++20",
        arch="sm_90",
        include_path=[str(folder) for folder in (rollouts.include_dir(), *folders)],
        device_as_default_execution_space=True,
    )
    cubin = core.Program(kernel, code_type="c++", options=options).compile("cubin")
    assert bytes(cubin.code)[:4] == b"\x7fELF"
    assert b"StepBatch" in bytes(cubin.code)


@pytest.mark.parametrize("header", OWN, ids=lambda header: header.stem)
def test_users_header_compiles_for_a_gpu(header: Path) -> None:
    kernel, env_type = OWN[header]
    text = kernel.format(header="core/step.h", type=env_type)
    text = f'#include "{header.name}"\n{text}'
    compile_for_a_gpu(text, header.parent)


@pytest.mark.system
def test_light_environments_compile_in_single_precision_for_the_host(tmp_path: Path) -> None:
    # as one: to read the headers that they share takes longest
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        pytest.skip("needs a C++ compiler")
    source = tmp_path / "envs.cpp"
    source.write_text(HOST_HEAD + "".join(HOST.format(**entry) for entry in LIGHT.values()))
    command = [compiler, "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror"]
    command += ["-DROLLOUTS_REAL=float", f"-I{rollouts.include_dir()}", str(source)]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
