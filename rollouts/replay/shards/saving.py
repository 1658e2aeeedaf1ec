# SPDX-License-Identifier: Apache-2.0
"""A checkpoint of all shards: one file per shard, and one that names these files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import Future
from copy import deepcopy
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rollouts.errors import SpecError, WorkerError
from rollouts.replay import files
from rollouts.replay.shards.loss import Loss
from rollouts.replay.shards.shard import ShardLostError, ShardReport, TableReport
from rollouts.replay.shards.shard_set import Shard, ShardSet

_KIND = "replay service 1"
_NAME = "service.replay"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardMark:
    """One shard in a checkpoint."""

    file: str
    incarnation: int
    report: ShardReport
    loss: Loss

    @property
    def mean_mass(self) -> dict[str, float]:
        """Mean mass of each table, which the shard itself does not save; see TableReport."""
        return {name: table.mean_mass for name, table in self.report.tables.items()}

    @classmethod
    def read(cls, saved: dict[str, Any]) -> ShardMark:
        """Makes a mark from the result of `asdict`, read back from JSON."""
        tables = {n: TableReport(**table) for n, table in saved["report"].pop("tables").items()}
        return cls(
            file=saved["file"],
            incarnation=saved["incarnation"],
            report=ShardReport(tables=tables, **saved["report"]),
            loss=Loss(**saved["loss"]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayCheckpoint:
    """A complete checkpoint.

    Its file is replaced in one step, after all files that it names are written. Files of older
    checkpoints are removed after that: a crash at any moment leaves a complete checkpoint.
    """

    directory: Path
    samples: dict[str, int]  # by table
    credit: dict[str, list[float]]
    discarded: dict[str, int]
    newest_incarnation: int
    policy_version: int
    shards: list[ShardMark]

    def path_of(self, mark: ShardMark) -> str:
        """Returns the path of a shard's file."""
        return str(self.directory / mark.file)

    def write(self) -> None:
        """Makes this the directory's checkpoint and removes files of older ones."""
        content = {"kind": _KIND, **asdict(self)}
        del content["directory"]
        files.write_atomically(self.directory / _NAME, files.parts(content, {}))
        kept = {mark.file for mark in self.shards}
        for path in self.directory.glob("shard-*-*.replay"):
            if path.name not in kept:
                path.unlink(missing_ok=True)

    @classmethod
    def read(cls, directory: str | os.PathLike[str], num_shards: int) -> ReplayCheckpoint:
        """Reads a directory's checkpoint.

        Raises:
          FileNotFoundError: There is no checkpoint.
          SpecError: It is damaged, or has another number of shards.
        """
        path = Path(directory).absolute() / _NAME
        content, _ = files.unpack(np.fromfile(path, np.uint8))
        if content.get("kind") != _KIND:
            raise SpecError(f"{path} is no checkpoint of a ReplayService of this version")
        shards = [ShardMark.read(mark) for mark in content["shards"]]
        if len(shards) != num_shards:
            raise SpecError(
                f"{path} has {len(shards)} shards, expected {num_shards}: pass the same "
                "num_shards (0 counts as 1)"
            )
        names = ("samples", "credit", "discarded", "newest_incarnation", "policy_version")
        return cls(directory=path.parent, shards=shards, **{n: content[n] for n in names})


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
