# SPDX-License-Identifier: Apache-2.0
"""Type checkers see which environment `make_vec` returns, and users' code of each kind passes."""

from __future__ import annotations

import inspect
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import get_args

import rollouts
from rollouts.envs import make
from rollouts.envs.unknown_option import arguments_of_make_vec

ROOT = Path(__file__).parents[2]
USER_CODE = Path(__file__).with_name("user_code.py")


def test_the_projects_mypy_checks_what_users_write() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]
    assert settings["strict"]
    assert USER_CODE.relative_to(ROOT).as_posix() in settings["files"]
    # else a type checker would ignore the types of the installed package
    assert Path(rollouts.__file__).with_name("py.typed").is_file()


def test_the_ids_that_type_checkers_know_have_several_agents() -> None:
    command = "import rollouts; print(*rollouts.multi_agent_ids())"
    # in a process in which no test has registered environments
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True)
    assert {*get_args(make.MultiAgentId)} == {*done.stdout.split()}


def test_the_keywords_that_type_checkers_know_are_make_vecs() -> None:
    parameters = inspect.signature(rollouts.make_vec).parameters.values()
    assert arguments_of_make_vec() == [
        one.name for one in parameters if one.kind is not one.VAR_KEYWORD
    ]
