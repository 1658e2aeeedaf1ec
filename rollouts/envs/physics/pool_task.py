# SPDX-License-Identifier: Apache-2.0
"""`PoolTask`: the task of a pool's worlds, as launches over their arrays."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from rollouts.envs.options import Columns
from rollouts.errors import SpecError


class PoolTask(ABC):
    """Starts, rewards, ends, infos and observations of N worlds.

    Attributes:
      frame_skip: Substeps of a step.
      contact_forces: Whether the task reads them.
      after_start: What is computed after a start, before it is observed: "nothing" where positions
        and velocities are enough, "kinematics" for places of bodies, "motion" for velocities and
        forces of actuators too, "forward" for those of contacts and constraints, "unactuated" for
        the same without actuators.
      own_options: Names of the options in which worlds may differ.
      is_suite: Whether it is a task of the DeepMind Control Suite, where derived quantities are
        computed again after a step.
    """

    frame_skip: int
    contact_forces: bool
    after_start: str
    own_options: frozenset[str]
    is_suite: bool = False

    @abstractmethod
    def bind(self) -> None:
        """Reads the addresses of the arrays again, after they may have moved."""

    @abstractmethod
    def start(self, beginning: Any) -> None:
        """Draws positions and velocities of the marked worlds, and sets their clocks."""

    @abstractmethod
    def look(self, marked: Any, *, is_start: bool) -> None:
        """Writes rewards, ends and infos of a step, or the first infos of an episode."""

    @abstractmethod
    def observe(self, marked: Any) -> None:
        """Writes observations."""

    @abstractmethod
    def read_options(self, columns: Columns) -> Any:
        """All options in the form that `put_options` takes.

        Raises:
          SpecError: Values that an option cannot have.
        """

    @abstractmethod
    def put_options(self, read: Any) -> None:
        """Sets what `read_options` returned."""

    def state(self) -> dict[str, Tensor]:
        """Returns arrays that the next step depends on, except worlds, clocks and models."""
        return {}


def one_of_each(options: Mapping[str, Any], own: frozenset[str]) -> dict[str, Any]:
    """Options that are not among `own`, with one value for all worlds.

    Raises:
      SpecError: Environments differ in one.
    """
    others = {name: value for name, value in options.items() if name not in own}
    for name, value in others.items():
        each = value if isinstance(value, list) else [value]
        if any(one != each[0] for one in each):
            raise SpecError(
                f"option {name!r} differs between environments, which one model on a GPU "
                "cannot: give one value, or leave device out"
            )
        others[name] = each[0]
    return others


def column(values: Any, num_envs: int, device: torch.device) -> Tensor:
    """(N,) float64 of one number, or of a list of N."""
    each = values if isinstance(values, list) else [values]
    tensor = torch.tensor([float(one) for one in each], dtype=torch.float64, device=device)
    return tensor.expand(num_envs)
