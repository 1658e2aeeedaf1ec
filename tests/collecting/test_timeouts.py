# SPDX-License-Identifier: Apache-2.0
"""`Collector.collect(timeout_s)`: what was begun is not lost, on either engine."""

from __future__ import annotations

import signal
import threading
from typing import Any

import numpy as np
import pytest
import torch
from small_agents import CartPoleAgent

import rollouts
from rollouts.batch import RolloutBatch
from rollouts.errors import CallTimeoutError, ClosedError, DTypeError, RolloutsError, SpecError
from rollouts.policy import TorchPolicy

ARRAYS = ("obs", "action", "log_prob", "value", "reward", "terminated", "truncated",
          "bootstrap_value", "last_value", "last_obs", "policy_version")  # fmt: skip
HANG_S = 60.0


def make(num_envs: int = 16, **options: Any) -> rollouts.VectorEnv:
    return rollouts.make_vec("CartPole-v1", num_envs, seed=3, autoreset_mode="same_step", **options)


def collector(env: Any, steps: int, **options: Any) -> rollouts.Collector:
    policy = TorchPolicy(CartPoleAgent(), env.single_action_space, seed=11)
    return rollouts.Collector(env, policy, steps, **options)


def patient(collect: rollouts.Collector, timeout_s: float = 0) -> tuple[RolloutBatch, int]:
    """Asks until the rollout is there; returns it and how often it was not."""
    late = 0
    while True:
        try:
            return collect.collect(timeout_s=timeout_s), late
        except CallTimeoutError:
            late += 1


def held(collect: rollouts.Collector) -> threading.Event:
    """Keeps a rollout of the native engine from beginning until the event is set."""
    begin = threading.Event()
    collect._strategy._in_pool.ahead.begin().submit(begin.wait, HANG_S)
    return begin


def assert_equal(found: RolloutBatch, expected: RolloutBatch) -> None:
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), name)


@pytest.mark.parametrize(
    ("engine", "prefetch", "num_threads"),
    [("native", 0, 1), ("native", 0, 2), ("native", 1, 2), ("torch", 0, 1), ("torch", 0, 2)],
)
def test_a_rollout_that_took_too_long_is_returned_later(
    engine: Any, prefetch: int, num_threads: int
) -> None:
    """The same bits as of a caller that waits for ever."""
    options = {"engine": engine, "prefetch": prefetch}
    with make(num_threads=num_threads) as env, make(num_threads=num_threads) as other:
        hurried, waiting = collector(env, 200, **options), collector(other, 200, **options)
        for _ in range(3):
            begin = held(hurried)
            if engine == "native" and not prefetch:
                with pytest.raises(CallTimeoutError):
                    hurried.collect(timeout_s=0)
            begin.set()
            batch, late = patient(hurried)
            # a call that is given no time steps once at most
            assert engine == "native" or late >= 199
            assert_equal(batch, waiting.collect())
        hurried.close()
        waiting.close()


def test_an_asynchronous_pool_gets_on_with_calls_that_are_given_no_time() -> None:
    with make(batch_size=4) as env:
        collect = collector(env, 50)
        for _ in range(2):
            batch, late = patient(collect)
            assert late > 0 and batch.reward.shape == (50, 16)
            # each observation is what followed the one before it
            goes_on = ~(batch.terminated | batch.truncated)[:-1]
            moved = batch.obs[:-1, :, 0] + np.float32(0.02) * batch.obs[:-1, :, 1]
            np.testing.assert_allclose(batch.obs[1:, :, 0][goes_on], moved[goes_on], atol=1e-6)


def test_with_time_enough_nothing_is_different() -> None:
    for engine in ("native", "torch"):
        with make() as env, make() as other:
            one, two = collector(env, 30, engine=engine), collector(other, 30, engine=engine)
            for timeout_s in (HANG_S, np.inf, None):
                assert_equal(one.collect(timeout_s=timeout_s), two.collect())


def test_the_rollout_under_way_keeps_the_weights_that_it_began_with() -> None:
    with make() as env:
        collect = collector(env, 20, engine="native")
        begin = held(collect)
        with pytest.raises(CallTimeoutError, match=r"no rollout within 0.0 s; nothing is lost"):
            collect.collect(timeout_s=0)
        policy: Any = collect.policy
        with torch.no_grad():
            policy.module.critic.bias.add_(100)
        policy.policy_version = 7
        begin.set()
        batch = collect.collect()
        assert batch.value.max() < 50 and (batch.policy_version == 0).all()
        batch = collect.collect()
        assert batch.value.min() > 50 and (batch.policy_version == 7).all()


@pytest.mark.parametrize("engine", ["native", "torch"])
def test_a_reset_drops_what_was_begun(engine: Any) -> None:
    with make() as env:
        collect = collector(env, 100, engine=engine)
        collect.collect()
        begin = held(collect)
        with pytest.raises(CallTimeoutError):
            collect.collect(timeout_s=0)
        begin.set()
        collect.reset()
        assert np.abs(collect.collect().obs[0]).max() <= 0.05  # episodes begin


def test_the_error_is_that_of_others() -> None:
    assert issubclass(CallTimeoutError, TimeoutError) and issubclass(
        CallTimeoutError, RolloutsError
    )
    with make() as env:
        collect = collector(env, 5)
        for wrong in (-1, float("nan")):
            with pytest.raises(SpecError, match="timeout_s must be None or a number >= 0"):
                collect.collect(timeout_s=wrong)
        with pytest.raises(DTypeError, match="timeout_s must be a number of seconds"):
            collect.collect(timeout_s="soon")  # type: ignore[arg-type]
        assert collect.collect().reward.shape == (5, 16)


def test_an_interrupt_while_it_waits_ends_the_rollout() -> None:
    with make() as env:
        collect = collector(env, 500_000, engine="native")
        before = signal.signal(signal.SIGALRM, signal.default_int_handler)
        try:
            with pytest.raises(KeyboardInterrupt):
                signal.setitimer(signal.ITIMER_REAL, 0.05)
                while True:
                    collect.collect(timeout_s=HANG_S)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        assert env.reset()[0].shape == (16, 4)


def test_closing_ends_what_nobody_waits_for() -> None:
    env = make()
    collect = collector(env, 200_000, engine="native")
    begin = held(collect)
    with pytest.raises(CallTimeoutError):
        collect.collect(timeout_s=0)
    begin.set()
    closer = threading.Thread(target=collect.close)
    closer.start()
    closer.join(HANG_S)
    assert not closer.is_alive()


def test_a_pool_that_is_closed_meanwhile_is_told_of_by_the_next_call() -> None:
    env = make()
    collect = collector(env, 200_000, engine="native")
    begin = held(collect)
    with pytest.raises(CallTimeoutError):
        collect.collect(timeout_s=0)
    env.close()
    begin.set()
    with pytest.raises(ClosedError):
        collect.collect()
