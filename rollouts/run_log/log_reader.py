# SPDX-License-Identifier: Apache-2.0
"""Finds a step in the log of a run, and the records from which the step can be made again."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from rollouts.errors import SpecError
from rollouts.run_log.log_format import LogRecord, read_record, read_records
from rollouts.run_log.log_header import LogHeader
from rollouts.run_log.log_writer import parts_in
from rollouts.support.plain_values import plain_path

FOLDER = "log"  # name of the log's folder in a run's directory


@dataclass(frozen=True, slots=True)
class _Place:
    """The place of a record, which stays in its file until it is needed."""

    path: Path
    start: int
    seq: int
    kind: str


@dataclass(frozen=True, slots=True, eq=False)
class Chain:
    """The records that make a fragment again.

    Attributes:
      header: The header of the log.
      state: The saved state to begin with.
      fragments: The fragments after that state, up to the one to make again.
    """

    header: LogHeader
    state: LogRecord
    fragments: list[LogRecord]


@dataclass(frozen=True, slots=True, eq=False)
class WorkerLog:
    """The log of one incarnation of a worker.

    Attributes:
      header: The header of the log.
      places: States and fragments that are kept, in the order in which they were written.
    """

    header: LogHeader
    places: list[_Place]

    def chain_to(self, step: int) -> Chain:
        """Returns the records that make the fragment of a step again.

        Raises:
          SpecError: There is no such step in the log, or records before it are missing.
        """
        length = self.header.rollout_length
        wanted, state, chain = step // length, None, list[_Place]()
        for place in self.places:
            if place.seq > wanted:
                break
            if place.kind == "state":
                state, chain = place, []
            else:
                chain.append(place)
        if state is None or not chain or chain[-1].seq != wanted:
            raise SpecError(f"step {step} is not in the log: {self.describe()}")
        if [one.seq for one in chain] != list(range(state.seq, wanted + 1)):
            raise SpecError(f"fragments before step {step} are missing: {self.describe()}")
        if not self.header.has_states and state.seq:
            raise SpecError(
                f"step {step} comes after an error or a reset, where episodes began anew in "
                "environments that save no states: only steps before it can be made again"
            )
        read = [_whole(place) for place in (state, *chain)]
        return Chain(self.header, read[0], read[1:])

    def steps(self) -> tuple[int, int]:
        """Returns the first step that can be made again, and the one after the last."""
        fragments = [place for place in self.places if place.kind == "fragment"]
        if not fragments:
            return 0, 0
        length = self.header.rollout_length
        return fragments[0].seq * length, (fragments[-1].seq + 1) * length

    def describe(self) -> str:
        """Says which steps there are."""
        first, end = self.steps()
        own = f"worker {self.header.worker_id}, incarnation {self.header.incarnation}"
        return f"{own} has steps {first} to {end - 1}" if end else f"{own} has no whole fragment"


def open_log(path: str | os.PathLike[str]) -> list[WorkerLog]:
    """Reads the log of a run, without its arrays.

    Args:
      path: The log's folder, or the run's directory, in which it is called "log".

    Returns:
      The log of each incarnation of each worker, in this order.

    Raises:
      SpecError: There is no log.
    """
    folder = Path(plain_path("path", path, "a log's folder, or a run's directory"))
    parts = parts_in(folder) or parts_in(folder / FOLDER)
    if not parts:
        raise SpecError(
            f"{folder} has no log of a run: give the folder that Collector(record=...) or "
            f"RolloutCoordinator(record=...) wrote, or the run's directory with a folder {FOLDER}"
        )
    found: dict[tuple[int, int], WorkerLog] = {}
    for (worker, incarnation, _), file in parts.items():
        log = found.get((worker, incarnation))
        for record, start in read_records(file, with_arrays=False):
            if record.kind == "log":
                header = LogHeader.read(record.facts, str(file))
                log = log or found.setdefault((worker, incarnation), WorkerLog(header, []))
            elif log is not None:
                log.places.append(_Place(file, start, int(record.facts["seq"]), record.kind))
    if not found:
        raise SpecError(
            f"{folder} has files named as those of a log, but none begins with the record that "
            "describes the run: they are damaged, cut off or another program's. Give another copy "
            "of the folder"
        )
    return list(found.values())


def find_log(
    logs: list[WorkerLog], env_id: int, step: int, worker: int | None, incarnation: int | None
) -> WorkerLog:
    """Returns the newest log that has a step of an environment.

    Args:
      logs: What `open_log` returned.
      env_id: Global id of the environment.
      step: Its step, counted from 0 in each incarnation.
      worker, incarnation: The only worker and incarnation to search; None for any.

    Raises:
      SpecError: None has it; the message says what there is.
    """
    headers = [log.header for log in logs]
    of_env = [
        log for log in logs if env_id - log.header.env_id_offset in range(log.header.num_envs)
    ]
    if not of_env:
        ranges = sorted({(one.env_id_offset, one.env_id_offset + one.num_envs) for one in headers})
        known = ", ".join(f"{first} to {end - 1}" for first, end in ranges)
        raise SpecError(f"env {env_id} is not in the log, expected one of {known}")
    asked = [
        log
        for log in of_env
        if worker in (None, log.header.worker_id) and incarnation in (None, log.header.incarnation)
    ]
    for log in reversed(asked):
        first, end = log.steps()
        if first <= step < end:
            return log
    there = "; ".join(log.describe() for log in asked or of_env)
    meant = "" if asked else " of that worker and incarnation"
    raise SpecError(f"step {step} of env {env_id}{meant} is not in the log: {there}")


def _whole(place: _Place) -> LogRecord:
    record = read_record(place.path, place.start)
    if record is None:
        raise SpecError(f"{place.path} is damaged at byte {place.start}: its checksum does not fit")
    return record
