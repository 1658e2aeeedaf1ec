# SPDX-License-Identifier: Apache-2.0
"""Tensors that kernels write rows into, used again when nobody holds them any more."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from torch import Tensor

from rollouts import _native
from rollouts.envs.kernel.launch_args import DeviceRows, EnvLaunch
from rollouts.specs import EnvSpec

# the number of tensors that share a storage; private to torch, whose CUDA graph trees use it
_use_count: Callable[[int], int] | None = getattr(torch._C, "_storage_Use_Count", None)


@dataclass(frozen=True, slots=True)
class RowSpec:
    """Shapes and dtypes of a batch's rows.

    Attributes:
      obs_shape: Shape of one observation.
      obs_dtype: Name of its dtype.
      infos: (name, dtype, shape) of each info column.
      same_step: Whether rows have an ended episode's last observation and the next one's first.
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


class HeldRows:
    """The tensors of one batch, of which some may be held by others."""

    def __init__(self, tensors: Sequence[Tensor], final: Sequence[Tensor]) -> None:
        """Takes all tensors; `final` are those that are written only where an episode ended."""
        self._all = [*tensors]
        self._final = {one.data_ptr() for one in final}
        self._storages = [one.untyped_storage() for one in self._all]
        self._free_counts: list[int] = []

    @property
    def step_bytes(self) -> int:
        """The bytes that every step writes; last observations of ended episodes do not count."""
        return sum(one.nbytes for one in self._all if one.data_ptr() not in self._final)

    @property
    def num_bytes(self) -> int:
        """The size of all of them."""
        return sum(one.nbytes for one in self._all)

    def mark_free(self) -> None:
        """Remembers how often everything is held now, by nobody but this."""
        self._free_counts = self._counts()

    def _counts(self) -> list[int]:
        # those who hold the tensor itself, and those who hold a view of its memory
        held = [sys.getrefcount(one) for one in self._all]
        return held + [_use_count(one._cdata) if _use_count else 1 for one in self._storages]

    def is_free(self) -> bool:
        """Whether nobody holds a tensor of the last batch, or a view of one."""
        return _use_count is not None and self._counts() == self._free_counts


class RowSet(HeldRows):
    """Rows of light environments, and the launch that writes them.

    Attributes:
      arrays: In the order of `StepBatch`, then infos, and those of the step that ended an episode.
      final_obs: What episodes ended with, of rows that autoreset in the same step.
    """

    def __init__(
        self,
        spec: RowSpec,
        rows: tuple[int, ...],
        device: torch.device,
        launch: EnvLaunch,
        env_id: Tensor | None = None,
    ) -> None:
        """Makes them; `env_id` is of all rows, and others have it too."""
        # rows of many steps are each written once: zeros first would double what is written
        new = torch.zeros if len(rows) == 1 else torch.empty

        def make(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
            return new((*rows, *shape), dtype=dtype, device=device)

        own_dtype = getattr(torch, spec.obs_dtype)
        obs = make(spec.obs_shape, own_dtype)
        reward = make((), torch.float32)
        terminated, truncated = make((), torch.bool), make((), torch.bool)
        episode_return, episode_length = make((), torch.float64), make((), torch.int32)
        own = [make(shape, dtype) for _, dtype, shape in spec.infos]
        self.final_obs = make(spec.obs_shape, own_dtype) if spec.same_step else None
        final_infos = [make(shape, dtype) for _, dtype, shape in spec.infos if spec.same_step]
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
        step = [obs, reward, terminated, truncated]
        counts = [episode_return, episode_length]
        final = [] if self.final_obs is None else [self.final_obs]
        self.arrays = [*step, env_id, *counts, self.final_obs, *own, *final_infos]
        super().__init__([*step, *counts, *own, *final, *final_infos], [*final, *final_infos])


def _is_capturing() -> bool:
    # a process that has no context, such as one that emulates beside a card, gets none by this
    initialized = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return bool(initialized) and torch.cuda.is_current_stream_capturing()


Rows = TypeVar("Rows", bound=HeldRows)


class RowRing(Generic[Rows]):
    """RowRing: as many row sets as callers hold at once, and one more."""

    def __init__(self, num_envs: int, make: Callable[[tuple[int, ...]], Rows]) -> None:
        """Makes none yet; `make` makes those for batches of a shape, (N,) or (K, N)."""
        self._num_envs, self._make = num_envs, make
        self._sets: list[Rows] = []
        self._captured: list[Rows] = []
        self._next = 0

    @property
    def num_bytes(self) -> int:
        """The size of those that are kept to be taken again."""
        return sum(one.num_bytes for one in self._sets)

    def take(self) -> Rows:
        """Returns a row set that nobody holds; makes one if all are held."""
        taken = next((one for one in self._in_turn() if one.is_free()), None)
        if taken is None:
            taken = self._make((self._num_envs,))
            taken.mark_free()
            self._sets.insert(self._next, taken)
        if _is_capturing():
            # each replay of the graph writes it again, so no other caller may get it
            self._sets.remove(taken)
            self._captured.append(taken)
        return taken

    def _in_turn(self) -> Iterator[Rows]:
        for _ in [*self._sets]:
            self._next = (self._next + 1) % len(self._sets)
            yield self._sets[self._next]

    def make(self, num_steps: int) -> Rows:
        """One for all rows of some steps, which is its holder's alone."""
        return self._make((num_steps, self._num_envs))

    def make_one(self) -> Rows:
        """One for a step, which is its holder's alone."""
        return self._make((self._num_envs,))

    def forget(self) -> None:
        """Lets go of all: they know addresses that are no more."""
        self._sets.clear()
        self._next = 0
