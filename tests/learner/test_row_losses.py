# SPDX-License-Identifier: Apache-2.0
"""DQN's, SAC's and TD3's gradient steps in native code, beside the same ones in torch."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rollouts import _native
from rollouts.errors import SpecError
from rollouts.learner.discrete_losses import DiscreteSacActorLoss, DiscreteSoftValueLoss
from rollouts.learner.loss_learner import LossLearner, TargetNetwork
from rollouts.learner.row_losses import (
    DqnLoss,
    RowLoss,
    SacActorLoss,
    SacCriticLoss,
    SoftValueLoss,
    Td3ActorLoss,
    Td3CriticLoss,
    TemperatureLoss,
    ValueLoss,
)

pytestmark = pytest.mark.usefixtures("one_torch_thread")

OBS, ACTIONS, ROWS = 5, 3, 37


def layers(*sizes: int) -> nn.Sequential:
    pairs = list(itertools.pairwise(sizes))
    parts = [part for pair in pairs for part in (nn.Linear(*pair), nn.ReLU())]
    return nn.Sequential(*parts[:-1])


class Actor(nn.Module):
    """Mean and log_std of each action."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk, self.mean = layers(OBS, 24, 24), nn.Linear(24, ACTIONS)
        self.log_std = nn.Linear(24, ACTIONS)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        features = self.trunk(obs).relu()
        return self.mean(features), self.log_std(features).clamp(-20, 2)


class Direct(nn.Module):
    """An action within -1 and 1."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = layers(OBS, 24, ACTIONS)

    def forward(self, obs: Tensor) -> Tensor:
        return self.layers(obs).tanh()


class Twins(nn.Module):
    """Two critics of an observation and an action."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = layers(OBS + ACTIONS, 24, 1), layers(OBS + ACTIONS, 24, 1)

    def forward(self, obs: Tensor, action: Tensor) -> tuple[Tensor, ...]:
        both = torch.cat([obs, action], 1)
        return self.one(both), self.two(both)


class Single(nn.Module):
    """One critic of an observation and an action."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = layers(OBS + ACTIONS, 24, 1)

    def forward(self, obs: Tensor, action: Tensor) -> Tensor:
        return self.layers(torch.cat([obs, action], 1))


def values() -> nn.Sequential:
    return layers(OBS, 24, ACTIONS)


class TwinValues(nn.Module):
    """Two networks of an observation's values for all actions."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = values(), values()

    def forward(self, obs: Tensor) -> tuple[Tensor, ...]:
        return self.one(obs), self.two(obs)


def batch(loss: RowLoss, seed: int, rows: int = ROWS) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    found = {
        name: random.normal(size=(rows, *shape)).astype(np.float32)
        for name, shape in loss.shapes.items()
    }
    if "discount" in found:
        found["discount"] = (0.97 * (random.random((rows, 1)) < 0.8)).astype(np.float32)
    if "temperature" in found:
        found["temperature"] = np.full((rows, 1), 0.2, np.float32)
    if isinstance(loss, DqnLoss | DiscreteSoftValueLoss):
        found["action"] = np.eye(ACTIONS, dtype=np.float32)[random.integers(ACTIONS, size=rows)]
        found["reward"] *= 2
    return found


def as_tensors(parts: dict[str, Any]) -> dict[str, Tensor]:
    return {name: torch.from_numpy(each).double() for name, each in parts.items()}


def dqn_in_torch(loss: Any, rows: dict[str, Tensor]) -> Tensor:
    with torch.no_grad():
        following = loss.target_network(rows["next_obs"])
        chooser = loss.network(rows["next_obs"]) if loss.double_q else following
        best = following.gather(1, chooser.argmax(1, keepdim=True))
        target = rows["reward"] + rows["discount"] * best
    index = rows["action"].argmax(1, keepdim=True)
    value = loss.network(rows["obs"]).gather(1, index)
    return of_values(value, target, loss.huber)


def of_values(value: Tensor, target: Tensor, huber: float | None) -> Tensor:
    if huber is None:
        return nn.functional.mse_loss(value, target)
    return nn.functional.huber_loss(value, target, delta=huber)


def value_in_torch(loss: Any, rows: dict[str, Tensor]) -> Tensor:
    return of_values(loss.critic(rows["obs"], rows["action"]), rows["target"], loss.huber)


def soft_value_in_torch(loss: Any, rows: dict[str, Tensor]) -> Tensor:
    with torch.no_grad():
        action, log_prob = drawn(loss.actor, rows["next_obs"], rows["noise"])
        following = torch.cat(loss.target_critic(rows["next_obs"], action), 1).min(1, True)[0]
        following = following - rows["temperature"] * log_prob
        target = rows["reward"] + rows["discount"] * following
    return value_in_torch(loss, rows | {"target": target})


def drawn(actor: Any, obs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    mean, log_std = actor(obs)
    normal: Any = torch.distributions.Normal(mean, log_std.exp())
    number = mean + log_std.exp() * noise
    density = normal.log_prob(number) - (1 - number.tanh() ** 2 + 1e-6).log()
    return number.tanh(), density.sum(1, keepdim=True)


def sac_critic_in_torch(loss: Any, rows: dict[str, Tensor]) -> Tensor:
    with torch.no_grad():
        action, log_prob = drawn(loss.actor, rows["next_obs"], rows["noise"])
        following = torch.cat(loss.target_critic(rows["next_obs"], action), 1).min(1, True)[0]
        following = following - rows["temperature"] * log_prob
        target = rows["reward"] + rows["discount"] * following
    found = loss.critic(rows["obs"], rows["action"])
    return 0.5 * sum(nn.functional.mse_loss(each, target) for each in found)  # type: ignore[return-value]


def sac_actor_in_torch(loss: Any, rows: dict[str, Tensor]) -> Tensor:
    action, log_prob = drawn(loss.actor, rows["obs"], rows["noise"])
    least = torch.cat(loss.critic(rows["obs"], action), 1).min(1, True)[0]
    return (rows["temperature"] * log_prob - least).mean()


def discrete_value_in_torch(loss: Any, rows: dict[str, Tensor]) -> Tensor:
    with torch.no_grad():
        chosen: Any = torch.distributions.Categorical(logits=loss.actor(rows["next_obs"]))
        least = torch.minimum(*loss.target_critic(rows["next_obs"]))
        following = (chosen.probs * least).sum(1, True)
        following = following + rows["temperature"] * chosen.entropy()[:, None]
        target = rows["reward"] + rows["discount"] * following
    value = loss.critic(rows["obs"]).gather(1, rows["action"].argmax(1, keepdim=True))
    return of_values(value, target, loss.huber)


def discrete_actor_in_torch(loss: Any, rows: dict[str, Tensor]) -> Tensor:
    chosen: Any = torch.distributions.Categorical(logits=loss.actor(rows["obs"]))
    least = torch.minimum(*loss.critic(rows["obs"]))
    entropy = rows["temperature"][:, 0] * chosen.entropy()
    return -(entropy + (chosen.probs * least).sum(1)).mean()


def td3_critic_in_torch(loss: Any, rows: dict[str, Tensor]) -> Tensor:
    with torch.no_grad():
        action = (loss.target_actor(rows["next_obs"]) + rows["noise"]).clamp(-1, 1)
        following = torch.cat(loss.target_critic(rows["next_obs"], action), 1).min(1, True)[0]
        target = rows["reward"] + rows["discount"] * following
    found = loss.critic(rows["obs"], rows["action"])
    return sum(nn.functional.mse_loss(each, target) for each in found)  # type: ignore[return-value]


def td3_actor_in_torch(loss: Any, rows: dict[str, Tensor]) -> Tensor:
    return -loss.critic(rows["obs"], loss.actor(rows["obs"]))[0].mean()


def make(kind: str) -> tuple[RowLoss, nn.Module, Any]:
    """A loss, the network that it trains, and the same loss in torch."""
    torch.manual_seed(3)
    if kind.startswith("dqn"):
        net, huber = values(), None if kind == "dqn-squared" else 1.0
        double = kind == "dqn-double"
        dqn = DqnLoss(net, values(), (OBS,), ACTIONS, double=double, huber=huber)
        return dqn, net, dqn_in_torch
    if kind in ("value", "soft-value"):
        one = Single()
        if kind == "value":
            return ValueLoss(one, (OBS,), ACTIONS), one, value_in_torch
        soft = SoftValueLoss(Actor(), one, Twins(), (OBS,), ACTIONS, huber=0.7)
        return soft, one, soft_value_in_torch
    if kind == "discrete-value":
        net = values()
        first = DiscreteSoftValueLoss(values(), net, TwinValues(), (OBS,), ACTIONS, huber=0.7)
        return first, net, discrete_value_in_torch
    if kind == "discrete-actor":
        net = values()
        return (
            DiscreteSacActorLoss(net, TwinValues(), (OBS,), ACTIONS),
            net,
            discrete_actor_in_torch,
        )
    twins = Twins()
    if kind == "sac-critic":
        loss: RowLoss = SacCriticLoss(Actor(), twins, Twins(), (OBS,), ACTIONS)
        return loss, twins, sac_critic_in_torch
    if kind == "sac-actor":
        actor: nn.Module = Actor()
        return SacActorLoss(actor, twins, (OBS,), ACTIONS), actor, sac_actor_in_torch
    if kind == "td3-critic":
        return Td3CriticLoss(Direct(), twins, Twins(), (OBS,), ACTIONS), twins, td3_critic_in_torch
    actor = Direct()
    return Td3ActorLoss(actor, twins, (OBS,)), actor, td3_actor_in_torch


KINDS = [
    *("dqn", "dqn-double", "dqn-squared", "sac-critic", "sac-actor", "td3-critic", "td3-actor"),
    *("value", "soft-value", "discrete-value", "discrete-actor"),
]


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_those_of_autograd_in_float64(kind: str) -> None:
    """Adam's mean after its first step is the gradient times 1 - beta1."""
    loss, net, in_torch = make(kind)
    rows = batch(loss, 5)
    exact = copy.deepcopy(loss).double()
    held = [
        name for name, each in loss.named_parameters() if any(each is p for p in net.parameters())
    ]
    total = in_torch(exact, as_tensors(rows))
    grads = torch.autograd.grad(total, [exact.get_parameter(name) for name in held])
    optimizer = torch.optim.Adam(net.parameters(), betas=(0.5, 0.999))
    found = LossLearner(loss, optimizer).update(rows)
    assert found.loss == pytest.approx(total.item(), rel=1e-5)
    largest = max(each.abs().max().item() for each in grads)
    norm = torch.cat([each.flatten() for each in grads]).norm().item()
    assert found.grad_norm == pytest.approx(norm, rel=1e-5)
    for name, expected in zip(held, grads, strict=True):
        ours = optimizer.state[loss.get_parameter(name)]["exp_avg"].double() / 0.5
        torch.testing.assert_close(ours, expected, rtol=0, atol=1e-5 * largest, msg=name)


@pytest.mark.parametrize("kind", KINDS)
def test_many_steps_with_a_limit_end_where_those_of_torch_end(kind: str) -> None:
    loss, net, in_torch = make(kind)
    exact = copy.deepcopy(loss).double()
    names = {id(each): name for name, each in loss.named_parameters()}
    theirs = [exact.get_parameter(names[id(each)]) for each in net.parameters()]
    before = {n: each.clone() for n, each in loss.named_parameters()}
    learner = LossLearner(loss, torch.optim.Adam(net.parameters(), lr=1e-3))
    optimizer = torch.optim.Adam(theirs, lr=1e-3)
    for seed in range(40):
        rows = batch(loss, seed)
        learner.update(rows, max_grad_norm=0.5)
        optimizer.zero_grad()
        in_torch(exact, as_tensors(rows)).backward()
        nn.utils.clip_grad_norm_(theirs, 0.5)
        optimizer.step()
    for mine, its in zip(net.parameters(), theirs, strict=True):
        torch.testing.assert_close(mine.double(), its, rtol=0, atol=2e-5)
    trained = {id(each) for each in net.parameters()}
    for name, each in loss.named_parameters():
        assert torch.equal(each, before[name]) != (id(each) in trained), name


@pytest.mark.parametrize("kind", KINDS)
def test_bits_do_not_depend_on_the_number_of_threads(kind: str) -> None:
    ends = []
    for num_threads in (1, 2, 4):
        loss, net, _ = make(kind)
        learner = LossLearner(loss, torch.optim.Adam(net.parameters()), num_threads)
        for seed in range(3):
            learner.update(batch(loss, seed, rows=1000))
        ends.append([each.detach().clone() for each in net.parameters()])
    for end in ends[1:]:
        assert all(map(torch.equal, ends[0], end))


def test_of_equal_values_double_dqn_takes_the_first() -> None:
    loss, net, in_torch = make("dqn-double")
    for each in net.parameters():
        each.data.zero_()
    rows = batch(loss, 1)
    expected = in_torch(copy.deepcopy(loss).double(), as_tensors(rows)).item()
    assert LossLearner(loss, torch.optim.Adam(net.parameters())).update(rows).loss == pytest.approx(
        expected, rel=1e-6
    )


def test_outputs_are_those_of_the_loss_in_torch() -> None:
    loss, net, _ = make("dqn")
    rows = batch(loss, 1)
    with torch.no_grad():
        _, *others = loss(torch.from_numpy(loss.rows(rows)))
    found = LossLearner(loss, torch.optim.Adam(net.parameters())).update(rows)
    expected = torch.cat(others, 1).numpy()
    np.testing.assert_allclose(found.outputs[:, 1:], expected, rtol=1e-5, atol=1e-6)
    assert found.loss == pytest.approx(found.outputs[:, 0].mean(), rel=1e-6)


def test_discrete_losses_give_what_sac_goes_on_with() -> None:
    loss, net, _ = make("discrete-value")
    rows = batch(loss, 1)
    found = LossLearner(loss, torch.optim.Adam(net.parameters(), lr=0.0)).update(rows).outputs
    with torch.no_grad():
        all_values = net(torch.from_numpy(rows["obs"])).numpy()
    np.testing.assert_allclose(found[:, 4:], all_values, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found[:, 2], (all_values * rows["action"]).sum(1), rtol=1e-5)
    np.testing.assert_allclose(found[:, 1], found[:, 2] - found[:, 3], rtol=1e-4, atol=1e-6)
    loss, net, _ = make("discrete-actor")
    rows = batch(loss, 1)
    found = LossLearner(loss, torch.optim.Adam(net.parameters(), lr=0.0)).update(rows).outputs
    with torch.no_grad():
        log_prob = net(torch.from_numpy(rows["obs"])).log_softmax(1)
    entropy = -(log_prob.exp() * log_prob).sum(1)
    np.testing.assert_allclose(found[:, 1], -entropy.numpy(), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found[:, 2], log_prob.mean(1).numpy(), rtol=1e-4, atol=1e-6)


def test_several_gradients_may_be_computed_before_the_first_step() -> None:
    ends = []
    for computes_first in (False, True):
        torch.manual_seed(3)
        actor, critic = Actor(), Twins()
        first = LossLearner(
            SacActorLoss(actor, critic, (OBS,), ACTIONS), torch.optim.Adam(actor.parameters())
        )
        other = copy.deepcopy(actor)
        loss = SacCriticLoss(actor if computes_first else other, critic, Twins(), (OBS,), ACTIONS)
        second = LossLearner(loss, torch.optim.Adam(critic.parameters()))
        rows = batch(first._loss, 1), batch(loss, 1)
        if computes_first:
            first.compute(rows[0])
            second.compute(rows[1])
            first.apply()
            second.apply()
        else:
            # each step's weights are known to the other as they were before
            before = copy.deepcopy(critic)
            second.update(rows[1])
            after = copy.deepcopy(critic)
            critic.load_state_dict(before.state_dict())
            first.update(rows[0])
            critic.load_state_dict(after.state_dict())
        ends.append([*actor.parameters(), *critic.parameters()])
    assert all(map(torch.equal, *ends))


@pytest.mark.parametrize("clip_by", ["all", "each", "element"])
def test_gradients_that_were_computed_are_applied_once_and_within_a_limit(clip_by: Any) -> None:
    ends = []
    for at_once in (True, False):
        loss, net, _ = make("dqn")
        learner = LossLearner(loss, torch.optim.RMSprop(net.parameters()))
        if at_once:
            learner.update(batch(loss, 1), max_grad_norm=0.01, clip_by=clip_by)
        else:
            learner.compute(batch(loss, 1))
            assert learner.num_steps == 0
            learner.apply(max_grad_norm=0.01, clip_by=clip_by)
            assert learner.num_steps == 1
            with pytest.raises(SpecError, match="there are no gradients"):
                learner.apply()
        ends.append([*net.parameters()])
    assert all(map(torch.equal, *ends))


def test_gradients_that_are_not_finite_are_not_applied() -> None:
    loss, net, _ = make("dqn")
    learner = LossLearner(loss, torch.optim.Adam(net.parameters()))
    learner.compute(batch(loss, 1))
    rows = batch(loss, 2)
    rows["reward"][4] = np.nan
    with pytest.raises(SpecError, match="gives a loss that is nan"):
        learner.compute(rows)
    with pytest.raises(SpecError, match="there are no gradients"):
        learner.apply()


@pytest.mark.parametrize("kind", ["sac-critic", "td3-critic"])
def test_outputs_of_critics_are_means_over_them(kind: str) -> None:
    loss, net, _ = make(kind)
    rows = batch(loss, 1)
    with torch.no_grad():
        values = torch.cat(net(torch.from_numpy(rows["obs"]), torch.from_numpy(rows["action"])), 1)
    found = LossLearner(loss, torch.optim.Adam(net.parameters())).update(rows)
    _, off, value, size = found.outputs.T
    np.testing.assert_allclose(value, values.mean(1).numpy(), rtol=1e-5, atol=1e-6)
    # both critics have one target
    offs = values.numpy() - (value - off)[:, None]
    np.testing.assert_allclose(size, np.abs(offs).mean(1), rtol=1e-4, atol=1e-5)
    assert (size > np.abs(off) + 1e-3).any()


class Sliced(nn.Module):
    """The networks of `Twins` in slices of common tensors, one of them transposed."""

    def __init__(self, twins: Twins) -> None:
        super().__init__()
        one, two = [*twins.one.parameters()], [*twins.two.parameters()]
        self.first = nn.Parameter(torch.stack([one[0].T, two[0].T]).detach().clone())
        self.rest = nn.ParameterList(
            torch.stack([a, b]).detach().clone() for a, b in zip(one[1:], two[1:], strict=True)
        )

    def forward(self, obs: Tensor, action: Tensor) -> tuple[Tensor, ...]:
        both = torch.cat([obs, action], 1)
        bias, weight, last_bias = self.rest
        return tuple(
            nn.functional.linear(
                nn.functional.linear(both, self.first[i].T, bias[i]).relu(),
                weight[i],
                last_bias[i],
            )
            for i in range(2)
        )


def test_networks_in_slices_of_common_tensors_learn_as_networks_apart() -> None:
    torch.manual_seed(3)
    twins, targets, actor = Twins(), Twins(), Actor()
    ends = []
    for critics, target in ((twins, targets), (Sliced(twins), Sliced(targets))):
        loss = SacCriticLoss(actor, critics, target, (OBS,), ACTIONS)
        learner = LossLearner(loss, torch.optim.Adam(critics.parameters(), lr=1e-3))
        for seed in range(5):
            found = learner.update(batch(loss, seed))
        ends.append(found)
    sliced = critics.state_dict()
    for i, net in enumerate((twins.one, twins.two)):
        first, *rest = net.parameters()
        assert torch.equal(sliced["first"][i].T, first)
        assert all(torch.equal(sliced[f"rest.{k}"][i], each) for k, each in enumerate(rest))
    assert ends[0].loss == ends[1].loss
    np.testing.assert_array_equal(ends[0].outputs, ends[1].outputs)


def test_an_optimiser_of_a_target_is_refused() -> None:
    loss, net, _ = make("sac-critic")
    held = [*net.parameters(), *loss.actor.parameters()]  # type: ignore[union-attr]
    with pytest.raises(SpecError, match="a network that this loss takes as given"):
        LossLearner(loss, torch.optim.Adam(held))


class Detached(Twins):
    """Critics whose gradient ends before the action."""

    def forward(self, obs: Tensor, action: Tensor) -> tuple[Tensor, ...]:
        return super().forward(obs, action.detach())


def test_through_an_action_that_the_critic_detaches_goes_no_gradient() -> None:
    torch.manual_seed(3)
    actor = Actor()
    loss = SacActorLoss(actor, Detached(), (OBS,), ACTIONS)
    exact, rows = copy.deepcopy(loss).double(), batch(loss, 5)
    total = sac_actor_in_torch(exact, as_tensors(rows))
    grads = torch.autograd.grad(total, [*exact.actor.parameters()])
    optimizer = torch.optim.Adam(actor.parameters(), betas=(0.5, 0.999))
    LossLearner(loss, optimizer).update(rows)
    for mine, expected in zip(actor.parameters(), grads, strict=True):
        ours = optimizer.state[mine]["exp_avg"].double() / 0.5
        torch.testing.assert_close(ours, expected, rtol=0, atol=1e-5)


def test_a_step_that_is_not_finite_changes_nothing() -> None:
    loss, net, _ = make("sac-critic")
    optimizer = torch.optim.Adam(net.parameters())
    learner = LossLearner(loss, optimizer)
    learner.update(batch(loss, 1))
    before = [each.detach().clone() for each in net.parameters()]
    rows = batch(loss, 2)
    rows["reward"][4] = np.nan
    with pytest.raises(SpecError, match="gives a loss that is nan"):
        learner.update(rows)
    assert all(map(torch.equal, before, net.parameters()))
    assert all(optimizer.state[each]["step"] == 1 for each in net.parameters())


def test_parts_that_do_not_fit_are_refused() -> None:
    loss, net, _ = make("dqn")
    learner = LossLearner(loss, torch.optim.Adam(net.parameters()))
    rows = batch(loss, 1)
    with pytest.raises(SpecError, match=r"reward has shape \(3, 1\), expected \(37, 1\)"):
        learner.update({**rows, "reward": rows["reward"][:3]})
    with pytest.raises(SpecError, match=r"rows have .* expected .*reward"):
        learner.update({name: each for name, each in rows.items() if name != "reward"})
    with pytest.raises(SpecError, match="at least 1"):
        learner.update({name: each[:0] for name, each in rows.items()})


def test_the_temperature_moves_as_in_torch() -> None:
    log_temperature = torch.zeros(1).requires_grad_(True)
    plain = torch.zeros(1).requires_grad_(True)
    optimizer = torch.optim.Adam([log_temperature], lr=3e-2)
    other = torch.optim.Adam([plain], lr=3e-2)
    learner = LossLearner(TemperatureLoss(log_temperature), optimizer)
    for excess in (1.5, 0.3, -2.0):
        found = learner.update({"excess": np.array([[excess]])})
        other.zero_grad()
        loss = -(plain * torch.tensor([excess])).mean()
        assert found.loss == pytest.approx(loss.item(), abs=1e-6)
        loss.backward()
        other.step()
    torch.testing.assert_close(log_temperature, plain, rtol=0, atol=1e-6)


@pytest.mark.parametrize("share", [0.005, 1.0])
def test_a_target_moves_as_in_torch(share: float) -> None:
    net, target = Twins(), Twins()
    expected = [
        each.detach() * (1 - share) + share * new.detach()
        for each, new in zip(target.parameters(), net.parameters(), strict=True)
    ]
    TargetNetwork(net, target).move(share)
    for mine, its in zip(target.parameters(), expected, strict=True):
        torch.testing.assert_close(mine.detach(), its, rtol=0, atol=1e-7)
        assert mine._version > 0


def test_a_target_of_other_layers_is_refused() -> None:
    with pytest.raises(SpecError, match="other parameters"):
        TargetNetwork(Twins(), Direct())


def test_arrays_of_another_size_are_refused_by_native_code() -> None:
    two, three = np.zeros(2, np.float32), np.zeros(3, np.float32)
    with pytest.raises(SpecError, match="another size"):
        _native.move_towards([two], [three], 0.5)
    with pytest.raises(SpecError, match="one target for each"):
        _native.move_towards([two], [], 0.5)


class Encoded(Twins):
    """Critics of an encoding that gets no gradient from them."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(OBS, OBS)

    def forward(self, obs: Tensor, action: Tensor) -> tuple[Tensor, ...]:
        with torch.no_grad():
            obs = self.encoder(obs)
        return super().forward(obs, action)


def test_what_the_optimiser_does_not_hold_may_be_without_gradients() -> None:
    torch.manual_seed(3)
    actor, critic = Direct(), Encoded()
    loss = Td3ActorLoss(actor, critic, (OBS,))
    exact = copy.deepcopy(loss).double()
    rows = batch(loss, 1)
    optimizer = torch.optim.Adam(actor.parameters(), betas=(0.5, 0.999))
    LossLearner(loss, optimizer).update(rows)
    td3_actor_in_torch(exact, as_tensors(rows)).backward()
    for mine, its in zip(actor.parameters(), exact.actor.parameters(), strict=True):
        assert its.grad is not None
        ours = optimizer.state[mine]["exp_avg"].double() / 0.5
        torch.testing.assert_close(ours, its.grad, rtol=0, atol=1e-6)
    held = [*critic.parameters()]
    twins = Td3CriticLoss(Direct(), critic, Encoded(), (OBS,), ACTIONS)
    with pytest.raises(SpecError, match=r"autograd's gradient of critic\.encoder"):
        LossLearner(twins, torch.optim.Adam(held))


def weighted(kind: str) -> tuple[RowLoss, nn.Module]:
    torch.manual_seed(3)
    twins, net = Twins(), values()
    if kind == "dqn":
        return DqnLoss(net, values(), (OBS,), ACTIONS, weighted=True), net
    if kind == "sac":
        return SacCriticLoss(Actor(), twins, Twins(), (OBS,), ACTIONS, weighted=True), twins
    return Td3CriticLoss(Direct(), twins, Twins(), (OBS,), ACTIONS, weighted=True), twins


@pytest.mark.parametrize("kind", ["dqn", "sac", "td3"])
def test_a_row_of_weight_two_counts_as_two_rows(kind: str) -> None:
    ends = []
    for twice in (False, True):
        loss, net = weighted(kind)
        rows = {**batch(loss, 5), "weight": np.ones((ROWS, 1), np.float32)}
        if twice:
            rows = {name: np.concatenate([each, each[:9]]) for name, each in rows.items()}
            rows["weight"] *= (ROWS + 9) / ROWS
        else:
            rows["weight"][:9] = 2
        optimizer = torch.optim.Adam(net.parameters(), betas=(0.5, 0.999))
        LossLearner(loss, optimizer).update(rows)
        ends.append([optimizer.state[each]["exp_avg"] for each in net.parameters()])
    for mine, its in zip(*ends, strict=True):
        torch.testing.assert_close(mine, its, rtol=0, atol=1e-5)


class Tied(nn.Module):
    """Values of an observation of two dimensions, by one layer that is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.last = nn.Linear(6, 6), nn.Linear(6, ACTIONS)

    def forward(self, obs: Tensor) -> Tensor:
        features = self.layer(obs.flatten(1)).tanh()
        return self.last(self.layer(features).tanh())


def test_layers_used_twice_and_observations_of_two_dimensions_are_trained() -> None:
    torch.manual_seed(3)
    net = Tied()
    loss = DqnLoss(net, Tied(), (2, 3), ACTIONS, double=True)
    exact = copy.deepcopy(loss).double()
    rows = batch(loss, 1)
    optimizer = torch.optim.Adam(net.parameters(), betas=(0.5, 0.999))
    LossLearner(loss, optimizer).update(rows)
    dqn_in_torch(exact, as_tensors(rows)).backward()
    for mine, its in zip(net.parameters(), exact.network.parameters(), strict=True):
        assert its.grad is not None
        ours = optimizer.state[mine]["exp_avg"].double() / 0.5
        torch.testing.assert_close(ours, its.grad, rtol=0, atol=1e-6)
