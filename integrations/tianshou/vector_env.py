# SPDX-License-Identifier: Apache-2.0
"""`RolloutsVectorEnv`: a native pool behind the interface of Tianshou's vector environments."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from tianshou.env import BaseVectorEnv
from tianshou.env.worker import SubprocEnvWorker

from rollouts.errors import ProtocolError, SpecError
from rollouts.specs import OptionColumn

from .indexed_pool import EnvRows, Pool, open_pool
from .obs_statistics import SharesStatistics

Array = npt.NDArray[Any]
Ids = int | Sequence[int] | Array | None


class Step(NamedTuple):
    """Results of stepping R environments; row i belongs to environment `env_id[i]`.

    Attributes:
      obs                    (R, *obs_shape)   after the step; the last one of an ended episode
      reward                 (R,) float64
      terminated, truncated  (R,) bool
      env_id                 (R,) int64        0 <= env_id < number of environments
      info                   name -> (R, ...)  what the environments report
    """

    obs: Array
    reward: Array
    terminated: Array
    truncated: Array
    env_id: Array
    info: dict[str, Array]


class RolloutsVectorEnv(SharesStatistics, BaseVectorEnv):
    """N native environments for Tianshou's collectors, trainers and wrappers.

    After an episode has ended, `reset(env_id)` begins the next one, as everywhere in Tianshou. The
    pool has begun it already, in the same step, and `reset` hands out its first observation.

    Attributes:
      pool: The `rollouts.VectorEnv` behind it.
      env_num, wait_num, timeout, is_async, waiting_id, ready_id, is_closed: As BaseVectorEnv's.
      has_action_masks: Whether observations have masks.
      action_space, observation_space, spec, metadata, reward_range: Lists, one per environment;
        `spec` has `rollouts.EnvSpec`s.
    """

    has_action_masks = False

    def __new__(cls, envs: Any, *args: Any, **kwargs: Any) -> RolloutsVectorEnv:
        """Makes a PythonVectorEnv where `envs` are functions, which Tianshou's workers call."""
        if cls is RolloutsVectorEnv and _are_env_fns(envs):
            return object.__new__(PythonVectorEnv)
        return object.__new__(cls)

    def __init__(
        self,
        envs: str | Sequence[str] | Sequence[Callable[[], Any]] | Pool,
        wait_num: int | None = None,
        timeout: float | None = None,
        *,
        num_envs: int | None = None,
        num_threads: int | None = None,
        seed: int | None = None,
        max_episode_steps: int | None = None,
        action_masks: bool = False,
        **env_options: OptionColumn,
    ) -> None:
        """Makes a pool, or takes one that exists.

        Args:
          envs: An id of `rollouts.env_ids()`, or one for each environment; or a pool that
            autoresets in the same step or not at all (the latter only if batch_size is num_envs);
            or functions that make Python environments, each in a process of Tianshou's;
            `rollouts.from_env_fns` runs several in a process, and returns a pool.
          wait_num: Asynchronous stepping: `step` returns when this many are ready. None: all, or
            the batch_size of an existing pool.
          timeout: Seconds after which an asynchronous `step` returns with fewer, but at least one.
          num_envs, num_threads, seed, max_episode_steps, env_options: As `rollouts.make_vec`, for
            ids only. The seed is also that of the action spaces.
          action_masks: Observations are dicts of obs and mask (A,) bool, the environments' own
            info["action_mask"], by which Tianshou's policies for Discrete actions choose.
            Synchronous stepping only.

        Raises:
          SpecError: Masks of environments that report none; a pool in next-step mode, whose first
            transition of each episode Tianshou would lose; a wait_num that the pool cannot keep;
            arguments that `make_vec` refuses.
        """
        self.is_closed = True  # until there is something to close
        pool_options = {"num_threads": num_threads, "seed": seed, **env_options}
        pool_options["max_episode_steps"] = max_episode_steps
        self.pool, self.wait_num = open_pool(envs, num_envs, wait_num, pool_options)
        self.env_num: int = self.pool.num_envs
        if timeout is not None and not timeout > 0:
            raise SpecError(f"timeout is {timeout}, expected a positive number of seconds or None")
        self.timeout = timeout
        self.is_async = self.wait_num != self.env_num or timeout is not None
        self.waiting_id: list[int] = []
        self.ready_id = list(range(self.env_num))
        self.waiting_conn: list[Any] = []
        self.workers: list[Any] = []
        self._rows = EnvRows(self.pool, self.wait_num, timeout)
        self.has_action_masks = action_masks
        if action_masks:
            _check_masks(self.pool, is_async=self.is_async)
            # (N, A) bool, for observations that `reset` returns where the pool began the episode
            self._masks = np.ones((self.env_num, int(self.pool.single_action_space.n)), np.bool_)
            self._noted: Array | None = None
        self._action_spaces = _action_spaces(self.pool, seed)
        # attributes that set_env_attr set and that environments do not have
        self._attributes: list[dict[str, Any]] = [{} for _ in range(self.env_num)]
        self.is_closed = False

    # -- BaseVectorEnv -------------------------------------------------------------

    def reset(self, env_id: Ids = None, **kwargs: Any) -> tuple[Array, Array]:
        """Begins episodes of the environments named, all if None.

        Args:
          env_id: (n,) ids, or one.
          kwargs: seed, an int (environments still get different streams) or one for each;
            options, a dict as `rollouts.VectorEnv.reset` takes, without reset_mask.

        Returns:
          obs (n, *obs_shape), or with action_masks (n,) object, a dict each; and infos (n,) object,
          a dict each with env_id. The info has the environment's own keys too, unless its episode
          began in the step that ended the last episode.
        """
        ids = self._wrap_id(env_id)
        unknown = set(kwargs) - {"seed", "options"}
        if unknown:
            raise SpecError(f"reset got {sorted(unknown)}, expected seed or options")
        obs, info, has_info = self.reset_columns(ids, **kwargs)
        if self.has_action_masks:
            self._note_masks(np.arange(self.env_num))
            obs = _with_masks(obs, self._masks[ids])
        return obs, dicts(ids, info, has_info)

    def step(self, action: Any, id: Ids = None) -> tuple[Array, Array, Array, Array, Array]:
        """Steps the environments named, all if None.

        Returns:
          obs (R, *obs_shape), reward (R,) float64, terminated, truncated (R,) bool, infos (R,)
          object, a dict each with env_id and what the environment reports. R is the number of
          actions; in asynchronous mode, of the environments that have finished, which may be
          others than those of `id`. There, an action of None sends nothing.

        Raises:
          ProtocolError: An environment's episode has ended and it was not reset, or it is being
            stepped. SpecError, DTypeError, EnvError, ClosedError: As `rollouts.VectorEnv.step`.
        """
        one = self.step_columns(action, self._wrap_id(id))
        infos = dicts(one.env_id, one.info, np.ones(len(one.env_id), np.bool_))
        obs = one.obs
        if self.has_action_masks:
            self._note_masks(one.env_id)
            obs = _with_masks(obs, one.info["action_mask"] != 0)
        return obs, one.reward, one.terminated, one.truncated, infos

    def seed(self, seed: int | Sequence[int] | None = None) -> list[list[int] | None]:
        """Seeds environments and action spaces, i with seed + i; begins new episodes.

        Returns:
          For each environment a list with its seed, or None.
        """
        self._assert_is_not_closed()
        if isinstance(seed, (int, np.integer)):
            seeds: list[int | None] = [int(seed) + i for i in range(self.env_num)]
        else:
            seeds = [None] * self.env_num if seed is None else list(seed)
        for space, one in zip(self._action_spaces, seeds, strict=True):
            space.seed(one)
        self.reset_columns(np.arange(self.env_num), seed=seeds)
        return [None if one is None else [one] for one in seeds]

    def get_env_attr(self, key: str, id: Ids = None) -> list[Any]:
        """Attributes of environments: the reserved ones, options, and what `set_env_attr` set.

        Raises:
          AttributeError: An environment has no attribute of that name.
        """
        ids = self._wrap_id(id)
        columns: dict[str, Sequence[Any]] = {
            "action_space": self._action_spaces,
            "observation_space": [self._observation_space()] * self.env_num,
            "metadata": [self.pool.metadata] * self.env_num,
            "reward_range": [(-np.inf, np.inf)] * self.env_num,
        }
        if key == "spec":
            columns["spec"] = getattr(self.pool, "env_specs", [None] * self.env_num)
        elif key not in columns:
            column = self._rows.options().get(key)
            if column is not None:
                columns[key] = column
        found = [
            self._attributes[i][key] if key in self._attributes[i] else columns[key][i]
            for i in ids
            if key in self._attributes[i] or key in columns
        ]
        if len(found) != len(ids):
            raise AttributeError(
                f"environments have no attribute {key!r}; they have {sorted(columns)}, spec, the "
                f"options {sorted(self._rows.options())} and what set_env_attr has set"
            )
        return found

    def set_env_attr(self, key: str, value: Any, id: Ids = None) -> None:
        """Sets an attribute; an option of the environment takes effect at its next `reset`."""
        ids = self._wrap_id(id)
        if key in self._rows.options():
            self._rows.set_option(ids, key, value)
            return
        for i in ids:
            self._attributes[i][key] = value

    def render(self, **kwargs: Any) -> list[Any]:
        """Frames of the pool; raises NotImplementedError for environments that draw nothing."""
        self._assert_is_not_closed()
        return list(self.pool.render(**kwargs) or ())

    def close(self) -> None:
        """Closes the pool, threads and all. May be called twice."""
        if not self.is_closed:
            self.pool.close()
            self.is_closed = True

    # -- without dicts, for RolloutsCollector --------------------------------------

    @property
    def goes_on_by_itself(self) -> bool:
        """Tells if the pool may step every environment and begin episodes by itself."""
        return not self.is_closed and not self.is_async and self._rows.go_on_by_themselves

    def reset_columns(
        self, ids: Array, seed: Any = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Array, dict[str, Array], Array]:
        """`reset` with info as columns: name -> (n, ...), and (n,) bool, the rows that have any."""
        self._assert_is_not_closed()
        if len(ids) < self.env_num:
            self._check_ready(ids)
        elif self.follow_statistics():
            self._rows.forget_begun()
        result = self._rows.reset(ids, seed, options)
        if len(ids) == self.env_num:
            # a reset of a pool drops all that was in flight
            self.waiting_id, self.ready_id = [], list(range(self.env_num))
        return result

    def step_columns(self, action: Any, ids: Array) -> Step:
        """`step` with info as columns: name -> (R, ...)."""
        self._assert_is_not_closed()
        if action is None:
            if not self.is_async:
                raise SpecError(
                    "action is None, expected one action per environment: only an "
                    "asynchronous RolloutsVectorEnv has steps to fetch"
                )
        else:
            if len(action) != len(ids):
                raise SpecError(f"got {len(action)} actions for {len(ids)} environments")
            if self.is_async:
                self._check_ready(ids)
                self._rows.send(action, ids)
                sent = set(ids.tolist())
                self.waiting_id.extend(sorted(sent))
                self.ready_id = [i for i in self.ready_id if i not in sent]
            else:
                self._rows.send(action, ids)
        one = Step(*self._rows.receive())
        if self.is_async:
            arrived = one.env_id.tolist()
            gone = set(arrived)
            self.waiting_id = [i for i in self.waiting_id if i not in gone]
            self.ready_id.extend(arrived)
        return one

    # -- helpers -------------------------------------------------------------------

    def _note_masks(self, env_id: Array) -> None:
        """Takes over the masks of the pool's last batch, of environments `env_id`, if it is new."""
        masks = self.pool.action_masks()
        if masks is not self._noted:
            self._masks[env_id], self._noted = masks, masks

    def _observation_space(self) -> Any:
        space = self.pool.single_observation_space
        if not self.has_action_masks:
            return space
        return spaces.Dict(obs=space, mask=spaces.MultiBinary(self._masks.shape[1]))

    def _wrap_id(self, id: Ids = None) -> Array:
        self._assert_is_not_closed()
        if id is None:
            return np.arange(self.env_num)
        ids = np.atleast_1d(np.asarray(id, dtype=np.int64))
        if len(ids) and not (ids.min() >= 0 and ids.max() < self.env_num):
            raise SpecError(f"env ids are {ids.tolist()}, expected 0 <= id < {self.env_num}")
        return ids

    def _check_ready(self, ids: Array) -> None:
        busy = set(ids.tolist()).intersection(self.waiting_id)
        if busy:
            raise ProtocolError(
                f"environments {sorted(busy)} are stepping now; ready are {sorted(self.ready_id)}: "
                "step(None) fetches the others"
            )

    def _assert_is_not_closed(self) -> None:
        if self.is_closed:
            raise ProtocolError("this RolloutsVectorEnv is closed; make another one")


class PythonVectorEnv(RolloutsVectorEnv):
    """The class behind `RolloutsVectorEnv(env_fns)`: any Python environments, a process each."""

    def __init__(
        self,
        env_fns: Sequence[Callable[[], Any]],
        wait_num: int | None = None,
        timeout: float | None = None,
        *,
        share_memory: bool = False,
        context: Any = None,
    ) -> None:
        """Takes the arguments of Tianshou's SubprocVectorEnv."""

        def worker(fn: Callable[[], Any]) -> SubprocEnvWorker:
            return SubprocEnvWorker(fn, share_memory=share_memory, context=context)

        BaseVectorEnv.__init__(self, env_fns, worker, wait_num, timeout)

    reset = BaseVectorEnv.reset
    step = BaseVectorEnv.step
    seed = BaseVectorEnv.seed
    get_env_attr = BaseVectorEnv.get_env_attr
    set_env_attr = BaseVectorEnv.set_env_attr
    render = BaseVectorEnv.render
    close = BaseVectorEnv.close
    _wrap_id = BaseVectorEnv._wrap_id
    _assert_is_not_closed = BaseVectorEnv._assert_is_not_closed


def _are_env_fns(envs: Any) -> bool:
    return isinstance(envs, Sequence) and len(envs) > 0 and all(callable(one) for one in envs)


def _check_masks(pool: Pool, *, is_async: bool) -> None:
    """Raises SpecError where the environments' masks are missing or not what Tianshou reads."""
    if is_async:
        raise SpecError(
            "action_masks=True with asynchronous stepping, expected all environments to step "
            "together: leave wait_num and timeout out"
        )
    names = getattr(pool, "info_names", ())
    if "action_mask" not in names or not isinstance(pool.single_action_space, spaces.Discrete):
        raise SpecError(
            f"action_masks=True for actions of {pool.single_action_space} and environments whose "
            f"infos are {sorted(names)}, expected Discrete actions and an action_mask: leave it out"
        )


def _with_masks(obs: Array, mask: Array) -> Array:
    """(n,) object, each a dict of obs and mask, as in Tianshou's environments of PettingZoo."""
    rows = np.empty(len(obs), dtype=object)
    rows[:] = [{"obs": one, "mask": allowed} for one, allowed in zip(obs, mask.copy(), strict=True)]
    return rows


def _action_spaces(pool: Pool, seed: int | None) -> list[Any]:
    """A space with a random stream of its own for each environment, as N Gymnasium envs have."""
    found = [copy.deepcopy(pool.single_action_space) for _ in range(pool.num_envs)]
    for i, space in enumerate(found):
        space.seed(None if seed is None else seed + i)
    return found


def dicts(ids: Array, info: Mapping[str, Array], has_info: Array) -> Array:
    """One dict per row, in an object array; rows without info have only env_id."""
    rows: list[dict[str, Any]] = [{"env_id": i} for i in ids.tolist()]
    for name, values in info.items():
        present = has_info if values.dtype != object else has_info & (values != None)  # noqa: E711
        items = values.tolist() if values.ndim == 1 else list(values)
        for row, value, there in zip(rows, items, present.tolist(), strict=True):
            if there:
                row[name] = value
    result = np.empty(len(rows), dtype=object)
    result[:] = rows
    return result
