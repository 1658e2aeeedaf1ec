# SPDX-License-Identifier: Apache-2.0
"""Libraries that are no plug-ins of this release are refused before anything of them is used."""

from __future__ import annotations

import math
import subprocess
from pathlib import Path

import pytest

import rollouts
from rollouts import _native
from rollouts.errors import EngineError, SpecError
from rollouts.own_env.compiler import build, find_compiler
from rollouts.own_env.header_files import read_header

pytestmark = pytest.mark.system

# the field that the variable numbers is another one's
OTHER_RELEASE = """
#include <cstdlib>
#include "rollouts/plugin/abi.h"
extern "C" const rollouts::PluginTable* rollouts_plugin() {
  static rollouts::PluginTable table{};
  auto& layout = table.layout;
  layout = {.version = rollouts::kPluginVersion, .table_bytes = sizeof(table)};
  switch (std::atoi(std::getenv("OTHER_FIELD"))) {
    case 0: layout.version += 1; break;
    case 1: layout.table_bytes += 1; break;
    case 2: layout.env_spec_bytes += 1; break;
    case 3: layout.real_bytes += 1; break;
  }
  return &table;
}
"""


def load(library: Path, env_id: str = "Loaded-v0") -> None:
    _native.register_env(
        id=env_id,
        max_episode_steps=0,
        reward_threshold=math.nan,
        header="own/x/y.h",
        type="Y",
        library=str(library),
    )


def library_of(source: str, folder: Path) -> Path:
    (folder / "plugin.cpp").write_text(source)
    command = [*find_compiler().command, "-std=c++20", "-fPIC", "-shared", "plugin.cpp"]
    command += [f"-I{rollouts.include_dir()}", "-o", "plugin.so"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "plugin.so"


def test_a_library_of_another_release_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = library_of(OTHER_RELEASE, tmp_path)
    for number in range(4):
        monkeypatch.setenv("OTHER_FIELD", str(number))
        said = r"plugin\.so was made for another release of rollouts"
        with pytest.raises(EngineError, match=said):
            load(library)
    assert "Loaded-v0" not in rollouts.env_ids()


def test_what_is_no_plugin_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="rollouts_plugin"):
        load(library_of("int nothing = 0;", tmp_path))
    (tmp_path / "text.so").write_text("text")
    with pytest.raises(EngineError, match=r"text\.so"):
        load(tmp_path / "text.so")


def test_an_id_that_exists_is_refused(quickly: None) -> None:
    header = Path(rollouts.__file__).parent / "own_env" / "templates" / "one_agent.h"
    library = build(read_header(header), "MyEnv")
    with pytest.raises(SpecError, match="there is an environment 'CartPole-v1' already"):
        load(library, "CartPole-v1")
