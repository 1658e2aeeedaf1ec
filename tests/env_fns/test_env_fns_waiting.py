# SPDX-License-Identifier: Apache-2.0
"""The number of processes for environments that wait, compute or fail, and reports of waits."""

from __future__ import annotations

import functools
import gc
import multiprocessing
import os
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import data_equivalence
from host_envs import Counter, Talker
from processes import run_in_child

import rollouts
from rollouts.envs.hosted.processes import step_trial, timing
from rollouts.envs.hosted.processes.step_trial import StepTrial
from rollouts.machine.cpu_count import usable_cpus

pytestmark = pytest.mark.system

CPUS = usable_cpus()
MANY = CPUS + 3


class Waiting(Counter):
    """Waits in every step; its action 1 waits until all of them are at theirs."""

    barrier: Any = None

    def __init__(self, wait_s: float = 0.003) -> None:
        super().__init__(length=1000)
        self.wait_s = wait_s
        self.action_space = spaces.Discrete(1)

    def act(self, action: int) -> None:
        if action == 1:
            self.barrier.wait(120)
        else:
            time.sleep(self.wait_s)


class Computing(Counter):
    """Computes in every step."""

    def act(self, action: int) -> None:
        end = time.process_time() + 0.001
        while time.process_time() < end:
            pass


class Marked(Counter):
    """Writes into a file that it was made, and that it was closed."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.closed_file = str(file)
        with file.open("a") as log:
            log.write(f"made in {os.getpid()}\n")


def test_environments_that_wait_get_a_process_each_and_wait_at_once() -> None:
    class Meeting(Waiting):
        barrier = multiprocessing.get_context("fork").Barrier(MANY)

    with rollouts.from_env_fns([Meeting] * MANY, start_method="fork") as envs:
        assert envs.num_processes == MANY
        envs.reset()
        # nobody would come back if one stepped after another
        assert envs.step([1] * MANY)[1].tolist() == [1] * MANY


def test_trial_works_in_processes_that_are_no_forks() -> None:
    with rollouts.from_env_fns([Waiting] * MANY, start_method="spawn") as envs:
        assert envs.num_processes == MANY


def test_environments_that_compute_get_a_process_for_each_cpu() -> None:
    with rollouts.from_env_fns([Computing] * MANY) as envs:
        assert envs.num_processes == CPUS


def test_number_of_processes_that_is_given_is_kept_without_a_trial(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with rollouts.from_env_fns([functools.partial(Marked, log)] * MANY, num_processes=2) as envs:
        assert envs.num_processes == 2
        assert log.read_text().count("made") == MANY


def test_trial_has_a_process_of_its_own_and_leaves_nothing(tmp_path: Path) -> None:
    run_in_child(assert_trial_leaves_nothing, tmp_path / "log")


def assert_trial_leaves_nothing(log: Path) -> None:
    # what multiprocessing keeps for itself is there from the first time on
    rollouts.from_env_fns([Counter], num_processes=1).close()
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    with rollouts.from_env_fns([functools.partial(Marked, log)] * MANY) as envs:
        made, closed, *others = log.read_text().splitlines()
        assert made.startswith("made in ") and closed == "closed"  # before the others were made
        assert len(others) == MANY and made not in others
        assert not psutil.pid_exists(int(made.split()[-1]))
        assert len(psutil.Process().children()) >= envs.num_processes
    del envs
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("what", ["step", "reset", "exit", "samples"])
def test_trial_that_fails_is_as_if_there_had_been_none(what: str, tmp_path: Path) -> None:
    marker = tmp_path / "tried"

    class Failing(Counter):
        def reset(self, *, seed: int | None = None, options: Any = None):
            if what == "reset" and options is None:
                raise ValueError("reset needs options")
            if what == "samples" and options is None:
                self.action_space = None
            return super().reset(seed=seed)

        def act(self, action: int) -> None:
            if what == "step" and action != 1:
                raise ValueError("only 1 will do")

    def make() -> Failing:
        if what == "exit" and not marker.exists():
            marker.touch()
            os._exit(3)
        return Failing()

    with rollouts.from_env_fns([make] * MANY) as envs:
        assert envs.num_processes == CPUS
        envs.reset(options={"any": 1})
        assert envs.step([1] * MANY)[1].tolist() == [1] * MANY


@pytest.mark.parametrize("can_tell", [True, False])
def test_reset_that_computes_for_long_is_no_reason_for_more_processes(
    can_tell: bool, monkeypatch: Any
) -> None:
    class Compiling(Counter):
        def reset(self, *, seed: int | None = None, options: Any = None):
            while can_tell:
                pass
            multiprocessing.Event().wait()

    monkeypatch.setattr(step_trial, "_PATIENCE_S", 0.5)
    monkeypatch.setattr(step_trial, "CLOSE_TIMEOUT_S", 0.0)
    if not can_tell:
        monkeypatch.setattr(step_trial, "_clocks", lambda pid: None)
    with rollouts.from_env_fns([Compiling] * MANY) as envs:
        assert envs.num_processes == CPUS


def test_trial_of_a_step_that_takes_too_long_is_given_up(monkeypatch: Any) -> None:
    # on a busy machine it takes a moment until the step is waiting
    monkeypatch.setattr(step_trial, "_PATIENCE_S", 1.0)
    monkeypatch.setattr(step_trial, "CLOSE_TIMEOUT_S", 0.0)
    with rollouts.from_env_fns([functools.partial(Waiting, 600.0)] * MANY) as envs:
        assert envs.num_processes == MANY


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (StepTrial(stepped_s=0.02, waited_s=0.0, num_steps=100, num_switches=0), 4),
        # late, but for want of a CPU: nothing was given away
        (StepTrial(stepped_s=0.02, waited_s=0.018, num_steps=100, num_switches=1), 4),
        (StepTrial(stepped_s=0.02, waited_s=0.002, num_steps=100, num_switches=100), 4),
        (StepTrial(stepped_s=0.02, waited_s=0.01, num_steps=10, num_switches=10), 16),
        (StepTrial(stepped_s=0.02, waited_s=0.0199, num_steps=4, num_switches=4), 1000),
        (StepTrial(stepped_s=0.02, waited_s=0.02, num_steps=4, num_switches=4), 1000),
        (StepTrial(stepped_s=0.0, waited_s=0.0, num_steps=0, num_switches=0), 4),
    ],
)
def test_processes_follow_from_the_share_of_a_step_that_waits(
    seen: StepTrial, expected: int
) -> None:
    assert seen.num_processes(1000, 4) == expected
    assert seen.num_processes(6, 4) == min(6, expected)


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_data_are_the_same_whatever_the_number_of_processes(mode: str) -> None:
    def data(num_processes: int | None) -> list[Any]:
        functions = [functools.partial(Talker, 2 + number % 3) for number in range(MANY)]
        made = rollouts.from_env_fns(
            functions, num_processes=num_processes, autoreset_mode=mode, seed=3
        )
        rows = []
        with made as envs:
            rows.append(envs.reset())
            for step in range(12):
                rows.append(envs.step((np.arange(MANY) + step) % 5))
        return rows

    expected = data(1)
    for num_processes in (None, 2, MANY):
        assert data_equivalence(data(num_processes), expected, exact=True)


def test_who_has_environments_wait_for_each_others_waits_is_told_once() -> None:
    with rollouts.from_env_fns([functools.partial(Waiting, 0.01)] * 4, num_processes=1) as envs:
        envs.reset()
        with pytest.warns(RuntimeWarning, match=r"4 environments share 1 .*num_processes=4"):
            for _ in range(40):
                envs.step([0] * 4)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for _ in range(40):
                envs.step([0] * 4)


@pytest.mark.parametrize(("kind", "num_processes"), [(Waiting, 4), (Computing, 2)])
def test_nobody_is_told_of_waits_who_has_none_or_lets_them_overlap(
    kind: type, num_processes: int
) -> None:
    with rollouts.from_env_fns([kind] * 4, num_processes=num_processes) as envs:
        envs.set_attr("wait_s", 0.01)
        envs.reset()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for _ in range(100):
                envs.step([0] * 4)


def one_process_that_waits() -> Any:
    return rollouts.from_env_fns([functools.partial(Waiting, 0.01)] * 4, num_processes=1)


def test_batch_comes_with_the_next_recv_where_the_warning_is_an_error() -> None:
    with one_process_that_waits() as envs:
        envs.reset()
        sent = received = 0
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(RuntimeWarning, match="4 environments share 1"):
                while sent < 100:
                    envs.step_async([0] * 4)
                    sent += 1
                    info = envs.step_wait()[4]
                    received += 1
            assert received == sent - 1
            info = envs.step_wait()[4]
        assert info["steps"].tolist() == [sent] * 4
        envs.step_async([0] * 4)
        assert envs.step_wait()[4]["steps"].tolist() == [sent + 1] * 4


@pytest.mark.parametrize("how", ["step", "recv", "recv_batch", "drain", "step_wait"])
def test_warning_names_the_line_that_waited(how: str) -> None:
    with one_process_that_waits() as envs:
        envs.reset()
        with pytest.warns(RuntimeWarning) as told:
            for _ in range(40):
                if how == "step":
                    envs.step([0] * 4)
                elif how == "step_wait":
                    envs.step_async([0] * 4)
                    envs.step_wait()
                else:
                    envs.send([0] * 4)
                    getattr(envs, how)()
        assert [one.filename for one in told] == [__file__]


@pytest.mark.parametrize(
    ("num_processes", "waited_s", "num_cpus", "is_told"),
    [
        (16, 0.75, 2, False),  # the library's own default for 64 environments that wait 75 %
        (16, 0.75, 4, False),  # just enough
        (16, 0.75, 5, True),
        (1, 0.75, 1, True),
        (16, 0.4, 16, False),  # mostly computing
        (16, 1.0, 1, True),
    ],
)
def test_waits_are_told_of_only_where_cpus_idle(
    num_processes: int, waited_s: float, num_cpus: int, is_told: bool
) -> None:
    arrays = {
        "stepped_s": np.full(num_processes, 1.0),
        "waited_s": np.full(num_processes, waited_s),
    }
    assert (timing.waiting_advice(arrays, 64, num_cpus) is not None) == is_told
