# SPDX-License-Identifier: Apache-2.0
"""`ActionSender`: actions on their way to the environments."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rollouts.envs.hosted.batches import HostedEpisodes
from rollouts.envs.hosted.call_checks import checked_out
from rollouts.envs.hosted.in_flight import InFlight
from rollouts.envs.hosted.leaves import action_columns
from rollouts.envs.hosted.processes import identity
from rollouts.envs.hosted.processes.host import Host
from rollouts.errors import ProtocolError

Array = npt.NDArray[Any]


class ActionSender:
    """Writes actions where the environments read them, and starts their steps."""

    def __init__(
        self,
        host: Host,
        episodes: HostedEpisodes,
        flight: InFlight,
        *,
        is_synchronous: bool,
        same_step: bool,
    ) -> None:
        """Takes the host of the environments and the objects that record what is sent."""
        self._host, self._episodes, self._flight = host, episodes, flight
        self._is_synchronous, self._same_step = is_synchronous, same_step

    def send(self, actions: Any, env_id: npt.ArrayLike | None, out: dict[str, Any] | None) -> None:
        """Starts stepping environments, as `VectorEnv.send` does.

        Raises:
          SpecError, DTypeError, ProtocolError, ClosedError: As in `VectorEnv.send`. Then nothing
            was sent.
        """
        host, flight = self._host, self._flight
        host.check_open()
        rows = flight.rows(env_id)
        count = host.num_envs if rows is None else len(rows)
        columns = action_columns(host.action_leaves, actions, count)
        flight.check_sendable(rows)
        targets = {} if out is None else self._targets(out, count)
        # an action that does not pickle fails here, before anything has changed
        objects: dict[int, list[bytes]] = {}
        for leaf, column in enumerate(columns):
            if isinstance(column, list):
                objects[leaf] = [identity.dumps(value, host.known) for value in column]
        for leaf, column in enumerate(columns):
            if leaf not in objects:
                host.arrays[f"action/{leaf}"][slice(None) if rows is None else rows] = column
        # before the processes get the actions: another thread may then receive the rows at once
        flight.send(rows)
        flight.out = targets
        with host.lock:
            going = self._without_lost(rows) if host.lost else rows
            if going is None or going.size:
                if going is not None and going is not rows and objects:
                    sent = np.arange(host.num_envs) if rows is None else rows
                    kept = np.flatnonzero(np.isin(sent, going))
                    objects = {leaf: [values[i] for i in kept] for leaf, values in objects.items()}
                host.step(going, objects)

    def _targets(self, out: dict[str, Any], count: int) -> dict[str, Array]:
        targets = checked_out(
            out,
            self._host.observation_leaves,
            count,
            is_synchronous=self._is_synchronous,
            keeps_final=self._same_step,
        )
        if targets and self._flight.count:
            raise ProtocolError("a send with out must be the only one before the next recv")
        return targets

    def _without_lost(self, rows: Array | None) -> Array | None:
        """Cuts short the episodes whose process has died meanwhile; returns the other rows."""
        lost = self._host.lost
        everything = np.arange(self._host.num_envs) if rows is None else rows
        told = []
        for row in everything.tolist():
            failure = lost.pop(row, None)
            # an episode that was over has lost nothing
            if failure is not None and (self._same_step or not self._episodes.has_ended[row]):
                told.append(row)
                self._host.fail(row, failure)
        return everything[~np.isin(everything, told)] if told else rows
