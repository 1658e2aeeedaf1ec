# SPDX-License-Identifier: Apache-2.0
"""Native environment batches, stepped by C++ threads, hosted in Ray actors.

Importing this package loads neither ray nor torch nor any engine; they come with the
first use of what needs them.
"""

from __future__ import annotations

import difflib
import importlib
from typing import TYPE_CHECKING, Any

try:
    from rollouts import _native  # noqa: F401
except ImportError as _error:
    raise ImportError(
        "rollouts' native module `rollouts._native` is not beside this package "
        f"({__path__[0]}). If you run from a source checkout, the directory hides the installed "
        "package: install the checkout with `pip install -e .`, or run from another directory. "
        f"The import said: {_error}"
    ) from _error

from rollouts.batch import MultiAgentRollout, RolloutBatch, StepBatch
from rollouts.envs.agent_groups import MultiAgentBatch
from rollouts.envs.gymnasium_ids import register_ids as _register_ids
from rollouts.envs.make import make_multi_agent_vec, make_vec
from rollouts.envs.multi_agent_env import MultiAgentVectorEnv
from rollouts.envs.register import register_env
from rollouts.envs.registry import env_ids, env_spec, multi_agent_ids
from rollouts.envs.statistics import RunningStatistics
from rollouts.envs.stats import DeviceStats, PoolStats
from rollouts.envs.vector_env import VectorEnv
from rollouts.errors import (
    CallPendingError,
    CallTimeoutError,
    ClosedError,
    DTypeError,
    EngineError,
    EnvAttributeError,
    EnvError,
    FileError,
    LearnerError,
    MissingFeatureError,
    NoCallPendingError,
    ProtocolError,
    ReplayWarning,
    RolloutsError,
    SpecError,
    WorkerError,
)
from rollouts.families.minigrid import decode_mission
from rollouts.specs import AgentGroup, EnvSpec
from rollouts.support.include_dir import include_dir

if TYPE_CHECKING:
    from rollouts.collecting.collector import Collector
    from rollouts.collecting.replayed import ReplayedFragment, replay_run
    from rollouts.datasets.recorder import Recorder
    from rollouts.envs.hosted import from_env_fns, from_parallel_env_fns
    from rollouts.exporting.exported_policy import ExportedPolicy
    from rollouts.exporting.writing import export
    from rollouts.learner.inbox import FragmentInbox
    from rollouts.learner.queue import LearnerQueue
    from rollouts.policies.native import NativePolicy
    from rollouts.policies.protocol import Policy, PolicyOutput, RecurrentPolicy
    from rollouts.policy import TorchPolicy
    from rollouts.recurrent import RecurrentTorchPolicy
    from rollouts.run_log.record_options import RunLog
    from rollouts.workers.autoscaler import Autoscaler
    from rollouts.workers.coordinator_options import FaultPolicy, Inference, Placement, QueueLimits
    from rollouts.workers.on_ray.coordinator import RolloutCoordinator
    from rollouts.workers.policy_requests import BatchRule
    from rollouts.workers.weight_transport import WeightTransport
    from rollouts.workers.worker import RolloutWorker
    from rollouts.workers.worker_config import CollectOptions

__version__ = "0.1.0"

_register_ids()

# loaded on first use, because they import torch, ray or multiprocessing
_LAZY = {
    "Autoscaler": "rollouts.workers.autoscaler",
    "BatchRule": "rollouts.workers.policy_requests",
    "CollectOptions": "rollouts.workers.worker_config",
    "Collector": "rollouts.collecting.collector",
    "ExportedPolicy": "rollouts.exporting.exported_policy",
    "FaultPolicy": "rollouts.workers.coordinator_options",
    "FragmentInbox": "rollouts.learner.inbox",
    "Inference": "rollouts.workers.coordinator_options",
    "LearnerQueue": "rollouts.learner.queue",
    "NativePolicy": "rollouts.policies.native",
    "Placement": "rollouts.workers.coordinator_options",
    "Policy": "rollouts.policies.protocol",
    "PolicyOutput": "rollouts.policies.protocol",
    "QueueLimits": "rollouts.workers.coordinator_options",
    "Recorder": "rollouts.datasets.recorder",
    "RecurrentPolicy": "rollouts.policies.protocol",
    "RecurrentTorchPolicy": "rollouts.recurrent",
    "ReplayedFragment": "rollouts.collecting.replayed",
    "RolloutCoordinator": "rollouts.workers.on_ray.coordinator",
    "RolloutWorker": "rollouts.workers.worker",
    "RunLog": "rollouts.run_log.record_options",
    "TorchPolicy": "rollouts.policy",
    "WeightTransport": "rollouts.workers.weight_transport",
    "export": "rollouts.exporting.writing",
    "from_env_fns": "rollouts.envs.hosted",
    "from_parallel_env_fns": "rollouts.envs.hosted",
    "replay_run": "rollouts.collecting.replayed",
}

__all__ = [
    "AgentGroup",
    "Autoscaler",
    "BatchRule",
    "CallPendingError",
    "CallTimeoutError",
    "ClosedError",
    "CollectOptions",
    "Collector",
    "DTypeError",
    "DeviceStats",
    "EngineError",
    "EnvAttributeError",
    "EnvError",
    "EnvSpec",
    "ExportedPolicy",
    "FaultPolicy",
    "FileError",
    "FragmentInbox",
    "Inference",
    "LearnerError",
    "LearnerQueue",
    "MissingFeatureError",
    "MultiAgentBatch",
    "MultiAgentRollout",
    "MultiAgentVectorEnv",
    "NativePolicy",
    "NoCallPendingError",
    "Placement",
    "Policy",
    "PolicyOutput",
    "PoolStats",
    "ProtocolError",
    "QueueLimits",
    "Recorder",
    "RecurrentPolicy",
    "RecurrentTorchPolicy",
    "ReplayWarning",
    "ReplayedFragment",
    "RolloutBatch",
    "RolloutCoordinator",
    "RolloutWorker",
    "RolloutsError",
    "RunLog",
    "RunningStatistics",
    "SpecError",
    "StepBatch",
    "TorchPolicy",
    "VectorEnv",
    "WeightTransport",
    "WorkerError",
    "decode_mission",
    "env_ids",
    "env_spec",
    "export",
    "from_env_fns",
    "from_parallel_env_fns",
    "include_dir",
    "make_multi_agent_vec",
    "make_vec",
    "multi_agent_ids",
    "register_env",
    "replay_run",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        value = getattr(importlib.import_module(_LAZY[name]), name)
        globals()[name] = value
        return value
    close = difflib.get_close_matches(name, __all__, n=1)
    hint = f": did you mean rollouts.{close[0]}?" if close else ""
    raise AttributeError(f"module 'rollouts' has no attribute {name!r}{hint}")


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
