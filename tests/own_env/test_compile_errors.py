# SPDX-License-Identifier: Apache-2.0
"""A header that does not compile is an error with its line, or with the rule that it breaks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import rollouts
from rollouts.errors import EngineError, SpecError
from rollouts.own_env.compile_errors import explain
from rollouts.own_env.header_files import HeaderFiles

TEMPLATES = Path(rollouts.__file__).parent / "own_env" / "templates"
pytestmark = [pytest.mark.system, pytest.mark.usefixtures("quickly")]
ONE = (TEMPLATES / "one_agent.h").read_text()
AGENTS = (TEMPLATES / "agents.h").read_text()


def refused(text: str, folder: Path, env_type: str = "MyEnv") -> str:
    """The words of register_env on a header."""
    header = folder / "my_env.h"
    header.write_text(text)
    with pytest.raises(SpecError) as caught:
        rollouts.register_env("Refused-v0", header=header, type=env_type)
    assert "Refused-v0" not in rollouts.env_ids()
    return str(caught.value)


def line_of(text: str, part: str) -> int:
    """The number of the first line with this in it."""
    return next(i for i, line in enumerate(text.splitlines(), 1) if part in line)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("state.position = 0;", "state.position = 0", "expected ';'"),
        ("lamp) / last;", "lump) / last;", "no member named 'lump'"),
        ("check.Finite(", "check.Finit(", "no member named 'Finit'"),
        ("#pragma once", '#include "nowhere.h"', r"nowhere\.h'?:? (No such file|file not found)"),
    ],
)
def test_the_line_of_the_header_comes_with_what_the_compiler_says(
    before: str, after: str, said: str, tmp_path: Path
) -> None:
    text = ONE.replace(before, after)
    message = refused(text, tmp_path)
    # a missing semicolon is told at its line or at the next
    line = line_of(text, after)
    places = f"({line}|{line + 1})"
    assert re.search(rf"{re.escape(str(tmp_path))}/my_env\.h:{places}: .*{said}", message), message
    assert len(message.splitlines()) <= 6


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (ONE.replace("Observe(", "Look("), "it has no function `static void Observe(const Config&"),
        (ONE.replace("VisitConfig", "Options"), "static void VisitConfig(Config&, V& visit)"),
        (ONE.replace("rollouts::StepResult Step(", "bool Step("), "static StepResult Step(const"),
        (ONE.replace(".shape = {2}", ".shape = {0}"), "has no elements"),
        (
            ONE.replace("  struct State {", "  struct State {\n    State(const State&) {}"),
            "its State is not trivially copyable",
        ),
        (AGENTS.replace("EndStep", "Finish"), "static bool EndStep(const WorldRef<Env>& world"),
        (AGENTS.replace("VisitFields", "Fields"), "static void VisitFields(const Config&"),
    ],
)
def test_a_rule_of_the_contract_that_is_broken_is_named(
    text: str, rule: str, tmp_path: Path
) -> None:
    message = refused(text, tmp_path)
    place = f"{tmp_path}/my_env.h:{line_of(text, 'struct MyEnv')}"
    assert message.startswith(f"{place}: MyEnv is no environment as core/env.h has it: ")
    assert rule in message


def test_an_error_in_a_file_that_the_header_includes_names_that_file(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "lamp.h").write_text("#pragma once\n\nint Lamp() { return nothing; }\n")
    message = refused('#include "parts/lamp.h"\n' + ONE, tmp_path)
    place = re.escape(f"{tmp_path}/parts/lamp.h:3: ")
    assert re.search(rf"{place}.*('nothing' was not declared|identifier 'nothing')", message)


def test_a_type_that_is_not_in_the_header_is_told(tmp_path: Path) -> None:
    message = refused(ONE, tmp_path, "YourEnv")
    assert message.startswith(f"{tmp_path}/my_env.h has no type YourEnv")


def test_a_type_that_is_one_of_ours_too_is_told_and_may_be_said_in_full(tmp_path: Path) -> None:
    text = ONE.replace("rollouts/core/env.h", "rollouts/envs/classic/cart_pole.h")
    text = text.replace("MyEnv", "CartPole")
    place = f"{tmp_path}/my_env.h:{line_of(text, 'struct CartPole')}"
    assert refused(text, tmp_path, "CartPole") == (
        f"{place}: CartPole is a type of this header and one of ours: say type='::CartPole' for "
        "the first, type='rollouts::CartPole' for the second"
    )
    rollouts.register_env("Pole-v0", header=tmp_path / "my_env.h", type="::CartPole")
    assert rollouts.env_spec("Pole-v0").single_observation_space.shape == (2,)
    pytest.importorskip("torch")
    with rollouts.make_vec("Pole-v0", 2, device="cpu-emulation") as env:
        assert env.reset()[0].shape == (2, 2)


@pytest.mark.parametrize(
    "words",
    [
        "static assertion failed due to requirement 'x<rollouts::Y>': rollouts: it has no type "
        "Config",
        "static_assert failed due to requirement 'x<rollouts::Y>' \"rollouts: it has no type "
        'Config"',
    ],
    ids=["clang 19", "clang 14"],
)
def test_other_compilers_errors_are_read_too(words: str) -> None:
    said = (
        "/made/sources/my_env.h:7:3: error: unknown type name 'it'\n"
        f"/ours/contract.h:9:1: error: {words}\n"
    )
    files = HeaderFiles("my_env.h", {"my_env.h": "\nstruct MyEnv {\n"}, "/home")
    first, _, _ = said.partition("/ours")
    explained = explain(first, sources=Path("/made/sources"), files=files, env_type="MyEnv")
    assert (
        explained == "/home/my_env.h does not compile:\n  /home/my_env.h:7: unknown type name 'it'"
    )
    explained = explain(said, sources=Path("/made/sources"), files=files, env_type="MyEnv")
    assert explained == (
        "/home/my_env.h:2: MyEnv is no environment as core/env.h has it: it has no type Config"
    )


def test_the_compiler_as_users_have_it_says_its_line_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CXX")
    message = refused(ONE.replace("lamp) / last;", "lump) / last;"), tmp_path)
    assert re.search(
        rf"/my_env\.h:{line_of(ONE, 'lamp) / last;')}: .*no member named 'lump'", message
    )


def test_without_a_compiler_one_sentence_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_env.h").write_text(ONE)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(EngineError) as caught:
        rollouts.register_env("Nothing-v0", header=tmp_path / "my_env.h", type="MyEnv")
    assert str(caught.value) == (
        "this needs a C++ compiler, and there is none on PATH: install one "
        "(apt-get install g++, dnf install gcc-c++, conda install cxx-compiler or xcode-select "
        "--install)"
    )
    monkeypatch.setenv("CXX", "clang++-99 -stdlib=libc++")
    with pytest.raises(EngineError, match=r"CXX='clang\+\+-99 -stdlib=libc\+\+' is none: install"):
        rollouts.register_env("Nothing-v0", header=tmp_path / "my_env.h", type="MyEnv")
