# SPDX-License-Identifier: Apache-2.0
"""MultiAgentCoordinator: a coordinator of environments with several agents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rollouts.batch import MultiAgentRollout
from rollouts.cluster.coordinator import RolloutCoordinator, offer_by_ray
from rollouts.distributed import checks
from rollouts.distributed.agent_policies import PoliciesStore
from rollouts.distributed.options import CollectOptions
from rollouts.distributed.weight_transport import Array, WeightTransport
from rollouts.distributed.weights import WeightStore, local_offer
from rollouts.distributed.worker import WorkerConfig

if TYPE_CHECKING:
    from torch import Tensor


class MultiAgentCoordinator(RolloutCoordinator):
    """A `RolloutCoordinator` whose workers host environments with several agents.

    Everything is as there, but for what is per policy: `make_policy` is called once for each, with
    the spaces of its group and the names in PolicySpec.policy and PolicySpec.group; weights are
    published by policy; a rollout has a batch for each group. Each group has a policy of its own
    name unless `collect=CollectOptions(policies=...)` says otherwise.

    `collect.make_env` may make a `ParallelEnvsVectorEnv`. Inference servers and replay services are
    for one agent.

    Example:
      with MultiAgentCoordinator("simple_tag_v3", make_policy, num_workers=2,
                                 num_envs_per_worker=64, rollout_length=32) as coordinator:
          coordinator.publish_weights({"adversary": chaser.weights(), "agent": prey.weights()})
          batches = coordinator.get(num_fragments=2)
    """

    _has_agents = True

    def _make_store(
        self, config: WorkerConfig, collect: CollectOptions, transport: WeightTransport
    ) -> WeightStore:
        names = checks.check_agents(config, collect)
        return PoliciesStore(names, offer_by_ray if self.num_workers else local_offer, transport)

    def publish_weights(  # type: ignore[override]
        self, weights: Mapping[str, Mapping[str, Array | Tensor]]
    ) -> int:
        """Offers new weights of some policies; those of the others are not sent again.

        Args:
          weights: policy -> its weights, as `RolloutCoordinator.publish_weights` takes them. A
            policy that is never published is the one that `make_policy` made.
        Returns:
          The version that all policies have then.
        Raises:
          SpecError: a policy is unknown, or as there.
        """
        return super().publish_weights(weights)  # type: ignore[arg-type]

    def publish_from(
        self, learner: Any, method: str = "weights", *, timeout_s: float | None = 60.0
    ) -> int:
        """Does what `publish_weights` does with weights of learners' actors, past this process.

        Everything is as in `RolloutCoordinator.publish_from`, but for whose weights they are. Each
        policy's are stored and sent by themselves, so those of a frozen one stay where they are.

        Args:
          learner: Handle of an actor whose `method` returns policy -> its weights, of all policies
            or of some. Or policy -> handle of the actor whose `method` returns its weights alone:
            these are asked at once, and become one version together.
          method: Of the learner or learners, without arguments.
          timeout_s: Seconds to wait for all; None waits for ever.
        Returns:
          The version that all policies have then.
        Raises:
          TimeoutError, LearnerError, SpecError: As there, of any learner; also for a policy that
            there is not. No policy has new weights then.
        """
        return super().publish_from(learner, method, timeout_s=timeout_s)

    def get(  # type: ignore[override]
        self, num_fragments: int = 1, timeout_s: float | None = None
    ) -> MultiAgentRollout:
        """Waits for fragments and joins them group by group; see `RolloutCoordinator.get`."""
        checks.check_joined(self._collect)
        fragments = self.get_fragments(num_fragments, timeout_s)
        return MultiAgentRollout.concatenate([fragment.batches for fragment in fragments])
