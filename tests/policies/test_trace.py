# SPDX-License-Identifier: Apache-2.0
"""Programs that `trace` makes of torch modules: the same answers in few operations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

torch = pytest.importorskip("torch")

from program_checks import assert_same_answers, new_weights  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from rollouts.policies.program import Program, parameters_of  # noqa: E402
from rollouts.policies.trace import trace  # noqa: E402


class Doing(nn.Module):
    """Returns what a function of its layers and the observations returns, and a value."""

    def __init__(self, function: Callable[[Any, Tensor], Any], **layers: Any) -> None:
        super().__init__()
        for name, layer in layers.items():
            if isinstance(layer, nn.Parameter | nn.Module):
                setattr(self, name, layer)
            else:
                self.register_buffer(name, layer)
        self.critic = nn.Linear(6, 1)
        self.function = function

    def forward(self, obs: Tensor) -> tuple[Any, ...]:
        value = self.critic(obs.float().reshape(len(obs), -1)[:, :6])
        return self.function(self, obs), value


def kinds(program: Program) -> list[str]:
    """Kinds of the operations, the critic's aside."""
    counts = Counter(op.kind for op in program.ops)
    counts["linear"] -= 1
    return sorted(counts.elements())


def checked(module: nn.Module, space: gymnasium.Space[Any] | int = 6) -> Program:
    """The program, whose answers are the module's with the first and with other weights."""
    program = trace(module, space)
    assert_same_answers(program, module, space)
    new_weights(module)
    assert_same_answers(program, module, space)
    return program


def traced(function: Callable[[Any, Tensor], Any], **layers: Any) -> Program:
    torch.manual_seed(0)
    return checked(Doing(function, **layers))


def vector(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(*shape))


def test_an_actor_critic_is_its_layers() -> None:
    class ActorCritic(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.trunk = nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.Tanh())
            self.actor, self.critic = nn.Linear(8, 3), nn.Linear(8, 1)

        def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
            features = self.trunk(obs.float())
            return self.actor(features), self.critic(features)[:, 0]

    space = spaces.Box(-1, 1, (3, 4), np.float64)
    program = checked(ActorCritic(), space)
    assert [(op.kind, op.inputs, op.size) for op in program.ops] == [
        ("linear", (0,), 8),
        ("tanh", (1,), 8),
        ("linear", (2,), 3),
        ("linear", (2,), 1),
    ]
    assert program.obs_size == 12 and program.outputs == (3, 4)
    assert [param.name for param in program.params[:2]] == ["trunk.1.weight", "trunk.1.bias"]
    assert program.sizes == (12, 8, 8, 3, 1)


ACTIVATIONS = [
    *(nn.Tanh(), nn.ReLU(), nn.Sigmoid(), nn.SiLU(), nn.GELU(), nn.GELU(approximate="tanh")),
    *(nn.Softplus(), nn.Softplus(beta=2.0), nn.ELU(0.7), nn.LeakyReLU(0.2), nn.CELU(1.3)),
    *(nn.SELU(), nn.Mish(), nn.Softsign(), nn.LogSigmoid(), nn.Hardtanh(-2, 0.5), nn.ReLU6()),
    *(nn.Hardswish(), nn.Hardsigmoid(), nn.PReLU(), nn.PReLU(6), nn.Softmax(-1), nn.Identity()),
    *(nn.LogSoftmax(-1), nn.LayerNorm(6), nn.LayerNorm(6, elementwise_affine=False)),
    *(nn.LayerNorm(6, bias=False), nn.Dropout(0.0), nn.Sequential(nn.Flatten(), nn.LayerNorm(6))),
    *(nn.ReLU(inplace=True), nn.Dropout(0.5).eval(), nn.BatchNorm1d(6).eval()),
    *(nn.Unflatten(1, (2, 3)), nn.Flatten(), nn.SiLU(inplace=True), nn.ELU(inplace=True)),
]


@pytest.mark.parametrize("layer", ACTIVATIONS, ids=str)
def test_every_known_layer_answers_as_torch_does(layer: nn.Module) -> None:
    traced(lambda m, obs: m.layer(obs * 2.0), layer=layer)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *(("Tanh", "tanh"), ("ReLU", "relu"), ("Sigmoid", "sigmoid"), ("SiLU", "silu")),
        *(("GELU", "gelu"), ("ELU", "elu"), ("LeakyReLU", "leaky_relu"), ("Softplus", "softplus")),
    ],
)
def test_common_activations_are_one_operation(name: str, kind: str) -> None:
    assert kinds(traced(lambda m, obs: getattr(nn, name)()(obs))) == [kind]


FUNCTIONS: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "arithmetic": lambda m, x: ((1 - x) * 3 + x / 2 - 2 / (x.abs() + 1)) ** 2,
    "powers": lambda m, x: x**3 + x.square().sqrt() + (x * x + 1).rsqrt() + (x * x + 1) ** -1,
    "log1p": lambda m, x: x.abs().log1p() + x.clamp(max=1).expm1() + torch.exp2(x.clamp(-2, 2)),
    "two rows of one": lambda m, x: torch.minimum(x, m.v) + torch.maximum(m.v, x) - m.v * x,
    "one for all": lambda m, x: x * m.one + m.one / (2 + x.sigmoid()),
    "clamp": lambda m, x: x.clamp(-0.5, 0.5) + torch.clamp(x, min=m.v) + x.clip(max=0.3),
    "normalised": lambda m, x: ((x - m.v) / torch.sqrt(m.v.square() + 1e-8)).clamp(-10, 10),
    "addcmul": lambda m, x: torch.addcmul(x, x, m.v, value=0.5) + torch.addcdiv(m.v, x, x.exp()),
    "add alpha": lambda m, x: torch.add(x, m.v, alpha=2) + torch.sub(x, m.v, alpha=3),
    "x @ w.t() + b": lambda m, x: x @ m.w.t() + m.b,
    "x @ w": lambda m, x: x @ m.square,
    "x @ vector": lambda m, x: x @ m.v,
    "addmm": lambda m, x: torch.addmm(m.b, x, m.w.T),
    "linear": lambda m, x: functional.linear(x, m.w, m.b),
    "part of a weight": lambda m, x: functional.linear(x[:, :3], m.w[1:3, 3:], m.b[::2]),
    "chunk": lambda m, x: torch.cat([part * (i + 1) for i, part in enumerate(x.chunk(3, -1))], 1),
    "split": lambda m, x: torch.cat(x.split([1, 5], 1)[::-1], -1),
    "unbind": lambda m, x: torch.stack([x.unbind(1)[4], x.unbind(1)[0]], dim=1),
    "index": lambda m, x: x[:, [4, 0, 1]] * x[..., 2:5] + x[:, 5:],
    "index tensor": lambda m, x: x[:, torch.tensor([3, 2])].index_select(1, torch.tensor([1, 0])),
    "mean": lambda m, x: x - x.mean(-1, keepdim=True) + x.sum(1, keepdim=True),
    "maximum": lambda m, x: x.max(-1).values + x.amin(1) + x.max(1)[0] + x.logsumexp(1),
    "softmax": lambda m, x: functional.softmax(x, -1) + torch.log_softmax(x, dim=-1),
    "parts": lambda m, x: m.part(x.view(-1, 2, 3)).flatten(1),
    "free": lambda m, x: x.detach().contiguous().float().to(torch.float32).unsqueeze(1).squeeze(1),
    "double": lambda m, x: (x.double() * 2).type_as(x),
    "expand": lambda m, x: m.v.expand_as(x) + x.new_ones(()) * m.one.expand(len(x), 6),
    "repeat": lambda m, x: torch.cat([x, m.v.unsqueeze(0).repeat(len(x), 1)], dim=1),
    "zeros": lambda m, x: torch.cat([torch.zeros_like(x), x.new_ones(len(x), 2)], 1),
    "transposed": lambda m, x: x.view(-1, 2, 3).transpose(1, 2).reshape(len(x), -1),
    "flip": lambda m, x: x.flip(1).roll(1, 1),
    "as_tensor": lambda m, x: torch.as_tensor(x, dtype=torch.float64).float(),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_known_function_answers_as_torch_does(name: str) -> None:
    layers = {"w": vector(3, 6), "b": vector(3), "v": vector(6), "one": vector(1)}
    traced(FUNCTIONS[name], **layers, square=vector(6, 6), part=nn.Linear(3, 2))


@pytest.mark.parametrize("name", ["x @ w.t() + b", "x @ w", "x @ vector", "addmm", "linear"])
def test_every_way_to_write_a_layer_is_one_operation(name: str) -> None:
    layers = {"w": vector(3, 6), "b": vector(3), "v": vector(6), "square": vector(6, 6)}
    assert kinds(traced(FUNCTIONS[name], **layers)) == ["linear"]


def test_what_only_shapes_costs_no_operation() -> None:
    assert kinds(traced(FUNCTIONS["free"])) == []
    assert kinds(traced(lambda m, x: m.drop(x)[:, :], drop=nn.Dropout(0.3).eval())) == []


def test_dead_code_leaves_no_operation() -> None:
    def function(m: Any, x: Tensor) -> Tensor:
        torch.tanh(m.unused(x)).exp()
        return m.used(x)

    program = traced(function, unused=nn.Linear(6, 50), used=nn.Linear(6, 2))
    assert kinds(program) == ["linear"]
    assert not [param for param in program.params if param.name.startswith("unused")]


def test_what_is_computed_twice_is_one_operation() -> None:
    program = traced(lambda m, x: m.layer(x).tanh() * m.layer(x).tanh(), layer=nn.Linear(6, 2))
    assert kinds(program) == ["linear", "mul", "tanh"]


def test_a_layer_may_be_used_twice() -> None:
    program = traced(lambda m, x: m.layer(m.layer(x).relu()), layer=nn.Linear(6, 6))
    assert kinds(program) == ["linear", "linear", "relu"]
    assert len(program.params) == 4  # the critic's two are the others


def test_two_layers_may_share_a_weight() -> None:
    one, two = nn.Linear(6, 6), nn.Linear(6, 6)
    two.weight = one.weight
    program = traced(lambda m, x: m.one(x) + m.two(x), one=one, two=two)
    assert sorted(param.name for param in program.params if "o" in param.name.split(".")[0]) == [
        *("one.bias", "one.weight", "two.bias")
    ]


def test_what_is_written_in_place_is_read_afterwards() -> None:
    def function(m: Any, x: Tensor) -> Tensor:
        y = m.layer(x)
        view = y[:, 1:3]
        before = view.clone()
        view += 1
        y.mul_(2).tanh_()
        y[:, 0] = before[:, 1] * 3
        y[:, 3:] = 0.5
        rows = torch.zeros(len(x), 9)
        rows[:, :4] = y
        rows[:, 4:6].copy_(before)
        rows[:, 8].fill_(0.25)
        functional.relu(rows[:, 4:6], inplace=True)
        return torch.cat([rows, view, before], 1)

    traced(function, layer=nn.Linear(6, 4))


def test_a_log_std_is_one_row_for_all() -> None:
    class Gaussian(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mean, self.log_std = nn.Linear(3, 2), vector(2)

        def forward(self, obs: Tensor) -> tuple[Tensor, ...]:
            mean = self.mean(obs)
            std = self.log_std.exp().expand_as(mean)
            return mean, self.log_std, self.log_std.expand_as(mean), std.log(), obs.sum(1)

    program = checked(Gaussian(), 3)
    # the logarithm of what exp made is what it was made of
    assert len(set(program.outputs[1:4])) == 1
    assert program.sizes[program.outputs[1]] == 2


def test_a_value_may_be_zero_for_all_rows() -> None:
    class NoValue(nn.Module):
        def forward(self, obs: Tensor) -> tuple[Tensor, ...]:
            return obs, obs.new_zeros(len(obs))

    program = checked(NoValue(), 3)
    assert program.outputs[0] == 0
    assert [(op.kind, op.numbers) for op in program.ops] == [("literal", (0.0,))]


def test_weights_are_read_as_they_lie_in_the_state_dict() -> None:
    class Packed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weights, self.bias = vector(2, 4, 3), nn.Parameter(torch.randn(4, 2).t())

        def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
            one = functional.linear(obs @ self.weights[0].t(), self.weights[1].t(), None)
            return one, obs @ self.weights[1].t() + self.bias[1]

    module = Packed()
    program = checked(module, 3)
    assert {param.name for param in program.params} == {"weights", "bias"}
    state = {name: tensor.numpy() for name, tensor in module.state_dict().items()}
    for array, param in zip(parameters_of(program, state), program.params, strict=True):
        assert array.shape == param.shape and array.flags.c_contiguous
        assert array.dtype == np.float32


SPACES = [
    spaces.Discrete(7),
    spaces.Discrete(4, start=2),
    spaces.MultiDiscrete([3, 5]),
    spaces.MultiBinary(4),
    spaces.Box(0, 255, (2, 3), np.uint8),
    spaces.Box(-np.inf, np.inf, (5,), np.float64),
]


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_observations_of_every_kind_of_space(space: gymnasium.Space[Any]) -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.actor = nn.Linear(max(1, int(np.prod(space.shape or ()))), 2)

        def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
            features = self.actor(obs.reshape(len(obs), -1).float() / 255.0)
            return features, features[:, :1]

    checked(Scaled(), space)


@pytest.mark.parametrize("start", [0, 3])
def test_a_one_hot_index_picks_a_column(start: int) -> None:
    class OneHot(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.table = nn.Linear(8, 5), nn.Embedding(8, 5)

        def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
            hot = functional.one_hot(obs, 8)
            rows = self.table(obs) + self.table.weight[obs]
            return self.layer(hot.float()) + rows, hot.float() * 2

    program = checked(OneHot(), spaces.Discrete(5, start=start))
    assert [op.kind for op in program.ops].count("embedding") == 2
    assert "linear" not in [op.kind for op in program.ops]


def test_the_module_is_left_as_it_was() -> None:
    module = Doing(lambda m, x: m.norm(m.layer(x)), layer=nn.Linear(6, 3), norm=nn.LayerNorm(3))
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    generator = torch.get_rng_state()
    trace(module, 6)
    assert module.training and not module._forward_hooks and not module._forward_pre_hooks
    assert torch.equal(torch.get_rng_state(), generator)
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())
    assert all(parameter.requires_grad for parameter in module.parameters())


def test_rounding_that_a_normalisation_makes_greater_is_no_difference() -> None:
    torch.manual_seed(0)

    class Narrow(nn.Module):
        """Normalises two features that differ by the order of their sums alone."""

        def __init__(self) -> None:
            super().__init__()
            self.layer, self.norm = nn.Linear(60, 2, bias=False), nn.LayerNorm(2)
            weight, zeros = 30 * torch.randn(30), torch.zeros(30)
            rows = torch.cat([weight, zeros]), torch.cat([zeros, weight.roll(7)])
            self.layer.weight = nn.Parameter(torch.stack(rows))

        def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
            twice = torch.cat([obs, obs], -1)
            features = self.norm(self.layer(torch.cat([twice[:, :30], twice[:, 23:53]], -1)))
            return features, features[:, 0]

    module = Narrow()
    program = trace(module, 30)
    assert_same_answers(program, module, 30, num_rows=40)
