# SPDX-License-Identifier: Apache-2.0
"""The policies of a worker, and which of them acts for which group of agents.

Where there is one agent, its group and its policy both have the name `ONLY`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from rollouts.errors import SpecError
from rollouts.workers.weight_transport import ONLY
from rollouts.workers.worker_config import MakePolicy, PolicySpec, WorkerConfig, derive_seed

if TYPE_CHECKING:
    import gymnasium

    from rollouts.policies.protocol import Policy


class Spaces(Protocol):
    """The two spaces of a policy, as an AgentGroup or environments with one agent have them."""

    @property
    def single_observation_space(self) -> gymnasium.Space[Any]: ...

    @property
    def single_action_space(self) -> gymnasium.Space[Any]: ...


Groups = Mapping[str, Spaces]


def groups_of(env: Any) -> Groups:
    """Returns the groups of an EnvSpec or of environments, by name."""
    groups = getattr(env, "groups", None)
    if not groups:
        return {ONLY: env}
    return groups if isinstance(groups, Mapping) else {group.name: group for group in groups}


def policy_names(groups: Groups, given: Mapping[str, str] | None) -> dict[str, str]:
    """Returns group -> name of its policy; a group that `given` lacks has one of its own name.

    Raises:
      SpecError: a group is unknown, or groups that share a policy have different spaces.
    """
    given = given or {}
    unknown = [name for name in given if name not in groups]
    if unknown:
        raise SpecError(
            f"collect.policies has the unknown group {unknown[0]!r}, expected some of "
            f"{list(groups)}"
        )
    names = {name: given.get(name, name) for name in groups}
    first: dict[str, str] = {}
    for name, policy in names.items():
        other = first.setdefault(policy, name)
        for what in ("single_observation_space", "single_action_space"):
            own, others = getattr(groups[name], what), getattr(groups[other], what)
            if own != others:
                raise SpecError(
                    f"collect.policies has {policy!r} for groups {other!r} and {name!r}, "
                    f"whose {what}s differ: {others} and {own}"
                )
    return names


def policy_specs(config: WorkerConfig, groups: Groups) -> dict[str, PolicySpec]:
    """Returns the facts that `make_policy` gets for each policy, by its name."""
    specs: dict[str, PolicySpec] = {}
    for group, name in policy_names(groups, config.collect.policies).items():
        if name in specs:
            continue
        specs[name] = PolicySpec(
            id=config.id,
            single_observation_space=groups[group].single_observation_space,
            single_action_space=groups[group].single_action_space,
            num_envs=config.num_envs,
            env_id_offset=config.env_id_offset,
            worker_id=config.worker_id,
            incarnation=config.incarnation,
            # no two policies sample the same noise
            seed=_own_seed(config.policy_seed, name, len(specs)),
            policy=name or None,
            group=group or None,
        )
    return specs


def make_policies(
    env: Any, config: WorkerConfig, make_policy: MakePolicy
) -> tuple[dict[str, Policy], dict[str, Policy]]:
    """Makes a worker's policies, each with a seed of its own; returns them by name and by group."""
    groups = groups_of(env)
    policies: dict[str, Policy] = {}
    for name, spec in policy_specs(config, groups).items():
        policies[name] = make_policy(spec)
        # a make_policy that ignores spec.seed would give all workers the same noise
        reseed = getattr(policies[name], "seed", None)
        if callable(reseed):
            reseed(spec.seed)
        _share_noise(policies[name], _own_seed(config.noise_seed, name, len(policies)))
    names = policy_names(groups, config.collect.policies)
    return policies, {group: policies[name] for group, name in names.items()}


def _own_seed(seed: int, name: str, number: int) -> int:
    return seed if name == ONLY else derive_seed(seed, number)


def _share_noise(policy: Any, seed: int) -> None:
    """Sets the seed by which native code samples a torch policy's actions; `act` has its own.

    Native noise also depends on the env_id, so that an environment gets the same noise in any
    worker.
    """
    if hasattr(policy, "noise_seed"):
        policy.noise_seed = seed
