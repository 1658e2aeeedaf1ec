# SPDX-License-Identifier: Apache-2.0
"""Rollouts from many workers: what they do and when, whatever runs them. Ray is in `cluster`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rollouts.distributed.options import FaultPolicy, Inference, Placement, QueueLimits
from rollouts.distributed.policy_requests import BatchRule
from rollouts.distributed.weight_transport import WeightTransport
from rollouts.distributed.weights import WeightStore
from rollouts.distributed.worker import RolloutWorker
from rollouts.distributed.worker_config import CollectOptions, PolicySpec, WorkerConfig
from rollouts.learner.fragment import Fragment, FragmentInfo

if TYPE_CHECKING:
    from rollouts.cluster.coordinator import RolloutCoordinator

__all__ = [
    "BatchRule",
    "CollectOptions",
    "FaultPolicy",
    "Fragment",
    "FragmentInfo",
    "Inference",
    "Placement",
    "PolicySpec",
    "QueueLimits",
    "RolloutCoordinator",
    "RolloutWorker",
    "WeightStore",
    "WeightTransport",
    "WorkerConfig",
]


def __getattr__(name: str) -> Any:
    # it is made of what is here
    if name == "RolloutCoordinator":
        from rollouts.cluster.coordinator import RolloutCoordinator

        return RolloutCoordinator
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
