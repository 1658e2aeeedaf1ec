# SPDX-License-Identifier: Apache-2.0
"""Asynchronous pools serve environments in the order they were sent: none starves."""

from __future__ import annotations

import itertools
import math
import time

import numpy as np
import pytest

import rollouts

ATARI_IDS = [i for i in ("ALE/Pong-v5",) if i in rollouts.env_ids()]
RATIO = 20_000
HANG_S = 300.0


class Patience:
    """Allows many rounds, and on a busy machine as many as there are until HANG_S is over.

    A thread may be kept from running while it holds environments, for longer than others take for
    any number of rounds; what is overtaken for ever is still found.
    """

    def __init__(self) -> None:
        self._deadline = time.monotonic() + HANG_S

    def is_over(self, rounds: int, most: int) -> bool:
        return rounds > most and time.monotonic() > self._deadline


@pytest.mark.parametrize("env_id", ATARI_IDS)
@pytest.mark.parametrize("batch_size", [1, 2, 3])
def test_one_thread_serves_engines_strictly_in_the_order_sent(env_id: str, batch_size: int) -> None:
    num_envs = 5
    generator = np.random.default_rng(1)
    with rollouts.make_vec(
        env_id, num_envs, batch_size=batch_size, num_threads=1, seed=1, frameskip=1
    ) as env:
        env.async_reset()
        expected = list(range(num_envs))
        last_seen = dict.fromkeys(expected, -1)
        for recv in range(60):
            ids = env.recv_batch().env_id
            assert ids.tolist() == expected[:batch_size]
            for one in ids.tolist():
                assert recv - last_seen[one] <= math.ceil(num_envs / batch_size)
                last_seen[one] = recv
            again = generator.permutation(ids)
            env.send(np.zeros(batch_size, np.int64), again)
            expected = expected[batch_size:] + again.tolist()


@pytest.mark.parametrize(
    ("env_id", "num_envs", "batch_size", "num_threads"),
    [
        ("CartPole-v1", 8, 1, 1),
        ("CartPole-v1", 8, 7, 3),
        ("CartPole-v1", 6000, 500, 1),
        ("CartPole-v1", 6000, 4999, 3),
        ("Acrobot-v1", 300, 7, 2),
        *[(one, 5, 2, 2) for one in ATARI_IDS],
    ],
)
def test_no_environment_starves(
    env_id: str, num_envs: int, batch_size: int, num_threads: int
) -> None:
    enough, patience = 3, Patience()
    with rollouts.make_vec(
        env_id, num_envs, batch_size=batch_size, num_threads=num_threads, seed=1
    ) as env:
        env.async_reset()
        actions = np.zeros(batch_size, np.int64)
        received = np.zeros(num_envs, np.int64)
        while received.min() < enough:
            ids = env.recv_batch().env_id
            received[ids] += 1
            is_starving = patience.is_over(int(received.max()), enough * RATIO)
            assert not is_starving, f"env_id {received.argmin()} starves"
            env.send(actions, ids)


def test_environments_that_wait_to_be_sent_keep_nobody_waiting() -> None:
    """A learner that answers some environments late goes on with the others."""
    with rollouts.make_vec("CartPole-v1", 6, batch_size=2, num_threads=2, seed=1) as env:
        env.async_reset()
        held = env.recv_batch().env_id.copy()
        lengths, patience = np.zeros(6, np.int64), Patience()
        for rounds in itertools.count(1):
            batch = env.recv_batch()
            assert not {*held.tolist()} & {*batch.env_id.tolist()}
            lengths[batch.env_id] += 1
            env.send([0, 0], batch.env_id)
            if rounds >= 100 and (lengths > 0).sum() == 4:
                break
            assert not patience.is_over(rounds, RATIO), lengths
        env.send([0, 0], held)
        seen: set[int] = set()
        for rounds in itertools.count(1):
            batch = env.recv_batch()
            seen |= {*batch.env_id.tolist()}
            if {*held.tolist()} <= seen:
                break
            env.send([0, 0], batch.env_id)
            assert not patience.is_over(rounds, RATIO), f"{held} starve"
