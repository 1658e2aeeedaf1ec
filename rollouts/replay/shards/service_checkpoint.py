# SPDX-License-Identifier: Apache-2.0
"""A checkpoint of all shards: one file per shard, and one that names these files."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rollouts.errors import SpecError
from rollouts.replay import files
from rollouts.replay.shards.loss import Loss
from rollouts.replay.shards.shard import ShardReport, TableReport

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
