# SPDX-License-Identifier: Apache-2.0
"""Updates that Ctrl-C or `timeout_s` ends: what they leave is whole."""

from __future__ import annotations

import copy
import os
import signal
import threading
from typing import Any

import numpy as np
import pytest
import torch
from forked import run_forked
from gymnasium import spaces
from torch import Tensor, nn

from rollouts.errors import SpecError
from rollouts.learner.loss_learner import LossLearner
from rollouts.learner.native_learner import NativeLearner, PpoLoss
from rollouts.learner.row_losses import DqnLoss
from rollouts.policies.native import NativePolicy

# steps for minutes
MANY = 3_000_000


class Agent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.layers = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
        self.heads = nn.Linear(64, 3)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        found = self.heads(self.layers(obs))
        return found[:, :2], found[:, 2]


def make() -> tuple[Agent, Any, NativeLearner]:
    agent = Agent()
    optimizer = torch.optim.Adam(agent.parameters(), lr=1e-3)
    policy = NativePolicy.from_torch(agent, spaces.Discrete(2))
    return agent, optimizer, NativeLearner(policy, optimizer, 2)


def rows(count: int = 256) -> dict[str, Any]:
    random = np.random.default_rng(1)
    names = ("log_prob", "advantage", "target")
    found: dict[str, Any] = {name: random.normal(size=count).astype(np.float32) for name in names}
    found["obs"] = random.normal(size=(count, 4)).astype(np.float32)
    found["action"] = random.integers(2, size=count)
    return found


def many_steps() -> Any:
    return np.arange(MANY) % 256


def update(learner: NativeLearner, order: Any, **options: Any) -> Any:
    return learner.update(rows(), order, minibatch=1, loss=PpoLoss(), **options)


def assert_whole(agent: Agent, optimizer: Any, learner: NativeLearner, order: Any) -> None:
    """Weights and state are those of a learner that makes as many steps by itself."""
    made = learner.num_steps
    assert made < len(order)
    other, other_optimizer, other_learner = make()
    update(other_learner, order[:made])
    assert all(map(torch.equal, agent.parameters(), other.parameters()))
    pairs = zip(optimizer.state.values(), other_optimizer.state.values(), strict=True)
    for one, its in pairs:
        assert one["step"] == its["step"] == made
        assert torch.equal(one["exp_avg"], its["exp_avg"])
        assert torch.equal(one["exp_avg_sq"], its["exp_avg_sq"])


def interrupted() -> None:
    # a shell's background job inherits a SIGINT that is ignored
    signal.signal(signal.SIGINT, signal.default_int_handler)
    agent, optimizer, learner = make()
    order = many_steps()

    def interrupt() -> None:
        while learner._native.num_steps == 0:
            pass
        os.kill(os.getpid(), signal.SIGINT)

    sender = threading.Thread(target=interrupt)
    sender.start()
    with pytest.raises(KeyboardInterrupt):
        update(learner, order)
    sender.join()
    assert_whole(agent, optimizer, learner, order)
    # and it goes on
    update(learner, order[:10])


def test_ctrl_c_ends_an_update_between_two_steps() -> None:
    ended = run_forked(interrupted)
    assert ended.exitcode == 0, ended.stderr


def test_a_time_limit_ends_an_update_between_two_steps() -> None:
    agent, optimizer, learner = make()
    order = many_steps()
    with pytest.raises(TimeoutError, match=r"longer than 0\.5.* s: weights and optimiser"):
        update(learner, order, timeout_s=0.5)
    assert_whole(agent, optimizer, learner, order)


def test_a_step_that_has_no_time_is_left_out() -> None:
    agent, optimizer, learner = make()
    before = [each.detach().clone() for each in agent.parameters()]
    with pytest.raises(TimeoutError):
        learner.update(rows(), np.arange(256), minibatch=256, loss=PpoLoss(), timeout_s=0)
    assert all(map(torch.equal, before, agent.parameters()))
    assert learner.num_steps == 0
    assert all(each["step"] == 0 for each in optimizer.state.values())


def test_enough_time_changes_nothing() -> None:
    ends = []
    for timeout_s in (None, 1e6):
        agent, _, learner = make()
        learner.update(rows(), np.arange(256), minibatch=64, loss=PpoLoss(), timeout_s=timeout_s)
        ends.append([*agent.parameters()])
    assert all(map(torch.equal, *ends))


@pytest.mark.parametrize("timeout_s", [-1.0, np.nan])
def test_times_below_zero_are_refused(timeout_s: float) -> None:
    _, _, learner = make()
    with pytest.raises(SpecError, match=r"timeout_s is .*, expected 0 or more seconds"):
        update(learner, np.arange(4), timeout_s=timeout_s)


def test_a_loss_learner_has_the_same_limit() -> None:
    network = nn.Linear(4, 2)
    loss = DqnLoss(network, copy.deepcopy(network), (4,), 2)
    learner = LossLearner(loss, torch.optim.Adam(network.parameters()))
    parts = {name: np.ones((8, *shape), np.float32) for name, shape in loss.shapes.items()}
    before = network.weight.detach().clone()
    with pytest.raises(TimeoutError):
        learner.update(parts, timeout_s=0)
    assert torch.equal(before, network.weight) and learner.num_steps == 0
    learner.update(parts, timeout_s=1e6)
    assert learner.num_steps == 1


def waits_for_another() -> None:
    _, _, learner = make()
    other = threading.Thread(target=update, args=(learner, many_steps()), daemon=True)
    other.start()
    while learner._native.num_steps == 0:
        pass
    with pytest.raises(TimeoutError):
        update(learner, np.arange(4), timeout_s=0.1)
    assert other.is_alive()
    # the other one would go on for minutes
    os._exit(0)


def test_a_time_limit_counts_while_another_thread_trains() -> None:
    ended = run_forked(waits_for_another)
    assert ended.exitcode == 0, ended.stderr


def test_updates_of_two_threads_are_made_one_after_the_other() -> None:
    """Each counts its own steps, and goes on from the state that the one before left."""
    agent, optimizer, learner = make()
    first, second = many_steps()[:5_000], np.arange(4)
    other = threading.Thread(target=update, args=(learner, first))
    other.start()
    while learner._native.num_steps == 0:
        pass
    update(learner, second)
    other.join()
    assert learner.num_steps == len(first) + len(second)
    assert_whole(agent, optimizer, learner, np.concatenate([first, second, second]))
