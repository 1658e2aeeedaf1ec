# SPDX-License-Identifier: Apache-2.0
"""A native pool whose reward and termination are Python functions of the batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rollouts import _native
from rollouts.batch import STEP_ARRAYS
from rollouts.errors import ProtocolError, SpecError
from rollouts.own_model.parts import Layout, common_layout
from rollouts.own_model.step import BatchFunction, ModelStep, Parts, ends, rewards

Array = npt.NDArray[Any]

# places of the native core's own numbers, before the parts that `info` names (own_model.h)
_STEPPED, _DT, _TOLD = 0, 1, 2
# places of the arrays in recv's tuple; the row of parts is the only column of infos
_OBS, _FINAL_OBS = STEP_ARRAYS.index("obs"), STEP_ARRAYS.index("final_obs")
_REWARD, _TERMINATED = STEP_ARRAYS.index("reward"), STEP_ARRAYS.index("terminated")
_TRUNCATED, _ENV_ID = STEP_ARRAYS.index("truncated"), STEP_ARRAYS.index("env_id")
_RETURN, _LENGTH = STEP_ARRAYS.index("episode_return"), STEP_ARRAYS.index("episode_length")
_ROW = len(STEP_ARRAYS)


class FunctionPool(_native.CpuPool):
    """A CpuPool whose batches have gone through the user's functions.

    A batch is received with reward 0 and without termination. Then the functions run, and the pool
    gets their results: its environments then have these returns and ends, so that autoreset,
    refusals and saved states follow the same rules as with native rewards. If the functions end an
    episode in same-step mode, the next one begins here, on the caller's thread.
    """

    def __init__(
        self,
        *,
        layout: Layout,
        functions: Mapping[str, BatchFunction],
        same_step: bool,
        single_observation_space: Any,
        env_id_offset: int,
        num_envs: int,
        **arguments: Any,
    ) -> None:
        """Starts the pool.

        Args:
          layout: Places of the parts.
          functions: "reward" and "terminated", of which either may be missing.
          same_step: Whether the autoreset mode is same-step.
          single_observation_space: Space of one environment.
          env_id_offset, num_envs, arguments: Arguments of the CpuPool.
        """
        super().__init__(env_id_offset=env_id_offset, num_envs=num_envs, **arguments)
        self._layout, self._functions = layout, dict(functions)
        self._same_step, self._offset = same_step, env_id_offset
        # last row of each environment: (N, D) observations, (N, K) infos, (N,) seconds of a step
        space = single_observation_space
        self._last_obs = np.zeros((num_envs, *space.shape), space.dtype)
        width = max((part.end for part in layout.info.values()), default=0)
        self._last_told = np.zeros((num_envs, width), np.float64)
        self._dt = np.ones(num_envs, np.float64)
        self._whole = np.arange(env_id_offset, env_id_offset + num_envs, dtype=np.int32)
        self._masked = False  # a masked reset is in flight
        self._broken = ""  # the function that raised, until a reset

    @property
    def info_names(self) -> tuple[str, ...]:  # type: ignore[override]
        """Names of the option `info`."""
        return tuple(self._layout.info)

    # -- methods of CpuPool --------------------------------------------------------

    def send(
        self, actions: npt.ArrayLike, env_id: npt.ArrayLike | None, out: dict[str, Array] | None
    ) -> None:
        """See `CpuPool`."""
        self._check_whole()
        super().send(actions, env_id, out)

    def step(
        self, actions: npt.ArrayLike, env_id: npt.ArrayLike | None, out: dict[str, Array] | None
    ) -> tuple[Array, ...]:
        """See `CpuPool`."""
        self._check_whole()
        return self._scored(super().step(actions, env_id, out))

    def recv(self, timeout_s: float | None) -> tuple[Array, ...]:
        """See `CpuPool`."""
        self._check_whole()
        return self._scored(super().recv(timeout_s))

    def recv_rows(self, min: int, max: int, timeout_s: float | None) -> tuple[Array, ...]:
        """See `CpuPool`."""
        self._check_whole()
        return self._scored(super().recv_rows(min, max, timeout_s))

    def recv_all(self, timeout_s: float | None) -> tuple[Array, ...]:
        """See `CpuPool`."""
        self._check_whole()
        return self._scored(super().recv_all(timeout_s))

    def send_reset(self, mask: npt.NDArray[np.bool_] | None) -> None:
        """See `CpuPool`; without a mask it also clears the failure of a function."""
        if mask is not None:
            self._check_whole()
        super().send_reset(mask)
        self._masked, self._broken = mask is not None, ""

    def change(
        self, mask: npt.NDArray[np.bool_] | None, options: Mapping[str, Any], model: Sequence[Any]
    ) -> None:
        """See `CpuPool`; new models must have the parts of the present ones."""
        fixed = sorted({"observation", "info", "obs_dtype"} & set(options))
        if fixed:
            raise SpecError(f"reset options {fixed} would change the arrays: make a new pool")
        if "xml_file" in options:
            known = {name: values[0] for name, values in self.env_options().items()}
            both = {"xml_file": [known["xml_file"], *_listed(options["xml_file"])]}
            common_layout(known, both)  # type: ignore[arg-type]
        super().change(mask, options, model)

    def save_states(self, env_id: npt.ArrayLike) -> list[bytes]:
        """See `CpuPool`."""
        self._check_whole()
        return super().save_states(env_id)

    def load_states(self, env_id: npt.ArrayLike, states: Sequence[bytes]) -> None:
        """See `CpuPool`; the next step's previous numbers are those of the loaded states."""
        self._check_whole()
        super().load_states(env_id, states)
        self._remember(self.show_idle(env_id, False))

    def xla_handle(self) -> int:
        """Refuses, because compiled functions would bypass the user's functions."""
        raise SpecError(
            "MuJoCo-v0 has no xla(): its reward and terminated are Python functions, which "
            "compiled code cannot call; use step, or send and recv"
        )

    # -- helpers -------------------------------------------------------------------

    def _check_whole(self) -> None:
        if self._broken:
            raise ProtocolError(
                f"{self._broken} raised an exception and its batch is lost: call reset() first"
            )

    def _scored(self, arrays: tuple[Array, ...]) -> tuple[Array, ...]:
        """Fills reward, terminated and the values that depend on them into a batch."""
        stepped = arrays[_ROW][:, _STEPPED] != 0
        if self._masked:
            # a masked reset has stepped none of the rows
            stepped[:] = False
            self._masked = False
        if stepped.any():
            self._score(arrays, stepped)
        told = arrays[_ROW][:, _TOLD:]
        begun = self._begun(arrays)
        parts = self._layout.info.values()
        return (
            *arrays[:_ROW],
            *(part.of(told) for part in parts),
            # parts of the next episodes' first observations, from the native core
            *(part.of(begun) for part in parts if self._same_step),
        )

    def _score(self, arrays: tuple[Array, ...], stepped: npt.NDArray[np.bool_]) -> None:
        env_id = arrays[_ENV_ID]
        step = self._step(arrays, stepped)
        # until the functions have returned, the pool counts as broken
        reward: Array = np.zeros(len(env_id))
        terminated = np.zeros(len(env_id), np.bool_)
        if "reward" in self._functions:
            self._broken = "reward"
            reward = rewards(self._functions["reward"](step), step)
        if "terminated" in self._functions:
            self._broken = "terminated"
            terminated = ends(self._functions["terminated"](step), step)
        self._broken = ""
        arrays[_REWARD][...] = reward
        arrays[_TERMINATED][...] = terminated
        arrays[_RETURN][...] += reward
        # the functions do not decide on episodes that the pool has ended itself
        ours = stepped & ~arrays[_TRUNCATED] if self._same_step else stepped
        if ours.all():
            self.end_steps(env_id, reward, terminated)
        else:
            self.end_steps(env_id[ours], reward[ours], terminated[ours])

    def _begun(self, arrays: tuple[Array, ...]) -> Array:
        """Begins episodes in same-step mode, and remembers each row.

        Returns:
          (B, K) infos: of the next episode where one has begun.
        """
        told = arrays[_ROW][:, _TOLD:]
        ended = arrays[_TERMINATED] | arrays[_TRUNCATED]
        self._remember(arrays)
        if not self._same_step or not ended.any():
            return told
        ours = arrays[_TERMINATED] & ~arrays[_TRUNCATED]
        arrays[_FINAL_OBS][ours] = arrays[_OBS][ours]
        fresh = self.show_idle(arrays[_ENV_ID][ended], True)
        arrays[_OBS][ended] = fresh[_OBS]
        self._remember(fresh)
        begun = told.copy()
        begun[ended] = fresh[_ROW][:, _TOLD:]
        return begun

    def _remember(self, arrays: tuple[Array, ...]) -> None:
        rows = self._rows(arrays[_ENV_ID])
        self._last_obs[rows] = arrays[_OBS]
        self._last_told[rows] = arrays[_ROW][:, _TOLD:]
        dt = arrays[_ROW][:, _DT]
        # the row of a failed environment is zeros
        self._dt[rows] = np.where(dt > 0, dt, self._dt[rows])

    def _rows(self, env_id: Array) -> Any:
        """Indices of the rows' environments; a slice, which saves a copy, if all are in order."""
        if len(env_id) == len(self._whole) and np.array_equal(env_id, self._whole):
            return slice(None)
        return env_id - self._offset

    def _step(self, arrays: tuple[Array, ...], stepped: npt.NDArray[np.bool_]) -> ModelStep:
        env_id, length = arrays[_ENV_ID], arrays[_LENGTH]
        obs, row = arrays[_OBS], arrays[_ROW]
        told, dt, rows = row[:, _TOLD:], row[:, _DT], self._rows(env_id)
        before_obs, before_told = self._last_obs[rows], self._last_told[rows]
        if self._same_step and arrays[_TRUNCATED].any():
            # the pool has begun the next episode already
            obs = obs.copy()
            obs[arrays[_TRUNCATED]] = arrays[_FINAL_OBS][arrays[_TRUNCATED]]
        if not stepped.all():
            obs, told, before_obs, before_told = (
                obs.copy(),
                told.copy(),
                before_obs.copy(),
                (before_told.copy()),
            )
            failed = ~stepped & arrays[_TRUNCATED]
            obs[failed], told[failed] = before_obs[failed], before_told[failed]
            dt = np.where(failed, self._dt[rows], dt)
            before_obs[~stepped], before_told[~stepped] = obs[~stepped], told[~stepped]
        return ModelStep(
            now=Parts(self._layout.views(obs, told)),
            previous=Parts(self._layout.views(before_obs, before_told)),
            actions=_frozen(self.action_rows(env_id)),
            dt=_frozen(dt),
            env_ids=_frozen(env_id[:]),
            episode_length=_frozen(length[:]),
            stepped=_frozen(stepped[:]),
        )


def _listed(column: Any) -> list[Any]:
    return column if isinstance(column, list) else [column]


def _frozen(view: Array) -> Array:
    """A separate view that is read-only."""
    view.flags.writeable = False
    return view
