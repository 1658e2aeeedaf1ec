# SPDX-License-Identifier: Apache-2.0
"""pin_threads: which CPU each worker thread is kept on, and what cannot be asked for."""

from __future__ import annotations

import os
import pickle
from collections.abc import Sequence

import pytest
from processes import plain_threads

import rollouts
from rollouts.machine.placement import worker_cpus

CPUS = sorted(os.sched_getaffinity(0))
two_cpus = pytest.mark.skipif(len(CPUS) < 2, reason="needs two CPUs")


def worker_masks(env: rollouts.VectorEnv, before: set[int]) -> list[list[int]]:
    """Affinity masks of the threads that a pool started, in the order it started them."""
    return [sorted(os.sched_getaffinity(thread)) for thread in sorted(plain_threads() - before)]


@two_cpus
def test_true_leaves_the_first_cpu_to_the_caller_of_a_synchronous_pool() -> None:
    before = plain_threads()
    with rollouts.make_vec("CartPole-v1", 8, num_threads=2, pin_threads=True) as env:
        assert worker_masks(env, before) == [[CPUS[1]]]


@two_cpus
def test_true_uses_every_cpu_of_the_mask_in_asynchronous_mode() -> None:
    before = plain_threads()
    with rollouts.make_vec("CartPole-v1", 8, batch_size=4, num_threads=2, pin_threads=True) as env:
        assert worker_masks(env, before) == [[CPUS[0]], [CPUS[1]]]


@two_cpus
def test_a_sequence_names_the_cpus_of_the_workers() -> None:
    before = plain_threads()
    with rollouts.make_vec(
        "CartPole-v1", 8, batch_size=4, num_threads=2, pin_threads=[CPUS[1], CPUS[0]]
    ) as env:
        assert worker_masks(env, before) == [[CPUS[1]], [CPUS[0]]]


def test_the_callers_own_thread_is_never_pinned() -> None:
    with rollouts.make_vec("CartPole-v1", 8, batch_size=4, num_threads=1, pin_threads=True) as env:
        env.reset()
        assert sorted(os.sched_getaffinity(0)) == CPUS


def test_threads_run_anywhere_unless_asked() -> None:
    before = plain_threads()
    with rollouts.make_vec("CartPole-v1", 8, batch_size=4, num_threads=2) as env:
        assert worker_masks(env, before) == [CPUS, CPUS]


def test_a_pinned_pool_gives_the_same_data() -> None:
    def run(pin_threads: bool | list[int]) -> bytes:
        with rollouts.make_vec(
            "CartPole-v1", 8, num_threads=1, seed=3, pin_threads=pin_threads
        ) as env:
            env.reset()
            return b"".join(env.step([1] * 8)[0].tobytes() for _ in range(20))

    assert run(True) == run(False) == run([])


@pytest.mark.parametrize("pin_threads", [True, [CPUS[-1]]])
def test_the_choice_is_part_of_the_recipe(pin_threads: bool | list[int]) -> None:
    with rollouts.make_vec(
        "CartPole-v1", 8, batch_size=4, num_threads=1, pin_threads=pin_threads
    ) as env:
        text = pickle.dumps(env)
    before = plain_threads()
    with pickle.loads(text) as copy:
        expected = CPUS[0] if pin_threads is True else CPUS[-1]
        assert worker_masks(copy, before) == [[expected]]


OUTSIDE = CPUS[-1] + 1


@pytest.mark.parametrize(
    ("pin_threads", "num_threads", "message"),
    [
        (True, len(CPUS) + 1, rf"needs as many CPUs .* pass num_threads={len(CPUS)} or less"),
        ([OUTSIDE], 1, rf"pin_threads\[0\] is CPU {OUTSIDE}, which this process may not use"),
        ([-1], 1, r"pin_threads\[0\] is CPU -1"),
        ([CPUS[0]], 2, "names 1 CPUs, expected 2, one for each worker thread"),
        ([CPUS[0], CPUS[0]], 2, f"names CPU {CPUS[0]} twice"),
        ([0.5], 1, "must name CPUs by int"),
        (1, 1, "must be a bool or a sequence of CPUs, got 1"),
        ("01", 1, "must be a bool or a sequence of CPUs, got '01'"),
    ],
)
def test_what_cannot_be_pinned_is_named(
    pin_threads: bool | Sequence[int], num_threads: int, message: str
) -> None:
    with pytest.raises(rollouts.SpecError, match=message):
        rollouts.make_vec(
            "CartPole-v1", 8, batch_size=4, num_threads=num_threads, pin_threads=pin_threads
        )


def test_a_synchronous_pool_says_that_its_caller_needs_no_cpu() -> None:
    with pytest.raises(rollouts.SpecError, match=r"expected 0, .* the caller of step is"):
        rollouts.make_vec("CartPole-v1", 8, num_threads=1, pin_threads=[CPUS[0]])


def test_other_systems_say_that_they_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    with pytest.raises(rollouts.SpecError, match="pin_threads needs Linux"):
        worker_cpus(True, 1, synchronous=False)
    assert worker_cpus(False, 4, synchronous=True) == ()
