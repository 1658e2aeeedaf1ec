# SPDX-License-Identifier: Apache-2.0
"""`examples/ppo.py` as a user runs it: in a process of its own, by its command line."""

from __future__ import annotations

import importlib
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from warm_python import Script, run_in_new_python, run_script

from rollouts.checkpoint import load_checkpoint, save_checkpoint
from rollouts.metrics.status import FILE_NAME, read_status

pytestmark = pytest.mark.system

SCRIPT = Path(__file__).parents[2] / "examples" / "ppo.py"
IN_PROCESS = ("--num-workers", "0", "--num-envs", "16", "--rollout-length", "128")
# within reach of a policy that has just begun to learn
EASY = (*IN_PROCESS, "--target-return", "40")
# out of reach
MISSING = (*IN_PROCESS, "--target-return", "1000", "--total-steps", "4096")
LIMIT_S = 600


def run_ppo(*args: object) -> subprocess.CompletedProcess[str]:
    return run_script(SCRIPT, *args, timeout=LIMIT_S)


@contextmanager
def started_ppo(*args: object) -> Iterator[Script]:
    """Starts a run that has learnt from at least one batch when the block begins.

    Only the test ends the run: a fast machine trains the usual 500 000 steps in seconds.
    """
    endless = ("--target-return", 1000, "--total-steps", 10**9)
    # without output buffering, so that the progress bar can be followed
    with Script(SCRIPT, *args, *endless, new_session=True, unbuffered=True) as process:
        try:
            seen = ""
            while "policy lag" not in seen:
                text = process.stderr.read(1)
                assert text, f"ended before it learnt anything: {seen}"
                seen += text
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """The sentence by which the program ends, without a process of its own."""
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    program: Any = importlib.import_module("ppo")

    def ended(*args: object) -> str:
        monkeypatch.setattr(sys, "argv", ["ppo.py", *map(str, args)])
        with pytest.raises(SystemExit, match=r"^error: ") as raised:
            program.main()
        return str(raised.value)

    return ended


def env_steps(run_dir: Path) -> int:
    return load_checkpoint(run_dir).env_steps


def ray_workers(ancestor: int, number: int) -> list[psutil.Process]:
    """Waits until `number` rollout workers descend from the process `ancestor`."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        workers = []
        for process in psutil.Process(ancestor).children(recursive=True):
            with suppress(psutil.NoSuchProcess):  # it has ended since
                if "RolloutWorker" in " ".join(process.cmdline()):
                    workers.append(process)
        # the first batch may be one worker's, while another still starts
        if len(workers) == number:
            return workers
        assert time.monotonic() < deadline, workers
        time.sleep(0.05)


def wait_for_restart(process: Script, run_dir: Path) -> None:
    """Waits until the run says that it replaced a worker, and then that it got further steps."""
    deadline, delivered = time.monotonic() + LIMIT_S, None
    while True:
        assert process.poll() is None and time.monotonic() < deadline
        if (run_dir / FILE_NAME).exists():
            status = read_status(run_dir / FILE_NAME)
            now = status.value("rollouts_env_steps_delivered_total")
            if delivered is not None and now != delivered:
                return
            if status.value("rollouts_restarts_total") == 1:
                delivered = now if delivered is None else delivered
        time.sleep(0.05)


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a run without Ray that reached its target."""
    run_dir = tmp_path_factory.mktemp("ppo") / "run"
    result = run_ppo(*EASY, "--run-dir", run_dir)
    assert result.returncode == 0, result.stderr
    (run_dir / "stdout").write_text(result.stdout)
    (run_dir / "stderr").write_text(result.stderr)
    return run_dir


@pytest.fixture(scope="module")
def missed_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a run of two updates by native code, too short for its target."""
    run_dir = tmp_path_factory.mktemp("ppo") / "run"
    options = (*MISSING, "--learner-engine", "native", "--run-dir", run_dir)
    result = run_in_new_python(SCRIPT, *options, timeout=LIMIT_S)
    assert result.returncode == 1, result.stderr
    (run_dir / "stdout").write_text(result.stdout)
    return run_dir


def test_a_run_leaves_picture_checkpoint_and_tensorboard_logs(finished_run: Path) -> None:
    assert (finished_run / "training.png").read_bytes().startswith(b"\x89PNG")
    assert (finished_run / "checkpoint.pt").is_file()
    assert list(finished_run.glob("events.out.tfevents.*"))
    # nothing of the atomic replacement is left behind
    assert not list(finished_run.glob(".checkpoint*"))


def test_a_run_ends_with_one_line_that_says_what_was_reached(finished_run: Path) -> None:
    line = (finished_run / "stdout").read_text().splitlines()[-1]
    pattern = (
        r"CartPole-v1: mean return (\d+\.\d) over the last 100 episodes, [\d,]+ env-steps in "
        r"[\d.]+ s of training \([\d,]+ env-steps/s\) after [\d.]+ s for the first rollout, "
        r"0 worker restarts; outputs in .*run"
    )
    match = re.fullmatch(pattern, line)
    assert match and float(match[1]) >= 40


def test_the_progress_bar_shows_return_throughput_and_policy_lag(finished_run: Path) -> None:
    bar = (finished_run / "stderr").read_text()
    assert re.search(r"return \d+\.\d, [\d,]+ env-steps/s, policy lag 0\.0", bar)


def test_a_missed_target_is_a_failure(missed_run: Path) -> None:
    assert "CartPole-v1: mean return" in (missed_run / "stdout").read_text()


def test_a_resumed_run_goes_on_where_the_first_stopped(missed_run: Path, tmp_path: Path) -> None:
    shutil.copytree(missed_run, tmp_path, dirs_exist_ok=True)
    options = (*IN_PROCESS, "--target-return", "1000", "--run-dir", tmp_path)
    before = load_checkpoint(tmp_path).training
    run_ppo(*options, "--total-steps", 8192, "--resume", tmp_path)
    after = load_checkpoint(tmp_path).training
    steps = [state["progress"]["env_steps"] for state in (before, after)]
    updates = [state["progress"]["updates"] for state in (before, after)]
    assert steps == [4096, 8192] and updates == [2, 4]
    assert after["progress"]["history"][:2] == before["progress"]["history"]
    # Adam counts its own steps: those of the first run are among them
    adam = [state["learner"]["optimizer"]["state"][0]["step"] for state in (before, after)]
    assert adam[1] == 2 * adam[0]


def test_native_gradient_steps_are_those_of_torch(missed_run: Path, tmp_path: Path) -> None:
    run_ppo(*MISSING, "--learner-engine", "torch", "--run-dir", tmp_path)
    one, other = load_checkpoint(missed_run), load_checkpoint(tmp_path)
    for name, weight in one.training["learner"]["model"].items():
        torch.testing.assert_close(
            weight, other.training["learner"]["model"][name], rtol=0, atol=1e-4, msg=name
        )
    assert one.env_steps == other.env_steps == 4096


def test_a_killed_run_goes_on_from_its_last_checkpoint(tmp_path: Path) -> None:
    sizes = ("--num-workers", 2, "--num-envs", 8, "--rollout-length", 32)
    options = (*sizes, "--run-dir", tmp_path)
    with started_ppo(*options, "--checkpoint-interval-s", 0) as process:
        while not (tmp_path / "checkpoint.pt").exists():
            assert process.poll() is None
            time.sleep(0.01)
        # some updates past the first checkpoint, and in the middle of whatever it does then
        first = env_steps(tmp_path)
        while env_steps(tmp_path) < first + 5 * 512:
            assert process.poll() is None
            time.sleep(0.01)
        workers = ray_workers(process.pid, 2)
        process.kill()
        assert process.wait(LIMIT_S) == -signal.SIGKILL
    _, alive = psutil.wait_procs(workers, timeout=LIMIT_S)
    assert not alive
    before = load_checkpoint(tmp_path).training
    total = before["progress"]["env_steps"] + 4 * 512
    end = ("--target-return", 1000, "--total-steps", total)
    result = run_ppo(*options, *end, "--resume", tmp_path)
    assert result.returncode == 1, result.stderr
    after = load_checkpoint(tmp_path).training
    updates, history = after["progress"]["updates"], after["progress"]["history"]
    assert updates == before["progress"]["updates"] + 4, result.stderr
    assert history[: updates - 4] == before["progress"]["history"]
    # every batch of 2 * 8 * 32 env-steps counts once, also for Adam and for the policy's version
    assert [row["env_steps"] for row in history] == [512 * (i + 1) for i in range(updates)]
    adam = [state["learner"]["optimizer"]["state"][0]["step"] for state in (before, after)]
    assert adam[1] * (updates - 4) == adam[0] * updates
    status = read_status(tmp_path / FILE_NAME)
    assert status.value("rollouts_policy_version") == updates + 1
    assert status.value("rollouts_env_steps_delivered_total") == 4 * 512
    events = EventAccumulator(str(tmp_path)).Reload()
    logged = [event.step for event in events.Scalars("charts/mean_return")]
    assert logged == [row["env_steps"] for row in history]


def test_a_finished_run_can_be_resumed_and_changes_nothing(finished_run: Path) -> None:
    before = env_steps(finished_run)
    result = run_ppo(*EASY, "--resume", finished_run)
    assert result.returncode == 0, result.stderr
    assert env_steps(finished_run) == before


def test_a_damaged_checkpoint_is_named(finished_run: Path, tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.pt"
    path.write_bytes((finished_run / "checkpoint.pt").read_bytes()[:5000])
    result = run_ppo(*EASY, "--resume", path)
    assert result.returncode == 1
    assert f"error: {path} is not a readable checkpoint" in result.stderr
    assert "Traceback" not in result.stderr


class Touch:
    """Unpickling it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_code_in_a_checkpoint_is_not_executed(refused: Callable[..., str], tmp_path: Path) -> None:
    path, trace = tmp_path / "checkpoint.pt", tmp_path / "executed"
    torch.save({"kind": Touch(trace)}, path)
    assert "is not a readable checkpoint" in refused(*EASY, "--resume", path)
    path.write_bytes(pickle.dumps(Touch(trace)))
    assert "is not a readable checkpoint" in refused(*EASY, "--resume", path)
    assert not trace.exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"training": {"kind": "something else"}}, "another program"),
        ({"id": "Pendulum-v1"}, "has id = "),
        ({"env_options": {"gravity": 5.0}}, "env_options = {'gravity': 5.0}, expected {}"),
    ],
)
def test_a_checkpoint_of_something_else_is_refused(
    change: dict[str, Any],
    message: str,
    finished_run: Path,
    refused: Callable[..., str],
    tmp_path: Path,
) -> None:
    save_checkpoint(tmp_path, replace(load_checkpoint(finished_run), **change))
    assert message in refused(*EASY, "--resume", tmp_path)


def test_frames_of_an_environment_without_pixels_are_refused(
    refused: Callable[..., str], tmp_path: Path
) -> None:
    options = (*EASY, "--save-frames", 4, "--run-dir", tmp_path)
    assert "shows pixels" in refused(*options)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_an_interrupt_saves_a_checkpoint_and_leaves_no_process(
    num_workers: int, tmp_path: Path
) -> None:
    """Interrupts a run. Of the workers, if there are any, one was killed and replaced before."""
    with started_ppo("--num-workers", num_workers, "--run-dir", tmp_path) as process:
        workers = ray_workers(process.pid, num_workers)
        if workers:
            workers[0].kill()
            workers[0].wait(LIMIT_S)
            wait_for_restart(process, tmp_path)
            workers = ray_workers(process.pid, num_workers)
        # to the whole group, as a terminal does on Ctrl-C
        os.killpg(process.pid, signal.SIGINT)
        stdout, stderr = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130, stderr
    assert "CartPole-v1: mean return" in stdout
    assert f"{min(num_workers, 1)} worker restarts" in stdout
    assert env_steps(tmp_path) > 0
    assert (tmp_path / "training.png").is_file()
    _, alive = psutil.wait_procs(workers, timeout=LIMIT_S)
    assert not alive


def test_continuous_actions_take_the_same_path(tmp_path: Path) -> None:
    options = ("--env-id", "Pendulum-v1", *IN_PROCESS, "--total-steps", 4096)
    result = run_ppo(*options, "--run-dir", tmp_path)
    assert result.returncode == 0, result.stderr
    assert "Pendulum-v1: mean return -" in result.stdout


def test_atari_takes_the_same_path_and_shows_its_frames(tmp_path: Path) -> None:
    sizes = ("--num-workers", 0, "--num-envs", 2, "--rollout-length", 16, "--total-steps", 64)
    options = ("--env-id", "ALE/Pong-v5", *sizes, "--save-frames", 3)
    result = run_ppo(*options, "--run-dir", tmp_path)
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "frames.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("num_envs", "num_steps"),
    # two updates, and eight of twice the size
    [(4, 512), pytest.param(8, 4096, marks=pytest.mark.slow)],
)
def test_a_learner_notices_nothing_of_atari_s_engine(
    num_envs: int, num_steps: int, tmp_path: Path
) -> None:
    learned = []
    for engine in ("native", "ale"):
        sizes: tuple[Any, ...] = (
            "--num-workers",
            0,
            "--num-envs",
            num_envs,
            "--rollout-length",
            64,
        )
        sizes += ("--total-steps", num_steps, "--torch-threads", "1")
        result = run_ppo(
            "--env-id", "ALE/Breakout-v5", "--option", f"engine={engine}", *sizes,
            "--target-return", "1000", "--run-dir", tmp_path / engine,
        )  # fmt: skip
        # the target was not reached
        assert result.returncode == 1, result.stderr
        learned.append(load_checkpoint(tmp_path / engine).training)
    ours, theirs = (tensors(training["learner"]) for training in learned)
    assert ours.keys() == theirs.keys() and len(ours) > 20
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    returns = [[point["mean_return"] for point in one["progress"]["history"]] for one in learned]
    assert repr(returns[0]) == repr(returns[1])  # the first of them are NaN


def tensors(tree: Any, name: str = "") -> dict[str, torch.Tensor]:
    """Those in dicts, lists and tuples, by their places."""
    if isinstance(tree, torch.Tensor):
        return {name: tree}
    if not isinstance(tree, dict | list | tuple):
        return {}
    items = tree.items() if isinstance(tree, dict) else enumerate(tree)
    found = {}
    for key, value in items:
        found |= tensors(value, f"{name}/{key}")
    return found
