# SPDX-License-Identifier: Apache-2.0
"""Wanted: the outputs and returns that a caller asked for, which are `extras` of rollouts."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from rollouts.batch import RolloutBatch
from rollouts.errors import SpecError
from rollouts.policies.output_checks import head_inputs
from rollouts.returns import Gae, Nstep

if TYPE_CHECKING:
    from rollouts.policies.native import NativePolicy

Array = NDArray[Any]
RETURNS = ("advantage", "target")


def check_wanted(outputs: object, returns: object, prefix: str = "") -> None:
    """Raises SpecError where `outputs` are no names or `returns` is not an estimator.

    Args:
      outputs, returns: Arguments of a `Collector`.
      prefix: Prefix of their names in messages, such as "collect.".
    """
    if not (isinstance(outputs, Collection) and all(isinstance(name, str) for name in outputs)):
        raise SpecError(f"{prefix}outputs is {outputs!r}, expected names such as ('entropy',)")
    if returns is not None and not isinstance(returns, Gae | Nstep):
        raise SpecError(f"{prefix}returns is {returns!r}, expected rollouts.returns.Gae or Nstep")


class Wanted:
    """The extras of one policy's rollouts, for native code and torch."""

    def __init__(
        self,
        outputs: Sequence[str],
        returns: Gae | Nstep | None,
        action_space: gymnasium.Space[Any],
    ) -> None:
        """Takes the arguments of a `Collector`.

        Raises:
          SpecError: A policy for this space has no such output, or an output is asked for twice.
        """
        self.outputs = (outputs,) if isinstance(outputs, str) else tuple(outputs)
        self.returns = returns
        self._inputs = head_inputs(action_space)
        self._shape = action_space.shape or ()
        self._sizes: tuple[int, ...] = ()
        known = ("entropy", *self._inputs)
        unknown = [name for name in self.outputs if name not in known]
        if unknown or len({*self.outputs}) < len(self.outputs):
            raise SpecError(
                f"outputs are {list(self.outputs)}, expected some of {list(known)}, each once: a "
                f"policy for {action_space} has no others"
            )

    def check(self, policy: Any, native: NativePolicy | None) -> None:
        """Records who computes: native code, or the policy itself where `native` is None.

        Raises:
          SpecError: The policy cannot return the outputs.
        """
        if native is not None:
            program = native.program
            outputs = program.outputs[: len(self._inputs)]
            self._sizes = tuple(program.sizes[output] for output in outputs)
        elif self.outputs and not hasattr(policy, "extra_outputs"):
            raise SpecError(
                f"outputs={list(self.outputs)} are those of a TorchPolicy, RecurrentTorchPolicy or "
                f"NativePolicy: a {type(policy).__name__} puts what it likes into "
                "PolicyOutput.extras"
            )

    @contextmanager
    def asked_of(self, policy: Any) -> Iterator[None]:
        """Makes `policy.act` return the outputs inside the block."""
        if not self.outputs:
            yield
            return
        before, policy.extra_outputs = policy.extra_outputs, self.outputs
        try:
            yield
        finally:
            policy.extra_outputs = before

    def arrays(self, shape: tuple[int, int]) -> dict[str, Array]:
        """Returns the arrays of these extras that `VectorEnv.collect` writes, of `shape` (T, B)."""
        arrays = {}
        if "entropy" in self.outputs:
            arrays["entropy"] = np.empty(shape, np.float32)
        if any(name in self.outputs for name in self._inputs):
            arrays["inputs"] = np.empty((*shape, sum(self._sizes)), np.float32)
        if self.returns is not None:
            arrays |= {name: np.empty(shape, np.float32) for name in RETURNS}
        return arrays

    def extras(self, arrays: dict[str, Array]) -> dict[str, Array]:
        """Returns the extras in `arrays` by name."""
        extras = {name: arrays[name] for name in RETURNS if name in arrays}
        if "inputs" in arrays:
            parts = np.split(arrays["inputs"], np.cumsum(self._sizes)[:-1], -1)
            extras |= {
                name: self._shaped(part)
                for name, part in zip(self._inputs, parts, strict=True)
                if name in self.outputs
            }
        return {name: arrays[name] for name in self.outputs if name in arrays} | extras

    def complete(self, batch: RolloutBatch) -> None:
        """Adds the returns to a rollout that native code did not write.

        Raises:
          SpecError: The policy was asked for an output and did not return it.
        """
        missing = [name for name in self.outputs if name not in batch.extras]
        if missing:
            raise SpecError(
                f"the policy returned no {missing[0]!r} among its extras, which outputs asks for: "
                "a class of its own must heed extra_outputs, see rollouts.TorchPolicy"
            )
        if self.returns is not None:
            batch.extras.update(zip(RETURNS, self.returns.of(batch), strict=True))

    def _shaped(self, part: Array) -> Array:
        """Logits as they are, numbers of a Box action (T, B, size) in the action's shape."""
        if self._inputs == ("logits",):
            return part
        shape = (*part.shape[:2], int(np.prod(self._shape)))
        # one standard deviation may count for all dimensions
        return np.broadcast_to(part, shape).reshape(*shape[:2], *self._shape).copy()
