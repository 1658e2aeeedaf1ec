# SPDX-License-Identifier: Apache-2.0
"""Our own Atari 2600 compiles for a GPU, on which no pool runs it yet."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import pytest

from rollouts import EngineError
from rollouts.envs.kernel import cuda
from rollouts.envs.kernel.launch_args import EnvLaunch
from rollouts.support.include_dir import include_dir

# kinds of cartridges, as CartridgeKind has them
KINDS = ("kPlain", "kF8", "kF6", "kE0", "kFE", "kF8SC", "kF6SC", "kDpc")
TEXT = """
#define ROLLOUTS_KERNEL
#include "rollouts/atari2600/game_console.h"
#include "rollouts/atari2600/rules.h"
using namespace rollouts::atari2600;
extern "C" __global__ void play(GameConsole* consoles, const int* actions, const Rules* rules,
                                RulesState* states, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  CALL;
}
"""
FRAME = "SetHands(consoles[i], actions[i]), EmulateFrame<CartridgeKind::{}>(consoles[i].console)"
ACT = "Act(consoles[i], actions[i], 0.0f)"  # whichever the game's is
RULES = "StepRules(rules[i], Ram(consoles[i]), states[i])"


@dataclass(frozen=True, slots=True)
class AtariSource:
    """A console's program for one thread."""

    call: str
    name: str = "the Atari 2600"
    include_dirs: tuple[Path, ...] = (include_dir(),)
    entries: tuple[str, ...] = ("play",)
    launch_type: type[EnvLaunch] = EnvLaunch

    @property
    def text(self) -> str:
        """The translation unit."""
        return TEXT.replace("CALL", self.call)

    @property
    def digest(self) -> str:
        """The hash of the text."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    def explain(self, said: str) -> str:
        """Explains a compiler's words."""
        return said


def assert_compiles(call: str) -> None:
    try:
        cuda._bindings("nvrtc")
    except EngineError as error:
        pytest.skip(str(error))
    usage = cuda.kernel_usage(AtariSource(call), "sm_90")["play"]
    # what a thread has leaves room for 12 warps of a multiprocessor
    assert usage.spill_bytes == 0
    assert usage.registers <= 160
    assert usage.stack_bytes <= 256


@pytest.mark.system
@pytest.mark.parametrize("kind", KINDS)
def test_a_frame_compiles_for_a_gpu(kind: str) -> None:
    assert_compiles(FRAME.format(kind))


@pytest.mark.system
def test_rules_compile_for_a_gpu() -> None:
    assert_compiles(RULES)


@pytest.mark.slow
def test_the_whole_console_compiles_for_a_gpu() -> None:
    assert_compiles(ACT)
