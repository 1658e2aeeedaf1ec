# SPDX-License-Identifier: Apache-2.0
"""Small pools that several test files use."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import rollouts


@pytest.fixture
def sync_env() -> Iterator[rollouts.VectorEnv]:
    with rollouts.make_vec("CartPole-v1", 6, seed=1, env_id_offset=10) as env:
        env.reset()
        yield env


@pytest.fixture
def async_env() -> Iterator[rollouts.VectorEnv]:
    with rollouts.make_vec("CartPole-v1", 6, batch_size=2, num_threads=2, seed=1) as env:
        env.async_reset()
        yield env
