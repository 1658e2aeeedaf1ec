# SPDX-License-Identifier: Apache-2.0
"""`PhysicsArrays`: clocks and rows of N environments, as torch's tensors and as Warp's arrays."""

from __future__ import annotations

from typing import Any

import torch
import warp as wp
from torch import Tensor

from rollouts.physics.kernels.structs import Clock, Outcome, Rows, Totals

_CLOCK = {
    "seed": torch.int64,  # torch computes little with unsigned numbers, whose bits are kept
    "env_id": torch.int32,
    "next_episode": torch.int32,
    "elapsed_steps": torch.int32,
    "episode_return": torch.float64,
    "ended": torch.bool,
    "broken": torch.bool,
    "fault": torch.int32,
}
_ROWS = {
    "reward": torch.float32,
    "terminated": torch.bool,
    "truncated": torch.bool,
    "episode_return": torch.float64,
    "episode_length": torch.int32,
}
_TOTALS = {"episodes": torch.int64, "lengths": torch.int64, "returns": torch.float64}


class PhysicsArrays:
    """Tensors with a row for each environment, and the same memory for kernels.

    Attributes:
      obs, final_obs: (N, size) float32; the latter is the former unless same-step.
      infos, final_infos: (N, values) float32, likewise.
      commands: (N,) uint8, of `kernels/episodes.py`.
      columns: Of the clock, the rows and the totals by name, as tensors.
      clock, rows, totals, outcome: The same as structs; NAME_wp: as Warp's arrays.
    """

    def __init__(
        self,
        num_envs: int,
        obs_size: int,
        num_infos: int,
        *,
        device: torch.device,
        same_step: bool,
    ) -> None:
        def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.zeros((num_envs, *shape), dtype=dtype, device=device)

        self.clock, self.clock_columns = _struct(Clock, _CLOCK, zeros)
        self.rows, self.row_columns = _struct(Rows, _ROWS, zeros)
        self.totals, self.total_columns = _struct(Totals, _TOTALS, zeros)
        self.obs, self.infos = zeros(obs_size), zeros(num_infos)
        self.final_obs = zeros(obs_size) if same_step else self.obs
        self.final_infos = zeros(num_infos) if same_step else self.infos
        self.commands = zeros(dtype=torch.uint8)
        # masks of a step: who moved, and who began an episode
        self._stepping = zeros(dtype=torch.bool)
        self._beginning = zeros(dtype=torch.bool)
        self.obs_wp, self.final_obs_wp = wp.from_torch(self.obs), wp.from_torch(self.final_obs)
        self.final_infos_wp = wp.from_torch(self.final_infos)
        self.commands_wp = wp.from_torch(self.commands)
        self.stepping_wp = wp.from_torch(self._stepping)
        self.beginning_wp = wp.from_torch(self._beginning)
        self._of_outcome = {
            "before": zeros(2, dtype=torch.float64),
            "reward": zeros(),
            "terminated": zeros(dtype=torch.bool),
            "infos": self.infos,
        }
        self.outcome = Outcome()
        for name, tensor in self._of_outcome.items():
            setattr(self.outcome, name, wp.from_torch(tensor))

    def clear(self) -> None:
        """Forgets what ran before the first reset; env_id stays."""
        for columns in (self.clock_columns, self.row_columns, self.total_columns):
            for name, tensor in columns.items():
                if name != "env_id":
                    tensor.zero_()
        for tensor in (self.obs, self.infos, self.final_obs, self.final_infos):
            tensor.zero_()


def _struct(kind: Any, dtypes: dict[str, torch.dtype], zeros: Any) -> tuple[Any, dict[str, Tensor]]:
    """A struct of new arrays, and the tensors that own them."""
    columns = {name: zeros(dtype=dtype) for name, dtype in dtypes.items()}
    struct = kind()
    for name, tensor in columns.items():
        dtype = wp.uint64 if name == "seed" else None
        setattr(struct, name, wp.from_torch(tensor, dtype=dtype))
    return struct, columns
