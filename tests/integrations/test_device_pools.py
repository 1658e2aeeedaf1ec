# SPDX-License-Identifier: Apache-2.0
"""Adapters that hand out NumPy's arrays refuse a pool whose tensors stay on a device."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import pytest

import rollouts

ADAPTERS = {
    "sb3": ("stable_baselines3", "RolloutsVecEnv"),
    "tianshou": ("tianshou", "RolloutsVectorEnv"),
    "torchrl": ("torchrl", "RolloutsEnv"),
    "dm_env": ("dm_env", "BatchedEnvironment"),
}


@pytest.fixture
def pool(request: pytest.FixtureRequest) -> Iterator[rollouts.VectorEnv[Any]]:
    pytest.importorskip("torch")
    mode = "next_step" if "dm_env" in request.node.name else "same_step"
    with rollouts.make_vec("CartPole-v1", 3, device="cpu-emulation", autoreset_mode=mode) as made:
        yield made


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_a_pool_on_a_device_is_refused(adapter: str, pool: rollouts.VectorEnv[Any]) -> None:
    library, name = ADAPTERS[adapter]
    pytest.importorskip(library)
    make = getattr(importlib.import_module(f"rollouts.integrations.{adapter}"), name)
    with pytest.raises(rollouts.SpecError, match=r"tensors stay on its device.*leave device out"):
        make(pool)
