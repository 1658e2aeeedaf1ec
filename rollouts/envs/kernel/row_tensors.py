# SPDX-License-Identifier: Apache-2.0
"""Tensors for kernels' rows, which are reused when they are no longer referenced."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from rollouts import _native
from rollouts.envs.kernel.cuda import current_capture
from rollouts.envs.kernel.emulation import current_recording
from rollouts.envs.kernel.launch_args import DeviceRows, EnvLaunch, Launch
from rollouts.specs import EnvSpec

# the number of tensors that share a storage; private to torch, whose CUDA graph trees use it
_use_count: Callable[[int], int] | None = getattr(torch._C, "_storage_Use_Count", None)
_ALIGNMENT = 256  # bytes; torch's own alignment, which wide stores need


@dataclass(frozen=True, slots=True)
class RowSpec:
    """Shapes and dtypes of a batch's rows.

    Attributes:
      obs_shape: Shape of one observation.
      obs_dtype: Name of its dtype.
      infos: (name, dtype, shape) of each info column.
      same_step: Whether rows have both an ended episode's last observation and the next one's
        first.
    """

    obs_shape: tuple[int, ...]
    obs_dtype: str
    infos: tuple[tuple[str, torch.dtype, tuple[int, ...]], ...]
    same_step: bool

    @classmethod
    def of(cls, spec: EnvSpec, native_id: str, obs_dtype: str, same_step: bool) -> RowSpec:
        """Reads the shapes and dtypes of an environment's rows."""
        infos = tuple(
            (name, getattr(torch, dtype.name), () if length is None else (length,))
            for name, dtype, length in _native.make_spec(native_id, dict(spec.options))["infos"]
        )
        return cls(spec.single_observation_space.shape or (), obs_dtype, infos, same_step)


def row_tensors(
    rows: tuple[int, ...],
    columns: Sequence[tuple[tuple[int, ...], torch.dtype]],
    device: torch.device,
) -> list[Tensor]:
    """Makes a tensor (*rows, *shape) for each (shape, dtype).

    Tensors of one step share a storage, so that a single reference count shows whether a view of
    any of them exists. The storage is filled with zeros, except within a capture, whose replays
    would fill it again. Rows of many steps are not counted and have storages of their own, without
    zeros: each is written once, and zeros would double the writes.
    """
    if len(rows) > 1:
        return [
            torch.empty((*rows, *shape), dtype=dtype, device=device) for shape, dtype in columns
        ]
    sizes = [math.prod((*rows, *shape)) * dtype.itemsize for shape, dtype in columns]
    ends = [*accumulate(-(-size // _ALIGNMENT) * _ALIGNMENT for size in sizes)]
    new = torch.zeros if _capture() is None else torch.empty
    memory = new(ends[-1], dtype=torch.uint8, device=device)
    return [
        memory[begin : begin + size].view(dtype).view((*rows, *shape))
        for begin, size, (shape, dtype) in zip([0, *ends], sizes, columns, strict=False)
    ]


def _capture() -> object | None:
    """The graph that records launches now; None if launches run at once."""
    return current_recording() or current_capture()


class HeldRows:
    """The tensors of one batch, which other code may reference.

    Attributes:
      arrays: The result of a step; empty if it has none.
      launch: The launch that writes one step into them.
    """

    arrays: Sequence[Tensor | None] = ()
    launch: Launch

    def __init__(self, tensors: Sequence[Tensor], final: Sequence[Tensor]) -> None:
        """Takes all tensors; `final` are those that are only written where an episode ended."""
        self._all = [*tensors]
        self._final = {one.data_ptr() for one in final}
        storages = [one.untyped_storage() for one in self._all]
        self._storages = [*{one._cdata: one for one in storages}.values()]

    @property
    def step_bytes(self) -> int:
        """The bytes that every step writes; last observations of ended episodes do not count."""
        return sum(one.nbytes for one in self._all if one.data_ptr() not in self._final)

    @property
    def num_bytes(self) -> int:
        """The size of all tensors."""
        return sum(one.nbytes for one in self._all)

    def join(self, sets: _native.RowSets[Any]) -> None:
        """Adds this set to `sets`, which reuse it when nothing outside it references its tensors.

        At the time of this call, nothing outside may reference them.
        """
        sets.add(
            self,
            self._all,
            [one._cdata for one in self._storages],
            tuple(self.arrays),
            self.launch,
            ctypes.addressof(self.launch),
        )


class RowSet(HeldRows):
    """Rows of light environments, with the launch that writes them.

    Attributes:
      arrays: In the order of `StepBatch`, then infos, then infos of the step that ended an episode.
      final_obs: Final observations of episodes, for rows with same-step autoreset.
    """

    def __init__(
        self,
        spec: RowSpec,
        rows: tuple[int, ...],
        device: torch.device,
        launch: EnvLaunch,
        env_id: Tensor | None = None,
    ) -> None:
        """Makes the tensors; `env_id` is for all rows, and shared with other sets."""
        own_dtype = getattr(torch, spec.obs_dtype)
        observation = (spec.obs_shape, own_dtype)
        infos = [(shape, dtype) for _, dtype, shape in spec.infos]
        flag = ((), torch.bool)
        step_columns = [observation, ((), torch.float32), flag, flag]
        step_columns += [((), torch.float64), ((), torch.int32), *infos]
        final_columns = [observation, *infos] if spec.same_step else []
        tensors = row_tensors(rows, [*step_columns, *final_columns], device)
        step, final = tensors[: len(step_columns)], tensors[len(step_columns) :]
        obs, reward, terminated, truncated, episode_return, episode_length, *own = step
        self.final_obs: Tensor | None = final[0] if final else None
        final_infos = final[1:]
        self.launch = launch
        launch.rows = DeviceRows(
            obs=obs.data_ptr(),
            final_obs=None if self.final_obs is None else self.final_obs.data_ptr(),
            reward=reward.data_ptr(),
            terminated=terminated.data_ptr(),
            truncated=truncated.data_ptr(),
            episode_return=episode_return.data_ptr(),
            episode_length=episode_length.data_ptr(),
        )
        for column, one in enumerate(final_infos or own):
            launch.rows.infos[column] = one.data_ptr()
            if spec.same_step:
                launch.rows.begun_infos[column] = own[column].data_ptr()
        self.arrays = [obs, reward, terminated, truncated, env_id, episode_return, episode_length]
        self.arrays += [self.final_obs, *own, *final_infos]
        super().__init__(tensors, final)


Rows = TypeVar("Rows", bound=HeldRows)


class RowRing(Generic[Rows]):
    """RowRing: as many row sets as callers reference at once, and one more.

    Attributes:
      sets: The sets that are reused when they are not referenced, the oldest first.
    """

    def __init__(self, num_envs: int, make: Callable[[tuple[int, ...]], Rows]) -> None:
        """Makes no set yet; `make` makes sets for batches of a shape, (N,) or (K, N)."""
        self._num_envs, self._make = num_envs, make
        self.sets: _native.RowSets[Rows] = _native.RowSets(_use_count)
        self._captured: _native.RowSets[Rows] = _native.RowSets(_use_count)
        self._capture: object | None = None

    @property
    def num_bytes(self) -> int:
        """The size of the sets that are kept."""
        return sum(one.num_bytes for one in self.sets.owners)

    def take(self) -> Rows:
        """Returns a row set that is not referenced elsewhere; makes one if there is none.

        A graph gets sets of its own, made during its capture, from the graph's memory. Each replay
        writes them again, so no other caller may get them. Later steps of the graph reuse sets of
        earlier ones that are not referenced any more.
        """
        capture = _capture()
        if capture != self._capture:
            # the former graph is complete: its sets belong to it and to code that references them
            self._capture = capture
            self._captured.clear()
        sets = self.sets if capture is None else self._captured
        taken = sets.take()
        if taken is None:
            taken = self._make((self._num_envs,))
            taken.join(sets)
        return taken

    def make(self, num_steps: int) -> Rows:
        """Returns a set for all rows of some steps, which is not reused."""
        return self._make((num_steps, self._num_envs))

    def make_one(self) -> Rows:
        """Returns a set for one step, which is not reused."""
        return self._make((self._num_envs,))

    def forget(self) -> None:
        """Drops all sets, because their launches have addresses that are no longer valid."""
        self.sets.clear()
        self._captured.clear()
