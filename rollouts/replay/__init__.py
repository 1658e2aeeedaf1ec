# SPDX-License-Identifier: Apache-2.0
"""Experience replay on the native store: transitions, n-step, sequences, episodes, hindsight.

    buffer = ReplayBuffer(observation_space, action_space, TableConfig(items=NStep(3)))
    buffer.add_batch(collector.collect())
    batch = buffer.sample(256)

For a learner, `ReplayService` works in the same way, but is spread over shards. No module here
loads Ray when it is imported: `rollouts.workers` hosts the shards. torch is loaded with the first
tensor, `ReplayDataset` or prefetcher.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from rollouts.replay.acted import Acted
from rollouts.replay.buffer import ReplayBuffer
from rollouts.replay.columns import stack_num
from rollouts.replay.config import (
    Episodes,
    Hindsight,
    MinSize,
    NStep,
    Queue,
    SampleToInsertRatio,
    Sequences,
    Stack,
    TableConfig,
    Transitions,
)
from rollouts.replay.goals import DenseReward, GoalColumns, SparseReward
from rollouts.replay.mixture import Mixture
from rollouts.replay.sampling import SampleInfo, SequenceBatch, TransitionBatch
from rollouts.replay.shards.shard_options import ShardOptions

if TYPE_CHECKING:
    from rollouts.replay.clients.client import ReplayClient
    from rollouts.replay.dataset import ReplayDataset
    from rollouts.replay.device_replay import DeviceReplay, DeviceTransitions
    from rollouts.replay.prefetch import ReplayPrefetcher
    from rollouts.replay.service import ReplayService

# loaded on first use, because some of them import torch
_LAZY = {
    "DeviceReplay": "rollouts.replay.device_replay",
    "DeviceTransitions": "rollouts.replay.device_replay",
    "ReplayClient": "rollouts.replay.clients.client",
    "ReplayDataset": "rollouts.replay.dataset",
    "ReplayPrefetcher": "rollouts.replay.prefetch",
    "ReplayService": "rollouts.replay.service",
}

__all__ = [
    "Acted",
    "DenseReward",
    "DeviceReplay",
    "DeviceTransitions",
    "Episodes",
    "GoalColumns",
    "Hindsight",
    "MinSize",
    "Mixture",
    "NStep",
    "Queue",
    "ReplayBuffer",
    "ReplayClient",
    "ReplayDataset",
    "ReplayPrefetcher",
    "ReplayService",
    "SampleInfo",
    "SampleToInsertRatio",
    "SequenceBatch",
    "Sequences",
    "ShardOptions",
    "SparseReward",
    "Stack",
    "TableConfig",
    "TransitionBatch",
    "Transitions",
    "stack_num",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        value = getattr(importlib.import_module(_LAZY[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'rollouts.replay' has no attribute {name!r}")
