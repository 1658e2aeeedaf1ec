# SPDX-License-Identifier: Apache-2.0
"""LearnerGroup: learners that are Ray actors and train one policy, by the mean of their gradients.

Every learner makes the same steps in the same order, so all have the same weights. The driver holds
a learner's share of a batch until the gradient of it has come. A learner that dies therefore loses
no step: its successor takes the checkpoint of one that lives, and computes the share again.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import ray as _typed_ray

from rollouts.batch import RolloutBatch
from rollouts.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from rollouts.errors import LearnerError, SpecError
from rollouts.learner_shards import split_columns
from rollouts.workers.on_ray.coordinator import RolloutCoordinator

# ray annotates only half of what it exports
ray: Any = _typed_ray

# most actors in a row that may die before they have loaded a checkpoint
_MOST_STARTS = 5

# what Ray raises for a result that died with an actor or its node
_DEATHS = (
    ray.exceptions.RayActorError,
    ray.exceptions.ObjectLostError,
    ray.exceptions.WorkerCrashedError,
)

Gradient = Mapping[str, Any]


@dataclass(slots=True)
class _Share:
    """Rows that a learner was given; `rows` and `gradient` are Ray's references."""

    rank: int
    rows: Any
    num_steps: int
    learner: Any
    gradient: Any


class LearnerGroup:
    """Several actors that train one policy, each with an equal share of the rollouts.

    The class of the actors is yours. It has these methods:

      gradient(batch)      returns dict of name -> array: the gradient of the mean loss of the rows
      apply(gradient)      makes the optimiser's step
      weights()            returns what `RolloutCoordinator.publish_weights` takes
      checkpoint()         returns a rollouts.checkpoint.Checkpoint, with the optimiser's state
      restore(checkpoint)  goes on from it

    `update` is synchronous: one batch, cut along B, is one step. `submit` is asynchronous: each
    learner has a batch of its own, and each gradient becomes a step when it comes. All calls must
    come from one thread.

    Attributes:
      learners: Handles of the actors, by rank. They change where a learner died.

    Example:
      group = LearnerGroup(lambda rank: Learner.remote(rank), 2, "runs/first/checkpoint.pt")
      while group.stats()["updates"] < 1000:
          group.update(coordinator.get(4))
          group.publish(coordinator)
    """

    def __init__(
        self,
        make_learner: Callable[[int], Any],
        num_learners: int,
        path: str | os.PathLike[str],
        *,
        save_every: int = 100,
        timeout_s: float = 300.0,
    ) -> None:
        """Starts the learners; they go on from the checkpoint at `path` where there is one.

        Args:
          make_learner: Called with a rank, 0 to num_learners - 1; returns the handle of a new actor
            without `max_restarts`. Options of Ray, such as num_gpus, are given in it.
          num_learners: The number of learners.
          path: File of the checkpoint. `rollouts.checkpoint` reads it.
          save_every: Updates between two checkpoints.
          timeout_s: Seconds that a learner may take to start, or to answer.
        Raises:
          SpecError: A number is below 1, or the file is no checkpoint.
          LearnerError: A learner did not start.
        """
        for name, value in (("num_learners", num_learners), ("save_every", save_every)):
            if value < 1:
                raise SpecError(f"{name} is {value}, expected at least 1")
        self._make_learner, self._path = make_learner, path
        self._save_every, self._timeout_s = save_every, timeout_s
        self._updates = self._updates_lost = self._restarts = 0
        self._applied = self._lost = 0  # env-steps
        self._turn = self._resets = 0
        self._shares: list[_Share | None] = [None] * num_learners
        # (rank, learner, reference) of steps that were ordered
        self._steps: list[tuple[int, Any, Any]] = []
        self.learners: list[Any] = [make_learner(rank) for rank in range(num_learners)]
        if os.path.exists(path):
            self._saved = load_checkpoint(path)
        else:
            try:
                self._saved = self._answer_of(0, self.learners[0].checkpoint.remote())
            except _DEATHS as error:
                raise LearnerError(f"learner 0 died before it had started: {error}") from error
            save_checkpoint(path, self._saved)
        self._saved_at = (0, 0)  # updates, env-steps
        for rank, learner in enumerate(self.learners):
            self._restore(rank, self._saved, learner)

    def update(self, batch: RolloutBatch) -> None:
        """Makes one step with a batch, of which each learner gets an equal part of the columns.

        Waits for the batches of `submit` first.

        Raises:
          TimeoutError: A learner did not answer. LearnerError: No learner can be started.
          SpecError: The batch has fewer columns than there are learners, or a gradient is no dict.
          Exception: What a method of a learner raised; what `apply` raised comes with a later call.
        """
        self.finish()
        parts = [
            (ray.put(part), int(part.num_steps))
            for part in split_columns(batch, len(self.learners))
        ]
        while True:
            self._check_steps()
            resets = self._resets
            shares = [self._ask(rank, *part) for rank, part in enumerate(parts)]
            gradients = [self._gradient(share) for share in shares]
            # if all learners began again meanwhile, some gradients belong to weights that are gone
            if resets == self._resets:
                break
        self._apply(gradients, [share.num_steps for share in shares])

    def submit(self, batch: RolloutBatch) -> None:
        """Gives a whole batch to the learner whose turn it is, when it has no other.

        Gradients that have come meanwhile become steps, in the order in which they came. A gradient
        is at most 2 * (num_learners - 1) steps old. Errors are those of `update`.
        """
        self._check_steps()
        rank, self._turn = self._turn, (self._turn + 1) % len(self.learners)
        while self._shares[rank] is not None:
            self._take_ready()
        self._shares[rank] = self._ask(rank, ray.put(batch), int(batch.num_steps))

    def finish(self) -> None:
        """Waits until all batches of `submit` are steps. Errors are those of `update`."""
        while any(self._shares):
            self._take_ready()

    def publish(self, coordinator: RolloutCoordinator) -> int:
        """Publishes the newest weights, from a learner that lives; returns their version.

        They come through this process, so that they outlive the learner's node. Errors are those of
        `update` and of `RolloutCoordinator.publish_weights`.
        """
        while (weights := self._newest("weights")) is None:
            self._begin_again()
        return coordinator.publish_weights(weights)

    def save(self) -> None:
        """Saves a checkpoint now, with all steps that were made."""
        found: Checkpoint | None = self._newest("checkpoint")
        if found is None:
            self._begin_again()
            return
        save_checkpoint(self._path, found)
        self._saved, self._saved_at = found, (self._updates, self._applied)

    def stats(self) -> dict[str, Any]:
        """Returns the account.

        Returns:
          updates       steps in the weights that the learners have
          updates_lost  steps after the last checkpoint, lost where all learners died at once
          restarts      learners that were replaced
          env_steps     applied, lost with such updates, in_flight: all that were given
        """
        in_flight = sum(share.num_steps for share in self._shares if share is not None)
        return {
            "updates": self._updates,
            "updates_lost": self._updates_lost,
            "restarts": self._restarts,
            "env_steps": {"applied": self._applied, "lost": self._lost, "in_flight": in_flight},
        }

    def close(self) -> None:
        """Ends the learners without saving. Idempotent."""
        for learner in self.learners:
            ray.kill(learner)

    def _ask(self, rank: int, rows: Any, num_steps: int) -> _Share:
        learner = self.learners[rank]
        return _Share(rank, rows, num_steps, learner, learner.gradient.remote(rows))

    def _take_ready(self) -> None:
        """Waits for a gradient of `submit`; makes the steps of all that have come."""
        waiting = {share.gradient: share for share in self._shares if share is not None}
        ready, _ = ray.wait(list(waiting), timeout=self._timeout_s)
        if not ready:
            raise TimeoutError(f"no learner had a gradient within {self._timeout_s:g} s")
        for ref in ready:
            share = waiting[ref]
            gradient = self._gradient(share)
            self._shares[share.rank] = None
            self._apply([gradient], [share.num_steps])

    def _gradient(self, share: _Share) -> Gradient:
        """Waits for a share's gradient; a learner that dies meanwhile is replaced, and its
        successor is asked."""
        while True:
            try:
                gradient = self._answer_of(share.rank, share.gradient)
            except _DEATHS:
                self._replace(share.rank, share.learner)
                share.learner = self.learners[share.rank]
                share.gradient = share.learner.gradient.remote(share.rows)
                continue
            if not isinstance(gradient, Mapping):
                raise SpecError(
                    f"gradient() of learner {share.rank} returned a {type(gradient).__name__}, "
                    "expected a dict of name -> array"
                )
            return gradient

    def _answer_of(self, rank: int, ref: Any) -> Any:
        try:
            return ray.get(ref, timeout=self._timeout_s)
        except ray.exceptions.GetTimeoutError:
            raise TimeoutError(
                f"learner {rank} did not answer within {self._timeout_s:g} s: has the cluster room "
                "for it, and is timeout_s long enough for its steps?"
            ) from None

    def _apply(self, gradients: list[Gradient], num_steps: list[int]) -> None:
        """Orders one step from all learners, by the mean over all rows."""
        # in the driver's object store, so that no node's death leaves some learners without it
        mean = ray.put(_mean(gradients, num_steps))
        self._steps += [
            (rank, learner, learner.apply.remote(mean))
            for rank, learner in enumerate(self.learners)
        ]
        self._updates += 1
        self._applied += sum(num_steps)
        if self._updates - self._saved_at[0] >= self._save_every:
            self.save()

    def _check_steps(self) -> None:
        """Raises what a step raised; a learner that died in one is replaced."""
        for entry in self._steps[:]:
            rank, learner, ref = entry
            if ray.wait([ref], timeout=0)[0]:
                self._steps.remove(entry)
                try:
                    ray.get(ref)
                except _DEATHS:
                    self._replace(rank, learner)

    def _newest(self, method: str, but: int | None = None) -> Any:
        """Returns what a method of a living learner returns after all steps; None: no learner
        lives.

        Those that are found dead are replaced when their own answers are missing.
        """
        for rank, learner in enumerate(self.learners):
            if rank != but:
                with contextlib.suppress(*_DEATHS):
                    return self._answer_of(rank, getattr(learner, method).remote())
        return None

    def _replace(self, rank: int, dead: Any) -> None:
        """Starts a learner in place of a dead one, unless that was replaced already."""
        if self.learners[rank] is not dead:
            return
        newest = self._newest("checkpoint", but=rank)
        if newest is None:
            self._begin_again()
        else:
            self._start(rank, newest)

    def _begin_again(self) -> None:
        """Starts all learners from the last checkpoint, as none is left."""
        updates, applied = self._saved_at
        self._updates_lost += self._updates - updates
        self._lost += self._applied - applied
        self._updates, self._applied = updates, applied
        self._resets += 1
        for rank in range(len(self.learners)):
            self._start(rank, self._saved)

    def _start(self, rank: int, checkpoint: Checkpoint) -> None:
        self._restarts += 1
        # Ray may only think that it is dead, where its node cannot be reached
        ray.kill(self.learners[rank])
        self._restore(rank, checkpoint, self._make_learner(rank))

    def _restore(self, rank: int, checkpoint: Checkpoint, learner: Any) -> None:
        """Brings a new learner to a checkpoint; makes another one if it dies meanwhile."""
        stored = ray.put(checkpoint)
        for attempt in range(_MOST_STARTS):
            self.learners[rank] = learner = self._make_learner(rank) if attempt else learner
            try:
                self._answer_of(rank, learner.restore.remote(stored))
            except _DEATHS as error:
                last = error
                continue
            return
        raise LearnerError(
            f"learner {rank} died {_MOST_STARTS} times before it had its checkpoint: {last}"
        ) from last


def _mean(gradients: list[Gradient], num_steps: list[int]) -> dict[str, Any]:
    """Returns the mean over all rows, of means over the rows of each part."""
    names = set(gradients[0])
    if any(set(each) != names for each in gradients):
        shown = " and ".join(str(sorted(each)) for each in gradients)
        raise SpecError(f"gradients have the names {shown}, expected the same of each learner")
    total = sum(num_steps)
    means = {}
    for name in gradients[0]:
        weighted = (
            np.asarray(gradient[name]) * (count / total)
            for gradient, count in zip(gradients, num_steps, strict=True)
        )
        means[name] = np.asarray(sum(weighted))
    return means
