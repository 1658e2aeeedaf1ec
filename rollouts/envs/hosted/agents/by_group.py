# SPDX-License-Identifier: Apache-2.0
"""`AgentColumns`: batches of several agents' environments, group by group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rollouts.envs.hosted.agents.one_env import FLAGS, NUMBERS
from rollouts.envs.hosted.batches import Batch
from rollouts.errors import SpecError
from rollouts.specs import AgentGroup

Array = npt.NDArray[Any]


class AgentColumns:
    """Splits observations of `ParallelEnvAsOne` into the arrays that engines return for groups.

    Attributes:
      groups: Groups of agents, in order.
    """

    def __init__(self, of_envs: Sequence[Sequence[AgentGroup]], *, reports_errors: bool) -> None:
        """Takes the groups of each environment.

        Raises:
          SpecError: An environment's agents are not those of the first.
        """
        for index, other in enumerate(of_envs):
            if [one.agents for one in other] != [one.agents for one in of_envs[0]]:
                raise SpecError(
                    f"environment {index} has the agents {[one.agents for one in other]}, "
                    f"environment 0 {[one.agents for one in of_envs[0]]}: expected the same"
                )
        self.groups = tuple(of_envs[0])
        self._names = [one.name for one in self.groups]
        self._reports_errors = reports_errors

    def actions(self, by_group: Sequence[Any]) -> dict[str, Any]:
        """The actions that `ParallelEnvAsOne` takes, as a batch."""
        return dict(zip(self._names, by_group, strict=True))

    def split(self, batch: Batch) -> tuple[Any, ...]:
        """Returns a batch's arrays, then `joined` of each group, and then each group's arrays."""
        obs, final = batch.obs, batch.final_obs
        ended = batch.terminated | batch.truncated
        # an environment that failed reports nothing of its agents and repeats its last step: all
        # are truncated
        failed = ended & ~(obs if final is None else final)["is_over"].astype(np.bool_)
        if self._reports_errors and batch.failures:
            failed |= np.isin(batch.env_id, [env_id for env_id, _ in batch.failures])
        joined, arrays = [], []
        for name in self._names:
            columns = {
                column: self._column(column, name, obs, final, ended)
                for column in (*FLAGS, *NUMBERS)
            }
            for column in ("reward", "terminated", "joined"):
                columns[column][failed] = 0
            for column in ("truncated", "active"):
                columns[column][failed] = True
            joined.append(columns["joined"])
            arrays.append(obs["obs"][name])
            shown = ("reward", "terminated", "truncated", "active", "episode_return")
            arrays += [columns[column] for column in shown]
            arrays.append(None if final is None else final["obs"][name])
        return (*batch, *joined, *arrays)

    def _column(self, column: str, group: str, obs: Any, final: Any, ended: Array) -> Array:
        array = np.array(obs[column][group])
        if final is not None:
            # the step's numbers came with the observation that the reset replaced
            array[ended] = final[column][group][ended]
        return array.astype(np.bool_) if column in FLAGS else array
