# SPDX-License-Identifier: Apache-2.0
"""Rollouts from many workers: what they do and when, whatever runs them. Ray is in `cluster`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rollouts.distributed.fragment import Fragment, FragmentInfo
from rollouts.distributed.weights import WeightStore
from rollouts.distributed.worker import PolicySpec, RolloutWorker, WorkerConfig

if TYPE_CHECKING:
    from rollouts.cluster.coordinator import RolloutCoordinator

__all__ = [
    "Fragment",
    "FragmentInfo",
    "PolicySpec",
    "RolloutCoordinator",
    "RolloutWorker",
    "WeightStore",
    "WorkerConfig",
]


def __getattr__(name: str) -> Any:
    # it is made of what is here
    if name == "RolloutCoordinator":
        from rollouts.cluster.coordinator import RolloutCoordinator

        return RolloutCoordinator
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
