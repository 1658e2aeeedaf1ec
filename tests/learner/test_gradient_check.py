# SPDX-License-Identifier: Apache-2.0
"""Modules whose training native code would not make as torch does are refused."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from ppo_reference import OBS_SIZE, ActorCritic, acted_rows, as_tensors, torch_step
from torch import Tensor, nn

from rollouts.errors import SpecError
from rollouts.learner.native_learner import NativeLearner, PpoLoss
from rollouts.policies.native import NativePolicy

SPACE = spaces.Discrete(4)
LOSS = PpoLoss(clip_range=100.0)


class Halved(torch.autograd.Function):
    """The same numbers forward, half the gradient backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return grads[0] / 2


def without_grad(layer: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        return layer(x)


def straight_through(layer: nn.Module, x: Tensor) -> Tensor:
    y = layer(x)
    return y + (y.clamp(-1, 1) - y).detach()


CUT: dict[str, Callable[[nn.Module, Tensor], Tensor]] = {
    "detach": lambda layer, x: layer(x).detach(),
    "straight-through": straight_through,
}
HIDDEN: dict[str, Callable[[nn.Module, Tensor], Tensor]] = {
    "no_grad": without_grad,
    "detach of weights": lambda layer, x: nn.functional.linear(x, layer.weight.detach()),
    "detach_": lambda layer, x: layer(x).clone().detach_(),
    "autograd.Function": lambda layer, x: Halved.apply(layer(x)),
}


class Cut(nn.Module):
    """An encoder whose gradients are others than its operations have."""

    def __init__(self, encode: Callable[[nn.Module, Tensor], Tensor], *, value_alone: bool) -> None:
        super().__init__()
        self.space = SPACE
        self.encode, self.value_alone = encode, value_alone
        self.encoder, self.actor, self.critic = (
            nn.Linear(OBS_SIZE, 8),
            nn.Linear(8, 4),
            nn.Linear(8, 1),
        )

    evaluate = ActorCritic.evaluate

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        cut = self.encode(self.encoder, obs)
        whole = self.encoder(obs) if self.value_alone else cut
        return self.actor(whole), self.critic(cut)[:, 0]


def learner_of(module: nn.Module, **adam: Any) -> NativeLearner:
    return NativeLearner(
        NativePolicy.from_torch(module, SPACE), torch.optim.Adam(module.parameters(), **adam)
    )


def update(learner: NativeLearner, rows: dict[str, Any]) -> None:
    count = len(rows["obs"])
    learner.update(rows, np.arange(count), minibatch=count, loss=LOSS)


@pytest.mark.parametrize("value_alone", [False, True])
@pytest.mark.parametrize("how", HIDDEN)
def test_what_autograd_does_not_see_is_not_trained(how: str, value_alone: bool) -> None:
    torch.manual_seed(0)
    module = Cut(HIDDEN[how], value_alone=value_alone)
    with pytest.raises(SpecError, match=r"autograd's gradient of encoder\.weight is another"):
        learner_of(module)


@pytest.mark.parametrize("value_alone", [False, True])
@pytest.mark.parametrize("how", CUT)
def test_detached_features_get_no_gradient(how: str, value_alone: bool) -> None:
    torch.manual_seed(0)
    module = Cut(CUT[how], value_alone=value_alone)
    theirs = copy.deepcopy(module)
    optimizer = torch.optim.Adam(theirs.parameters(), lr=3e-3)
    learner, rows = learner_of(module, lr=3e-3), acted_rows(module, 32, 0)  # type: ignore[arg-type]
    in_torch = as_tensors(rows, torch.float32)
    before = copy.deepcopy(module.encoder.weight)
    for _ in range(10):
        update(learner, rows)
        torch_step(theirs, optimizer, in_torch, np.arange(32), LOSS, 1e9)  # type: ignore[arg-type]
    for mine, its in zip(module.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, its, rtol=0, atol=2e-5)
    no_way = how == "detach" and not value_alone
    assert torch.equal(module.encoder.weight, before) == no_way
    # acting does without the operation
    policy = NativePolicy.from_torch(module, SPACE)
    kinds = [op.kind for op in policy.program.without_detach().ops]
    assert "detach" in [op.kind for op in policy.program.ops] and "detach" not in kinds
    found, value = policy.module_outputs(rows["obs"])
    with torch.no_grad():
        logits, expected = module(torch.from_numpy(rows["obs"]))
    np.testing.assert_allclose(found, logits, atol=1e-5)
    np.testing.assert_allclose(value[:, 0], expected, atol=1e-5)


def test_a_forward_that_cuts_gradients_later_is_noticed() -> None:
    torch.manual_seed(0)
    module = Cut(lambda layer, x: layer(x), value_alone=False)
    learner, rows = learner_of(module), acted_rows(module, 32, 0)
    update(learner, rows)
    module.encode = HIDDEN["no_grad"]
    before = copy.deepcopy(module.state_dict())
    with pytest.raises(SpecError, match=r"autograd's gradient of encoder\.weight"):
        update(learner, rows)
    assert all(torch.equal(before[name], each) for name, each in module.state_dict().items())


def do_nothing(*_: Any) -> None:
    return None


HOOKS: dict[str, Callable[[nn.Module, torch.optim.Optimizer], Any]] = {
    "parameter": lambda module, _: next(module.parameters()).register_hook(do_nothing),
    "accumulation": lambda module, _: next(module.parameters()).register_post_accumulate_grad_hook(
        do_nothing
    ),
    "layer": lambda module, _: next(module.children()).register_full_backward_hook(do_nothing),
    "layer before": lambda module, _: next(module.children()).register_full_backward_pre_hook(
        do_nothing
    ),
    "before a step": lambda _, optimizer: optimizer.register_step_pre_hook(do_nothing),
    "after a step": lambda _, optimizer: optimizer.register_step_post_hook(do_nothing),
    "another step": lambda _, optimizer: setattr(optimizer, "step", do_nothing),
}


@pytest.mark.parametrize("how", HOOKS)
def test_hooks_on_gradients_and_steps_are_not_passed_over(how: str) -> None:
    module = ActorCritic(SPACE, 8)
    policy = NativePolicy.from_torch(module, SPACE)
    optimizer = torch.optim.Adam(module.parameters())
    learner = NativeLearner(policy, optimizer)
    HOOKS[how](module, optimizer)
    with pytest.raises(SpecError, match="native code would not call"):
        update(learner, acted_rows(module, 16, 0))
    with pytest.raises(SpecError, match="native code would not call"):
        NativeLearner(policy, optimizer)


@pytest.mark.parametrize(
    "register",
    [nn.modules.module.register_module_forward_hook,
     nn.modules.module.register_module_forward_pre_hook],
)  # fmt: skip
def test_hooks_of_all_modules_are_not_passed_over(register: Callable[[Any], Any]) -> None:
    module = ActorCritic(SPACE, 8)
    learner = learner_of(module)
    handle = register(do_nothing)
    try:
        with pytest.raises(SpecError, match="all modules have forward hooks"):
            update(learner, acted_rows(module, 16, 0))
    finally:
        handle.remove()
    update(learner, acted_rows(module, 16, 0))


def keep_a_scale(layer: nn.Module, x: Tensor) -> Tensor:
    # as modules do that make what they need at their first call
    if not hasattr(layer, "kept"):
        layer.kept = torch.full((8,), 0.5)
    return layer(x) * layer.kept


def test_what_a_forward_makes_at_its_first_call_may_be_trained_with() -> None:
    torch.manual_seed(0)
    module = Cut(keep_a_scale, value_alone=False)
    update(learner_of(module), rows := acted_rows(module, 32, 0))
    # by torch, too
    optimizer = torch.optim.Adam(module.parameters())
    torch_step(module, optimizer, as_tensors(rows, torch.float32), np.arange(32), LOSS, 1e9)


@pytest.mark.parametrize("bounded", [nn.ReLU6(), nn.Hardtanh(0.0, 1.0)])
def test_at_a_bound_of_an_activation_the_slope_is_that_of_torch(bounded: nn.Module) -> None:
    """Biases begin at 0 and observations may be 0, so that a feature is at the bound itself."""
    torch.manual_seed(0)
    module = Cut(lambda layer, x: bounded(layer(x)), value_alone=False)
    nn.init.zeros_(module.encoder.bias)
    rows = acted_rows(module, 32, 0)
    rows["obs"][:16] = 0
    other = copy.deepcopy(module)
    update(learner_of(module), rows)
    optimizer = torch.optim.Adam(other.parameters())
    torch_step(other, optimizer, as_tensors(rows, torch.float32), np.arange(32), LOSS, 1e9)
    for mine, its in zip(module.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine, its, rtol=0, atol=1e-6)


def test_a_schedule_of_the_learning_rate_is_no_hook() -> None:
    module = ActorCritic(SPACE, 8)
    optimizer = torch.optim.Adam(module.parameters())
    torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.5)
    learner = NativeLearner(NativePolicy.from_torch(module, SPACE), optimizer)
    update(learner, acted_rows(module, 16, 0))


@pytest.mark.parametrize(
    ("kind", "decoupled"), [(torch.optim.Adam, True), (torch.optim.AdamW, False)]
)
def test_decay_is_that_of_the_setting_and_not_of_the_name(kind: Any, decoupled: bool) -> None:
    torch.manual_seed(0)
    module = ActorCritic(SPACE, 8)
    other = copy.deepcopy(module)
    optimizers = [kind(each.parameters(), weight_decay=0.5) for each in (module, other)]
    for optimizer in optimizers:
        optimizer.param_groups[0]["decoupled_weight_decay"] = decoupled
    rows = acted_rows(module, 32, 0)
    learner = NativeLearner(NativePolicy.from_torch(module, SPACE), optimizers[0])
    for _ in range(5):
        update(learner, rows)
        torch_step(other, optimizers[1], as_tensors(rows, torch.float32), np.arange(32), LOSS, 1e9)
    for mine, its in zip(module.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine, its, rtol=0, atol=1e-6)


critic: Any = None


def test_a_global_of_an_attribute_s_name_may_change() -> None:
    global critic
    module = Cut(lambda layer, x: layer(x), value_alone=False)
    learner, rows = learner_of(module), acted_rows(module, 32, 0)
    for place in range(3):
        critic = np.full(3, place)
        update(learner, rows)


def test_actions_of_another_size_are_refused() -> None:
    space = spaces.Box(-1.0, 1.0, (3,))
    module = ActorCritic(space, 8)
    learner = NativeLearner(
        NativePolicy.from_torch(module, space), torch.optim.Adam(module.parameters())
    )
    rows = acted_rows(module, 16, 0)
    for width in (1, 6):
        wrong = rows | {"action": np.zeros((16, width), np.float32)}
        with pytest.raises(SpecError, match=f"actions of {width} numbers, expected 3"):
            update(learner, wrong)


def test_a_loss_of_another_name_is_refused() -> None:
    with pytest.raises(SpecError, match=r"value_loss must be one of .*got 'cliped'"):
        PpoLoss(value_loss="cliped")
