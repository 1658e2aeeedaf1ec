# SPDX-License-Identifier: Apache-2.0
"""`rollouts check-cluster`: whether every node of a Ray cluster is fit for a run."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import rollouts
from rollouts.bench.policy_kinds import default_policy
from rollouts.errors import SpecError
from rollouts.specs import OptionValue
from rollouts.support.extras import needs
from rollouts.workers.node_checks import NodeReport, NodeState, notes, troubles
from rollouts.workers.worker_config import PolicySpec

if TYPE_CHECKING:
    from rollouts.workers.on_ray.cluster_check import FirstFragment


def add_arguments(
    parser: argparse.ArgumentParser,
    *,
    positive_int: Callable[[str], int],
    positive_float: Callable[[str], float],
    option: Callable[[str], tuple[str, OptionValue]],
) -> None:
    """Adds the arguments of the command; the given functions parse their texts."""
    add = parser.add_argument
    add("--address", default="auto", metavar="HOST:PORT",
        help="the cluster's head; default: auto, the Ray that runs on this machine")  # fmt: skip
    add("--num-nodes", type=positive_int, default=1, metavar="N",
        help="nodes to wait for, the head among them; default: 1")  # fmt: skip
    add("--timeout-s", type=positive_float, default=120.0, metavar="S",
        help="seconds that each of joining, answering and the first fragment may take; "
        "default: 120")  # fmt: skip
    add("--env-id", default="CartPole-v1", metavar="ID",
        help="environment of the first fragment; default: CartPole-v1")  # fmt: skip
    add("--option", action="append", default=[], type=option, metavar="KEY=VALUE",
        help="option of the environment; repeat for several")  # fmt: skip
    add("--no-fragment", action="store_true",
        help="only ask the nodes what they have; no worker collects")  # fmt: skip
    add("--json", action="store_true", help="print one JSON object, nothing else")


def check(args: argparse.Namespace) -> bool:
    """Tries all nodes, and prints the faults of each.

    Args:
      args: The arguments of `add_arguments`.

    Returns:
      Whether there are as many nodes as expected, without faults.

    Raises:
      SpecError: There is no cluster at the address, or no such environment.
      MissingPackageError: Ray or torch is not installed here.
    """
    with needs("ray", "`rollouts check-cluster`"):
        from rollouts.workers.on_ray.cluster_check import try_nodes
    task = None if args.no_fragment else _first_fragment(args.env_id, dict(args.option))
    # Ray prints messages about its nodes to stdout, on a thread of its own
    with contextlib.redirect_stdout(sys.stderr):
        nodes, driver = try_nodes(args.address, args.num_nodes, args.timeout_s, task)
    found = [(node, troubles(node, driver)) for node in nodes]
    is_well = len(nodes) >= args.num_nodes and not any(wrong for _, wrong in found)
    if args.json:
        print(json.dumps(_as_json(found, driver, num_nodes=args.num_nodes, is_well=is_well)))
        return is_well
    for node, wrong in found:
        _show(node, wrong, notes(node, driver))
    num_well = sum(not wrong for _, wrong in found)
    print(f"{num_well} of {max(len(nodes), args.num_nodes)} nodes are fit for a run")
    if len(nodes) < args.num_nodes:
        print(
            f"--num-nodes is {args.num_nodes}, and {len(nodes)} joined within {args.timeout_s:g} "
            "s: look at the logs of `ray start` on the others: address, port, firewall, token"
        )
    return is_well


def _first_fragment(env_id: str, env_options: dict[str, Any]) -> FirstFragment:
    """Makes the task of each node's worker: a small network acts in the environment."""
    spec = rollouts.env_spec(env_id, **env_options)
    if spec.groups:
        raise SpecError(
            f"--env-id is {env_id!r}, which has several agents, expected one with one: "
            "CartPole-v1, or another id whose engine the nodes need"
        )
    from rollouts.bench.policies import make_policy
    from rollouts.workers.on_ray.cluster_check import FirstFragment

    kind = default_policy(spec.single_observation_space)
    one = PolicySpec.here(spec.id, spec, num_envs=1, seed=0)
    return FirstFragment(
        env_id=env_id,
        env_options=env_options,
        make_policy=functools.partial(make_policy, kind=kind),
        weights=make_policy(one, kind=kind).weights(),
    )


def _show(node: NodeState, wrong: list[str], said: list[str]) -> None:
    report = node.report
    facts = [f"{node.offers.get('CPU', 0):g} CPUs", f"{node.offers.get('GPU', 0):g} GPUs"]
    facts.append(f"object store {node.offers.get('object_store_memory', 0) / 2**30:.2f} GiB")
    if report is not None:
        facts.append(f"Python {report.python}")
    if node.first_fragment_s is not None:
        facts.append(f"first fragment after {node.first_fragment_s:.1f} s")
    status = "WRONG" if wrong else "ok   "
    print(f"{status} {node.address} ({node.host}, {node.node_id[:8]}): {', '.join(facts)}")
    for line in wrong:
        print(f"      - {line}")
    for line in said:
        print(f"      note: {line}")


def _as_json(
    found: list[tuple[NodeState, list[str]]], driver: NodeReport, *, num_nodes: int, is_well: bool
) -> dict[str, Any]:
    return {
        "fit": is_well,
        "expected_nodes": num_nodes,
        "driver": dataclasses.asdict(driver),
        "nodes": [
            {**dataclasses.asdict(node), "troubles": wrong, "notes": notes(node, driver)}
            for node, wrong in found
        ],
    }
