# SPDX-License-Identifier: Apache-2.0
"""`rollouts bench device`: what it measures, prints and refuses."""

from __future__ import annotations

import json

import pytest

from rollouts.bench.physics_device import measure_physics
from rollouts.cli import main as cli
from rollouts.errors import SpecError

pytestmark = pytest.mark.system

QUICK = ["--device", "cpu-emulation", "--duration-s", "0.01", "--repeats", "2"]


def test_it_prints_each_way_beside_the_cpp_pool(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--env-id", "CartPole-v1", "--num-envs", "20", "40", "--num-steps", "7"]
    assert cli.main(["bench", "device", *arguments, *QUICK]) == 0
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
    assert cli.main(["bench", "device", *arguments, *QUICK]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["way"] for row in rows] == ["C++ pool", "launched", "100 steps a launch"]
    assert all(len(row["env_steps_per_s"]) == 2 and row["median"] > 0 for row in rows)


def test_it_counts_agents_and_takes_options(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--env-id", "TagGridWorld-v0", "--option", "num_taggers=4", "--num-envs", "5"]
    assert cli.main(["bench", "device", *arguments, *QUICK]) == 0
    assert "TagGridWorld-v0, 5 environments of 5 agents, cpu-emulation" in capsys.readouterr().out
    assert cli.main(["bench", "device", *arguments, *QUICK, "--json"]) == 0
    for row in json.loads(capsys.readouterr().out):
        assert row["agent_steps_per_s"] == 5 * row["median"]


def test_it_says_what_kernels_take_of_a_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    ids = ["--env-id", "CartPole-v1", "--env-id", "TagGridWorld-v0"]
    arguments = ["bench", "device", "--arch", "sm_90", *ids]
    assert cli.main(arguments) == 0
    table = capsys.readouterr().out
    assert cli.main([*arguments, "--bandwidth", "2.15", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["entry"] for row in rows] == ["rollouts_step", "rollouts_steps", "rollouts_step"]
    for row in rows:
        assert 16 <= row["registers"] <= 255
        assert row["resident_envs"] % row["envs_of_block"] == 0
        assert f"{row['id']}" in table
    cart_pole, _, grid = rows
    # state of 4 words, elapsed steps, return and `ended` there and back; an action; 4 numbers,
    # reward, two ends, return and length
    assert cart_pole["env_bytes"] == 2 * (16 + 4 + 8 + 1) + 4 + 16 + 4 + 1 + 1 + 8 + 4
    assert cart_pole["env_steps_per_s"] == pytest.approx(2.15e12 / cart_pole["env_bytes"])
    assert (cart_pole["shared_bytes"], grid["shared_bytes"] > 0) == (0, True)


def test_it_chooses_blocks_as_such_a_gpu_would(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    # NVRTC takes a third of the time for them that it takes for agents on the plane
    crowd = ["--env-id", "TagGridWorld-v0", "--option", "num_taggers=3000"]
    seen = ["--option", "use_full_observation=false"]
    shared = {}
    for arch in ("sm_90", "sm_120"):
        assert cli.main(["bench", "device", *crowd, *seen, "--arch", arch, "--json"]) == 0
        (row,) = json.loads(capsys.readouterr().out)
        assert row["resident_envs"] >= 1
        shared[arch] = row["shared_bytes"]
    # a world of three thousand agents fits the one and not the other
    assert shared["sm_90"] > 80 * 1024 > 49 * 1024 > shared["sm_120"]
    assert cli.main(["bench", "device", *crowd, "--arch", "sm_70"]) == 2
    assert "arch is 'sm_70', expected one of sm_80" in capsys.readouterr().err


def test_physics_stands_beside_mujoco_warp_alone(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("mujoco_warp")
    ids = ["--env-id", "InvertedPendulum-v5", "--env-id", "CartPole-v1"]
    assert cli.main(["bench", "device", *ids, "--num-envs", "5", *QUICK]) == 0
    of_kernels, of_physics = capsys.readouterr().out.split("\n\n")
    assert "CartPole-v1, 5 environments, cpu-emulation" in of_kernels
    lines = of_physics.splitlines()
    assert lines[1].startswith(
        "InvertedPendulum-v5, 5 worlds, cpu-emulation, 2 physics steps each, nconmax "
    )
    ours, bare = (line.split() for line in lines[2:4])
    assert (ours[0], bare[0]) == ("rollouts", "mujoco_warp")
    for row in (ours, bare):
        # three digits of each
        assert float(row[1]) == pytest.approx(2 * float(row[2]), rel=0.02)
    assert bare[-1] == "1.000x"
    assert float(ours[-1].removesuffix("x")) == pytest.approx(
        float(ours[2]) / float(bare[2]), rel=0.02
    )


def test_physics_as_json_takes_its_memory(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("mujoco_warp")
    arguments = ["--env-id", "InvertedPendulum-v5", "--num-envs", "5", "--option", "njmax=20"]
    assert cli.main(["bench", "device", *arguments, *QUICK, "--json"]) == 0
    ours, bare = json.loads(capsys.readouterr().out)
    assert (ours["way"], bare["way"]) == ("rollouts", "mujoco_warp")
    for row in (ours, bare):
        assert row["njmax"] == 20
        assert len(row["env_steps_per_s"]) == 2
        assert row["physics_steps_per_s"] == row["frame_skip"] * row["median"]
    assert ours["of_mujoco_warp"] == ours["median"] / bare["median"]


def test_what_no_gpu_steps_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "device", "--env-id", "ALE/Pong-v5", *QUICK]) == 2
    assert "hosts an engine of the CPU" in capsys.readouterr().err
    with pytest.raises(SpecError, match="mujoco_warp steps no CartPole-v1"):
        measure_physics("CartPole-v1", 4, "cpu-emulation")
