# SPDX-License-Identifier: Apache-2.0
"""Changes that a forward makes in its own module, such as a running mean.

Native steps would leave them out, so a module that makes such changes is left to torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rollouts.errors import SpecError
from rollouts.support.extras import needs

with needs("torch", "NativeLearner"):
    import torch
    from torch import Tensor, nn
    from torch.nn.parameter import is_lazy

_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.Tensor)


@contextmanager
def put_back_if_refused(module: nn.Module) -> Iterator[None]:
    """Restores a module if the block raises SpecError.

    Reading a module runs its forward, which may change it. After the error, torch trains the module
    as if it had never been read.
    """
    kept = _Kept(module)
    try:
        yield
    except SpecError:
        kept.put_back()
        raise


@contextmanager
def refuse_changes(module: nn.Module) -> Iterator[None]:
    """Raises SpecError if a forward in the block has changed its module.

    Changes of buffers, numbers, strings and tensors of layers are noticed.
    """
    kept = _Kept(module)
    yield
    name = kept.find_changed()
    if name:
        kept.put_back()
        raise SpecError(
            f"forward changes {name}, which native steps would leave as it is: train it with torch"
        )


class _Kept:
    """A record of the buffers and attributes of a module's layers, with copies of tensors."""

    def __init__(self, module: nn.Module) -> None:
        self._places = [
            (f"{name}.".lstrip("."), place, dict(place))
            for name, layer in module.named_modules()
            if not isinstance(layer, torch.jit.ScriptModule)
            for place in (layer._buffers, vars(layer))
        ]
        values = [value for _, _, had in self._places for value in had.values()]
        self._copies: dict[int, tuple[Tensor, Tensor]] = {
            id(each): (each, each.detach().clone())
            for each in values
            if isinstance(each, Tensor) and not is_lazy(each) and not each.is_meta
        }

    def find_changed(self) -> str:
        """The name of what has changed; "" for nothing."""
        for prefix, place, had in self._places:
            for key in {**had, **place}:
                if key not in had or key not in place:
                    is_same = not isinstance(place.get(key, had.get(key)), _PLAIN)
                else:
                    is_same = self._is_same(place[key], had[key])
                if not is_same:
                    return f"{prefix}{key}"
        return ""

    def put_back(self) -> None:
        """Restores the buffers and attributes of each layer."""
        for _, place, had in self._places:
            for key in place.keys() - had.keys():
                del place[key]
            place.update(had)
        for tensor, copied in self._copies.values():
            if tensor.shape != copied.shape:
                tensor.data = copied
            elif not _equal(tensor, copied):
                tensor.data.copy_(copied)

    def _is_same(self, now: Any, had: Any) -> bool:
        if now is had:
            known = self._copies.get(id(had))
            return known is None or _equal(*known)
        if not isinstance(now, _PLAIN) and not isinstance(had, _PLAIN):
            return True
        if isinstance(now, Tensor) or isinstance(had, Tensor) or type(now) is not type(had):
            return False
        return bool(now == had or (now != now and had != had))


def _equal(one: Tensor, other: Tensor) -> bool:
    one = one.detach()
    if one.shape != other.shape:
        return False
    return bool(((one == other) | ((one != one) & (other != other))).all())
