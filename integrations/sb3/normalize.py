# SPDX-License-Identifier: Apache-2.0
"""NativeVecNormalize: `normalize_observation` and `normalize_reward` as SB3's VecNormalize."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from rollouts.envs.statistics import RunningStatistics, checked
from rollouts.envs.wrappers import (
    NORMALIZERS,
    Wrappers,
    check_floats,
    read_wrappers,
    split_wrappers,
)
from rollouts.errors import SpecError

from ..shared.missing import needs
from .native_vec_env import NativeVecEnv, is_direct

try:
    from stable_baselines3.common.running_mean_std import RunningMeanStd
    from stable_baselines3.common.vec_env import VecEnv, VecNormalize
except ImportError as error:
    raise needs("sb3", error) from error


class NativeVecNormalize(VecNormalize):
    """A VecNormalize of Stable-Baselines3 around a NativeVecEnv.

    So `sync_envs_normalization`, `EvalCallback`, `CheckpointCallback(save_vecnormalize=True)`,
    `save`, `load` and the replay buffers treat its statistics as their own.

    An environment whose statistics are replaced (`obs_rms`, `ret_rms`), as
    `sync_envs_normalization` does before each evaluation, scales by them and no longer updates
    them: `training` is False until it is set again.
    """

    @property
    def observation_statistics(self) -> RunningStatistics:
        """Statistics of `obs_rms` in a pool's form. Setting them keeps `training` as it is.

        Raises:
          SpecError: normalize_observation was not asked for, or the statistics set do not fit.
        """
        return _statistics_of(self._rms("obs_rms", "normalize_observation"))

    @observation_statistics.setter
    def observation_statistics(self, statistics: RunningStatistics) -> None:
        shape = self.observation_space.shape or ()
        good = checked("observation_statistics", statistics, shape)
        write_rms(self._rms("obs_rms", "normalize_observation"), good)

    @property
    def reward_statistics(self) -> RunningStatistics:
        """Statistics of `ret_rms`: of discounted returns."""
        return _statistics_of(self.ret_rms)

    @reward_statistics.setter
    def reward_statistics(self, statistics: RunningStatistics) -> None:
        write_rms(self.ret_rms, checked("reward_statistics", statistics, ()))

    @property
    def update_statistics(self) -> bool:
        """The attribute `training`, under the pool's name for it."""
        return bool(self.training)

    @update_statistics.setter
    def update_statistics(self, updates: bool) -> None:
        self.training = updates

    def set_venv(self, venv: VecEnv) -> None:
        """Wraps `venv`, or the environment inside it if `venv` is a NativeVecNormalize."""
        super().set_venv(venv.venv if isinstance(venv, NativeVecNormalize) else venv)

    def __setattr__(self, name: str, value: Any) -> None:
        # the statistics belong to another environment: evaluation with them must not change them
        if name in ("obs_rms", "ret_rms") and name in self.__dict__:
            self.training = False
        super().__setattr__(name, value)

    def _rms(self, name: str, option: str) -> RunningMeanStd:
        rms: RunningMeanStd | None = self.__dict__.get(name)
        if rms is None:
            raise SpecError(f"there are no such statistics: RolloutsVecEnv(..., {option}=True)")
        return rms


def split_normalizers(options: Mapping[str, Any]) -> tuple[dict[str, Any], Wrappers | None]:
    """Splits options into the pool's own and the wrappers that VecNormalize replaces, if any.

    Raises:
      SpecError: VecNormalize cannot do what the options ask for.
    """
    given, rest = split_wrappers(options)
    wrappers = read_wrappers(given)
    if not wrappers.normalizes:
        return dict(options), None
    # options whose wrappers VecNormalize replaces
    own = set(NORMALIZERS)
    if wrappers.normalize_reward is not None:
        # a reward is clipped after it is scaled
        own.add("clip_reward")
        low, high = wrappers.clip_reward or (-math.inf, math.inf)
        if low != -high:
            raise SpecError(
                f"clip_reward is {given['clip_reward']!r} beside normalize_reward: VecNormalize "
                "clips to -c and c, give a number c"
            )
    by_observation, by_reward = wrappers.normalize_observation, wrappers.normalize_reward
    if by_observation and by_reward and by_observation[0] != by_reward[1]:
        raise SpecError(
            f"normalize_observation and normalize_reward have the epsilons {by_observation[0]} "
            f"and {by_reward[1]}, expected one for both: VecNormalize has no more"
        )
    return rest | {name: one for name, one in given.items() if name not in own}, wrappers


def normalized(env: VecEnv, wrappers: Wrappers | None, *, training: bool) -> Any:
    """Returns the environment itself, or a NativeVecNormalize around it.

    Raises:
      SpecError: Its observations cannot be scaled, or training is False without normalization.
    """
    if wrappers is None:
        if not training:
            raise SpecError(
                "training=False: there are no statistics to freeze; give normalize_observation or "
                "normalize_reward, or leave training out"
            )
        return env
    by_observation, by_reward = wrappers.normalize_observation, wrappers.normalize_reward
    if by_observation:
        check_floats("normalize_observation", "these environments", env.observation_space)
    epsilon = by_observation[0] if by_observation else by_reward[1] if by_reward else 1e-8
    clip_reward = wrappers.clip_reward[1] if by_reward and wrappers.clip_reward else math.inf
    return NativeVecNormalize(
        env,
        training=training,
        norm_obs=by_observation is not None,
        norm_reward=by_reward is not None,
        clip_obs=by_observation[1] if by_observation else math.inf,
        clip_reward=clip_reward,
        gamma=by_reward[0] if by_reward else 0.99,
        epsilon=epsilon,
    )


def parted(env: Any) -> tuple[NativeVecEnv | None, VecNormalize | None]:
    """The pool's VecEnv and the VecNormalize around it, if any; two None with other wrappers."""
    if is_direct(env):
        return env, None
    if type(env) in (VecNormalize, NativeVecNormalize) and is_direct(env.venv):
        return env.venv, env
    return None, None


def to_native(env: VecNormalize) -> dict[str, Any]:
    """The arguments that make `rollouts.VectorEnv.collect` count and scale as a VecNormalize."""
    given = {
        "epsilon": env.epsilon,
        "clip_obs": env.clip_obs,
        "clip_reward": env.clip_reward,
        "gamma": env.gamma,
        "norm_reward": env.norm_reward,
        "training": env.training,
        "reward": _moments(env.ret_rms),
        "returns": env.returns,
    }
    if env.norm_obs:
        given["observation"] = _moments(env.obs_rms)
    return given


def from_native(env: VecNormalize, direct: NativeVecEnv, taken: dict[str, Any]) -> None:
    """Takes over the statistics after a rollout's steps."""
    if env.norm_obs:
        _set_moments(env.obs_rms, taken["observation"])
    _set_moments(env.ret_rms, taken["reward"])
    env.returns = taken["returns"]
    env.old_obs = direct.last_obs.copy()
    env.old_reward = taken["last_reward"].astype(np.float32)


def worker_options(env: VecNormalize) -> dict[str, Any]:
    """The wrappers of `rollouts.make_vec` that scale in workers as a VecNormalize does here."""
    options: dict[str, Any] = {}
    if env.norm_obs:
        options["normalize_observation"] = {"epsilon": env.epsilon, "clip": float(env.clip_obs)}
    if env.norm_reward:
        options["normalize_reward"] = {"gamma": env.gamma, "epsilon": env.epsilon}
        options["clip_reward"] = float(env.clip_reward)
    return options


def statistics_of(env: VecNormalize) -> dict[str, RunningStatistics]:
    """Returns the statistics with which workers begin."""
    kinds = {"observation": env.obs_rms} if env.norm_obs else {}
    if env.norm_reward:
        kinds["reward"] = env.ret_rms
    return {kind: _statistics_of(rms) for kind, rms in kinds.items()}


def take_statistics(env: VecNormalize, counted: Mapping[str, RunningStatistics]) -> None:
    """Takes over the joined statistics of the workers."""
    for kind, statistics in counted.items():
        write_rms(env.obs_rms if kind == "observation" else env.ret_rms, statistics)


def write_rms(rms: RunningMeanStd, statistics: RunningStatistics) -> None:
    """Replaces the numbers of a RunningMeanStd in place."""
    rms.mean, rms.var, rms.count = statistics.mean, statistics.var, statistics.count


def _moments(rms: RunningMeanStd) -> tuple[Any, Any, float]:
    mean, var = (np.asarray(one, np.float64).ravel() for one in (rms.mean, rms.var))
    return mean, var, float(rms.count)


def _set_moments(rms: RunningMeanStd, moments: tuple[Any, Any, float]) -> None:
    mean, var, count = moments
    shape = np.shape(rms.mean)
    rms.mean, rms.var, rms.count = mean.reshape(shape), var.reshape(shape), count


def _statistics_of(rms: RunningMeanStd) -> RunningStatistics:
    mean, var = (np.array(one, np.float64) for one in (rms.mean, rms.var))
    return RunningStatistics(mean, var, float(rms.count))
