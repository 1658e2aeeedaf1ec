# SPDX-License-Identifier: Apache-2.0
"""`rollouts bench-device`: what it measures, prints and refuses."""

from __future__ import annotations

import json

import pytest

from rollouts.cli import main as cli

QUICK = ["--device", "cpu-emulation", "--duration-s", "0.01", "--repeats", "2"]


def test_it_prints_each_way_beside_the_cpp_pool(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--env-id", "CartPole-v1", "--num-envs", "20", "40", "--num-steps", "7"]
    assert cli.main(["bench-device", *arguments, *QUICK]) == 0
    lines = capsys.readouterr().out.splitlines()
    starts = (
        "CartPole-v1, 20",
        "  C++ pool",
        "  launched",
        "  7 steps a launch",
        "CartPole-v1, 40",
    )
    assert [line.startswith(start) for line, start in zip(lines[1:], starts, strict=False)] == [
        True
    ] * 5
    assert lines[2].endswith("1.00x")
    assert "says nothing of a GPU's" in lines[-1]


def test_it_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--env-id", "Taxi-v3", "--num-envs", "5", "--json"]
    assert cli.main(["bench-device", *arguments, *QUICK]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["way"] for row in rows] == ["C++ pool", "launched", "100 steps a launch"]
    assert all(len(row["env_steps_per_s"]) == 2 and row["median"] > 0 for row in rows)


def test_what_no_gpu_steps_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench-device", "--env-id", "simple_v3", *QUICK]) == 2
    assert "several agents" in capsys.readouterr().err
