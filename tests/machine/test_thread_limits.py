# SPDX-License-Identifier: Apache-2.0
"""A system that starts no more threads, as under pids.max: an error, no abort."""

from __future__ import annotations

import os
import resource
from importlib.util import find_spec

import pytest
from processes import run_in_child

import rollouts
from rollouts.errors import SpecError

pytestmark = pytest.mark.system

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")


def limited() -> None:
    """Limits this process to three threads more than it has."""
    # a user of its own: the programs of others, whichever they are, and root's are not counted
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


def make_executors() -> None:
    import threading

    import torch
    from torch import nn

    from rollouts.support.no_room import started_executor

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.actor, self.critic = nn.Linear(4, 2), nn.Linear(4, 1)

        def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.actor(obs), self.critic(obs)[:, 0]

    with rollouts.make_vec("CartPole-v1", 2, num_threads=1, autoreset_mode="same_step") as env:
        policy = rollouts.NativePolicy.from_torch(Network(), env.single_action_space)
        late = rollouts.Collector(env, policy, 8)
        before = late.collect(timeout_s=60)  # imports what it needs
        late.close()
    limited()
    with pytest.raises(SpecError, match="could not start 8 threads 'some'"):
        started_executor(8, "some")
    # those that did start have ended, and what they were given with them
    assert threading.active_count() == 1
    resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
    with rollouts.make_vec("CartPole-v1", 2, num_threads=1, autoreset_mode="same_step") as env:
        policy = rollouts.NativePolicy.from_torch(Network(), env.single_action_space)
        with pytest.raises(SpecError, match="could not start the thread 'rollouts-prefetch'"):
            rollouts.Collector(env, policy, 8, prefetch=1)
        collector = rollouts.Collector(env, policy, 8)
        for _ in range(2):
            with pytest.raises(SpecError, match="could not start the thread 'rollouts-prefetch'"):
                collector.collect(timeout_s=60)
        # nothing that was refused is run later
        assert collector.collect().reward.shape == before.reward.shape


def make_inference_threads() -> None:
    import threading

    import torch
    from rollouts.integrations.rllib.inference_threads import InferenceThreads

    torch.set_num_threads(8)
    before = threading.active_count()
    limited()
    for _ in range(2):
        with pytest.raises(SpecError, match="could not start 8 threads 'inference'"):
            InferenceThreads()
    assert threading.active_count() == before


@pytest.mark.skipif(find_spec("ray") is None, reason="needs ray")
@needs_root
def test_threads_of_rllibs_inference_that_cannot_start_are_an_error() -> None:
    run_in_child(make_inference_threads)


@needs_root
@pytest.mark.parametrize(
    "body",
    [make_buffers, make_pools, make_python_threads, make_executors],
    ids=lambda body: body.__name__,
)
def test_threads_that_cannot_start_are_an_error(body) -> None:
    run_in_child(body)
