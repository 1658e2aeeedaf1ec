# SPDX-License-Identifier: Apache-2.0
"""The messages between a host and its processes; arrays are in shared memory."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import gymnasium
from gymnasium.vector import AutoresetMode

from rollouts.envs.hosted.processes import identity
from rollouts.envs.hosted.processes.failures import ProcessFailure

EnvFn = Callable[[], gymnasium.Env[Any, Any]]


@dataclass(frozen=True, slots=True)
class Setup:
    """Settings with which a process starts.

    Attributes:
      index: Index of the process.
      first: Index of its first environment.
      env_id_offset: The env_id of the host's first environment.
      seed: Base of the seeds of environments that are made again; None: the system's entropy.
      incarnation: How many processes had these environments before.
      autoreset_mode: The host's mode.
      reports_each: Whether the process reports each environment when it is done, or all at once.
      host_pid: Process id of the host.
    """

    index: int
    first: int
    env_id_offset: int
    seed: int | None
    incarnation: int
    autoreset_mode: AutoresetMode
    reports_each: bool
    host_pid: int


@dataclass(frozen=True, slots=True)
class Hello:
    """A process's report on its environments once they are made.

    Attributes:
      observation_spaces, action_spaces: The spaces that differ from one another.
      observation_space_of: The index of each environment's space in observation_spaces.
      metadata, render_mode: Attributes of the first environment.
    """

    observation_spaces: list[gymnasium.Space[Any]]
    observation_space_of: list[int]
    action_spaces: list[gymnasium.Space[Any]]
    metadata: dict[str, Any]
    render_mode: str | None


@dataclass(slots=True)
class Record:
    """The part of a row that is not in shared arrays.

    Attributes:
      index: Index of the environment in the host.
      info: The info that belongs to the observation of the row.
      final_info: The info of the step that ended an episode (same-step autoreset).
      objects, final_objects: Observations' leaves that are no arrays, in order.
      final_exact: The final observation itself, where it is not just the one shared array.
      failure: Why the row is cut short.
    """

    index: int
    info: dict[str, Any] = field(default_factory=dict)
    final_info: dict[str, Any] = field(default_factory=dict)
    objects: tuple[Any, ...] = ()
    final_objects: tuple[Any, ...] = ()
    final_exact: tuple[Any, ...] = ()
    failure: ProcessFailure | None = None

    def pickled(self) -> tuple[int, bytes]:
        """The index and the rest, which may fail to pickle or, on the other side, to unpickle."""
        fields = (
            self.info,
            self.final_info,
            self.objects,
            self.final_objects,
            self.final_exact,
            self.failure,
        )
        try:
            return self.index, identity.dumps_for_host(fields)
        except Exception as error:
            # the row's arrays are valid; only the info and objects are lost
            return Record(self.index, failure=_lost("pickled", error)).pickled()

    @classmethod
    def unpickled(cls, index: int, data: bytes) -> Record:
        """Reads what `pickled` returned."""
        try:
            return cls(index, *pickle.loads(data))
        except Exception as error:
            return cls(index, failure=_lost("unpickled", error))


def _lost(done: str, error: Exception) -> ProcessFailure:
    """Describes an info or observation that cannot be sent; pickle rarely says which."""
    failure = ProcessFailure.of(error)
    what = f"its info or observation cannot be {done} on the way between processes"
    return dataclasses.replace(failure, message=f"{what}: {failure.message}")
