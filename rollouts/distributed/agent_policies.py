# SPDX-License-Identifier: Apache-2.0
"""Policies of environments with several agents: who acts for whom, and which weights travel."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rollouts.batch import MultiAgentRollout
from rollouts.collecting.collector import Collector
from rollouts.distributed.weight_transport import Array, WeightTransport, check_policies, said_of
from rollouts.distributed.weights import MakeOffer, WeightOffer, WeightStore, load, local_offer
from rollouts.distributed.worker import (
    MakePolicy,
    PolicySpec,
    WorkerConfig,
    derive_seed,
    share_noise,
)
from rollouts.errors import ProtocolError, SpecError
from rollouts.specs import AgentGroup

if TYPE_CHECKING:
    from torch import Tensor

    from rollouts.policies.protocol import Policy
    from rollouts.pool.statistics import RunningStatistics

Groups = Mapping[str, AgentGroup]


@dataclass(frozen=True, slots=True)
class PoliciesOffer:
    """An offer of the newest weights of each policy that was ever published."""

    version: int
    parts: Mapping[str, WeightOffer]

    def fetch(self) -> Any:
        """Raises ProtocolError: each policy fetches its own part."""
        raise ProtocolError("weights of several policies are loaded by AgentPolicies.load_offer")


class PoliciesStore(WeightStore):
    """A `WeightStore` of several policies, whose versions are counted together. Thread-safe."""

    def __init__(
        self,
        names: Iterable[str] | None,
        make_offer: MakeOffer = local_offer,
        transport: WeightTransport = WeightTransport(),
    ) -> None:
        """Makes an empty store.

        Args:
          names: Of the policies; None where they are not known here.
          make_offer, transport: As `WeightStore`.
        """
        super().__init__(make_offer, transport)
        self.policies = None if names is None else tuple(names)

    def publish(  # type: ignore[override]
        self,
        weights: Mapping[str, Mapping[str, Array | Tensor]],
        statistics: Mapping[str, RunningStatistics] | None = None,
    ) -> int:
        """Stores a copy of some policies' weights; the others keep theirs.

        Args:
          weights: policy -> name -> array, see `WeightStore.publish`.
          statistics: None or empty: environments with several agents keep none.
        Returns:
          The new version, of all policies.
        Raises:
          SpecError: no weights, a policy that there is not, or as `WeightStore.publish`.
        """
        check_policies(weights, self.policies, "weights")
        return self._publish(weights, statistics)

    def _offer(self, version: int, offers: Mapping[str, WeightOffer]) -> WeightOffer:
        return PoliciesOffer(version, dict(offers))


class AgentPolicies(dict[str, "Policy"]):
    """A worker's policies by their names. Not thread-safe."""

    def __init__(self, policies: Mapping[str, Policy]) -> None:
        """Takes policies, which have the weights that they were made with."""
        super().__init__(policies)
        self._loaded: dict[str, int] = {}

    def load_offer(self, offer: PoliciesOffer) -> None:
        """Fetches what is new of it; all policies are of its version then."""
        for name, part in offer.parts.items():
            if name not in self:
                raise SpecError(f"weights were published of {name!r}, policies are {list(self)}")
            if self._loaded.get(name) != part.version:
                with said_of(name):
                    load(self[name], part, offer.version)
                self._loaded[name] = part.version
        for policy in self.values():
            policy.policy_version = offer.version


@dataclass(slots=True)
class AgentCollector:
    """A `Collector` as a worker takes it."""

    env: Any
    policy: Any  # AgentPolicies
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
) -> tuple[AgentPolicies, dict[str, Policy]]:
    """Makes a worker's policies, with seeds of their own: by their names, and by group."""
    policies = {}
    for name, spec in policy_specs(config, env.groups).items():
        policies[name] = make_policy(spec)
        reseed = getattr(policies[name], "seed", None)
        if callable(reseed):
            reseed(spec.seed)
        share_noise(policies[name], derive_seed(config.noise_seed, len(policies)))
    of_group = policy_names(env.groups, config.policies)
    by_group = {group: policies[name] for group, name in of_group.items()}
    return AgentPolicies(policies), by_group


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
        engine=config.engine,
        outputs=config.outputs,
        returns=config.returns,
    )
    return AgentCollector(env, policies, collector.collect)
