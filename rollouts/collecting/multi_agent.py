# SPDX-License-Identifier: Apache-2.0
"""`MultiAgentCollector`: rollouts of environments with several agents, a batch for each group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from rollouts.batch import MultiAgentRollout, RolloutBatch, StepBatch
from rollouts.checks import flag, whole_number
from rollouts.collecting.arena import Arena
from rollouts.collecting.batched_env import check_env
from rollouts.collecting.deadline import Deadline
from rollouts.collecting.engine import Engine, choose_group_engine, still_computes
from rollouts.collecting.native_states import NativeStates
from rollouts.collecting.policy_calls import PolicyCalls, make_policy_calls
from rollouts.collecting.prefetch import Poll, Prefetch
from rollouts.collecting.steps import finite_bounds
from rollouts.collecting.turns import Turns
from rollouts.collecting.wanted import Wanted
from rollouts.errors import CallTimeoutError, SpecError
from rollouts.machine.torch_threads import beside_a_pool, check_threads
from rollouts.policies.checks import check_finite
from rollouts.pool.agent_groups import MultiAgentBatch, agent_steps
from rollouts.pool.multi_agent_env import MultiAgentVectorEnv
from rollouts.returns import Gae, Nstep
from rollouts.specs import AgentGroup

if TYPE_CHECKING:
    from rollouts.env_fns.agents import ParallelEnvsVectorEnv
    from rollouts.policies.native import FrozenPolicy, NativePolicy
    from rollouts.policies.protocol import Policy

Array = NDArray[Any]


class MultiAgentCollector:
    """Yields rollouts of `rollout_length` steps: for each group a `RolloutBatch` of its agents.

    Columns of a group's batch are the agents of its first environment, then those of the next: B
    environments with A agents make B * A columns, and `env_id` of agent i is env_id * A + i.
    `extras["active"]` (T, B * A) bool says which steps an agent took part in; the others are to be
    left out of a loss. An agent that leaves early is terminated there. The steps until its
    environment's episode ends are not active, have no reward and end truncated, so that returns
    and advantages of the steps before and after them are those of its own episodes.

    Not thread-safe. Each batch owns its arrays.
    """

    def __init__(
        self,
        env: MultiAgentVectorEnv | ParallelEnvsVectorEnv,
        policies: Policy | Mapping[str, Policy],
        rollout_length: int,
        *,
        num_torch_threads: int | None = None,
        engine: Engine = "auto",
        keep_final_obs: bool = False,
        outputs: Sequence[str] = (),
        returns: Gae | Nstep | None = None,
    ) -> None:
        """Takes an environment that nobody else steps; does not step it yet.

        Args:
          env: Synchronous, and autoresets in the same step.
          policies: group -> its policy; or one policy that acts for all agents, group by group.
          rollout_length: Steps T.
          num_torch_threads: As for `Collector`.
          engine: As for `Collector`: "native" has the pool's threads compute the policies of all
            groups, "torch" none; "auto" has them where they can compute all.
          keep_final_obs: Whether batches have `final_obs`, which a replay needs: one row for each
            that is terminated or truncated, of an agent that leaves early what it sees then.
          outputs, returns: As for `Collector`, of every group.

        Raises:
          SpecError: env is asynchronous or autoresets otherwise, a group has no policy, one memory
            is shared by several groups, rollout_length is below 1, a policy has no such outputs,
            or the native engine is asked for and not possible.
        """
        check_env(env, has_agents=True)
        if env.batch_size != env.num_envs:
            raise SpecError("agents are collected synchronously: leave batch_size out")
        self.env = env
        self._turns = Turns(env)
        self.rollout_length = whole_number("rollout_length", rollout_length, 1, 2**31 - 1)
        self.policies = by_group(policies, env.groups)
        self._num_torch_threads = check_threads("num_torch_threads", num_torch_threads)
        self._groups = {
            name: _Group(
                group,
                self.policies[name],
                env,
                self.rollout_length,
                keep_final_obs,
                Wanted(outputs, returns, group.single_action_space),
            )
            for name, group in env.groups.items()
        }
        self._keeps_final_obs = flag("keep_final_obs", keep_final_obs)
        self._returns = returns
        self._ahead: Prefetch[MultiAgentRollout] = Prefetch()
        self._must_reset, self._is_resetting = True, False
        self._t, self._is_sent = 0, False  # the step in hand
        self._wanted_engine = engine
        self._choose_engine()

    @property
    def engine(self) -> str:
        """Who computes the policies: "native", or "torch" for their own `act`."""
        return "torch" if self._native is None else "native"

    def __iter__(self) -> Iterator[MultiAgentRollout]:
        """Collects rollouts for ever."""
        while True:
            yield self.collect()

    def collect(self, timeout_s: float | None = None) -> MultiAgentRollout:
        """Steps every environment T times and returns what happened, by group.

        Args:
          timeout_s: As for `Collector.collect`.

        Raises:
          SpecError: A policy returned a wrong shape, or a log_prob or value that is not finite.
          ProtocolError, CallTimeoutError: As of `Collector.collect`.
        """
        deadline = Deadline(timeout_s)
        try:
            late = self._ahead.take(deadline)
            self._turns.check()
            if late is not None:
                return late  # what a call began that ran out of time
            if self._native is not None and not self._still_computes(self._native):
                self._choose_engine()
            if self._native is not None:
                return self._collect_native(self._native, deadline)
            threads = self._num_torch_threads
            with beside_a_pool(next(iter(self.policies.values())), self.env.num_envs, threads):
                return self._collect(deadline)
        except CallTimeoutError:
            if self._native is None:
                self._turns.keep()
            raise
        except BaseException:
            # half a rollout must not be continued as if nothing had happened
            self.reset()
            raise

    def reset(self) -> None:
        """Drops what was collected of the current rollout; the next one starts new episodes."""
        self._ahead.drop()
        self._turns.forget()
        self._must_reset = True

    def close(self) -> None:
        """Closes the environment; may be called twice."""
        self._ahead.close()
        self.env.close()

    def _choose_engine(self) -> None:
        self._native, self.why_not_native = choose_group_engine(
            self._wanted_engine, self.env, self.policies
        )
        for name, group in self._groups.items():
            group.carry_states(None if self._native is None else self._native[name])

    def _still_computes(self, native: Mapping[str, NativePolicy]) -> bool:
        is_new = self._must_reset or self._is_resetting
        return all(
            still_computes(
                native[name], policy, None if is_new else self._groups[name].arena.obs[0]
            )
            for name, policy in self.policies.items()
        )

    def _begin(self, deadline: Deadline) -> None:
        if self._must_reset:
            self.env.async_reset()
            self._must_reset, self._is_resetting = False, True
            self._t, self._is_sent = 0, False
        if self._is_resetting:
            batch = deadline.recv(self.env)
            for name, group in self._groups.items():
                group.begin(_of(batch.obs, name))
            self._is_resetting = False

    def _collect_native(
        self, native: Mapping[str, NativePolicy], deadline: Deadline
    ) -> MultiAgentRollout:
        self._begin(deadline)
        arrays = {name: group.native_arrays() for name, group in self._groups.items()}
        self._turns.go_on()
        if deadline.is_never:
            return self._run_native(native, arrays)
        # in this thread: the caller's next update changes the weights
        frozen = {name: policy.freeze() for name, policy in native.items()}
        self._ahead.start(partial(self._run_native, frozen, arrays))
        rollout = self._ahead.take(deadline)
        assert rollout is not None
        return rollout

    def _run_native(
        self,
        native: Mapping[str, NativePolicy | FrozenPolicy],
        arrays: dict[str, dict[str, Array]],
        poll: Poll | None = None,
    ) -> MultiAgentRollout:
        env, keep = cast(MultiAgentVectorEnv, self.env), self._keeps_final_obs
        final_obs = env.collect(
            native, arrays, keep_final_obs=keep, poll=poll, returns=self._returns
        )
        for name, rows in (final_obs or {}).items():
            self._groups[name].arena.keep_final(rows)
        batches = {name: group.take_native(arrays[name]) for name, group in self._groups.items()}
        return MultiAgentRollout(batches, self.env.num_envs)

    def _collect(self, deadline: Deadline) -> MultiAgentRollout:
        groups = self._groups
        self._begin(deadline)
        while self._t < self.rollout_length:
            if not self._is_sent:
                self._send(self._t)
                self._is_sent = True
            batch = deadline.recv(self.env)
            for name, group in groups.items():
                group.write(self._t, batch, name)
            self._t, self._is_sent = self._t + 1, False
        self._t = 0
        batches = {name: group.take() for name, group in groups.items()}
        self._turns.keep()
        return MultiAgentRollout(batches, self.env.num_envs)

    def _send(self, t: int) -> None:
        actions = {name: group.act(t) for name, group in self._groups.items()}
        if isinstance(self.env, MultiAgentVectorEnv):
            # the pool writes observations into the rollouts
            obs = {name: group.obs_of(t + 1) for name, group in self._groups.items()}
            self.env.send(actions, out={"obs": obs})
        else:
            self.env.send(actions)


class _Group:
    """One group's agents as rows of a rollout."""

    def __init__(
        self,
        group: AgentGroup,
        policy: Policy,
        env: MultiAgentVectorEnv | ParallelEnvsVectorEnv,
        rollout_length: int,
        keep_final_obs: bool,
        wanted: Wanted,
    ) -> None:
        self.group, self.policy, self.wanted = group, policy, wanted
        self.keeps_final_obs = keep_final_obs
        self.shape = (env.num_envs, group.num_agents)
        rows = env.num_envs * group.num_agents
        self.env_id = env.env_id_offset * group.num_agents + np.arange(rows, dtype=np.int32)
        self.steps = rollout_length
        self.bounds = finite_bounds(group.single_action_space)
        self.calls: PolicyCalls = make_policy_calls(
            policy, num_envs=rows, rollout_length=rollout_length
        )
        self.states = NativeStates((), rows, rollout_length, keep_all=False)
        self.new_arena()

    def carry_states(self, native: NativePolicy | None) -> None:
        """Has what is remembered where the policy is computed now."""
        self.wanted.check(self.policy, native)
        shapes = () if native is None else native.state_shapes
        if self.states.shapes and native is None:
            self.calls.go_on(self.states.now(), self.states.begins)
        if self.states.shapes != shapes:
            keep_all = getattr(self.policy, "keeps_states", False)
            self.states = NativeStates(shapes, len(self.env_id), self.steps, keep_all=keep_all)

    def native_arrays(self) -> dict[str, Array]:
        """What the pool writes of this group."""
        arena = self.arena
        arrays = arena.native_arrays(self.group.single_action_space, self.policy.policy_version)
        arrays["last_value"] = np.empty(len(self.env_id), np.float32)
        wanted = self.wanted.arrays(arena.shape)
        return arrays | {"active": self.active} | self.states.arrays() | wanted

    def take_native(self, arrays: dict[str, Array]) -> RolloutBatch:
        self.arena.extras = self.states.extras() | self.wanted.extras(arrays)
        return self.hand_out(arrays["last_value"], self.states.before())

    def new_arena(self) -> None:
        space = self.group.single_observation_space
        keep = self.keeps_final_obs
        self.arena = Arena(self.steps, len(self.env_id), space, keep_final_obs=keep)
        self.active = np.empty((self.steps, len(self.env_id)), np.bool_)

    def begin(self, obs: Array) -> None:
        self.new_arena()
        self.calls.reset()
        self.states.reset()
        self.obs_of(0)[:] = obs

    def obs_of(self, t: int) -> Array:
        obs = self.arena.obs[t]
        shaped: Array = obs.reshape(*self.shape, *obs.shape[1:])
        return shaped

    def act(self, t: int) -> Array:
        try:
            with self.wanted.asked_of(self.policy):
                output = self.calls.act(self.arena.obs[t], None, t)
        except SpecError as error:
            raise SpecError(f"group {self.group.name!r}: {error}") from error
        self.arena.write_choice(t, None, output, self.policy.policy_version)
        action = output.action if self.bounds is None else output.action.clip(*self.bounds)
        shaped: Array = action.reshape(*self.shape, *action.shape[1:])
        return shaped

    def write(self, t: int, batch: MultiAgentBatch, name: str) -> None:
        if not np.shares_memory(_of(batch.obs, name), self.arena.obs):
            self.obs_of(t + 1)[:] = _of(batch.obs, name)
        step = self.step_of(batch, name)
        self.arena.write_outcome(t, None, step, self.bootstrap(step))
        self.active[t] = step.info["active"]
        self.calls.see_ends(step, None)

    def step_of(self, batch: MultiAgentBatch, name: str) -> StepBatch:
        def rows(arrays: Any) -> Array:
            array = _of(arrays, name)
            shaped: Array = array.reshape(len(self.env_id), *array.shape[2:])
            return shaped

        return agent_steps(batch, rows, self.env_id)

    def bootstrap(self, step: StepBatch) -> NDArray[np.float32] | None:
        """Values (rows,) the final observations of those who were cut off."""
        cut = step.truncated & ~step.terminated & step.info["active"]
        if "_env_error" in step.info:
            cut &= ~step.info["_env_error"]  # a failed environment has no final observation
        if not cut.any():
            return None
        assert step.final_obs is not None
        values = np.zeros(len(cut), np.float32)
        values[cut] = self.calls.final_value(step.final_obs[cut], np.flatnonzero(cut))
        return values

    def take(self) -> RolloutBatch:
        last_value = self.calls.last_value(self.arena.obs[self.steps], None, None)
        batch = self.hand_out(last_value, self.calls.take_states())
        for name in ("log_prob", "value", "last_value", "bootstrap_value"):
            check_finite(name, getattr(batch, name), self.env_id)
        self.wanted.complete(batch)
        return batch

    def hand_out(
        self, last_value: NDArray[np.float32], policy_state: tuple[Array, ...]
    ) -> RolloutBatch:
        """The rollout in hand; the next one opens with its last observation."""
        self.arena.extras["active"] = self.active
        batch = self.arena.first_steps(self.steps, self.env_id, last_value, policy_state)
        self.new_arena()
        self.arena.obs[0] = batch.last_obs
        return batch


def _of(arrays: Any, name: str) -> Array:
    """One group's array of a batch, which has no dict where there is one group."""
    array: Array = arrays[name] if isinstance(arrays, Mapping) else arrays
    return array


def by_group(
    policies: Policy | Mapping[str, Policy], groups: Mapping[str, AgentGroup]
) -> dict[str, Policy]:
    """The policy of each group.

    Raises:
      SpecError: A group has none, one is of no group, or one memory is shared by several.
    """
    if not isinstance(policies, Mapping):
        policies = dict.fromkeys(groups, policies)
    unknown = [name for name in policies if name not in groups]
    missing = [name for name in groups if name not in policies]
    if unknown or missing:
        raise SpecError(
            f"policies has {'the unknown group' if unknown else 'no policy for group'} "
            f"{(unknown or missing)[0]!r}, expected one for each of {list(groups)}"
        )
    with_memory = [id(policy) for policy in policies.values() if hasattr(policy, "act_rows")]
    if len(set(with_memory)) < len(with_memory):
        raise SpecError(
            "one policy that remembers cannot act for several groups: its states are those of "
            "one group's agents; give each group its own"
        )
    return {name: policies[name] for name in groups}
