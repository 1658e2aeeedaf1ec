# SPDX-License-Identifier: Apache-2.0
"""`reset_async`, `reset_wait`, `step_async`, `step_wait`, empty masks and calls after `close`."""

from __future__ import annotations

import functools
import multiprocessing
import os
import pickle
import signal
import threading
import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from host_envs import HANG, RAISE, Counter, Moody, Talker

import rollouts


def talkers(**options: Any) -> Any:
    functions = [functools.partial(Talker, 2 + number % 3) for number in range(4)]
    return rollouts.from_env_fns(functions, num_processes=2, **options), functions


def test_halves_return_what_whole_calls_return() -> None:
    ours, functions = talkers()
    theirs = SyncVectorEnv(functions)
    with ours as envs:
        assert envs.reset_async(seed=3, options={"x": 1}) is None
        assert data_equivalence(envs.reset_wait(), theirs.reset(seed=3, options={"x": 1}))
        assert envs.get_attr("options") == ({"x": 1},) * 4
        for step in range(8):
            actions = (np.arange(4) + step) % 3
            assert envs.step_async(actions) is None
            assert data_equivalence(envs.step_wait(timeout=120), theirs.step(actions))


def test_halves_of_a_masked_reset() -> None:
    ours, functions = talkers(autoreset_mode="disabled")
    theirs = SyncVectorEnv(functions, autoreset_mode=AutoresetMode.DISABLED)
    with ours as envs:
        for one in (envs, theirs):
            one.reset(seed=1)
            one.step([1, 1, 1, 1])
        mask = np.array([True, False, False, True])
        envs.reset_async(seed=9, options={"reset_mask": mask})
        assert data_equivalence(
            envs.reset_wait(), theirs.reset(seed=9, options={"reset_mask": mask})
        )


@pytest.mark.parametrize("halves", [False, True])
@pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
def test_mask_that_marks_nothing_changes_nothing(mode: str, halves: bool) -> None:
    with rollouts.from_env_fns(
        [functools.partial(Counter, 100)] * 4, num_processes=2, autoreset_mode=mode,
        episode_statistics=True, seed=5,
    ) as envs:  # fmt: skip
        options = {"reset_mask": np.zeros(4, np.bool_)}
        with pytest.raises(rollouts.ProtocolError, match="never reset"):
            envs.reset(options=options)
        envs.reset()
        expected = envs.step([1, 2, 3, 4])
        if halves:
            envs.reset_async(seed=7, options=options)
            obs, info = envs.reset_wait()
        else:
            obs, info = envs.reset(seed=7, options=options)
        np.testing.assert_array_equal(obs, expected[0])
        assert set(info) == {"env_id", "episode_return", "episode_length"}
        assert info["episode_return"].tolist() == [1, 2, 3, 4]
        assert envs.np_random_seed == (5, 6, 7, 8)
        assert envs.step([1, 1, 1, 1])[0][:, 0].tolist() == [2, 2, 2, 2]
        assert envs.stats().env_steps == 8


def test_order_of_halves_is_checked() -> None:
    with talkers()[0] as envs:
        for name in ("reset", "step"):
            with pytest.raises(gymnasium.error.NoAsyncCallError, match=f"{name}_async") as none:
                getattr(envs, f"{name}_wait")()
            assert none.value.name == name and isinstance(none.value, rollouts.ProtocolError)
        envs.reset_async()
        pending = gymnasium.error.AlreadyPendingCallError
        for call in (envs.reset_async, functools.partial(envs.step_async, [0] * 4)):
            with pytest.raises(pending, match="pending call to `reset`") as caught:
                call()
            assert caught.value.name == "reset"
            assert isinstance(caught.value, rollouts.ProtocolError)
        with pytest.raises(rollouts.ProtocolError):
            envs.step_wait()
        with pytest.raises(pending, match="in flight"):
            envs.call("pid_of")
        envs.reset_wait()
        envs.step_async([0] * 4)
        with pytest.raises(pending, match="pending call to `step`"):
            envs.reset_async()
        envs.step_wait()
        envs.step_async([1] * 4)
        envs.reset()  # forgets what is pending, as it does what was sent
        with pytest.raises(rollouts.NoCallPendingError):
            envs.step_wait()
        assert envs.step([1] * 4)[1].tolist() == [1] * 4


@pytest.mark.parametrize("kind", [rollouts.CallPendingError, rollouts.NoCallPendingError])
def test_errors_of_halves_travel(kind: type) -> None:
    error = pickle.loads(pickle.dumps(kind("what", "step")))
    assert isinstance(error, kind) and str(error) == "what" and error.name == "step"


def test_wait_that_timed_out_may_be_repeated() -> None:
    class Waiting(Counter):
        def act(self, action: int) -> None:
            signal.sigwait({signal.SIGUSR1})

    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})  # for the processes to inherit
    try:
        with rollouts.from_env_fns(
            [Waiting, Counter], num_processes=2, start_method="spawn"
        ) as envs:
            envs.reset()
            pid = envs.call("pid_of")[0]
            envs.step_async([1, 1])
            for kind in (TimeoutError, multiprocessing.TimeoutError):
                with pytest.raises(kind, match=r"`step_wait` has timed out after 0\.05 second"):
                    envs.step_wait(timeout=0.05)
            os.kill(pid, signal.SIGUSR1)
            assert envs.step_wait(timeout=120)[1].tolist() == [1, 1]
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})


def test_failed_step_is_raised_and_its_batch_waited_for_then() -> None:
    with rollouts.from_env_fns([Moody] * 2, num_processes=1) as envs:
        envs.reset()
        envs.step_async([1, RAISE])
        with pytest.raises(rollouts.EnvError, match="env_id 1"):
            envs.step_wait()
        with pytest.raises(rollouts.CallPendingError):
            envs.step_async([1, 1])
        assert envs.step_wait()[1].tolist() == [1, 0]
        envs.step_async([1, 1])
        envs.step_wait()


def test_closing_while_a_half_is_pending_warns_as_gymnasium_does() -> None:
    envs = rollouts.from_env_fns([functools.partial(Moody, 6)] * 2, num_processes=2)
    envs.reset()
    envs.step_async([1, HANG])
    with pytest.warns(UserWarning, match="waiting for a pending call to `step` to complete"):
        envs.close(terminate=True)
    envs = rollouts.from_env_fns([Counter] * 2, num_processes=1)
    envs.reset()
    envs.send([1, 1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        envs.close()


def closed_hosts() -> Any:
    envs = rollouts.from_env_fns([Counter] * 2, num_processes=1)
    envs.reset()
    envs.close()
    return envs


def closed_pool() -> Any:
    envs = rollouts.make_vec("CartPole-v1", 2)
    envs.reset()
    envs.close()
    return envs


@pytest.mark.parametrize("make", [closed_hosts, closed_pool])
@pytest.mark.parametrize(
    "call",
    [
        lambda envs: envs.reset(),
        lambda envs: envs.step(np.zeros(2, np.int64)),
        lambda envs: envs.send(np.zeros(2, np.int64)),
        lambda envs: envs.recv(),
        lambda envs: envs.async_reset(),
        lambda envs: envs.reset(options={"reset_mask": np.zeros(2, np.bool_)}),
    ],
)
def test_calls_after_close_raise_gymnasiums_error_and_ours(make: Any, call: Any) -> None:
    with pytest.raises(gymnasium.error.ClosedEnvironmentError) as caught:
        call(make())
    assert isinstance(caught.value, rollouts.ClosedError) and isinstance(caught.value, RuntimeError)


@pytest.mark.parametrize("name", ["reset_async", "reset_wait", "step_wait"])
def test_halves_after_close_raise_closed(name: str) -> None:
    with pytest.raises(gymnasium.error.ClosedEnvironmentError):
        getattr(closed_hosts(), name)()
    with pytest.raises(rollouts.ClosedError):
        closed_hosts().step_async([0, 0])


def test_closing_wakes_who_waits_for_a_half() -> None:
    envs = rollouts.from_env_fns([Moody] * 2, num_processes=2)
    envs.reset()
    envs.step_async([HANG, HANG])
    errors: list[BaseException] = []

    def waits() -> None:
        try:
            envs.step_wait()
        except rollouts.ClosedError as error:
            errors.append(error)

    thread = threading.Thread(target=waits)
    thread.start()
    with pytest.warns(UserWarning, match="pending call to `step`"):
        envs.close(terminate=True)
    thread.join(120)
    assert len(errors) == 1
