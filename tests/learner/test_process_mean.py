# SPDX-License-Identifier: Apache-2.0
"""Native learners of several processes: each step is by the mean of all their gradients."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from forked import run_forked
from gymnasium import spaces
from ppo_reference import ActorCritic, acted_rows
from torch import nn

from rollouts.errors import SpecError
from rollouts.learner.loss_learner import LossLearner
from rollouts.learner.module_steps import Average
from rollouts.learner.native_learner import CloningLoss, Losses, NativeLearner, PpoLoss
from rollouts.learner.process_mean import mean_over_processes, share_weights
from rollouts.learner.row_losses import DqnLoss
from rollouts.policies.native import NativePolicy

pytestmark = pytest.mark.usefixtures("one_torch_thread")

SPACE: Any = spaces.Discrete(4)
ROWS = 96
PLAIN = PpoLoss(normalize_advantage=False, entropy_weight=0.01)


class Together:
    """Threads that stand for processes: each gets the mean of what all of them give."""

    def __init__(self, count: int) -> None:
        self.given: list[Any] = [None] * count
        self.barrier = threading.Barrier(count)

    def average(self, rank: int) -> Average:
        def average(numbers: Any) -> None:
            self.given[rank] = numbers.copy()
            self.barrier.wait(60)
            numbers[:] = np.mean(self.given, axis=0)
            self.barrier.wait(60)

        return average


def agent() -> ActorCritic:
    torch.manual_seed(3)
    return ActorCritic(SPACE, 16)


def learner_of(module: nn.Module, average: Average | None = None) -> NativeLearner:
    optimizer = torch.optim.SGD(module.parameters(), lr=0.05)
    return NativeLearner(NativePolicy.from_torch(module, SPACE), optimizer, average=average)


def train(learner: NativeLearner, rows: dict[str, Any], loss: Any = PLAIN, **how: Any) -> Losses:
    count = len(rows["obs"])
    order = np.tile(np.arange(count), 3)
    return learner.update(rows, order, minibatch=count, loss=loss, **{"max_grad_norm": 0.5, **how})


def in_threads(work: Callable[[int, Average], Any]) -> list[Any]:
    """Runs `work` as two ranks; returns the result or the error of each."""
    together = Together(2)
    with ThreadPoolExecutor(2) as threads:
        futures = [threads.submit(work, rank, together.average(rank)) for rank in range(2)]
        return [future.exception() or future.result() for future in futures]


def half(rows: dict[str, Any], rank: int) -> dict[str, Any]:
    return {name: each[rank::2] for name, each in rows.items()}


def assert_close(module: nn.Module, other: nn.Module, atol: float = 1e-6) -> None:
    for found, expected in zip(module.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=atol)


@pytest.mark.parametrize(
    ("loss", "clip_by"),
    [(PLAIN, "all"), (PLAIN, "each"), (PLAIN, "element"), (CloningLoss(), "all")],
    ids=lambda each: each if isinstance(each, str) else type(each).__name__,
)
def test_halves_of_a_minibatch_make_the_step_of_the_whole(loss: Any, clip_by: str) -> None:
    start = agent()
    rows = acted_rows(start, ROWS, 1)
    if loss is not PLAIN:
        rows = {name: rows[name] for name in ("obs", "action")}
    whole, modules = copy.deepcopy(start), [copy.deepcopy(start) for _ in range(2)]
    expected = train(learner_of(whole), rows, loss, clip_by=clip_by)
    found = in_threads(
        lambda rank, average: train(
            learner_of(modules[rank], average), half(rows, rank), loss, clip_by=clip_by
        )
    )
    assert_close(modules[0], modules[1], 0)
    assert_close(modules[0], whole)
    for losses in found:
        np.testing.assert_allclose(losses.policy_loss, expected.policy_loss, atol=1e-5)
        np.testing.assert_allclose(losses.grad_norm, expected.grad_norm, rtol=1e-4)


def test_all_end_at_the_same_minibatch() -> None:
    start = agent()
    rows = acted_rows(start, ROWS, 1)
    # one of them alone has gone far from what it was
    rows["log_prob"][::2] -= 3.0
    loss = PpoLoss(normalize_advantage=False, target_kl=0.05)
    modules = [copy.deepcopy(start) for _ in range(2)]
    alone = train(learner_of(copy.deepcopy(start)), half(rows, 1), loss)
    assert alone.num_steps > 0
    found = in_threads(
        lambda rank, average: train(learner_of(modules[rank], average), half(rows, rank), loss)
    )
    assert [losses.num_steps for losses in found] == [0, 0]
    assert found[0].approx_kl == found[1].approx_kl
    assert_close(modules[0], start, 0)


def test_what_is_not_finite_in_one_is_refused_in_all() -> None:
    start = agent()
    rows = acted_rows(start, ROWS, 1)
    rows["advantage"][0] = np.nan
    modules = [copy.deepcopy(start) for _ in range(2)]
    found = in_threads(
        lambda rank, average: train(learner_of(modules[rank], average), half(rows, rank))
    )
    for error in found:
        assert isinstance(error, SpecError)
        assert "minibatch 0 gives a policy loss that is nan or infinite" in str(error)
    assert_close(modules[0], start, 0)
    assert_close(modules[1], start, 0)


def test_losses_of_rows_are_averaged_too() -> None:
    torch.manual_seed(5)
    start, target = nn.Linear(6, 4), nn.Linear(6, 4)
    random = np.random.default_rng(1)
    parts = {
        "obs": random.normal(size=(ROWS, 6)).astype(np.float32),
        "action": np.eye(4, dtype=np.float32)[random.integers(0, 4, ROWS)],
        "next_obs": random.normal(size=(ROWS, 6)).astype(np.float32),
        "reward": random.normal(size=ROWS).astype(np.float32),
        "discount": np.full(ROWS, 0.9, np.float32),
    }

    def learn(module: nn.Module, parts: dict[str, Any], average: Average | None) -> float:
        loss = DqnLoss(module, target, (6,), 4)
        optimizer = torch.optim.Adam(module.parameters(), lr=0.01)
        learner = LossLearner(loss, optimizer, average=average)
        learner.update(parts)
        # the same in two calls
        found = learner.compute(parts)
        learner.apply()
        return found.loss

    whole, modules = copy.deepcopy(start), [copy.deepcopy(start) for _ in range(2)]
    expected = learn(whole, parts, None)
    found = in_threads(lambda rank, average: learn(modules[rank], half(parts, rank), average))
    np.testing.assert_allclose(found, [expected] * 2, rtol=1e-5)
    assert_close(modules[0], modules[1], 0)
    assert_close(modules[0], whole, 1e-5)


def test_what_average_raises_comes_out_and_leaves_the_weights() -> None:
    start = agent()
    module, rows = copy.deepcopy(start), acted_rows(start, ROWS, 1)

    def average(numbers: Any) -> None:
        raise OSError("the other process has died")

    with pytest.raises(OSError, match="the other process has died"):
        train(learner_of(module, average), rows)
    assert_close(module, start, 0)


def test_an_average_that_cannot_be_called_is_refused() -> None:
    with pytest.raises(SpecError, match="average is 'gloo', expected a function of an array"):
        learner_of(agent(), "gloo")  # type: ignore[arg-type]


def test_without_a_group_it_is_said_how_to_make_one() -> None:
    with pytest.raises(SpecError, match="there is no group of processes: call torch"):
        mean_over_processes()


def train_in_group(rank: int, folder: Path, rows: Any) -> tuple[Any, Any]:
    """Trains as one of two processes; what its weights and losses are after it."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    module = agent()
    if rank:
        torch.nn.init.zeros_(module.actor.weight)
    share_weights(module)
    found = train(learner_of(module, mean_over_processes()), half(rows, rank))
    dist.destroy_process_group()
    weights = {name: each.detach().numpy() for name, each in module.state_dict().items()}
    return weights, found.policy_loss


def test_processes_of_torch_distributed_train_together(tmp_path: Path) -> None:
    whole = agent()
    rows = acted_rows(whole, ROWS, 1)
    expected = train(learner_of(whole), rows)
    with ThreadPoolExecutor(2) as threads:
        running = [threads.submit(run_forked, train_in_group, i, tmp_path, rows) for i in range(2)]
        ends = [each.result() for each in running]
    for ended in ends:
        assert ended.exitcode == 0, ended.stderr[-3000:]
        state, policy_loss = ended.returned
        np.testing.assert_allclose(policy_loss, expected.policy_loss, atol=1e-5)
        for name, weights in whole.state_dict().items():
            found = torch.from_numpy(state[name])
            torch.testing.assert_close(found, weights, rtol=0, atol=1e-6)
