# SPDX-License-Identifier: Apache-2.0
"""`StorageTags`: the element at each place in the memory of the tensors of a forward pass.

Tags are kept for each storage instead of each tensor, so that views, which share the storage, need
no special treatment, and writes in place are visible to all views.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rollouts.policies.tracing.registers import Registers, Tags, with_rows

# a module's state_dict, or observations, by name
Named = dict[str, Tensor]


class StorageTags:
    """Tags of the storages of parameters, of the inputs and of results computed from them.

    Inputs are the observations and the states, in the order of register 0.
    """

    def __init__(self, registers: Registers, state: Named, *inputs: Tensor) -> None:
        self._registers = registers
        # tags of each known storage by address; a parameter's are made when it is first used
        self._tags: dict[int, Tensor] = {}
        # keeps storages alive, so that their addresses are not reused while the tags exist
        self._kept: list[Tensor] = []
        self._state: dict[int, list[tuple[str, Tensor]]] = {}
        for name, tensor in state.items():
            self._state.setdefault(_address(tensor), []).append((name, tensor))
        elements, first = registers.elements(0), 0
        for each in inputs:
            after = first + each[0].numel()
            self.write(each, with_rows(elements[first:after], tuple(each.shape), 0))
            first = after

    def holds(self, tensor: Tensor) -> bool:
        """Tells if the tensor is a parameter or an input, or is computed from one."""
        address = _address(tensor)
        return address in self._tags or address in self._state

    def name_of(self, tensor: Tensor) -> str | None:
        """The name in the state_dict of the array that shares its memory with the tensor."""
        known = self._state.get(_address(tensor))
        return known[0][0] if known else None

    def read(self, value: Any) -> Tags:
        """The tags of a tensor or number: literals if it depends on no parameter or input."""
        if not isinstance(value, Tensor):
            return with_rows(self._registers.literals(np.array(value)), np.shape(value), None)
        if not self.holds(value):
            numbers = value.detach().cpu().float().numpy()
            return with_rows(self._registers.literals(numbers), numbers.shape, None)
        tags: Tags = self._view(value).numpy()
        return tags

    def write(self, tensor: Tensor, tags: Tags) -> None:
        """Sets the tags of `tensor`'s memory from now on."""
        address = _address(tensor)
        if not tensor.numel():
            return
        if address not in self._tags:
            self._kept.append(tensor)
            self._tags[address] = self._blank(tensor)
        self._view(tensor).copy_(torch.from_numpy(np.array(tags)))

    def shares(self, tensor: Tensor, other: Tensor) -> bool:
        """Tells if both tensors share memory."""
        return bool(tensor.numel()) and _address(tensor) == _address(other)

    def _blank(self, tensor: Tensor) -> Tensor:
        # if only part of a storage is written, its other numbers count as literals
        whole = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        whole = whole.set_(tensor.untyped_storage())
        if whole.numel() == tensor.numel():
            return torch.empty(tensor.numel(), dtype=torch.int64)
        numbers = whole.detach().cpu().float().numpy()
        return torch.from_numpy(with_rows(self._registers.literals(numbers), numbers.shape, None))

    def _view(self, tensor: Tensor) -> Tensor:
        address = _address(tensor)
        if address not in self._tags:
            self._tags[address] = self._tags_of_parameters(address)
        tags = self._tags[address]
        return tags.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())

    def _tags_of_parameters(self, address: int) -> Tensor:
        known = self._state[address]
        itemsize = known[0][1].element_size()
        size = known[0][1].untyped_storage().nbytes() // itemsize
        tags = torch.full((size,), -1, dtype=torch.int64)
        for name, tensor in known:
            view = tags.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())
            # a weight that two layers share gets its name from the first layer
            if (view < 0).any():
                shape = tuple(tensor.shape)
                first = self._registers.add_parameter(name, shape)
                ids = np.arange(first, first + tensor.numel())
                view.copy_(torch.from_numpy(with_rows(ids, shape, None)))
        return tags


def tensors(value: Any) -> Iterator[Tensor]:
    """All tensors in arguments or results, at any depth."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from tensors(each)
    elif isinstance(value, dict):
        yield from tensors(list(value.values()))


def _address(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
