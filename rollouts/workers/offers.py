# SPDX-License-Identifier: Apache-2.0
"""Published weights on their way to workers: an offer of all policies, made of stored parts."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, Self, cast

from rollouts.errors import SpecError
from rollouts.workers.weight_transport import ONLY, Array, Stored, from_stored, said_of

if TYPE_CHECKING:
    from rollouts.envs.statistics import RunningStatistics
    from rollouts.policies.protocol import Policy

Weights = Mapping[str, Array]


class WeightPart(Protocol):
    """Arrays that were stored together; it may only refer to them, so that it is small enough for a
    call."""

    @property
    def version(self) -> int: ...

    def fetch(self) -> Weights:
        """Returns the arrays, which may be read-only: load_weights copies them.

        They are tensors where a transport left them on a GPU: `WeightTransport.tensor_transport`.
        """
        ...


@dataclass(frozen=True, slots=True)
class LocalWeights:
    """A part inside one process."""

    version: int
    weights: Weights

    def fetch(self) -> Weights:
        return self.weights


def local_part(version: int, weights: Weights) -> WeightPart:
    """Copies the weights: a learner that updates its tensors in place changes nothing here."""
    return LocalWeights(version, {name: copy.deepcopy(value) for name, value in weights.items()})


@dataclass(frozen=True, slots=True)
class StoredWeights:
    """One policy's weights as WeightStore keeps them: narrowed, or in parts.

    The parts are in the order of their versions; an array in a later part replaces the one of the
    same name in an earlier part. Ray keeps a part on each node that fetched it, so only parts that
    are new there travel. `version` is the one in which the policy was last published. `origin`
    names the learner's actor that gave the weights; None for the coordinator's process.
    """

    version: int
    parts: tuple[WeightPart, ...]
    origin: str | None = None

    def fetch(self) -> Weights:
        """Returns the arrays, as `WeightPart.fetch` does."""
        return from_stored(self.fetch_stored())

    def fetch_stored(self) -> dict[str, Stored]:
        """Returns the arrays as they are stored."""
        stored: dict[str, Stored] = {}
        for part in self.parts:
            stored.update(cast(Mapping[str, Stored], part.fetch()))
        return stored


@dataclass(frozen=True, slots=True, eq=False)
class WeightOffer:
    """A version that workers may pull: the newest weights of each policy that was published.

    Attributes:
      version     The version of all policies together.
      policies    policy -> its weights; one agent's policy is called `ONLY`.
      statistics  Running statistics for workers that normalise, by "observation" and "reward".
    """

    version: int
    policies: Mapping[str, StoredWeights]
    statistics: Mapping[str, RunningStatistics] = field(default_factory=dict)

    @classmethod
    def of(cls, version: int, weights: Weights) -> Self:
        """Makes an offer of one agent's weights, which are in this process and not copied."""
        return cls(version, {ONLY: StoredWeights(version, (LocalWeights(version, weights),))})

    def fetch(self) -> Weights:
        """Returns the weights of environments with one agent."""
        return self.policies[ONLY].fetch()


class OfferSource(Protocol):
    """Source of a fleet's weights: a `WeightStore`, or `OfferedWeights` of another process."""

    @property
    def latest(self) -> WeightOffer | None: ...

    @property
    def version(self) -> int: ...

    def learn_policies(self, policies: Iterable[str]) -> None: ...


class OfferedWeights:
    """The newest offer that another process made. Not thread-safe: the owner locks."""

    def __init__(self) -> None:
        """Begins without weights."""
        self.latest: WeightOffer | None = None
        self.policies: tuple[str, ...] | None = None

    @property
    def version(self) -> int:
        """The newest version, 0 before the first."""
        return 0 if self.latest is None else self.latest.version

    def learn_policies(self, policies: Iterable[str]) -> None:
        """Notes the policies that a worker has."""
        self.policies = tuple(policies)

    def take(self, offer: WeightOffer) -> bool:
        """Keeps an offer, if it is newer; tells whether it is."""
        is_newer = self.latest is None or offer.version > self.latest.version
        if is_newer:
            self.latest = offer
        return is_newer


class Loader:
    """Loads the new weights of each offer into policies. Not thread-safe."""

    def __init__(self, policies: Mapping[str, Policy]) -> None:
        """Takes policies by their names; they have the weights that they were made with."""
        self._policies = policies
        self._loaded: dict[str, int] = {}

    def load(self, offer: WeightOffer) -> None:
        """Loads the weights that are new; all policies have the offer's version then.

        A policy with a method `load_offer(offer)` decides itself what to fetch; any other gets the
        arrays through `load_weights`.

        Raises:
          SpecError: A policy of the offer is unknown, or does not take a learner's weights.
          Exception: What a policy raised.
        """
        for name in offer.policies:
            if name not in self._policies:
                raise SpecError(
                    f"weights were published of policy {name!r}, expected some of "
                    f"{list(self._policies)}"
                )
        for name, policy in self._policies.items():
            own = offer.policies.get(name)
            if own is None or self._loaded.get(name) == own.version:
                policy.policy_version = offer.version
                continue
            with said_of(name):
                _load(policy, own, offer)
            self._loaded[name] = own.version


def _load(policy: Any, own: StoredWeights, offer: WeightOffer) -> None:
    load_offer = getattr(policy, "load_offer", None)
    if callable(load_offer):
        # a single policy's offer has its weights under the name ONLY
        load_offer(WeightOffer(offer.version, {ONLY: own}, offer.statistics))
        return
    weights = own.fetch()
    try:
        policy.load_weights(weights, offer.version)
    except Exception as error:
        if own.origin is None:
            raise
        raise SpecError(
            f"the policy does not take the weights of {own.origin}: {error!r}"
        ) from error
