# SPDX-License-Identifier: Apache-2.0
"""Bundles: the resources of equal actors, and the nodes on which they may be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rollouts.support.field_checks import Strategy

if TYPE_CHECKING:
    from rollouts.workers.coordinator_options import Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundles:
    """Resources of each of `count` equal actors, in Ray's terms, with defaults filled in.

    With a `strategy` the actors get a placement group, which reserves all bundles at once; without
    one each actor starts where Ray finds room.
    """

    count: int
    num_cpus: float
    num_gpus: float = 0.0
    strategy: Strategy | None = None
    node_labels: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_workers(cls, placement: Placement, *, num_workers: int, num_threads: int) -> Bundles:
        """Returns the bundles of all workers that there may ever be, with defaults filled in."""
        return cls(
            count=num_workers if placement.max_workers is None else placement.max_workers,
            num_cpus=num_threads if placement.num_cpus is None else placement.num_cpus,
            num_gpus=placement.num_gpus,
            strategy=placement.strategy,
            node_labels=dict(placement.node_labels),
        )

    def resources(self) -> dict[str, float]:
        """Returns a placement group's bundle for one actor."""
        return {"CPU": self.num_cpus} | ({"GPU": self.num_gpus} if self.num_gpus else {})

    def actor_options(self) -> dict[str, Any]:
        """Returns the options of Ray's `remote` that hold for every actor."""
        options: dict[str, Any] = {"num_cpus": self.num_cpus, "num_gpus": self.num_gpus}
        # in a placement group the bundles have the labels
        if self.node_labels and self.strategy is None:
            options["label_selector"] = dict(self.node_labels)
        return options


class PlacementGroup:
    """The placement group of equal actors, one bundle per index."""

    def __init__(self, bundles: Bundles) -> None:
        """Asks Ray for the group; does not wait for it: actors wait until their bundle is there."""
        import ray

        labels = {}
        if bundles.node_labels:
            labels["bundle_label_selector"] = [dict(bundles.node_labels)] * bundles.count
        self._group: Any = ray.util.placement_group(
            [bundles.resources()] * bundles.count,
            strategy=bundles.strategy or "PACK",
            **labels,
        )

    def options(self, index: int) -> dict[str, Any]:
        """Returns the options of one actor."""
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        strategy = PlacementGroupSchedulingStrategy(self._group, index)
        return {"scheduling_strategy": strategy}

    def remove(self) -> None:
        """Gives the resources back; kills what still runs in the group."""
        import ray

        ray.util.remove_placement_group(self._group)
