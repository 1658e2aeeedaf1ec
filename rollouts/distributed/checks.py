# SPDX-License-Identifier: Apache-2.0
"""Checks of RolloutCoordinator's arguments, before anything is started."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from typing import Any

from rollouts.distributed.policy_requests import BatchRule
from rollouts.errors import EngineError, SpecError

_log = logging.getLogger(__name__)


def check_counts(**bounds: tuple[float, int]) -> None:
    """Raises SpecError where a value is below its minimum."""
    for name, (value, minimum) in bounds.items():
        if not value >= minimum:
            raise SpecError(f"{name} is {value}, expected at least {minimum}")


def check_policy(make_policy: object) -> None:
    """Raises SpecError where make_policy cannot be called."""
    if not callable(make_policy):
        raise SpecError(
            f"make_policy must be a function that takes a PolicySpec, got {make_policy!r}"
        )


def check_inference(rule: BatchRule | None, num_workers: int) -> None:
    """Raises SpecError where there is nobody to infer for, or the rule is none."""
    if rule is not None and not isinstance(rule, BatchRule):
        raise SpecError(f"inference is {rule!r}, expected a BatchRule such as BatchRule()")
    if rule is not None and num_workers == 0:
        raise SpecError(
            "inference with num_workers=0, expected at least 1 worker: without Ray the policy is "
            "in this process anyway"
        )


def check_numa(numa_nodes: int | None, num_workers: int, placement: str | None) -> int | None:
    """Returns numa_nodes; raises SpecError where it is no number of nodes, or cannot be kept."""
    if numa_nodes is not None and num_workers == 0:
        raise SpecError(
            "numa_nodes with num_workers=0, expected at least 1 worker: to keep this process on a "
            "node, start it with numactl or call rollouts.machine.numa.keep_on_node"
        )
    if numa_nodes is not None and numa_nodes < 1:
        raise SpecError(f"numa_nodes is {numa_nodes}, expected at least 1")
    if numa_nodes is not None and numa_nodes > 1 and placement in ("SPREAD", "STRICT_SPREAD"):
        raise SpecError(
            f"numa_nodes is {numa_nodes} with placement={placement!r}: workers 0, 1, ... would go "
            "to one machine after the other, and those on the same machine would share a NUMA "
            'node; expected placement="PACK", or leave one of them out'
        )
    return numa_nodes


def check_pinning(
    pin_threads: object, numa_nodes: int | None, placement: str | None, max_workers: int
) -> None:
    """Logs a warning where workers of one machine would be kept on the same CPUs."""
    have_a_place_each = numa_nodes is not None or placement == "STRICT_SPREAD"
    if pin_threads is True and max_workers > 1 and not have_a_place_each:
        _log.warning(
            "pin_threads=True keeps the threads of every worker on the first CPUs of its machine, "
            "and up to %d workers may be on one: name the CPUs of each in a sequence, or pass "
            "numa_nodes for one worker per NUMA node",
            max_workers,
        )


def check_make_env(make_env: object, *, has_inference: bool) -> None:
    """Raises SpecError unless `make_env` can stand in for `make_vec`."""
    if not callable(make_env):
        raise SpecError(f"make_env must be a function that takes a WorkerConfig, got {make_env!r}")
    if has_inference:
        raise SpecError(
            "make_env with inference: the inference actor needs the spaces of one of "
            "rollouts.env_ids(); leave inference out, or use such an environment"
        )


def check_env(env_id: str, env_options: Mapping[str, Any], *, packs: bool) -> None:
    """Raises SpecError at once, instead of from every worker, where id or options are wrong.

    Args:
      env_id, env_options: Of the workers.
      packs: Whether their observations must be stacks of frames.
    """
    import rollouts

    # the engine may be missing here and present where the workers are
    with contextlib.suppress(EngineError):
        space = rollouts.env_spec(env_id, **env_options).single_observation_space
        if packs and not space.shape:
            raise SpecError(
                f"pack_frame_stacks=True, and {env_id} has observations of {space}, expected "
                "arrays with an axis of frames: leave pack_frame_stacks out"
            )
