# SPDX-License-Identifier: Apache-2.0
"""Curriculum: environments whose episodes begin the levels that a scheduler chooses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import ArrayLike, NDArray

from rollouts.envs.face import PoolFace
from rollouts.errors import DTypeError, SpecError
from rollouts.features import cannot
from rollouts.support.plain_values import shown

Array = NDArray[Any]
Level = Mapping[str, Any] | bytes


class Scheduler(Protocol):
    """A chooser of levels: LevelReplay, SuccessStages, or a user's class."""

    num_levels: int

    def next(self, count: int) -> NDArray[np.int64]:
        """Returns the levels (count,) of the next episodes."""

    def update(self, level: ArrayLike, score: ArrayLike) -> None:
        """Records the scores (K,) of episodes of the levels (K,)."""


class Curriculum:
    """Environments in which each episode plays a level that the scheduler chose.

    The environments do not reset themselves (`autoreset_mode="disabled"`), so that a level changes
    only at the end of an episode. A level that is a state starts with it, and then depends only on
    the actions.
    """

    def __init__(self, env: Any, levels: Sequence[Level], scheduler: Scheduler) -> None:
        """Takes the arguments; begins no episode yet.

        Args:
          env: Environments of `make_vec`, synchronous, with autoreset_mode="disabled".
          levels: Options by name, with equal names in each; or states, such as those of
            `first_states`.
          scheduler: Chooses levels by their numbers.

        Raises:
          SpecError: The environments cannot begin such levels, or their number is not the
            scheduler's. DTypeError: A level is neither.
        """
        self._levels = _checked(levels)
        self._has_states = isinstance(self._levels[0], bytes)
        check_env(env, "states" if self._has_states else "options")
        if scheduler.num_levels != len(levels):
            raise SpecError(
                f"there are {len(levels)} levels, and the scheduler has {scheduler.num_levels}: "
                "expected as many"
            )
        self.env, self.scheduler = env, scheduler
        # (N,) the level of each environment
        self.level: NDArray[np.int64] = np.zeros(env.num_envs, np.int64)
        self._has_begun = False

    def begin(self) -> Any:
        """Begins an episode in each environment; returns the observations, like `reset`."""
        self._has_begun = True
        if self._has_states:
            self.env.reset()
        return self._start(np.ones(self.env.num_envs, np.bool_))

    def end(self, ended: Any, score: ArrayLike) -> Any:
        """Begins the next level of environments whose episode has ended.

        Args:
          ended: (N,) bool.
          score: (N,) scores of the ended episodes; other entries do not count.

        Returns:
          All N observations, like `reset`.

        Raises:
          SpecError: Other shapes, a score that the scheduler refuses, or `begin` was not called.
        """
        if not self._has_begun:
            raise SpecError("end was called before begin, which begins the first episodes")
        mask, scores = _array(ended), _array(score)
        number = self.env.num_envs
        if mask.shape != (number,) or mask.dtype != np.bool_ or scores.shape != (number,):
            raise SpecError(
                f"ended has shape {mask.shape} and dtype {mask.dtype} and score shape "
                f"{scores.shape}, expected ({number},) bools and ({number},) numbers"
            )
        self.scheduler.update(self.level[mask], scores[mask])
        return self._start(mask)

    def _start(self, mask: NDArray[np.bool_]) -> Any:
        self.level[mask] = self.scheduler.next(int(mask.sum()))
        if not self._has_states:
            chosen: list[Any] = [self._levels[level] for level in self.level]
            # values for environments that play on are ignored
            values = {name: [level[name] for level in chosen] for name in chosen[0]}
            # engines on devices must reset all environments before they can reset some
            some = {} if mask.all() else {"reset_mask": mask}
            return self.env.reset(options={**some, **values})[0]
        env_id = np.flatnonzero(mask) + self.env.env_id_offset
        # an environment whose state is set needs no reset; an empty mask returns the observations
        if len(env_id):
            states: list[Any] = [self._levels[level] for level in self.level[mask]]
            self.env.set_state(env_id, states)
        return self.env.reset(options={"reset_mask": np.zeros_like(mask)})[0]


def first_states(env: Any, seeds: Sequence[int]) -> list[bytes]:
    """Makes a level from each seed: the state at the start of its first episode.

    Args:
      env: Environments that can be reset, such as those of the Curriculum. Their running episodes
        are given up.
      seeds: One for each level. A level also depends on its place: environments with the same seed
        draw different numbers.

    Raises:
      SpecError: The environments cannot save states.
    """
    check_env(env, "states")
    if isinstance(seeds, int) or not hasattr(seeds, "__len__"):
        raise SpecError(
            f"seeds is {shown(seeds)}, expected one for each level, such as range(20) for 20 levels"
        )
    states: list[bytes] = []
    for begin in range(0, len(seeds), env.num_envs):
        some = list(seeds[begin : begin + env.num_envs])
        env.reset(seed=[*some, *[None] * (env.num_envs - len(some))])
        states += env.get_state()[: len(some)]
    return states


def check_env(env: Any, feature: str) -> None:
    """Raises SpecError where environments cannot begin levels.

    Args:
      env: The environments of a Curriculum.
      feature: "states" or "options".
    """
    if not isinstance(env, PoolFace):
        raise DTypeError(f"env is of type {type(env).__name__}, expected one of make_vec")
    if feature not in env.engine.can:
        raise SpecError(cannot(env.engine.name, feature))
    if env.autoreset_mode != AutoresetMode.DISABLED:
        raise SpecError(
            f"autoreset_mode is {env.autoreset_mode.value!r}, expected 'disabled': environments "
            "that reset themselves begin the level that they had"
        )


def _checked(levels: Sequence[Level]) -> list[Level]:
    given = list(levels)
    if not given:
        raise SpecError("there are no levels, expected options by name, or states")
    if all(isinstance(level, bytes) for level in given):
        return given
    if not all(isinstance(level, Mapping) for level in given):
        kinds = sorted({type(level).__name__ for level in given})
        raise DTypeError(f"levels are of type {', '.join(kinds)}, expected all dicts, or all bytes")
    names = {tuple(sorted(level)) for level in given if isinstance(level, Mapping)}
    if len(names) > 1 or names & {()} or {"reset_mask", "model"} & {*next(iter(names))}:
        raise SpecError(
            f"levels have the options {sorted(names)}, expected the same names in each, of options "
            "of make_vec (model and reset_mask are none of these)"
        )
    return given


def _array(values: Any) -> Array:
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    return np.asarray(values)
