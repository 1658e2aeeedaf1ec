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

OTHER_RELEASE = """
#include "rollouts/plugin/abi.h"
extern "C" const rollouts::PluginTable* rollouts_plugin() {
  static rollouts::PluginTable table{};
  table.layout = {.version = rollouts::kPluginVersion, .table_bytes = sizeof(table)};
  table.layout.%s += 1;
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


@pytest.mark.parametrize("field", ["version", "table_bytes", "env_spec_bytes", "real_bytes"])
def test_a_library_of_another_release_is_refused(field: str, tmp_path: Path) -> None:
    library = library_of(OTHER_RELEASE % field, tmp_path)
    with pytest.raises(EngineError, match=r"plugin\.so was made for another release of rollouts"):
        load(library)
    assert "Loaded-v0" not in rollouts.env_ids()


def test_what_is_no_plugin_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="rollouts_plugin"):
        load(library_of("int nothing = 0;", tmp_path))
    (tmp_path / "text.so").write_text("text")
    with pytest.raises(EngineError, match=r"text\.so"):
        load(tmp_path / "text.so")


def test_an_id_that_exists_is_refused() -> None:
    header = Path(rollouts.__file__).parent / "own_env" / "templates" / "one_agent.h"
    library = build(read_header(header), "MyEnv")
    with pytest.raises(SpecError, match="there is an environment 'CartPole-v1' already"):
        load(library, "CartPole-v1")
