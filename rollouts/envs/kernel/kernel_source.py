# SPDX-License-Identifier: Apache-2.0
"""The texts of kernels: a header of an environment or a policy, and the entries around it."""

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

# numbers that a policy's network multiplies
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


# a type that is named from inside namespace rollouts or from outside; ambiguous where both have one
_SEEN = "namespace rollouts_seen {{ using namespace rollouts; using KernelEnv = {type}; }}\n"


class KernelSource(Protocol):
    """The text from which a kernel is compiled, and its entries.

    Attributes:
      name: Name of what the kernel computes, for messages.
      text: The translation unit.
      digest: Differs where the text does, or a header that it may include.
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
        """Returns a compiler's message with the path at which the author has the header."""
        ...


@dataclass(frozen=True, slots=True)
class EnvKernelSource:
    """A kernel that steps environments.

    Attributes:
      env: Where the environment's text is.
      obs_dtype: One of OBS_TYPES.
      state_words: Numbers of 32 bits that a State must have; worlds of agents have none.
      alone: Worlds that one thread each steps; None: teams of threads step them.
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
        """Functions of the kernel: for one step, and for many where that is another one."""
        return ("rollouts_step",) if self.env.multi_agent else ("rollouts_step", "rollouts_steps")

    @property
    def text(self) -> str:
        """The translation unit. Its type is seen from inside namespace rollouts or from outside.

        Dynamics are computed in 32 bits. Worlds of agents name the types of their numbers, and lie
        in memory as they do in the C++ pool.
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
        """Differs where the text does, or a header that it may include."""
        own = "" if self.env.files is None else self.env.files.digest
        return _digest(self.text, own, _digest_of_ours(_ENV_FOLDERS, include_dir()))

    def explain(self, said: str) -> str:
        """Returns a compiler's message with the path at which the author has the header."""
        if self.env.files is None:
            return said
        return said.replace(str(self.env.include_dirs[0]), self.env.files.folder)


@dataclass(frozen=True, slots=True)
class PolicyKernelSource:
    """A kernel that computes a policy, whichever it is.

    Attributes:
      obs_dtype: One of OBS_TYPES whose numbers C++ converts: not float16 and bfloat16.
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
        """Differs where the text does, or a header that it may include."""
        return _digest(self.text, _digest_of_ours(_POLICY_FOLDERS, include_dir()))

    def explain(self, said: str) -> str:
        """Returns a compiler's message as it is."""
        return said


@dataclass(frozen=True, slots=True)
class TaskKernelSource:
    """A kernel of a MuJoCo task over the arrays of mujoco_warp.

    Attributes:
      env: Where the text of the pool's environment is, whose task it is.
      task_type: The C++ type of the task.
      is_suite: Whether it is one of the DeepMind Control Suite.
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
        """Differs where the text does, or a header that it may include."""
        return _digest(self.text, _digest_of_ours(_TASK_FOLDERS, include_dir()))

    def explain(self, said: str) -> str:
        """Returns what a compiler said."""
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
