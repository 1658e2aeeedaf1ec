# SPDX-License-Identifier: Apache-2.0
"""`rollouts tune-batch` and `tune_batch`: real trials in processes of their own."""

from __future__ import annotations

import io
import json
import pickle
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from own_envs import keep_between_runs, quick_compiler

import rollouts
from rollouts.cli import main as cli
from rollouts.errors import EngineError, EnvError, SpecError
from rollouts.machine import memory
from rollouts.tuning import Trial, trial, tune_batch
from rollouts.tuning.trial import CollectRequest, is_out_of_memory
from rollouts.tuning.tune import choose_device, run_trial

pytestmark = pytest.mark.system

QUICK = ["--duration-s", "0.01", "--repeats", "1"]


def shown(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    status = cli.main(["tune-batch", *arguments])
    captured = capsys.readouterr()
    assert status == 0, captured.err
    return captured.out


def test_table_and_what_follows_from_it(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--env-id", "CartPole-v1", "--rollout-length", "16", "--max-num-envs", "16"]
    lines = shown([*arguments, "--device", "cpu", *QUICK], capsys).splitlines()
    # 5 s to start, 2 turns
    assert re.match(r"At most 2 sizes, each of about \d+ s: 1 min", lines[0])
    rows = [line.split() for line in lines[2:4]]
    assert [row[:2] for row in rows] == [["8", "16"], ["16", "16"]]
    assert all(row[-1] == "native" and float(row[2]) > 0 for row in rows)
    assert "T = 16 ended: max_num_envs reached." in lines
    assert "Device: cpu." in lines
    assert lines[-2].startswith("Fastest: num_envs ")
    assert lines[-1].startswith("Smallest within 5 %: num_envs ")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_the_pool_is_tuned_and_says_so() -> None:
    found = tune_batch(
        "CartPole-v1", rollout_lengths=[8], max_num_envs=8, duration_s=0.01, repeats=1
    )
    assert found.device == "cpu"
    assert found.note == "torch finds no GPU: the C++ pool was tuned"
    assert found.fastest is not None
    assert found.fastest == found.smallest == found.trials[0]


# random actions are tried below, too
@pytest.mark.slow
def test_environment_that_runs_on_no_gpu_says_so() -> None:
    found = tune_batch(
        "Blackjack-v1",
        policy="random",
        rollout_lengths=[8],
        max_num_envs=8,
        duration_s=0.01,
        repeats=1,
    )
    assert found.trials[0].engine == "torch"
    assert found.device == "cpu"


def test_agents_on_the_emulated_device_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--env-id", "TagContinuous-v0", "--rollout-length", "4", "--max-num-envs", "8"]
    text = shown([*arguments, "--device", "cpu-emulation", *QUICK, "--json"], capsys)
    found = json.loads(text)
    assert found["device"] == "cpu-emulation"
    (trial,) = found["trials"]
    assert trial == found["fastest"] == found["smallest"]
    assert (trial["num_envs"], trial["rollout_length"]) == (8, 4)
    assert trial["memory_bytes"] > 50e6
    assert trial["usable_bytes"] > 100e6


def test_agents_in_a_pool() -> None:
    found = tune_batch(
        "simple_spread_v3",
        device="cpu",
        rollout_lengths=[8],
        max_num_envs=8,
        duration_s=0.01,
        repeats=2,
    )
    assert len(found.trials[0].env_steps_per_s) == 2
    assert found.trials[0].engine == "native"


def test_more_environments_take_more_memory() -> None:
    def trial(num_envs: int) -> Trial:
        return run_trial(
            CollectRequest(
                id="CartPole-v1",
                env_options={},
                policy="random",
                device="cpu",
                num_envs=num_envs,
                rollout_length=512,
                num_threads=1,
                duration_s=0.01,
                repeats=1,
                seed=0,
            )
        )

    small, large = trial(8), trial(2048)
    # observations alone are 16 bytes a step, of two rollouts that are held
    assert large.memory_bytes - small.memory_bytes > 2 * 16 * 512 * 2048


def test_memory_limit_ends_the_search(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--env-id", "CartPole-v1", "--rollout-length", "16", "--device", "cpu"]
    text = shown([*arguments, "--max-memory-gb", "0.001", *QUICK], capsys)
    assert "T = 16 ended: the next size would not fit in memory." in text
    assert "Fastest: num_envs 8, T 16" in text


def test_a_gpu_is_chosen_for_what_runs_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def choose(env_id: str, *, has_gpu: bool = True) -> tuple[str, str]:
        return choose_device(rollouts.env_spec(env_id), has_gpu=has_gpu)

    assert choose("CartPole-v1") == ("cuda", "")
    assert choose("Blackjack-v1")[0] == "cuda"
    assert choose("InvertedPendulum-v5", has_gpu=False) == (
        "cpu",
        "torch finds no GPU: the C++ pool was tuned",
    )
    assert choose("ALE/Pong-v5") == (
        "cpu",
        "ALE/Pong-v5 does not run on a GPU: the C++ pool was tuned",
    )
    pytest.importorskip("mujoco_warp")
    assert choose("InvertedPendulum-v5") == ("cuda", "")
    # as where the extra is not installed
    monkeypatch.setitem(sys.modules, "mujoco_warp", None)
    device, note = choose("InvertedPendulum-v5")
    assert device == "cpu"
    assert "pip install 'rollouts[mujoco-warp]'" in note


def test_physics_on_a_device_is_tuned_within_memory(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("mujoco_warp")
    arguments = ["--env-id", "InvertedPendulum-v5", "--device", "cpu-emulation"]
    small = ["--rollout-length", "2", "--max-num-envs", "16", "--max-memory-gb", "0.001"]
    memory = ["--option", "njmax=9", "--option", "nconmax=3"]
    text = shown([*arguments, *small, *memory, *QUICK], capsys)
    assert "Device: cpu-emulation." in text
    assert "T = 2 ended: the next size would not fit in memory." in text
    assert "Fastest: num_envs 8, T 2" in text


# mujoco_warp starts twice, for ten seconds each; what is counted is a process's memory, as above
@pytest.mark.slow
def test_memory_of_worlds_is_counted() -> None:
    pytest.importorskip("mujoco_warp")

    def trial(njmax: int) -> Trial:
        return run_trial(
            CollectRequest(
                id="InvertedPendulum-v5",
                env_options={"njmax": njmax},
                policy="8x8",
                device="cpu-emulation",
                num_envs=64,
                rollout_length=1,
                num_threads=1,
                duration_s=0.01,
                repeats=1,
                seed=0,
            )
        )

    # the memory of a row of constraints is ten numbers of 4 bytes at least
    more = 5000
    assert trial(10 + more).memory_bytes - trial(10).memory_bytes > 40 * 64 * more


def test_warps_words_for_too_little_memory_are_known() -> None:
    wp: Any = pytest.importorskip("warp")
    with pytest.raises(RuntimeError) as raised:
        wp.empty((2**30, 2**30), dtype=wp.float64, device="cpu")
    assert is_out_of_memory(raised.value)
    assert not is_out_of_memory(RuntimeError("no kernel image is available"))


def test_a_launch_without_memory_ends_the_search_and_not_the_tuning(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def collect(request: CollectRequest) -> dict[str, Any]:
        raise EngineError("CUDA: out of memory")

    monkeypatch.setattr(trial, "collect", collect)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(pickle.dumps(None))))
    trial.main()
    assert "out of memory" in json.loads(capsys.readouterr().out)["failure"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--env-id", "CartPole-v9"], "CartPole-v9"),
        (["--env-id", "CartPole-v1", "--policy", "huge"], "policy is 'huge'"),
        (["--env-id", "CartPole-v1", "--policy", "cnn"], "images (C, H, W)"),
        (["--env-id", "CartPole-v1", "--device", "tpu"], "device is 'tpu'"),
        (["--env-id", "CartPole-v1", "--option", "colour=red"], "colour"),
        (["--env-id", "CartPole-v1", "--option", "njmax=3"], "no option 'njmax'"),
        (["--env-id", "Hopper-v5", "--device", "cpu", "--option", "njmax=3"], "option 'njmax'"),
    ],
)
def test_mistakes_are_told_in_a_sentence(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["tune-batch", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there() -> None:
    with pytest.raises(EngineError, match="GPU"):
        tune_batch("CartPole-v1", device="cuda")


def test_wrong_numbers() -> None:
    with pytest.raises(SpecError, match="rollout_lengths is empty"):
        tune_batch("CartPole-v1", rollout_lengths=())
    with pytest.raises(SpecError, match="rollout_lengths"):
        tune_batch("CartPole-v1", rollout_lengths=(0,))
    with pytest.raises(SpecError, match="duration_s"):
        tune_batch("CartPole-v1", duration_s=0)
    with pytest.raises(SpecError, match="max_num_envs"):
        tune_batch("CartPole-v1", max_num_envs=0)


def test_a_process_that_dies_ends_a_trial_not_the_caller(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_between_runs()
    monkeypatch.setenv("CXX", quick_compiler())
    header = tmp_path / "deadly.h"
    assert cli.main(["new-env", str(header)]) == 0
    begin = "const bool slips ="
    text = header.read_text().replace("MyEnv", "Deadly")
    assert begin in text
    header.write_text(
        text.replace(begin, f"if (config.length == 13) __builtin_trap();\n    {begin}")
    )
    arguments = ["--env-id", "Deadly-v0", "--header", str(header), "--device", "cpu"]
    small = ["--rollout-length", "4", "--max-num-envs", "8"]
    assert "Fastest: num_envs 8" in shown([*arguments, *small, *QUICK], capsys)
    with pytest.raises(EnvError, match="8 environments failed: killed by signal"):
        tune_batch("Deadly-v0", env_options={"length": 13}, device="cpu", duration_s=0.01)


def test_peak_memory_is_this_programs_own() -> None:
    code = (
        "from rollouts.machine.memory import peak_memory\n"
        "before = peak_memory(); held = bytearray(b'1') * 10**8\n"
        "print(before, peak_memory())"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    before, after = map(int, result.stdout.split())
    assert after - before > 0.95e8
    # this process has torch and more
    assert before < memory.peak_memory()


def test_usable_memory_is_cut_to_the_cgroup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 900 kB\nMemAvailable: 800 kB\n")
    limit, usage = tmp_path / "max", tmp_path / "current"
    monkeypatch.setattr(memory, "_CGROUPS", ((str(limit), str(usage)),))
    assert memory.usable_memory(tmp_path) == 800 * 1024
    usage.write_text("1000\n")
    limit.write_text("max\n")
    assert memory.usable_memory(tmp_path) == 800 * 1024
    limit.write_text("5000\n")
    assert memory.usable_memory(tmp_path) == 4000
