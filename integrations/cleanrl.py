# SPDX-License-Identifier: Apache-2.0
"""CleanRL's Gymnasium scripts: a vector environment that answers as Gymnasium 0.29's did.

What to change in ppo.py, dqn.py, c51.py, ppo_atari.py, sac.py and their like:

    -envs = gym.vector.SyncVectorEnv(
    -    [make_env(args.env_id, i, args.capture_video, run_name) for i in range(args.num_envs)]
    -)
    +envs = cleanrl.make_vec(args.env_id, args.num_envs, seed=args.seed)

or, to keep environments of your own and their wrappers, `gym.vector.SyncVectorEnv` becomes
`cleanrl.SyncVectorEnv`, which runs them in processes. The scripts read `infos["final_info"]`, a
list with a dict where an episode ended and None elsewhere, and `infos["final_observation"]`. Since
Gymnasium 1.0 the former is a dict of arrays, and the latter has another name and is not reported
by default: loops over final_info find strings, and `real_next_obs` keeps an observation of the
next episode. Here both are as in Gymnasium 0.29.

`make_vec` counts returns itself, so no RecordEpisodeStatistics is needed; where Atari's lives end
episodes, the returns are those of whole games. Options replace wrappers of single environments:
for ppo_atari.py `make_vec("ALE/Breakout-v5", n, episodic_life=True)` is its whole stack of
wrappers, and repeat_action_probability=0.0 gives the environment of its "NoFrameskip-v4".

Costs: dicts are made only for rows where an episode ended. The scripts run the policy themselves:
with a small one `torch.set_num_threads(1)` leaves the cores to the pool's threads (see
`rollouts.machine.torch_threads`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorWrapper
from numpy.typing import NDArray

import rollouts
from rollouts.batch import StepBatch
from rollouts.envs.face import check_on_host, on_host
from rollouts.errors import SpecError

from .shared.info_rows import info_rows
from .shared.pool_statistics import PoolStatistics
from .shared.whole_games import Episode, EpisodeStatistics

Array = NDArray[Any]
Info = dict[str, Any]
Step = tuple[Any, Any, Any, Any, Info]


def make_vec(id: str | Sequence[str], num_envs: int | None = None, **options: Any) -> Gym029:
    """Makes a native pool whose infos are Gymnasium 0.29's.

    Args:
      id, num_envs, options: As `rollouts.make_vec`, but autoreset_mode and batch_size.

    Raises:
      SpecError: An argument is wrong.
    """
    for name in ("autoreset_mode", "batch_size"):
        if name in options:
            raise SpecError(
                f"{name}={options[name]!r}: Gymnasium 0.29 resets in the same step and steps all "
                f"environments together, leave {name} out"
            )
    made: Any = rollouts.make_vec(id, num_envs, autoreset_mode="same_step", **options)
    return Gym029(on_host(made))


class Gym029(PoolStatistics, VectorWrapper):
    """A same-step vector environment with the infos of Gymnasium 0.29.

    `infos` has, in the steps in which an episode ended,

      final_observation  (N,) object   the last observation where an episode ended, else None
      final_info         (N,) object   the last step's info as a dict, else None
      _final_observation, _final_info  (N,) bool   where there is one

    and (N,) arrays, with masks, of what the environments report. With a native pool
    `final_info[i]["episode"]` is {"r": (1,) float32 return, "l": (1,) int32 length, "t": (1,)
    float32 seconds}, as from that version's RecordEpisodeStatistics.

    Running statistics of a pool are read, set and frozen through this object, as on the pool
    itself, for evaluation: values that are set on one of Gymnasium's wrappers would not reach the
    pool.
    """

    is_vector_env = True

    def __init__(self, env: gymnasium.vector.VectorEnv[Any, Any, Any]) -> None:
        """Wraps an environment made elsewhere.

        Args:
          env: A `rollouts.VectorEnv`, or any other that autoresets in the same step and reports
            final_obs and final_info as Gymnasium since 1.1 does.

        Raises:
          SpecError: The environment has another autoreset mode, or is asynchronous.
        """
        check_on_host(env)
        mode = env.metadata.get("autoreset_mode")
        if mode is not AutoresetMode.SAME_STEP:
            raise SpecError(
                f"{env!r} has the autoreset_mode {mode}, expected SAME_STEP: Gymnasium 0.29 "
                "returned the next episode's first observation with the end of the last one. Make "
                'it with autoreset_mode="same_step"'
            )
        if getattr(env, "batch_size", env.num_envs) != env.num_envs:
            raise SpecError(f"{env!r} is asynchronous, expected batch_size == num_envs")
        super().__init__(env)
        self.pool = env
        engine: Any = getattr(env, "engine", None)
        # wrappers of hosted environments report their own episodes
        pool: Any = None if engine is None or "python" in engine.can else env
        self._pool, self._episodes = pool, None if pool is None else EpisodeStatistics(pool)

    def reset(self, *, seed: Any = None, options: Info | None = None) -> tuple[Any, Info]:
        """Starts new episodes; see the environment's own `reset`."""
        obs, info = self.env.reset(seed=seed, options=options)
        if self._episodes is not None and "reset_mask" not in (options or {}):
            self._episodes.reset()
        return obs, info

    def step(self, actions: Any) -> Step:
        """Steps all environments.

        Returns:
          obs (N, ...), reward (N,) float64, terminated (N,) bool, truncated (N,) bool, infos.
        """
        if self._pool is None:
            obs, reward, terminated, truncated, info = self.env.step(actions)
            return obs, reward, terminated, truncated, _renamed(info)
        self._pool.send(actions)
        step = self._pool.recv_batch()
        return step.obs, step.reward, step.terminated, step.truncated, self._infos(step)

    def _infos(self, step: StepBatch) -> Info:
        infos: Info = {}
        for name, column in step.info.items():
            infos[name] = column
            if not name.startswith("_"):
                infos.setdefault(f"_{name}", np.ones(len(column), np.bool_))
        ended = step.terminated | step.truncated
        if not ended.any():
            return infos
        rows = np.flatnonzero(ended)
        assert step.final_obs is not None and self._episodes is not None
        episodes = self._episodes.ended(
            rows, step.episode_return, step.episode_length, step.truncated, step.info
        )
        final_obs, final_info = _nothing(len(ended)), _nothing(len(ended))
        for row in rows.tolist():
            final_obs[row] = step.final_obs[row].copy()
            final_info[row] = {name: column[row] for name, column in step.info.items()}
            if row in episodes:
                final_info[row]["episode"] = _as_arrays(episodes[row])
        return infos | _final(final_obs, final_info, ended)


class SyncVectorEnv(Gym029):
    """Takes the place of Gymnasium 0.29's class: environments of your own, in processes."""

    def __init__(
        self, env_fns: Sequence[Callable[[], gymnasium.Env[Any, Any]]], **options: Any
    ) -> None:
        """Starts the processes.

        Args:
          env_fns: N functions that make an environment each.
          options: Further arguments of `rollouts.from_env_fns`, such as num_processes.
        """
        super().__init__(rollouts.from_env_fns(env_fns, autoreset_mode="same_step", **options))


def _renamed(info: Info) -> Info:
    """Converts infos of Gymnasium 1.1 or later to those of 0.29."""
    if "final_obs" not in info:
        return info
    infos = dict(info)
    final_obs, ended = infos.pop("final_obs"), infos.pop("_final_obs")
    columns, _ = infos.pop("final_info", {}), infos.pop("_final_info", None)
    observations, final_info = _nothing(len(ended)), _nothing(len(ended))
    rows = info_rows(columns, len(ended))
    for row in np.flatnonzero(ended).tolist():
        if "episode" in rows[row]:
            rows[row]["episode"] = _as_arrays(rows[row]["episode"])
        observations[row], final_info[row] = final_obs[row], rows[row]
    return infos | _final(observations, final_info, ended)


def _final(final_obs: Array, final_info: Array, ended: NDArray[np.bool_]) -> Info:
    return {
        "final_observation": final_obs,
        "_final_observation": ended,
        "final_info": final_info,
        "_final_info": ended,
    }


def _as_arrays(episode: Episode) -> dict[str, Array]:
    dtypes = {"r": np.float32, "l": np.int32, "t": np.float32}
    return {name: np.atleast_1d(np.asarray(episode[name], dtypes[name])) for name in dtypes}


def _nothing(num_rows: int) -> Array:
    return np.full(num_rows, None, dtype=object)
