# SPDX-License-Identifier: Apache-2.0
"""A stateful RLModule's states, one per environment, which the pool's threads update."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tree
from numpy.typing import NDArray
from ray.rllib.core.columns import Columns
from torch import Tensor

Array = NDArray[Any]

# joins the keys of nested dicts into the name of a column, such as "state_out/actor/h"
_BETWEEN = "/"


class Memory:
    """One state per environment, carried from one `collect` to the next."""

    def __init__(self, num_envs: int) -> None:
        """Starts with the first observation of an episode in every environment."""
        self._num_envs = num_envs
        self.reset()

    def reset(self) -> None:
        """Makes every environment's next observation the first of an episode."""
        self._now: Array = np.zeros((self._num_envs, 0), np.float32)
        self._begins = np.ones(self._num_envs, np.bool_)

    def arrays(self, steps: int, size: int) -> dict[str, Array]:
        """Returns the states that `VectorEnv.collect` reads and writes, of `size` numbers."""
        if self._now.shape[1] != size:
            # this is the first use, or the module has states of another size
            self.reset()
            self._now = np.zeros((self._num_envs, size), np.float32)
        kept = np.empty((steps, self._num_envs, size), np.float32)
        return {"state": self._now, "begins": self._begins, "policy_state": kept}


def states_after(
    arrays: Mapping[str, Array], compute: Callable[[Array], tuple[Array, ...]]
) -> Array:
    """Returns the states (T, N, size) after each of T steps, also after those that end an episode.

    Args:
      arrays: Arrays of `VectorEnv.collect`, with the state before each step and after the last.
      compute: Maps observations joined with states (B, ...) to the module's outputs, of which the
        last are the new states; called for the steps that ended an episode.
    """
    before = arrays["policy_state"]
    after = np.concatenate([before[1:], arrays["state"][None]])
    ended = arrays["terminated"] | arrays["truncated"]
    if ended.any():
        obs = arrays["obs"][:-1][ended].reshape(int(ended.sum()), -1)
        outputs = compute(np.concatenate([obs.astype(np.float32), before[ended]], 1))
        after[ended] = np.concatenate(outputs, 1)[:, -before.shape[2] :]
    return after


def columns_of(states: Array, like: Any) -> dict[str, Array]:
    """Returns a column (T, N, ...) for each tensor of a module's `get_initial_state`, by its path.

    Args:
      states: (T, N, size), the tensors flattened and joined one after the other.
      like: What `get_initial_state` returned.
    """
    leaves = tree.flatten_with_path(like)
    ends = np.cumsum([leaf.numel() for _, leaf in leaves])[:-1]
    return {
        _BETWEEN.join((Columns.STATE_OUT, *map(str, path))): part.reshape(
            *part.shape[:2], *leaf.shape
        )
        for (path, leaf), part in zip(leaves, np.split(states, ends, -1), strict=True)
    }


def nested(columns: Mapping[str, Array]) -> dict[str, Any]:
    """Returns the columns of one chunk, with states in nested dicts as RLlib has them."""
    found: dict[str, Any] = {}
    for name, array in columns.items():
        if not name.startswith(Columns.STATE_OUT + _BETWEEN):
            found[name] = array
            continue
        *path, last = name.split(_BETWEEN)
        place = found
        for key in path:
            place = place.setdefault(key, {})
        place[last] = array
    return found


def with_time(batch: Mapping[str, Any], like: Any, state: tuple[Tensor, ...]) -> dict[str, Any]:
    """Returns a batch (B, ...) as a stateful module takes it: one step, and the states before it.

    Args:
      batch: Columns of B rows.
      like: What `get_initial_state` returned.
      state: Its tensors (B, ...).
    """
    steps = {name: tensor[:, None] for name, tensor in batch.items()}
    return steps | {Columns.STATE_IN: tree.unflatten_as(like, list(state))}
