# SPDX-License-Identifier: Apache-2.0
"""Observations as a dict: named parts of the flat rows that the native core writes."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from rollouts.batch import StepBatch
from rollouts.errors import SpecError
from rollouts.families.table import family_of
from rollouts.specs import EnvSpec

Array = npt.NDArray[Any]


class ObservationParts:
    """The places of an observation's parts in the flat array."""

    def __init__(
        self,
        flat: spaces.Box,
        parts: tuple[tuple[str, tuple[int, ...]], ...],
        dtypes: tuple[np.dtype[Any], ...] = (),
        bounded: bool = True,
    ) -> None:
        """Lays the parts (name, shape) out one after the other.

        Args:
          flat: Space (D,) of one environment's flat observation, with one bound for all numbers.
          parts: In order; their sizes add up to D, except for gaps between parts of bytes.
          dtypes: Dtypes of the parts, if not all are the observation's.
          bounded: Whether floats among bytes have the bounds of their dtype; else they have none.
        """
        self._flat = flat
        self._bounded = bounded
        self._of_bytes = flat.dtype == np.uint8
        self._places: list[tuple[str, slice, tuple[int, ...], np.dtype[Any]]] = []
        end = 0
        for (name, shape), dtype in zip(
            parts, dtypes or [np.dtype(flat.dtype)] * len(parts), strict=True
        ):
            # a place is counted in elements, or in bytes
            width = dtype.itemsize if self._of_bytes else 1
            first = -(-end // width) * width
            end = first + math.prod(shape) * width
            self._places.append((name, slice(first, end), shape, dtype))

    @classmethod
    def of_pool(cls, specs: Mapping[str, EnvSpec]) -> ObservationParts:
        """Returns the parts that all ids of a pool share.

        Raises:
          SpecError: Observations of an id have no parts, or other parts than those of the first id.
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
        # float parts of ViZDoom's Gymnasium environments have no bounds
        bounded = flat.dtype != np.uint8 or family_of(first.header).drawer == "engine"
        return cls(flat, first.observation_parts, first.observation_part_dtypes, bounded)

    def space(self, rows: int | None = None) -> spaces.Dict:
        """Space of one environment, or of a batch of `rows`; keys in the order of the parts."""
        leading = () if rows is None else (rows,)
        # gymnasium would sort a plain dict
        return spaces.Dict(
            OrderedDict(
                (name, self._part_space((*leading, *shape), dtype))
                for name, _, shape, dtype in self._places
            )
        )

    def _part_space(self, shape: tuple[int, ...], dtype: Any) -> spaces.Box:
        if dtype == self._flat.dtype:
            return spaces.Box(self._flat.low.flat[0], self._flat.high.flat[0], shape, dtype)
        if dtype.kind == "f" and not self._bounded:
            return spaces.Box(-np.inf, np.inf, shape, dtype)
        bounds: Any = np.iinfo(dtype) if dtype.kind in "iu" else np.finfo(dtype)
        return spaces.Box(bounds.min, bounds.max, shape, dtype)

    def split(self, obs: Array) -> dict[str, Array]:
        """(B, D) as {name: (B, *shape)}; views where NumPy can make them.

        A part of several dimensions is a view, too, because each row's elements are neighbours.
        """
        rows = len(obs)
        result = {}
        for name, place, shape, dtype in self._places:
            part = obs[:, place]
            if self._of_bytes:
                part = part.view(dtype)
            result[name] = part if len(shape) == 1 else part.reshape(rows, *shape)
        return result

    def split_row(self, obs: Array) -> dict[str, Any]:
        """(D,) as {name: (*shape,)}."""
        return {name: part[0, ...] for name, part in self.split(obs[None]).items()}

    def split_step(self, obs: Array, info: dict[str, Any]) -> dict[str, Array]:
        """Splits `obs`, and replaces each final observation in a step's `info` by its dict."""
        if "final_obs" in info:
            for row in np.flatnonzero(info["_final_obs"]):
                info["final_obs"][row] = self.split_row(info["final_obs"][row])
        return self.split(obs)

    def split_batch(self, batch: StepBatch) -> StepBatch:
        """Returns the batch with dicts of observations."""
        parts: Any = {"obs": self.split(batch.obs)}
        if batch.final_obs is not None:
            parts["final_obs"] = self.split(batch.final_obs)
        return batch._replace(**parts)
