# SPDX-License-Identifier: Apache-2.0
"""`NativePPO` and `NativeA2C`: their updates beside those of Tianshou's algorithms."""

from __future__ import annotations

import copy
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from rollouts.integrations.tianshou import NativeA2C, NativePPO
from tianshou.algorithm.modelfree.a2c import A2C
from tianshou.algorithm.modelfree.ppo import PPO
from tianshou.algorithm.modelfree.reinforce import ProbabilisticActorPolicy
from tianshou.algorithm.optim import (
    AdamOptimizerFactory,
    LRSchedulerFactoryLinear,
    RMSpropOptimizerFactory,
)
from tianshou.data import Batch, VectorReplayBuffer
from tianshou.utils.net.common import Net
from tianshou.utils.net.continuous import ContinuousActorProbabilistic, ContinuousCritic
from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic
from tianshou.utils.torch_utils import policy_within_training_step
from torch import nn
from torch.distributions import Categorical, Independent, Normal

from rollouts.errors import SpecError

pytestmark = pytest.mark.usefixtures("one_torch_thread")

PAIRS = {"ppo": (PPO, NativePPO), "a2c": (A2C, NativeA2C)}


def net(**how: Any) -> Net:
    return Net(state_shape=5, hidden_sizes=[16, 8], activation=nn.Tanh, **how)


def normal(params: tuple[torch.Tensor, torch.Tensor]) -> Independent:
    return Independent(Normal(*params), 1)


def make(cls: Any, *, box: bool, **how: Any) -> Any:
    torch.manual_seed(1)
    actor: Any = DiscreteActor(preprocess_net=net(), action_shape=3, softmax_output=False)
    critic: Any = DiscreteCritic(preprocess_net=net())
    dist_fn: Any = lambda logits: Categorical(logits=logits)  # noqa: E731
    space: Any = spaces.Discrete(3)
    if box:
        actor = ContinuousActorProbabilistic(preprocess_net=net(), action_shape=2, unbounded=True)
        critic, dist_fn = ContinuousCritic(preprocess_net=net()), normal
        space = spaces.Box(-1, 1, (2,), np.float32)
    policy = how.pop("policy_cls", ProbabilisticActorPolicy)(
        actor=actor, dist_fn=how.pop("dist_fn", dist_fn), action_space=space, action_scaling=box
    )
    optim = how.pop("optim", AdamOptimizerFactory(lr=1e-2))
    return cls(policy=policy, critic=critic, optim=optim, gamma=0.95, **how)


def buffer_of(*, box: bool) -> VectorReplayBuffer:
    """Steps of two environments, some of which end episodes."""
    random = np.random.default_rng(3)
    buffer = VectorReplayBuffer(200, 2)
    for _ in range(55):
        action: Any = random.integers(3, size=2)
        if box:
            action = random.normal(size=(2, 2)).astype(np.float32)
        buffer.add(
            Batch(
                obs=random.normal(size=(2, 5)).astype(np.float32),
                obs_next=random.normal(size=(2, 5)).astype(np.float32),
                act=action,
                rew=3 * random.normal(size=2),
                terminated=random.random(2) < 0.1,
                truncated=np.zeros(2, bool),
                info={},
            )
        )
    return buffer


def updates(algorithm: Any, buffer: Any, batch_size: int | None) -> list[dict[str, Any]]:
    """The statistics of some updates, whose minibatches NumPy's global numbers draw."""
    np.random.seed(2)  # noqa: NPY002
    found = []
    with policy_within_training_step(algorithm.policy):
        for _ in range(2):
            stats = dict(vars(algorithm.update(buffer, batch_size, 3)))
            stats.pop("train_time")
            found.append(stats)
    return found


def assert_equal(ours: Any, theirs: Any) -> None:
    """Compares weights and the optimiser's state."""
    mine, its = ours.state_dict(), theirs.state_dict()
    (one,), (other,) = mine.pop("_optimizers"), its.pop("_optimizers")
    assert one["param_groups"] == other["param_groups"]
    for place, state in other["state"].items():
        for name, number in state.items():
            mine_now = torch.as_tensor(one["state"][place][name])
            torch.testing.assert_close(mine_now, torch.as_tensor(number), rtol=1e-3, atol=1e-5)
    for name, each in mine.items():
        # a few dozen steps of 1e-2
        torch.testing.assert_close(each, its[name], rtol=0, atol=1e-5, msg=name)


def assert_same_updates(kind: str, *, box: bool, batch_size: int | None = 32, **how: Any) -> None:
    theirs, ours = (make(each, box=box, **copy.deepcopy(how)) for each in PAIRS[kind])
    ours.train_engine = "native"
    buffer = buffer_of(box=box)
    its, mine = (updates(each, buffer, batch_size) for each in (theirs, ours))
    assert ours.learner_engine == "native"
    assert_equal(ours, theirs)
    for one, other in zip(mine, its, strict=True):
        assert_same_numbers(one, other)


def assert_same_numbers(one: Any, other: Any) -> None:
    """Compares statistics, and those that they hold."""
    if is_dataclass(other):
        assert type(one) is type(other)
        one, other = vars_of(one), vars_of(other)
    if not isinstance(other, dict):
        assert one == pytest.approx(other, rel=1e-3, abs=1e-5)
        return
    assert one.keys() == other.keys()
    for name, each in other.items():
        assert_same_numbers(one[name], each)


def vars_of(stats: Any) -> dict[str, Any]:
    return {each.name: getattr(stats, each.name) for each in fields(stats)}


@pytest.mark.parametrize("box", [False, True])
@pytest.mark.parametrize(
    "how",
    [
        {},
        {"value_clip": True, "max_grad_norm": 0.5, "recompute_advantage": True},
        {"advantage_normalization": False, "return_scaling": True, "vf_coef": 0.3},
        {"optim": RMSpropOptimizerFactory(lr=1e-3)},
    ],
)
def test_ppo_makes_the_steps_of_tianshou(how: dict[str, Any], box: bool) -> None:
    assert_same_updates("ppo", box=box, **how)


@pytest.mark.parametrize("box", [False, True])
@pytest.mark.parametrize("batch_size", [None, 32, 50])
def test_a2c_makes_the_steps_of_tianshou(batch_size: int | None, box: bool) -> None:
    assert_same_updates("a2c", box=box, batch_size=batch_size, max_grad_norm=0.5)


def test_a_schedule_of_learning_rates_holds() -> None:
    schedule = LRSchedulerFactoryLinear(
        max_epochs=2, epoch_num_steps=4, collection_step_num_env_steps=1
    )
    optim = AdamOptimizerFactory(lr=1e-2).with_lr_scheduler_factory(schedule)
    assert_same_updates("ppo", box=False, optim=optim)


class OwnForward(ProbabilisticActorPolicy):
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return super().forward(*args, **kwargs)


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"dual_clip": 3.0}, "dual_clip=3.0 is not native"),
        ({"policy_cls": OwnForward}, "OwnForward has its own forward"),
        ({"dist_fn": lambda params: Independent(Normal(params[0], 2 * params[1]), 1)}, "else than"),
    ],
)
def test_what_is_not_native_is_tianshous(how: dict[str, Any], why: str) -> None:
    theirs, ours = (make(each, box=True, **how) for each in PAIRS["ppo"])
    buffer = buffer_of(box=True)
    for each in (theirs, ours):
        updates(each, buffer, 32)
    assert ours.learner_engine == "torch"
    assert why in ours.why_not_native_learner
    assert_equal(ours, theirs)
    ours.train_engine = "native"
    with pytest.raises(SpecError, match="train_engine='native' is not possible"):
        updates(ours, buffer, 32)
