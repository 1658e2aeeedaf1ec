# SPDX-License-Identifier: Apache-2.0
"""Decides whether native code or torch makes a library's gradient steps, and keeps the reason."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import nn
from torch.nn.modules import module as torch_module

from rollouts.checks import one_of
from rollouts.collecting.policy_engine import Engine, why_slow
from rollouts.errors import SpecError
from rollouts.learner.gradient_check import check_hooks
from rollouts.learner.loss_learner import LossLearner
from rollouts.learner.module_steps import check_optimizer
from rollouts.learner.side_effects import put_back_if_refused


class NativeTrainer(Protocol):
    """Gradient steps of networks that native code has read."""

    def is_as_read(self) -> bool:
        """Returns True while the networks are those that were read."""


Made = TypeVar("Made", bound=NativeTrainer)


@dataclass(frozen=True, slots=True)
class Networks:
    """The parts of an algorithm that a trainer is made of.

    Attributes:
      module: All networks, with their layers.
      optimizers: The optimisers of their parameters.
      others: Further objects or numbers; a trainer is made anew where one of them is replaced.
    """

    module: nn.Module
    optimizers: Sequence[torch.optim.Optimizer]
    others: tuple[Any, ...] = ()


class TrainerReader(Generic[Made]):
    """An algorithm's networks for native code, read again when they are replaced.

    Attributes:
      engine: The engine of the last steps: "native" or "torch"; "" before the first.
      why_not: The reason why torch made them; "" where it did not.
    """

    def __init__(self) -> None:
        self.engine, self.why_not = "", ""
        self._made: Made | None = None
        self._seen: tuple[Any, ...] = ()
        self._refusal = _Refusal()

    def __reduce__(self) -> Any:
        """Pickles as a new reader: a copied algorithm has its own networks, which are read anew."""
        return TrainerReader, ()

    def choose(
        self,
        wanted: str,
        find_reason: Callable[[], str],
        find_networks: Callable[[], Networks],
        make: Callable[[], Made],
    ) -> Made | None:
        """Returns the trainer of the next steps; None where the algorithm's own code makes them.

        Args:
          wanted: The algorithm's train_engine.
          find_reason: Names what native code cannot train; "" for nothing. Called each time.
          find_networks: Returns the networks to read; called where there is no such reason.
          make: Reads the networks.

        Raises:
          SpecError: `wanted` is no engine, or it is "native" and native code cannot train.
        """
        one_of("train_engine", wanted, ("auto", "native", "torch"))
        made: Made | None = None
        why_not = "train_engine='torch' was asked for" if wanted == "torch" else find_reason()
        if not why_not and wanted == "auto":
            why_not = why_slow()
        if not why_not:
            made, why_not = self._read(find_networks(), make, must=wanted == "native")
        if why_not:
            self.give_up(wanted, SpecError(why_not))
        else:
            self.engine, self.why_not = "native", ""
        return made

    def give_up(self, wanted: str, error: SpecError) -> None:
        """Leaves steps to torch; raises SpecError where native code has to make them."""
        if wanted == "native":
            raise SpecError(f"train_engine='native' is not possible: {error}") from error
        self.engine, self.why_not = "torch", str(error)

    def _read(
        self, networks: Networks, make: Callable[[], Made], *, must: bool
    ) -> tuple[Made | None, str]:
        module, optimizers = networks.module, networks.optimizers
        seen = (module, *module.modules(), *optimizers, *networks.others)
        try:
            # the checks that take microseconds come first
            for each in optimizers:
                check_optimizer(each)
            if self._seen == seen and self._made and self._made.is_as_read():
                return self._made, ""
            for each in optimizers:
                check_hooks(module, [*module.parameters()], each)
        except SpecError as error:
            return None, str(error)
        refusal = self._refusal
        if refusal.stands((seen, *_settings_of(module, optimizers))) and not must:
            return None, refusal.why_not
        self._seen, self._made = seen, None
        try:
            # layers such as dropout draw random numbers while they are read
            with put_back_if_refused(module), torch.random.fork_rng(devices=[]):
                self._made = make()
        except SpecError as error:
            refusal.why_not = str(error)
            return None, refusal.why_not
        self._refusal = _Refusal()
        return self._made, ""


class ReadsTrainer(Generic[Made]):
    """A mixin to list before a library's algorithm or learner: gradient steps in native code.

    Attributes:
      train_engine: Maker of gradient steps: "native", "torch", or "auto": native code where that is
        possible.
    """

    train_engine: Engine = "auto"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Takes its base's arguments. Raises SpecError for an unknown train_engine."""
        one_of("train_engine", self.train_engine, ("auto", "native", "torch"))
        super().__init__(*args, **kwargs)
        self._reader: TrainerReader[Made] = TrainerReader()

    @property
    def learner_engine(self) -> str:
        """The engine of the last gradient steps: "native" or "torch"; "" before the first."""
        return self._reader.engine

    @property
    def why_not_native_learner(self) -> str:
        """The reason why torch made the last gradient steps; "" where it did not."""
        return self._reader.why_not


class _Refusal:
    """The reason why networks were not read, which saves vain reading at each step.

    They are read again when their settings differ, and otherwise at the second call, the fourth,
    the eighth and so on, because a forward may depend on anything.
    """

    def __init__(self) -> None:
        self.why_not = ""
        self._settings: Any = None
        self._num_asked, self._next = 0, 1

    def stands(self, settings: Any) -> bool:
        """Returns True until it is time to read networks of these settings again."""
        if settings != self._settings:
            self._settings, self._num_asked, self._next = settings, 0, 1
        self._num_asked += 1
        if self._num_asked < self._next:
            return True
        self._next *= 2
        return False


def _settings_of(module: nn.Module, optimizers: Sequence[torch.optim.Optimizer]) -> tuple[Any, ...]:
    """Settings that often decide whether native code trains a module; read in microseconds."""
    layers = [(each.training, has_hooks(each)) for each in module.modules()]
    tensors = [(id(each), each.requires_grad) for each in module.parameters()]
    groups = [
        [id(tensor) for tensor in group["params"]]
        for each in optimizers
        for group in each.param_groups
    ]
    return layers, tensors, groups


def are_as_read(*learners: LossLearner) -> bool:
    """Returns True while the learners' networks are those that were read."""
    try:
        for each in learners:
            each.check()
    except SpecError:
        return False
    return True


def has_hooks(module: nn.Module) -> bool:
    """Returns True where calling a module does more than its forward, as nn.Module checks it."""
    return bool(
        module._forward_hooks
        or module._forward_pre_hooks
        or torch_module._global_forward_hooks
        or torch_module._global_forward_pre_hooks
        or "forward" in module.__dict__
        or getattr(module, "_compiled_call_impl", None) is not None
    )


def own_method(given: Any, base: type, names: Sequence[str]) -> str:
    """The first method that the object's class overrides; "" for none."""
    # Ray wraps all methods of a class that becomes an actor, and keeps the original class
    cls = getattr(type(given), "__ray_actor_class__", type(given))
    for name in names:
        if name in vars(given) or getattr(cls, name, None) is not getattr(base, name, None):
            return name
    return ""
