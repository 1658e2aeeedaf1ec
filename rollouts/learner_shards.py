# SPDX-License-Identifier: Apache-2.0
"""Several data-parallel learners fed from one stream, each with its own equal part of all batches.

Both ways give every learner the same number of updates, as an all-reduce needs:

  LearnerShards   batch i goes whole to learner i mod n: learners that are threads of one process,
                  each with a DeviceQueue of its own in front of its GPU
  split_columns   each batch is cut along B into n parts: learners that are Ray actors, each called
                  with its part, or threads that share one step

Threads that do not need equal numbers may simply all call `RolloutCoordinator.get`: each batch goes
to the thread that called first.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np

from rollouts.batch import PER_ENV, RolloutBatch, check_rollout
from rollouts.checks import check_source
from rollouts.errors import ClosedError, SpecError

Source = Callable[[float], RolloutBatch]

# longest time that one call of the source may wait, so that close() is noticed
_SLICE_S = 0.5


class LearnerShards:
    """Deals out the batches of a source to n learners in turn.

    If it is the turn of a learner that is `depth` batches behind, the others and the source wait
    for it. Nothing is dropped, and at most n * depth batches are held, including the one on its
    way. The object has no thread of its own: a learner that waits for a batch calls the source, one
    learner at a time.

    `_changed` guards everything and is not held while the source is called.

    Example:
      shards = LearnerShards(lambda timeout_s: coordinator.get(4, timeout_s), 2)
      queues = [DeviceQueue(shards.source(i), f"cuda:{i}") for i in range(2)]
    """

    def __init__(self, source: Source, num_learners: int, *, depth: int = 1) -> None:
        """Takes a source that no other code calls.

        Args:
          source: Called with timeout_s, by one thread at a time; returns the next batch. It may
            raise TimeoutError after about timeout_s, StopIteration when there is no other batch, or
            any other exception, which every learner gets after its last batch.
          num_learners: n.
          depth: Most batches waiting for one learner.
        Raises:
          SpecError: num_learners or depth < 1. DTypeError: source cannot be called.
        """
        check_source(source)
        for name, value in (("num_learners", num_learners), ("depth", depth)):
            if value < 1:
                raise SpecError(f"{name} is {value}, expected at least 1")
        self._source = source
        self._depth = depth
        self._changed = threading.Condition(threading.Lock())
        self._queues: list[deque[RolloutBatch]] = [deque() for _ in range(num_learners)]
        self._turn = 0
        self._is_asking = False
        self._failure: Exception | None = None
        self._closed = False

    def source(self, learner: int) -> Source:
        """Returns `get` of one learner, as a source for a DeviceQueue."""
        if not 0 <= learner < len(self._queues):
            raise SpecError(f"learner is {learner}, expected 0 to {len(self._queues) - 1}")
        return lambda timeout_s: self.get(learner, timeout_s)

    def get(self, learner: int, timeout_s: float | None = None) -> RolloutBatch:
        """Takes the learner's next batch.

        Raises:
          TimeoutError: no batch of this learner within timeout_s; None waits for ever.
          StopIteration: the source has ended.
          ClosedError: `close` was called.
          Exception: what the source raised.
        """
        deadline = float("inf") if timeout_s is None else time.monotonic() + timeout_s
        mine = self._queues[learner]
        is_fruitless = False
        while True:
            with self._changed:
                left_s = min(_SLICE_S, max(0.0, deadline - time.monotonic()))
                self._changed.wait_for(lambda: mine or self._is_over or self._may_ask, left_s)
                if self._closed:
                    raise ClosedError("the learner shards are closed")
                if mine:
                    # other learners may be waiting for room here
                    self._changed.notify_all()
                    return mine.popleft()
                if self._failure is not None:
                    raise self._failure
                # a source that returns batches is called again, even for a learner whose time is up
                is_late = time.monotonic() >= deadline
                asks = self._may_ask and not (is_late and is_fruitless)
                if is_late and not asks:
                    raise TimeoutError(f"no batch for learner {learner} within {timeout_s} s")
                self._is_asking = self._is_asking or asks
            if asks:
                is_fruitless = not self._ask(left_s)

    def close(self) -> None:
        """Wakes every learner with ClosedError and drops the batches that wait. Idempotent."""
        with self._changed:
            self._closed = True
            for queue in self._queues:
                queue.clear()
            self._changed.notify_all()

    @property
    def _is_over(self) -> bool:
        return self._closed or self._failure is not None

    @property
    def _may_ask(self) -> bool:
        return not self._is_asking and len(self._queues[self._turn]) < self._depth

    def _ask(self, timeout_s: float) -> bool:
        """Calls the source once and deals out its batch; returns whether there was one."""
        batch, failure = None, None
        try:
            batch = self._source(timeout_s)
        except TimeoutError:
            pass
        except Exception as error:
            failure = error
        finally:
            with self._changed:
                self._is_asking = False
                self._failure = failure
                if batch is not None and not self._closed:
                    self._queues[self._turn].append(batch)
                    self._turn = (self._turn + 1) % len(self._queues)
                self._changed.notify_all()
        return batch is not None


def split_columns(batch: RolloutBatch, num_learners: int) -> list[RolloutBatch]:
    """Cuts a batch along B into parts whose sizes differ by at most one column.

    The arrays are views, except final_obs. For learners that are Ray actors:

      ray.get([learner.update.remote(part) for learner, part in zip(learners, split_columns(...))])

    Raises:
      SpecError: fewer columns than learners. DTypeError: batch is not one group's rollout.
    """
    check_rollout(batch, "split_columns", on_host=False)
    num_columns = len(batch.env_id)
    if not 1 <= num_learners <= num_columns:
        raise SpecError(
            f"num_learners is {num_learners}, expected 1 to {num_columns}: the batch has "
            f"{num_columns} columns and each learner needs one"
        )
    bounds = [num_columns * i // num_learners for i in range(num_learners + 1)]
    # an array has one final observation per ended episode, a device's tensor has one per step
    is_packed = isinstance(batch.final_obs, np.ndarray)
    episode_column = np.nonzero(batch.terminated | batch.truncated)[1] if is_packed else None
    parts = []
    for start, end in itertools.pairwise(bounds):
        arrays: dict[str, Any] = {}
        for f in fields(batch):
            array = getattr(batch, f.name)
            if f.name in PER_ENV:
                arrays[f.name] = array[start:end]
            elif f.name == "final_obs" and array is None:
                continue
            elif f.name == "final_obs" and episode_column is not None:
                is_here = (start <= episode_column) & (episode_column < end)
                arrays[f.name] = array[is_here]
            elif f.name == "counted":
                continue
            elif f.name == "extras":
                arrays[f.name] = {name: extra[:, start:end] for name, extra in array.items()}
            elif f.name == "policy_state":
                arrays[f.name] = tuple(state[start:end] for state in array)
            else:
                arrays[f.name] = array[:, start:end]
        parts.append(RolloutBatch(**arrays))
    return parts
