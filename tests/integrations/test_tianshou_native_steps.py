# SPDX-License-Identifier: Apache-2.0
"""`NativeDQN`, `NativeSAC`, `NativeDiscreteSAC`: their updates beside Tianshou's."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from rollouts.integrations.tianshou import NativeDiscreteSAC, NativeDQN, NativeSAC
from tianshou.algorithm.modelfree.discrete_sac import DiscreteSAC, DiscreteSACPolicy
from tianshou.algorithm.modelfree.dqn import DQN, DiscreteQLearningPolicy
from tianshou.algorithm.modelfree.sac import SAC, AutoAlpha, SACPolicy
from tianshou.algorithm.optim import (
    AdamOptimizerFactory,
    LRSchedulerFactoryLinear,
    RMSpropOptimizerFactory,
    TorchOptimizerFactory,
)
from tianshou.data import Batch, PrioritizedVectorReplayBuffer, VectorReplayBuffer
from tianshou.utils.net.common import Net
from tianshou.utils.net.continuous import ContinuousActorProbabilistic, ContinuousCritic
from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic
from tianshou.utils.torch_utils import policy_within_training_step

from rollouts.errors import SpecError

pytestmark = [pytest.mark.system, pytest.mark.usefixtures("one_torch_thread")]

DISCRETE, BOX = spaces.Discrete(3), spaces.Box(-1, 1, (2,), np.float32)


def make_dqn(cls: Any, **how: Any) -> Any:
    torch.manual_seed(1)
    net = how.pop("net", None) or Net(state_shape=5, action_shape=3, hidden_sizes=[16, 8])
    policy = how.pop("policy_cls", DiscreteQLearningPolicy)(model=net, action_space=DISCRETE)
    optim = how.pop("optim", AdamOptimizerFactory(lr=1e-2))
    return cls(policy=policy, optim=optim, gamma=0.95, **how)


def make_sac(cls: Any, **how: Any) -> Any:
    torch.manual_seed(1)
    actor = ContinuousActorProbabilistic(
        preprocess_net=Net(state_shape=5, hidden_sizes=[16, 8]),
        action_shape=2,
        unbounded=True,
        conditioned_sigma=how.pop("conditioned", True),
    )
    net = Net(state_shape=5, action_shape=2, hidden_sizes=[16, 8], concat=True)
    alpha = how.pop("alpha", 0.2)
    return cls(
        policy=how.pop("policy_cls", SACPolicy)(actor=actor, action_space=BOX),
        policy_optim=how.pop("optim", AdamOptimizerFactory(lr=1e-2)),
        critic=ContinuousCritic(preprocess_net=net),
        critic_optim=AdamOptimizerFactory(lr=1e-2),
        alpha=alpha() if callable(alpha) else alpha,
        **how,
    )


def make_discrete_sac(cls: Any, **how: Any) -> Any:
    torch.manual_seed(1)
    actor = DiscreteActor(
        preprocess_net=Net(state_shape=5, hidden_sizes=[16, 8]),
        action_shape=3,
        softmax_output=how.pop("softmax", False),
    )
    net = Net(state_shape=5, hidden_sizes=[16, 8])
    alpha = how.pop("alpha", 0.2)
    return cls(
        policy=how.pop("policy_cls", DiscreteSACPolicy)(actor=actor, action_space=DISCRETE),
        policy_optim=how.pop("optim", AdamOptimizerFactory(lr=1e-2)),
        critic=DiscreteCritic(preprocess_net=net, last_size=3),
        critic_optim=AdamOptimizerFactory(lr=1e-2),
        alpha=alpha() if callable(alpha) else alpha,
        **how,
    )


def auto_alpha() -> AutoAlpha:
    return AutoAlpha(-2.0, 0.3, AdamOptimizerFactory(lr=1e-2))


MAKE = {"dqn": make_dqn, "sac": make_sac, "discrete sac": make_discrete_sac}
STOCK = {"dqn": DQN, "sac": SAC, "discrete sac": DiscreteSAC}
OURS = {"dqn": NativeDQN, "sac": NativeSAC, "discrete sac": NativeDiscreteSAC}
KINDS = [*MAKE]


class Nothing:
    """Adds no method."""


def pair(kind: str, added: type = Nothing, **how: Any) -> tuple[Any, Any]:
    """Tianshou's algorithm and ours, both with the methods of `added`, of one state."""
    classes = [type("Changed", (added, each), {}) for each in (STOCK[kind], OURS[kind])]
    theirs, ours = (MAKE[kind](each, **copy.deepcopy(how)) for each in classes)
    return theirs, ours


def buffer_of(kind: str, *, prioritized: bool = False) -> Any:
    """Steps of two environments, some of which end episodes."""
    random = np.random.default_rng(3)
    how: dict[str, Any] = {"alpha": 0.6, "beta": 0.4} if prioritized else {}
    buffer = (PrioritizedVectorReplayBuffer if prioritized else VectorReplayBuffer)(200, 2, **how)
    for _ in range(60):
        ends = random.random(2) < 0.1
        action: Any = random.integers(3, size=2)
        if kind == "sac":
            action = random.uniform(-1, 1, (2, 2)).astype(np.float32)
        buffer.add(
            Batch(
                obs=random.normal(size=(2, 5)).astype(np.float32),
                obs_next=random.normal(size=(2, 5)).astype(np.float32),
                act=action,
                rew=3 * random.normal(size=2),
                terminated=ends,
                truncated=np.zeros(2, bool),
                info={},
            )
        )
    return buffer


def updates(algorithm: Any, buffer: Any, *, copies: bool = True) -> list[dict[str, Any]]:
    """The statistics of some updates from a buffer, which draws by numbers of its own."""
    buffer = copy.deepcopy(buffer) if copies else buffer
    np.random.seed(2)  # noqa: NPY002
    torch.manual_seed(2)
    found = []
    with policy_within_training_step(algorithm.policy):
        for _ in range(4):
            stats = dict(vars(algorithm.update(buffer, 32)))
            stats.pop("train_time")
            found.append({name: each for name, each in stats.items() if each is not None})
    return found


def assert_equal(ours: Any, theirs: Any) -> None:
    """Compares weights, targets and the optimisers' states."""
    mine, its = ours.state_dict(), theirs.state_dict()
    assert mine.keys() == its.keys()
    for one, other in zip(mine.pop("_optimizers"), its.pop("_optimizers"), strict=True):
        assert one["param_groups"] == other["param_groups"]
        for place, state in other["state"].items():
            for name, number in state.items():
                torch.testing.assert_close(
                    torch.as_tensor(one["state"][place][name]),
                    torch.as_tensor(number),
                    rtol=1e-3,
                    atol=1e-4,
                )
    for name, each in mine.items():
        torch.testing.assert_close(each, its[name], rtol=0, atol=1e-4, msg=name)


def assert_equal_stats(ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> None:
    for mine, its in zip(ours, theirs, strict=True):
        assert mine.keys() == its.keys()
        for name, number in its.items():
            if isinstance(number, float):
                assert mine[name] == pytest.approx(number, rel=1e-4, abs=1e-4), name


SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "dqn": ("dqn", {"target_update_freq": 2}),
    "dqn without target": ("dqn", {}),
    "dqn of old": ("dqn", {"is_double": False, "target_update_freq": 3}),
    "dqn steps": ("dqn", {"n_step_return_horizon": 3, "target_update_freq": 2}),
    "dqn huber": ("dqn", {"huber_loss_delta": 0.7}),
    "dqn rmsprop": ("dqn", {"optim": RMSpropOptimizerFactory(lr=1e-2)}),
    "dqn schedule": (
        "dqn",
        {
            "optim": AdamOptimizerFactory(lr=1e-2).with_lr_scheduler_factory(
                LRSchedulerFactoryLinear(1, 10, 1)
            )
        },
    ),
    "sac": ("sac", {}),
    "sac alpha": ("sac", {"alpha": auto_alpha}),
    "sac one scale": ("sac", {"conditioned": False, "alpha": auto_alpha}),
    "sac steps": ("sac", {"n_step_return_horizon": 3, "tau": 0.3}),
    "discrete sac": ("discrete sac", {}),
    "discrete sac alpha": ("discrete sac", {"alpha": auto_alpha}),
    "discrete sac of shares": ("discrete sac", {"softmax": True}),
    "discrete sac steps": ("discrete sac", {"n_step_return_horizon": 3, "tau": 0.3}),
}


@pytest.mark.filterwarnings("error:.*lr_scheduler.step:UserWarning")
@pytest.mark.parametrize("prioritized", [False, True])
@pytest.mark.parametrize("name", SETTINGS)
def test_updates_are_those_of_tianshous_algorithm(name: str, prioritized: bool) -> None:
    kind, how = SETTINGS[name]
    theirs, ours = pair(kind, **how)
    ours.train_engine = "native"
    buffers = [buffer_of(kind, prioritized=prioritized) for _ in range(2)]
    expected = updates(theirs, buffers[0], copies=False)
    after = torch.rand(1)
    found = updates(ours, buffers[1], copies=False)
    # as many random numbers were drawn
    assert torch.rand(1) == after
    assert_equal_stats(found, expected)
    assert_equal(ours, theirs)
    if prioritized:
        weights = [each.weight[np.arange(120)] for each in buffers]
        np.testing.assert_allclose(weights[1], weights[0], rtol=1e-3, atol=1e-4)
    assert (ours.learner_engine, ours.why_not_native_learner) == ("native", "")


@pytest.mark.parametrize("kind", KINDS)
def test_a_training_changes_sides_by_the_state_in_the_middle(kind: str) -> None:
    theirs, ours = pair(kind)
    buffer = buffer_of(kind)
    for each in (theirs, ours):
        updates(each, buffer)
    again = [*pair(kind), pair(kind)[0]]
    for algorithm, state in zip(again, (theirs, theirs, ours), strict=True):
        algorithm.load_state_dict(copy.deepcopy(state.state_dict()))
        updates(algorithm, buffer)
    assert_equal(again[1], again[0])
    assert_equal(again[2], again[0])


@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_reads_its_own_networks(kind: str) -> None:
    theirs, ours = pair(kind)
    buffer = buffer_of(kind)
    updates(ours, buffer)
    copied, before = copy.deepcopy(ours), copy.deepcopy(ours.state_dict())
    for each in (theirs, copied):
        updates(each, buffer)
    assert copied.learner_engine == "native"
    for name, each in ours.state_dict().items():
        if name != "_optimizers":
            assert torch.equal(each, before[name])


class OwnValues(DiscreteQLearningPolicy[Any]):
    """Values that are half of the network's."""

    def forward(self, *args: Any, **given: Any) -> Any:
        found = super().forward(*args, **given)
        found.logits = found.logits / 2
        return found


class OwnDraws(SACPolicy):
    """Log-densities that are half of the distribution's."""

    def forward(self, *args: Any, **given: Any) -> Any:
        found = super().forward(*args, **given)
        found.log_prob = found.log_prob / 2
        return found


class OwnChoices(DiscreteSACPolicy):
    """Distributions of its own."""

    def forward(self, *args: Any, **given: Any) -> Any:
        found = super().forward(*args, **given)
        found.dist = torch.distributions.Categorical(logits=found.logits / 2)
        return found


class OwnCriticLoss:
    """Critics that are trained by another loss."""

    @staticmethod
    def _minimize_critic_squared_loss(batch: Any, critic: Any, optimizer: Any) -> Any:
        off = critic(batch.obs, batch.act).flatten() - batch.returns.flatten()
        loss = off.abs().mean()
        optimizer.step(loss)
        return off, loss


@pytest.mark.parametrize(
    ("kind", "added", "how", "why"),
    [
        ("dqn", Nothing, {"policy_cls": OwnValues}, "OwnValues has its own forward"),
        ("sac", Nothing, {"policy_cls": OwnDraws}, "OwnDraws has its own forward"),
        ("discrete sac", Nothing, {"policy_cls": OwnChoices}, "OwnChoices has its own forward"),
        ("sac", OwnCriticLoss, {}, "Changed has its own _minimize_critic_squared_loss"),
        (
            "dqn",
            Nothing,
            {"optim": TorchOptimizerFactory(torch.optim.Adagrad, lr=1e-3)},
            "the optimiser is Adagrad",
        ),
        (
            "sac",
            Nothing,
            {"optim": TorchOptimizerFactory(torch.optim.Adagrad, lr=1e-3)},
            "the optimiser is Adagrad",
        ),
        (
            "dqn",
            Nothing,
            {"net": Net(state_shape=5, action_shape=3, hidden_sizes=[8], softmax=True)},
            "",
        ),
    ],
)
def test_what_a_user_changed_is_trained_as_tianshou_trains_it(
    kind: str, added: type, how: dict[str, Any], why: str
) -> None:
    theirs, ours = pair(kind, added, **how)
    buffer = buffer_of(kind)
    expected, found = updates(theirs, buffer), updates(ours, buffer)
    assert_equal_stats(found, expected)
    assert_equal(ours, theirs)
    assert why in ours.why_not_native_learner
    assert ours.learner_engine == ("torch" if why else "native")


@pytest.mark.parametrize("kind", ["sac", "discrete sac"])
def test_critics_that_share_layers_are_trained_one_after_the_other(kind: str) -> None:
    theirs, ours = pair(kind)
    for each in (theirs, ours):
        torch.manual_seed(4)
        each.critic2.preprocess = each.critic.preprocess
        each.critic2_optim = each._create_optimizer(each.critic2, AdamOptimizerFactory(lr=1e-2))
    buffer = buffer_of(kind)
    assert_equal_stats(updates(ours, buffer), updates(theirs, buffer))
    assert "both critics have a parameter in common" in ours.why_not_native_learner


class Dropping(torch.nn.Module):
    """A network that draws while it trains."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.Dropout(0.5))

    def forward(self, obs: Any, state: Any = None, info: Any = None) -> Any:
        return self.layers(torch.as_tensor(obs, dtype=torch.float32)), state


def test_a_network_that_draws_is_trained_by_torch() -> None:
    theirs, ours = pair("dqn", net=Dropping())
    buffer = buffer_of("dqn")
    assert_equal_stats(updates(ours, buffer), updates(theirs, buffer))
    assert_equal(ours, theirs)
    assert "dropout" in ours.why_not_native_learner


def test_hooks_are_called() -> None:
    calls: list[int] = []
    theirs, ours = pair("dqn")
    ours.policy.model.register_full_backward_hook(lambda *_: calls.append(1))
    buffer = buffer_of("dqn")
    assert_equal_stats(updates(ours, buffer), updates(theirs, buffer))
    assert "hooks" in ours.why_not_native_learner
    assert calls


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_that_are_not_finite_are_refused_before_a_weight_is_written(kind: str) -> None:
    _, ours = pair(kind)
    buffer = buffer_of(kind)
    buffer.rew[:] = np.nan
    before = copy.deepcopy(ours.state_dict())
    with pytest.raises(SpecError, match="nan or infinite"):
        updates(ours, buffer)
    for name, each in ours.state_dict().items():
        if name != "_optimizers":
            assert torch.equal(each, before[name])


def test_an_engine_of_another_name_is_refused() -> None:
    _, ours = pair("dqn")
    ours.train_engine = "fast"
    with pytest.raises(SpecError, match="train_engine"):
        updates(ours, buffer_of("dqn"))
    ours.train_engine = "torch"
    updates(ours, buffer_of("dqn"))
    assert ours.why_not_native_learner == "train_engine='torch' was asked for"
