# SPDX-License-Identifier: Apache-2.0
"""The text of a kernel: an environment's header and the entries around it."""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass
from pathlib import Path

from rollouts.own_env.registrations import EnvSource
from rollouts.support.include_dir import include_dir

# observation dtype -> its type in native/include/rollouts/device/numbers.h
OBS_TYPES = {
    "float32": "float",
    "float16": "rollouts::Float16",
    "bfloat16": "rollouts::BFloat16",
    "float64": "double",
    "int64": "std::int64_t",
    "int32": "std::int32_t",
    "int8": "std::int8_t",
    "uint8": "std::uint8_t",
}
# folders of ours that a kernel may include
_FOLDERS = ("core", "device", "envs")


@dataclass(frozen=True, slots=True)
class KernelSource:
    """What a kernel is compiled from.

    Attributes:
      env: Where the environment's text is.
      obs_dtype: One of OBS_TYPES.
      state_words: Numbers of 32 bits that a State must have; worlds of agents have none.
    """

    env: EnvSource
    obs_dtype: str
    state_words: int = 0

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
            return (
                "#define ROLLOUTS_KERNEL\n#define ROLLOUTS_REAL double\n"
                f'#include "{self.env.header}"\n'
                '#include "rollouts/device/world_kernels.h"\n'
                f"namespace rollouts {{ using KernelEnv = {self.env.type}; }}\n"
                f"ROLLOUTS_WORLD_KERNEL(rollouts::KernelEnv, {OBS_TYPES[self.obs_dtype]})\n"
            )
        return (
            "#define ROLLOUTS_KERNEL\n#define ROLLOUTS_REAL float\n"
            f'#include "{self.env.header}"\n'
            '#include "rollouts/device/env_kernels.h"\n'
            f"namespace rollouts {{ using KernelEnv = {self.env.type}; }}\n"
            f"static_assert(sizeof(rollouts::KernelEnv::State) == {4 * self.state_words},\n"
            '              "rollouts: a State that has Reals needs kStateNames, one for each");\n'
            f"ROLLOUTS_ENV_KERNEL(rollouts::KernelEnv, {OBS_TYPES[self.obs_dtype]})\n"
        )

    @property
    def digest(self) -> str:
        """Differs where the text does, or a header that it may include."""
        own = "" if self.env.files is None else self.env.files.digest
        parts = "\0".join((self.text, own, _digest_of_ours(include_dir())))
        return hashlib.sha256(parts.encode()).hexdigest()

    def explain(self, said: str) -> str:
        """What a compiler said, with an own header where its author has it."""
        if self.env.files is None:
            return said
        return said.replace(str(self.env.include_dirs[0]), self.env.files.folder)


@functools.cache
def _digest_of_ours(include: Path) -> str:
    found = hashlib.sha256()
    for folder in _FOLDERS:
        for path in sorted((include / "rollouts" / folder).rglob("*.h")):
            found.update(str(path.relative_to(include)).encode() + b"\0" + path.read_bytes())
    return found.hexdigest()
