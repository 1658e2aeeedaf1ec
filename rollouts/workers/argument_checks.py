# SPDX-License-Identifier: Apache-2.0
"""Checks of RolloutCoordinator's arguments together, before anything is started.

Each of the options has checked its own values.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path

from rollouts.checks import whole_number
from rollouts.collecting.wanted import Wanted
from rollouts.envs.make import cell_of_id
from rollouts.envs.wrappers import asked_for
from rollouts.errors import EngineError, ProtocolError, SpecError
from rollouts.features import Cell, check
from rollouts.run_log.log_writer import parts_in
from rollouts.run_log.record_options import RunLog
from rollouts.specs import EnvSpec
from rollouts.workers.agent_policies import policy_names
from rollouts.workers.coordinator_options import CoordinatorOptions, Inference, Placement
from rollouts.workers.tensor_transport import chosen
from rollouts.workers.weight_transport import ONLY
from rollouts.workers.worker_config import CollectOptions, WorkerConfig

_log = logging.getLogger(__name__)

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
    check_gpu(options)


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
    """Raises SpecError where inference has no workers to serve, or an option needs their policy."""
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
    if collect.mask_actions:
        raise SpecError(
            "collect.mask_actions with inference: an inference actor gets observations without "
            "masks of actions; leave one of them out"
        )


def check_coordinators(
    num_coordinators: int, num_workers: int, options: CoordinatorOptions
) -> None:
    """Raises SpecError where coordinators have too few workers, or an option is for one alone."""
    if num_coordinators == 1:
        return
    several = f"num_coordinators={num_coordinators}"
    if num_workers < num_coordinators:
        raise SpecError(
            f"{several} with num_workers={num_workers}, expected at least one worker for each"
        )
    if options.inference is not None:
        raise SpecError(
            f"{several} with inference: one process would answer all workers again; leave one of "
            "them out"
        )
    if options.queue.merge == "ordered":
        raise SpecError(
            f'{several} with queue.merge="ordered": each coordinator merges by arrival; leave one '
            "of them out"
        )
    collect, weights = options.collect, options.weights
    for name, way in (
        ("collect", chosen(collect.tensor_transport, collect.device)),
        ("weights", weights.tensor_transport),
    ):
        if way not in ("auto", "object_store"):
            raise SpecError(
                f"{several} with {name}.tensor_transport={way!r}: the workers are other processes' "
                f"actors, with which this one shares no memory; give {name}.tensor_transport="
                '"object_store"'
            )


def check_joined(collect: CollectOptions) -> None:
    """Raises ProtocolError where fragments are tensors, which `get` does not join."""
    if collect.device is not None:
        raise ProtocolError(
            f"get() with collect.device={collect.device!r}: fragments are of tensors, which "
            "are not joined; get_fragments()[0].payload, or hand_over to a learner's actor"
        )


def check_gpu(options: CoordinatorOptions) -> None:
    """Raises SpecError where workers would not see the GPU that their pools are to be on."""
    if options.collect.device == "cuda" and not options.placement.num_gpus:
        raise SpecError(
            "collect.device is 'cuda' and placement.num_gpus is 0, so that Ray would hide all GPUs "
            "from the workers: expected placement=Placement(num_gpus=1), or a fraction"
        )


def check_cell(config: WorkerConfig, num_workers: int, options: CoordinatorOptions) -> Cell:
    """Raises SpecError where an option needs what the environments are known to lack.

    Returns:
      The facts about the environments that are known here; those of `make_env` are checked by
      workers.
    """
    collect = options.collect
    spec = _spec_of(config)
    has_agents = None if spec is None else bool(spec.groups)
    kind = "hosted" if collect.make_env else cell_of_id(config.id, None).engine
    if collect.device is not None:
        kind = cell_of_id(config.id, collect.device).engine
    cell = Cell(kind, has_agents)
    asked = ["inference"] if options.inference is not None else []
    asked += ["num_workers=0"] if num_workers == 0 else []
    asked += ["record"] if config.record is not None else []
    check("RolloutCoordinator", [*asked, *collect.asked], cell)
    if collect.device is not None:
        check("make_vec", asked_for(config.env_options), cell)
    return cell


def _spec_of(config: WorkerConfig) -> EnvSpec | None:
    """Returns the environments' spec; None where it is not known in this process."""
    if config.collect.make_env is not None or config.collect.make_collector is not None:
        return None
    import rollouts

    # the engine may be missing here and present where the workers are
    try:
        return rollouts.env_spec(config.id, **config.env_options)
    except EngineError:
        return None


def log_of(record: object, collect: CollectOptions) -> RunLog | None:
    """Returns where workers record; None: nowhere.

    Raises:
      SpecError: `record` is no folder, has a log already, or workers make their own collectors.
    """
    log = RunLog.of(record)
    if log is None:
        return None
    if collect.make_collector is not None:
        raise SpecError(
            "record with collect.make_collector: a collector of your own records by itself; give "
            "it Collector(record=...) with RunLog.of_worker, and leave record out"
        )
    log = log.absolute()
    if parts_in(Path(log.path)):
        raise SpecError(
            f"record is {os.fspath(log.path)}, which has a log already: give each run a folder of "
            "its own, or remove the old log"
        )
    return log


def check_placement(placement: Placement, num_workers: int) -> None:
    """Raises SpecError where placement contradicts num_workers; warns where workers share CPUs."""
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


def check_env(config: WorkerConfig) -> tuple[str, ...] | None:
    """Raises SpecError at once, instead of from every worker, where id or options are wrong.

    Returns:
      The names of the environment's policies; None where they are not known in this process.
    """
    collect, spec = config.collect, _spec_of(config)
    if spec is None:
        return None
    if spec.groups:
        for group in spec.groups:
            Wanted(collect.outputs, collect.returns, group.single_action_space)
        names = policy_names({group.name: group for group in spec.groups}, collect.policies)
        return tuple(dict.fromkeys(names.values()))
    Wanted(collect.outputs, collect.returns, spec.single_action_space)
    space = spec.single_observation_space
    if collect.pack_frame_stacks and not space.shape:
        raise SpecError(
            f"collect.pack_frame_stacks=True, and {config.id} has observations of {space}, "
            "expected arrays with an axis of frames: leave pack_frame_stacks out"
        )
    return (ONLY,)
