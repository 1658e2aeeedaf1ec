# SPDX-License-Identifier: Apache-2.0
"""The collector of a worker whose pool is a GPU's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rollouts.batch import MultiAgentRollout, RolloutBatch
    from rollouts.distributed.worker import WorkerConfig


class DeviceFragments:
    """A DeviceCollector whose rollouts are complete, and fit to travel, when `collect` returns."""

    def __init__(self, env: Any, acting: Any, config: WorkerConfig) -> None:
        """Builds the collector of environments and what acts in them.

        Raises:
          SpecError: The policy cannot act on the device.
        """
        import rollouts

        self._on_host, self._as_copy = config.travels_on_host, config.travels_as_copy
        self._collector = rollouts.DeviceCollector(
            env,
            acting,
            config.rollout_length,
            keep_final_obs=config.keep_final_obs,
            outputs=config.outputs,
            returns=config.returns,
            engine=config.engine,
        )

    def collect(self) -> RolloutBatch | MultiAgentRollout:
        """Collects T steps and waits for the device, so that an error is this rollout's.

        Raises:
          EnvError: Something went wrong on the device; it names the env_id.
        """
        rollout: RolloutBatch | MultiAgentRollout = self._collector.collect()
        self._collector.synchronize()
        if self._on_host:
            return rollout.on_host()
        return rollout.contiguous().copied() if self._as_copy else rollout.contiguous()
