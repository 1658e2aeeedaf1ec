# SPDX-License-Identifier: Apache-2.0
"""Policies that act step by step: `InOrder` for synchronous pools, `AsTheyCome` for others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollouts.batch import RolloutBatch
from rollouts.collecting.deadline import Deadline, Receives
from rollouts.collecting.rows import ALONE, RolloutRows
from rollouts.collecting.steps import least_advanced, select
from rollouts.run_log.tape import Tape

Array = NDArray[Any]


class InOrder:
    """Steps all environments at once, T times; continues after a call that timed out.

    Attributes:
      tape: Records the rollouts; None: no record.
    """

    def __init__(
        self,
        env: Any,
        source: Receives[Any],
        groups: Sequence[RolloutRows],
        rollout_length: int,
        *,
        writes_in_place: bool,
    ) -> None:
        """Takes the rows to fill.

        Args:
          env: The environments.
          source: The object from which batches are received.
          groups: Rows of all groups.
          rollout_length: Steps T.
          writes_in_place: Whether the pool writes observations into the rollout itself.
        """
        self._env, self._source, self._groups = env, source, groups
        self._rollout_length, self._writes_in_place = rollout_length, writes_in_place
        self.tape: Tape | None = None
        self._alone = groups[0] if groups[0].name == ALONE else None
        self.reset()

    def reset(self) -> None:
        """Begins new episodes with the next call."""
        self._must_reset, self._is_resetting = True, False
        self._t, self._is_sent = 0, False  # the present step

    @property
    def is_new(self) -> bool:
        """Tells if the rows have no first observations yet."""
        return self._must_reset or self._is_resetting

    @property
    def is_under_way(self) -> bool:
        """Tells if a rollout has begun and has not ended."""
        return self._t > 0 or self._is_sent

    def start(self, deadline: Deadline) -> None:
        """Writes first observations into the rows, if episodes must begin."""
        if self._must_reset:
            self._env.async_reset()
            self._must_reset, self._is_resetting = False, True
        if self._is_resetting:
            batch = deadline.recv(self._source)
            for rows in self._groups:
                rows.arena.obs[0] = rows.step_of(batch).obs
            self._is_resetting = False

    def collect(self, deadline: Deadline) -> list[RolloutBatch]:
        """Steps T times and returns each group's rollout."""
        self.start(deadline)
        if self.tape is not None and not self.is_under_way:
            self.tape.begin(self._groups)
        with_obs = not self._writes_in_place
        while self._t < self._rollout_length:
            t = self._t
            if not self._is_sent:
                self._send(t)
                self._is_sent = True
            batch = deadline.recv(self._source)
            for rows in self._groups:
                rows.write(t, rows.step_of(batch), with_obs=with_obs)
            self._t, self._is_sent = t + 1, False
        batches = [rows.take(self._last_value(rows), 1) for rows in self._groups]
        self._t = 0
        if self.tape is not None:
            named = zip(self._groups, batches, strict=True)
            self.tape.end({rows.name: batch for rows, batch in named})
        return batches

    def go_on(self) -> None:
        """Begins with the observations in the rows, instead of new episodes."""
        self._must_reset = False

    def chosen_steps(self) -> NDArray[np.intp]:
        """Returns (N,) numbers of steps with an action in the present rollout."""
        steps = min(self._t + self._is_sent, self._rollout_length)
        return np.full(self._env.num_envs, steps, np.intp)

    def _last_value(self, rows: RolloutRows) -> NDArray[np.float32]:
        return rows.calls.last_value(rows.arena.obs[self._rollout_length], None, None)

    def _send(self, t: int) -> None:
        actions: Any
        obs: Any
        if self._alone is not None:
            actions, obs = self._alone.act(t), self._alone.arena.obs[t + 1]
        else:
            actions = {rows.name: rows.act(t) for rows in self._groups}
            obs = {rows.name: rows.obs_of(t + 1) for rows in self._groups}
        if self._writes_in_place:
            self._env.send(actions, out={"obs": obs})
        else:
            self._env.send(actions)


class AsTheyCome:
    """Steps the environments of an asynchronous pool, each at its own time index."""

    def __init__(
        self, env: Any, source: Receives[Any], rows: RolloutRows, rollout_length: int
    ) -> None:
        """Takes the rows to fill, those of environments with one agent."""
        self._env, self._source, self._rows = env, source, rows
        self._rollout_length = rollout_length
        self.reset()

    def reset(self) -> None:
        """Begins new episodes with the next call."""
        self._must_reset = True
        # each environment's row of the arena for its next obs
        self._next_row = np.zeros(self._env.num_envs, np.intp)
        self._waiting = np.zeros(self._env.num_envs, np.bool_)

    def collect(self, deadline: Deadline) -> list[RolloutBatch]:
        """Steps until each environment has T steps."""
        if self._must_reset:
            self._env.async_reset()
            self._must_reset = False
        self._act_on_waiting(np.flatnonzero(self._waiting & ~self._has_rollout()))
        while not self._has_rollout().all():
            # waiting environments that the pool needs to fill a batch run ahead
            missing = self._env.batch_size - (self._env.num_envs - self._waiting.sum())
            self._act_on_waiting(least_advanced(self._waiting, self._next_row, missing))
            self._recv_and_act(deadline)
        last_value = self._last_value()
        self._next_row -= self._rollout_length
        # one observation per environment, and the steps that ran ahead
        return [self._rows.take(last_value, int(self._next_row.max()))]

    def _recv_and_act(self, deadline: Deadline) -> None:
        """Writes a batch at each environment's own time, and acts on those without T steps."""
        step = deadline.recv(self._source)
        rows = step.env_id.astype(np.intp) - self._env.env_id_offset
        now = self._next_row[rows]
        self._rows.arena.obs[now, rows] = step.obs
        self._next_row[rows] += 1
        self._waiting[rows] = True

        # an environment's first observation after a reset is not the result of a step
        stepped = now > 0
        if stepped.all():
            self._rows.write_outcome(now - 1, rows, step)
        elif stepped.any():
            self._rows.write_outcome(now[stepped] - 1, rows[stepped], select(step, stepped))

        # if no environment has to wait, the policy gets the pool's own array
        going = now < self._rollout_length
        if going.all():
            self._act_on(rows, step.obs)
        else:
            self._act_on_waiting(rows[going])

    def _has_rollout(self) -> NDArray[np.bool_]:
        """Returns (N,) whether environments have T steps and the observation after them."""
        return self._next_row > self._rollout_length

    def _act_on_waiting(self, rows: NDArray[np.intp]) -> None:
        if rows.size:
            self._act_on(rows, self._rows.arena.obs[self._next_row[rows] - 1, rows])

    def _act_on(self, rows: NDArray[np.intp], obs: Array) -> None:
        actions = self._rows.act_on(obs, rows, self._next_row[rows] - 1)
        self._waiting[rows] = False
        self._env.send(actions, (rows + self._env.env_id_offset).astype(np.int32))

    def _last_value(self) -> NDArray[np.float32]:
        """Values (N,) the observation after row T - 1 of each environment."""
        steps, arena = self._rollout_length, self._rows.arena
        # an environment that ran ahead has already acted on this observation, which gave its value
        is_known = ~(self._waiting & (self._next_row == steps + 1))
        known = arena.choice["value"][steps]
        return self._rows.calls.last_value(arena.obs[steps], known, is_known)
