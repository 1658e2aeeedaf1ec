# SPDX-License-Identifier: Apache-2.0
"""What each worker takes of a cluster, and on which nodes it may be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from rollouts.errors import SpecError

Strategy = Literal["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Resources and place of every worker, in Ray's terms.

    With a `strategy` the workers get a placement group, which reserves the resources of
    `max_workers` at once: on few nodes (PACK), on many (SPREAD), or that and nothing else
    (STRICT_...). Where its node is lost, Ray moves a worker's bundle to another.
    """

    num_cpus: float
    num_gpus: float = 0.0
    max_workers: int
    strategy: Strategy | None = None
    node_labels: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises SpecError where a value is out of range."""
        if self.num_cpus < 0:
            raise SpecError(f"num_cpus_per_worker is {self.num_cpus}, expected at least 0")
        if self.num_gpus < 0 or (self.num_gpus > 1 and self.num_gpus % 1):
            raise SpecError(
                f"num_gpus_per_worker is {self.num_gpus}, expected a fraction below 1 or a whole "
                "number of GPUs"
            )
        if self.strategy is not None and self.strategy not in get_args(Strategy):
            raise SpecError(
                f"placement is {self.strategy!r}, expected None or one of {get_args(Strategy)}"
            )

    def resources(self) -> dict[str, float]:
        """Returns a placement group's bundle for one worker."""
        return {"CPU": self.num_cpus} | ({"GPU": self.num_gpus} if self.num_gpus else {})

    def actor_options(self) -> dict[str, Any]:
        """Returns the options of Ray's `remote` that hold for every worker."""
        options: dict[str, Any] = {"num_cpus": self.num_cpus, "num_gpus": self.num_gpus}
        # in a placement group the bundles have the labels
        if self.node_labels and self.strategy is None:
            options["label_selector"] = dict(self.node_labels)
        return options


class PlacementGroup:
    """The placement group of a coordinator's workers, one bundle per worker_id."""

    def __init__(self, placement: Placement) -> None:
        """Asks Ray for the group; does not wait for it: actors wait until their bundle is there."""
        import ray

        labels = {}
        if placement.node_labels:
            labels["bundle_label_selector"] = [dict(placement.node_labels)] * placement.max_workers
        self._group: Any = ray.util.placement_group(
            [placement.resources()] * placement.max_workers,
            strategy=placement.strategy or "PACK",
            **labels,
        )

    def options(self, worker_id: int) -> dict[str, Any]:
        """Returns the options of one worker's actor."""
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        strategy = PlacementGroupSchedulingStrategy(self._group, worker_id)
        return {"scheduling_strategy": strategy}

    def remove(self) -> None:
        """Gives the resources back; kills what still runs in the group."""
        import ray

        ray.util.remove_placement_group(self._group)
