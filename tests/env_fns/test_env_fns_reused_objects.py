# SPDX-License-Identifier: Apache-2.0
"""Objects that an environment hands over stay as they were, although it uses them again."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from rollouts.integrations.cleanrl import SyncVectorEnv

import rollouts

pytestmark = pytest.mark.system

MODES = ["next_step", "same_step", "disabled"]
NUM_ENVS, LENGTH, NUM_STEPS = 3, 3, 10
_SHARED = {"last": [0]}  # between the environments of a process


class Note:
    """An object that only deep copies take along."""

    def __init__(self) -> None:
        self.lines: list[int] = [0]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Note) and self.lines == other.lines

    __hash__ = None  # type: ignore[assignment]


class Reuser(gymnasium.Env[Any, Any]):
    """Writes every observation and info into the same objects; `fresh`: into new ones."""

    action_space = spaces.Discrete(2)

    def __init__(self, *, kind: str, fresh: bool, index: int) -> None:
        box = spaces.Box(0, 1000, (2,), np.float32)
        graph = spaces.Graph(spaces.Box(0, 1000, (1,), np.float32), None)
        self.kind, self.fresh, self.count = kind, fresh, 100 * index
        self.array = np.zeros(2, np.float32)
        self.nodes = spaces.GraphInstance(np.zeros((2, 1), np.float32), None, None)
        whole: dict[str, Any] = {
            "array": (box, self.array),
            "dict": (
                spaces.Dict(a=box, b=spaces.Dict(c=box)),
                {"a": self.array, "b": {"c": self.array}},
            ),
            "tuple": (spaces.Tuple((box, box)), (self.array, self.array)),
            "graph": (graph, self.nodes),
            "mixed": (spaces.Dict(a=box, g=graph), {"a": self.array, "g": self.nodes}),
        }
        self.observation_space, self.obs = whole[kind]
        self.info: dict[str, Any] = {
            "number": 0,
            "array": np.zeros(2),
            "list": [0],
            "nested": {"deep": {"array": np.zeros(1)}},
            "note": Note(),
            "object": np.array([[0]], dtype=object),
            "shared": _SHARED if not fresh else {"last": [0]},
        }

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return self._handed_over()

    def step(self, action: Any) -> Any:
        self.steps += 1
        obs, info = self._handed_over()
        return obs, 1.0, self.steps == LENGTH, False, info

    def _handed_over(self) -> Any:
        self.count += 1
        self.array[:] = self.count
        self.nodes.nodes[:] = self.count
        info = self.info
        info["number"] = self.count
        info["array"][:] = self.count
        info["list"][0] = info["object"][0, 0] = self.count
        info["nested"]["deep"]["array"][:] = self.count
        info["note"].lines[0] = self.count
        info["shared"]["last"][0] = self.count
        both = (self.obs, info)
        return copy.deepcopy(both) if self.fresh else both


def assert_same(one: Any, other: Any) -> None:
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_same(one[key], other[key])
    elif isinstance(one, np.ndarray) and one.dtype != object:
        np.testing.assert_array_equal(one, other)
    elif isinstance(one, (tuple, list, np.ndarray)):
        assert len(one) == len(other)
        for pair in zip(one, other, strict=True):
            assert_same(*pair)
    else:
        assert one == other


def steps_of(envs: Any) -> list[Any]:
    """All that an environment hands over; each step as it is now and as it was then."""
    told = [envs.reset(seed=0)]
    then = copy.deepcopy(told)
    for _ in range(NUM_STEPS):
        told.append(envs.step(np.zeros(NUM_ENVS, np.int64)))
        then.append(copy.deepcopy(told[-1]))
        ended = told[-1][2] | told[-1][3]
        if envs.metadata["autoreset_mode"].name == "DISABLED" and ended.any():
            told.append(envs.reset(options={"reset_mask": ended}))
            then.append(copy.deepcopy(told[-1]))
    assert_same(told, then)
    return then


def makers(kind: str, *, fresh: bool) -> list[Callable[[], Any]]:
    return [
        functools.partial(Reuser, kind=kind, fresh=fresh, index=index) for index in range(NUM_ENVS)
    ]


@pytest.mark.parametrize("num_processes", [0, 1, 3])
@pytest.mark.parametrize("kind", ["array", "dict", "tuple", "graph", "mixed"])
@pytest.mark.parametrize("mode", MODES)
def test_what_was_handed_over_stays_as_it_was(mode: str, kind: str, num_processes: int) -> None:
    def made(*, fresh: bool, processes: int) -> Any:
        return rollouts.from_env_fns(
            makers(kind, fresh=fresh), autoreset_mode=mode, num_processes=processes
        )

    with made(fresh=False, processes=num_processes) as envs, made(fresh=True, processes=0) as other:
        assert_same(steps_of(envs), steps_of(other))


@pytest.mark.parametrize("num_processes", [0, 2])
def test_batches_keep_what_they_were_in_asynchronous_mode(num_processes: int) -> None:
    envs = rollouts.from_env_fns(
        makers("mixed", fresh=False),
        autoreset_mode="same_step",
        num_processes=num_processes,
        batch_size=1,
    )
    with envs:
        envs.async_reset()
        told, then = [], []
        for _ in range(6 * NUM_ENVS):
            told.append(envs.recv())
            then.append(copy.deepcopy(told[-1]))
            numbers = [told[-1][0]["a"][0, 0], told[-1][0]["g"][0].nodes[0, 0]]
            numbers += [told[-1][4][name][0] for name in ("number", "list")]
            assert np.unique([float(np.ravel(number)[0]) for number in numbers]).size == 1
            envs.send([0], told[-1][4]["env_id"])
        envs.drain()
        assert_same(told, then)


@pytest.mark.parametrize("num_processes", [0, 2])
def test_cleanrl_s_vector_environment_keeps_what_it_handed_over(num_processes: int) -> None:
    made = [
        SyncVectorEnv(makers("dict", fresh=fresh), num_processes=num_processes)
        for fresh in (False, True)
    ]
    one, other = (steps_of(envs) for envs in made)
    assert_same(one, other)
    for envs in made:
        envs.close()


@pytest.mark.parametrize("num_processes", [0, 2])
def test_each_environment_has_reset_options_of_its_own(num_processes: int) -> None:
    class Taker(Reuser):
        def reset(self, *, seed: Any = None, options: Any = None) -> Any:
            # used again as the environment's own
            options["seen"].append(1)
            obs, info = super().reset(seed=seed)
            return obs, {**info, "seen": len(options["seen"]), "level": options.pop("level")}

    functions = [
        functools.partial(Taker, kind="array", fresh=False, index=index) for index in range(4)
    ]
    with rollouts.from_env_fns(functions, num_processes=num_processes) as envs:
        given = {"level": 3, "seen": []}
        info = envs.reset(options=given)[1]
        assert info["level"].tolist() == [3] * 4 and info["seen"].tolist() == [1] * 4
        assert given == {"level": 3, "seen": []}


def test_what_cannot_be_copied_stays_the_environment_s_own_object() -> None:
    import threading

    lock = threading.Lock()

    class Locked(Reuser):
        def step(self, action: Any) -> Any:
            return (*super().step(action)[:4], {"lock": lock})

    make = functools.partial(Locked, kind="array", fresh=False, index=0)
    with rollouts.from_env_fns([make], num_processes=0) as envs:
        envs.reset()
        assert envs.step([0])[4]["lock"][0] is lock
