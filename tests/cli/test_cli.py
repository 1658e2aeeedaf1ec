# SPDX-License-Identifier: Apache-2.0
"""The command `rollouts`: what it prints, and how it ends when something is wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import rollouts
from rollouts import bench
from rollouts.cli import envs as cli_envs
from rollouts.cli import main as cli
from rollouts.cli import values

pytestmark = pytest.mark.system

QUICK = ["--num-envs", "4", "--num-threads", "1", "--duration-s", "0.005", "--repeats", "2"]
BENCH = ["bench", "--env-id", "CartPole-v1", *QUICK]


def test_envs_lists_spaces_and_limit_in_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["envs", "--filter", "pendulum-V1"]) == 0
    head, _, family, row = capsys.readouterr().out.splitlines()
    assert family == "Classic control"
    assert " ".join(row.split()) == "Pendulum-v1 200 Box (1,) float32 in [-2, 2] Box (3,) float32"
    assert row.index("Box") == head.index("action space")
    assert row.rindex("Box") == head.index("observation space")


def test_envs_lists_every_id(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # a spec of an Atari game takes a fifth of a second, and the ids are what matters here
    spec = rollouts.env_spec("CartPole-v1")
    monkeypatch.setattr(cli_envs, "env_spec", lambda env_id: spec)
    assert cli.main(["envs"]) == 0
    _, _, _, *rows = capsys.readouterr().out.splitlines()
    assert [row.split()[0] for row in rows] == [*rollouts.env_ids(), *rollouts.multi_agent_ids()]


def test_envs_fits_the_terminal_and_cuts_nothing_for_a_pipe(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli.main(["envs", "--filter", "cartp"]) == 0
    whole = capsys.readouterr().out.splitlines()
    assert {"Classic control", "DeepMind Control Suite"} <= set(whole)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "60")
    assert cli.main(["envs", "--filter", "cartp"]) == 0
    fitted = capsys.readouterr().out.splitlines()
    assert max(map(len, whole)) > 60 == max(map(len, fitted))
    assert [line[:40] for line in fitted] == [line[:40] for line in whole]


def test_envs_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["envs", "--filter", "CartPole-v1", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert found["id"] == "CartPole-v1"
    assert found["max_episode_steps"] == 500
    assert found["action_space"]["n"] == 2
    assert found["observation_space"]["shape"] == [4]


def test_envs_says_what_an_ids_options_mean(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["envs", "CartPole-v1"]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == "CartPole-v1"
    assert "time limit 500 steps" in lines
    assert "force_mag 10.0 N; how hard an action pushes the cart" in lines
    assert cli.main(["envs", "CartPole-v1", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["option_help"].keys() == found["options"].keys()
    assert found["option_help"]["mass_pole"] == "kg; of the pole"


@pytest.mark.parametrize("arguments", [["--filter", "zzz"], ["CartPoel-v1"]])
def test_envs_that_do_not_exist_are_an_error(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["envs", *arguments]) == 2
    out, err = capsys.readouterr()
    assert arguments[-1] in err
    assert ("Did you mean CartPole-v1" in err) == ("Poel" in arguments[-1])
    assert out == ""


def test_options_without_a_limit_are_valid_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["envs", "Hopper-v5", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert found["options"]["healthy_z_max"] == "inf"


def test_a_reader_that_stops_reading_gives_no_traceback() -> None:
    reader, writer = os.pipe()
    # closed before the first line is written, as a `head -0` would
    os.close(reader)
    try:
        result = subprocess.run(
            [sys.executable, "-m", "rollouts", "envs", "--filter", "CartPole"],
            stdout=writer,
            stderr=subprocess.PIPE,
            timeout=300,
            check=False,
        )
    finally:
        os.close(writer)
    assert result.stderr == b""
    assert result.returncode == 141


def test_bench_prints_table_header_and_footer(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*BENCH, "--env-id", "Pendulum-v1", "--peer", "gymnasium"]) == 0
    head, rows, foot = capsys.readouterr().out.split("\n\n")
    assert head.startswith(f"rollouts {rollouts.__version__}, gymnasium ")
    assert [row.split()[0] for row in rows.splitlines()[1:]] == [
        *["CartPole-v1"] * 2,
        *["Pendulum-v1"] * 2,
    ]
    assert "Command: rollouts bench --env-id CartPole-v1 --num-envs 4" in foot


def test_bench_prints_markdown(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*BENCH, "--markdown"]) == 0
    assert "\n| environment | " in capsys.readouterr().out


def test_bench_json_is_one_object_and_nothing_else(capfd: pytest.CaptureFixture[str]) -> None:
    peer = ["--peer", "gymnasium", "--peer", "gymnasium"]
    assert cli.main([*BENCH, "--batch-size", "2", *peer, "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert found["versions"]["rollouts"] == rollouts.__version__
    (result,) = found["results"]
    assert result["id"] == "CartPole-v1"
    assert result["settings"]["batch_size"] == 2
    # a peer named twice is measured once
    assert [each["library"] for each in result["measurements"]] == ["rollouts", "gymnasium"]
    assert all(len(each["repeats"]) == 2 for each in result["measurements"])


def test_bench_passes_options_on(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--option", "gravity=3", "--option", "sutton_barto_reward=true"]
    assert cli.main([*BENCH, *options, "--json"]) == 0
    (result,) = json.loads(capsys.readouterr().out)["results"]
    assert result["settings"]["env_options"]["gravity"] == 3
    assert result["settings"]["env_options"]["sutton_barto_reward"] is True


def settings(result: dict[str, Any]) -> tuple[int, int, int]:
    found = result["settings"]
    return found["num_envs"], found["batch_size"], found["num_threads"]


SWEEP = ["bench", "--env-id", "CartPole-v1", "--duration-s", "0.002", "--repeats", "1"]


def test_bench_measures_every_combination_once(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--num-envs", "2", "4", "--num-envs", "2", "--batch-size", "N", "N/2", "1"]
    assert cli.main([*SWEEP, *sizes, "--num-threads", "1", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [settings(result) for result in found["results"]] == [
        (num_envs, batch_size, num_threads)
        for num_envs, batch_size in [(2, 2), (2, 1), (4, 4), (4, 2), (4, 1)]
        for num_threads in (1, 2)
    ]
    assert found["skipped"] == []


def test_bench_says_which_combinations_are_impossible(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--num-envs", "2", "4", "--batch-size", "1", "3", "--num-threads", "1"]
    sentence = (
        "Not measured: batch_size 3 with num_envs 2, since a batch has at most num_envs rows."
    )
    assert cli.main([*SWEEP, *sizes, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [settings(result) for result in found["results"]] == [(2, 1, 1), (4, 1, 1), (4, 3, 1)]
    assert found["skipped"] == [sentence]
    assert cli.main([*SWEEP, *sizes]) == 0
    assert sentence in capsys.readouterr().out.splitlines()


def test_bench_sets_the_settings_of_a_sweep_apart(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--num-envs", "1", "2", "4", "--num-threads", "1", "--peer", "gymnasium"]
    assert cli.main([*SWEEP, *sizes]) == 0
    _, first, *others, _ = capsys.readouterr().out.split("\n\n")
    groups = [first.splitlines()[1:], *(other.splitlines() for other in others)]
    assert [[row.split()[1] for row in group] for group in groups] == [
        ["1", "1"],
        ["2", "2"],
        ["4", "4"],
    ]


def test_bench_draws_a_plot_beside_the_json(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is missing")
    path = tmp_path / "out.png"
    assert cli.main([*SWEEP, "--num-envs", "1", "2", "--json", "--plot", str(path)]) == 0
    printed = capfd.readouterr()
    assert len(json.loads(printed.out)["results"]) == 2
    assert f"written: {path}" in printed.err
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("out.txt", "give a path that ends in .png, .svg or .pdf"),
        ("out", "give a path that ends in"),
        ("no/out.png", "give a path in a folder that exists"),
    ],
)
def test_a_plot_that_cannot_be_written_is_refused_before_measuring(
    path: str,
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is missing")
    monkeypatch.setattr(bench, "compare", pytest.fail)
    assert cli.main([*BENCH, "--plot", str(tmp_path / path)]) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_plot_without_matplotlib_is_refused_before_measuring(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "compare", pytest.fail)
    for name in ("matplotlib", "matplotlib.figure", "matplotlib.backends.backend_agg"):
        monkeypatch.setitem(sys.modules, name, None)
    assert cli.main([*BENCH, "--plot", str(tmp_path / "out.png")]) == 2
    assert "pip install 'matplotlib>=3.8'" in capsys.readouterr().err


@pytest.mark.parametrize(("text", "value"), [("8", 8), ("N", Fraction(1)), ("N/4", Fraction(1, 4))])
def test_batch_sizes_are_rows_or_shares_of_num_envs(text: str, value: object) -> None:
    found = values.batch_size(text)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("text", "value"),
    [("a=True", True), ("a=3", 3), ("a=-0.5", -0.5), ("a=1e3", 1000.0), ("a=b=c", "b=c")],
)
def test_option_values_are_read_as_what_they_look_like(text: str, value: object) -> None:
    key, found = values.option(text)
    assert (key, found, type(found)) == ("a", value, type(value))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--env-id", "CartPoel-v1"], "Did you mean CartPole-v1"),
        (["--env-id", "CartPole-v1", "--option", "speed=1"], "no option 'speed'"),
        (["--env-id", "CartPole-v1", "--peer", "ale"], "Atari games only"),
        (["--env-id", "CartPole-v1", "--num-envs", "2", "--batch-size", "3"], "batch_size must be"),
        (
            ["--env-id", "CartPole-v1", "--num-envs", "1", "2", "--batch-size", "3", "4"],
            "got 3 and num_envs 2",
        ),
        (["--env-id", "CartPole-v1", "--seed", "-1"], "seed is -1, expected a whole number"),
        (["--env-id", "CartPole-v1", "--duration-s", "0"], "duration_s must be"),
    ],
)
def test_a_mistake_gives_a_sentence_and_status_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["bench", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("rollouts bench pool: error: ")
    assert message in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["bench"],
        [*BENCH, "--num-envs", "0"],
        [*BENCH, "--num-envs"],
        [*BENCH, "--batch-size", "N/0"],
        [*BENCH, "--batch-size", "N2"],
        [*BENCH, "--peer", "gym"],
        [*BENCH, "--option", "gravity"],
        [*BENCH, "--json", "--markdown"],
    ],
)
def test_arguments_that_cannot_be_read_give_status_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(arguments)
    assert stop.value.code == 2
    assert "error: " in capsys.readouterr().err


def test_a_missing_peer_gives_a_sentence_and_status_2(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # None is how Python marks a module that must not be imported
    monkeypatch.setitem(sys.modules, "envpool", None)
    assert cli.main([*BENCH, "--peer", "envpool"]) == 2
    assert "pip install 'envpool'" in capsys.readouterr().err


def test_ctrl_c_ends_without_a_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(bench, "compare", interrupted)
    assert cli.main(BENCH) == 130
    assert capsys.readouterr() == ("", "interrupted\n")


def test_peers_are_not_imported_before_they_are_asked_for() -> None:
    heavy = ["envpool", "ale_py", "cv2", "torch", "ray", "matplotlib"]
    code = f"import sys, rollouts.cli.main; print([m for m in {heavy!r} if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_bench_without_a_subject_measures_a_pool(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*BENCH, "--json"]) == 0
    short = json.loads(capsys.readouterr().out)
    assert cli.main(["bench", "pool", *BENCH[1:], "--json"]) == 0
    long = json.loads(capsys.readouterr().out)
    assert [one["settings"] for one in short["results"]] == [
        one["settings"] for one in long["results"]
    ]


def test_bench_names_its_subjects(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, code in ((["bench", "--help"], 0), (["bench"], 2), (["bench", "collekt"], 2)):
        with pytest.raises(SystemExit) as ended:
            cli.main(arguments)
        assert ended.value.code == code
        said = capsys.readouterr()
        if code == 0:
            for subject in [
                "pool",
                "collect",
                "replay",
                "adapter",
                "learner",
                "device",
                "latency",
                "memory",
                "states",
                "solve",
                "train",
            ]:
                assert f"    {subject} " in said.out
    assert "Did you mean collect?" in said.err


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["bencg"], "bench"),
        (["verify-atary"], "verify-atari"),
        (["verify-atari", "--games", "Pong"], "ALE/Pong-v5"),
        (["verify-atari", "--games", "space_invaders"], "ALE/SpaceInvaders-v5"),
        (["verify-atari", "--games", "ALE/Pog-v5"], "ALE/Pong-v5"),
        (["verify-atari", "--actions", "humanlike"], "human-like"),
        (["verify-atari", "--frame", "3", "--worker", "1", "--snapshot", "--gmes", "x"], "--games"),
        (["bench", "--env-id", "Pong"], "ALE/Pong-v5"),
        (["bench", "--env-id", "CartPole-v1", "--peer", "envpol"], "envpool"),
        (["bench", "--env-id", "CartPole-v1", "--beside", "CartPole"], "CartPole-v1"),
        (["bench", "--env-id", "CartPole-v1", "--num-env-s", "3"], "--num-envs"),
        (["bench", "collect", "--env-id", "CartPole"], "CartPole-v1"),
        (["bench", "collect", "--env-id", "CartPole-v1", "--peer", "envpool"], "envpool-torch"),
        (["bench", "collect", "--env-id", "CartPole-v1", "--policy", "cn"], "cnn"),
        (["bench", "adapter", "torchrll"], "torchrl"),
        (["bench", "adapter", "sb3", "--peer", "sb3-subprc"], "sb3-subproc"),
        (["bench", "adapter", "sb3", "--env-id", "CartPole"], "CartPole-v1"),
        (["bench", "replay", "--peer", "revrb"], "reverb"),
        (["bench", "replay", "--workload", "addstep"], "add_step"),
        (["bench", "latency", "--env-id", "CartPole"], "CartPole-v1"),
        (["bench", "memory", "--env-id", "CartPole"], "CartPole-v1"),
        (["bench", "states", "--env-id", "CartPole"], "CartPole-v1"),
        (["bench", "device", "--env-id", "CartPole"], "CartPole-v1"),
        (["tune-batch", "--env-id", "CartPole"], "CartPole-v1"),
        (["tune-batch", "--env-id", "CartPole-v1", "--policy", "64-64"], "64x64"),
        (["tune-batch", "--env-id", "CartPole-v1", "--device", "gpu"], "cuda"),
        (["envs", "CartPole"], "CartPole-v1"),
        (["envs", "--filter", "Cartpoll-v1"], "CartPole-v1"),
        (["record", "--env-id", "Pong", "--out", "/tmp/a.gif"], "ALE/Pong-v5"),
        (["report", "--only", "pool"], "pools"),
        (["report", "--quik"], "--quick"),
        (["top", "--rundir", "x"], "--run-dir"),
    ],
)  # fmt: skip
def test_a_wrong_name_is_answered_by_the_one_that_was_meant(
    arguments: list[str], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        status = cli.main(arguments)
    except SystemExit as ended:
        status = int(str(ended.code))
    said = capsys.readouterr().err.replace("\n", " ")
    assert status == 2
    assert meant in said.rpartition("error: ")[2], said
    assert "Did you mean" in said or "such as" in said or "expected" in said, said
