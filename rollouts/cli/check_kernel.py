# SPDX-License-Identifier: Apache-2.0
"""`rollouts check-env`: compares an environment's kernel with the C++ pool."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from rollouts.cli.env_trials import Trials
from rollouts.errors import SpecError

Array = npt.NDArray[Any]

# tolerance after one step from the same state: 32-bit Reals on a GPU, 64-bit on the CPU
_TOLERANCE = 1e-4
_RARE = 0.01


def check_kernel(trials: Trials) -> str:
    """Steps the kernel as loops on the host, from the pool's state at each step, and compares.

    Args:
      trials: The environment and its actions.

    Returns:
      The finding.

    Raises:
      SpecError: It does not compile as a kernel, or its results differ.
    """
    if importlib.util.find_spec("torch") is None:
        return "not tried: a GPU's pools need torch (pip install 'rollouts[torch]')"
    worst, num_apart = 0.0, 0
    with trials.pool(num_threads=None, device="cpu-emulation") as kernel, trials.pool() as pool:
        pool.reset()
        kernel.reset()
        for step, action in enumerate(trials.actions):
            kernel.set_state(None, pool.get_state())
            theirs, mine = pool.step(action), kernel.step(action)
            same = np.ones(trials.num_envs, np.bool_)
            for one, other in _pairs(mine[2:4], theirs[2:4]):
                same &= (one == other).reshape(trials.num_envs, -1).all(1)
            num_apart += int((~same).sum())
            # rarely, rounding may move an end by a step; the kernel is not at fault
            if num_apart > _RARE * trials.num_envs * len(trials.actions) + 1:
                raise SpecError(_difference("end", step, int(np.argmin(same))))
            for what, name in enumerate(("observation", "reward")):
                for one, other in _pairs(mine[what : what + 1], theirs[what : what + 1]):
                    apart = _apart(one, other.astype(one.dtype))
                    apart[~same] = 0
                    worst = max(worst, float(apart.max()))
                    if worst > _TOLERANCE:
                        raise SpecError(_difference(name, step, int(np.argmax(apart))))
        kernel.synchronize()
    kind = f"within {worst:.1g} of the pool" if worst > 0 or num_apart else "the pool's to the bit"
    return f"as loops, {kind} in each step from the same states"


def _pairs(mine: Any, theirs: Any) -> Iterator[tuple[Array, Array]]:
    """The arrays of both batches in pairs, group by group where there are several agents."""
    for one, other in zip(mine, theirs, strict=True):
        if isinstance(other, dict):
            yield from ((one[name].numpy(), array) for name, array in other.items())
        else:
            yield one.numpy(), np.asarray(other)


def _apart(one: Any, other: Any) -> Any:
    """Largest difference of each pair of rows, relative to entries that are larger than 1."""
    rows = len(one)
    mine = one.astype(np.float64)
    # equal infinities, or NaN in both, have the difference 0
    with np.errstate(invalid="ignore"):
        difference = np.abs(mine - other) / np.maximum(1, np.abs(other))
    difference[(mine == other) | (np.isnan(mine) & np.isnan(other))] = 0
    # NaN in only one of them counts as an infinite difference
    return np.nan_to_num(difference, nan=np.inf).reshape(rows, -1).max(axis=1)


def _difference(what: str, step: int, env: int) -> str:
    return (
        f"the kernel's {what} differs from the pool's in step {step} of environment {env}: a GPU "
        "has 32-bit Reals; numbers that must not be rounded are std::int32_t or double"
    )
