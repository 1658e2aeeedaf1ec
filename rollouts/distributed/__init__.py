# SPDX-License-Identifier: Apache-2.0
"""Rollouts from many workers: the only package that imports ray, and only when workers start."""

from rollouts.distributed.coordinator import RolloutCoordinator
from rollouts.distributed.fragment import Fragment, FragmentInfo
from rollouts.distributed.weights import WeightStore
from rollouts.distributed.worker import PolicySpec, RolloutWorker, WorkerConfig

__all__ = [
    "Fragment",
    "FragmentInfo",
    "PolicySpec",
    "RolloutCoordinator",
    "RolloutWorker",
    "WeightStore",
    "WorkerConfig",
]
