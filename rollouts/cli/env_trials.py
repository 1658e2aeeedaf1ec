# SPDX-License-Identifier: Apache-2.0
"""Pools of one environment that get the same actions, and the first difference between two."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

import rollouts
from rollouts.errors import SpecError

Array = npt.NDArray[Any]
# a step's arrays by name; row e is environment e's
Step = dict[str, Array]

ROW_NAMES = ("observation", "reward", "terminated", "truncated")


class Trials:
    """Steps an environment, always with the same actions for the same environment and step.

    Attributes:
      id: The environment's id.
      options: Options of every pool.
      num_envs: Environments N.
      steps: Number T of actions of each environment.
      seed: Seed of pools and actions.
    """

    def __init__(
        self, id: str, options: Mapping[str, Any], *, num_envs: int, steps: int, seed: int
    ) -> None:
        """Draws the actions."""
        self.id = id
        self.options = dict(options)
        self.num_envs = num_envs
        self.steps = steps
        self.seed = seed
        with self.pool() as env:
            env.action_space.seed(seed % 2**32)
            self.actions = [env.action_space.sample() for _ in range(steps)]

    def pool(self, num_envs: int | None = None, **arguments: Any) -> Any:
        """A pool of the environment; `arguments` are those of `make_vec`."""
        given = {"seed": self.seed, "num_threads": 1, **self.options, **arguments}
        make: Any = rollouts.make_vec
        return make(self.id, num_envs or self.num_envs, **given)

    def play(self, env: Any, steps: int | None = None, first: int = 0) -> list[Step]:
        """Copies of the results of an open synchronous pool's steps from `first` on."""
        end = self.steps if steps is None else first + steps
        rows = np.arange(env.num_envs) + env.env_id_offset
        return [_copied(env.step(_rows(self.actions[t], rows))) for t in range(first, end)]

    def begun_and_played(self, num_envs: int | None = None, **arguments: Any) -> list[Step]:
        """Results of a new pool: those of its reset, then those of each step."""
        with self.pool(num_envs, **arguments) as env:
            obs, _ = env.reset()
            return [dict(named("observation", _copy(obs))), *self.play(env)]

    def received(self, batch_size: int, num_threads: int) -> list[Step]:
        """Steps an asynchronous pool in the same way; rows are sorted by environment and step."""
        found: list[dict[str, dict[int, Array]]] = [{} for _ in range(self.steps + 1)]
        count = np.zeros(self.num_envs, int)  # results received from each environment
        with self.pool(batch_size=batch_size, num_threads=num_threads) as env:
            env.async_reset()
            while (count <= self.steps).any():
                result = env.recv()
                ids = np.array(result[4]["env_id"])
                for name, array in _copied(result).items():
                    for row, one in enumerate(ids):
                        if count[one] <= self.steps:
                            found[count[one]].setdefault(name, {})[one] = array[row]
                count[ids] += 1
                # an environment that is ahead may get any action
                due = np.minimum(count[ids] - 1, self.steps - 1)
                env.send(_chosen(self.actions, due, ids), ids)
        return [
            {name: np.stack([rows[e] for e in range(self.num_envs)]) for name, rows in step.items()}
            for step in found
        ]


def differ(one: list[Step], other: list[Step], rows: slice = slice(None)) -> str:
    """Describes the first difference of two plays; "" for none.

    Args:
      rows: The rows of `one` that are compared with all of `other`.
    """
    for step, (ours, theirs) in enumerate(zip(one, other, strict=True)):
        for name in ours.keys() & theirs.keys():
            first, second = ours[name][rows], theirs[name]
            # NaN is equal to itself here
            same = (first == second) | ((first != first) & (second != second))
            if not same.all():
                place = tuple(int(i) for i in np.argwhere(~same)[0])
                return (
                    f"{name}{list(place[1:]) or ''} of env_id {place[0]} after step {step} is once "
                    f"{first[place]} and once {second[place]}"
                )
    return ""


def named(name: str, value: Any) -> Iterator[tuple[str, Array]]:
    """Yields (name, array) for an array, or for each group's."""
    if isinstance(value, dict):
        for group, array in value.items():
            yield f"{name} of {group}", array
    else:
        yield name, value


def find_not_finite(step: Step) -> tuple[str, str]:
    """(name, sentence) of the first number of a step that is not finite; ("", "") if all are."""
    for name, array in step.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            place = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
            return name, f"{name}{list(place[1:]) or ''} of env_id {place[0]} is {array[place]}"
    return "", ""


class Located(SpecError):
    """An error about one function of the header."""

    function = ""


def located(function: str, message: str) -> SpecError:
    """The error about a function of the header."""
    error = Located(message)
    error.function = function
    return error


def check_equal(found: str, rule: str) -> None:
    """Raises SpecError with the rule where something differs."""
    if found:
        raise SpecError(f"{found}; {rule}")


def _copied(result: tuple[Any, ...]) -> Step:
    parts = zip(ROW_NAMES, result[:4], strict=True)
    return {name: array for part, value in parts for name, array in named(part, _copy(value))}


def _copy(value: Any) -> Any:
    return _mapped(value, np.array)


def _rows(action: Any, rows: Array) -> Any:
    return _mapped(action, lambda array: array[rows])


def _chosen(actions: list[Any], steps: Array, rows: Array) -> Any:
    """Row i of step steps[i], for each i."""
    first = actions[0]
    if isinstance(first, dict):
        return {name: _chosen([one[name] for one in actions], steps, rows) for name in first}
    return np.stack([actions[step][row] for step, row in zip(steps, rows, strict=True)])


def _mapped(value: Any, change: Callable[[Array], Array]) -> Any:
    if isinstance(value, dict):
        return {name: change(array) for name, array in value.items()}
    return change(value)
