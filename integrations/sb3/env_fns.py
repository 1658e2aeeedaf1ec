# SPDX-License-Identifier: Apache-2.0
"""A user's own environments behind Stable-Baselines3's interface, several in each process."""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import concatenate, create_empty_array
from numpy.typing import NDArray

import rollouts
from rollouts.envs.hosted.merged_infos import OWN_PREFIX
from rollouts.errors import EnvError

from ..shared.hosted_env import EnvFn, MakeHosted, Missing
from ..shared.info_rows import info_rows
from .base import BaseVecEnv, Indices, Infos

Array = NDArray[Any]


class EnvFnsVecEnv(BaseVecEnv):
    """Any Python environments; `RolloutsVecEnv` makes one of these when it is given functions.

    Takes the place of `SubprocVecEnv`, whose processes have an environment each. Here each process
    has several, writes observations into shared memory, and answers a step with one message.
    Monitors and other wrappers stay where the functions put them.
    """

    def __init__(
        self,
        env: Sequence[EnvFn],
        num_envs: int | None = None,
        *,
        start_method: str | None = None,
        num_processes: int | None = None,
        **options: Any,
    ) -> None:
        """Starts the processes.

        Args:
          env: N functions that make an environment each.
          num_envs: None, or N.
          start_method: "fork", "forkserver" or "spawn"; None: multiprocessing's default, where
            SubprocVecEnv prefers forkserver. After "fork" an environment must not use threads or
            devices that this process has opened.
          num_processes: None: the number that `rollouts.from_env_fns` chooses. 0: in this process,
            as DummyVecEnv does.
          options: Further arguments of `rollouts.from_env_fns`.

        Raises:
          ValueError: Two functions return the same environment, or start_method is unknown.
          SpecError, EnvError: As `rollouts.from_env_fns`.
        """
        self._was_reset = False
        pool = _open(env, start_method, num_processes, options)
        super().__init__(pool, pool.single_observation_space, pool.single_action_space)

    def step_async(self, actions: Any) -> None:
        """Starts a step of every environment; actions: N of them, as an array or a list."""
        if not self._was_reset:
            # the first step resets, as in the library's own classes
            self.reset()
        self.pool.send(_batched(self.action_space, actions))

    def step_wait(self) -> tuple[Any, NDArray[np.float32], NDArray[np.bool_], Infos]:
        """Waits for the step; returns obs, rewards (N,), dones (N,) and N infos."""
        obs, reward, terminated, truncated, told = self.pool.recv()
        done = terminated | truncated
        final_info, final_obs = told.pop("final_info", {}), told.pop("final_obs", None)
        for name in ("_final_info", "_final_obs"):
            told.pop(name, None)
        infos = _infos(told, self.num_envs)
        ended = _infos(final_info, self.num_envs) if done.any() else []
        for row in np.flatnonzero(done).tolist():
            # the infos of the next episode's first observation
            self.reset_infos[row] = infos[row]
            infos[row] = ended[row] | {"terminal_observation": final_obs[row]}
        for info, cut in zip(infos, (truncated & ~terminated).tolist(), strict=True):
            info["TimeLimit.truncated"] = cut
        return obs, reward.astype(np.float32), done, infos

    def get_attr(self, attr_name: str, indices: Indices = None) -> list[Any]:
        """Reads an attribute of environments or of their wrappers.

        Raises:
          AttributeError: An environment has no attribute of that name.
        """
        chosen = self._numbers(indices)
        return _present(self._call("get_of", chosen, attr_name), chosen)

    def set_attr(self, attr_name: str, value: Any, indices: Indices = None) -> None:
        """Sets an attribute of environments, on their outermost wrapper."""
        self._call("set_of", self._numbers(indices), attr_name, value)

    def env_method(
        self, method_name: str, *method_args: Any, indices: Indices = None, **method_kwargs: Any
    ) -> list[Any]:
        """Calls a method of some environments or of their wrappers; other environments do nothing.

        Raises:
          AttributeError: An environment has no method of that name. Or any error of the method.
        """
        chosen = self._numbers(indices)
        answers = self._call("call_of", chosen, method_name, method_args, method_kwargs)
        return _present(answers, chosen)

    def env_is_wrapped(
        self, wrapper_class: type[gymnasium.Wrapper[Any, Any, Any, Any]], indices: Indices = None
    ) -> list[bool]:
        """Tells for each environment whether it has a wrapper of that class."""
        answers = self._call("is_wrapped_in", wrapper_class)
        return [answers[number] for number in self._numbers(indices)]

    def _call(self, name: str, *args: Any) -> Any:
        """Calls a method of HostedEnv; raises what an environment raises, as DummyVecEnv does."""
        try:
            return self.pool.call(name, *args)
        except EnvError as error:
            raise (error.__cause__ or error) from error

    def _begin(self, seeds: list[int | None] | None) -> tuple[Any, Infos]:
        if any(self._options):
            self.pool.call("set_next_options", self._options)
        obs, info = self.pool.reset(seed=seeds)
        self._was_reset = True
        return obs, _infos(info, self.num_envs)

    def _draw(self) -> Sequence[Array]:
        return self.env_method("render")


def _open(
    env_fns: Sequence[EnvFn],
    start_method: str | None,
    num_processes: int | None,
    options: dict[str, Any],
) -> Any:
    # for an unknown start method, multiprocessing raises its own error here
    multiprocessing.get_context(start_method)
    hosted = [MakeHosted(make, index) for index, make in enumerate(env_fns)]
    try:
        return rollouts.from_env_fns(
            hosted,
            autoreset_mode="same_step",
            start_method=start_method,
            num_processes=num_processes,
            **options,
        )
    except EnvError as error:
        raise (error.__cause__ or error) from error


def _infos(columns: dict[str, Any], num_envs: int) -> Infos:
    """One info per environment; keys that the batch renamed have the environment's names again.

    Where an environment reports a key that this package uses, too, such as `env_id`, the
    environment's value is taken, so that an info equals SubprocVecEnv's.
    """
    return [
        {key.removeprefix(OWN_PREFIX) if isinstance(key, str) else key: row[key] for key in row}
        for row in info_rows(columns, num_envs)
    ]


def _batched(space: gymnasium.Space[Any], actions: Any) -> Any:
    """The actions as a batch of the action space; numbers keep their value."""
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        if isinstance(actions, (list, np.ndarray)):
            batch = create_empty_array(space, len(actions))
            return concatenate(space, list(actions), batch)
        return actions
    given, dtype = np.asarray(actions), np.dtype(space.dtype)
    # floats are rounded to the space's dtype; other numbers are converted only where they fit, and
    # are refused later where they do not
    if dtype.kind == "f" or np.array_equal(given.astype(dtype), given):
        return given.astype(dtype)
    return given


def _present(answers: Sequence[Any], chosen: Sequence[int]) -> list[Any]:
    for number in chosen:
        if isinstance(answers[number], Missing):
            raise AttributeError(f"environment {number}: {answers[number].message}")
    return [answers[number] for number in chosen]
