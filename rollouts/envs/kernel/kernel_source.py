# SPDX-License-Identifier: Apache-2.0
"""The sources of kernels: they include the header of an environment or a policy."""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from rollouts.envs.kernel.alone_shape import AloneShape
from rollouts.envs.kernel.launch_args import EnvLaunch, Launch, WorldLaunch
from rollouts.envs.kernel.policy_launch import PolicyLaunch
from rollouts.envs.kernel.task_launch import TaskLaunch
from rollouts.own_env.registrations import EnvSource
from rollouts.support.include_dir import include_dir

# dtype of the numbers that a policy's network multiplies
PolicyDtype = Literal["float32", "bfloat16"]

# observation dtype -> its type in native/include/rollouts/device/numbers.h
OBS_TYPES = {
    "float32": "float",
    "float16": "rollouts::Float16",
    "bfloat16": "rollouts::BFloat16",
    "float64": "double",
    "int64": "std::int64_t",
    "int32": "std::int32_t",
    "int16": "std::int16_t",
    "int8": "std::int8_t",
    "uint8": "std::uint8_t",
}


# finds a type by its name in namespace rollouts or outside of it; ambiguous if both have that name
_SEEN = "namespace rollouts_seen {{ using namespace rollouts; using KernelEnv = {type}; }}\n"


class KernelSource(Protocol):
    """The text from which a kernel is compiled, and its entries.

    Attributes:
      name: Name of what the kernel computes, for messages.
      text: The translation unit.
      digest: Digest of the text and of all headers that it may include.
      include_dirs: Folders for the compiler.
      entries: Functions of the kernel.
      launch_type: Type of the argument that the entries take.
    """

    @property
    def name(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def digest(self) -> str: ...
    @property
    def include_dirs(self) -> tuple[Path, ...]: ...
    @property
    def entries(self) -> tuple[str, ...]: ...
    @property
    def launch_type(self) -> type[Launch]: ...

    def explain(self, said: str) -> str:
        """Returns a compiler's message in which the header has the path of the author's file."""
        ...


@dataclass(frozen=True, slots=True)
class EnvKernelSource:
    """A kernel that steps environments.

    Attributes:
      env: The environment's source.
      obs_dtype: One of OBS_TYPES.
      state_words: Size that a State must have, in words of 32 bits; unused for worlds of agents.
      alone: The shape of worlds that a single thread steps; None: a team of threads steps each.
    """

    env: EnvSource
    obs_dtype: str
    state_words: int = 0
    alone: AloneShape | None = None

    @property
    def name(self) -> str:
        """The environment's type."""
        return self.env.type

    @property
    def include_dirs(self) -> tuple[Path, ...]:
        """Folders for the compiler."""
        return self.env.include_dirs

    @property
    def launch_type(self) -> type[Launch]:
        """The type of the argument that the entries take."""
        return WorldLaunch if self.env.multi_agent else EnvLaunch

    @property
    def entries(self) -> tuple[str, ...]:
        """Functions of the kernel: for one step, and for many steps of single agents."""
        return ("rollouts_step",) if self.env.multi_agent else ("rollouts_step", "rollouts_steps")

    @property
    def text(self) -> str:
        """The translation unit; the environment's type may be inside or outside of our namespace.

        Dynamics are computed in 32 bits. Worlds of agents declare the types of their numbers
        themselves, and have the memory layout of the C++ pool.
        """
        if self.env.multi_agent:
            arguments = f"rollouts_seen::KernelEnv, {OBS_TYPES[self.obs_dtype]}"
            kernel = f"ROLLOUTS_WORLD_KERNEL({arguments})\n"
            if self.alone is not None:
                kernel = f"ROLLOUTS_ALONE_KERNEL({arguments}, {self.alone.cpp_type})\n"
            return (
                "#define ROLLOUTS_KERNEL\n#define ROLLOUTS_REAL double\n"
                f'#include "{self.env.header}"\n'
                '#include "rollouts/device/world_kernels.h"\n'
                f"{_SEEN.format(type=self.env.type)}{kernel}"
            )
        return (
            "#define ROLLOUTS_KERNEL\n#define ROLLOUTS_REAL float\n"
            f'#include "{self.env.header}"\n'
            '#include "rollouts/device/env_kernels.h"\n'
            f"{_SEEN.format(type=self.env.type)}"
            f"static_assert(sizeof(rollouts_seen::KernelEnv::State) == {4 * self.state_words},\n"
            '              "rollouts: a State that has Reals needs kStateNames, one for each");\n'
            f"ROLLOUTS_ENV_KERNEL(rollouts_seen::KernelEnv, {OBS_TYPES[self.obs_dtype]})\n"
        )

    @property
    def digest(self) -> str:
        """Digest of the text and of all headers that it may include."""
        own = "" if self.env.files is None else self.env.files.digest
        return _digest(self.text, own, _digest_of_ours(_ENV_FOLDERS, include_dir()))

    def explain(self, said: str) -> str:
        """Returns a compiler's message in which the header has the path of the author's file."""
        if self.env.files is None:
            return said
        return said.replace(str(self.env.include_dirs[0]), self.env.files.folder)


@dataclass(frozen=True, slots=True)
class PolicyKernelSource:
    """A kernel that computes any policy.

    Attributes:
      obs_dtype: One of OBS_TYPES, but not float16 or bfloat16, which C++ does not convert.
      policy_dtype: "float32", or "bfloat16" for a network of linear layers on tensor cores.
    """

    obs_dtype: str
    policy_dtype: PolicyDtype = "float32"

    @property
    def name(self) -> str:
        """The name of what the kernel computes."""
        return "the policy"

    @property
    def include_dirs(self) -> tuple[Path, ...]:
        """Folders for the compiler."""
        return (include_dir(),)

    @property
    def launch_type(self) -> type[Launch]:
        """The type of the argument that the entry takes."""
        return PolicyLaunch

    @property
    def entries(self) -> tuple[str, ...]:
        """Functions of the kernel."""
        return ("rollouts_policy",)

    @property
    def text(self) -> str:
        """The translation unit."""
        kind = "policy" if self.policy_dtype == "float32" else "dense"
        return (
            "#define ROLLOUTS_KERNEL\n#define ROLLOUTS_REAL float\n"
            f'#include "rollouts/policy/{kind}_kernel.h"\n'
            f"ROLLOUTS_{kind.upper()}_KERNEL({OBS_TYPES[self.obs_dtype]})\n"
        )

    @property
    def digest(self) -> str:
        """Digest of the text and of all headers that it may include."""
        return _digest(self.text, _digest_of_ours(_POLICY_FOLDERS, include_dir()))

    def explain(self, said: str) -> str:
        """Returns a compiler's message as it is."""
        return said


@dataclass(frozen=True, slots=True)
class TaskKernelSource:
    """A kernel of a MuJoCo task over the arrays of mujoco_warp.

    Attributes:
      env: The source of the pool's environment, which has the task.
      task_type: The C++ type of the task.
      is_suite: Whether the task is from the DeepMind Control Suite.
    """

    env: EnvSource
    task_type: str
    is_suite: bool

    @property
    def name(self) -> str:
        """Names the task."""
        return f"the task {self.task_type}"

    @property
    def include_dirs(self) -> tuple[Path, ...]:
        """Folders for the compiler."""
        return self.env.include_dirs

    @property
    def launch_type(self) -> type[Launch]:
        """Argument of the entry."""
        return TaskLaunch

    @property
    def entries(self) -> tuple[str, ...]:
        """Functions of the kernel."""
        return ("rollouts_task",)

    @property
    def text(self) -> str:
        """The translation unit."""
        kernel, header = "TaskKernel", "task_kernel.h"
        if self.is_suite:
            kernel, header = "SuiteKernel", "suite_kernel.h"
        return (
            "#define ROLLOUTS_KERNEL\n"
            f'#include "{self.env.header}"\n'
            f'#include "rollouts/device/{header}"\n'
            f"ROLLOUTS_TASK_KERNEL(rollouts::{kernel}<{self.task_type}>)\n"
        )

    @property
    def digest(self) -> str:
        """Digest of the text and of all headers that it may include."""
        return _digest(self.text, _digest_of_ours(_TASK_FOLDERS, include_dir()))

    def explain(self, said: str) -> str:
        """Returns a compiler's message as it is."""
        return said


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


# folders of ours that kernels may include
_ENV_FOLDERS = ("core", "device", "envs")
_TASK_FOLDERS = ("core", "device", "engines", "envs")
_POLICY_FOLDERS = ("core", "device", "data", "policy")


@functools.cache
def _digest_of_ours(folders: tuple[str, ...], include: Path) -> str:
    found = hashlib.sha256()
    for folder in folders:
        for path in sorted((include / "rollouts" / folder).rglob("*.h")):
            found.update(str(path.relative_to(include)).encode() + b"\0" + path.read_bytes())
    return found.hexdigest()
