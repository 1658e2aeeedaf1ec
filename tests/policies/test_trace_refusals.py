# SPDX-License-Identifier: Apache-2.0
"""Modules that `trace` and `parameters_of` refuse, with the layer and the function by name."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402

from rollouts.errors import SpecError  # noqa: E402
from rollouts.policies.program import parameters_of  # noqa: E402
from rollouts.policies.trace import trace  # noqa: E402


class Trunk(nn.Module):
    """An actor-critic with one layer of the test's making."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(6, 8), layer)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        features = self.trunk(obs)
        return features, features.sum(-1)


class Custom(nn.Module):
    """A layer that is a function."""

    def __init__(self, function: Callable[[Tensor, nn.Parameter], Any]) -> None:
        super().__init__()
        self.function, self.weight = function, nn.Parameter(torch.rand(8, 8))
        self.register_buffer("mean", torch.zeros(8))
        self.hidden = torch.rand(8, 8)

    def forward(self, x: Tensor) -> Any:
        return self.function(self, x)


LAYERS = {
    "torch.nn.functional.glu, which native code does not have": nn.GLU(),
    "torch.nn.functional.dropout in training mode": nn.Dropout(0.5),
    "torch.Tensor.add_ on 'trunk.1.num_batches_tracked', expected a forward": nn.BatchNorm1d(8),
    "torch.gru in a way that native code does not have: the rows of a bat": nn.GRU(8, 8),
    "torch.nn.functional.threshold, which": nn.Threshold(0.1, 0.0),
}


@pytest.mark.parametrize("sentence", LAYERS)
def test_an_unknown_layer_is_named(sentence: str) -> None:
    with pytest.raises(SpecError, match=re.escape(f"layer 'trunk.1' calls {sentence}")):
        trace(Trunk(LAYERS[sentence]), 6)


def inner_loop(layer: Any, x: Tensor) -> Tensor:
    return x * 2 if (x > 0).any() else x


def written_by_row(layer: Any, x: Tensor) -> Tensor:
    x[x[:, 0] > 0] = 0.0
    return x


FUNCTIONS: dict[str, Callable[[Any, Tensor], Any]] = {
    "torch.Tensor.any, which native code does not have": inner_loop,
    "torch.Tensor.__bool__, which reads numbers": lambda m, x: x if x[0, 0] else -x,
    "it combines other things than truth": lambda m, x: torch.logical_and(x, x),
    "it negates other things than truth": lambda m, x: x * torch.logical_not(x),
    "it is not called as where(condition, x, y)": lambda m, x: x[torch.where(x > 0)],
    "which numbers it takes depends on others": lambda m, x: x[x > 0],
    "which numbers it writes depends on others": written_by_row,
    "torch.Tensor.item, which reads numbers that differ from step": lambda m, x: x * x[0, 0].item(),
    "torch.Tensor.tolist, which reads": lambda m, x: x * m.weight[0].tolist()[0],
    "torch.Tensor.__float__, which reads": lambda m, x: x * float(m.mean[0]),
    "torch.Tensor.__int__, which reads": lambda m, x: x[:, : int(x[0, 0])],
    "torch.rand_like, which draws random numbers": lambda m, x: x + torch.rand_like(x),
    "torch.nn.functional.dropout in training mode": lambda m, x: nn.functional.dropout(x),
    "torch.nn.functional.rrelu, which draws": lambda m, x: nn.functional.rrelu(x, training=True),
    "torch.randn, which draws random numbers": lambda m, x: x + torch.randn(8),
    "torch.Tensor.lerp_ on 'trunk.1.mean'": lambda m, x: x - m.mean.lerp_(x[0], 0.1),
    "torch.Tensor.add_ on 'trunk.1.mean'": lambda m, x: x - m.mean.add_(1),
    "torch.Tensor.__setitem__ on 'trunk.1.mean'": lambda m, x: m.mean.__setitem__(0, x[0, 0]),
    "torch.tanh with out=": lambda m, x: torch.tanh(x, out=torch.empty_like(x)),
    "torch.Tensor.cumsum, which": lambda m, x: x.cumsum(-1),
    "it computes with several rows of a batch together": lambda m, x: x - x.flip(0),
    "it computes with several rows": lambda m, x: x - x.mean(0),
    "it takes 129 numbers together": lambda m, x: x.repeat(1, 17)[:, :129].sum(1, keepdim=True),
    "its exponent is 2.5": lambda m, x: x**2.5,
    "it makes whole numbers of floats": lambda m, x: x.long().float(),
    "its result is of torch.float16": lambda m, x: x.to(torch.float16),
    "torch.Tensor.half, which native code does not have": lambda m, x: x.half(),
    "its result is of torch.bool": lambda m, x: x * ((x > 0) * (x < 1)),
    "it uses where a maximum or minimum is": lambda m, x: x * x.max(-1).indices[:, None],
    "its weight is computed": lambda m, x: x @ (m.weight * 2),
    "is not in the module's state_dict": lambda m, x: x @ m.hidden,
    "it multiplies by more than one matrix": lambda m, x: x @ m.weight.expand(29, 8, 8),
    "other things than features": lambda m, x: x @ x.t(),
    "it rounds to whole numbers": lambda m, x: torch.div(x, 2, rounding_mode="floor"),
    "torch.Tensor.isnan, which": lambda m, x: torch.where(x.isnan(), 0, x),
    "torch.Tensor.logical_not_": lambda m, x: x.logical_not_(),
    "torch.Tensor.numpy, which reads": lambda m, x: torch.from_numpy(x.numpy()),
}


@pytest.mark.parametrize("sentence", FUNCTIONS)
def test_an_unknown_function_is_named_with_its_layer(sentence: str) -> None:
    with pytest.raises(SpecError, match=re.escape(sentence)) as caught:
        trace(Trunk(Custom(FUNCTIONS[sentence])), 6)
    assert "layer 'trunk.1' calls torch." in str(caught.value)
    assert re.search("engine='torch'|call module.eval\\(\\) first", str(caught.value))


def test_a_refused_module_keeps_its_weights() -> None:
    module = Trunk(Custom(FUNCTIONS["torch.Tensor.add_ on 'trunk.1.mean'"]))
    with pytest.raises(SpecError, match="does not change what is in the state_dict"):
        trace(module, 6)
    assert not module.trunk[1].mean.any()


class Returning(nn.Module):
    """Returns what the test says."""

    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, obs: Tensor) -> Any:
        return self.function(obs)


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        (lambda x: x, "the module returned Tensor, expected a tuple of tensors, (logits, value)"),
        (lambda x: {"logits": x}, "the module returned dict, expected a tuple of tensors"),
        (lambda x: (), "the module returned [], expected a tuple"),
        (lambda x: (x, 1.0), "the module returned ['Tensor', 'float'], expected a tuple"),
        (lambda x: (x, x.argmax(-1)), "calls torch.Tensor.argmax, which native code"),
        (lambda x: (torch.zeros(2, dtype=torch.long), x), "output 0 of the module is of torch.int"),
        (lambda x: (x.t(), x), "its rows are along dimension 1, expected (B, ...)"),
    ],
)
def test_other_outputs_are_refused(function: Callable[[Tensor], Any], sentence: str) -> None:
    with pytest.raises(SpecError, match=re.escape(sentence)):
        trace(Returning(function), 6)


def test_a_module_that_does_not_fit_the_space_is_refused() -> None:
    sentence = r"the module fails for observations of shape \(29, 7\) .* RuntimeError: mat1"
    with pytest.raises(SpecError, match=sentence):
        trace(Trunk(nn.Tanh()), 7)


def test_a_branch_that_cannot_be_seen_is_found_by_comparing() -> None:
    calls: list[int] = []

    def changing(x: Tensor) -> tuple[Tensor, Tensor]:
        calls.append(1)
        return x * len(calls), x.sum(-1)

    with pytest.raises(SpecError, match=r"output 0 of the module differs by [\d.]+ from the same"):
        trace(Returning(changing), 6)


def test_the_number_of_rows_may_not_matter() -> None:
    with pytest.raises(SpecError, match="output 0 of the module differs"):
        trace(Returning(lambda x: (x * len(x), x.sum(-1))), 6)


@pytest.mark.parametrize("layer", [nn.LazyLinear(8), nn.Linear(8, 8, device="meta")], ids=str)
def test_modules_without_numbers_are_refused(layer: nn.Module) -> None:
    with pytest.raises(SpecError, match=r"parameter 'trunk\.1\.weight' has no numbers yet"):
        trace(Trunk(layer), 6)


def test_compiled_modules_are_refused() -> None:
    with pytest.raises(SpecError, match=r"layer 'trunk\.1' is compiled"):
        trace(Trunk(torch.jit.script(nn.Tanh())), 6)
    with pytest.raises(SpecError, match="the module is compiled"):
        trace(torch.compile(Trunk(nn.Tanh())), 6)


@pytest.mark.parametrize("space", [spaces.Dict({"a": spaces.Discrete(2)}), spaces.Text(3)], ids=str)
def test_other_observation_spaces_are_refused(space: gymnasium.Space[Any]) -> None:
    with pytest.raises(SpecError, match="expected Box, Discrete, MultiDiscrete or MultiBinary"):
        trace(Trunk(nn.Tanh()), space)


@pytest.mark.parametrize("take", [lambda w, x: w[x, 0], lambda w, x: w.index_select(0, x)])
def test_numbers_taken_by_the_observation_are_refused(take: Callable[..., Tensor]) -> None:
    class Table(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Parameter(torch.rand(5, 2))

        def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
            return take(self.table, obs), self.table[obs]

    with pytest.raises(SpecError, match="which numbers it takes depends on others"):
        trace(Table(), spaces.Discrete(5))


def test_arithmetic_of_whole_numbers_is_refused() -> None:
    # a sum of bytes would wrap in torch, and not in the program
    space = spaces.Box(0, 255, (6,), np.uint8)
    with pytest.raises(SpecError, match=r"torch.Tensor.add in a way .* whole numbers"):
        trace(Returning(lambda x: (x + 1, x.float())), space)


@pytest.mark.parametrize("register", ["register_forward_hook", "register_forward_pre_hook"])
def test_layers_with_hooks_are_refused(register: str) -> None:
    module = Trunk(nn.Tanh())
    handle = getattr(module.trunk[0], register)(lambda *given: None)
    with pytest.raises(SpecError, match=r"layer 'trunk\.0' has forward hooks"):
        trace(module, 6)
    handle.remove()
    trace(module, 6)


def test_hooks_for_all_modules_are_refused() -> None:
    handle = nn.modules.module.register_module_forward_hook(lambda *given: None)
    try:
        with pytest.raises(SpecError, match="forward hooks for all modules"):
            trace(Trunk(nn.Tanh()), 6)
    finally:
        handle.remove()


def state_of(module: nn.Module) -> dict[str, Any]:
    return {name: tensor.numpy().copy() for name, tensor in module.state_dict().items()}


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_weights_that_are_not_finite_are_refused(value: float) -> None:
    module = Trunk(nn.Tanh())
    program, state = trace(module, 6), state_of(module)
    state["trunk.0.weight"][3, 2] = value
    sentence = "parameter 'trunk.0.weight' has a value that is nan or infinite"
    with pytest.raises(SpecError, match=sentence):
        parameters_of(program, state)
    with torch.no_grad():
        module.trunk[0].weight[0, 0] = value
    with pytest.raises(SpecError, match=sentence):
        trace(module, 6)


def test_weights_of_other_names_or_shapes_are_refused() -> None:
    module = Trunk(nn.Tanh())
    program, state = trace(module, 6), state_of(module)
    with pytest.raises(SpecError, match=r"'trunk.0.bias' has shape \(9,\), expected \(8,\)"):
        parameters_of(program, state | {"trunk.0.bias": np.zeros(9, np.float32)})
    del state["trunk.0.bias"]
    with pytest.raises(SpecError, match=r"parameter 'trunk\.0\.bias' is missing"):
        parameters_of(program, state)
