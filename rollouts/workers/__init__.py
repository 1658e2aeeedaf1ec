# SPDX-License-Identifier: Apache-2.0
"""Rollouts from many workers: the rules of their work, which do not depend on Ray.

The folder `on_ray` has all that needs Ray, RolloutCoordinator among it.
"""

from __future__ import annotations

from rollouts.learner.fragment import Fragment, FragmentInfo
from rollouts.workers.coordinator_options import FaultPolicy, Inference, Placement, QueueLimits
from rollouts.workers.policy_requests import BatchRule
from rollouts.workers.weight_store import WeightStore
from rollouts.workers.weight_transport import WeightTransport
from rollouts.workers.worker import RolloutWorker
from rollouts.workers.worker_config import CollectOptions, PolicySpec, WorkerConfig

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
