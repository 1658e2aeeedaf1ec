# SPDX-License-Identifier: Apache-2.0
"""`LossLearner`: gradient steps of a loss of rows in native code; target networks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollouts import _native
from rollouts.errors import SpecError
from rollouts.learner.module_steps import Average, ModuleSteps, View
from rollouts.learner.native_learner import ClipBy
from rollouts.learner.read_module import ReadModule
from rollouts.learner.row_losses import RowLoss
from rollouts.learner.side_effects import put_back_if_refused
from rollouts.support.extras import needs

with needs("torch", "LossLearner"):
    import torch
    from torch import Tensor, nn

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class LossFound:
    """Results of a gradient step, computed with the weights before it.

    Attributes:
      loss: Mean over the rows.
      grad_norm: Norm of all gradients before they were clipped.
      outputs: (B, n) The loss's outputs of each row.
    """

    loss: float
    grad_norm: float
    outputs: NDArray[np.float32]


class LossLearner(ModuleSteps[_native.RowLossLearner]):
    """Gradient steps of a `RowLoss`, by its optimiser's formula and on the networks' own memory.

    What `NativeLearner` promises about memory, gradients and threads holds here, too.
    """

    def __init__(
        self,
        loss: RowLoss,
        optimizer: torch.optim.Optimizer,
        num_threads: int = 1,
        average: Average | None = None,
    ) -> None:
        """Reads the loss's computation, and the parameters that the optimiser changes.

        Args:
          loss: Loss whose networks are trained.
          optimizer: As for `NativeLearner`; parameters that it does not hold stay unchanged.
          num_threads: Threads that share a large batch.
          average: As for `NativeLearner`.

        Raises:
          SpecError: As `NativeLearner`; or the optimiser holds a parameter of a network that this
            loss must not train.
        """
        self._loss = loss
        with put_back_if_refused(loss):
            super().__init__(ReadModule(loss, loss.row_size), optimizer, num_threads, average)

    def update(
        self,
        parts: Mapping[str, Array],
        *,
        max_grad_norm: float | None = None,
        clip_by: ClipBy = "all",
        timeout_s: float | None = None,
    ) -> LossFound:
        """Makes a gradient step.

        Args:
          parts: The parts of the loss's rows, (B, ...) each.
          max_grad_norm, clip_by, timeout_s: As for `NativeLearner.update`.

        Raises:
          SpecError, TimeoutError, KeyboardInterrupt: As `NativeLearner.update`.
        """
        self.check()
        return self.step(parts, max_grad_norm=max_grad_norm, clip_by=clip_by, timeout_s=timeout_s)

    def check(self) -> None:
        """Checks the module and the optimiser, as `update` does.

        Raises:
          SpecError: The module is no longer the one that was read.
        """
        self._check()

    def step(
        self,
        parts: Mapping[str, Array],
        *,
        max_grad_norm: float | None = None,
        clip_by: ClipBy = "all",
        timeout_s: float | None = None,
    ) -> LossFound:
        """Does an `update` without its check; nothing may have changed since `check` or `step`."""
        rows = self._loss.rows(parts)
        (loss, norm, outputs), _ = self._step(
            lambda sources, left_s: self._native.update(
                sources, rows, max_grad_norm, clip_by, left_s, self._average
            ),
            timeout_s,
        )
        return LossFound(loss, norm, outputs)

    def compute(self, parts: Mapping[str, Array]) -> LossFound:
        """Computes the gradients of a `step`, but leaves the weights until `apply`.

        In this way, several learners can compute gradients with the same weights.
        """
        rows = self._loss.rows(parts)
        (loss, norm, outputs), _ = self._step(
            lambda sources, _: self._native.compute(sources, rows, None, self._average)
        )
        return LossFound(loss, norm, outputs)

    def apply(self, *, max_grad_norm: float | None = None, clip_by: ClipBy = "all") -> None:
        """Makes the step of the last `compute`.

        Raises:
          SpecError: There was no `compute` since the last step.
        """
        self._step(lambda sources, _: self._native.apply(sources, max_grad_norm, clip_by))

    def _find_trained(self) -> list[Tensor]:
        trained = super()._find_trained()
        fixed = {id(each) for module in self._loss.fixed for each in module.parameters()}
        if any(id(each) in fixed for each in trained):
            raise SpecError(
                "the optimiser holds a parameter of a network that this loss takes as given, such "
                "as a target: expected the trained networks' own"
            )
        return trained

    def _make(self, trained: list[bool], views: list[View]) -> _native.RowLossLearner:
        program = self._program
        return _native.RowLossLearner(
            program.obs_size,
            *program.described(),
            list(program.outputs),
            views,
            trained,
            self._num_threads,
        )


class TargetNetwork:
    """Moves a target network's parameters towards those of another network, in place."""

    def __init__(self, network: nn.Module, target: nn.Module) -> None:
        """Takes networks with the same parameters in the same order.

        Raises:
          SpecError: Their parameters differ, or are not contiguous float32 tensors on the CPU.
        """
        self._network, self._target = network, target
        self._pairs()

    def move(self, share: float) -> None:
        """Keeps the share 1 - `share` of the target; 1 copies the network.

        Raises:
          SpecError: As for the constructor.
        """
        pairs = self._pairs()
        _native.move_towards(
            [source.detach().numpy() for source, _ in pairs],
            [target.detach().numpy() for _, target in pairs],
            share,
        )
        torch.autograd.graph.increment_version([target for _, target in pairs])

    def _pairs(self) -> list[tuple[Tensor, Tensor]]:
        sources, targets = [*self._network.parameters()], [*self._target.parameters()]
        if [each.shape for each in sources] != [each.shape for each in targets]:
            raise SpecError("the target network has other parameters than the network")
        for each in (*sources, *targets):
            is_plain = each.device.type == "cpu" and each.dtype == torch.float32
            if not is_plain or not each.is_contiguous():
                raise SpecError(
                    f"a parameter is {each.dtype} on {each.device} with strides {each.stride()}, "
                    "expected float32 on the CPU, contiguous"
                )
        return list(zip(sources, targets, strict=True))
