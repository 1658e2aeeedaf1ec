# SPDX-License-Identifier: Apache-2.0
"""Tensors that kernels write rows of agents into."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rollouts.envs.kernel.launch_args import GroupRows, WorldLaunch, WorldRows
from rollouts.envs.kernel.row_tensors import HeldRows, row_tensors

_STEP = ("obs", "reward", "terminated", "truncated", "active", "episode_return")


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """Shapes and dtypes of a group's rows.

    Attributes:
      num_agents: A.
      obs_shape: Shape of one agent's observation.
      obs_dtype: Name of its dtype.
      same_step: Whether rows have both an ended episode's last observation and the next one's
        first.
    """

    num_agents: int
    obs_shape: tuple[int, ...]
    obs_dtype: str
    same_step: bool


class AgentRowSet(HeldRows):
    """The tensors of one batch of worlds, with the launch that writes them.

    Attributes:
      groups: Name -> (*rows, A, ...) of each group, in their order.
      arrays: In the order of `StepBatch`, of which worlds have only `terminated` (their `ended`),
        env_id and episode_length; then seven arrays for each group.
      ended, episode_length: (*rows,) bool and int32, of worlds.
    """

    def __init__(
        self,
        groups: Sequence[GroupSpec],
        rows: tuple[int, ...],
        device: torch.device,
        launch: WorldLaunch,
        env_id: Tensor,
    ) -> None:
        """Makes the tensors; `env_id` is for all rows, and shared with other sets."""
        self.launch = launch
        columns = [_columns(group) for group in groups]
        flat = [column for of_group in columns for column in of_group.values()]
        tensors = row_tensors(rows, [((), torch.bool), ((), torch.int32), *flat], device)
        self.ended, self.episode_length, *rest = tensors
        left = iter(rest)
        self.groups = [{name: next(left) for name in of_group} for of_group in columns]
        launch.rows = WorldRows(
            ended=self.ended.data_ptr(), episode_length=self.episode_length.data_ptr()
        )
        for g, group in enumerate(self.groups):
            launch.rows.groups[g] = GroupRows(
                **{name: one.data_ptr() for name, one in group.items()}
            )
        of_groups = [group.get(name) for group in self.groups for name in (*_STEP, "final_obs")]
        self.arrays = [
            *(None, None, self.ended, None, env_id, None, self.episode_length, None),
            *of_groups,
        ]
        final = [group["final_obs"] for group in self.groups if "final_obs" in group]
        super().__init__(tensors, final)


def _columns(group: GroupSpec) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
    """Name -> (shape of an environment's part, dtype)."""
    agents, dtypes = (group.num_agents,), (torch.float32, *3 * [torch.bool], torch.float64)
    observation = ((*agents, *group.obs_shape), getattr(torch, group.obs_dtype))
    columns = {"obs": observation}
    columns |= {name: (agents, dtype) for name, dtype in zip(_STEP[1:], dtypes, strict=True)}
    return columns | ({"final_obs": observation} if group.same_step else {})
