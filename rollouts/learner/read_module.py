# SPDX-License-Identifier: Apache-2.0
"""`ReadModule`: a torch module and the program that computes the same, for rows of numbers."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from numpy.typing import NDArray

from rollouts.errors import SpecError
from rollouts.policies.program import parameters_of
from rollouts.support.extras import needs

with needs("torch", "NativeLearner"):
    from torch import nn

    from rollouts.policies.reading import ModuleReading
    from rollouts.policies.sources import Sources

Array = NDArray[Any]


class ReadModule:
    """A module that was read, with the checks that `NativePolicy` has for a policy's module.

    Attributes:
      reading: The record of reading the module.
      program: The program that computes its outputs.
      sources: Its weights.
    """

    def __init__(self, module: nn.Module, row_size: int) -> None:
        """Reads a module that takes rows (B, row_size).

        Raises:
          SpecError: Native code does not support a layer.
        """
        self.reading = ModuleReading(module, module, row_size)
        self.program, self.sources = self.reading.program, Sources(module)

    def refresh(self) -> None:
        """Reads the module again if values that it reads have changed.

        Raises:
          SpecError: It cannot be read any more, or its results differ.
        """
        if not self.reading.is_as_read():
            self.reading.read()
            self.program, self.sources = self.reading.program, Sources(self.reading.module)

    def agrees(self) -> bool:
        """Tells if the module is as it was read, with the same results."""
        reading = self.reading
        if not reading.is_as_read():
            return False
        if not reading.check.is_due():
            return True
        # `refresh` raises the error of the check
        with suppress(SpecError):
            reading.check.run(self, None)
        return reading.is_as_read()

    def evaluate_rows(self, rows: Array) -> tuple[Array, ...]:
        """Each output (B, size) for rows (B, row_size)."""
        arrays = parameters_of(self.program, self.sources.arrays())
        return self.program.evaluate(arrays, rows)

    def has_weights_of_module(self) -> bool:
        """True, because the object has no weights of its own."""
        return True
