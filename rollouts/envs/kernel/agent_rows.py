# SPDX-License-Identifier: Apache-2.0
"""Tensors that kernels write rows of agents into."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rollouts.envs.kernel.launch_args import GroupRows, WorldLaunch, WorldRows
from rollouts.envs.kernel.rows import HeldRows

_STEP = ("obs", "reward", "terminated", "truncated", "active", "episode_return")


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """Shapes and dtypes of a group's rows.

    Attributes:
      num_agents: A.
      obs_shape: Shape of one agent's observation.
      obs_dtype: Name of its dtype.
      same_step: Whether rows have an ended episode's last observation and the next one's first.
    """

    num_agents: int
    obs_shape: tuple[int, ...]
    obs_dtype: str
    same_step: bool


class AgentRowSet(HeldRows):
    """The tensors of one batch of worlds, and the launch that writes them.

    Attributes:
      groups: Name -> (*rows, A, ...) of each group, in their order.
      arrays: In the order of `StepBatch`, of which worlds have no more than `terminated`, which is
        `ended`, env_id and episode_length; then seven for each group.
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
        """Makes them; `env_id` is of all rows, and others have it too."""
        self.launch = launch
        self.ended = torch.zeros(rows, dtype=torch.bool, device=device)
        self.episode_length = torch.zeros(rows, dtype=torch.int32, device=device)
        self.groups = [_tensors(group, rows, device) for group in groups]
        launch.rows = WorldRows(
            ended=self.ended.data_ptr(), episode_length=self.episode_length.data_ptr()
        )
        for g, tensors in enumerate(self.groups):
            launch.rows.groups[g] = GroupRows(
                **{name: one.data_ptr() for name, one in tensors.items()}
            )
        all_tensors = [one for tensors in self.groups for one in tensors.values()]
        of_groups = [tensors.get(name) for tensors in self.groups for name in (*_STEP, "final_obs")]
        self.arrays = [
            *(None, None, self.ended, None, env_id, None, self.episode_length, None),
            *of_groups,
        ]
        final = [group["final_obs"] for group in self.groups if "final_obs" in group]
        super().__init__([self.ended, self.episode_length, *all_tensors], final)


def _tensors(group: GroupSpec, rows: tuple[int, ...], device: torch.device) -> dict[str, Tensor]:
    # rows of many steps are each written once: zeros first would double what is written
    new = torch.zeros if len(rows) == 1 else torch.empty

    def make(dtype: torch.dtype, shape: tuple[int, ...] = ()) -> Tensor:
        return new((*rows, group.num_agents, *shape), dtype=dtype, device=device)

    obs_dtype = getattr(torch, group.obs_dtype)
    tensors = {
        "obs": make(obs_dtype, group.obs_shape),
        "reward": make(torch.float32),
        "terminated": make(torch.bool),
        "truncated": make(torch.bool),
        "active": make(torch.bool),
        "episode_return": make(torch.float64),
    }
    if group.same_step:
        tensors["final_obs"] = make(obs_dtype, group.obs_shape)
    return tensors
