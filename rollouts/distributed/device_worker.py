# SPDX-License-Identifier: Apache-2.0
"""What collects in a worker whose pool is a GPU's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rollouts.batch import MultiAgentRollout, RolloutBatch
    from rollouts.distributed.worker import MakePolicy, WorkerConfig


class DeviceFragments:
    """A DeviceCollector whose rollouts are complete, and fit to travel, when `collect` returns."""

    def __init__(self, config: WorkerConfig, make_policy: MakePolicy) -> None:
        """Builds the pool, the policy and the collector.

        Raises:
          EngineError: There is no GPU here, or no compiler for the emulation.
          SpecError: The policy cannot act on the device.
        """
        import rollouts
        from rollouts.distributed.worker import make_worker_policy

        env: Any = rollouts.make_vec(
            config.env_id,
            config.num_envs,
            device=config.device,
            seed=config.env_seed,
            autoreset_mode="same_step",
            env_id_offset=config.env_id_offset,
            **config.env_options,
        )
        self.env, self._on_host = env, config.travels_on_host
        self._as_copy = config.travels_as_copy
        self.policy: Any
        try:
            acting: Any
            if hasattr(env, "groups"):
                from rollouts.distributed.agent_policies import make_agent_policies

                self.policy, acting = make_agent_policies(env, config, make_policy)
            else:
                self.policy = acting = make_worker_policy(env, config, make_policy)
            self._collector = rollouts.DeviceCollector(
                env,
                acting,
                config.rollout_length,
                outputs=config.outputs,
                returns=config.returns,
                engine=config.engine,
            )
        except BaseException:
            self.env.close()
            raise

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
