# SPDX-License-Identifier: Apache-2.0
"""Policies of environments with several agents: which of them acts for which group."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rollouts.batch import MultiAgentRollout
from rollouts.collecting.collector import Collector
from rollouts.distributed.worker import (
    MakePolicy,
    PolicySpec,
    WorkerConfig,
    derive_seed,
    share_noise,
)
from rollouts.errors import SpecError
from rollouts.specs import AgentGroup

if TYPE_CHECKING:
    from rollouts.policies.protocol import Policy

Groups = Mapping[str, AgentGroup]


@dataclass(slots=True)
class AgentCollector:
    """A `Collector` as a worker takes it."""

    env: Any
    policy: Mapping[str, Policy]
    collect: Callable[[], MultiAgentRollout]


def policy_names(groups: Groups, given: Mapping[str, str] | None) -> dict[str, str]:
    """Returns group -> name of its policy; its own name where nothing is given.

    Raises:
      SpecError: a group is unknown, or groups that share a policy have other spaces.
    """
    given = given or {}
    unknown = [name for name in given if name not in groups]
    if unknown:
        raise SpecError(
            f"collect.policies has the unknown group {unknown[0]!r}, expected some of "
            f"{list(groups)}"
        )
    names = {name: given.get(name, name) for name in groups}
    first: dict[str, AgentGroup] = {}
    for name, policy in names.items():
        group, other = groups[name], first.setdefault(policy, groups[name])
        for what in ("single_observation_space", "single_action_space"):
            if getattr(group, what) != getattr(other, what):
                raise SpecError(
                    f"collect.policies has {policy!r} for groups {other.name!r} and {name!r}, "
                    f"whose {what}s differ: {getattr(other, what)} and {getattr(group, what)}"
                )
    return names


def policy_specs(config: WorkerConfig, groups: Groups) -> dict[str, PolicySpec]:
    """Returns what `make_policy` is told of each policy, by its name."""
    specs: dict[str, PolicySpec] = {}
    for group, name in policy_names(groups, config.policies).items():
        if name in specs:
            continue
        specs[name] = PolicySpec(
            env_id=config.env_id,
            single_observation_space=groups[group].single_observation_space,
            single_action_space=groups[group].single_action_space,
            num_envs=config.num_envs,
            env_id_offset=config.env_id_offset,
            worker_id=config.worker_id,
            incarnation=config.incarnation,
            # no two policies sample the same noise
            seed=derive_seed(config.policy_seed, len(specs)),
            policy=name,
            group=group,
        )
    return specs


def make_agent_policies(
    env: Any, config: WorkerConfig, make_policy: MakePolicy
) -> tuple[dict[str, Policy], dict[str, Policy]]:
    """Makes a worker's policies, with seeds of their own: by their names, and by group."""
    policies: dict[str, Policy] = {}
    for name, spec in policy_specs(config, env.groups).items():
        policies[name] = make_policy(spec)
        reseed = getattr(policies[name], "seed", None)
        if callable(reseed):
            reseed(spec.seed)
        share_noise(policies[name], derive_seed(config.noise_seed, len(policies)))
    of_group = policy_names(env.groups, config.policies)
    by_group = {group: policies[name] for group, name in of_group.items()}
    return policies, by_group


def build_agent_collector(
    env: Any, config: WorkerConfig, make_policy: MakePolicy
) -> AgentCollector:
    """Makes a policy for each group, and what collects with them."""
    policies, by_group = make_agent_policies(env, config, make_policy)
    collector = Collector(
        env,
        by_group,
        config.rollout_length,
        num_torch_threads=config.num_torch_threads,
        keep_final_obs=config.keep_final_obs,
        engine=config.engine,
        outputs=config.outputs,
        returns=config.returns,
    )
    return AgentCollector(env, policies, collector.collect)
