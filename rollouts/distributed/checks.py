# SPDX-License-Identifier: Apache-2.0
"""Checks of RolloutCoordinator's arguments together, before anything is started.

Each of the options has checked its own values.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from rollouts.checks import whole_number
from rollouts.collecting.wanted import Wanted
from rollouts.distributed.agent_policies import policy_names
from rollouts.distributed.options import (
    CollectOptions,
    FaultPolicy,
    Inference,
    Placement,
    QueueLimits,
)
from rollouts.distributed.weight_transport import ONLY, WeightTransport
from rollouts.distributed.worker import WorkerConfig
from rollouts.errors import EngineError, ProtocolError, SpecError
from rollouts.specs import AgentGroup
from rollouts.support.field_checks import check_type

_log = logging.getLogger(__name__)

# what environments with several agents do not have, and why
AGENTS: Mapping[str, str] = {
    "collect.batch_size": "agents are collected synchronously",
    "collect.mask_actions": "policies of groups choose among all actions",
    "collect.pack_frame_stacks": "no such environment stacks frames",
    "inference": "the inference actor has one policy",
}


def check_counts(**bounds: tuple[object, int]) -> None:
    """Raises SpecError where a value is no whole number of at least its minimum."""
    for name, (value, minimum) in bounds.items():
        whole_number(name, value, minimum)


def check_options(
    *,
    placement: object,
    faults: object,
    queue: object,
    weights: object,
    collect: object,
    inference: object,
) -> None:
    """Raises SpecError where one is not of its dataclass, such as placement="PACK"."""
    check_type("placement", placement, Placement, 'Placement(strategy="PACK")')
    check_type("faults", faults, FaultPolicy, "FaultPolicy(max_restarts=3)")
    check_type("queue", queue, QueueLimits, "QueueLimits(credits_per_worker=1)")
    check_type("weights", weights, WeightTransport, 'WeightTransport(dtype="bfloat16")')
    check_type("collect", collect, CollectOptions, "CollectOptions(keep_final_obs=True)")
    if inference is not None:
        check_type("inference", inference, Inference, "Inference(rule=BatchRule())")


def check_policy(make_policy: object) -> None:
    """Raises SpecError where make_policy cannot be called."""
    if not callable(make_policy):
        raise SpecError(
            f"make_policy must be a function that takes a PolicySpec, got {make_policy!r}"
        )


def check_inference(inference: Inference | None, collect: CollectOptions, num_workers: int) -> None:
    """Raises SpecError where there is nobody to infer for, or for unknown spaces."""
    if inference is None:
        return
    if num_workers == 0:
        raise SpecError(
            "inference with num_workers=0, expected at least 1 worker: without Ray the policy is "
            "in this process anyway"
        )
    if collect.outputs:
        raise SpecError(
            "collect.outputs with inference: the policy of an inference actor puts what it likes "
            "into PolicyOutput.extras; leave one of them out"
        )
    if collect.make_env is not None:
        raise SpecError(
            "collect.make_env with inference: the inference actor needs the spaces of one of "
            "rollouts.env_ids(); leave inference out, or use such an environment"
        )


def check_joined(collect: CollectOptions) -> None:
    """Raises ProtocolError where fragments are tensors, before one is taken."""
    if collect.device is not None:
        raise ProtocolError(
            f"get() with collect.device={collect.device!r}: fragments are of tensors, which "
            "are not joined; get_fragments()[0].payload, or hand_over to a learner's actor"
        )


def check_placement(placement: Placement, num_workers: int) -> None:
    """Raises SpecError where the workers have no room; warns where they are on the same CPUs."""
    max_workers = num_workers if placement.max_workers is None else placement.max_workers
    if max_workers < num_workers:
        raise SpecError(
            f"placement.max_workers is {max_workers}, expected at least num_workers={num_workers}"
        )
    if placement.numa_nodes is not None and num_workers == 0:
        raise SpecError(
            "placement.numa_nodes with num_workers=0, expected at least 1 worker: to keep this "
            "process on a node, start it with numactl or call rollouts.machine.numa.keep_on_node"
        )
    have_a_place_each = placement.numa_nodes is not None or placement.strategy == "STRICT_SPREAD"
    if placement.pin_threads is True and max_workers > 1 and not have_a_place_each:
        _log.warning(
            "placement.pin_threads=True keeps the threads of every worker on the first CPUs of its "
            "machine, and up to %d workers may be on one: name the CPUs of each in a sequence, or "
            "pass numa_nodes for one worker per NUMA node",
            max_workers,
        )


def check_env(
    config: WorkerConfig, collect: CollectOptions, inference: Inference | None
) -> tuple[str, ...] | None:
    """Raises SpecError at once, instead of from every worker, where id or options are wrong.

    Returns:
      The names of the environment's policies; None where they are not known in this process.
    """
    if collect.make_env is not None or collect.make_collector is not None:
        return None
    import rollouts

    # the engine may be missing here and present where the workers are
    try:
        spec = rollouts.env_spec(config.env_id, **config.env_options)
    except EngineError:
        return None
    if spec.groups:
        return _check_agents(spec.groups, config.env_id, collect, inference)
    if collect.policies is not None:
        raise SpecError(
            f"collect.policies is {collect.policies!r}, and {config.env_id} has one agent, which "
            "has one policy: leave collect.policies out"
        )
    Wanted(collect.outputs, collect.returns, spec.single_action_space)
    space = spec.single_observation_space
    if config.pack_frame_stacks and not space.shape:
        raise SpecError(
            f"collect.pack_frame_stacks=True, and {config.env_id} has observations of {space}, "
            "expected arrays with an axis of frames: leave pack_frame_stacks out"
        )
    return (ONLY,)


def _check_agents(
    groups: tuple[AgentGroup, ...],
    env_id: str,
    collect: CollectOptions,
    inference: Inference | None,
) -> tuple[str, ...]:
    """Returns the policies of environments with several agents, or raises SpecError."""
    for name, sentence in AGENTS.items():
        is_asked = inference is not None if name == "inference" else _field(collect, name)
        if is_asked:
            raise SpecError(
                f"{name} with {env_id}, which has several agents: {sentence}; leave {name} out"
            )
    for group in groups:
        Wanted(collect.outputs, collect.returns, group.single_action_space)
    names = policy_names({group.name: group for group in groups}, collect.policies)
    return tuple(dict.fromkeys(names.values()))


def _field(collect: CollectOptions, name: str) -> object:
    return getattr(collect, name.removeprefix("collect."))
