# SPDX-License-Identifier: Apache-2.0
"""Conversion of rollouts, fragments and single steps to the blocks that `Cutter` takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from rollouts import _native
from rollouts.batch import RolloutBatch
from rollouts.collecting.frame_stacks import PackedRollout
from rollouts.collecting.steps import finite_bounds
from rollouts.datasets.cutter import StepBlock, StreamRows
from rollouts.errors import SpecError

Array = NDArray[Any]

# fields of a rollout's steps that can be recorded besides its extras
_OF_BATCH = ("log_prob", "value", "policy_version", "bootstrap_value")


def block_of(
    payload: RolloutBatch | PackedRollout,
    *,
    infos: Sequence[str],
    action_space: gymnasium.Space[Any],
    stack_num: int,
    streams: StreamRows | None,
) -> StepBlock:
    """Returns a rollout of the host as a block.

    Args:
      payload: A rollout that `check_rollout` has accepted.
      infos: Names of extras, and of fields such as "log_prob".
      action_space: Its bounds are those to which actions were clipped for the environment.
      stack_num: Frames of a stacked observation, which are stored once each.
      streams: Random streams after the rollout.
    """
    batch = payload.rest if isinstance(payload, PackedRollout) else payload
    obs, frames = batch.obs, None
    if isinstance(payload, PackedRollout):
        obs, frames = payload.index, payload.frames
    elif stack_num > 1:
        frames, obs = _native.pack_frame_stacks(
            np.ascontiguousarray(batch.obs), np.ascontiguousarray(batch.last_obs)
        )
    bounds = finite_bounds(action_space)
    action = batch.action if bounds is None else batch.action.clip(*bounds)
    steps = {
        "action": action.astype(action_space.dtype, copy=False), "reward": batch.reward,
        "terminated": batch.terminated, "truncated": batch.truncated,
    }  # fmt: skip
    return StepBlock(
        obs=obs,
        frames=frames,
        steps=steps | {name: _info(batch, name) for name in infos},
        final_obs=final_rows(batch),
        episode_length=batch.episode_length,
        env_id=batch.env_id,
        active=batch.active,
        streams=streams,
    )


def on_host(one: Any) -> Any:
    """Returns a rollout with NumPy arrays; the given one if it has them already."""
    if not isinstance(one, RolloutBatch) or isinstance(one.reward, np.ndarray):
        return one
    host = one.on_host()
    found = {each.name: getattr(host, each.name) for each in fields(host)}
    for name, value in found.items():
        if isinstance(value, Mapping):
            found[name] = {key: np.asarray(array) for key, array in value.items()}
        elif value is not None:
            found[name] = np.asarray(value)
    ended = found["terminated"] | found["truncated"]
    # a device has a final observation for each cell, arrays have only those of ended cells
    if found["final_obs"] is not None and found["final_obs"].shape[:2] == ended.shape:
        found["final_obs"] = found["final_obs"][ended]
    return RolloutBatch(**found)


def check_rollout(batch: RolloutBatch, infos: Sequence[str]) -> None:
    """Raises SpecError where a rollout has no final_obs or lacks infos."""
    if batch.final_obs is None:
        raise SpecError(
            "the rollout has no final_obs, without which an episode is not whole: collect with "
            "Collector(..., keep_final_obs=True), or CollectOptions(keep_final_obs=True)"
        )
    for name in infos:
        _info(batch, name)


def final_rows(batch: RolloutBatch) -> Array:
    """(E, *obs_shape): final observations of the ended cells, in C order."""
    final: Array = np.asarray(batch.final_obs)
    ended = batch.terminated | batch.truncated
    if len(final) == int(ended.sum()) and final.ndim == batch.last_obs.ndim:
        return final
    if final.shape[:2] == ended.shape:  # from a device
        return final[ended]
    return final


def _info(batch: RolloutBatch, name: str) -> Array:
    if name in batch.extras:
        return np.asarray(batch.extras[name])
    if name in _OF_BATCH:
        return np.asarray(getattr(batch, name))
    raise SpecError(
        f"infos has {name!r}, which the rollouts do not have: expected some of "
        f"{sorted([*batch.extras, *_OF_BATCH])}; Collector(outputs=...) brings more, and infos of "
        "the environment are recorded by Recorder.step"
    )


class StepRows:
    """Steps of a VectorEnv, gathered into blocks of T steps."""

    def __init__(self, infos: Sequence[str], num_steps: int) -> None:
        """Takes the names of infos, and T."""
        self._infos, self._num_steps = tuple(infos), num_steps
        self._rows: list[dict[str, Array]] = []
        self._finals: list[Array] = []

    def add(self, obs: Array, action: Array, step: tuple[Any, ...], space: Any) -> bool:
        """Adds one step of all environments; returns whether a block is full.

        Raises:
          SpecError: The environment has no such info.
        """
        _, reward, terminated, truncated, info = step
        missing = [name for name in self._infos if name not in info]
        if missing:
            raise SpecError(
                f"infos has {missing[0]!r}, which the environments do not report: they have "
                f"{sorted(name for name in info if not name.startswith(('_', 'final')))}"
            )
        ended = np.flatnonzero(terminated | truncated)
        if len(ended):
            finals = info["final_obs"]
            self._finals.append(np.stack([np.asarray(finals[row]) for row in ended]))
        self._rows.append(
            {
                "obs": np.array(obs),
                "action": np.array(action, space.dtype),
                "reward": np.asarray(reward, np.float32),
                "terminated": np.array(terminated),
                "truncated": np.array(truncated),
                "episode_length": np.array(info["episode_length"]),
                "env_id": np.array(info["env_id"]),
                **{name: np.array(info[name]) for name in self._infos},
            }
        )
        return len(self._rows) >= self._num_steps

    def take(self, last_obs: Array, stack_num: int, env: Any) -> StepBlock | None:
        """Returns the steps so far as a block; None if there are none."""
        if not self._rows:
            return None
        rows = {name: np.stack([each[name] for each in self._rows]) for name in self._rows[0]}
        finals = self._finals
        self._rows, self._finals = [], []
        obs, frames = rows.pop("obs"), None
        final_obs = np.concatenate(finals) if finals else np.empty((0, *obs.shape[2:]), obs.dtype)
        if stack_num > 1:
            frames, obs = _native.pack_frame_stacks(obs, np.ascontiguousarray(last_obs))
        length, env_id = rows.pop("episode_length"), rows.pop("env_id")[0]
        streams = streams_of(env, rows["terminated"] | rows["truncated"])
        return StepBlock(obs, frames, rows, final_obs, length, env_id, None, streams)


def streams_of(env: Any, over: NDArray[np.bool_]) -> StreamRows | None:
    """Returns the random streams of environments at rest; None if they are not known.

    Args:
      env: The environments.
      over: (T, E) bool: ends of their episodes in the T steps before.
    """
    engine = getattr(env, "engine", None)
    pool: Any = getattr(engine, "pool", None)
    # an asynchronous pool is ahead of the collected steps
    if not hasattr(pool, "stream_of") or env.num_in_flight or env.batch_size < env.num_envs:
        return None
    found = [pool.stream_of(index) for index in range(env.num_envs)]
    seeds, streams, following = zip(*found, strict=True)
    return StreamRows(list(seeds), list(streams), np.array(following, np.int64) - 1, over)


def ends_of(batches: Iterable[RolloutBatch], num_envs: int) -> NDArray[np.bool_]:
    """(T, E) bool: the steps at which episodes of environments ended.

    All agents of a group may have left while those of another group go on. At the end of an
    environment's episode, every agent's episode ends; that of an agent that had left is truncated.
    """
    found: NDArray[np.bool_] = np.logical_and.reduce(
        [
            (one.terminated | one.truncated).reshape(len(one.reward), num_envs, -1).all(2)
            for one in batches
        ]
    )
    return found


class FragmentStreams:
    """Random streams of workers' environments, found by counting the episodes that ended.

    A worker's environments begin with episode 0 of the streams that have their env_id.
    """

    def __init__(self, env_seed: Any) -> None:
        """Takes a function from incarnation to seed; None: the seeds are not known."""
        self._env_seed = env_seed
        self._seen: dict[tuple[int, int], tuple[int, NDArray[np.int64]]] = {}

    def behind(
        self, info: Any, batches: Mapping[str, RolloutBatch], over: NDArray[np.bool_]
    ) -> StreamRows | None:
        """Returns the streams after a fragment; None if a fragment before it is missing."""
        if self._env_seed is None or (seed := self._env_seed(info.incarnation)) is None:
            return None
        name, num_envs = (info.worker_id, info.incarnation), over.shape[1]
        expected, ended = self._seen.get(name, (0, np.zeros(num_envs, np.int64)))
        if info.seq_no != expected:
            return None
        ended = ended + over.sum(0)
        self._seen[name] = info.seq_no + 1, ended
        batch = next(iter(batches.values()))
        agents = batch.reward.shape[1] // num_envs
        env_id = batch.env_id[::agents] // agents
        return StreamRows([seed] * num_envs, env_id.tolist(), ended, over)
