# SPDX-License-Identifier: Apache-2.0
"""`PhysicsArrays`: clocks and rows of N environments, as torch's tensors and as Warp's arrays."""

from __future__ import annotations

from typing import Any

import torch
import warp as wp
from torch import Tensor

from rollouts.envs.kernel.clocks import Clocks
from rollouts.envs.physics.kernels.structs import BatchRows, Clock, StepOutcome, Totals

_ROWS = {
    "reward": torch.float32,
    "terminated": torch.bool,
    "truncated": torch.bool,
    "episode_return": torch.float64,
    "episode_length": torch.int32,
}


class PhysicsArrays(Clocks):
    """Tensors with a row for each environment, and the same memory for kernels.

    Attributes:
      broken: (N,) bool: a fault cut the episode off.
      faults: (N,) int32: the first fault since faults were last read, see
        `kernels/world_episodes.py`.
      rows: (N,) each: the last step's reward, ends and so on, by name.
      obs, final_obs: (N, size) float32; both are the same tensor unless in same-step mode.
      infos, final_infos: (N, values) float32, likewise.
      commands: (N,) uint8, a constant of `kernels/world_episodes.py` each.
      stepping, beginning: (N,) bool: environments that moved in a step, or began an episode.
      outcomes: A task's results of a step, by the names of `outcome`, and `before`, (N, 2) float64:
        what a task remembers of the step before.
      clocks, out, sums, outcome: Structs of clock, rows and totals, and of a task's results;
        NAME_wp: the tensor NAME as Warp's array.
    """

    def __init__(
        self,
        num_envs: int,
        obs_size: int,
        num_infos: int,
        *,
        device: torch.device,
        env_id_offset: int,
        same_step: bool,
    ) -> None:
        super().__init__(num_envs, device, env_id_offset)

        def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return self._zeros((num_envs, *shape), dtype)

        self.broken, self.faults = zeros(dtype=torch.bool), zeros(dtype=torch.int32)
        self.rows = {name: zeros(dtype=dtype) for name, dtype in _ROWS.items()}
        clock = {name: one for name, one in self.clock.items() if name != "draws"}
        self.clocks = _struct(Clock, {**clock, "broken": self.broken, "fault": self.faults})
        self.out, self.sums = _struct(BatchRows, self.rows), _struct(Totals, self.totals)
        self.obs, self.infos = zeros(obs_size), zeros(num_infos)
        self.final_obs = zeros(obs_size) if same_step else self.obs
        self.final_infos = zeros(num_infos) if same_step else self.infos
        self.commands = zeros(dtype=torch.uint8)
        self.stepping = zeros(dtype=torch.bool)
        self.beginning = zeros(dtype=torch.bool)
        self.obs_wp, self.final_obs_wp = wp.from_torch(self.obs), wp.from_torch(self.final_obs)
        self.final_infos_wp = wp.from_torch(self.final_infos)
        self.commands_wp = wp.from_torch(self.commands)
        self.stepping_wp = wp.from_torch(self.stepping)
        self.beginning_wp = wp.from_torch(self.beginning)
        self.outcomes = {
            "before": zeros(2, dtype=torch.float64),
            "reward": zeros(),
            "terminated": zeros(dtype=torch.bool),
            "infos": self.infos,
        }
        self.outcome = StepOutcome()
        for name in ("reward", "terminated", "infos"):
            setattr(self.outcome, name, wp.from_torch(self.outcomes[name]))

    def row_arrays(self) -> dict[str, Any]:
        """Arrays that a step has written, as Warp's arrays, by the names of DeviceRows."""
        rows = {name: getattr(self.out, name) for name in _ROWS}
        return {"obs": self.obs_wp, "final_obs": self.final_obs_wp, **rows}

    def state(self) -> dict[str, Tensor]:
        """Arrays of an environment's state except its world, (N, ...) each."""
        clock = {name: one for name, one in self.clock.items() if name != "env_id"}
        shown = {"broken": self.broken, "obs": self.obs, "infos": self.infos}
        return {**clock, **shown, "before": self.outcomes["before"]}

    def counts(self) -> list[Tensor]:
        """Arrays that a step writes besides the state."""
        shown = [self.final_obs, self.final_infos, self.commands]
        return [*self.rows.values(), *self.totals.values(), self.faults, *shown]

    def clear(self) -> None:
        """Clears what ran before the first reset; ids stay."""
        clock = [one for name, one in self.clock.items() if name not in ("env_id", "stream_id")]
        for tensor in (*clock, *self.rows.values(), *self.totals.values()):
            tensor.zero_()
        for tensor in (self.broken, self.faults):
            tensor.zero_()
        for tensor in (self.obs, self.infos, self.final_obs, self.final_infos):
            tensor.zero_()


def _struct(kind: Any, tensors: dict[str, Tensor]) -> Any:
    """A struct of arrays in the tensors' memory."""
    struct = kind()
    for name, tensor in tensors.items():
        dtype = wp.uint64 if name == "seed" else None
        setattr(struct, name, wp.from_torch(tensor, dtype=dtype))
    return struct
