# SPDX-License-Identifier: Apache-2.0
"""Steps a vector environment with its policies and keeps T steps of it as one rollout."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, overload

from rollouts.batch import MultiAgentRollout, RolloutBatch, StepBatch
from rollouts.collecting.asked import Asked
from rollouts.collecting.batched_env import cell_of, check_env, device_pool, is_async
from rollouts.collecting.deadline import Deadline, Receives
from rollouts.collecting.on_host import OnHost
from rollouts.collecting.policy_engine import Engine
from rollouts.collecting.rows import ALONE, by_group
from rollouts.envs.agent_groups import MultiAgentBatch
from rollouts.envs.kernel.kernel_source import PolicyDtype
from rollouts.features import asked_of, check
from rollouts.returns import Gae, Nstep
from rollouts.run_log.record_options import RunLog

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from rollouts.policy import Policy

    # the type of the environments' batches, which decides the type of rollouts
    B = TypeVar("B", default=StepBatch)
else:
    from typing import TypeVar

    B = TypeVar("B")


class Strategy(Protocol):
    """The part of a Collector that steps and computes: `OnHost` or `OnDevice`."""

    @property
    def engine(self) -> str: ...
    @property
    def why_not_native(self) -> str: ...
    def reset(self) -> None: ...
    def collect(self, deadline: Deadline) -> dict[str, Any]: ...
    def synchronize(self) -> None: ...
    def close(self) -> None: ...


class Collector(Generic[B]):
    """Yields rollouts of `rollout_length` steps of all environments of one pool.

    Each rollout owns its arrays: later calls do not change them. An episode continues from one
    rollout to the next. Box actions are clipped to the bounds of the space on their way to the
    environment; the batch keeps them as the policy sampled them, because `log_prob` belongs to
    these.

    Environments with several agents give a `MultiAgentRollout`, a batch for each group. Its columns
    are the agents of the group's first environment, then those of the next: B environments with A
    agents make B * A columns. `extras["active"]` (T, B * A) bool marks steps in which an agent took
    part; leave the others out of a loss. An agent that leaves early is terminated in that step. The
    steps until its environment's episode ends are not active, have no reward and end truncated, so
    that returns and advantages of its own steps are those of its own episodes.

    An asynchronous pool delivers environments in any order; each has its own time index. An
    environment that has its T steps waits for the others, unless the pool could not fill a batch
    without it. Then it runs ahead, by at most T + 1 steps, which open the next rollout.

    Environments on a device give rollouts of tensors there, which for the same seed, weights and
    observations have the bits of a C++ pool's. A rollout needs T + 1 launches of the policy and T
    of the environments. Nothing is copied to the host, and `collect` returns before the device has
    done the work: a learner's computations with the tensors wait on the same stream. A rollout's
    tensors are not overwritten while one of them is referenced. Errors on the device (such as a
    value that is not finite) are raised by `synchronize`.

    While `collect` runs, torch computes in its thread with `num_torch_threads`. On the host the
    default is one, unless the policy's network is large, because torch's threads would take cores
    from the pool's. Afterwards torch has as many as before; see `rollouts.machine.torch_threads`.

    On the host, shapes of a policy's outputs are checked at each step, and finite numbers once per
    rollout.

    Not thread-safe. `collect` blocks as long as the environments and the policy take; an exception
    of either passes through, and the next `collect` starts new episodes.

    Attributes:
      env: The environments.
      policy: The policy of environments with one agent; else see `policies`.
      policies: group -> its policy; "" is the group of environments with one agent.
      rollout_length: Steps T.
      prefetch: 1 if the pool works between two calls.
    """

    def __init__(
        self,
        env: Receives[B],
        policy: Policy | Mapping[str, Policy],
        rollout_length: int,
        *,
        keep_final_obs: bool = False,
        num_torch_threads: int | None = None,
        engine: Engine = "auto",
        prefetch: int = 0,
        outputs: Sequence[str] = (),
        returns: Gae | Nstep | None = None,
        mask_actions: bool = False,
        cuda_graph: bool = False,
        policy_dtype: PolicyDtype = "float32",
        record: str | os.PathLike[str] | RunLog | None = None,
    ) -> None:
        """Takes a pool that no other code steps; does not step it yet.

        Args:
          env: Environments that autoreset in the same step: of `make_vec`, with or without a
            device, `from_env_fns` or the like. Those with several agents are synchronous.
          policy: Chooses the actions. Of environments with several agents: group -> its policy, or
            one policy that acts for all agents, group by group.
          rollout_length: Steps T.
          keep_final_obs: Whether batches have `final_obs`, which a replay needs. For an environment
            that failed it is the observation before the failure; for an agent that leaves early,
            its observation in that step.
          num_torch_threads: Threads that torch computes with during `collect`. None: the number of
            `rollouts.machine.torch_threads.threads_for`, at most as many as torch has; on a device
            as many as torch has.
          engine: The code that computes the policies. "native": the pool's threads, between steps,
            without Python; for a `NativePolicy`, or a `TorchPolicy` or `RecurrentTorchPolicy` whose
            module can be read, over a synchronous native pool. "torch": the policy's own `act`,
            step by step. "auto": native where that is possible for all groups; `engine` is the
            choice, `why_not_native` its reason. The choice is made again when a policy gets another
            module or head. A policy with memory that torch computes stays with torch, and so does a
            module that is changed in place, because reading it would run its forward. On a device
            "native" means kernels; a module on the same device gives them its weights without a
            copy to the host. "torch" calls the module of a torch policy, of any layers and
            precision, and a kernel draws the actions with the same noise. This is faster for a
            large network; `collect` then waits once, to value the final observations of truncated
            episodes. On a device "auto" chooses for each group.
          prefetch: 1 makes the pool collect the next rollout while the caller learns from the last
            one: each rollout except the first then uses the weights before the last update, as its
            `policy_version` shows. On the host it needs the native engine. On a device it uses a
            stream of its own, so launch work that reads a rollout on the stream that calls
            `collect`.
            Between two calls of `collect` the pool is busy: no other code may use it.
          outputs: Values of each step in `extras`, (T, B, ...) float32: "entropy" of the
            distribution of actions, and its parameters: "logits", or for Box actions "mean" and
            "log_std".
          returns: Adds extras["advantage"] and extras["target"] (T, B) float32 to batches, with the
            bits of `rollouts.returns`, computed while collecting if the engine is native.
          mask_actions: Makes the policy choose among the actions that info["action_mask"] allows;
            extras["action_mask"] (T, B, A) bool has the masks, and log_prob is that among allowed
            actions.
          cuda_graph: Records the steps of a device's rollout once and starts them as one, which
            spares the host a launch for each. Python code of the policy's module is run twice for
            each of the few rollouts that are held at once, and must not wait for the device.
          policy_dtype: "bfloat16" computes the networks of a device's policies by its tensor cores
            and draws the actions in the same launch: for large ones of linear layers with tanh or
            ReLU between them and at most 256 inputs each. Weights and inputs of layers are rounded
            to bfloat16; sums, biases, outputs and drawn actions are float32, so that log_prob and
            value belong to the policy that acted. A learner that computes in float32 gets slightly
            different ones. A network that such a kernel cannot compute raises SpecError; it is
            never computed in float32 instead.
          record: Folder of a log from which `rollouts replay-run` makes any step again, bit for
            bit, or a `RunLog` with the folder and its bounds. Messages about an error, a number
            that is not finite or an outlying reward then name the command that shows the step.

        Raises:
          SpecError: env does not autoreset in the same step or its observations are not one array,
            a number is out of its range, a group has no policy, several groups share one policy
            with memory, a policy lacks one of the outputs, or these environments do not have a
            keyword (`rollouts.features`). FileError: record cannot be written. EngineError: As
            `make_vec`.
        """
        asked = Asked(
            rollout_length=rollout_length,
            keep_final_obs=keep_final_obs,
            num_torch_threads=num_torch_threads,
            engine=engine,
            prefetch=prefetch,
            outputs=outputs,
            returns=returns,
            mask_actions=mask_actions,
            cuda_graph=cuda_graph,
            policy_dtype=policy_dtype,
            record=RunLog.of(record),
        )
        check_env(env)
        self.env: Any = env
        asynchronously = ["batch_size"] if is_async(env) else []
        asynchronously += ["record with batch_size"] if asynchronously and asked.record else []
        check("Collector", [*asked_of(asked), *asynchronously], cell_of(env))
        self.rollout_length, self.prefetch = rollout_length, prefetch
        self.policies = by_group(policy, getattr(env, "groups", None) or {ALONE: None})
        self.policy: Any = self.policies.get(ALONE, self.policies)
        self._strategy = _strategy(env, self.policies, asked)

    @property
    def engine(self) -> str:
        """ "native" where native code or kernels compute the policies, "torch" where torch does."""
        return self._strategy.engine

    @property
    def why_not_native(self) -> str:
        """The reason why neither native code nor kernels compute all policies; "" where they do."""
        return self._strategy.why_not_native

    def reset(self) -> None:
        """Drops what was collected of the current rollout; the next one starts new episodes."""
        self._strategy.reset()

    @overload
    def __iter__(self: Collector[StepBatch]) -> Iterator[RolloutBatch]: ...
    @overload
    def __iter__(self: Collector[MultiAgentBatch]) -> Iterator[MultiAgentRollout]: ...
    def __iter__(self) -> Iterator[Any]:
        """Collects rollouts for ever."""
        while True:
            yield self._collect(Deadline(None))

    @overload
    def collect(self: Collector[StepBatch], timeout_s: float | None = None) -> RolloutBatch: ...
    @overload
    def collect(
        self: Collector[MultiAgentBatch], timeout_s: float | None = None
    ) -> MultiAgentRollout: ...
    def collect(self, timeout_s: float | None = None) -> Any:
        """Steps every environment T times and returns the steps.

        Args:
          timeout_s: Seconds to wait; None waits for ever. After a CallTimeoutError nothing is lost:
            the next `collect` returns the rollout that was begun. Until then no other code may use
            the environment. If native code computes the policy, it goes on meanwhile with the
            weights that it began with; else the time is checked after each step. A device's rollout
            is launched without waiting for it.

        Returns:
          A `RolloutBatch`, or a `MultiAgentRollout` for environments with several agents: of
            arrays, or of a device's tensors.

        Raises:
          SpecError: the policy returned a wrong shape, or a log_prob or value that is not finite;
            timeout_s is below 0. CallTimeoutError, a TimeoutError: no rollout within timeout_s.
            ProtocolError: Other code has used the environments since the last rollout.
        """
        return self._collect(Deadline(timeout_s))

    def synchronize(self) -> None:
        """Waits until a device has finished all launches, and a log has all that was collected.

        Raises:
          EnvError: Something went wrong on the device since the last time; it names the env_id.
        """
        self._strategy.synchronize()

    def close(self) -> None:
        """Closes the environment; may be called twice."""
        self._strategy.close()
        self.env.close()

    def _collect(self, deadline: Deadline) -> Any:
        batches = self._strategy.collect(deadline)
        return batches.get(ALONE) or MultiAgentRollout(batches, self.env.num_envs)


def _strategy(env: Any, policies: Mapping[str, Policy], asked: Asked) -> Strategy:
    if device_pool(env) is None:
        return OnHost(env, policies, asked)
    # imports torch
    from rollouts.collecting.on_device import OnDevice

    return OnDevice(env, policies, asked)
