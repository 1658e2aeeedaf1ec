# SPDX-License-Identifier: Apache-2.0
"""`Clocks`: streams, episodes and totals of N environments, as tensors."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rollouts.envs.kernel.launch_args import ClockColumns

# member of an EpisodeClock -> dtype here; torch supports few operations on unsigned numbers, so
# signed ones hold their bits
_CLOCK = {
    "seed": torch.int64,
    "env_id": torch.int32,
    "next_episode": torch.int32,
    "draws": torch.int32,
    "elapsed_steps": torch.int32,
    "episode_return": torch.float64,
    "ended": torch.bool,
    "stream_id": torch.int32,
}
_TOTALS = {"episodes": torch.int64, "lengths": torch.int64, "returns": torch.float64}
_NO_FAULT = -1  # all bits


class Clocks:
    """The state of episodes that is not part of their dynamics; kernels get the addresses.

    Attributes:
      clock: (N,) each, by the names of an EpisodeClock.
      totals: (N,) each, of all episodes that ended: episodes, lengths, returns.
      fault: (1,) int64: env_id << 8 | kind of fault, for the first environment with a fault.
    """

    def __init__(self, num_envs: int, device: torch.device, env_id_offset: int) -> None:
        """Makes the clocks of environments from `env_id_offset` on."""
        self.num_envs, self.device = num_envs, device
        self.clock = {name: self._zeros((num_envs,), dtype) for name, dtype in _CLOCK.items()}
        ids = torch.arange(env_id_offset, env_id_offset + num_envs, dtype=torch.int32)
        self.clock["env_id"].copy_(ids)
        self.clock["stream_id"].copy_(ids)
        self.totals = {name: self._zeros((num_envs,), dtype) for name, dtype in _TOTALS.items()}
        self.fault = self._zeros((1,), torch.int64).fill_(_NO_FAULT)

    def _zeros(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        return torch.zeros(shape, dtype=dtype, device=self.device)

    def columns(self) -> ClockColumns:
        """The addresses of the clocks."""
        return ClockColumns(**{name: one.data_ptr() for name, one in self.clock.items()})

    def seed(self, seeds: Sequence[int | None]) -> None:
        """Seeds streams; None keeps an environment's stream."""
        if len({*seeds}) == 1 and seeds[0] is not None:
            self.clock["seed"].fill_(_as_signed(seeds[0]))
            self.clock["stream_id"].copy_(self.clock["env_id"])
            self.clock["next_episode"].zero_()
            return
        rows = [row for row, seed in enumerate(seeds) if seed is not None]
        values = [_as_signed(seed) for seed in seeds if seed is not None]
        if rows:
            index = torch.tensor(rows, device=self.device)
            self.clock["seed"][index] = torch.tensor(values, device=self.device)
            self.clock["stream_id"][index] = self.clock["env_id"][index]
            self.clock["next_episode"][index] = 0

    def take_fault(self) -> tuple[int, int] | None:
        """Returns and clears (env_id, kind) of the first environment with a fault, or None.

        Waits for all streams of the device.
        """
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        value = int(self.fault.item())
        if value == _NO_FAULT:
            return None
        self.fault.fill_(_NO_FAULT)
        return value >> 8, value & 0xFF


def _as_signed(seed: int) -> int:
    """Returns the signed number with the same 64 bits."""
    return seed - 2**64 if seed >= 2**63 else seed
