# SPDX-License-Identifier: Apache-2.0
"""The steps that every library stores in `rollouts bench replay`, and conversion of batches."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollouts.support.extras import needs

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Workload:
    """Steps to store: `num_envs` environments for `num_steps` steps, in rollouts of `length`."""

    name: str
    obs_shape: tuple[int, ...]
    obs_dtype: str
    stack_num: int
    num_envs: int
    length: int
    num_steps: int

    @property
    def size(self) -> int:
        """Transitions."""
        return self.num_envs * self.num_steps


def converter(output: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Returns a function that turns a batch's values into tensors or arrays, without a copy."""
    if output == "numpy":
        return lambda fields: {
            name: value if isinstance(value, np.ndarray) else value.numpy()
            for name, value in fields.items()
        }
    with needs("torch", "`rollouts bench replay --output torch`"):
        torch = importlib.import_module("torch")
    return lambda fields: {
        name: torch.from_numpy(value) if isinstance(value, np.ndarray) else value
        for name, value in fields.items()
    }


def shares(load: Workload, num_threads: int) -> list[Array]:
    """Splits the environments among writers, as evenly as possible."""
    return [ids for ids in np.array_split(np.arange(load.num_envs), num_threads) if len(ids)]


def make_rollouts(load: Workload, seed: int, num_threads: int) -> list[dict[str, Array]]:
    """Makes one rollout (T, B, ...) per writer, with obs (T + 1, B, ...).

    The rollout is circular: its last observation is its first.
    """
    rng = np.random.default_rng(seed)
    steps = load.length
    made = []
    for rows in map(len, shares(load, num_threads)):
        if load.stack_num > 1:
            # the frames of a stack are those of the steps before, in a circle
            frames = rng.integers(0, 256, (steps, rows, *load.obs_shape[1:]), np.uint8)
            before = np.arange(load.stack_num) - load.stack_num + 1
            index = (np.arange(steps + 1)[:, None] + before) % steps
            obs = np.ascontiguousarray(np.moveaxis(frames[index], 2, 1))
        else:
            obs = rng.random((steps, rows, *load.obs_shape), np.float32)
            obs = np.concatenate([obs, obs[:1]])
        made.append(
            {
                "obs": obs,
                "action": rng.integers(0, 6, (steps, rows)),
                "reward": rng.random((steps, rows), np.float32),
                "terminated": np.zeros((steps, rows), np.bool_),
            }
        )
    return made


def priorities(batch_size: int, seed: int) -> Iterator[Array]:
    """Yields the priorities (B,) of batches, the same for each library; never ends."""
    rng = np.random.default_rng(seed)
    return itertools.cycle(rng.random((64, batch_size), np.float32))
