# SPDX-License-Identifier: Apache-2.0
"""`Sources`: which arrays are the module's own memory, and when torch is asked again."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed")

import torch
from torch import nn

from rollouts.errors import SpecError
from rollouts.policies.sources import Sources, tensors_of


def layer() -> nn.Linear:
    made = nn.Linear(3, 2)
    with torch.no_grad():
        made.weight.copy_(torch.arange(6.0).reshape(2, 3))
        made.bias.zero_()
    return made


def with_buffer(tensor: torch.Tensor, *, persistent: bool = True) -> nn.Module:
    module = nn.Module()
    module.register_buffer("x", tensor, persistent=persistent)
    return module


def address(tensor: torch.Tensor) -> int:
    return tensor.data_ptr()


def test_arrays_are_the_modules_memory() -> None:
    module = layer()
    arrays = Sources(module).arrays()
    assert set(arrays) == {"weight", "bias"}
    assert arrays["weight"].ctypes.data == address(module.weight)
    with torch.no_grad():
        module.weight[1, 2] = 50
    assert arrays["weight"].tolist() == [[0, 1, 2], [3, 4, 50]]


def test_a_single_number_stays_one() -> None:
    module = nn.Module()
    module.scale = nn.Parameter(torch.tensor(2.0))
    arrays = Sources(module).arrays()
    assert arrays["scale"].shape == ()
    with torch.no_grad():
        module.scale.fill_(3.0)
    assert Sources(module).arrays()["scale"] == arrays["scale"] == 3.0


def test_torch_is_not_asked_again_while_nothing_moved() -> None:
    module = layer()
    sources = Sources(module)
    first = sources.arrays()
    with torch.no_grad():
        module.weight.add_(1)
    assert sources.arrays() is first


def replace_data(module: nn.Module) -> None:
    # the same Parameter, on other memory
    module.weight.data = torch.full((2, 3), 9.0)


def replace_parameter(module: nn.Module) -> None:
    module.weight = nn.Parameter(torch.full((2, 3), 9.0))


def load(module: nn.Module) -> None:
    state = {"weight": torch.full((2, 3), 9.0), "bias": torch.zeros(2)}
    module.load_state_dict(state, assign=True)


@pytest.mark.parametrize("change", [replace_data, replace_parameter, load])
def test_other_memory_is_noticed(change: Callable[[nn.Module], None]) -> None:
    module = layer()
    sources = Sources(module)
    sources.arrays()
    change(module)
    assert sources.arrays()["weight"].tolist() == [[9, 9, 9], [9, 9, 9]]


def test_another_layer_is_noticed_at_any_depth() -> None:
    module = nn.Sequential(nn.Sequential(layer(), nn.Tanh()))
    sources = Sources(module)
    assert set(sources.arrays()) == {"0.0.weight", "0.0.bias"}
    module[0][0] = nn.Linear(1, 1, bias=False)
    assert {name: array.shape for name, array in sources.arrays().items()} == {"0.0.weight": (1, 1)}


def test_a_parameter_that_is_taken_away_is_noticed() -> None:
    module = layer()
    sources = Sources(module)
    sources.arrays()
    del module.bias
    assert set(sources.arrays()) == {"weight"}


def test_another_buffer_is_noticed() -> None:
    module = with_buffer(torch.zeros(2))
    sources = Sources(module)
    sources.arrays()
    module.x = torch.ones(2)
    assert sources.arrays()["x"].tolist() == [1, 1]


@pytest.mark.parametrize("look", [lambda x: x[:6].view(3, 2).t(), lambda x: x[::2]])
def test_what_is_not_contiguous_is_copied_at_each_look(
    look: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    memory = torch.zeros(8)
    sources = Sources(with_buffer(look(memory)))
    first = sources.arrays()["x"]
    assert first.flags.c_contiguous and first.shape == tuple(look(memory).shape)
    memory.fill_(1)
    assert not first.any()
    assert (sources.arrays()["x"] == 1).all()


def test_one_number_that_stands_for_many_is_read_as_many() -> None:
    number = torch.zeros(1)
    sources = Sources(with_buffer(number.expand(4)))
    assert sources.arrays()["x"].tolist() == [0, 0, 0, 0]
    number.fill_(3)
    assert sources.arrays()["x"].tolist() == [3, 3, 3, 3]


def test_a_contiguous_part_of_a_larger_tensor_is_seen_where_it_lies() -> None:
    whole = torch.arange(12.0).reshape(4, 3)
    array = Sources(with_buffer(whole[1:3])).arrays()["x"]
    assert array.ctypes.data == address(whole) + 12
    whole.mul_(2)
    assert array.tolist() == [[6, 8, 10], [12, 14, 16]]


def test_a_tensor_of_two_names_is_seen_under_both() -> None:
    module = nn.Sequential(layer(), layer())
    module[1].weight = module[0].weight
    arrays = Sources(module).arrays()
    assert arrays["0.weight"].ctypes.data == arrays["1.weight"].ctypes.data
    module[0].register_buffer("x", torch.ones(2))
    module[1].register_buffer("x", module[0].x)
    assert {"0.x", "1.x"} <= set(tensors_of(module))


def test_buffers_that_are_not_saved_are_read_and_not_copied() -> None:
    sources = Sources(with_buffer(torch.ones(2), persistent=False))
    assert sources.arrays()["x"].tolist() == [1, 1]
    assert sources.copy() == {}


def test_tensors_without_numbers_are_left_out() -> None:
    assert tensors_of(with_buffer(torch.zeros(0, 3))) == {}


def test_a_copy_does_not_follow_the_module() -> None:
    module = layer()
    copy = Sources(module).copy()
    with torch.no_grad():
        module.weight.add_(1)
    assert copy["weight"].tolist() == [[0, 1, 2], [3, 4, 5]]


def test_loading_writes_where_the_views_look() -> None:
    module = layer()
    sources = Sources(module)
    views = sources.arrays()
    given = {"weight": np.full((2, 3), 4.0), "bias": np.ones(2, np.float32)}
    sources.load(given)
    assert sources.arrays() is views and (views["weight"] == 4).all()
    given["weight"][:] = 5
    assert (views["weight"] == 4).all()


def test_arrays_that_cannot_be_written_are_loaded() -> None:
    module = layer()
    weight = np.full((2, 3), 4.0, np.float32)
    weight.flags.writeable = False
    Sources(module).load({"weight": weight, "bias": np.ones(2, np.float32)})
    assert (module.weight == 4).all()


@pytest.mark.parametrize("names", [["weight"], ["weight", "bias", "other"]])
def test_other_names_than_the_modules_are_refused(names: list[str]) -> None:
    with pytest.raises(SpecError, match=r"weights lack 'bias'|weights have the unknown 'other'"):
        Sources(layer()).load({name: np.zeros(2) for name in names})
