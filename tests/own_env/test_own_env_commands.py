# SPDX-License-Identifier: Apache-2.0
"""`rollouts new-env`, `check-env` and `bench --header`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from own_envs import HEADERS

import rollouts
from rollouts.cli import check_env
from rollouts.cli.main import main
from rollouts.cli.new_env import TEMPLATES
from rollouts.errors import SpecError
from rollouts.own_env.header_files import HeaderFiles

pytestmark = pytest.mark.system

ONE = (TEMPLATES / "one_agent.h").read_text()


@pytest.fixture(autouse=True)
def new_id_for_each_test(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    # the command has a process of its own
    name = re.sub(r"[^\w.-]", "_", request.node.name)
    monkeypatch.setattr(check_env, "ENV_ID", f"checked-{name}-v0")


@pytest.mark.parametrize("agents", [[], ["--agents"]])
def test_what_new_env_writes_passes_the_checks(
    agents: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], quickly: None
) -> None:
    header = tmp_path / "small_game.h"
    assert main(["new-env", str(header), *agents]) == 0
    assert "which has SmallGame; try it with" in capsys.readouterr().out
    assert main(["check-env", str(header), "--steps", "40", "--max-episode-steps", "20"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("ok    contract: SmallGame compiles")
    assert [line[:4] for line in said.splitlines()].count("ok  ") == 1 + len(check_env.CHECKS)


def test_environments_of_other_shapes_pass_too(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("vault.h", "herd.h"):
        assert main(["check-env", str(HEADERS / name), "--steps", "30"]) == 0, (
            capsys.readouterr().out
        )
        check_env.ENV_ID += "1"


def test_new_env_writes_over_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    header = tmp_path / "mine.h"
    header.write_text("mine")
    assert main(["new-env", str(header)]) == 2
    assert "cannot be written: File exists" in capsys.readouterr().err
    assert header.read_text() == "mine"
    assert main(["new-env", str(tmp_path / "7.h")]) == 2
    assert "expected a name such as my_env.h" in capsys.readouterr().err


# a fault for each check, told apart by their checks: each header, which is compiled twice, has two
FAULTS = {
    "rows": (
        "    obs[1] = static_cast<float>(state.lamp) / last;",
        "    obs[2] = static_cast<float>(state.lamp) / last;",
        r"my_env\.h:{Observe}: element 2 of the observation was written in step 0, and it has 2",
    ),
    "determinism": (
        "    const std::int32_t move = slips ? 0 : *action - 1;",
        "    static std::int32_t calls = 0;\n"
        "    const std::int32_t move = slips || ++calls % 5 == 0 ? 0 : *action - 1;",
        r" of env_id \d+ after step \d+ is once .*no static or global variables",
    ),
    "resets": (
        "    state.position = 0;\n",
        "",
        r"my_env\.h:{Reset}: observation\[0\] of env_id \d+ .*Reset must write all of the state",
    ),
    "numbers": (
        "    obs[0] = static_cast<float>(state.position) / last;",
        "    obs[0] = static_cast<float>(state.position + 1) / last;",
        r"my_env\.h:{Observe}: observation\[0\] of env_id \d+ after step \d+ is 1\.1\d+, beyond",
    ),
    "numbers of rewards": (
        "(found ? 1.0 : 0.0)",
        "(found ? rollouts::kInfinity : 0.0)",
        r"my_env\.h:{Step}: reward of env_id \d+ is inf in step \d+",
    ),
}


# what is wrong with rows ends the checks; what a bound or a reward is has no say in whether
# episodes are the same, which the other checks compare
@pytest.mark.parametrize(
    "names",
    [("rows",), ("determinism", "numbers of rewards"), ("resets", "numbers")],
    ids=" and ".join,
)
def test_a_broken_promise_is_found_and_its_line_told(
    names: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str], quickly: None
) -> None:
    text = ONE
    for name in names:
        before, after, _ = FAULTS[name]
        assert text.count(before) == 1
        text = text.replace(before, after)
    header = tmp_path / "my_env.h"
    header.write_text(text)
    assert main(["check-env", str(header), "--steps", "120"]) == 1
    failed = [line for line in capsys.readouterr().out.splitlines() if line.startswith("FAIL")]
    lines = {
        function: number
        for number, line in enumerate(text.splitlines(), 1)
        for function in ("Reset", "Observe", "Step")
        if re.search(rf"static .*\b{function}\(", line)
    }
    for name in names:
        said = FAULTS[name][2]
        for function, number in lines.items():
            said = said.replace(f"{{{function}}}", str(number))
        begin = f"FAIL  {name.split()[0]}: "
        assert any(line.startswith(begin) and re.search(said, line) for line in failed), failed


def test_a_header_that_does_not_compile_ends_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], quickly: None
) -> None:
    header = tmp_path / "my_env.h"
    header.write_text(ONE.replace("lamp) / last;", "lump) / last;"))
    assert main(["check-env", str(header)]) == 2
    assert f"{header}:" in capsys.readouterr().err


def test_the_type_is_found_where_it_is_plain_which_one() -> None:
    def type_of(text: str, name: str = "my_env.h") -> str:
        return check_env.find_type(HeaderFiles(name, {name: text}, "/"))

    assert type_of("struct Other;\nstruct Lone {\n  struct Config {\n") == "Lone"
    assert type_of("namespace mine {\nstruct Lone {\n") == "mine::Lone"
    assert type_of("namespace rollouts {\nstruct Lone final : Base {\n") == "Lone"
    assert type_of("struct Part {\n};\nstruct MyEnv {\n") == "MyEnv"
    with pytest.raises(SpecError, match=r"say --type, one of \['A', 'B'\]"):
        type_of("struct A {\n};\nstruct B {\n")


def test_bench_measures_a_header_beside_one_of_ours(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # test_same_bits.py needs the same library
    header = tmp_path / "copy_of_cart_pole.h"
    ours = rollouts.include_dir() / "rollouts" / "envs" / "classic" / "cart_pole.h"
    header.write_text(ours.read_text())
    command = ["bench", "--env-id", "BenchCopy-v0", "--header", str(header), "--num-envs", "8"]
    command += ["--max-episode-steps", "500", "--beside", "CartPole-v1", "--json"]
    assert main([*command, "--duration-s", "0.01", "--repeats", "1", "--num-threads", "1"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert "CartPole-v1" in json.dumps(report)
    command[command.index("CartPole-v1")] = "Pendulum-v1"
    assert main(command) == 2
    assert "Pendulum-v1 cannot be measured beside BenchCopy-v0" in capsys.readouterr().err
