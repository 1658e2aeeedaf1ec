# SPDX-License-Identifier: Apache-2.0
"""Lanes as other compilers and machines make them: clang, and NEON under emulation.

A program of the lanes' sources alone reads a model's fields and states that are kept with MuJoCo's
next ones. It needs no MuJoCo on the other machine.
"""

from __future__ import annotations

import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_once import BUILD, make
from sanitizers import HERE, NATIVE

from comparisons.verify_mujoco.golden_states import BOUND, next_errors_of, read
from comparisons.verify_mujoco.models import subject_of
from rollouts.families.mujoco_engine import load_engine

GOLDEN = read(HERE.parent / "mujoco_lanes" / "golden.npz")
# Euler; Runge-Kutta with contacts; PGS with limbs that touch; two trees; a fluid
IDS = ("HalfCheetah-v5", "Ant-v5", "Humanoid-v5", "Reacher-v5", "Swimmer-v5")
LANES = NATIVE / "src" / "lanes"
SOURCES = [*sorted(LANES.glob("*.cpp")), HERE / "programs" / "lanes_step.cpp"]
CACHE = BUILD / "lanes"
LOOPS = ("-ffp-contract=fast", "-fno-trapping-math", "-fno-math-errno")
# the compiler, its package, what runs its programs and the package of that
TOOLS: dict[str, tuple[str, str, str | None, str | None]] = {
    "clang": ("clang++", "clang", None, None),
    "neon": (
        "aarch64-linux-gnu-g++",
        "g++-aarch64-linux-gnu",
        "qemu-aarch64-static",
        "qemu-user-static",
    ),
}

pytestmark = pytest.mark.system


@pytest.fixture(scope="module", params=TOOLS)
def program(request: pytest.FixtureRequest) -> list[str | Path]:
    """The command that runs the program of a compiler."""
    compiler, package, runner, runners_package = TOOLS[request.param]
    for tool, needed in ((compiler, package), (runner, runners_package)):
        if tool is not None and shutil.which(tool) is None:
            pytest.skip(f"needs {tool}: apt-get install {needed}")
    folder = CACHE / request.param
    # warnings are the module's build's
    command = [compiler, "-std=c++20", "-O2", f"-I{NATIVE / 'include'}", f"-I{NATIVE / 'src'}"]

    def compiled(source: Path) -> Path:
        options = LOOPS if source.name.startswith("loops_") else ()
        object_file = folder / f"{source.stem}.o"
        return make(object_file, [*command, *options, "-MMD", "-c", str(source)], [source])

    with ThreadPoolExecutor(2) as compilers:
        objects = list(compilers.map(compiled, SOURCES))
    linked = [compiler, "-static", *map(str, objects)]
    return [*([] if runner is None else [runner]), make(folder / "lanes_step", linked, objects)]


@pytest.mark.parametrize("env_id", IDS)
def test_other_compilers_lanes_step_as_mujoco(program: list[str | Path], env_id: str) -> None:
    load_engine()
    subject, states = subject_of(env_id), GOLDEN.states[env_id]
    here = subject.comparer.step(*states.arrays(), width=2)["handed_back"]
    found = {}
    for width in (2, 1):
        left, *after = _step(program, subject.model, states.arrays(), width)
        np.testing.assert_array_equal(left, here)
        for name, errors in next_errors_of(subject, GOLDEN, *after).items():
            assert errors[~left].max() <= BOUND, (name, width)
        found[width] = after
    # a lane's arithmetic is the same whatever the width
    for pair, single in zip(*found.values(), strict=True):
        np.testing.assert_allclose(pair[~here], single[~here], rtol=1e-9, atol=1e-11)


def test_the_program_says_why_lanes_do_not_step_a_model(program: list[str | Path]) -> None:
    load_engine()
    model = subject_of("FingerSpin-v1").model
    done = subprocess.run(program, input=_text_of(model) + b"rows 1 0\n", capture_output=True)
    assert done.returncode == 1 and b"its friction cones are elliptic" in done.stderr


def _step(program: list[str | Path], model: Any, arrays: Any, width: int) -> tuple[Any, Any, Any]:
    """Rows that were left (N,), and the next qpos (N, nq) and qvel (N, nv)."""
    count = len(arrays[0])
    rows = f"rows {width} {count}\n".encode() + b"".join(array.tobytes() for array in arrays)
    said = subprocess.run(program, input=_text_of(model) + rows, capture_output=True, check=True)
    bits = int.from_bytes(said.stdout[:8], "little")
    numbers = np.frombuffer(said.stdout[8:])
    qpos, qvel = np.split(numbers, [count * model.nq])
    left = np.array([bool(bits >> row & 1) for row in range(count)])
    return left, qpos.reshape(count, -1), qvel.reshape(count, -1)


def _text_of(model: Any) -> bytes:
    """The model's sizes and fields, as the program reads them."""
    named = {name: getattr(model, name) for name in dir(model) if not name.startswith("_")}
    fields = {name: value for name, value in named.items() if isinstance(value, np.ndarray)}
    for name in dir(model.opt):
        value = getattr(model.opt, name)
        if isinstance(value, (int, float, np.ndarray)):
            # int and double, as mjOption has them
            kind = np.int32 if isinstance(value, int) else None
            fields[f"opt.{name}"] = np.asarray(value, kind)
    text = b""
    for name, value in named.items():
        if name.startswith("n") and isinstance(value, int):
            text += f"size {name} {value}\n".encode()
    for name, value in fields.items():
        text += f"field {name} {value.nbytes}\n".encode() + value.tobytes()
    return text
