# SPDX-License-Identifier: Apache-2.0
"""The step that reward and termination functions get, and conversion of their results to arrays."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rollouts.errors import DTypeError, SpecError

Array = npt.NDArray[Any]


class Parts(Mapping[str, Array]):
    """Arrays (B, ...) by the names that the options `observation` and `info` list; read-only."""

    __slots__ = ("_arrays",)

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        """Takes the arrays without copies; no other code may write to them any more."""
        self._arrays = arrays
        for array in arrays.values():
            array.flags.writeable = False

    def __getitem__(self, name: str) -> Array:
        """(B, ...) numbers, shaped as in MuJoCo: qpos (B, nq), xpos (B, nbody, 3)."""
        try:
            return self._arrays[name]
        except KeyError:
            pass
        close = difflib.get_close_matches(str(name), self._arrays, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise KeyError(
            f"{name!r} is not among the names that observation and info list: "
            f"{', '.join(self._arrays)}.{hint} Add it to info=[...] to see it here"
        )

    def __iter__(self) -> Iterator[str]:
        """Iterates over the names."""
        return iter(self._arrays)

    def __len__(self) -> int:
        """Counts the names."""
        return len(self._arrays)


@dataclass(frozen=True, slots=True)
class ModelStep:
    """A batch of B rows after a step, for a user's functions.

    All arrays are read-only and valid until the function returns. Rows are those of the batch: in
    env order in synchronous mode, else those of `env_ids`. A row that was no step (`stepped` is
    False, because an episode begins or an environment failed) has its present numbers as previous
    ones, too, and the functions' results for it do not count.

    Attributes:
      now: After the step, by name; `step["qpos"]` is `step.now["qpos"]`.
      previous: Before the step.
      actions: (B, nu) float32, of this step.
      dt: (B,) float64, seconds of a step.
      env_ids: (B,) int32, global ids.
      episode_length: (B,) int32, steps of the episode, including this one.
      stepped: (B,) bool.
    """

    now: Parts
    previous: Parts
    actions: npt.NDArray[np.float32]
    dt: npt.NDArray[np.float64]
    env_ids: npt.NDArray[np.int32]
    episode_length: npt.NDArray[np.int32]
    stepped: npt.NDArray[np.bool_]

    def __getitem__(self, name: str) -> Array:
        """(B, ...) numbers after the step; see `Parts`."""
        return self.now[name]


BatchFunction = Callable[[ModelStep], Any]


def rewards(value: Any, step: ModelStep) -> npt.NDArray[np.float64]:
    """Converts a reward function's result to float64, with 0 in rows that were no step.

    Args:
      value: (B,) numbers: an array, or an object that NumPy converts, such as a torch tensor on the
        CPU.
      step: The argument of the function.

    Raises:
      SpecError: Another shape, or a number that is not finite. DTypeError: Not numbers.
    """
    array = _rows("reward", value, step, "one number")
    if array.dtype.kind not in "fiub":
        raise DTypeError(
            f"reward returned {array.dtype}, expected numbers: float64, float32 or integers"
        )
    found = np.where(step.stepped, array, 0.0).astype(np.float64, copy=False)
    if not np.isfinite(found).all():
        row = int(np.flatnonzero(~np.isfinite(found))[0])
        raise SpecError(
            f"reward returned {found[row]} for env_id {step.env_ids[row]} (row {row}), expected "
            "finite numbers"
        )
    return found


def ends(value: Any, step: ModelStep) -> npt.NDArray[np.bool_]:
    """Converts a termination function's result to bool, with False in rows that were no step.

    Raises:
      SpecError: Not (B,). DTypeError: not bool.
    """
    array = _rows("terminated", value, step, "one bool")
    if array.dtype != np.bool_:
        raise DTypeError(
            f"terminated returned {array.dtype}, expected bool, such as the result of a comparison"
        )
    return array & step.stepped


def _rows(name: str, value: Any, step: ModelStep, what: str) -> Array:
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise DTypeError(
            f"{name} returned {type(value).__name__}, of which NumPy makes no array: {error}"
        ) from error
    expected = step.env_ids.shape
    if array.shape != expected:
        raise SpecError(
            f"{name} returned shape {array.shape}, expected {expected}: {what} for each row of "
            "the batch"
        )
    return array
