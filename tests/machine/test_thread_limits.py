# SPDX-License-Identifier: Apache-2.0
"""Where the system starts no more threads, as with a container's pids.max: an error, no abort."""

from __future__ import annotations

import os
import resource

import pytest
from processes import run_in_child

import rollouts
from rollouts.errors import SpecError

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")


def limited() -> None:
    """From here on, this process may have three threads more."""
    # of a user's programs, whichever they are, and root's are not counted: a user of its own
    nobody = 100_000 + os.getpid()
    os.setresuid(nobody, nobody, nobody)
    now = len(os.listdir("/proc/self/task"))
    resource.setrlimit(resource.RLIMIT_NPROC, (now + 3, now + 3))


def make_buffers() -> None:
    from gymnasium import spaces

    from rollouts.replay import ReplayBuffer

    arguments = (spaces.Box(-1, 1, (3,)), spaces.Discrete(2))
    limited()
    for _ in range(2):
        with pytest.raises(SpecError, match="could not start 7 threads, only 3"):
            ReplayBuffer(*arguments, num_threads=8)
    # threads of those that failed have ended
    ReplayBuffer(*arguments, num_threads=4).close()


def make_pools() -> None:
    # what an environment needs is loaded before the limit
    rollouts.make_vec("CartPole-v1", 2, num_threads=1).close()
    limited()
    for _ in range(2):
        with pytest.raises(SpecError, match="threads, only 3"):
            rollouts.make_vec("CartPole-v1", 64, num_threads=8)
    with rollouts.make_vec("CartPole-v1", 8, num_threads=3) as env:
        env.reset()


def make_python_threads() -> None:
    import threading

    from rollouts.metrics import MetricsReporter
    from rollouts.rendering.opengl import GlThread

    limited()
    resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
    with pytest.raises(SpecError, match="could not start the thread 'rollouts-metrics'"):
        MetricsReporter(dict, [], interval_s=1.0)
    drawing = GlThread()
    # nor does the second call wait for a thread that there is not
    for _ in range(2):
        with pytest.raises(SpecError, match="could not start the thread 'rollouts-opengl'"):
            drawing.run(dict)
    assert threading.active_count() == 1


@needs_root
@pytest.mark.parametrize(
    "body", [make_buffers, make_pools, make_python_threads], ids=lambda body: body.__name__
)
def test_threads_that_cannot_start_are_an_error(body) -> None:
    run_in_child(body)
