# SPDX-License-Identifier: Apache-2.0
"""Steps and partial resets of a pool whose environments Tianshou names by their indices."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from tianshou.data import to_numpy

import rollouts
from rollouts.batch import StepBatch
from rollouts.envs.face import check_on_host, on_host
from rollouts.errors import DTypeError, ProtocolError, SpecError

Array = npt.NDArray[Any]


class Pool(Protocol):
    """The part of a `rollouts.VectorEnv` that is needed here; other pools may provide it, too."""

    num_envs: int
    batch_size: int
    env_id_offset: int
    autoreset_mode: AutoresetMode
    metadata: dict[str, Any]
    single_action_space: Any
    single_observation_space: Any

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Array, dict[str, Any]]: ...
    def send(self, actions: Any, env_id: Any = None) -> None: ...
    def recv_batch(self, timeout_s: float | None = None, **rows: int) -> StepBatch: ...
    def drain(self) -> tuple[Array, Array, Array, Array, dict[str, Any]]: ...
    def render(self) -> Any: ...
    def action_masks(self) -> Array: ...
    def close(self) -> None: ...


def open_pool(
    envs: Any, num_envs: int | None, wait_num: int | None, options: Mapping[str, Any]
) -> tuple[Pool, int]:
    """Makes a pool of ids, or checks the one given; returns it with the wait_num to use."""
    if isinstance(envs, str) or (
        isinstance(envs, Sequence) and all(isinstance(e, str) for e in envs)
    ):
        count = num_envs if num_envs is not None else 1 if isinstance(envs, str) else len(envs)
        _check_wait_num(wait_num, count)
        # a single environment has no part that could be waited for
        rows = None if wait_num in (None, count) else wait_num
        pool: Any = on_host(
            rollouts.make_vec(envs, count, batch_size=rows, autoreset_mode="same_step", **options)
        )
        return pool, wait_num or count
    given = {name: value for name, value in options.items() if value is not None}
    if num_envs is not None or given:
        raise SpecError(
            f"num_envs={num_envs} and {given} are for ids; a pool that exists has its own, "
            f"got {envs!r}"
        )
    check_on_host(envs)
    if not hasattr(envs, "recv_batch"):
        raise SpecError(
            f"envs is {envs!r}, expected an id of rollouts.env_ids(), a sequence of ids or of "
            "functions that make environments, or a rollouts.VectorEnv"
        )
    return envs, _wait_num_of(envs, wait_num)


def _wait_num_of(pool: Pool, wait_num: int | None) -> int:
    mode = pool.autoreset_mode
    synchronous = pool.batch_size == pool.num_envs
    if mode is AutoresetMode.NEXT_STEP:
        raise SpecError(
            "the pool's autoreset_mode is next_step, expected same_step or disabled: Tianshou "
            "resets ended environments itself, so the step that a next-step pool spends on "
            "its reset would be stored as a transition of the new episode"
        )
    if mode is AutoresetMode.DISABLED and not synchronous:
        raise SpecError(
            "an asynchronous pool (batch_size < num_envs) without autoreset cannot reset some "
            "environments while others step; make it with autoreset_mode='same_step'"
        )
    _check_wait_num(wait_num, pool.num_envs)
    if synchronous and wait_num not in (None, pool.num_envs):
        raise SpecError(
            f"wait_num is {wait_num}, but the pool steps all {pool.num_envs} environments "
            f"together: make it with batch_size={wait_num}"
        )
    return pool.batch_size if wait_num is None else wait_num


def _check_wait_num(wait_num: int | None, num_envs: int) -> None:
    if wait_num is not None and not 1 <= wait_num <= num_envs:
        raise SpecError(f"wait_num is {wait_num}, expected 1 <= wait_num <= {num_envs}")


class EnvRows:
    """The state of a pool's environments between Tianshou's calls."""

    def __init__(self, pool: Pool, wait_num: int, timeout_s: float | None) -> None:
        """Takes over the pool; no other code may step it."""
        self._pool, self._wait_num, self._timeout_s = pool, wait_num, timeout_s
        self._synchronous = pool.batch_size == pool.num_envs
        self._same_step = pool.autoreset_mode is AutoresetMode.SAME_STEP
        self._discrete = isinstance(
            pool.single_action_space, (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
        )
        count = pool.num_envs
        self._started = np.zeros(count, np.bool_)
        self._ended = np.zeros(count, np.bool_)  # True until the caller resets an ended environment
        self._first_obs: Array | None = None  # (N, *obs_shape), valid where _ended
        self._due: dict[str, dict[int, Any]] = {}  # options that wait for a reset
        self._in_flight = 0
        self._fetched: list[StepBatch] = []  # batches that arrived before `receive` was called

    def send(self, action: Any, ids: Array) -> None:
        """Starts a step; ProtocolError where an episode has ended or none has begun."""
        if not self._started[ids].all():
            raise ProtocolError(
                f"environments {ids[~self._started[ids]].tolist()} were never reset; call reset"
            )
        if self._ended[ids].any():
            raise ProtocolError(
                f"the episodes of environments {ids[self._ended[ids]].tolist()} have ended; call "
                "reset(env_id) for them before their next step"
            )
        self._pool.send(self._actions(action), ids + self._pool.env_id_offset)
        self._in_flight += len(ids)

    def receive(self) -> tuple[Array, Array, Array, Array, Array, dict[str, Array]]:
        """Waits for rows; returns the fields of `Step`."""
        batch = self._fetched.pop(0) if self._fetched else self._wait()
        ids = batch.env_id.astype(np.int64) - self._pool.env_id_offset
        obs, ended = as_rows(batch.obs), batch.terminated | batch.truncated
        if ended.any():
            if self._same_step:
                assert batch.final_obs is not None
                if self._first_obs is None:
                    self._first_obs = np.empty((self._pool.num_envs, *obs.shape[1:]), obs.dtype)
                self._first_obs[ids[ended]] = obs[ended]
                obs = obs.copy()
                obs[ended] = as_rows(batch.final_obs)[ended]
            self._ended[ids] = ended
        return obs, batch.reward, batch.terminated, batch.truncated, ids, batch.info

    @property
    def go_on_by_themselves(self) -> bool:
        """Tells if every environment is at rest in an episode, and no options wait for a reset."""
        idle = not self._in_flight and not self._fetched and not self._due
        return bool(idle and self._same_step and self._started.all() and not self._ended.any())

    def _wait(self) -> StepBatch:
        if self._in_flight == 0:
            raise ProtocolError("no environment is stepping, so there is nothing to fetch")
        if self._synchronous:
            batch = self._pool.recv_batch()
        else:
            least = min(self._wait_num, self._in_flight)
            try:
                batch = self._pool.recv_batch(
                    self._timeout_s, min_envs=least, max_envs=self._in_flight
                )
            except TimeoutError:
                batch = self._pool.recv_batch(None, min_envs=1, max_envs=self._in_flight)
        self._in_flight -= len(batch.env_id)
        return batch

    def forget_begun(self) -> None:
        """Drops the first observations of begun episodes, which were returned in another scale.

        The next reset then begins new episodes.
        """
        self._first_obs = None

    def reset(
        self, ids: Array, seed: Any, options: Mapping[str, Any] | None
    ) -> tuple[Array, dict[str, Array], Array]:
        """Begins episodes, or returns the first observations of those that the last step began.

        Returns:
          obs (n, *obs_shape), info name -> (n, ...), and (n,) bool, the rows that have info.
        """
        begun = self._ended[ids] & self._same_step & (self._first_obs is not None)
        # an asynchronous pool can only be reset as a whole
        whole = not self._synchronous and len(ids) == self._pool.num_envs
        if seed is not None or options or whole:
            begun[:] = False
        for waiting in self._due.values():
            begun &= ~np.isin(ids, list(waiting))
        if begun.all() and len(ids):
            assert self._first_obs is not None
            self._ended[ids] = False
            return self._first_obs[ids], {}, ~begun
        all_obs, all_info = self._reset_now(ids[~begun], seed, options)
        obs = all_obs[ids]
        if begun.any():
            assert self._first_obs is not None
            obs[begun] = self._first_obs[ids[begun]]
        self._ended[ids] = False
        return obs, {name: values[ids] for name, values in all_info.items()}, ~begun

    def _reset_now(
        self, ids: Array, seed: Any, options: Mapping[str, Any] | None
    ) -> tuple[Array, dict[str, Array]]:
        """Resets these environments and returns obs and info of all N."""
        count = self._pool.num_envs
        mask = ~self._started
        mask[ids] = True
        everything = bool(mask.all())
        env_options = {**self._due_options(mask), **(options or {})}
        seeds = _seeds(seed, ids, count)
        if everything:
            self._fetched, self._in_flight = [], 0
            result = self._rest_of(self._pool.reset(seed=seeds, options=env_options))
        elif self._synchronous:
            env_options["reset_mask"] = mask
            obs, info = self._pool.reset(seed=seeds, options=env_options)
            result = as_rows(obs), self._own(info)
        else:
            result = self._reset_around(mask, seeds, env_options)
        self._started[:] = True
        return result

    def _reset_around(
        self, mask: Array, seeds: Any, options: dict[str, Any]
    ) -> tuple[Array, dict[str, Array]]:
        """Resets some environments of an asynchronous pool, which can only reset all of them.

        The others' steps are fetched first and their states put back afterwards.
        """
        if self._in_flight:
            # rows that belong to later calls of `step`
            least = self._in_flight
            self._fetched.append(self._pool.recv_batch(None, min_envs=least, max_envs=least))
            self._in_flight = 0
        if options:
            raise SpecError(
                "options of some environments cannot change while an asynchronous pool keeps the "
                "others; reset all environments, or use wait_num=None"
            )
        kept = np.flatnonzero(~mask) + self._pool.env_id_offset
        pool: Any = self._pool
        states = pool.get_state(kept)
        result = self._rest_of(pool.reset(seed=seeds))
        pool.set_state(kept, states)
        return result

    def _rest_of(self, first: tuple[Array, dict[str, Any]]) -> tuple[Array, dict[str, Array]]:
        """Orders the rows of a reset of all environments, which may come in parts."""
        obs, info = first
        if self._synchronous:
            return as_rows(obs), self._own(info)
        rest = self._pool.drain()
        order = np.argsort(np.concatenate([info["env_id"], rest[4]["env_id"]]))
        ours, theirs = self._own(info), self._own(rest[4])
        return np.concatenate([as_rows(obs), as_rows(rest[0])])[order], {
            name: np.concatenate([values, theirs[name]])[order] for name, values in ours.items()
        }

    @staticmethod
    def _own(info: Mapping[str, Any]) -> dict[str, Array]:
        """The environment's own info columns."""
        return {
            name: values
            for name, values in info.items()
            if name not in ("env_id", "episode_return", "episode_length") and name[0] != "_"
        }

    def options(self) -> dict[str, list[Any]]:
        """Options by name, one value per environment, including those that wait for a reset."""
        count = self._pool.num_envs
        columns: dict[str, list[Any]] = {}
        engine: Any = getattr(self._pool, "engine", None)
        has_options = engine is not None and "options" in engine.can
        for name, value in engine.env_options().items() if has_options else ():
            columns[name] = np.broadcast_to(np.asarray(value), count).tolist()
        for name, waiting in self._due.items():
            for i, value in waiting.items():
                columns[name][i] = value
        return columns

    def set_option(self, ids: Array, name: str, value: Any) -> None:
        """Sets an option of environments, which takes effect at their next reset."""
        self._due.setdefault(name, {}).update(dict.fromkeys(ids.tolist(), value))

    def _due_options(self, mask: Array) -> dict[str, Any]:
        """Takes out the options that wait for a reset of the marked environments."""
        columns = self.options()
        taken = {
            name: columns[name]
            for name, waiting in self._due.items()
            if any(mask[i] for i in waiting)
        }
        for waiting in self._due.values():
            for i in [i for i in waiting if mask[i]]:
                del waiting[i]
        self._due = {name: waiting for name, waiting in self._due.items() if waiting}
        return taken

    def _actions(self, action: Any) -> Array:
        actions = np.asarray(to_numpy(action))
        if self._discrete and actions.dtype.kind == "f":
            whole = actions.astype(np.int64)
            if not (whole == actions).all():
                raise DTypeError(
                    f"actions are {actions.dtype} and not whole numbers, expected the space "
                    f"{self._pool.single_action_space}"
                )
            return whole
        return actions


def as_rows(obs: Any) -> Array:
    """Observations by environment: arrays unchanged; dicts and tuples of arrays as (n,) object.

    Each object is a dict or tuple, as from Tianshou's workers.
    """
    if isinstance(obs, np.ndarray):
        return obs
    parts = list(obs.values() if isinstance(obs, Mapping) else obs)
    columns = [as_rows(part) for part in parts]
    rows = np.empty(len(columns[0]), dtype=object)
    for i in range(len(rows)):
        # copies, as the pool may write these arrays again
        row = [copy.deepcopy(column[i]) for column in columns]
        rows[i] = dict(zip(obs, row, strict=True)) if isinstance(obs, Mapping) else tuple(row)
    return rows


def _seeds(seed: Any, ids: Array, count: int) -> list[int | None] | None:
    """One seed for each of the pool's environments, None where none is given."""
    if seed is None:
        return None
    one_for_all = isinstance(seed, (int, np.integer))
    given: list[Any] = [seed] * len(ids) if one_for_all else list(seed)
    if len(given) != len(ids):
        raise SpecError(f"got {len(given)} seeds for {len(ids)} environments")
    seeds: list[int | None] = [None] * count
    for i, one in zip(ids.tolist(), given, strict=True):
        seeds[i] = one
    return seeds
