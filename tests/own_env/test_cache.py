# SPDX-License-Identifier: Apache-2.0
"""Compiled libraries are found again, made once by many processes, and nobody else's."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import rollouts
from rollouts.errors import EngineError
from rollouts.own_env.cache import cache_folder, find_or_make
from rollouts.own_env.compiler import build
from rollouts.own_env.header_files import read_header

pytestmark = pytest.mark.system

TEMPLATE = Path(rollouts.__file__).parent / "own_env" / "templates" / "one_agent.h"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ROLLOUTS_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_folder_is_this_users_alone(cache: Path) -> None:
    folder = cache_folder()
    assert folder.is_relative_to(cache)
    assert cache.stat().st_mode & 0o777 == 0o700
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_others_may_write_to_is_refused(cache: Path) -> None:
    for mode in (0o770, 0o707):
        cache.mkdir(exist_ok=True)
        cache.chmod(mode)
        with pytest.raises(EngineError, match="nobody else can write to, as what lies there"):
            cache_folder()


def test_a_folder_of_another_user_is_refused(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.mkdir(mode=0o700)
    other = os.getuid() + 1
    monkeypatch.setattr(os, "getuid", lambda: other)
    with pytest.raises(EngineError, match="must be a directory that you own"):
        cache_folder()


def test_a_link_and_a_file_are_no_folder(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    cache.symlink_to(tmp_path / "real")
    with pytest.raises(EngineError, match="must be a directory"):
        cache_folder()
    cache.unlink()
    cache.write_text("")
    with pytest.raises(EngineError, match="cannot be made"):
        cache_folder()


def test_a_folder_below_one_of_everybodys_is_refused(cache: Path) -> None:
    cache.parent.chmod(0o777)
    with pytest.raises(EngineError, match="everybody may write to a folder above"):
        cache_folder()
    # in a sticky one nobody can rename what is another's
    cache.parent.chmod(0o1777)
    cache_folder()


def test_without_a_variable_it_is_where_xdg_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ROLLOUTS_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder().is_relative_to(tmp_path / "xdg" / "rollouts")


def test_many_that_ask_at_once_make_it_once(cache: Path) -> None:
    made = []

    def make(folder: Path) -> None:
        made.append(folder)
        (folder / "it").write_text("whole")

    with ThreadPoolExecutor(8) as pool:
        paths = list(pool.map(lambda _: find_or_make(cache_folder(), "key", "it", make), range(32)))
    assert len(made) == 1
    assert {path.read_text() for path in paths} == {"whole"}


def test_what_failed_leaves_nothing_and_what_is_damaged_is_made_anew(cache: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "it").write_text("half")
        raise ValueError("no")

    def make(folder: Path) -> None:
        (folder / "it").write_text("whole")

    folder = cache_folder()
    with pytest.raises(ValueError, match="no"):
        find_or_make(folder, "key", "it", fail)
    assert [path for path in folder.iterdir() if path.is_dir()] == []
    path = find_or_make(folder, "key", "it", make)
    path.write_text("cut")
    assert find_or_make(folder, "key", "it", make).read_text() == "whole"


def test_processes_that_register_at_once_compile_once(cache: Path, tmp_path: Path) -> None:
    header = tmp_path / "my_env.h"
    header.write_text(TEMPLATE.read_text())
    count = tmp_path / "compiled"
    compiler = tmp_path / "counting"
    compiler.write_text(
        f'#!/bin/sh\ncase "$*" in *--version*) ;; *) echo once >> {count} ;; esac\n'
        'exec c++ "$@" -O0\n'
    )
    compiler.chmod(0o700)
    code = (
        "import rollouts\n"
        f"rollouts.register_env('Many-v0', header={str(header)!r}, type='MyEnv')\n"
        "with rollouts.make_vec('Many-v0', 4, seed=1) as env: print(env.reset()[0].tolist())"
    )
    environment = {**os.environ, "CXX": str(compiler)}
    running = [
        subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE)
        for _ in range(3)
    ]
    said = [process.communicate()[0] for process in running]
    assert [process.returncode for process in running] == [0] * 3
    assert len({*said}) == 1
    assert count.read_text() == "once\n"


def test_another_text_compiler_option_or_include_is_another_library(
    tmp_path: Path, quickly: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    header = tmp_path / "my_env.h"
    part = tmp_path / "part.h"
    part.write_text("#pragma once\n")
    header.write_text('#include "part.h"\n' + TEMPLATE.read_text())
    first = build(read_header(header), "MyEnv")
    assert build(read_header(header), "MyEnv") == first
    part.write_text("#pragma once\n// another\n")
    second = build(read_header(header), "MyEnv")
    monkeypatch.setenv("CXX", f"{os.environ['CXX']} -DNOTHING")
    third = build(read_header(header), "MyEnv")
    assert len({first, second, third}) == 3
