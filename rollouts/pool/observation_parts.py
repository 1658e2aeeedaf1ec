# SPDX-License-Identifier: Apache-2.0
"""Observations as a dict: named parts of the flat rows that the native core writes."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import numpy.typing as npt
from gymnasium import spaces

from rollouts.errors import SpecError
from rollouts.specs import EnvSpec

Array = npt.NDArray[Any]


class ObservationParts:
    """Where in a flat observation its parts lie."""

    def __init__(self, flat: spaces.Box, parts: tuple[tuple[str, tuple[int, ...]], ...]) -> None:
        """Lays the parts (name, shape) out one after the other.

        Args:
          flat: Space (D,) of one environment's flat observation, with one bound for all numbers.
          parts: In order; their sizes add up to D.
        """
        self._flat = flat
        self._places: list[tuple[str, slice, tuple[int, ...]]] = []
        end = 0
        for name, shape in parts:
            first, end = end, end + math.prod(shape)
            self._places.append((name, slice(first, end), shape))

    @classmethod
    def of_pool(cls, specs: Mapping[str, EnvSpec]) -> ObservationParts:
        """Those that all ids of a pool have.

        Raises:
          SpecError: Observations of an id have no parts, or others than the first one's.
        """
        first, *others = specs.values()
        if not first.observation_parts:
            raise SpecError(
                f"flatten_observation=False is for environments whose observations have named "
                f"parts, such as CheetahRun-v1; those of {first.id} have none"
            )
        for other in others:
            if other.observation_parts != first.observation_parts:
                raise SpecError(
                    f"environments of one pool must have the same parts of observations: "
                    f"{first.id} has {first.observation_parts}, {other.id} has "
                    f"{other.observation_parts}; flat observations may share a pool"
                )
        flat = first.single_observation_space
        assert isinstance(flat, spaces.Box)
        return cls(flat, first.observation_parts)

    def space(self, rows: int | None = None) -> spaces.Dict:
        """Of one environment, or of a batch of `rows`; keys in the order of the parts."""
        leading = () if rows is None else (rows,)
        dtype: Any = self._flat.dtype
        low, high = self._flat.low[0], self._flat.high[0]
        # a plain dict would be sorted
        return spaces.Dict(
            OrderedDict(
                (name, spaces.Box(low, high, (*leading, *shape), dtype))
                for name, _, shape in self._places
            )
        )

    def split(self, obs: Array) -> dict[str, Array]:
        """(B, D) as {name: (B, *shape)}; views where NumPy can make them.

        A part of several dimensions is a view, too: each row's elements are neighbours.
        """
        rows = len(obs)
        return {
            name: obs[:, place] if len(shape) == 1 else obs[:, place].reshape(rows, *shape)
            for name, place, shape in self._places
        }

    def split_row(self, obs: Array) -> dict[str, Any]:
        """(D,) as {name: (*shape,)}."""
        return {name: value[0] for name, value in self.split(obs[None]).items()}
