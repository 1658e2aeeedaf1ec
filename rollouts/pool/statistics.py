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
from gymnasium import spaces

from rollouts import _native
from rollouts.checks import flag
from rollouts.errors import SpecError
from rollouts.pool.wrappers import Wrappers

Float64s = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class RunningStatistics:
    """Mean and variance of what was counted.

    Attributes:
      mean, var: (*shape,) float64; var is the mean squared difference from the mean.
      count: How many rows; a pool's begin at 1e-4 with mean 0 and var 1, as Gymnasium's.
    """

    mean: Float64s
    var: Float64s
    count: float

    def merged(self, more: RunningStatistics) -> RunningStatistics:
        """Those of both together; `more` may have counted nothing.

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
        """Plain lists and numbers, which any checkpoint holds."""
        return {
            "shape": list(self.mean.shape),
            "mean": self.mean.ravel().tolist(),
            "var": self.var.ravel().tolist(),
            "count": float(self.count),
        }

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> RunningStatistics:
        """What `state_dict` returned.

        Raises:
          SpecError: Something else.
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
    """Statistics that a pool can go on from, in float64 and C order.

    Raises:
      SpecError: Another type or shape, or numbers that no data have.
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
    """Has an environment scale as another of its options does, and count where that counts."""
    for kind in source.normalizes:
        setattr(to, f"{kind}_statistics", getattr(source, f"{kind}_statistics"))
        to.update_statistics = source.update_statistics


@contextmanager
def frozen(env: Any) -> Iterator[None]:
    """Lets an environment count nothing meanwhile, if it counts at all; nothing is in flight."""
    if not getattr(env, "update_statistics", False):
        yield
        return
    env.update_statistics = False
    try:
        yield
    finally:
        env.update_statistics = True


class KeepsStatistics:
    """Access to the running statistics of a pool that normalises; VectorEnv sets the attributes."""

    _pool: _native.CpuPool
    _wrappers: Wrappers
    single_observation_space: spaces.Space[Any]

    @property
    def observation_statistics(self) -> RunningStatistics:
        """By which observations are scaled: (obs - mean) / sqrt(var + epsilon).

        Each received batch counts once, whatever its number of rows; rows that a masked reset only
        shows again do not. Setting them replaces them, as for evaluation or from a checkpoint.

        Raises:
          SpecError: make_vec was not told normalize_observation, or what is set does not fit.
          ProtocolError: Statistics that are frozen are set while environments are in flight.
          ClosedError: The environment was closed.
        """
        return self._read("observation", fresh=False)

    @observation_statistics.setter
    def observation_statistics(self, statistics: RunningStatistics) -> None:
        self._set("observation", statistics)

    @property
    def reward_statistics(self) -> RunningStatistics:
        """Of discounted returns: rewards are divided by sqrt(var + epsilon). Shape ().

        Raises:
          As `observation_statistics`, for normalize_reward.
        """
        return self._read("reward", fresh=False)

    @reward_statistics.setter
    def reward_statistics(self, statistics: RunningStatistics) -> None:
        self._set("reward", statistics)

    @property
    def update_statistics(self) -> bool:
        """Whether batches count: Gymnasium's update_running_mean, of observations and rewards.

        False freezes the statistics, for evaluation. Rows then do not wait for their batch: threads
        scale them as they step.

        Raises:
          SpecError: Something else than a bool is set, or nothing is normalised.
          ProtocolError: It is set while environments are in flight. ClosedError: closed.
        """
        return self._wrappers.normalizes and self._pool.updates_statistics

    @update_statistics.setter
    def update_statistics(self, updates: bool) -> None:
        if not self._wrappers.normalizes:
            raise SpecError(
                "there are no statistics: give make_vec normalize_observation or normalize_reward"
            )
        self._pool.update_statistics(flag("update_statistics", updates))

    @property
    def normalizes(self) -> tuple[str, ...]:
        """Of what there are statistics: "observation", "reward", both or none."""
        kinds = {
            "observation": self._wrappers.normalize_observation,
            "reward": self._wrappers.normalize_reward,
        }
        return tuple(kind for kind, kept in kinds.items() if kept)

    def take_new_statistics(self) -> dict[str, RunningStatistics]:
        """What was counted since the last call, by "observation" and "reward", as far as kept.

        Several pools share their statistics so: each one's are taken and `merged` into common ones,
        which all get. Counts begin at 0.
        """
        return {kind: self._read(kind, fresh=True) for kind in self.normalizes}

    def _shape(self, kind: str) -> tuple[int, ...]:
        return (self.single_observation_space.shape or ()) if kind == "observation" else ()

    def _read(self, kind: str, *, fresh: bool) -> RunningStatistics:
        mean, var, count = self._pool.read_statistics(kind, fresh)
        shape = self._shape(kind)
        return RunningStatistics(mean.reshape(shape), var.reshape(shape), count)

    def _set(self, kind: str, statistics: object) -> None:
        self._pool.read_statistics(kind, False)  # raises where there are none
        good = checked(f"{kind}_statistics", statistics, self._shape(kind))
        self._pool.set_statistics(kind, good.mean.ravel(), good.var.ravel(), good.count)
