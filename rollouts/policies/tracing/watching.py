# SPDX-License-Identifier: Apache-2.0
"""`Watcher`: intercepts each torch function that a module calls, and records its result."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode, resolve_name

from rollouts.errors import SpecError
from rollouts.policies.tracing.call import FunctionCall
from rollouts.policies.tracing.choices import CHOICES, TRUTHS, choose
from rollouts.policies.tracing.functions import ARITHMETIC, MOVES
from rollouts.policies.tracing.registers import ROW_BITS, Registers, Tags, Unreadable, without_rows
from rollouts.policies.tracing.storage_tags import StorageTags, tensors

# functions whose results do not depend on a tensor's numbers
_FACTS = {"size", "dim", "ndimension", "numel", "nelement", "len", "stride", "storage_offset"}
_FACTS |= {"element_size", "get_device", "result_type", "is_contiguous", "is_complex"}
_FACTS |= {"is_floating_point"}
# return Python numbers, unlike torch's functions of the same names
_READS = {"__float__", "__int__", "__long__", "__bool__"}
# make tensors of the shape of others
_MAKERS = {"zeros_like", "ones_like", "full_like", "empty_like", "new_zeros", "new_ones"}
_MAKERS |= {"new_full", "new_empty"}
_DRAWS = {"rand", "randn", "randint", "randperm", "normal", "bernoulli", "multinomial", "uniform"}
_DRAWS |= {"rand_like", "randn_like", "randint_like", "exponential", "random", "poisson", "rrelu"}
_TRAINS = {"dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "batch_norm"}
_TRAINS |= {"feature_alpha_dropout", "feature_dropout"}
_FLOATS = (torch.float32, torch.float64)
# compute whole numbers that stay exact
_WHOLE = {"one_hot", "fill", "zero"}


class Watcher(TorchFunctionMode):
    """Runs torch functions as they are, while entered, and keeps their results in `memory`.

    Raises:
      SpecError: A function was called that native code does not support; the message names its
        layer.
    """

    def __init__(self, module: nn.Module, registers: Registers, memory: StorageTags) -> None:
        super().__init__()
        self._names = {id(layer): name for name, layer in module.named_modules()}
        self._registers, self._memory = registers, memory

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Called by torch in place of `func`."""
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        call = FunctionCall(self._registers, self._memory, func, args, kwargs)
        if name.strip("_") in _DRAWS:
            raise SpecError(f"{self._caller(func)}, which draws random numbers; {_STAY}")
        known = [each for each in tensors((args, kwargs)) if self._memory.holds(each)]
        if not known or name in ("__get__", "__set__"):
            return func(*args, **kwargs)
        self._refuse_writes(func, args, kwargs)
        try:
            return self._run(call, name if name in _READS else name.strip("_"), known)
        except Unreadable as error:
            raise SpecError(
                f"{self._caller(func)} in a way that native code does not have: {error}; {_STAY}"
            ) from None

    def _run(self, call: FunctionCall, name: str, known: list[Tensor]) -> Any:
        """Runs a function with known arguments, by its name without underscores at the ends."""
        if name in _TRAINS:
            self._refuse_training(call)
        if name == "setitem":
            return self._set_item(call)
        if name in ARITHMETIC or name == "copy":
            return self._run_known(call, name, known)
        result = call.function(*call.args, **call.kwargs)
        if call.function.__name__ == "detach" and self._is_computed(call):
            # without memory of its own, it would have the tags of what still has a gradient
            return self._note(name, result.clone(), call.unary("detach", call.first), known)
        made = list(tensors(result))
        in_place = call.function.__name__.endswith("_")
        if made and not in_place and all(self._is_view(each, known) for each in made):
            return result
        if name in MOVES:
            return self._note(name, result, MOVES[name](call), known)
        if name in _MAKERS or (not made and name in _FACTS):
            return result
        if not made:
            raise SpecError(
                f"{self._caller(call.function)}, which reads numbers that differ from step to "
                f"step, expected a forward that is the same for all of them; {_STAY}"
            )
        raise SpecError(f"{self._caller(call.function)}, which native code does not have; {_STAY}")

    def _run_known(self, call: FunctionCall, name: str, known: list[Tensor]) -> Any:
        """Runs a function that may write to its arguments, after their tags are read."""
        compute = ARITHMETIC.get(name) or MOVES[name]
        tags = compute(call)
        return self._note(name, call.function(*call.args, **call.kwargs), tags, known)

    def _note(
        self, name: str, result: Any, tags: Tags | tuple[Tags, ...], known: list[Tensor]
    ) -> Any:
        """Keeps the tags of the result, or of each of several results; returns the result."""
        many = isinstance(tags, tuple)
        results, each_tags = (result, tags) if many else ((result,), (tags,))
        _check_dtype(name, results[0], known)
        for tensor, own in zip(results, each_tags, strict=True):
            self._memory.write(tensor, own)
        return result

    def _is_computed(self, call: FunctionCall) -> bool:
        """Tells if the first argument is for each row, and more than a part of the observation."""
        try:
            axis, (ids,) = without_rows(call.first)
        except Unreadable:
            return False
        is_of_rows = axis is not None and bool(((call.first & ROW_BITS) > 0).all())
        return is_of_rows and bool((ids >= self._registers.obs_size).any())

    def _is_view(self, tensor: Tensor, known: list[Tensor]) -> bool:
        return any(
            self._memory.shares(tensor, each) and tensor.dtype == each.dtype for each in known
        )

    def _set_item(self, call: FunctionCall) -> None:
        """Writes to a part of a tensor, and the new tags to the same part of its tags."""
        target, index, value = call.args
        if any(self._memory.holds(each) for each in tensors(index)):
            self._set_where(call, target, index, value)
            return
        tags = torch.from_numpy(self._memory.read(target).copy())
        tags[index] = torch.from_numpy(self._memory.read(value).copy())
        call.function(target, index, value)
        self._memory.write(target, tags.numpy())

    def _set_where(self, call: FunctionCall, target: Tensor, index: Any, value: Any) -> None:
        """Writes a number, or one for each place, where a condition is true."""
        is_mask = isinstance(index, Tensor) and index.dtype == torch.bool
        many = value.numel() if isinstance(value, Tensor) else np.size(value)
        if not is_mask or index.shape != target.shape or many != 1:
            raise Unreadable("which numbers it writes depends on others")
        tags = choose(call, index, value, target)
        call.function(target, index, value)
        self._memory.write(target, tags)

    def _refuse_writes(
        self, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
    ) -> None:
        name = func.__name__
        writes = name == "__setitem__" or (name.endswith("_") and not name.endswith("__"))
        targets = [kwargs.get("out"), args[0] if writes and args else None]
        for target in tensors(targets):
            parameter = self._memory.name_of(target)
            if parameter is not None:
                raise SpecError(
                    f"{self._caller(func)} on {parameter!r}, expected a forward that does not "
                    f"change what is in the state_dict: call module.eval() first; or {_STAY}"
                )
        if kwargs.get("out") is not None:
            raise SpecError(f"{self._caller(func)} with out=, expected a result; {_STAY}")

    def _refuse_training(self, call: FunctionCall) -> None:
        is_norm = call.function.__name__.endswith("norm")
        default = call.kwargs.get("train", not is_norm)
        training = call.value(5 if is_norm else 2, "training", default)
        # dropout with probability 0 passes its argument on
        if training and (is_norm or call.value(1, "p", 0.5)):
            raise SpecError(
                f"{self._caller(call.function)} in training mode, where a row's result depends on "
                "chance or on other rows: call module.eval() first"
            )

    def _caller(self, func: Callable[..., Any]) -> str:
        """Name of the layer that called the function: the innermost one that runs."""
        frame = sys._getframe(1)
        while frame is not None:
            layer = frame.f_locals.get("self")
            if isinstance(layer, nn.Module) and id(layer) in self._names:
                name = self._names[id(layer)]
                who = f"layer {name!r}" if name else f"the module, {type(layer).__name__},"
                return f"{who} calls {_full_name(func)}"
            if frame.f_back is None:
                break
            frame = frame.f_back
        return f"the module calls {_full_name(func)}"


def _check_dtype(name: str, result: Tensor, known: list[Tensor]) -> None:
    if result.dtype in _FLOATS:
        return
    is_truth = result.dtype == torch.bool
    if is_truth and (name in TRUTHS or name in CHOICES or name in MOVES):
        return
    if result.is_floating_point() or is_truth:
        raise Unreadable(f"its result is of {result.dtype}, expected float32")
    if any(each.is_floating_point() for each in known):
        raise Unreadable("it makes whole numbers of floats")
    if name in ARITHMETIC and name not in _WHOLE:
        raise Unreadable("it computes with whole numbers; make them floats first")


def _full_name(func: Callable[..., Any]) -> str:
    return str(resolve_name(func) or getattr(func, "__name__", repr(func)))


_STAY = "use engine='torch'"
