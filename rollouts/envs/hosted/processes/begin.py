# SPDX-License-Identifier: Apache-2.0
"""Prepares a process of environments before it makes them: seeds, threads and signals."""

from __future__ import annotations

import contextlib
import random
import signal
import sys
from collections.abc import Iterator

import numpy as np

from rollouts import _native
from rollouts.machine.torch_threads import one_thread_after_fork

# time for environments to end their step and to close once the host is gone
LAST_RESORT_S = 60
_TORCH_SEED = 67280421310721  # torch's seed in every process where none was set


def begin_process(*, is_fork: bool) -> None:
    """Ignores Ctrl-C, ties the process's life to the host's, and makes torch safe after a fork."""
    # Ctrl-C reaches the whole process group; the host decides what it means
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _native.end_after_parent(LAST_RESORT_S)
    if is_fork:
        one_thread_after_fork()


@contextlib.contextmanager
def seeded_apart(seed: int | None, env_id: int, incarnation: int) -> Iterator[None]:
    """Seeds the global generators of NumPy, `random` and torch before a block makes environments.

    A forked process has copies of its host's generators, so all processes would draw the same
    numbers. torch, which the block may import, begins with the same seed in every process.

    Args:
      seed: The host's seed. None: the next number of NumPy's global generator. If a script seeds
        that, forked processes draw the same numbers in each run.
      env_id: The env_id of the process's first environment.
      incarnation: How many processes had these environments before.
    """
    drawn = int(np.random.randint(2**63 - 1)) if seed is None else seed  # noqa: NPY002
    words = np.random.SeedSequence((drawn, env_id, incarnation)).generate_state(10)
    np.random.seed(words[:4])  # noqa: NPY002
    random.seed(words[4:8].tobytes())
    torch_seed = int(words[8:].view(np.uint64)[0]) >> 1
    was_there = _seed_torch(torch_seed)
    yield
    if not was_there:
        _seed_torch(torch_seed, only_if=_TORCH_SEED)


def _seed_torch(seed: int, only_if: int | None = None) -> bool:
    """Seeds torch, if it is imported and its seed is `only_if`; returns whether it is imported."""
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    if only_if is None or torch.initial_seed() == only_if:
        torch.default_generator.manual_seed(seed)
    return True
