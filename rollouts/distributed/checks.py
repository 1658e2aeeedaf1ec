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
from rollouts.distributed.options import CoordinatorOptions, Inference, Placement
from rollouts.distributed.weight_transport import ONLY
from rollouts.distributed.worker_config import CollectOptions, WorkerConfig
from rollouts.errors import EngineError, ProtocolError, SpecError
from rollouts.specs import AgentGroup

_log = logging.getLogger(__name__)

# what environments with several agents do not have, and why
AGENTS: Mapping[str, str] = {
    "collect.batch_size": "agents are collected synchronously",
    "collect.mask_actions": "policies of groups choose among all actions",
    "collect.pack_frame_stacks": "no such environment stacks frames",
    "inference": "the inference actor has one policy",
}

# numbers of RolloutCoordinator that may be 0
MAY_BE_0 = ("num_workers", "seed")


def check_counts(**counts: object) -> None:
    """Raises SpecError where a value is no whole number, or below 1 (0 in `MAY_BE_0`)."""
    for name, value in counts.items():
        whole_number(name, value, 0 if name in MAY_BE_0 else 1)


def check_options(num_workers: int, options: CoordinatorOptions) -> None:
    """Raises SpecError where two of the options do not go together."""
    check_placement(options.placement, num_workers)
    check_inference(options.inference, options.collect, num_workers)
    check_device(options, num_workers)


def check_policy(make_policy: object) -> None:
    """Raises SpecError where make_policy cannot be called."""
    if not callable(make_policy):
        raise SpecError(
            f"make_policy must be a function that takes a PolicySpec, got {make_policy!r}"
        )


def check_env_options(env_options: object) -> None:
    """Raises SpecError where env_options are no dict."""
    if not isinstance(env_options, Mapping | None):
        raise SpecError(
            f"env_options is {env_options!r}, expected a dict of make_vec's keyword arguments"
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


def check_device(options: CoordinatorOptions, num_workers: int) -> None:
    """Raises SpecError where workers with a GPU's pool cannot do what else is asked for."""
    collect = options.collect
    if collect.device is None:
        return
    given = f"collect.device is {collect.device!r}"
    if num_workers == 0:
        raise SpecError(
            f"{given} with num_workers=0, expected at least 1 worker: in this process use "
            "rollouts.Collector"
        )
    if options.inference is not None:
        raise SpecError(f"{given} with inference, expected one of them: policies are on devices")
    if collect.device == "cuda" and not options.placement.num_gpus:
        raise SpecError(
            f"{given} and placement.num_gpus is 0, so that Ray would hide all GPUs from the "
            "workers: expected placement=Placement(num_gpus=1), or a fraction"
        )
    unfit = ("batch_size", "mask_actions", "pack_frame_stacks")
    for name in (*unfit, "make_env", "make_collector"):
        if getattr(collect, name):
            raise SpecError(
                f"{given}, where collect.{name} cannot be had: leave one of them out; see "
                "rollouts.Collector"
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


def check_env(config: WorkerConfig, inference: Inference | None) -> tuple[str, ...] | None:
    """Raises SpecError at once, instead of from every worker, where id or options are wrong.

    Returns:
      The names of the environment's policies; None where they are not known in this process.
    """
    collect = config.collect
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
    if collect.pack_frame_stacks and not space.shape:
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
