# SPDX-License-Identifier: Apache-2.0
"""No process, descriptor or memory outlives its host, however that ends."""

from __future__ import annotations

import functools
import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from host_envs import HANG, Counter, Moody
from processes import run_in_child

import rollouts

pytestmark = pytest.mark.system

HANG_S = 120.0
HERE = str(Path(__file__).parent)


def wait_until(is_true: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + HANG_S
    while not is_true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def exist(pids: Any) -> bool:
    """Tells whether any of the processes is there, be it as a zombie."""
    return any(psutil.pid_exists(pid) for pid in pids)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def run_python(code: str, stop: Callable[[subprocess.Popen[str]], None] | None = None) -> Any:
    """Runs a script that prints the ids of its processes; returns it when it has ended."""
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=HERE,
        start_new_session=True,
    )
    assert process.stdout is not None
    pids = [int(pid) for pid in process.stdout.readline().split()]
    if stop is not None:
        stop(process)
    stderr = process.communicate(timeout=HANG_S)[1]
    return pids, process.returncode, stderr


def are_gone(pids: list[int]) -> bool:
    def is_gone(pid: int) -> bool:
        try:
            return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True

    return bool(pids) and wait_until(lambda: all(map(is_gone, pids)))


SCRIPT = """
    import os, signal, sys, time, functools, multiprocessing
    from host_envs import Counter, Moody
    import rollouts
    if __name__ == "__main__":
        # a shell's background job inherits a SIGINT that is ignored
        signal.signal(signal.SIGINT, signal.default_int_handler)
        envs = rollouts.from_env_fns([Moody] * 4, num_processes=2, start_method={method!r})
        envs.reset()
        print(*envs.call("pid_of"), flush=True)
        {then}
"""


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_closing_ends_every_process_and_frees_every_descriptor(method: str) -> None:
    run_in_child(assert_closing_frees_all, method)


def assert_closing_frees_all(method: str) -> None:
    # what multiprocessing keeps for itself is there from the first time on
    rollouts.from_env_fns([Counter], start_method=method).close()
    gc.collect()
    before = descriptors()
    envs = rollouts.from_env_fns([Counter] * 4, num_processes=2, start_method=method)
    pids = set(envs.call("pid_of"))
    assert len(pids) == 2 and os.getpid() not in pids
    envs.reset()
    envs.step([1] * 4)
    envs.close()
    envs.close()
    # the fork server collects its children when it gets to it
    assert not exist(pids) or (method == "forkserver" and are_gone(list(pids)))
    del envs
    gc.collect()
    assert descriptors() == before


def test_environments_are_closed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with rollouts.from_env_fns([Counter] * 3, num_processes=2) as envs:
        envs.set_attr("closed_file", str(log))
    assert log.read_text() == "closed\n" * 3


def test_garbage_collection_closes() -> None:
    envs = rollouts.from_env_fns([Counter] * 4, num_processes=2)
    pids = envs.call("pid_of")
    assert exist(pids)
    del envs
    gc.collect()
    assert not exist(pids)


def test_failed_construction_leaves_nothing(tmp_path: Path) -> None:
    run_in_child(assert_failure_leaves_nothing, tmp_path)


def assert_failure_leaves_nothing(tmp_path: Path) -> None:
    def first() -> Counter:
        (tmp_path / "pid").write_text(str(os.getpid()))
        return Counter()

    def broken() -> Any:
        raise ValueError("no")

    # what multiprocessing keeps for itself is there from the first time on
    rollouts.from_env_fns([Counter], num_processes=1).close()
    gc.collect()
    before = descriptors()
    with pytest.raises(rollouts.EnvError):
        rollouts.from_env_fns([first, broken], num_processes=1)
    assert not exist([int((tmp_path / "pid").read_text())])
    gc.collect()
    assert descriptors() == before


@pytest.mark.parametrize(
    ("method", "then"),
    [
        ("fork", "pass"),
        ("fork", "sys.exit(0)"),
        ("fork", "os._exit(0)"),
        ("fork", "envs.send([1] * 4)"),
        ("forkserver", "pass"),
        ("spawn", "os._exit(0)"),
    ],
)
def test_script_that_ends_leaves_no_process_and_no_word(method: str, then: str) -> None:
    pids, code, stderr = run_python(SCRIPT.format(method=method, then=then))
    assert are_gone(pids)
    assert (code, stderr) == (0, "")


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_processes_of_a_killed_host_end_by_themselves(method: str) -> None:
    pids, code, _ = run_python(
        SCRIPT.format(method=method, then="time.sleep(600)"), lambda process: process.kill()
    )
    assert code == -signal.SIGKILL
    assert are_gone(pids)


def test_ctrl_c_interrupts_the_host_alone_and_leaves_nothing() -> None:
    def interrupt(process: subprocess.Popen[str]) -> None:
        os.killpg(process.pid, signal.SIGINT)

    pids, code, stderr = run_python(SCRIPT.format(method="fork", then="time.sleep(600)"), interrupt)
    assert are_gone(pids)
    assert code != 0 and stderr.count("KeyboardInterrupt") == 1
    assert stderr.count("Traceback") == 1


def test_two_hosts_of_a_killed_process_hold_each_other_up_no_more_than_one() -> None:
    then = """other = rollouts.from_env_fns([Moody] * 4, num_processes=2, start_method="fork")
        os.kill(envs.call("pid_of")[0], 9)
        time.sleep(600)"""
    pids, _, _ = run_python(SCRIPT.format(method="fork", then=then), lambda process: process.kill())
    assert are_gone(pids)


def test_fork_of_the_host_leaves_its_processes_alone() -> None:
    with rollouts.from_env_fns([Counter] * 2, num_processes=2) as envs:
        envs.reset()
        pid = os.fork()
        if pid == 0:
            envs.close()
            os._exit(0)
        os.waitpid(pid, 0)
        assert envs.step([1, 1])[1].tolist() == [1, 1]


def test_close_ends_a_hanging_environment(tmp_path: Path) -> None:
    envs = rollouts.from_env_fns([Moody] * 2, num_processes=2)
    pids = envs.call("pid_of")
    envs.reset()
    envs.send([1, HANG])
    with pytest.raises(TimeoutError):
        envs.recv(timeout_s=0)
    envs.close(timeout=0.1)
    assert not exist(pids)


def test_close_wakes_who_waits() -> None:
    envs = rollouts.from_env_fns([Moody] * 2, num_processes=2)
    envs.reset()
    envs.send([1, HANG])
    raised: list[BaseException] = []

    def wait() -> None:
        try:
            envs.recv()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    envs.close(terminate=True)
    thread.join(HANG_S)
    assert [type(error) for error in raised] == [rollouts.ClosedError]
    for use in (envs.recv, envs.reset, envs.async_reset, lambda: envs.step([1, 1])):
        with pytest.raises(rollouts.ClosedError):
            use()


def test_one_thread_sends_while_another_receives() -> None:
    functions = [functools.partial(Counter, length=5)] * 6
    with rollouts.from_env_fns(functions, num_processes=2, batch_size=2) as envs:
        envs.async_reset()
        counts = np.zeros(6, int)
        batches: list[Any] = []
        is_there, is_sent = threading.Semaphore(0), threading.Semaphore(1)

        def send() -> None:
            for _ in range(200):
                assert is_there.acquire(timeout=HANG_S)
                ids = batches.pop(0)
                envs.send(np.ones(len(ids), int), ids)
                is_sent.release()

        thread = threading.Thread(target=send)
        thread.start()
        for _ in range(200):
            # one batch may be on its way to be sent, so that two others are in flight
            ids = envs.recv(timeout_s=HANG_S)[4]["env_id"]
            counts[ids] += 1
            batches.append(ids)
            is_there.release()
            assert is_sent.acquire(timeout=HANG_S)
        thread.join(HANG_S)
        assert not thread.is_alive() and counts.sum() == 400
        envs.drain()


def test_large_infos_and_options_both_ways_do_not_block() -> None:
    class Large(Counter):
        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            obs, _ = super().reset(seed=seed)
            return obs, {"sum": float(options["x"].sum()), "big": np.ones(200_000)}

    with rollouts.from_env_fns([Large] * 4, num_processes=2) as envs:
        info = envs.reset(options={"x": np.ones(1_000_000)})[1]
        assert info["sum"].tolist() == [1e6] * 4
        assert info["big"].shape == (4, 200_000)


def test_environments_may_have_processes_of_their_own() -> None:
    class Parent(Counter):
        def act(self, action: int) -> None:
            subprocess.run([sys.executable, "-c", "pass"], check=True)
            import multiprocessing

            child = multiprocessing.get_context("fork").Process(target=int)
            child.start()
            child.join()

    with rollouts.from_env_fns([Parent]) as envs:
        envs.reset()
        assert envs.step([1])[1].tolist() == [1]


@pytest.mark.parametrize("how", ["time.sleep(600)", "while True: pass"])
def test_ctrl_c_twice_ends_a_host_whose_environments_do_not_end(how: str) -> None:
    code = f"""
        import atexit, signal, sys, time
        from host_envs import Counter
        import rollouts

        class Stuck(Counter):
            def act(self, action):
                {how}

        signal.signal(signal.SIGINT, signal.default_int_handler)
        envs = rollouts.from_env_fns([Stuck] * 2, num_processes=2, start_method="fork")
        envs.reset()
        pids = envs.call("pid_of")
        # before the host is closed, for which environments have 10 s
        atexit.register(lambda: print("closing", flush=True))
        print(*pids, flush=True)
        envs.step([1] * 2)
    """

    def interrupt_twice(process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        os.killpg(process.pid, signal.SIGINT)
        assert process.stdout.readline() == "closing\n"
        os.killpg(process.pid, signal.SIGINT)

    pids, code_of_end, _ = run_python(code, interrupt_twice)
    assert code_of_end != 0 and are_gone(pids)
