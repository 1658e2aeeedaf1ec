# SPDX-License-Identifier: Apache-2.0
"""Rollouts from many workers: what they do and when, whatever runs them.

Ray is in `cluster`, and so is RolloutCoordinator.
"""

from __future__ import annotations

from rollouts.distributed.options import FaultPolicy, Inference, Placement, QueueLimits
from rollouts.distributed.policy_requests import BatchRule
from rollouts.distributed.weight_transport import WeightTransport
from rollouts.distributed.weights import WeightStore
from rollouts.distributed.worker import RolloutWorker
from rollouts.distributed.worker_config import CollectOptions, PolicySpec, WorkerConfig
from rollouts.learner.fragment import Fragment, FragmentInfo

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
    "RolloutWorker",
    "WeightStore",
    "WeightTransport",
    "WorkerConfig",
]
