# SPDX-License-Identifier: Apache-2.0
"""`Tape`: records the fragments of a collector, so that they can be made again."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import gymnasium
import numpy as np
import numpy.typing as npt

from rollouts.batch import RolloutBatch
from rollouts.run_log.fragment_sums import PoolColumns, SeenColumns, sum_up
from rollouts.run_log.log_header import LogHeader
from rollouts.run_log.log_writer import LogWriter
from rollouts.run_log.record_options import RunLog
from rollouts.run_log.suspects import MOST_WARNINGS, Suspect, Suspects, not_finite
from rollouts.support.user_warnings import warn_user

Array = npt.NDArray[Any]

_FLUSH_S = 10.0  # s; an error is delayed at most so long until its fragment is in the log
# these find the place in messages about a failed environment, and about a policy's output that is
# not finite
_OF_ENV = re.compile(r"\benv_id (\d+)")
_OF_POLICY = re.compile(r"\benvironment (\d+) of step (\d+)")


class Writing(Protocol):
    """The arrays into which a rollout is written; see `rollouts.collecting.arena.Arena`."""

    obs: Array
    outcome: dict[str, Array]
    choice: dict[str, Array]


class Rows(Protocol):
    """One group's rows; see `rollouts.collecting.rows.RolloutRows`."""

    name: str
    action_space: gymnasium.Space[Any]

    @property
    def arena(self) -> Writing: ...


class Tape:
    """Records fragments of one pool. Not thread-safe: one thread at a time collects.

    Steps are counted by environment, from 0 in each incarnation; steps of fragments that failed
    count, too.
    """

    def __init__(self, env: Any, log: RunLog, rollout_length: int, *, keep_final_obs: bool) -> None:
        """Begins the log.

        Raises:
          FileError, SpecError: See `LogWriter`.
        """
        self._env, self._log, self._length = env, log, rollout_length
        header = LogHeader.of(env, log, rollout_length, keep_final_obs=keep_final_obs)
        self._has_states = header.has_states
        self._agents = header.groups
        self._writer = LogWriter(log, header.as_facts(), can_rotate=header.has_states)
        self._statistics = getattr(getattr(env, "engine", None), "statistics", None)
        self._suspects, self._num_warnings = Suspects(), 0
        self._seq, self._is_open, self._must_save = 0, False, True
        self._is_given_up = False
        self._columns: dict[str, PoolColumns] = {}
        self._facts: dict[str, Any] = {}
        self._arrays: dict[str, Array] = {}

    def begin(self, groups: Sequence[Rows]) -> None:
        """Begins a fragment, whose first observations are in the rows of `groups`.

        Raises:
          FileError: The log cannot be written, and on_error is "stop".
        """
        self._check_writer()
        if self._is_given_up:
            return
        is_due = self._has_states and self._seq % self._log.state_every == 0
        if self._must_save or self._is_open or is_due:
            self._save_state(groups)
        self._facts, self._arrays = self._counted()
        self._is_open, self._must_save = True, False

    def columns(self, groups: Sequence[Rows]) -> dict[str, PoolColumns]:
        """Returns group -> arrays for the pool's threads to write in the fragment that begins."""
        if not self._columns:
            self._columns = {
                rows.name: PoolColumns(
                    self._length,
                    rows.arena.obs.shape[1],
                    fits_bytes=_fits_bytes(rows.action_space),
                )
                for rows in groups
            }
        return self._columns

    def end(
        self, batches: Mapping[str, RolloutBatch], written: Mapping[str, PoolColumns] | None = None
    ) -> None:
        """Records a complete fragment, and warns of suspects in it.

        Args:
          batches: group -> its batch.
          written: group -> what the pool's threads wrote into `columns`; None: nothing.
        """
        if self._is_given_up:
            return
        if written is None:
            seen = {name: SeenColumns.of(batch) for name, batch in batches.items()}
        else:
            seen = {name: one.seen for name, one in written.items()}
        total, known = sum_up(batches, seen)
        # pools whose environments step together have one version at a time
        versions = next(iter(batches.values())).policy_version
        facts = {"policy_version": [versions.item(0), versions.item(-1)], "sum": total}
        actions: dict[str, Array] = {}
        for name, batch in batches.items():
            kept = None if written is None else written[name].action_bytes
            actions[f"action.{name}"] = batch.action if kept is None else kept
        first = self._first_step
        self._put(facts, actions)
        for name, suspect in self._suspects.find(batches, known):
            self._warn(name, suspect, first)

    def forget(self) -> None:
        """Notes that the next fragment begins new episodes."""
        self._must_save, self._is_open = True, False

    def failed(self, error: Exception, groups: Sequence[Rows], counts: Array) -> None:
        """Records a fragment that an error ended; adds to the error the command that replays it.

        Args:
          error: The error. Its message is extended; a note is added where the message is not its
            first argument.
          groups: The rows that were being written.
          counts: (N,) steps whose actions were chosen, including the one that failed.
        """
        if not self._is_open or self._is_given_up or not all(one.arena.choice for one in groups):
            return
        first = self._first_step
        facts = {"sum": None, "failed": str(error)[:4000]}
        arrays: dict[str, Array] = {"counts": counts.astype(np.int32)}
        for rows in groups:
            action = rows.arena.choice["action"][: self._length].copy()
            of_agents = np.repeat(counts, self._agents.get(rows.name, 1))
            # later actions were not written in this fragment
            action[np.arange(self._length)[:, None] >= of_agents] = 0
            arrays[f"action.{rows.name}"] = action
        self._put(facts, arrays)
        self._writer.flush(_FLUSH_S)
        env_id, t = self._place_of(error, groups, counts)
        _add_to(error, f"`{self.command(env_id, first + t)}` shows it")

    def command(self, env_id: int, step: int) -> str:
        """Returns the command that makes a step again."""
        path, own = shlex.quote(os.fspath(self._log.path)), self._log.incarnation
        of = f" --incarnation {own}" if own else ""
        return f"rollouts replay-run {path} --env {env_id} --step {step}{of}"

    def flush(self) -> None:
        """Waits until all records are written, or cannot be."""
        self._writer.flush()

    def close(self) -> None:
        """Writes the records that wait; may be called twice."""
        self._writer.close()

    @property
    def _first_step(self) -> int:
        return self._seq * self._length

    def _put(self, facts: dict[str, Any], arrays: dict[str, Array]) -> None:
        place = {"seq": self._seq, "first_step": self._first_step}
        self._writer.put("fragment", {**place, **facts, **self._facts}, {**arrays, **self._arrays})
        self._seq += 1
        self._is_open = False

    def _save_state(self, groups: Sequence[Rows]) -> None:
        facts: dict[str, Any] = {"seq": self._seq, "first_step": self._first_step}
        arrays: dict[str, Array] = {}
        if self._has_states:
            states = self._env.get_state()
            facts["sizes"] = [len(one) for one in states]
            arrays["states"] = np.frombuffer(b"".join(states), np.uint8)
        if self._kinds:
            # observations are saved, because the statistics that scaled them have changed by the
            # replay
            arrays |= {f"obs.{rows.name}": rows.arena.obs[0].copy() for rows in groups}
        self._writer.put("state", facts, arrays)

    @property
    def _kinds(self) -> tuple[str, ...]:
        return getattr(self._statistics, "kinds", ())

    def _counted(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Returns the running statistics, which a learner may replace between two fragments."""
        if self._statistics is None or not self._kinds:
            return {}, {}
        counts: dict[str, float] = {}
        arrays: dict[str, Array] = {}
        for kind in self._kinds:
            one = self._statistics.read(kind)
            counts[kind] = float(one.count)
            arrays |= {f"mean.{kind}": np.array(one.mean), f"var.{kind}": np.array(one.var)}
        return {"count_of": counts, "counting": bool(self._statistics.are_updated)}, arrays

    def _check_writer(self) -> None:
        error = self._writer.error
        if error is None or self._is_given_up:
            return
        self._is_given_up = True
        if self._log.on_error == "stop":
            self._is_given_up = False  # raised by each collect
            raise error
        warn_user(f"recording ended, and the run goes on without it: {error}", RuntimeWarning)

    def _warn(self, name: str, suspect: Suspect, first: int) -> None:
        self._num_warnings += 1
        if self._num_warnings > MOST_WARNINGS:
            return
        env, who = self._named(name, suspect.column)
        step = first + suspect.t
        warn_user(f"{who} {suspect.what} at its step {step}: `{self.command(env, step)}` shows it",
                  RuntimeWarning)  # fmt: skip

    def _named(self, name: str, column: int) -> tuple[int, str]:
        """Returns the env_id of a group's column, and words that name it in messages."""
        agents = self._agents.get(name, 1)
        env = self._env.env_id_offset + column // agents
        agent = f", agent {column % agents} of group {name!r}," if name else ""
        return env, f"env_id {env}{agent}"

    def _place_of(self, error: Exception, groups: Iterable[Rows], counts: Array) -> tuple[int, int]:
        """Returns the env_id that an error is about, and the step within the fragment."""
        offset, last = self._env.env_id_offset, np.maximum(counts - 1, 0)
        if (found := _OF_ENV.search(str(error))) and 0 <= int(found[1]) - offset < len(counts):
            return int(found[1]), int(last[int(found[1]) - offset])
        for rows in groups:
            agents = self._agents.get(rows.name, 1)
            if found := _OF_POLICY.search(str(error)):
                return int(found[1]) // agents, int(found[2])
            made = rows.arena.obs[: int(counts.min()) + 1]
            if made.dtype.kind == "f" and (bad := not_finite(made, "observation")):
                return offset + bad.column // agents, max(bad.t - 1, 0)
        return offset, int(last[0])


def _add_to(error: Exception, words: str) -> None:
    """Adds words to an error's message, or a note if the message is not its first argument."""
    # an OSError or a KeyError has another message than its first argument
    if error.args and str(error) == error.args[0]:
        error.args = (f"{error}; {words}", *error.args[1:])
    else:
        error.add_note(words)


def _fits_bytes(space: gymnasium.Space[Any]) -> bool:
    if not isinstance(space, gymnasium.spaces.Discrete):
        return False
    first, count = int(space.start), int(space.n)
    return first >= 0 and first + count <= 256
