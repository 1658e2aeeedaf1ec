# SPDX-License-Identifier: Apache-2.0
"""`DeviceArena`: the tensors of one rollout on a GPU, and all launches that write them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from gymnasium import spaces
from torch import Tensor

from rollouts.batch import RolloutBatch
from rollouts.collecting.actor_rows import ActorRows
from rollouts.collecting.device_policy import DevicePolicy
from rollouts.collecting.wanted import RETURNS, Wanted
from rollouts.envs.kernel.graph import LaunchGraph
from rollouts.envs.kernel.launch_args import DeviceRows, Launch, WorldRows
from rollouts.envs.kernel.policy_launch import FragmentArrays, PolicyLaunch, ReturnsRows
from rollouts.envs.kernel.row_tensors import HeldRows
from rollouts.policies.output_checks import head_inputs

if TYPE_CHECKING:
    from rollouts.collecting.asked import Asked

_CHOSEN = ("log_prob", "value", "entropy", "inputs")


class GroupArena:
    """The rows of one policy in a rollout."""

    def __init__(
        self,
        policy: DevicePolicy,
        wanted: Wanted,
        asked: Asked,
        kept_states: int,
        device: Any,
    ) -> None:
        """Makes the tensors: (T, N, ...), or (T, N, A, ...) where there are agents."""
        self.policy, self.wanted, self._asked = policy, wanted, asked
        self.steps = steps = asked.rollout_length
        rows = policy.rows
        self._shape = (rows.num_envs, *((rows.num_agents,) if rows.has_groups else ()))
        self._kept_states = kept_states

        def make(dtype: torch.dtype, shape: tuple[int, ...] = (), length: int = steps) -> Tensor:
            return torch.empty((length, *self._shape, *shape), dtype=dtype, device=device)

        names = head_inputs(rows.action_space)
        has_inputs = any(name in wanted.outputs for name in names)
        real, flag = torch.float32, torch.bool
        tensors = {
            "obs": make(getattr(torch, rows.obs_dtype), rows.obs_shape, steps + 1),
            "action": make(_action_dtype(rows), rows.action_space.shape or ()),
            "reward": make(real),
            "terminated": make(flag),
            "truncated": make(flag),
            "episode_return": make(torch.float64),
            "bootstrap_value": make(real),
            "log_prob": make(real),
            "value": make(real),
            "last_value": make(real, (), 1),
        }
        if rows.has_groups:
            tensors["active"] = make(flag)
        if policy.forward is not None or asked.keep_final_obs:
            tensors["final_obs"] = make(getattr(torch, rows.obs_dtype), rows.obs_shape)
        if "entropy" in wanted.outputs:
            tensors["entropy"] = make(real)
        if has_inputs:
            tensors["inputs"] = make(real, (sum(policy.head_sizes),))
        if wanted.returns is not None:
            tensors |= {name: make(real) for name in RETURNS}
        if policy.state_shapes:
            size = sum(math.prod(shape) for shape in policy.state_shapes)
            tensors["policy_state"] = make(real, (size,), kept_states)
        elif policy.forward is not None and policy.forward.memory is not None:
            for i, (shape, dtype) in enumerate(policy.forward.memory.parts):
                tensors[f"policy_state.{i}"] = make(dtype, shape, kept_states)
        self.tensors: dict[str, Tensor] = tensors

    def at(self, name: str, t: int) -> int | None:
        """Returns the address of row t of a tensor; None if there is no such tensor."""
        tensor = self.tensors.get(name)
        return (
            None if tensor is None else tensor.data_ptr() + t * tensor.stride(0) * tensor.itemsize
        )

    def launches(self, final_obs: Tensor, ended: Tensor) -> list[PolicyLaunch]:
        """Returns a launch before each step, which writes the last step's results, and a final one.

        Where torch computes the network there is one more launch: the one before it writes the
        results of the last step, so that final observations can be valued in between.

        Args:
          final_obs: Final observations of the episodes that ended in the last step, in `obs`'s
            layout.
          ended: (T, N) bool: of environments with agents.
        """
        forward = self.policy.forward
        launches = [self._launch(t) for t in range(self.steps + 1)]
        for t, launch in enumerate(launches[1:]):
            # the module has no outputs for final observations yet
            kept = self.at("final_obs", t) if forward is None else forward.no_inputs.data_ptr()
            self._see(launch, t, kept or final_obs.data_ptr(), ended)
        last = launches[-1]
        if forward is not None:
            last = self._launch(self.steps)
            last.begins = None
            launches.append(last)
        last.last_value = self.at("last_value", 0)
        if self.wanted.returns is not None:
            last.returns = self._returns()
        return launches

    def _launch(self, t: int) -> PolicyLaunch:
        launch = PolicyLaunch()
        forward = self.policy.forward
        launch.obs = self.at("obs", t) if forward is None else forward.inputs.data_ptr()
        if t in (0, self.steps):
            launch.begins = self.policy.begins.data_ptr()
        if t < self.steps:
            for name in ("action", *_CHOSEN):
                setattr(launch.chosen, name, self.at(name, t))
            if t < self._kept_states:
                launch.chosen.policy_state = self.at("policy_state", t)
        return launch

    def _see(self, launch: PolicyLaunch, t: int, final_obs: int, ended: Tensor) -> None:
        """Makes a launch write the results of step t."""
        seen = launch.seen
        for name in ("terminated", "truncated", "active", "bootstrap_value"):
            setattr(seen, name, self.at(name, t))
        seen.ended = ended[t].data_ptr()
        seen.final_obs = final_obs

    def _returns(self) -> ReturnsRows:
        assert self.wanted.returns is not None
        gamma, gae_lambda, n = self.wanted.returns.rule
        num_rows = self.policy.rows.num_rows
        names = ("reward", "value", "terminated", "truncated", "bootstrap_value", "last_value")
        fragment = FragmentArrays(
            steps=self.steps, envs=1, row=num_rows, **{name: self.at(name, 0) for name in names}
        )
        return ReturnsRows(
            fragment=fragment,
            advantage=self.at("advantage", 0),
            target=self.at("target", 0),
            gamma=gamma,
            gae_lambda=gae_lambda,
            n=n,
        )

    def rollout(
        self, env_id: Tensor, episode_length: Tensor, ended: Tensor, policy_version: int
    ) -> RolloutBatch[Tensor]:
        """Returns the tensors in the shape that callers get: (T, N * A, ...)."""
        final_obs = self._final_obs(ended)
        flat = {
            # rows of agents one after the other
            name: one.flatten(1, len(self._shape))
            for name, one in self.tensors.items()
        }
        agents = self.policy.rows.num_agents
        flat_shape = flat["reward"].shape
        obs, last_value = flat.pop("obs"), flat.pop("last_value")[0]
        flat.pop("final_obs", None)
        extras = {name: flat.pop(name) for name in ("active", *RETURNS) if name in flat}
        extras |= self._outputs(flat.pop("entropy", None), flat.pop("inputs", None))
        states = self._states(flat)
        if self._kept_states > 1:
            extras |= {f"policy_state.{i}": one for i, one in enumerate(states)}
        version = torch.full((1, 1), policy_version, device=obs.device)
        return RolloutBatch(
            **flat,
            obs=obs[:-1],
            last_obs=obs[-1],
            last_value=last_value,
            env_id=env_id,
            episode_length=episode_length.repeat_interleave(agents, 1)
            if self.policy.rows.has_groups
            else episode_length,
            policy_version=version.expand(flat_shape),
            extras=extras,
            policy_state=tuple(one[0] for one in states),
            final_obs=final_obs,
        )

    def _final_obs(self, ended: Tensor) -> Tensor | None:
        if not self._asked.keep_final_obs:
            return None
        final_obs = self.tensors["final_obs"]
        if not self.policy.rows.has_groups:
            return final_obs
        # the last observation of an agent that leaves early is in the next row
        is_over = ended.reshape(ended.shape + (1,) * (final_obs.ndim - 2))
        return torch.where(is_over, final_obs, self.tensors["obs"][1:]).flatten(1, 2)

    def _outputs(self, entropy: Tensor | None, inputs: Tensor | None) -> dict[str, Tensor]:
        found = {} if entropy is None else {"entropy": entropy}
        if inputs is None:
            return found
        space = self.policy.rows.action_space
        parts = torch.split(inputs, self.policy.head_sizes, -1)
        for name, part in zip(head_inputs(space), parts, strict=True):
            if name in self.wanted.outputs:
                if name != "logits":
                    # one standard deviation may count for all dimensions
                    shape = space.shape or ()
                    part = part.expand(*part.shape[:2], math.prod(shape))
                    part = part.reshape(*part.shape[:2], *shape)
                found[name] = part
        return found

    def _states(self, flat: dict[str, Tensor]) -> tuple[Tensor, ...]:
        """Removes the states from `flat`: (K, rows, *shape) each."""
        shapes, kept = self.policy.state_shapes, flat.pop("policy_state", None)
        if kept is None:
            names = [name for name in flat if name.startswith("policy_state.")]
            return tuple(flat.pop(name) for name in names)
        parts = torch.split(kept, [math.prod(shape) for shape in shapes], -1)
        return tuple(
            part.reshape(*part.shape[:2], *shape) for part, shape in zip(parts, shapes, strict=True)
        )


class DeviceArena(HeldRows):
    """The rows of all groups in a rollout, used again when none of them is referenced."""

    def __init__(
        self,
        env: Any,
        groups: dict[str, GroupArena],
        steps: int,
        graph: LaunchGraph | None = None,
    ) -> None:
        """Makes launches of a device's pool that write the groups' tensors, row after row.

        `graph` may record them.
        """
        self.groups, self.graph = groups, graph
        self._rows = env.steps.open_rows()
        self.launch = self.renew_launch()
        shape, device = (steps, env.num_envs), env.device
        self.ended = torch.empty(shape, dtype=torch.bool, device=device)
        self.episode_length = torch.empty(shape, dtype=torch.int32, device=device)
        finals = self._finals()
        self.policy_launches = {
            name: group.launches(final, self.ended)
            for (name, group), final in zip(groups.items(), finals, strict=True)
        }
        self.env_rows = [self._env_rows(t) for t in range(steps)]
        self.env_actions = [
            [
                group.tensors["action"][t]
                if group.policy.env_action is None
                else group.policy.env_action
                for group in groups.values()
            ]
            for t in range(steps)
        ]
        tensors = [one for group in groups.values() for one in group.tensors.values()]
        super().__init__([*tensors, self.ended, self.episode_length], [])

    def renew_launch(self) -> Launch:
        """Sets `launch` back to its initial state."""
        self.launch = type(self._rows.launch).from_buffer_copy(self._rows.launch)
        return self.launch

    @property
    def launch_bytes(self) -> bytes:
        """All arguments of a rollout's kernels except rows and actions, which stay the same."""
        launches = [one for all_of in self.policy_launches.values() for one in all_of]
        return b"".join(bytes(one) for one in (self.launch, *launches))

    def _finals(self) -> list[Tensor]:
        if isinstance(self.launch.rows, WorldRows):
            return [tensors["final_obs"] for tensors in self._rows.groups]
        return [self._rows.final_obs]

    def _env_rows(self, t: int) -> DeviceRows | WorldRows:
        rows: DeviceRows | WorldRows = type(self.launch.rows).from_buffer_copy(self.launch.rows)
        several = isinstance(rows, WorldRows)
        for g, group in enumerate(self.groups.values()):
            of_group = rows.groups[g] if several else rows
            of_group.obs = group.at("obs", t + 1)
            if "final_obs" in group.tensors:
                of_group.final_obs = group.at("final_obs", t)
            names = ["reward", "terminated", "truncated", "episode_return"]
            for name in names + ["active"] * several:
                setattr(of_group, name, group.at(name, t))
        rows.episode_length = self.episode_length[t].data_ptr()
        if several:
            rows.ended = self.ended[t].data_ptr()
        return rows


def _action_dtype(rows: ActorRows) -> torch.dtype:
    if isinstance(rows.action_space, spaces.Discrete):
        return torch.int64
    return torch.int32 if isinstance(rows.action_space, spaces.MultiDiscrete) else torch.float32
