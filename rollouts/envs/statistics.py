# SPDX-License-Identifier: Apache-2.0
"""Running statistics of observations and rewards, which pools and workers share."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rollouts import _native
from rollouts.checks import flag
from rollouts.envs.wrappers import Wrappers
from rollouts.errors import SpecError

Float32s = npt.NDArray[np.float32]
Float64s = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class RunningStatistics:
    """Mean and variance of the rows that were counted.

    Attributes:
      mean, var: (*shape,) float64; var is the mean squared difference from the mean.
      count: The number of rows. A pool's count begins at 1e-4, with mean 0 and var 1, as in
        Gymnasium.
    """

    mean: Float64s
    var: Float64s
    count: float

    def scale(self, epsilon: float) -> tuple[Float32s, Float32s]:
        """Returns the mean and the divisor of differences from it, both (*shape,)."""
        deviation = np.sqrt(self.var + epsilon)
        return self.mean.astype(np.float32), deviation.astype(np.float32)

    def merged(self, more: RunningStatistics) -> RunningStatistics:
        """Merges two statistics; `more` may have counted nothing.

        Raises:
          SpecError: Their shapes differ.
        """
        if self.mean.shape != more.mean.shape:
            raise SpecError(
                f"statistics of the shapes {self.mean.shape} and {more.mean.shape} have nothing "
                "in common: they are of other observations"
            )
        total = self.count + more.count
        if total == 0:
            return self
        apart = more.mean - self.mean
        squares = (
            self.var * self.count
            + more.var * more.count
            + np.square(apart) * self.count * more.count / total
        )
        return RunningStatistics(self.mean + apart * more.count / total, squares / total, total)

    def state_dict(self) -> dict[str, Any]:
        """Plain lists and numbers, which any checkpoint format can hold."""
        return {
            "shape": list(self.mean.shape),
            "mean": self.mean.ravel().tolist(),
            "var": self.var.ravel().tolist(),
            "count": float(self.count),
        }

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> RunningStatistics:
        """Reads what `state_dict` returned.

        Raises:
          SpecError: `state` is something else.
        """
        try:
            shape = tuple(state["shape"])
            mean, var = (np.reshape(np.float64(state[name]), shape) for name in ("mean", "var"))
            return cls(mean, var, float(state["count"]))
        except (KeyError, TypeError, ValueError) as error:
            raise SpecError(
                f"state is no result of RunningStatistics.state_dict ({error}): {state!r}"
            ) from None


def checked(name: str, given: object, shape: tuple[int, ...]) -> RunningStatistics:
    """Statistics from which a pool can continue, in float64 and C order.

    Raises:
      SpecError: Another type or shape, or numbers that no data can give.
    """
    if not isinstance(given, RunningStatistics):
        raise SpecError(f"{name} must be a RunningStatistics, got {given!r}")
    mean, var = (np.asarray(one, np.float64, order="C") for one in (given.mean, given.var))
    if mean.shape != shape or var.shape != shape:
        raise SpecError(
            f"{name} has mean {mean.shape} and var {var.shape}, expected {shape}: the shape of an "
            "observation, or () of rewards"
        )
    if not (np.isfinite(mean).all() and np.isfinite(var).all() and (var >= 0).all()):
        raise SpecError(f"{name} must have a finite mean and a finite var of at least 0")
    count = float(given.count)
    if not (math.isfinite(count) and count > 0):
        raise SpecError(f"{name} must have a finite count above 0, got {given.count!r}")
    return RunningStatistics(mean, var, count)


def carry_statistics(source: Any, to: Any) -> None:
    """Makes an environment scale as `source` does, and count only if `source` counts."""
    for kind in source.normalizes:
        setattr(to, f"{kind}_statistics", getattr(source, f"{kind}_statistics"))
        to.update_statistics = source.update_statistics


@contextmanager
def frozen(env: Any) -> Iterator[None]:
    """Keeps an environment from counting rows within a block; nothing may be in flight."""
    if not getattr(env, "update_statistics", False):
        yield
        return
    env.update_statistics = False
    try:
        yield
    finally:
        env.update_statistics = True


class NormalizerStatistics:
    """The running statistics of a native pool, by kind: "observation" and "reward".

    Attributes:
      kinds: The statistics that the pool keeps: both, one or none.
    """

    def __init__(self, pool: _native.CpuPool, wrappers: Wrappers, shape: tuple[int, ...]) -> None:
        """Takes the pool, whose observations have this shape."""
        self._pool, self._shape = pool, shape
        kept = {
            "observation": wrappers.normalize_observation,
            "reward": wrappers.normalize_reward,
        }
        self.kinds = tuple(kind for kind, is_kept in kept.items() if is_kept)

    def read(self, kind: str, *, fresh: bool = False) -> RunningStatistics:
        """The present statistics, or those of the rows counted since the last `fresh` read.

        Raises:
          SpecError: The pool keeps none of this kind. ClosedError: It was closed.
        """
        mean, var, count = self._pool.read_statistics(kind, fresh)
        shape = self._shape_of(kind)
        return RunningStatistics(mean.reshape(shape), var.reshape(shape), count)

    def take_new(self) -> dict[str, RunningStatistics]:
        """Statistics of the rows counted since the last call, by kind, for each kind that is kept.

        Several pools share statistics in this way: the new statistics of each pool are `merged`
          into common ones, which all pools get. Counts begin at 0.
        """
        return {kind: self.read(kind, fresh=True) for kind in self.kinds}

    def replace(self, kind: str, statistics: object) -> None:
        """Replaces the statistics of a kind.

        Raises:
          SpecError: As `read`, or they do not fit. ProtocolError: The statistics are frozen, and
            environments are in flight.
        """
        self._pool.read_statistics(kind, False)  # raises where there are none
        good = checked(f"{kind}_statistics", statistics, self._shape_of(kind))
        self._pool.set_statistics(kind, good.mean.ravel(), good.var.ravel(), good.count)

    @property
    def are_updated(self) -> bool:
        """True while batches are counted."""
        return bool(self.kinds) and self._pool.updates_statistics

    def update(self, updates: bool) -> None:
        """Starts or stops counting batches.

        Raises:
          SpecError: `updates` is no bool, or the pool keeps none. ProtocolError: Environments are
            in flight.
        """
        if not self.kinds:
            raise SpecError(
                "there are no statistics: give make_vec normalize_observation or normalize_reward"
            )
        self._pool.update_statistics(flag("update_statistics", updates))

    def _shape_of(self, kind: str) -> tuple[int, ...]:
        return self._shape if kind == "observation" else ()
