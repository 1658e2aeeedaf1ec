# SPDX-License-Identifier: Apache-2.0
"""Our own Atari 2600 compiles for a GPU, on which no pool runs it yet."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from own_envs import keep_between_runs
from quick_nvrtc import Compile, quick_compiler

from rollouts import EngineError
from rollouts.envs.kernel import cuda
from rollouts.envs.kernel.launch_args import EnvLaunch
from rollouts.support.include_dir import include_dir

# what the compiler says is kept by content
keep_between_runs()

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
        """The hash of the text and of all headers."""
        found = hashlib.sha256(self.text.encode())
        for path in sorted(include_dir().rglob("*.h")):
            found.update(path.read_bytes())
        return found.hexdigest()

    def explain(self, said: str) -> str:
        """Explains a compiler's words."""
        return said


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


def assert_leaves_room(call: str) -> None:
    usage = cuda.kernel_usage(AtariSource(call), "sm_90")["play"]
    # what a thread has leaves room for 12 warps of a multiprocessor
    assert usage.spill_bytes == 0
    assert usage.registers <= 160
    assert usage.stack_bytes <= 256


@pytest.mark.system
@pytest.mark.parametrize("kind", KINDS)
def test_a_frame_compiles_for_a_gpu(compile_quickly: Compile, kind: str) -> None:
    assert compile_quickly(AtariSource(FRAME.format(kind)), "sm_90")[:4] == b"\x7fELF"


# ten to thirty seconds each
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=pytest.mark.system if kind == KINDS[0] else pytest.mark.slow)
        for kind in KINDS
    ],
)
def test_a_frame_leaves_room_for_others(kind: str) -> None:
    assert_leaves_room(FRAME.format(kind))


@pytest.mark.system
def test_rules_leave_room_for_others() -> None:
    assert_leaves_room(RULES)


@pytest.mark.slow
def test_the_whole_console_leaves_room_for_others() -> None:
    assert_leaves_room(ACT)
