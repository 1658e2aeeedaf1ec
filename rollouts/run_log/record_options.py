# SPDX-License-Identifier: Apache-2.0
"""`RunLog`: where a run is recorded, and within which bounds."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Literal, Self, get_args

from rollouts.checks import whole_number
from rollouts.errors import SpecError
from rollouts.support.plain_values import plain_path, shown

OnError = Literal["warn", "stop"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLog:
    """The log that a Collector or a RolloutCoordinator writes, for `rollouts replay-run`.

    Attributes:
      path: Folder of the log, made if it is missing; workers on other machines write it there.
      state_every: Fragments between two saved states of the pool: making a step again takes at most
        that many fragments, but each saving takes time.
      max_bytes: Most bytes of one worker's log, all of its incarnations together. The oldest
        fragments make room; if the environments save no states, recording ends instead.
      on_error: "warn": where the log cannot be written, as on a full disk, a warning says so and
        the run goes on without it. "stop": `collect` raises the FileError.
      worker_id, incarnation: Worker that writes the log; a coordinator sets them.
    """

    path: str | os.PathLike[str]
    state_every: int = 16
    max_bytes: int = 1 << 30
    on_error: OnError = "warn"
    worker_id: int = 0
    incarnation: int = 0

    def __post_init__(self) -> None:
        """Raises SpecError where a value is out of range."""
        plain_path("record", self.path, "a folder such as 'runs/first/log', or RunLog(path=...)")
        whole_number("state_every", self.state_every, 1)
        whole_number("max_bytes", self.max_bytes, 1 << 16)
        whole_number("worker_id", self.worker_id, 0)
        whole_number("incarnation", self.incarnation, 0)
        if self.on_error not in get_args(OnError):
            raise SpecError(f"on_error is {shown(self.on_error)}, expected 'warn' or 'stop'")

    @classmethod
    def of(cls, given: object) -> RunLog | None:
        """Returns what the keyword `record` means: a folder's path, a RunLog or None.

        Raises:
          SpecError: It is something else.
        """
        if given is None or isinstance(given, RunLog):
            return given
        return cls(path=given)  # type: ignore[arg-type]

    def of_worker(self, worker_id: int, incarnation: int) -> Self:
        """Returns the same for one incarnation of a worker."""
        return replace(self, worker_id=worker_id, incarnation=incarnation)

    def absolute(self) -> Self:
        """Returns the same with a path that means the same in every working directory."""
        return replace(self, path=os.path.abspath(self.path))
