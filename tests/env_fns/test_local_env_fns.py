# SPDX-License-Identifier: Apache-2.0
"""`from_env_fns(num_processes=0)`: environments in this process."""

from __future__ import annotations

import functools
import os
import threading
from typing import Any

import numpy as np
import pytest
from host_envs import NO_PICKLE, RAISE, BadReset, Counter, Moody

import rollouts

MODES = ["next_step", "same_step", "disabled"]
INTERRUPT = 80


class Interrupted(Counter):
    """Raises what Ctrl-C raises while an environment computes."""

    def act(self, action: int) -> None:
        if action == INTERRUPT:
            raise KeyboardInterrupt


class Held(Counter):
    """Its steps last until the test says so."""

    def __init__(self) -> None:
        super().__init__(length=100)
        self.has_begun, self.may_end = threading.Event(), threading.Event()

    def act(self, action: int) -> None:
        self.has_begun.set()
        assert self.may_end.wait(60)


def local(env_fns: list[Any], **options: Any) -> rollouts.VectorEnv:
    return rollouts.from_env_fns(env_fns, num_processes=0, **options)


def test_environments_are_objects_of_this_process() -> None:
    made = [Counter(length=9), Counter(length=9)]
    with local([lambda: made[0], lambda: made[1]]) as envs:
        assert envs.num_processes == 0
        envs.reset()
        envs.step([1, 2])
        assert [env.steps for env in made] == [1, 1]
        assert all(a is b for a, b in zip(envs.get_attr("unwrapped"), made, strict=True))
        assert envs.call("pid_of") == (os.getpid(), os.getpid())
        note = object()
        envs.set_attr("note", note)
        assert made[1].note is note
        # its samples leave those of the environments alone
        assert envs.single_action_space is not made[0].action_space


def test_infos_need_not_pickle() -> None:
    with local([functools.partial(Moody, length=9)] * 2) as envs:
        envs.reset()
        info = envs.step([1, NO_PICKLE])[4]
        assert not info["lock"][1].locked() and info["_lock"].tolist() == [False, True]


@pytest.mark.parametrize("mode", MODES)
def test_an_exception_cuts_one_row_and_is_the_cause(mode: str) -> None:
    with local([functools.partial(Moody, length=9)] * 3, autoreset_mode=mode) as envs:
        envs.reset()
        with pytest.raises(rollouts.EnvError, match=r"env_id 1 failed.*moody at step 0") as caught:
            envs.step([1, RAISE, 1])
        assert isinstance(caught.value.__cause__, ValueError)
        _, reward, _, truncated, _ = envs.recv()
        assert reward.tolist() == [1, 0, 1] and truncated.tolist() == [False, True, False]


def test_an_environment_that_cannot_reset_is_made_anew() -> None:
    BadReset.made = 0
    with local([BadReset], on_env_error="reset", autoreset_mode="same_step") as envs:
        envs.reset()
        for _ in range(8):
            envs.step([1])
        assert BadReset.made == 2


def test_an_environment_that_cannot_be_made_is_an_error_and_the_others_are_closed(
    tmp_path: Any,
) -> None:
    def first() -> Counter:
        env = Counter()
        env.closed_file = str(tmp_path / "closed")
        return env

    def second() -> Counter:
        raise OSError("no such simulator")

    with pytest.raises(rollouts.EnvError, match="no such simulator") as caught:
        local([first, second])
    assert isinstance(caught.value.__cause__, OSError)
    assert (tmp_path / "closed").read_text() == "closed\n"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("batch_size", [3, 2])
def test_an_interrupt_leaves_no_environment_at_work(mode: str, batch_size: int) -> None:
    made = local(
        [functools.partial(Interrupted, length=9)] * 3, batch_size=batch_size, autoreset_mode=mode
    )
    with made as envs:
        envs.async_reset()
        envs.drain()
        with pytest.raises(KeyboardInterrupt):
            envs.send([1, INTERRUPT, 1], [0, 1, 2])
        # the episodes that it met are cut short, and nothing waits for what does not come
        with pytest.raises(rollouts.EnvError, match="KeyboardInterrupt"):
            envs.drain(timeout_s=60)
        truncated = envs.drain(timeout_s=60)[3]
        assert truncated.tolist() == ([True] * 3 if batch_size == 3 else [False, True, True])
        envs.async_reset()
        assert envs.drain()[0][:, 0].tolist() == [0, 0, 0]
        envs.send([1, 2, 3], [0, 1, 2])
        assert sorted(envs.drain()[1].tolist()) == [1, 2, 3]


def test_one_thread_may_wait_while_another_steps() -> None:
    env = Held()
    with local([lambda: env]) as envs:
        envs.reset()
        sender = threading.Thread(target=envs.send, args=([5],))
        sender.start()
        assert env.has_begun.wait(60)
        env.may_end.set()
        assert envs.recv(timeout_s=60)[1].tolist() == [5]
        sender.join()


def test_close_closes_the_environments_once(tmp_path: Any) -> None:
    def make() -> Counter:
        env = Counter()
        env.closed_file = str(tmp_path / "closed")
        return env

    envs = local([make] * 2)
    envs.reset()
    envs.close()
    envs.close()
    assert (tmp_path / "closed").read_text() == "closed\n" * 2
    with pytest.raises(rollouts.ClosedError):
        envs.step([0, 0])


@pytest.mark.parametrize("mode", MODES)
def test_rows_equal_those_of_processes(mode: str) -> None:
    functions = [functools.partial(Counter, length=2 + i) for i in range(4)]
    with local(functions, autoreset_mode=mode, seed=3) as here:
        there = rollouts.from_env_fns(functions, num_processes=2, autoreset_mode=mode, seed=3)
        with there:
            for envs in (here, there):
                envs.reset()
            ended = np.zeros(4, bool)
            for actions in np.random.default_rng(0).integers(0, 9, (12, 4)):
                batches = []
                for envs in (here, there):
                    if mode == "disabled" and ended.any():
                        envs.reset(options={"reset_mask": ended})
                    envs.send(actions)
                    batches.append(envs.recv_batch())
                for name in ("obs", "reward", "terminated", "episode_return", "episode_length"):
                    ours, theirs = (getattr(batch, name) for batch in batches)
                    np.testing.assert_array_equal(ours, theirs)
                ended = batches[0].terminated | batches[0].truncated
