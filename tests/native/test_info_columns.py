# SPDX-License-Identifier: Apache-2.0
"""Info columns of MuJoCo's tasks: debug builds stop where one writes more than it announces."""

from __future__ import annotations

import shutil
import signal
import subprocess
from pathlib import Path

import pytest

INCLUDE = Path(__file__).parents[2] / "native" / "include"
COMPILER = shutil.which("c++") or shutil.which("g++")

pytestmark = pytest.mark.skipif(COMPILER is None, reason="needs a C++ compiler")

PROGRAM = """
#include "rollouts/envs/mujoco/mujoco_env.h"
// an argument is a number to write into two columns
int main(int count, char**) {
  double columns[2];
  rollouts::InfoWriter infos(columns);
  for (int i = 1; i < count; ++i) infos.Put(i);
  return infos.full() ? 0 : 1;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("info_columns") / "program"
    command = [str(COMPILER), "-std=c++20", f"-I{INCLUDE}", "-x", "c++", "-", "-o", str(made)]
    subprocess.run(command, input=PROGRAM, text=True, check=True)
    return made


@pytest.mark.parametrize(("numbers", "status"), [(1, 1), (2, 0), (3, -signal.SIGABRT)])
def test_a_task_writes_as_many_infos_as_it_announces(
    program: Path, numbers: int, status: int
) -> None:
    done = subprocess.run([program, *map(str, range(numbers))], capture_output=True)
    assert done.returncode == status, done.stderr
