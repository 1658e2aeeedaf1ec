# SPDX-License-Identifier: Apache-2.0
"""ShardOptions: resources of each shard of a ReplayService, and its number of restarts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from rollouts.checks import whole_number
from rollouts.errors import SpecError
from rollouts.support.field_checks import Strategy, check_cpus, check_nodes
from rollouts.support.keywords import explains_fields


@explains_fields
@dataclass(frozen=True, slots=True, kw_only=True)
class ShardOptions:
    """Size, threads, place and restarts of each shard of a ReplayService.

    Attributes:
      max_batch_length: Steps T of the longest fragment, as ReplayBuffer.
      num_threads: Threads that gather a sample.
      max_bytes: Most memory of a shard's rows; 0: no bound.
      storage_dir: Directory on each shard's machine where its steps are mapped to files, if they
        exceed the memory; "": memory.
      num_cpus: CPUs that Ray reserves; by default none, so that shards need no room besides the
        workers.
      strategy: "PACK" for few nodes, "SPREAD" for many, or their STRICT_ forms, which fail where
        that is impossible; needs num_cpus. None leaves the choice to Ray.
      node_labels: Labels that a shard's node must have.
      max_restarts: Restarts in 10 minutes; a shard that dies more often ends the replay with a
        WorkerError.
    """

    max_batch_length: int = 256
    num_threads: int = 1
    max_bytes: int = 0
    storage_dir: str | os.PathLike[str] = ""
    num_cpus: float = 0.0
    strategy: Strategy | None = None
    node_labels: Mapping[str, str] = field(default_factory=dict)
    max_restarts: int = 3

    def __post_init__(self) -> None:
        """Raises SpecError where a value is out of range, or a strategy has no CPUs to place."""
        whole_number("shards.max_batch_length", self.max_batch_length, 1, 2**31 - 1)
        whole_number("shards.num_threads", self.num_threads, 1, 2**31 - 1)
        whole_number("shards.max_bytes", self.max_bytes, 0, 2**63 - 1)
        whole_number("shards.max_restarts", self.max_restarts, 0, 2**31 - 1)
        if not isinstance(self.storage_dir, str | os.PathLike):
            raise SpecError(
                f"shards.storage_dir is {self.storage_dir!r}, expected a str or a pathlib.Path"
            )
        check_cpus("shards.num_cpus", self.num_cpus)
        check_nodes("shards", self.strategy, self.node_labels)
        if self.strategy is not None and not self.num_cpus:
            raise SpecError(
                f"shards.num_cpus is {self.num_cpus}, expected more than 0 with a strategy: Ray "
                "places what needs something"
            )
