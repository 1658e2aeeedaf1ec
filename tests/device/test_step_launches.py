# SPDX-License-Identifier: Apache-2.0
"""Steps of a GPU's pool as one native call, by a driver that runs its kernels on the host."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from standin_driver import STREAM, StandInDriver

import rollouts
from rollouts import EngineError, SpecError, _native

IDS = ["CartPole-v1", "Pendulum-v1", "TagGridWorld-v0"]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> StandInDriver:
    return StandInDriver(tmp_path_factory.mktemp("driver"))


@pytest.fixture
def driver(library: StandInDriver) -> Iterator[StandInDriver]:
    for name in ("capturing", "result", "pushes"):
        library.number(name).value = 0
    yield library


def made(id: str, driver: StandInDriver | None = None) -> Any:
    env = rollouts.make_vec(id, 5, device="cpu-emulation", seed=3, autoreset_mode="same_step")
    if driver is not None:
        driver.take_over(env)
    return env


def drawn(env: Any, num_steps: int) -> list[Any]:
    """Actions of each step."""
    env.reset(seed=1)
    taken = env.rollout(num_steps, "random", action_seed=2, record=True)[4]["action"]
    env.reset(seed=1)
    if isinstance(taken, dict):
        return [{name: one[k] for name, one in taken.items()} for k in range(num_steps)]
    return [*taken]


def flat(result: Any) -> list[torch.Tensor]:
    if isinstance(result, dict):
        return [one for value in result.values() for one in flat(value)]
    if isinstance(result, tuple):
        return [one for value in result for one in flat(value)]
    return [result]


def python_steps(env: Any, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The actions of steps that were no native call."""
    steps, seen = env.engine.steps, []
    before = steps._step

    def step(actions: Any) -> Any:
        seen.append(actions)
        return before(actions)

    monkeypatch.setattr(steps, "_step", step)
    return seen


@pytest.mark.parametrize("id", IDS)
def test_a_native_launch_steps_as_python_does(
    id: str, driver: StandInDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    with made(id) as slow, made(id, driver) as quick:
        actions = drawn(slow, 60)
        quick.reset(seed=1)
        before = quick.engine.steps.num_launches
        monkeypatch.setattr(slow.engine.steps, "step", slow.engine.steps._step)
        by_python = python_steps(quick, monkeypatch)
        for one in actions:
            for expected, got in zip(flat(slow.step(one)), flat(quick.step(one)), strict=True):
                assert torch.equal(expected, got)
        assert quick.engine.steps.num_launches == before + 60
        # the first steps, each of which made a row set
        assert len(by_python) <= 2
        assert driver.stream == STREAM


@pytest.mark.parametrize("id", IDS)
def test_rows_that_are_held_stay(id: str, driver: StandInDriver) -> None:
    with made(id, driver) as env:
        actions = drawn(env, 12)
        held, copies = [], []
        for k, one in enumerate(actions):
            tensors = flat(env.step(one))
            # each step leaves something else, and some a view alone
            kept = tensors[k % 4]
            held.append(kept[1:] if k % 2 else kept)
            copies.append(held[-1].clone())
            del tensors, kept
        assert all(torch.equal(a, b) for a, b in zip(held, copies, strict=True))


def test_dicts_of_a_step_are_their_callers(driver: StandInDriver) -> None:
    with made("TagGridWorld-v0", driver) as env:
        actions = drawn(env, 8)
        kept = env.step(actions[0])
        names = [{*one} for one in kept]
        for one in actions[1:]:
            result = env.step(dict(reversed(one.items())))
            assert [{*each} for each in result] == names
            for each in result:
                each.clear()
        assert [{*one} for one in kept] == names


def test_sets_are_taken_again_oldest_first() -> None:
    sets: _native.RowSets[Any] = _native.RowSets(lambda storage: 1)
    owners = [[object()] for _ in range(3)]
    for one in owners:
        sets.add(one, one, [], (), None, 0)
    assert [sets.take() for _ in range(4)] == [*owners, owners[0]]
    held = owners[1][0]
    assert sets.take() is owners[2]
    sets.add(late := [object()], late, [], (), None, 0)
    # what was made just now comes last
    assert [sets.take() for _ in range(3)] == [owners[0], owners[2], late]
    del held
    assert sets.take() is owners[0]
    assert sets.take() is owners[1]


def test_a_step_that_is_captured_is_left_to_python(driver: StandInDriver) -> None:
    with made("CartPole-v1", driver) as env:
        (action,) = drawn(env, 1)
        env.step(action)
        native, before = env.engine.steps._launches, env.engine.steps.num_launches
        driver.number("capturing").value = 1
        assert native.step(action) is None
        assert env.engine.steps.num_launches == before
        driver.number("capturing").value = 0
        assert native.step(action) is not None


def test_other_actions_are_left_to_python(driver: StandInDriver) -> None:
    with made("CartPole-v1", driver) as env:
        (action,) = drawn(env, 1)
        env.step(action)
        native = env.engine.steps._launches
        for other in (action.numpy(), action.float(), action[:2], action[None], None, [action]):
            assert native.step(other) is None
        wide = torch.stack([action, action], 1)
        assert native.step(wide[:, 0]) is None
        env.step(wide[:, 0])
        env.step(action.long())
        with pytest.raises(SpecError, match=r"actions are torch.float32"):
            env.step(action.float())


def test_what_the_driver_refuses_is_raised(driver: StandInDriver) -> None:
    with made("CartPole-v1", driver) as env:
        actions = drawn(env, 2)
        env.step(actions[0])
        driver.number("result").value = 1
        with pytest.raises(EngineError, match="CUDA: stand-in refuses"):
            env.step(actions[1])
        driver.number("result").value = 0
        env.step(actions[1])


def test_a_thread_without_a_context_has_it_for_a_launch(driver: StandInDriver) -> None:
    with made("CartPole-v1", driver) as env:
        (action,) = drawn(env, 1)
        before = driver.number("pushes").value
        thread = threading.Thread(target=env.step, args=(action,))
        thread.start()
        thread.join()
        assert driver.number("pushes").value == before + 1


def test_sets_that_lead_back_to_their_ring_are_collected() -> None:
    class Owner:
        ring: Any

    owner = Owner()
    owner.ring = _native.RowSets(lambda storage: 1)
    owner.ring.add(owner, [], [], (), None, 0)
    gone = weakref.ref(owner)
    del owner
    gc.collect()
    assert gone() is None
