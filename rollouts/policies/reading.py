# SPDX-License-Identifier: Apache-2.0
"""`ModuleReading`: the program read from a module; checks if it is valid, and reads it again."""

from __future__ import annotations

from typing import Any

import gymnasium
from torch import nn

from rollouts.policies.sources import tensors_of
from rollouts.policies.spot_check import SpotCheck, check_not_misread, is_misread
from rollouts.policies.trace import as_space, trace
from rollouts.policies.tracing.reads import Reads


class ModuleReading:
    """A module and the program that was read from it.

    Attributes:
      program: The program that computes the module's outputs.
      module, space: The module that was read, and the space of its observations.
      check: Compares the program's results with the module's once in a while.
    """

    def __init__(
        self, given: nn.Module, module: nn.Module, space: gymnasium.Space[Any] | int
    ) -> None:
        """Reads a module.

        Args:
          given: The module whose outputs are wanted.
          module: The same, or a module with its outputs in the form of native code.
          space: Space of its observations.

        Raises:
          SpecError: As `trace`; or its results differed from native code's before.
        """
        self.module, self._given, self.space = module, given, as_space(space)
        self.check = SpotCheck(given, module, self.space)
        self.read()

    def read(self) -> None:
        """Reads the module again.

        Raises:
          SpecError: As for the constructor.
        """
        check_not_misread(self._given)
        reads = Reads(self.module, tensors_of(self.module))
        self.program = trace(self.module, self.space, reads)
        self._reads = reads

    def is_as_read(self) -> bool:
        """Tells if all that its forward reads, except weights, is unchanged, and no comparison has
        found a difference."""
        return self._reads.are_as_seen() and not is_misread(self._given)
