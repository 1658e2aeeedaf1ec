# SPDX-License-Identifier: Apache-2.0
"""`ModuleSteps`: changes of a module's parameters and an optimiser's state by native code."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from rollouts.checks import whole_number
from rollouts.errors import SpecError
from rollouts.learner.gradient_check import check_gradients, check_hooks
from rollouts.learner.read_module import ReadModule
from rollouts.learner.side_effects import put_back_if_refused, refuse_changes
from rollouts.learner.update_turns import UpdateTurns
from rollouts.policies.native import NativePolicy
from rollouts.policies.program import Param
from rollouts.support.extras import needs

with needs("torch", "NativeLearner"):
    import torch
    from torch import Tensor

Array = NDArray[Any]
View = tuple[int, int, list[int], list[int]]
Kept = tuple[Array | None, Array, int, dict[str, Any]]
Source = tuple[Array, Kept | None]
Average = Callable[[NDArray[np.float32]], None]

_KINDS: dict[str, type[torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "rmsprop": torch.optim.RMSprop,
    "sgd": torch.optim.SGD,
}
_SB3 = "stable_baselines3.common.sb2_compat.rmsprop_tf_like"


class _Counting(Protocol):
    @property
    def num_steps(self) -> int: ...


Native = TypeVar("Native", bound=_Counting)
Found = TypeVar("Found")


class ModuleSteps(ABC, Generic[Native]):
    """Gradient steps of a module that was read, on its own memory.

    Parameters and the state of torch's Adam, AdamW, RMSprop or SGD are changed in place.
    """

    def __init__(
        self,
        policy: NativePolicy | ReadModule,
        optimizer: torch.optim.Optimizer,
        num_threads: int,
        average: Average | None,
    ) -> None:
        """Checks the module and the optimiser.

        Args:
          policy: The module that was read.
          optimizer: As for `NativeLearner`.
          num_threads: Threads that share a large minibatch.
          average: As for `NativeLearner`.

        Raises:
          SpecError: As `NativeLearner`.
        """
        if not (average is None or callable(average)):
            raise SpecError(f"average is {average!r}, expected a function of an array, or None")
        self._average = average
        self._policy, self._optimizer, self._num_threads = policy, optimizer, num_threads
        self._num_steps, self._turns = 0, UpdateTurns()
        self._program = policy.program
        whole_number("num_threads", num_threads, 1, 4096)
        tensors = policy.sources.tensors()
        self._named = {param.name: tensors[param.name] for param in policy.program.params}
        self._shapes = {name: each.shape for name, each in self._named.items()}
        # a tensor with several names in the module counts once
        self._tensors = list({id(each): each for each in self._named.values()}.values())
        self._places = {id(each): place for place, each in enumerate(self._tensors)}
        with put_back_if_refused(policy.sources.module):
            self._check_module()
            _rules(optimizer)
            trained = self._find_trained()
            self._check_gradients(trained)
        self._remake(trained)

    @abstractmethod
    def _make(self, trained: list[bool], views: list[View]) -> Native:
        """Makes the native learner for these parameters of the program."""

    def _check(self) -> None:
        """Raises SpecError if the module is no longer the one that was read."""
        self._check_module()
        trained = self._find_trained()
        if [id(each) for each in trained] != [id(each) for each in self._trained]:
            self._check_gradients(trained)
            self._remake(trained)

    def _step(
        self,
        update: Callable[[list[Source], float | None], Found],
        timeout_s: float | None = None,
        params: Collection[int] | None = None,
    ) -> tuple[Found, int]:
        """Returns the result of `update`, and the number of gradient steps that it made.

        Args:
          update: Makes the steps, within the seconds that are left after waiting for this thread's
            turn.
          timeout_s: Seconds for waiting and steps together.
          params: Parameters of the program that the loss depends on; the others stay unchanged, as
            with torch's optimisers for parameters without a gradient. None: all.
        """
        with self._turns.take(timeout_s) as left_s:
            return self._step_now(lambda sources: update(sources, left_s), params)

    def _step_now(
        self, update: Callable[[list[Source]], Found], params: Collection[int] | None
    ) -> tuple[Found, int]:
        trained = self._trained
        if params is not None:
            reached = {id(self._named[self._program.params[place].name]) for place in params}
            trained = [each for each in trained if id(each) in reached]
        state = {id(each): self._state(each) for each in trained}
        rules = _rules(self._optimizer)
        sources = [
            (each.detach().numpy(), _kept(each, state.get(id(each)), rules.get(id(each))))
            for each in self._tensors
        ]
        made_before = self._native.num_steps
        try:
            found = update(sources)
        finally:
            # includes steps before a minibatch that was refused
            made = self._native.num_steps - made_before
            self._num_steps += made
            if made:
                # torch's schedulers of learning rates check this
                self._optimizer._opt_called = True  # type: ignore[attr-defined]
            for each in state.values():
                _count(each, made)
            # as with torch's in-place operations, autograd then refuses tensors that it saved
            # before
            torch.autograd.graph.increment_version(trained)
        return found, made

    @property
    def num_steps(self) -> int:
        """Gradient steps made; an update that raised may have made some."""
        return self._num_steps

    @property
    def why_not_native(self) -> str:
        """The reason why native code cannot make the next update, in the module, its memory or the
        optimiser; "" for none. A program that can use torch instead reads it before each update.
        """
        try:
            self._check()
            _rules(self._optimizer)
        except SpecError as error:
            return str(error)
        return ""

    def is_as_read(self) -> bool:
        """Tells if the module is unchanged since it was read, in memory that can be changed."""
        with suppress(SpecError):
            self._check_module()
            return True
        return False

    def _check_module(self) -> None:
        """Checks that native code still reads and writes the module's own memory."""
        again = "make another NativePolicy and NativeLearner of it"
        check_hooks(self._policy.sources.module, self._tensors, self._optimizer)
        is_read_again = not self._policy.agrees()
        if is_read_again:
            # the program may still be the same, if only other objects that the module reads changed
            self._policy.refresh()
            if self._policy.program != self._program:
                raise SpecError(f"the module has changed since it was read: {again}")
        now = self._policy.sources.tensors()
        for name, tensor in self._named.items():
            if now.get(name) is not tensor or tensor.shape != self._shapes[name]:
                raise SpecError(f"{name} is another tensor than the one that was read: {again}")
            if tensor.device.type != "cpu" or tensor.dtype != torch.float32:
                raise SpecError(
                    f"{name} is {tensor.dtype} on {tensor.device}, expected float32 on the CPU"
                )
            if not tensor.is_contiguous():
                raise SpecError(
                    f"{name} has strides {tensor.stride()}, expected a tensor that is contiguous"
                )
        if is_read_again:
            self._check_gradients(self._find_trained())

    def _check_gradients(self, trained: list[Tensor]) -> None:
        with refuse_changes(self._policy.sources.module):
            check_gradients(self._policy, self._named, trained)

    def _find_trained(self) -> list[Tensor]:
        """The tensors that the optimiser changes; frozen ones are not among them."""
        held = {id(each) for group in self._optimizer.param_groups for each in group["params"]}
        trained = [each for each in self._tensors if id(each) in held and each.requires_grad]
        if not trained:
            raise SpecError(
                "the optimiser has no parameter of the module that requires a gradient, expected "
                "one or more"
            )
        return trained

    def _remake(self, trained: list[Tensor]) -> None:
        self._trained = trained
        ids = {id(each) for each in trained}
        params = self._program.params
        self._native = self._make(
            [id(self._named[param.name]) in ids for param in params],
            [self._view(param) for param in params],
        )

    def _view(self, param: Param) -> View:
        place = self._places[id(self._named[param.name])]
        return place, param.start, list(param.shape), list(param.strides)

    def _state(self, tensor: Tensor) -> dict[str, Any]:
        """The optimiser's state of a parameter, initialised like torch's before the first step."""
        kind = _kind_of(self._optimizer)
        if kind == "sgd":
            return self._momentum(tensor)
        state: dict[str, Any] = self._optimizer.state[tensor]
        if state:
            return state
        state["step"] = 0 if kind == "rmsprop_tf" else torch.tensor(0.0)
        if kind.startswith("adam"):
            state["exp_avg"] = torch.zeros_like(tensor)
            state["exp_avg_sq"] = torch.zeros_like(tensor)
        elif kind == "rmsprop":
            state["square_avg"] = torch.zeros_like(tensor)
        else:
            state["square_avg"] = torch.ones_like(tensor)
        return state

    def _momentum(self, tensor: Tensor) -> dict[str, Any]:
        """The state of SGD: a buffer of 0 for torch's first step, or no state without momentum."""
        groups = self._optimizer.param_groups
        if not any(each is tensor and g["momentum"] for g in groups for each in g["params"]):
            return {}
        state: dict[str, Any] = self._optimizer.state[tensor]
        if state.get("momentum_buffer") is None:
            state["momentum_buffer"] = torch.zeros_like(tensor)
        return state


def check_optimizer(optimizer: torch.optim.Optimizer) -> None:
    """Raises SpecError for an optimiser, or settings, that native code does not support."""
    _rules(optimizer)


def _count(state: dict[str, Any], made: int) -> None:
    """Adds the steps that were made to an optimiser's count, in place where it is a tensor."""
    step = state.get("step")
    if isinstance(step, Tensor) and step.is_cpu:
        # NumPy adds in the tensor's memory, because torch's dispatch costs microseconds
        step = step.numpy()
        step += made
    elif step is not None:
        step += made
        state["step"] = step


def _kept(tensor: Tensor, state: dict[str, Any] | None, rule: dict[str, Any] | None) -> Kept | None:
    """The part of an optimiser's state that native code changes, and its rule; None: none."""
    if state is None or rule is None:
        return None
    if "exp_avg" in state:
        arrays = state["exp_avg"].numpy(), state["exp_avg_sq"].numpy()
    elif rule["kind"] in ("sgd", "nesterov"):
        # without momentum torch keeps no buffer, so a temporary one takes its place
        buffer = state.get("momentum_buffer")
        arrays = None, (torch.zeros_like(tensor) if buffer is None else buffer).detach().numpy()
    else:
        arrays = None, state["square_avg"].numpy()
    return *arrays, int(state.get("step", 0)), rule


def _rules(optimizer: torch.optim.Optimizer) -> dict[int, dict[str, Any]]:
    """The settings of each tensor's group, by the tensor's id.

    Raises:
      SpecError: Native code does not support the optimiser or its settings.
    """
    kind = _kind_of(optimizer)
    rules: dict[int, dict[str, Any]] = {}
    for group in optimizer.param_groups:
        for name in ("amsgrad", "maximize", "centered", "momentum", "dampening", "differentiable"):
            if group.get(name) and not (kind == "sgd" and name == "momentum"):
                raise SpecError(f"the optimiser has {name}={group[name]}, which is not native")
        rule: dict[str, Any] = {name: float(group[name]) for name in ("lr", "weight_decay")}
        shares = (0.0, group["momentum"] if kind == "sgd" else group.get("alpha"))
        first, second = group.get("betas", shares)
        rule |= {"beta1": float(first), "beta2": float(second), "kind": kind}
        rule["eps"] = float(group.get("eps", 0.0))
        if group.get("nesterov"):
            rule["kind"] = "nesterov"
        if "decoupled_weight_decay" in group:
            # torch's AdamW is Adam with this setting
            rule["kind"] = "adamw" if group["decoupled_weight_decay"] else "adam"
        rules |= {id(each): rule for each in group["params"]}
    return rules


def _kind_of(optimizer: torch.optim.Optimizer) -> str:
    for name, kind in _KINDS.items():
        if type(optimizer) is kind:
            return name
    # a class of Stable-Baselines3, which may not be installed
    if type(optimizer).__qualname__ == "RMSpropTFLike" and type(optimizer).__module__ == _SB3:
        return "rmsprop_tf"
    raise SpecError(
        f"the optimiser is {type(optimizer).__name__}, expected torch.optim.Adam, AdamW, "
        "RMSprop or SGD, or Stable-Baselines3's RMSpropTFLike"
    )
