# SPDX-License-Identifier: Apache-2.0
"""`Saving`: a checkpoint of all shards while it is made."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rollouts.errors import WorkerError
from rollouts.replay.shards.service_checkpoint import ReplayCheckpoint, ShardMark
from rollouts.replay.shards.shard import ShardLostError, ShardReport
from rollouts.replay.shards.shard_set import Shard, ShardSet


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    shard: Shard
    incarnation: int
    file: str
    pending: list[Future[ShardReport]]  # results of the adds whose data are in the file
    future: Future[ShardReport]


class Saving:
    """A checkpoint in progress. Not thread-safe: the owner locks; no method waits.

    Calls of a shard run in order, so each file has all that was sent to its shard before this
    object was made. The checkpoint has the driver's counts of the same moment, so both agree.
    """

    def __init__(
        self, shards: ShardSet, directory: Path, *, samples: dict[str, int], policy_version: int
    ) -> None:
        """Sends `save` to every shard. Arguments: as ReplayCheckpoint's."""
        self._shards = shards
        self._known: dict[str, Any] = {
            "directory": directory,
            "samples": samples,
            "credit": {name: credit.tolist() for name, credit in shards.credit.items()},
            "newest_incarnation": shards.newest_incarnation,
            "policy_version": policy_version,
        }
        numbers = [int(path.stem.split("-")[2]) for path in directory.glob("shard-*-*.replay")]
        number = max(numbers, default=0) + 1
        self._parts: list[_Part] = []
        for shard in shards.shards:
            file = f"shard-{shard.shard_id}-{number}.replay"
            future = shards.watched(shard.handle.call("save", str(directory / file)))
            pending = [add.future for add in shard.adds]
            self._parts.append(_Part(shard, shard.incarnation, file, pending, future))

    @property
    def is_done(self) -> bool:
        """Tells if all shards have saved, or failed."""
        return all(f.done() for part in self._parts for f in (*part.pending, part.future))

    def finish(self) -> None:
        """Makes this the checkpoint that shards start from; forgets fragments that it contains.

        Raises:
          WorkerError: A shard died meanwhile; the last checkpoint is as it was.
          OSError: A file could not be written; the last checkpoint is as it was.
        """
        for part in self._parts:
            error = part.future.exception()
            if isinstance(error, ShardLostError):
                self._shards.lose(part.shard, part.incarnation, error)
            elif error is not None:
                raise error
            if part.shard.is_lost or part.incarnation != part.shard.incarnation:
                raise WorkerError(
                    f"shard {part.shard.shard_id} died while a checkpoint was made: the last one "
                    "is as it was, call save() again"
                )
        marks = [
            ShardMark(
                file=part.file,
                incarnation=part.shard.incarnation,
                report=part.future.result(),
                loss=deepcopy(part.shard.loss),
            )
            for part in self._parts
        ]
        checkpoint = ReplayCheckpoint(
            **self._known, discarded=dict(self._shards.discarded), shards=marks
        )
        checkpoint.write()
        self._shards.checkpoint = checkpoint


def check_reads(shards: ShardSet, reads: Sequence[Future[None]]) -> None:
    """Raises if a shard could not read its part of a checkpoint; then all keep their data."""
    errors = [error for read in reads if (error := read.exception()) is not None]
    if not errors:
        return
    shards.forget_reads()
    for error in errors:
        if not isinstance(error, ShardLostError):
            raise error
    raise WorkerError("a shard died while it read a checkpoint: call load() again")
