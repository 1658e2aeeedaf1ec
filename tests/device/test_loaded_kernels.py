# SPDX-License-Identifier: Apache-2.0
"""Rules of all pools with one kernel on a GPU, by a driver that records its calls."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rollouts import EngineError
from rollouts.envs.kernel.cuda import Loaded

SUCCESS, REFUSED = 0, 1
MOST = 227 * 1024  # bytes that a block of an H100 may share


class Driver:
    """A card's limits, without a card: bytes that blocks of each function may share."""

    CUresult = SimpleNamespace(CUDA_SUCCESS=SUCCESS)
    CUfunction_attribute = SimpleNamespace(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=8)

    def __init__(self) -> None:
        self.allowed: dict[str, int] = {}

    def cuModuleLoadData(self, image: bytes) -> tuple[Any, ...]:
        return SUCCESS, image

    def cuModuleGetFunction(self, module: bytes, name: bytes) -> tuple[Any, ...]:
        self.allowed[name.decode()] = 48 * 1024
        return SUCCESS, name.decode()

    def cuFuncSetAttribute(self, function: str, attribute: int, value: int) -> tuple[Any, ...]:
        if value > MOST:
            return (REFUSED,)
        self.allowed[function] = value
        return (SUCCESS,)

    def cuGetErrorString(self, status: int) -> tuple[Any, ...]:
        return SUCCESS, b"invalid argument"


def test_a_pool_of_small_worlds_leaves_one_of_large_worlds_its_memory() -> None:
    driver = Driver()
    loaded = Loaded(driver, b"", ("rollouts_step", "rollouts_steps"))
    for large, small in ((100_000, 60_000), (100_000, 1000)):
        loaded.allow(large)
        loaded.allow(small)
        assert driver.allowed == {"rollouts_step": large, "rollouts_steps": large}


def test_what_a_card_has_not_is_refused() -> None:
    driver = Driver()
    loaded = Loaded(driver, b"", ("rollouts_step",))
    with pytest.raises(EngineError, match="CUDA: invalid argument"):
        loaded.allow(MOST + 1)
    # and is asked for again
    with pytest.raises(EngineError, match="CUDA: invalid argument"):
        loaded.allow(MOST + 1)
