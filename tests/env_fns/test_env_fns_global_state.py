# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: NPY002 (generators of a process are what this is about)
"""State that environments' processes have of their host: generators, torch's threads, its end."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import psutil
import pytest
import torch
from gymnasium import spaces

import rollouts

pytestmark = pytest.mark.system

HANG_S = 300.0
HERE = str(Path(__file__).parent)


class Drawer(gymnasium.Env[Any, Any]):
    """Observes draws of the global generators of NumPy, `random` and torch."""

    observation_space = spaces.Box(0, 1, (3,), np.float64)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return self._draw(), {}

    def step(self, action: Any) -> Any:
        return self._draw(), 0.0, False, False, {}

    def die(self) -> None:
        os._exit(1)

    def _draw(self) -> Any:
        return np.array([np.random.random(), random.random(), float(torch.rand(()))])


def draws(method: str, seed: int | None, num_processes: int = 3) -> Any:
    with rollouts.from_env_fns(
        [Drawer] * 3, num_processes=num_processes, seed=seed, start_method=method
    ) as envs:
        return np.array([envs.reset()[0], envs.step([0] * 3)[0]])


@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_processes_draw_apart_and_again_the_same_by_their_seed(method: str) -> None:
    one = draws(method, 5)
    for column in range(3):
        assert np.unique(one[:, :, column]).size == 6
    np.testing.assert_array_equal(one, draws(method, 5))
    assert not np.isin(one, draws(method, 6)).any()


def test_without_a_seed_forks_draw_apart_by_what_their_host_has_seeded() -> None:
    def seeded() -> Any:
        np.random.seed(1)
        return draws("fork", None)

    one, other = seeded(), seeded()
    np.testing.assert_array_equal(one, other)
    for column in range(3):
        assert np.unique(one[:, :, column]).size == 6


def test_a_process_that_replaces_another_does_not_draw_its_numbers_again() -> None:
    with rollouts.from_env_fns([Drawer], seed=1, start_method="fork") as envs:
        first = envs.reset()[0]
        with pytest.raises(rollouts.EnvError):
            envs.call("die")
        assert not np.isin(envs.reset()[0], first).any()


def test_environments_in_this_process_leave_its_generators_alone() -> None:
    np.random.seed(1)
    expected = np.random.random()
    np.random.seed(1)
    with rollouts.from_env_fns([Drawer], num_processes=0, seed=5) as envs:
        assert envs.reset()[0][0, 0] == expected


@pytest.mark.parametrize("num_processes", [1, None])
def test_forks_compute_with_torch_after_their_host_has(num_processes: int | None) -> None:
    script = f"""
        import gymnasium, numpy as np, torch
        import rollouts

        def compute():
            net = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.Linear(512, 1))
            net(torch.relu(torch.randn(4096, 512))).mean().backward()

        class Env(gymnasium.Env):
            observation_space = gymnasium.spaces.Box(0, 1, (1,))
            action_space = gymnasium.spaces.Discrete(2)
            def reset(self, *, seed=None, options=None):
                return np.zeros(1, np.float32), {{}}
            def step(self, action):
                compute()
                return np.zeros(1, np.float32), 1.0, False, False, {{}}

        torch.set_num_threads(2)
        compute()
        # one more than CPUs are tried first, in a process of its own
        count = 1 if {num_processes} else len(__import__("os").sched_getaffinity(0)) + 1
        with rollouts.from_env_fns(
            [Env] * count, num_processes={num_processes}, start_method="fork"
        ) as envs:
            envs.reset()
            envs.send([0] * count)
            print(envs.recv(timeout_s={HANG_S / 2})[1].sum() == count, torch.get_num_threads())
    """
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(script)],
        capture_output=True, text=True, timeout=HANG_S,
    )  # fmt: skip
    assert (done.stdout, done.stderr[-2000:]) == ("True 2\n", "")


STUCK = """
    import re, sys, threading, time
    from host_envs import Counter
    import rollouts
    from rollouts.envs.hosted.processes import begin

    begin.LAST_RESORT_S = 1

    class Stuck(Counter):
        def act(self, action):
            print(self.pid_of(), flush=True)
            # without an end, in C, with the lock that Python code needs
            re.match(r"(a+)+$", "a" * 64 + "b")

    def run():
        global envs
        envs = rollouts.from_env_fns([Stuck], start_method="{method}")

    if __name__ == "__main__":
        thread = threading.Thread(target=run)
        {start}
        envs.reset()
        envs.send([1])
        time.sleep(600)
"""


# a process computes for a second in each: each way to start one, and each thread that does, once
@pytest.mark.parametrize(
    ("method", "start"),
    [
        pytest.param("fork", "run()", marks=pytest.mark.slow),
        ("spawn", "run()"),
        ("fork", "thread.start(); thread.join()"),
        pytest.param("spawn", "thread.start(); thread.join()", marks=pytest.mark.slow),
    ],
)
def test_a_stuck_environment_ends_after_its_host_was_killed(
    method: str, start: str, tmp_path: Path
) -> None:
    script = tmp_path / "stuck.py"
    script.write_text(textwrap.dedent(STUCK).format(method=method, start=start))
    host = subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": HERE},
        start_new_session=True,
    )
    assert host.stdout is not None
    # the thread that started the process has ended, and the process is there all the same
    stuck = psutil.Process(int(host.stdout.readline()))
    host.send_signal(signal.SIGKILL)
    host.wait()
    gone, alive = psutil.wait_procs([stuck], timeout=HANG_S)
    for process in alive:
        process.kill()
    assert gone and not alive
