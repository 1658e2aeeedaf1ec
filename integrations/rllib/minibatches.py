# SPDX-License-Identifier: Apache-2.0
"""The minibatches of RLlib's iterators, as row numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from ray.rllib.utils.minibatch_utils import MiniBatchCyclicIterator


@dataclass(frozen=True, slots=True)
class MinibatchPlan:
    """Minibatches of an update.

    Attributes:
      size: Rows of each minibatch.
      count: Number of minibatches.
      shuffles: Whether rows are put in another order for each pass.
    """

    size: int
    count: int
    shuffles: bool


def plan_of(minibatches: Any, num_rows: int) -> MinibatchPlan:
    """Minibatches that RLlib's iterator over one module's rows would give.

    Any iterator other than MiniBatchCyclicIterator gives the whole batch.
    """
    if not isinstance(minibatches, MiniBatchCyclicIterator):
        return MinibatchPlan(num_rows, 1, False)
    size = minibatches._minibatch_size
    needed = -(-minibatches._num_epochs * num_rows // size)
    count = minibatches._num_total_minibatches or needed
    return MinibatchPlan(size, count, minibatches._shuffle_batch_per_epoch)


def minibatch_order(num_rows: int, plan: MinibatchPlan) -> NDArray[np.int64]:
    """The rows of each minibatch, (count, size), drawn as MiniBatchCyclicIterator draws them.

    Passes follow each other, and a minibatch may have the end of one and the beginning of the next;
    the last one is filled up with rows of a further pass.
    """
    wanted = plan.size * plan.count
    rows = np.arange(num_rows)
    passes = [rows]
    for _ in range(wanted // num_rows):
        if plan.shuffles:
            # the same draw as in the batch's own `shuffle`
            rows = rows[np.random.permutation(num_rows)]  # noqa: NPY002
        passes.append(rows)
    return np.concatenate(passes)[:wanted].reshape(plan.count, plan.size)
