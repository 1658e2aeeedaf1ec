# SPDX-License-Identifier: Apache-2.0
"""`SpotCheck`: compares a module's own results with those of native code once in a while."""

from __future__ import annotations

import time
import warnings
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from rollouts.errors import SpecError
from rollouts.policies.program import parameters_of
from rollouts.policies.trace import compare, forward, random_rows

if TYPE_CHECKING:
    from rollouts.policies.program import Program
    from rollouts.policies.sources import Sources

Array = NDArray[Any]

# the largest share of all time that checks may take
_SHARE = 0.005
# smaller differences are not examined
_TOLERANCE = 1e-5
_MOST_ROWS = 16
# modules whose results differed, with the error: they are not read again
_MISREAD: weakref.WeakKeyDictionary[nn.Module, str] = weakref.WeakKeyDictionary()


class Computed(Protocol):
    """A program with weights, which computes instead of a module."""

    program: Program
    sources: Sources

    def evaluate_rows(self, rows: Array) -> tuple[Array, ...]: ...
    def has_weights_of_module(self) -> bool: ...


def check_not_misread(module: nn.Module) -> None:
    """Raises SpecError for a module whose results differed from those of native code before."""
    if module in _MISREAD:
        raise SpecError(_MISREAD[module])


def is_misread(module: nn.Module) -> bool:
    """Tells if a comparison has found a difference from native code."""
    return module in _MISREAD


class SpotCheck:
    """Compares one row of a batch, so rarely that it takes at most 1/200 of the time."""

    def __init__(self, given: nn.Module, module: nn.Module, space: gymnasium.Space[Any]) -> None:
        """Takes the module; a check is due at once.

        Args:
          given: The module whose outputs are wanted.
          module: The part of it that was read.
          space: Space of its observations.
        """
        self._given, self._module, self._space = given, module, space
        self._rng = np.random.default_rng(0)
        self._due_s = 0.0

    def is_due(self) -> bool:
        """Tells if enough time has passed since the last check."""
        return time.perf_counter() >= self._due_s

    def run(self, policy: Computed, obs: Array | None) -> None:
        """Compares the results for a row.

        Args:
          policy: Policy with the module's weights.
          obs: (B, *obs_shape), its next observations; None for a row of the space.

        Raises:
          SpecError: The results differ; the module is not read again.
        """
        start = time.perf_counter()
        try:
            self._compare(policy, obs)
        finally:
            now = time.perf_counter()
            self._due_s = now + (now - start) / _SHARE

    def _compare(self, policy: Computed, obs: Array | None) -> None:
        if obs is None or not len(obs):
            obs = random_rows(self._space, 1, self._rng)
        states = policy.sources.initial_state()
        first = int(self._rng.integers(len(obs)))
        if self._differs(policy, obs[first : first + 1], states) is None:
            return
        # several rows distinguish rounding from a difference
        error = self._differs(policy, obs[:_MOST_ROWS], states, closely=True)
        # another thread may be changing the weights
        if error is None or not policy.has_weights_of_module():
            return
        _MISREAD[self._given] = (
            f"what the pool's threads compute is not what {type(self._module).__name__} computes "
            f"now ({error}): forward reads something that changes and is no parameter, buffer or "
            "attribute of it. The last rollouts may have been of its old value. Make it a buffer, "
            "or use engine='torch'"
        )
        warnings.warn(_MISREAD[self._given], RuntimeWarning, stacklevel=2)
        raise SpecError(_MISREAD[self._given])

    def _differs(
        self, policy: Computed, obs: Array, states: Sequence[Array], *, closely: bool = False
    ) -> str | None:
        """Describes the first difference; None if the results agree."""
        many = [obs, *(np.broadcast_to(each, (len(obs), *each.shape)) for each in states)]
        device = next((each.device for each in self._module.parameters()), torch.device("cpu"))
        inputs = [torch.from_numpy(np.array(each)).to(device) for each in many]
        with torch.no_grad(), torch.autocast(device.type, enabled=False):
            outputs = forward(self._module, inputs)
        rows = np.concatenate([each.reshape(len(obs), -1) for each in many], 1)
        if not closely:
            ours = policy.evaluate_rows(rows)
            same = all(
                _is_near(output.detach().cpu().float().numpy().reshape(-1), own.reshape(-1))
                for output, own in zip(outputs, ours, strict=True)
            )
            return None if same else "one row"
        params = parameters_of(policy.program, policy.sources.arrays())
        try:
            compare(policy.program, params, rows.astype(np.float64), outputs)
        except SpecError as error:
            return str(error).partition(":")[0]
        return None


def _is_near(theirs: Array, ours: Array) -> bool:
    if theirs.shape != ours.shape:
        return False
    with np.errstate(invalid="ignore"):
        apart = np.where(ours == theirs, 0, np.abs(ours - theirs))
    return bool((apart <= _TOLERANCE * max(1.0, float(np.abs(theirs).max(initial=0)))).all())
