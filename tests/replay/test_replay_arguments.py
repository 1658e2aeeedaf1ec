# SPDX-License-Identifier: Apache-2.0
"""Arguments that a replay cannot use raise an error of ours and change nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from replay_model import ACTION_SPACE, OBS_SPACE, TERMINATED, World

from rollouts.errors import DTypeError, ProtocolError, RolloutsError, SpecError
from rollouts.replay import Acted, MinSize, NStep, ReplayBuffer, Sequences, TableConfig
from rollouts.replay.sampling import importance_weights

NAN, INF = float("nan"), float("inf")


def make_buffer(*tables: TableConfig, mode: str = "same_step") -> ReplayBuffer:
    return ReplayBuffer(OBS_SPACE, ACTION_SPACE, tables or None, autoreset_mode=mode)


def filled(*tables: TableConfig) -> ReplayBuffer:
    buffer = make_buffer(*(tables or (TableConfig(sampler="prioritized"),)))
    buffer.add_batch(World([[(50, TERMINATED)]] * 2, env_id=[0, 1]).rollout(20))
    return buffer


def one_step() -> dict[str, Any]:
    return {
        "obs": np.zeros((2, 3), np.float32),
        "action": np.zeros(2, np.int64),
        "reward": np.zeros(2, np.float32),
        "terminated": np.zeros(2, np.bool_),
        "truncated": np.zeros(2, np.bool_),
        "next_obs": np.zeros((2, 3), np.float32),
        "info": {},
    }


def add_step(buffer: ReplayBuffer, *, timeout_s: Any = None, **given: Any) -> int:
    """Adds a step of which all is given by its name."""
    outcome = ("next_obs", "reward", "terminated", "truncated", "info")
    step: Any = tuple(given.pop(name) for name in outcome)
    return buffer.add_step(Acted(**given), step, timeout_s=timeout_s)


# -- what was found --------------------------------------------------------------------


@pytest.mark.parametrize("method", ["update", "add_batch", "add_step"])
def test_priorities_whose_sum_would_overflow_are_refused(method: str) -> None:
    for exponent, priority in ((1.0, 1e308), (2.0, 1e150), (1.0, INF), (1.0, NAN), (1.0, -1.0)):
        with filled(TableConfig(sampler="prioritized", exponent=exponent)) as buffer:
            keys = buffer.store.keys("replay")
            with pytest.raises(SpecError, match="expected"):
                if method == "update":
                    buffer.update_priorities(keys, np.full(len(keys), priority))
                elif method == "add_batch":
                    buffer.add_batch(World([[(9, TERMINATED)]], [7]).rollout(3), priority=priority)
                else:
                    add_step(buffer, **one_step(), priority=np.array([1.0, priority]))
            assert (buffer.gather(keys).priority == 1).all()
            assert buffer.stats()["steps"]["produced"] == 40


def test_the_highest_priorities_are_drawn_in_proportion() -> None:
    table = TableConfig(sampler="prioritized", exponent=1.0)
    with filled(table) as buffer:
        keys = buffer.store.keys("replay")
        buffer.update_priorities(keys, np.full(len(keys), table.most_priority))
        batch = buffer.sample(256)
        np.testing.assert_allclose(batch.probability, 1 / len(keys), rtol=1e-12)
        assert len(set(batch.key.tolist())) > len(keys) // 2


def test_a_priority_may_be_any_finite_number_where_none_is_summed() -> None:
    with filled(TableConfig(sampler="max_heap")) as buffer:
        keys = buffer.store.keys("replay")
        buffer.update_priorities(keys[:1], [1e308])
        assert buffer.sample(1).key == keys[0]


def test_weights_of_any_beta_are_numbers() -> None:
    probability = np.array([1e-300, 0.5, 0.25])
    for beta in (0.0, 0.4, 1.0, 50.0):
        weight = importance_weights(probability, np.full(3, 10), beta)
        assert np.isfinite(weight).all()
        assert weight.max() == 1


@pytest.mark.parametrize("keys", [[1.5], [True], ["a"], [None], [2**64], [[1]], 1, np.array([0.0])])
def test_keys_that_are_no_whole_numbers_delete_nothing(keys: Any) -> None:
    with filled() as buffer:
        before = buffer.store.keys("replay").tolist()
        for call in (buffer.delete, buffer.gather, lambda k: buffer.update_priorities(k, [1.0])):
            with pytest.raises((DTypeError, SpecError), match="keys"):
                call(keys)
        assert buffer.store.keys("replay").tolist() == before


def test_an_empty_file_is_no_saved_buffer(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    with filled() as buffer:
        with pytest.raises(SpecError, match="is empty"):
            buffer.load(tmp_path / "empty")
        with pytest.raises(FileNotFoundError):
            buffer.load(tmp_path / "none")
        assert buffer.size() == 38


def test_a_batch_beyond_all_memory_is_refused_with_its_size_and_draws_nothing() -> None:
    with filled() as buffer:
        with pytest.raises(SpecError, match="batch_size is 2147483648, expected a whole number"):
            buffer.sample(2**31)
        with pytest.raises(MemoryError, match="batch_size = 2147483647"):
            buffer.sample(2**31 - 1)
        assert buffer.stats()["tables"]["replay"]["samples"] == 0


# -- wrong types and values, everywhere ------------------------------------------------

JUNK: list[Any] = [None, "a", b"a", 1.5, -1, NAN, INF, 2**70, True, [], [[1], [1, 2]], {}, object()]
JUNK += [np.array(["a"]), np.array([None]), np.array([NAN, 1.0]), np.zeros((2, 2)), 1j, (), set()]

CALLS: dict[str, Callable[[ReplayBuffer, Any], Any]] = {
    "sample": lambda b, x: b.sample(x, timeout_s=0),
    "sample beta": lambda b, x: b.sample(2, beta=x),
    "sample timeout_s": lambda b, x: b.sample(2, timeout_s=x),
    "sample table": lambda b, x: b.sample(2, table=x),
    "gather": lambda b, x: b.gather(x),
    "delete": lambda b, x: b.delete(x),
    "update keys": lambda b, x: b.update_priorities(x, [1.0]),
    "update priorities": lambda b, x: b.update_priorities(b.store.keys("replay")[:2], x),
    "can_insert": lambda b, x: b.can_insert(x),
    "can_sample": lambda b, x: b.can_sample(x),
    "flush": lambda b, x: b.flush(x),
    "end_episodes": lambda b, x: b.end_episodes(x),
    "policy_version": lambda b, x: setattr(b, "policy_version", x),
    "load": lambda b, x: b.load(x),
    "load_state": lambda b, x: b.load_state(x),
    "save": lambda b, x: b.save(x) if not isinstance(x, str) else None,
    "add_batch": lambda b, x: b.add_batch(x),
    "add_batch priority": lambda b, x: b.add_batch(
        World([[(9, TERMINATED)]], [7]).rollout(3), priority=x
    ),
    "add_step acted": lambda b, x: b.add_step(x, ()),
    "add_step step": lambda b, x: b.add_step(Acted(np.zeros((2, 3)), np.zeros(2)), x),
    "make autoreset_mode": lambda b, x: ReplayBuffer(OBS_SPACE, ACTION_SPACE, autoreset_mode=x),
    "make seed": lambda b, x: ReplayBuffer(OBS_SPACE, ACTION_SPACE, seed=x),
    "make tables": lambda b, x: ReplayBuffer(OBS_SPACE, ACTION_SPACE, x),
    "make max_bytes": lambda b, x: ReplayBuffer(OBS_SPACE, ACTION_SPACE, max_bytes=x),
    "make length": lambda b, x: ReplayBuffer(OBS_SPACE, ACTION_SPACE, max_batch_length=x),
    "make stack_num": lambda b, x: ReplayBuffer(OBS_SPACE, ACTION_SPACE, stack_num=x),
    "make space": lambda b, x: ReplayBuffer(x, ACTION_SPACE),
    "make extras": lambda b, x: ReplayBuffer(OBS_SPACE, ACTION_SPACE, extras={"x": x}),
    "make policy_state": lambda b, x: ReplayBuffer(OBS_SPACE, ACTION_SPACE, policy_state=(x,)),
    "TableConfig max_size": lambda b, x: TableConfig(max_size=x),
    "TableConfig exponent": lambda b, x: TableConfig(sampler="prioritized", exponent=x),
    "TableConfig sampler": lambda b, x: TableConfig(sampler=x),
    "TableConfig limiter": lambda b, x: TableConfig(limiter=x),
    "TableConfig items": lambda b, x: TableConfig(items=x),
    "TableConfig name": lambda b, x: TableConfig(name=x),
    "NStep": lambda b, x: NStep(x),
    "NStep discount": lambda b, x: NStep(1, x),
    "Sequences": lambda b, x: Sequences(4, burn_in=x),
    "MinSize": lambda b, x: MinSize(x),
}
STEP_NAMES = (*one_step(), "policy_version", "policy_state", "extras", "priority", "timeout_s")


def check(call: Callable[[], Any]) -> None:
    """A call with junk either works or raises an error of ours that says something."""
    try:
        call()
    except RolloutsError as error:
        assert len(str(error)) > 15
        assert "incompatible function arguments" not in str(error)
    except (OSError, TimeoutError, MemoryError):
        pass


@pytest.mark.parametrize("name", CALLS)
def test_junk_is_taken_or_refused_with_an_error_of_ours(name: str, tmp_path: Path) -> None:
    with filled() as buffer:
        for junk in JUNK:
            check(lambda junk=junk: CALLS[name](buffer, junk))
        assert buffer.sample(4, timeout_s=0).obs.shape == (4, 3)


@pytest.mark.parametrize("name", STEP_NAMES)
def test_junk_in_a_step_is_taken_or_refused_with_an_error_of_ours(name: str) -> None:
    with filled() as buffer:
        for junk in JUNK:
            check(lambda junk=junk: add_step(buffer, **(one_step() | {name: junk})))
        add_step(buffer, **one_step())
        assert buffer.sample(4, timeout_s=0).obs.shape == (4, 3)


def test_junk_as_env_id_is_taken_or_refused_with_an_error_of_ours() -> None:
    with filled() as buffer:
        for junk in JUNK:
            info = {"env_id": junk}
            check(lambda info=info: add_step(buffer, **(one_step() | {"info": info})))
        add_step(buffer, **one_step())
        assert buffer.sample(4, timeout_s=0).obs.shape == (4, 3)


def test_a_step_is_refused_without_the_mode_of_its_environments_or_with_another() -> None:
    final = one_step() | {"info": {"final_obs": np.zeros((2, 3), np.float32)}}
    with make_buffer(mode="next_step") as buffer, pytest.raises(SpecError, match="same_step"):
        add_step(buffer, **final)
    with ReplayBuffer(OBS_SPACE, ACTION_SPACE) as buffer:
        with pytest.raises(SpecError, match="without autoreset_mode"):
            add_step(buffer, **one_step())
        assert buffer.stats()["steps"]["produced"] == 0


def test_env_ids_that_are_no_whole_numbers_are_refused() -> None:
    with filled() as buffer:
        for env_id in ([0.5, 1.5], [0, 0], [-1, 0], [0], [[0, 1]], ["a", "b"]):
            with pytest.raises(RolloutsError, match="env_id"):
                add_step(buffer, **(one_step() | {"info": {"env_id": env_id}}))
        with pytest.raises(RolloutsError, match="env_id"):
            buffer.end_episodes([0.5])
        assert buffer.stats()["steps"]["produced"] == 40


def test_a_closed_buffer_says_so() -> None:
    buffer = filled()
    buffer.close()
    for call in (
        lambda: buffer.sample(1),
        lambda: add_step(buffer, **one_step()),
        lambda: buffer.add_batch(World([[(9, TERMINATED)]], [7]).rollout(3)),
    ):
        with pytest.raises(RolloutsError, match="closed"):
            call()
    assert not issubclass(ProtocolError, OSError)


# -- what the writer takes over ----------------------------------------------------------


def test_a_batch_without_steps_is_refused_and_cuts_nothing() -> None:
    world = World([[(50, TERMINATED)]] * 2, env_id=[0, 1])
    with ReplayBuffer(OBS_SPACE, ACTION_SPACE, TableConfig()) as buffer:
        buffer.add_batch(world.rollout(5))
        with pytest.raises(SpecError, match="no steps"):
            buffer.add_batch(world.rollout(0))
        buffer.add_batch(world.rollout(5))
        assert buffer.stats()["episodes_cut"] == 0


def test_arrays_of_a_call_are_let_go_of_when_it_ends() -> None:
    with make_buffer() as buffer:
        step, rollout = one_step(), World([[(9, TERMINATED)]], [7]).rollout(3)
        before = sys.getrefcount(step["obs"]), sys.getrefcount(rollout.obs)
        add_step(buffer, **step)
        buffer.add_batch(rollout)
        with pytest.raises(SpecError):
            add_step(buffer, **(step | {"reward": np.zeros(3, np.float32)}))
        assert (sys.getrefcount(step["obs"]), sys.getrefcount(rollout.obs)) == before


def test_a_reset_that_failed_is_no_step_and_neither_is_the_one_after_it() -> None:
    def next_step(*, ended: bool = False, failed: bool = False, value: float) -> dict[str, Any]:
        info = {"_env_error": np.array([failed])} if failed else {}
        return {name: array[:1] for name, array in one_step().items() if name != "info"} | {
            "obs": np.full((1, 3), value - 1, np.float32),
            "next_obs": np.full((1, 3), 0 if failed else value, np.float32),
            "terminated": np.array([ended]),
            "truncated": np.array([failed]),
            "info": info,
        }

    with make_buffer(mode="next_step") as buffer:
        add_step(buffer, **next_step(value=1, ended=True))
        # the reset fails, and so the next call resets again
        add_step(buffer, **next_step(value=2, failed=True))
        add_step(buffer, **next_step(value=1))
        assert buffer.stats()["steps"]["produced"] == 1
        add_step(buffer, **next_step(value=2))
        assert buffer.stats()["steps"]["produced"] == 2


@pytest.mark.parametrize("version", [5, np.int64(5), np.asarray(5), np.array([5, 5])])
def test_a_policy_version_is_one_number_or_one_for_each(version: Any) -> None:
    with make_buffer() as buffer:
        add_step(buffer, **one_step(), policy_version=version)
        assert buffer.policy_version == 5


def test_a_tensor_of_policy_versions_is_one_for_each() -> None:
    torch = pytest.importorskip("torch")
    with make_buffer() as buffer:
        add_step(buffer, **one_step(), policy_version=torch.tensor([4, 5]))
        assert buffer.policy_version == 5


def test_one_environments_episode_is_ended_by_its_number() -> None:
    with filled() as buffer:
        buffer.end_episodes(1)
        assert buffer.stats()["episodes_cut"] == 1
