# SPDX-License-Identifier: Apache-2.0
"""`EnvArrays`: all data of a GPU's pool about its environments, as tensors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rollouts import _native
from rollouts.envs.kernel.clocks import Clocks
from rollouts.envs.kernel.launch_args import EnvLaunch, EpisodeTotals, Launch, WorldLaunch
from rollouts.envs.options import Columns
from rollouts.errors import SpecError

Array = npt.NDArray[Any]


class EnvArrays(Clocks, ABC):
    """Clocks, options and states of N environments; kernels get their addresses."""

    def __init__(
        self,
        native_id: str,
        num_envs: int,
        device: torch.device,
        env_id_offset: int,
        facts: dict[str, Any],
    ) -> None:
        """Makes the tensors; `facts` are `_native.device_facts` of the environments."""
        super().__init__(num_envs, device, env_id_offset)
        self.native_id, self._facts = native_id, facts
        self.options: Columns = {}
        self._configs = torch.empty(0)
        self._config_stride = 0
        self._allocate()

    @abstractmethod
    def _allocate(self) -> None:
        """Makes the arrays of states."""

    def set_options(self, columns: Columns) -> None:
        """Sets the options of all environments; options that are not named get their defaults.

        An option with one value for all environments, before and now, keeps its address.

        Raises:
          SpecError: As the C++ pool does.
        """
        facts = _native.device_facts(self.native_id, dict(columns), self.num_envs)
        self._configs = self._renewed(self._configs, facts["configs"])
        self._config_stride = int(len(facts["configs"]) > facts["config_bytes"])
        self._facts = facts
        self.options = columns

    def _renewed(self, before: Tensor, data: bytes) -> Tensor:
        # torch makes no tensor from zero bytes
        now = torch.frombuffer(bytearray(data or bytes(4)), dtype=torch.uint8)
        return before.copy_(now) if before.shape == now.shape else now.to(self.device)

    def fill(self, launch: Launch) -> None:
        """Writes the addresses of the arrays into a launch."""
        launch.num_envs = self.num_envs
        launch.configs = self._configs.data_ptr()
        launch.config_stride = self._config_stride
        launch.clock = self.columns()
        launch.totals = EpisodeTotals(**{name: one.data_ptr() for name, one in self.totals.items()})
        launch.fault = self.fault.data_ptr()

    @property
    @abstractmethod
    def moved_bytes(self) -> int:
        """Bytes of one environment's state and clock that a step reads and writes."""

    def save(self, rows: Sequence[int]) -> list[bytes]:
        """Saves states in the C++ pool's format, which that pool can load."""
        index = torch.tensor(rows, dtype=torch.int64, device=self.device)
        clocks = np.zeros(len(rows), _native.CLOCK_DTYPE)
        for name, column in self.clock.items():
            clocks[name] = column[index].cpu().numpy().view(clocks[name].dtype)
        return self._seal(rows, index, clocks)

    def load(self, rows: Sequence[int], states: list[bytes]) -> None:
        """Takes over states from `save` or from a C++ pool's get_state.

        Raises:
          SpecError: A state of another environment, or damaged. Nothing has changed then.
        """
        index = torch.tensor(rows, dtype=torch.int64, device=self.device)
        clocks = self._open(rows, index, states)
        for name, column in self.clock.items():
            if name != "env_id":
                column[index] = _as_tensor(clocks[name], column.dtype).to(self.device)

    @abstractmethod
    def _seal(self, rows: Sequence[int], index: Tensor, clocks: Array) -> list[bytes]:
        """The states of `rows` (also given as `index`) with these clocks."""

    @abstractmethod
    def _open(self, rows: Sequence[int], index: Tensor, states: list[bytes]) -> Array:
        """Takes over the states except their clocks, which are returned."""


class LightArrays(EnvArrays):
    """Light environments: (words, N) int32 of states, field by field.

    Large states, which a kernel does not copy to registers, are rows of that array's transpose.
    """

    def _allocate(self) -> None:
        words = self._facts["state_fields"]
        self._is_loaded: bool = self._facts["is_state_loaded"]
        if self._is_loaded:
            self.states = self._zeros((words, self.num_envs), torch.int32)
        else:
            self.states = self._zeros((self.num_envs, words), torch.int32).T

    def fill(self, launch: Launch) -> None:
        assert isinstance(launch, EnvLaunch)
        super().fill(launch)
        launch.states = self.states.data_ptr()

    @property
    def moved_bytes(self) -> int:
        # a step without random numbers does not touch the rest of its clock
        clock = sum(
            self.clock[name].itemsize for name in ("elapsed_steps", "episode_return", "ended")
        )
        # how much a step reads of a state in global memory depends on the environment
        return 2 * (4 * self.states.shape[0] * self._is_loaded + clock)

    def _seal(self, rows: Sequence[int], index: Tensor, clocks: Array) -> list[bytes]:
        words = self.states[:, index].contiguous().cpu().numpy()
        fields = words.view(np.float32) if self._facts["real_state"] else words
        return _native.seal_states(
            self.native_id,
            dict(self.options),
            self.num_envs,
            list(rows),
            clocks,
            fields.T.astype(np.float64),
        )

    def _open(self, rows: Sequence[int], index: Tensor, states: list[bytes]) -> Array:
        clocks, fields = _native.open_states(
            self.native_id, dict(self.options), self.num_envs, list(rows), states
        )
        dtype: npt.DTypeLike = np.float32 if self._facts["real_state"] else np.int32
        words = np.ascontiguousarray(fields.T).astype(dtype).view(np.int32)
        self.states[:, index] = torch.from_numpy(words).to(self.device)
        return clocks


class WorldArrays(EnvArrays):
    """Worlds of agents, each in the layout of the C++ pool.

    Attributes:
      worlds: (N, P, world_bytes / P) uint8, where P = 1 if teams of threads load worlds. If single
        threads do, a part has 16 bytes, and the same part of all environments is contiguous.
    """

    def __init__(
        self,
        native_id: str,
        num_envs: int,
        device: torch.device,
        env_id_offset: int,
        facts: dict[str, Any],
        alone: bool,
    ) -> None:
        """Makes the tensors; `alone`: single threads load worlds."""
        self._alone = alone
        super().__init__(native_id, num_envs, device, env_id_offset, facts)

    def _allocate(self) -> None:
        facts = self._facts
        self._world_bytes: int = facts["world_bytes"]
        parts = self._world_bytes // 16 if self._alone else 1
        size = self._world_bytes // parts
        self.worlds = self._zeros((parts, self.num_envs, size), torch.uint8).transpose(0, 1)
        self.groups = self._renewed(torch.empty(0), facts["groups"])
        self._spaces: Any = None
        # used if shared memory has no room for them
        self._actions = self._zeros((self.num_envs, facts["action_bytes"]), torch.uint8)
        self._tables = torch.empty(0)
        self._table_stride = 0

    def set_options(self, columns: Columns) -> None:
        facts = _native.device_facts(self.native_id, dict(columns), self.num_envs)
        # spaces of the first environment; those of the others must be equal
        spaces = _native.make_spec(self.native_id, dict(columns))["groups"]
        if self._spaces not in (None, spaces):
            changed = [
                before[0] for before, now in zip(self._spaces, spaces, strict=True) if before != now
            ]
            raise SpecError(
                f"these options change the number of agents or the spaces of {changed}, which a "
                "pool keeps: make a new one"
            )
        if facts["world_bytes"] != self._world_bytes:
            raise SpecError(
                "these options make the state of an environment another size, which a GPU's pool "
                "keeps: make a new one"
            )
        super().set_options(columns)
        self._spaces = spaces
        self._tables = self._renewed(self._tables, facts["tables"])
        self._table_stride = len(facts["tables"]) // 4 // self.num_envs * self._config_stride

    def fill(self, launch: Launch) -> None:
        assert isinstance(launch, WorldLaunch)
        super().fill(launch)
        launch.worlds = self.worlds.data_ptr()
        launch.world_bytes = self._world_bytes
        launch.groups = self.groups.data_ptr()
        launch.tables = self._tables.data_ptr()
        launch.table_stride = self._table_stride
        launch.action_memory = self._actions.data_ptr()

    @property
    def moved_bytes(self) -> int:
        clock = sum(one.itemsize for one in self.clock.values())
        return 2 * (self._world_bytes + clock)

    def _seal(self, rows: Sequence[int], index: Tensor, clocks: Array) -> list[bytes]:
        worlds = self.worlds[index].reshape(len(rows), -1).cpu().numpy()
        return _native.seal_worlds(self.native_id, dict(self.options), list(rows), clocks, worlds)

    def _open(self, rows: Sequence[int], index: Tensor, states: list[bytes]) -> Array:
        clocks, worlds = _native.open_worlds(
            self.native_id, dict(self.options), list(rows), states, self._world_bytes
        )
        given = torch.from_numpy(worlds).to(self.device)
        self.worlds[index] = given.view(len(rows), *self.worlds.shape[1:])
        return clocks


def _as_tensor(column: npt.NDArray[Any], dtype: torch.dtype) -> Tensor:
    kind = torch.empty(0, dtype=dtype).numpy().dtype
    return torch.from_numpy(np.ascontiguousarray(column).view(kind).copy())
