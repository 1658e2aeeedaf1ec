# SPDX-License-Identifier: Apache-2.0
"""WorkerShare: the share of the workers that one of several coordinators has. No Ray.

The driver's fleet has coordinators in its slots, asks them for fragments as it asks workers, and
replaces those that die. A coordinator asks its workers for just what the driver's open calls lack.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

from rollouts.workers.fleet import FleetRules
from rollouts.workers.fleet_thread import FleetThread
from rollouts.workers.lag import LagRule
from rollouts.workers.offers import OfferedWeights, WeightOffer
from rollouts.workers.share_calls import ShareAnswer, ShareCalls
from rollouts.workers.slot import WorkerHandle
from rollouts.workers.worker_config import WorkerConfig

# numbers that each life of a coordinator has for a worker's incarnations, so that none comes twice
INCARNATIONS_PER_LIFE = 1 << 20


class WorkerShare(FleetThread):
    """A fleet of workers that collects what the driver's calls ask for.

    Only the driver discards fragments that are too old, so that the fragments of each worker reach
    it without a gap.
    """

    def __init__(
        self,
        config: WorkerConfig,
        num_workers: int,
        launch: Callable[[WorkerConfig], WorkerHandle],
        *,
        rules: FleetRules,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """Launches the workers; does not wait for them.

        Args:
          config: See `share_config`.
          num_workers: Workers of this share.
          launch: Starts one incarnation.
          rules: See `share_rules`.
          check: See `FleetThread`.
        """
        self._offered = OfferedWeights()
        self._calls = ShareCalls()
        # one report at a time is numbered and made: a newer one never has the lower number
        self._report_lock = threading.Lock()
        self._num_reports = self._num_reported = 0
        super().__init__(
            config, num_workers, launch, weights=self._offered, rules=rules, check=check
        )

    def ask(
        self, number: int, num_fragments: int, offer: WeightOffer | None
    ) -> Future[ShareAnswer]:
        """Asks for fragments with the offered weights or newer ones; None: with those it has.

        Args:
          number, num_fragments: See `ShareCalls.ask`.
          offer: The newest weights; None where the driver has offered them before.
        """
        if offer is not None:
            with self._lock:
                is_newer = self._offered.take(offer)
            if is_newer:
                self.published()
        return self._calls.ask(self.queue, number, num_fragments)

    def turned(self) -> None:
        """Answers the calls whose fragments came."""
        self._calls.serve(self.queue)

    def report(self) -> dict[str, Any]:
        """Returns the report that `ShareReports` keeps: the share's stats and policies."""
        with self._report_lock:
            self._num_reports += 1
            stats = self.stats()
            self._num_reported = sum(stats["failures"].values())
            return {**stats, "number": self._num_reports, "policies": self._offered.policies}

    def take_news(self) -> dict[str, Any] | None:
        """Returns a report if a worker failed since the last one; None if not."""
        return None if self._fleet.num_failures == self._num_reported else self.report()


def share_config(config: WorkerConfig) -> WorkerConfig:
    """Returns the config of a share's first worker.

    Args:
      config: The coordinator's config: worker_id is its number, and incarnation its life.
    """
    return replace(config, incarnation=config.incarnation * INCARNATIONS_PER_LIFE)


def share_size(num_workers: int, num_coordinators: int, number: int) -> int:
    """Returns the number of workers w for which w % num_coordinators is `number`."""
    return len(range(number, num_workers, num_coordinators))


def share_rules(rules: FleetRules, num_coordinators: int) -> FleetRules:
    """Returns the rules of each coordinator's fleet, from those of a fleet of all workers."""
    queue = replace(
        rules.queue,
        max_fragments_per_call=rules.most_per_call,
        max_policy_lag=None,
        lag_policy=None,
    )
    return FleetRules(
        faults=rules.faults,
        queue=queue,
        lag=LagRule(),
        on_demand=True,
        id_step=num_coordinators,
    )


def driver_rules(rules: FleetRules, num_workers: int) -> FleetRules:
    """Returns the rules of the driver's fleet of coordinators, from those of a fleet of workers.

    A coordinator finds out itself which of its workers hang or do not start. The coordinator itself
    counts as late only after the time in which it should have given up all of its workers.
    """
    faults = rules.faults
    late_s = None
    if faults.hang_timeout_s is not None:
        late_s = (faults.max_restarts + 1) * (faults.start_timeout_s + faults.hang_timeout_s)
    return replace(rules, faults=replace(faults, hang_timeout_s=late_s), num_shared=num_workers)
