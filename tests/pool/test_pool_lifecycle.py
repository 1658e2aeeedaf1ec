# SPDX-License-Identifier: Apache-2.0
"""Pools and the threads, signals and processes around them."""

from __future__ import annotations

import gc
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import numpy as np
import psutil
from processes import run_in_child, wait_until

import rollouts


def zeros(rows: int) -> np.ndarray:
    return np.zeros(rows, dtype=np.int64)


PACKAGE_PARENT = Path(rollouts.__file__).parents[1]


def run_python(program: str, timeout_s: float = 300) -> subprocess.CompletedProcess[str]:
    """Runs a program in a process of its own that imports the same `rollouts`."""
    head = f"import sys\nsys.path.insert(0, {str(PACKAGE_PARENT)!r})\n"
    return subprocess.run(
        [sys.executable, "-c", head + textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )


def close_and_drop_pools() -> None:
    process = psutil.Process()
    before = process.num_threads()
    for i in range(60):
        env = rollouts.make_vec("CartPole-v1", 8, batch_size=8 - i % 2, num_threads=3, seed=1)
        env.async_reset()
        if i % 3:
            env.close()
    del env
    gc.collect()
    assert wait_until(lambda: process.num_threads() <= before)


def test_pools_leave_no_threads_behind() -> None:
    run_in_child(close_and_drop_pools)


def drop_pools_at_work() -> None:
    process = psutil.Process()
    before = process.num_threads()
    for _ in range(20):
        env = rollouts.make_vec("Pendulum-v1", 500, batch_size=100, num_threads=2, seed=1)
        env.async_reset()
        view = env.recv()[0]
        env.send(np.zeros((100, 1), np.float32))
        del env
        gc.collect()
        assert np.isfinite(view).all()
    assert wait_until(lambda: process.num_threads() <= before)


def test_async_pool_may_be_dropped_with_work_in_flight() -> None:
    run_in_child(drop_pools_at_work)


def test_close_ends_calls_of_other_threads() -> None:
    for batch_size in (50, 64):
        env = rollouts.make_vec("CartPole-v1", 64, batch_size=batch_size, num_threads=2, seed=1)
        env.reset()
        stepping = threading.Barrier(3)
        outcomes: list[type[BaseException]] = []

        def step_until_closed(
            env: rollouts.VectorEnv = env,
            stepping: threading.Barrier = stepping,
            outcomes: list[type[BaseException]] = outcomes,
        ) -> None:
            stepping.wait()
            while True:
                try:
                    env.recv(timeout_s=0.001)
                except rollouts.ClosedError as error:
                    outcomes.append(type(error))
                    return
                except (rollouts.ProtocolError, TimeoutError):
                    continue

        threads = [threading.Thread(target=step_until_closed) for _ in range(2)]
        for thread in threads:
            thread.start()
        stepping.wait()
        env.close()
        for thread in threads:
            thread.join(300)
        assert outcomes == [rollouts.ClosedError] * 2


def test_ctrl_c_interrupts_stepping_and_the_pool_goes_on() -> None:
    program = f"""
        import signal, sys
        sys.path.insert(0, {str(PACKAGE_PARENT)!r})
        import numpy as np, rollouts
        # a shell's background job inherits a SIGINT that is ignored
        signal.signal(signal.SIGINT, signal.default_int_handler)
        env = rollouts.make_vec("CartPole-v1", 20_000, batch_size=19_000, num_threads=1, seed=1)
        env.reset()
        actions = np.zeros(19_000, np.int64)
        try:
            print("stepping", flush=True)
            while True:
                env.step(actions)
        except KeyboardInterrupt:
            env.reset()
            env.step(actions)
            env.close()
            print("interrupted", flush=True)
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "stepping\n"
            process.send_signal(signal.SIGINT)
            assert process.communicate(timeout=300)[0] == "interrupted\n"
            assert process.returncode == 0
        finally:
            process.kill()


def test_forked_child_is_told_and_exits_cleanly() -> None:
    result = run_python("""
        import gc, os, warnings
        import numpy as np, rollouts
        warnings.simplefilter("ignore")
        waiting = rollouts.make_vec("CartPole-v1", 8, batch_size=4, num_threads=2, seed=1)
        obs, _ = waiting.reset()
        closed = rollouts.make_vec("CartPole-v1", 8, num_threads=3, seed=1)
        child = os.fork()
        if child == 0:
            for call in (waiting.recv, waiting.reset, lambda: waiting.send(np.zeros(4, int))):
                try:
                    call()
                except rollouts.ProtocolError as error:
                    assert "spawn" in str(error)
                else:
                    raise AssertionError("the child could use its parent's pool")
            closed.close()
            del waiting, closed
            gc.collect()
            # a pool of its own works
            with rollouts.make_vec("CartPole-v1", 8, batch_size=4, num_threads=2) as own:
                own.reset()
            sys.exit(7)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 7, status
        # the parent's goes on
        waiting.recv()
        waiting.close()
        print("fine")
    """)
    assert (result.returncode, result.stdout) == (0, "fine\n"), result.stderr


def test_threads_that_cannot_be_started_are_an_error_and_leave_none_behind() -> None:
    result = run_python("""
        import resource, time
        import psutil, rollouts
        # stacks of 8 MiB each do not all fit
        room = psutil.Process().memory_info().vms + 2**30
        resource.setrlimit(resource.RLIMIT_AS, (room, room))
        resource.setrlimit(resource.RLIMIT_STACK, (2**23, 2**23))
        before = psutil.Process().num_threads()
        try:
            rollouts.make_vec("CartPole-v1", 4096, num_threads=4096, seed=1)
        except rollouts.SpecError as error:
            assert "num_threads" in str(error)
            # a joined thread is in the kernel's list for a moment longer
            deadline = time.monotonic() + 240
            while psutil.Process().num_threads() != before:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            print("fine")
    """)
    assert (result.returncode, result.stdout) == (0, "fine\n"), result.stderr


def test_program_may_end_with_pools_open_and_work_in_flight() -> None:
    result = run_python("""
        import rollouts
        pools = [rollouts.make_vec("CartPole-v1", 64, batch_size=32, num_threads=2)
                 for _ in range(3)]
        for pool in pools:
            pool.async_reset()
        views = [pool.recv() for pool in pools[:2]]
        print("end")
    """)
    assert (result.returncode, result.stdout, result.stderr) == (0, "end\n", "")
