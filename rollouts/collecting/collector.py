# SPDX-License-Identifier: Apache-2.0
"""Steps a vector environment with its policies and keeps T steps of it as one rollout."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Generic, overload

from rollouts.batch import MultiAgentRollout, RolloutBatch, StepBatch
from rollouts.checks import flag, whole_number
from rollouts.collecting.batched_env import check_env
from rollouts.collecting.deadline import Deadline, Receives
from rollouts.collecting.engine import Engine, choose_engine, still_computes
from rollouts.collecting.features import refuse
from rollouts.collecting.in_pool import InPool
from rollouts.collecting.masks import ActionMasks
from rollouts.collecting.on_host import AsTheyCome, InOrder
from rollouts.collecting.rows import ALONE, RolloutRows, by_group
from rollouts.collecting.turns import Turns
from rollouts.collecting.wanted import Wanted
from rollouts.errors import CallTimeoutError
from rollouts.machine.torch_threads import beside_a_pool, check_threads
from rollouts.pool.agent_groups import MultiAgentBatch
from rollouts.pool.multi_agent_env import MultiAgentVectorEnv
from rollouts.pool.vector_env import VectorEnv
from rollouts.returns import Gae, Nstep

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from rollouts.policies.native import NativePolicy
    from rollouts.policy import Policy

    # the batches of its environments, by which rollouts are of one agent or of groups
    B = TypeVar("B", default=StepBatch)
else:
    from typing import TypeVar

    B = TypeVar("B")


class Collector(Generic[B]):
    """Yields rollouts of `rollout_length` steps of all environments of one pool.

    Each rollout owns its arrays: nothing that happens later changes them. An episode goes on from
    one rollout to the next. Box actions are clipped to the bounds of the space on their way to
    the environment; the batch keeps them as the policy sampled them, as `log_prob` belongs to that.

    Environments with several agents give a `MultiAgentRollout`, a batch for each group. Its columns
    are the agents of the group's first environment, then those of the next: B environments with A
    agents make B * A columns. `extras["active"]` (T, B * A) bool says which steps an agent took
    part in; the others are to be left out of a loss. An agent that leaves early is terminated
    there. The steps until its environment's episode ends are not active, have no reward and end
    truncated, so that returns and advantages of the steps before and after them are those of its
    own episodes.

    An asynchronous pool delivers environments in any order; each has its own time index. One that
    has its T steps waits for the others, unless the pool could not fill a batch without it: then
    it runs ahead, by at most T + 1 steps, and these open the next rollout.

    While `collect` runs, torch computes in its thread with `num_torch_threads`: by default one,
    unless the policy's network is large, because torch's threads would take cores from the pool's.
    Then torch has as many as before; see `rollouts.machine.torch_threads.torch_threads`.

    Shapes of what the policy returns are checked at each step, finite numbers once per rollout.

    Not thread-safe. `collect` blocks as long as the environments and the policy take; an exception
    of either passes through, and the next `collect` starts new episodes.

    Attributes:
      env: What is stepped.
      policy: That of environments with one agent; else `policies`.
      policies: group -> its policy; "" is the group of environments with one agent.
      rollout_length: Steps T.
      why_not_native: Why native code does not compute the policies; "" where it does.
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
    ) -> None:
        """Takes a pool that nobody else steps; does not step it yet.

        Args:
          env: A pool that autoresets in the same step; one with several agents is synchronous.
          policy: Chooses the actions. Of environments with several agents: group -> its policy, or
            one policy that acts for all agents, group by group.
          rollout_length: Steps T.
          keep_final_obs: Whether batches have `final_obs`, which a replay needs. That of an
            environment that failed is the observation it failed on; that of an agent that leaves
            early is what it sees then.
          num_torch_threads: Threads that torch computes with during `collect`; None for what
            `rollouts.machine.torch_threads.threads_for` says, at most as many as torch has.
          engine: Who computes the policies. "native": the pool's own threads, between steps,
            without Python; for a `NativePolicy`, or a `TorchPolicy` or `RecurrentTorchPolicy` whose
            module can be read, over a synchronous native pool. "torch": the policy's own `act`,
            step by step. "auto": native where that is possible for all groups; `engine` says which
            it is, `why_not_native` the reason.
          prefetch: 1 makes the pool collect the next rollout while the caller learns from the last
            one: each but the first is then of the weights before the last update, as its
            `policy_version` says. Native engine only. Between two calls of `collect` the pool is
            busy: nobody else may use it.
          outputs: What `extras` have of each step, (T, B, ...) float32: "entropy" of what actions
            are drawn from, and what says it: "logits", or of Box actions "mean" and "log_std".
          returns: Makes batches come with extras["advantage"] and extras["target"] (T, B) float32,
            the bits of `rollouts.returns`, in the pass that collects where that is native.
          mask_actions: Makes the policy choose among the actions that info["action_mask"] allows;
            extras["action_mask"] (T, B, A) bool are those it chose by, log_prob that among them.
            Of one agent only.

        Raises:
          SpecError: env does not autoreset in the same step or observes something else than one
            array, a number is out of its range, a group has no policy, one memory is shared by
            several groups, a policy has no such outputs, or a feature is asked for that these
            environments or this engine do not have (`rollouts.collecting.features`).
        """
        check_env(env)
        of_env: Any = env
        groups = getattr(env, "groups", None)
        is_async = of_env.batch_size < of_env.num_envs
        if groups is not None and is_async:
            raise refuse("agents", "batch_size")
        if groups is not None and mask_actions:
            raise refuse("agents", "mask_actions")
        rollout_length = whole_number("rollout_length", rollout_length, 1, 2**31 - 1)
        self.env, self.rollout_length = of_env, rollout_length
        self.policies = by_group(policy, groups or {ALONE: None})
        self.policy: Any = self.policies.get(ALONE, self.policies)
        self._num_torch_threads = check_threads("num_torch_threads", num_torch_threads)
        self._turns = Turns(env)
        keep_final_obs = flag("keep_final_obs", keep_final_obs)
        masks = ActionMasks(of_env, policy) if mask_actions else None
        rows = {
            name: RolloutRows(
                env,
                groups and groups[name],
                one,
                Wanted(outputs, returns, (groups[name] if groups else of_env).single_action_space),
                rollout_length,
                keep_final_obs=keep_final_obs,
                masks=masks,
            )
            for name, one in self.policies.items()
        }
        self._groups = [*rows.values()]
        source: Any = masks or env
        # our own pools write observations into the rollout; others' are copied
        is_ours = isinstance(env, VectorEnv | MultiAgentVectorEnv) and "out" in env.engine.can
        self._in_order = InOrder(env, source, self._groups, rollout_length, writes_in_place=is_ours)
        self._as_they_come = (
            AsTheyCome(env, source, self._groups[0], rollout_length) if is_async else None
        )
        self._wanted_engine = engine
        self._prefetches = bool(whole_number("prefetch", prefetch, 0, 1))
        self._in_pool = InPool(
            env,
            self._groups,
            self._turns,
            keep_final_obs=keep_final_obs,
            returns=returns,
            prefetches=self._prefetches,
        )
        self._choose_engine()

    @property
    def engine(self) -> str:
        """ "native" where native code computes the policies, "torch" where their own `act` does."""
        return "torch" if self._native is None else "native"

    def reset(self) -> None:
        """Drops what was collected of the current rollout; the next one starts new episodes."""
        self._in_pool.ahead.drop()
        self._turns.forget()
        for rows in self._groups:
            rows.reset()
        self._in_order.reset()
        if self._as_they_come is not None:
            self._as_they_come.reset()

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
        """Steps every environment T times and returns what happened.

        Args:
          timeout_s: Seconds to wait; None waits for ever. After a CallTimeoutError nothing is lost:
            the next `collect` returns the rollout that was begun, and until it has, nobody else may
            use the environment. Where native code computes the policy, it goes on meanwhile with
            the weights it began with; else the time is looked at after each step.

        Returns:
          A `RolloutBatch`, or of environments with several agents a `MultiAgentRollout`.

        Raises:
          SpecError: the policy returned a wrong shape, or a log_prob or value that is not finite;
            timeout_s is below 0. CallTimeoutError, a TimeoutError: no rollout within timeout_s.
            ProtocolError: Somebody else has used the environments since the last rollout.
        """
        return self._collect(Deadline(timeout_s))

    def close(self) -> None:
        """Closes the environment; may be called twice."""
        self._in_pool.ahead.close()
        self.env.close()

    def _collect(self, deadline: Deadline) -> Any:
        try:
            batches = self._batches(deadline)
        except CallTimeoutError:
            if self._native is None:
                self._turns.keep()
            raise
        except BaseException:
            # half a rollout must not be continued as if nothing had happened
            self.reset()
            raise
        if self._groups[0].name == ALONE:
            return batches[0]
        of_groups = {rows.name: one for rows, one in zip(self._groups, batches, strict=True)}
        return MultiAgentRollout(of_groups, self.env.num_envs)

    def _batches(self, deadline: Deadline) -> list[RolloutBatch]:
        ahead = self._in_pool.ahead.take(deadline)
        self._turns.check()
        if ahead is not None and not self._prefetches:
            return ahead  # what a call began that ran out of time
        if self._native is not None and not self._still_computes(self._native):
            self._choose_engine()
        if self._native is not None:
            self._in_order.start(deadline)
            return self._in_pool.collect(self._native, ahead, deadline)
        with ExitStack() as during:
            first = self._groups[0].policy
            threads = beside_a_pool(first, self.env.batch_size, self._num_torch_threads)
            during.enter_context(threads)
            for rows in self._groups:
                during.enter_context(rows.wanted.asked_of(rows.policy))
            batches = (self._as_they_come or self._in_order).collect(deadline)
        self._turns.keep()
        return batches

    def _still_computes(self, native: Mapping[str, NativePolicy]) -> bool:
        is_new = self._in_order.is_new
        return all(
            still_computes(native[rows.name], rows.policy, None if is_new else rows.arena.obs[0])
            for rows in self._groups
        )

    def _choose_engine(self) -> None:
        self._native, self.why_not_native = choose_engine(
            self._wanted_engine, self.env, self.policies
        )
        for rows in self._groups:
            rows.carry_states(None if self._native is None else self._native[rows.name])
        if self._prefetches and self._native is None:
            raise refuse("torch", "prefetch", self.why_not_native)
