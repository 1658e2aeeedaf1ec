# SPDX-License-Identifier: Apache-2.0
"""A wrapper for an environment in another process, so that an adapter can address it alone.

Imports nothing but Gymnasium: processes that are not forked import this module anew.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import gymnasium

EnvFn = Callable[[], gymnasium.Env[Any, Any]]


@dataclass(frozen=True, slots=True)
class Missing:
    """Stands for an attribute that an environment does not have."""

    message: str


@dataclass(frozen=True, slots=True)
class MakeHosted:
    """Makes environment `index` in a HostedEnv; called in the process that runs it."""

    make: EnvFn
    index: int

    def __call__(self) -> gymnasium.Env[Any, Any]:
        """Makes it.

        Raises:
          ValueError: The function returned an environment that an earlier one had returned.
        """
        env = self.make()
        if getattr(env, "_rollouts_index", None) is not None:
            raise ValueError(
                f"env_fns[{self.index}] returned the environment of "
                f"env_fns[{env._rollouts_index}]: each function must make one of its own"  # type: ignore[attr-defined]
            )
        env._rollouts_index = self.index  # type: ignore[attr-defined]
        return HostedEnv(env, self.index)


class HostedEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Answers calls that name its index; each call goes to all environments of a process."""

    def __init__(self, env: gymnasium.Env[Any, Any], index: int) -> None:
        super().__init__(env)
        self._index = index
        self._options: dict[str, Any] | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Resets with the options that were set for this environment, which count once."""
        options, self._options = self._options, None
        # an environment that is given no options need not accept any
        return self.env.reset(seed=seed, **({"options": options} if options else {}))

    def set_next_options(self, options: list[dict[str, Any]]) -> None:
        """Keeps this environment's entry for the next reset."""
        self._options = options[self._index]

    def get_of(self, indices: Collection[int], name: str) -> Any:
        """Reads an attribute of the environment or of its wrappers; Missing if there is none."""
        if self._index not in indices:
            return None
        try:
            return self.env.get_wrapper_attr(name)
        except AttributeError as error:
            return Missing(str(error))

    def set_of(self, indices: Collection[int], name: str, value: Any) -> None:
        """Sets an attribute of the outermost wrapper that the environment came with."""
        if self._index in indices:
            setattr(self.env, name, value)

    def call_of(
        self, indices: Collection[int], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Calls a method of the environment or of its wrappers; Missing if there is none."""
        method = self.get_of(indices, name)
        if method is None or isinstance(method, Missing):
            return method
        return method(*args, **kwargs)

    def is_wrapped_in(self, wrapper: type) -> bool:
        """Tells if one of the wrappers it came with is of that class."""
        env = self.env
        while isinstance(env, gymnasium.Wrapper):
            if isinstance(env, wrapper):
                return True
            env = env.env
        return False
