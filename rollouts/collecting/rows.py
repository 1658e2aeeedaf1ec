# SPDX-License-Identifier: Apache-2.0
"""`RolloutRows`: the rows of one group in a rollout, with any engine for its policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rollouts.batch import RolloutBatch, StepBatch
from rollouts.collecting.arena import Arena, Row, Rows
from rollouts.collecting.masks import ActionMasks
from rollouts.collecting.native_states import NativeStates
from rollouts.collecting.policy_calls import make_policy_calls
from rollouts.collecting.steps import cut_off, finite_bounds
from rollouts.collecting.wanted import Wanted
from rollouts.envs.agent_groups import MultiAgentBatch, agent_steps
from rollouts.errors import SpecError
from rollouts.policies.output_checks import check_finite

if TYPE_CHECKING:
    from rollouts.collecting.asked import Asked
    from rollouts.policies.native import NativePolicy
    from rollouts.policies.protocol import Policy
    from rollouts.specs import AgentGroup

Array = NDArray[Any]
ALONE = ""  # the group of environments with one agent


class RolloutRows:
    """The agents of one group, environment by environment; with one agent, the environments.

    Attributes:
      name: The group's name; "" for environments with one agent.
      policy: The policy that acts.
      action_space: The action space of one row.
      env_id: (rows,) int32.
      wanted: The extras of the rollouts.
      arena: The arrays of the present rollout.
    """

    def __init__(
        self,
        env: Any,
        group: AgentGroup | None,
        policy: Policy,
        asked: Asked,
        masks: ActionMasks | None = None,
    ) -> None:
        """Takes a group of an environment; None for environments with one agent.

        Raises:
          SpecError: `policy` is not a policy, or no policy for this space has what `asked` wants.
        """
        of: Any = group or env
        agents = 1 if group is None else group.num_agents
        self.name, self.policy = "" if group is None else group.name, policy
        self._asked, self._masks, rollout_length = asked, masks, asked.rollout_length
        self._obs_space, self.action_space = of.single_observation_space, of.single_action_space
        self.wanted = Wanted(asked.outputs, asked.returns, self.action_space)
        self._has_agents = group is not None
        # agents of `AgentRows` leave and come back, like those of a group
        self._reports_active = self._has_agents or bool(getattr(env, "reports_active", False))
        self._shape = (env.num_envs, agents) if self._has_agents else (env.num_envs,)
        num_rows = env.num_envs * agents
        self.env_id = env.env_id_offset * agents + np.arange(num_rows, dtype=np.int32)
        self._bounds = finite_bounds(self.action_space)
        # environments of an asynchronous pool may be up to T + 1 steps into the next rollout
        ahead = rollout_length + 1 if env.batch_size < env.num_envs else 0
        self._arena_steps = rollout_length + ahead
        self.calls = make_policy_calls(
            policy, num_envs=num_rows, rollout_length=rollout_length, masks=masks
        )
        self._states = NativeStates((), num_rows, rollout_length, keep_all=False)
        self.reset()

    def reset(self) -> None:
        """Drops the rows; every row's next observation is the first of an episode."""
        self.arena = Arena(
            self._arena_steps,
            len(self.env_id),
            self._obs_space,
            keep_final_obs=self._asked.keep_final_obs,
        )
        self._active = self._new_active()
        self.calls.reset()
        self._states.reset()

    @property
    def remembers(self) -> bool:
        """Tells if the policy has a state for each row."""
        return hasattr(self.policy, "act_rows")

    def carry_states(self, native: NativePolicy | None) -> None:
        """Moves recurrent states to the engine that now computes the policy.

        Raises:
          SpecError: The policy cannot return the wanted outputs.
        """
        shapes = () if native is None else native.state_shapes
        states = self._states
        if states.shapes and native is None:
            self.calls.go_on(states.now(), states.begins)
        if states.shapes != shapes:
            keep_all = getattr(self.policy, "keeps_states", False)
            rows = len(self.env_id)
            self._states = NativeStates(shapes, rows, self._asked.rollout_length, keep_all=keep_all)
        self.wanted.check(self.policy, native)

    def obs_of(self, t: int) -> Array:
        """Returns observations t in the environment's shape: (N, ...) or (N, A, ...)."""
        return self._by_env(self.arena.obs[t])

    def act(self, t: int) -> Array:
        """Acts on row t in all environments; returns the actions in the environment's shape.

        Raises:
          SpecError: The policy returned a wrong shape; the message names the group.
        """
        try:
            action = self.act_on(self.arena.obs[t], None, t)
        except SpecError as error:
            if not self._has_agents:
                raise
            raise SpecError(f"group {self.name!r}: {error}") from error
        return self._by_env(action)

    def act_on(self, obs: Array, rows: Rows, at: Row) -> Array:
        """Acts on `obs` (B, ...), which are rows `at` of the rollout; returns actions (B, ...)."""
        output = self.calls.act(obs, rows, at)
        self.arena.write_choice(at, rows, output, self.policy.policy_version)
        action: Array = output.action
        return action if self._bounds is None else action.clip(*self._bounds)

    def step_of(self, batch: Any) -> StepBatch:
        """Returns this group's rows of a batch of the environment's `recv_batch`."""
        if not self._has_agents:
            step: StepBatch = batch
            return step
        agents: MultiAgentBatch = batch

        def rows(arrays: Any) -> Array:
            array = arrays[self.name] if isinstance(arrays, Mapping) else arrays
            shaped: Array = array.reshape(len(self.env_id), *array.shape[2:])
            return shaped

        return agent_steps(agents, rows, self.env_id)

    def write(self, t: int, step: StepBatch, *, with_obs: bool) -> None:
        """Writes the results of step t, and the next observations unless the pool did that."""
        if with_obs:
            self.arena.obs[t + 1] = step.obs
        self.write_outcome(t, None, step)
        if self._active is not None:
            self._active[t] = step.info["active"]

    def write_outcome(self, t: Row, rows: Rows, step: StepBatch) -> None:
        """Writes the results of these cells' steps, and the values of final observations."""
        self.arena.write_outcome(t, rows, step, self._bootstrap(step, rows))
        self.calls.see_ends(step, rows)

    def take(self, last_value: NDArray[np.float32], beyond: int) -> RolloutBatch:
        """Returns the rollout that torch computed; the `beyond` rows after it open the next one.

        Raises:
          SpecError: A log_prob or value is not finite, or an output is missing.
        """
        batch = self._hand_out(last_value, self.calls.take_states(), beyond)
        for name in ("log_prob", "value", "last_value", "bootstrap_value"):
            check_finite(name, getattr(batch, name), batch.env_id)
        self.wanted.complete(batch)
        return batch

    def native_arrays(self, version: int) -> dict[str, Array]:
        """Returns the arrays that the pool writes for this group, by name."""
        arena = self.arena
        arrays = arena.native_arrays(self.action_space, version)
        arrays["last_value"] = np.empty(len(self.env_id), np.float32)
        arrays |= self._states.arrays() | self.wanted.arrays(arena.shape)
        if self._active is not None:
            arrays["active"] = self._active
        return arrays | (self._masks.arrays(self._asked.rollout_length) if self._masks else {})

    def take_native(self, arrays: dict[str, Array], final_obs: Array | None) -> RolloutBatch:
        """Returns the rollout that the pool wrote into `native_arrays`."""
        if final_obs is not None:
            self.arena.keep_final(final_obs)
        self.arena.extras = self._states.extras() | self.wanted.extras(arrays)
        self.arena.extras |= self._masks.take_over(arrays) if self._masks else {}
        return self._hand_out(arrays["last_value"], self._states.before(), 1)

    def _hand_out(
        self, last_value: NDArray[np.float32], policy_state: tuple[Array, ...], beyond: int
    ) -> RolloutBatch:
        steps, full = self._asked.rollout_length, self.arena
        batch = full.first_steps(steps, self.env_id.copy(), last_value, policy_state)
        if self._active is not None:
            batch.extras["active"] = self._active
            self._active = self._new_active()
        self.arena = full.next_arena(slice(steps, steps + beyond))
        return batch

    def _by_env(self, rows: Array) -> Array:
        """Returns arrays (rows, ...) as (N, A, ...), if there are agents."""
        if not self._has_agents:
            return rows
        shaped: Array = rows.reshape(*self._shape, *rows.shape[1:])
        return shaped

    def _new_active(self) -> NDArray[np.bool_] | None:
        if not self._reports_active:
            return None
        return np.empty((self._asked.rollout_length, len(self.env_id)), np.bool_)

    def _bootstrap(self, step: StepBatch, rows: Rows) -> NDArray[np.float32] | None:
        """Values (B,) the final observations of truncated episodes; None where there are none."""
        cut = cut_off(step)
        if self._reports_active:
            cut = cut & step.info["active"]
        if not cut.any():
            return None
        assert step.final_obs is not None
        bootstrap = np.zeros(len(cut), np.float32)
        cut_rows = np.flatnonzero(cut) if rows is None else rows[cut]
        bootstrap[cut] = self.calls.final_value(step.final_obs[cut], cut_rows)
        return bootstrap


def by_group(
    policies: Policy | Mapping[str, Policy], groups: Mapping[str, AgentGroup | None]
) -> dict[str, Policy]:
    """Returns the policy of each group.

    Raises:
      SpecError: A group has no policy, a policy is for no group, or several groups share a policy
        with memory.
    """
    if not isinstance(policies, Mapping):
        policies = dict.fromkeys(groups, policies)
    elif ALONE in groups:
        raise SpecError(
            f"policy is a dict of {list(policies)}, and the environments have one agent: expected "
            "one policy"
        )
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
