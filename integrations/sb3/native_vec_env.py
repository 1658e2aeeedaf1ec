# SPDX-License-Identifier: Apache-2.0
"""NativeVecEnv: a pool of this package as a `VecEnv` of Stable-Baselines3."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from rollouts.batch import StepBatch
from rollouts.envs.face import check_on_host, on_host
from rollouts.envs.make import make_vec
from rollouts.envs.vector_env import VectorEnv
from rollouts.errors import SpecError

from ..shared.missing import needs
from ..shared.whole_games import Episode, EpisodeStatistics
from .base import BaseVecEnv, Indices, Infos
from .native_env import NativeEnvRow, option_rows

try:
    from stable_baselines3.common.monitor import Monitor
except ImportError as error:
    raise needs("sb3", error) from error

if TYPE_CHECKING:
    from rollouts.policies.native import NativePolicy

Array = NDArray[Any]

# names that the pool reports for every environment, in addition to the environments' own infos
_COUNTS = ("env_id", "episode_return", "episode_length")


class NativeVecEnv(BaseVecEnv):
    """N environments of a native pool behind Stable-Baselines3's interface.

    Arrays returned are writable and belong to the caller: later steps do not change them, and
    changing them does not touch the environments. Where an environment failed and the pool goes on
    (on_env_error="reset"), its episode ends as if terminated, with the observation before the
    failure, and `info["env_error"]` has the message.

    `reset_infos` has the infos of the last explicit reset; episodes that begin by themselves have
    no info of their own.
    """

    pool: VectorEnv

    def __init__(
        self,
        env: str | Sequence[str] | VectorEnv,
        num_envs: int | None = None,
        *,
        monitor: bool = True,
        **options: Any,
    ) -> None:
        """Makes the pool, or takes one over.

        Args:
          env: An id, N ids, or a synchronous pool made with autoreset_mode="same_step".
          num_envs: Environments N, as for `rollouts.make_vec`; not with a pool.
          monitor: Whether `info["episode"]` has the return, length and time of a game that ended,
            as with Stable-Baselines3's `Monitor`; `env_is_wrapped(Monitor)` is true then.
          options: Further arguments of `rollouts.make_vec` except batch_size and autoreset_mode;
            not with a pool. `render` and `VecVideoRecorder` need render_mode="rgb_array".

        Raises:
          SpecError: An option is wrong, or the pool is asynchronous or in another autoreset mode.

        Example:
          model = PPO("MlpPolicy", NativeVecEnv("CartPole-v1", 64, seed=1))
        """
        pool = open_pool(env, num_envs, options)
        names = self._option_names = frozenset(pool.env_options)
        self._members = [NativeEnvRow(pool, i, names) for i in range(pool.num_envs)]
        self._monitor = monitor
        self.episodes = EpisodeStatistics(pool)
        self._last_obs: Array | None = None
        observation_space, self._obs_start = _from_zero(pool.single_observation_space)
        action_space, self._action_start = _from_zero(pool.single_action_space)
        super().__init__(pool, observation_space, action_space)
        if "render_fps" in pool.metadata:  # the frame rate of VecVideoRecorder
            self.metadata["render_fps"] = pool.metadata["render_fps"]

    @property
    def counts_from_zero(self) -> bool:
        """Tells if this returns the pool's own arrays: no Discrete space is shifted."""
        return not (self._obs_start or self._action_start)

    @property
    def last_obs(self) -> Array:
        """(N, *obs_shape): the last observations of the environments."""
        assert self._last_obs is not None, "no reset yet"
        return self._last_obs

    @property
    def info_names(self) -> tuple[str, ...]:
        """Names of the environments' own infos, such as lives."""
        return self.pool.info_names

    # -- stepping --------------------------------------------------------------------

    def step_async(self, actions: Array) -> None:
        """Starts a step of every environment; actions (N, *action_shape)."""
        self.send(actions)

    def step_wait(self) -> tuple[Array, NDArray[np.float32], NDArray[np.bool_], Infos]:
        """Waits for the step; returns obs (N, ...), rewards (N,), dones (N,) and N infos."""
        last_obs = self._last_obs
        step = self.recv()
        done = step.terminated | step.truncated
        infos = self.make_infos(step, done, last_obs)
        return step.obs, step.reward.astype(np.float32), done, infos

    def send(self, actions: Array, out: dict[str, Array] | None = None) -> None:
        """Starts a step as `step_async` does; `out`: see `rollouts.VectorEnv.send`."""
        if self._action_start:
            actions = np.asarray(actions) + self._action_start
        self.pool.send(actions, out=out)

    def recv(self) -> StepBatch:
        """Waits for the step that was sent; returns its arrays, obs counted from 0 if Discrete."""
        step = self.pool.recv_batch()
        if self._obs_start:
            assert step.final_obs is not None
            step = step._replace(
                obs=step.obs - self._obs_start, final_obs=step.final_obs - self._obs_start
            )
        # kept, because a failed environment has no final observation except the one before its step
        self._last_obs = step.obs
        return step

    def collect(
        self,
        policy: NativePolicy,
        arrays: dict[str, Array],
        *,
        keep_final_obs: bool,
        normalize: dict[str, Any] | None = None,
    ) -> Array | None:
        """Steps with a policy as `rollouts.VectorEnv.collect` does; `step` goes on from there."""
        final_obs = self.pool.collect(
            policy, arrays, rules={"keep_final_obs": keep_final_obs}, normalize=normalize
        )
        last_obs = arrays["obs"][-1]
        if normalize is not None:
            # the last observations in the scale in which this environment returns them
            last_obs = normalize["last_obs"].view(last_obs.dtype).reshape(last_obs.shape)
        self._last_obs = last_obs.copy()
        return final_obs

    def make_infos(
        self, step: StepBatch, done: NDArray[np.bool_], last_obs: Array | None = None
    ) -> Infos:
        """The list of info dicts for a step that `recv` returned.

        Args:
          step: Step of this environment.
          done: (N,) terminated | truncated.
          last_obs: (N, ...) the observations that were acted on, for environments that failed.
        """
        infos: Infos = [{"TimeLimit.truncated": False} for _ in range(len(done))]
        if step.info:
            _fill(infos, step.info)
        if not done.any():
            return infos
        rows = np.flatnonzero(done)
        cut = truncated_rows(step)
        for row in rows.tolist():
            infos[row]["TimeLimit.truncated"] = bool(cut[row])
            infos[row]["terminal_observation"] = final_obs_of(step, row, last_obs)
            if "env_error" in step.info and step.info["_env_error"][row]:
                infos[row]["env_error"] = step.info["env_error"][row]
        for row, episode in self.ended_episodes(step, rows).items():
            infos[row]["episode"] = episode
        return infos

    def ended_episodes(self, step: StepBatch, rows: NDArray[np.intp]) -> dict[int, Episode]:
        """A Monitor's records of the games that ended in these rows; {} without monitor."""
        if not self._monitor:
            return {}
        return self.episodes.ended(
            rows, step.episode_return, step.episode_length, step.truncated, step.info
        )

    def episode_records(self, returns: Array, lengths: Array) -> list[Episode]:
        """Makes infos of episodes (E,) whose returns and lengths are known; [] without monitor."""
        return self.episodes.records(returns, lengths) if self._monitor else []

    # -- attributes and methods of single environments ---------------------------------

    def get_attr(self, attr_name: str, indices: Indices = None) -> list[Any]:
        """Reads an attribute of `NativeEnvRow`, an option, or what set_attr has set."""
        if attr_name in self._option_names:
            # reads the option of all environments, which takes no longer than reading one
            rows = option_rows(self.pool.env_options[attr_name], self.num_envs)
            return [rows[number] for number in self._numbers(indices)]
        return [getattr(member, attr_name) for member in self._chosen(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Indices = None) -> None:
        """Sets an attribute; options of the environments are changed by set_options alone.

        Raises:
          SpecError: attr_name is an option.
        """
        for member in self._chosen(indices):
            setattr(member, attr_name, value)

    def env_method(
        self, method_name: str, *method_args: Any, indices: Indices = None, **method_kwargs: Any
    ) -> list[Any]:
        """Calls a method of `NativeEnvRow`, such as get_state."""
        return [
            getattr(member, method_name)(*method_args, **method_kwargs)
            for member in self._chosen(indices)
        ]

    def env_is_wrapped(
        self, wrapper_class: type[gymnasium.Wrapper[Any, Any, Any, Any]], indices: Indices = None
    ) -> list[bool]:
        """True for Monitor, whose task the pool does, unless monitor=False; else False."""
        does = self._monitor and issubclass(Monitor, wrapper_class)
        return [does for _ in self._chosen(indices)]

    def __getstate__(self) -> dict[str, Any]:
        """Pickles what makes the environments again, but not their state, as the pool does."""
        return {**self.__dict__, "_last_obs": None}

    # -- helpers ---------------------------------------------------------------------

    def _begin(self, seeds: list[int | None] | None) -> tuple[Array, Infos]:
        obs, info = self.pool.reset(seed=seeds, options=self._reset_columns())
        self.episodes.reset()
        columns = {name: info[name] for name in info if name not in _COUNTS}
        self._last_obs = obs - self._obs_start if self._obs_start else obs
        return self._last_obs, _fill([{} for _ in range(self.num_envs)], columns)

    def _draw(self) -> Sequence[Array]:
        return self.pool.render()

    def _chosen(self, indices: Indices) -> list[NativeEnvRow]:
        return [self._members[number] for number in self._numbers(indices)]

    def _reset_columns(self) -> dict[str, Any] | None:
        """The options of each environment as columns; an unnamed option keeps its value."""
        names = {name for options in self._options for name in options}
        if not names:
            return None
        current = self.pool.env_options
        columns: dict[str, Any] = {}
        for name in sorted(names):
            kept = option_rows(current.get(name), self.num_envs)
            columns[name] = [
                options.get(name, old) for options, old in zip(self._options, kept, strict=True)
            ]
        return columns


def open_pool(
    env: str | Sequence[str] | VectorEnv, num_envs: int | None, options: dict[str, Any]
) -> VectorEnv:
    """Makes the pool of a NativeVecEnv, or checks one that was made elsewhere.

    Raises:
      SpecError: see `NativeVecEnv`.
    """
    if isinstance(env, (str, Sequence)) or not hasattr(env, "engine"):
        for name in ("autoreset_mode", "batch_size"):
            if name in options:
                raise SpecError(
                    f"{name}={options[name]!r}: a VecEnv is synchronous and resets in the same "
                    f"step, leave {name} out"
                )
        ids: Any = env
        pool: VectorEnv = on_host(make_vec(ids, num_envs, autoreset_mode="same_step", **options))
    else:
        if hasattr(env, "groups"):
            raise SpecError(
                f"{env!r} has several agents: give RolloutsVecEnv its as_single_agent()"
            )
        refuse_options(env, num_envs, options)
        check_on_host(env)
        if "python" in env.engine.can:
            raise SpecError(
                f"{env!r} hosts environments in Python: give RolloutsVecEnv the functions that "
                "make them"
            )
        pool = env
    if pool.autoreset_mode is not AutoresetMode.SAME_STEP:
        raise SpecError(
            f"{pool!r} has autoreset_mode {pool.autoreset_mode.name}, expected SAME_STEP: a VecEnv "
            "returns the next episode's first observation with the end of the last one. Make it "
            'with rollouts.make_vec(..., autoreset_mode="same_step")'
        )
    if pool.update_statistics:
        raise SpecError(
            f"{pool!r} counts its own statistics, which EvalCallback and save do not see: give "
            "normalize_observation and normalize_reward to RolloutsVecEnv, which makes a "
            "VecNormalize of them, or freeze them (update_statistics = False)"
        )
    if pool.batch_size != pool.num_envs:
        raise SpecError(
            f"{pool!r} is asynchronous, expected batch_size == num_envs: a VecEnv steps all "
            "environments together"
        )
    return pool


def refuse_options(env: Any, num_envs: int | None, options: dict[str, Any]) -> None:
    """Raises SpecError where arguments of `make_vec` come with environments that exist."""
    given = [*(["num_envs"] if num_envs is not None else []), *options]
    if given:
        raise SpecError(f"{given} were given besides {env!r}: give them to rollouts.make_vec")


def is_direct(env: Any) -> bool:
    """Tells if there is no wrapper between an algorithm and a native pool."""
    return type(env) is NativeVecEnv and env.counts_from_zero


def truncated_rows(step: StepBatch) -> NDArray[np.bool_]:
    """Marks rows (N,) whose episode was cut short and may be valued as if it went on.

    Excludes environments that failed, whose further course is unknown.
    """
    cut = step.truncated & ~step.terminated
    if "_env_error" in step.info:
        cut &= ~step.info["_env_error"]
    return cut


def final_obs_of(step: StepBatch, row: int, last_obs: Array | None) -> Array:
    """A copy of an episode's last observation."""
    assert step.final_obs is not None
    failed = "_env_error" in step.info and step.info["_env_error"][row]
    if failed and last_obs is not None:
        return np.array(last_obs[row])
    return np.array(step.final_obs[row])


def _fill(infos: Infos, columns: dict[str, Array]) -> Infos:
    """Adds one value of each column to each dict."""
    for name, column in columns.items():
        if name.startswith("_") or name == "env_error":
            continue
        # plain numbers where a column has one value per row, as a gymnasium.Env's infos have
        values = column.tolist() if column.ndim == 1 else column.copy()
        for info, value in zip(infos, values, strict=True):
            info[name] = value
    return infos


def _from_zero(space: gymnasium.Space[Any]) -> tuple[gymnasium.Space[Any], int]:
    """A Discrete space that counts from 0, as Stable-Baselines3 assumes, and its old start."""
    if isinstance(space, spaces.Discrete) and space.start:
        return spaces.Discrete(int(space.n)), int(space.start)
    return space, 0
