# SPDX-License-Identifier: Apache-2.0
"""`OnDevice`: rollouts of a device's pool, with policies computed there by kernels or torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rollouts.batch import RolloutBatch
from rollouts.collecting.actor_rows import ActorRows
from rollouts.collecting.batched_env import device_pool
from rollouts.collecting.deadline import Deadline
from rollouts.collecting.device_arena import DeviceArena, GroupArena
from rollouts.collecting.device_policy import DevicePolicy
from rollouts.collecting.device_torch import TorchForward
from rollouts.collecting.policy_engine import native_of, observation_space_of, still_computes
from rollouts.collecting.rows import ALONE
from rollouts.collecting.turns import Turns
from rollouts.collecting.wanted import Wanted
from rollouts.envs.kernel.graph import make_graphs
from rollouts.envs.kernel.row_tensors import RowRing
from rollouts.envs.kernel.streams import SideStream
from rollouts.errors import ProtocolError, SpecError
from rollouts.machine.torch_threads import torch_threads
from rollouts.policies.output_checks import check_policy

if TYPE_CHECKING:
    from rollouts.collecting.asked import Asked
    from rollouts.policies.protocol import Policy


@dataclass(frozen=True, slots=True)
class _Begun:
    """A rollout that was launched, with the versions of the groups' weights."""

    arena: DeviceArena
    versions: dict[str, int]


class OnDevice:
    """Steps a device's pool with kernels that compute the policies, or with torch between them.

    T + 1 launches of each policy and T of the environments make a rollout. Nothing is copied to the
    host. With torch a policy's module is called between the launches, and a kernel draws the
    actions by the same noise.
    """

    def __init__(
        self,
        env: Any,
        policies: Mapping[str, Policy],
        asked: Asked,
    ) -> None:
        """Takes the policy of each group, and the keywords of a `Collector`.

        Raises:
          SpecError: A policy cannot be read, does not fit or lacks one of the outputs. EngineError:
            As `make_vec`.
        """
        self._env = env
        self._pool: Any = device_pool(env)
        self._policies, self._asked = policies, asked
        for one in policies.values():
            check_policy(one)
        self._length = asked.rollout_length
        self._turns = Turns(env)
        self._rows = _rows_of(env, self._pool)
        self._wanted = {
            name: Wanted(asked.outputs, asked.returns, one.action_space)
            for name, one in self._rows.items()
        }
        self._env_id = {name: self._env_ids(one) for name, one in self._rows.items()}
        self._side = SideStream(self._pool.device)
        self._ahead: _Begun | None = None
        self._must_reset = True
        self._last_obs: dict[str, Tensor] = {}
        self._make_graph: Callable[[], Any] = lambda: None
        if asked.cuda_graph:
            pool = self._pool
            self._make_graph = make_graphs(pool.device, emulated=pool.is_emulated)
        self._read_policies()

    @property
    def engine(self) -> str:
        """ "native" where kernels compute all policies, else "torch"."""
        return "torch" if self.why_not_native else "native"

    def reset(self) -> None:
        """Makes the next rollout begin with new episodes; a rollout that was begun is dropped."""
        self._side.join()
        self._ahead = None
        self._turns.forget()
        self._must_reset = True

    def collect(self, deadline: Deadline) -> dict[str, RolloutBatch[Tensor]]:
        """Launches T steps and returns group -> its batch, whose tensors are filled later.

        Raises:
          As `Collector.collect`. SpecError: A policy's module has got another layer that cannot be
          read, or does what a CUDA graph cannot record. ClosedError: The environments were closed.
        """
        self._pool.check_open()
        try:
            self._turns.check()
        except ProtocolError:
            self.reset()
            raise
        with torch_threads(self._asked.num_torch_threads):
            found = self._finish(self._ahead or self._begin())
            self._ahead = None
            if self._asked.prefetch:
                # errors in the weights are raised by the next call, which begins a rollout itself
                with suppress(SpecError):
                    self._ahead = self._begin()
        return found

    def synchronize(self) -> None:
        """Waits for the device; raises EnvError for what went wrong there."""
        self._env.synchronize()

    def close(self) -> None:
        """Waits for a rollout that was begun, which still writes to the environments' memory."""
        self._side.join()
        self._ahead = None

    def _read_policies(self) -> None:
        """Reads the policies, and makes room for their rollouts."""
        pool, steps = self._pool, self._length
        read: dict[str, DevicePolicy] = {}
        kept = {}
        self.why_not_native = ""
        for name, policy in self._policies.items():
            try:
                read[name] = self._acting_of(name, policy)
                self._wanted[name].check(policy, read[name].native)
            except SpecError as error:
                of = f" of group {name!r}" if name else ""
                raise SpecError(f"the policy{of} cannot act on the device: {error}") from error
            keeps_all = getattr(policy, "keeps_states", False)
            kept[name] = steps if keeps_all else 1

        def make(shape: tuple[int, ...]) -> DeviceArena:
            groups = {
                name: GroupArena(
                    acting,
                    self._wanted[name],
                    self._asked,
                    kept[name],
                    pool.device,
                )
                for name, acting in read.items()
            }
            return DeviceArena(pool, groups, steps, self._make_graph())

        self._acting, self._ring = read, RowRing(self._env.num_envs, make)

    def _acting_of(self, name: str, policy: Any) -> DevicePolicy:
        rows = self._rows[name]
        if self._asked.engine == "torch":
            self.why_not_native = "engine='torch' was asked for"
            return self._with_torch(policy, rows)
        try:
            native = native_of(policy, observation_space_of(self._env, name))
            emulated, dtype = self._pool.is_emulated, self._asked.policy_dtype
            return DevicePolicy(native, rows, self._pool.device, emulated=emulated, dtype=dtype)
        except SpecError as error:
            # torch would not compute in the precision that was asked for
            if self._asked.engine == "native" or self._asked.policy_dtype != "float32":
                raise
            self.why_not_native = f"group {name!r}: {error}" if name else str(error)
            try:
                return self._with_torch(policy, rows)
            except SpecError:
                raise error from None

    def _with_torch(self, policy: Any, rows: ActorRows) -> DevicePolicy:
        device, emulated = self._pool.device, self._pool.is_emulated
        forward = TorchForward(policy, rows, device, is_copied=bool(self._asked.prefetch))
        if self._asked.cuda_graph and forward.memory is not None:
            raise SpecError(
                "cuda_graph=True of a policy with memory that torch computes, whose states lie "
                "elsewhere in each rollout: leave cuda_graph out"
            )
        return DevicePolicy(forward.native, rows, device, emulated=emulated, forward=forward)

    def _env_ids(self, rows: ActorRows) -> Tensor:
        """(rows,) int32: env_ids; with agents, env_id * A + the agent's index."""
        first = self._env.env_id_offset * rows.num_agents
        device = self._pool.device
        return torch.arange(first, first + rows.num_rows, dtype=torch.int32, device=device)

    def _begin(self) -> _Begun:
        """Launches a rollout with the present policies."""
        if not all(
            still_computes(one.native, self._policies[name]) for name, one in self._acting.items()
        ):
            before = self._acting
            self._read_policies()
            for name, one in self._acting.items():
                one.go_on_from(before[name])
        versions = {name: policy.policy_version for name, policy in self._policies.items()}
        for acting in self._acting.values():
            acting.refresh()
        if self._must_reset:
            self._side.join()
            obs, _ = self._env.reset()
            obs = obs if isinstance(obs, dict) else {next(iter(self._rows)): obs}
            self._last_obs, self._must_reset = dict(obs), False
            for acting in self._acting.values():
                if acting.forward is not None and acting.forward.memory is not None:
                    acting.forward.memory.reset()
        arena = self._ring.take()
        for name, group in arena.groups.items():
            group.tensors["obs"][0].copy_(self._last_obs[name])
        self._last_obs = {name: one.tensors["obs"][-1] for name, one in arena.groups.items()}
        self._pool.steps.refill(arena.renew_launch())
        for name in arena.groups:
            for launch in arena.policy_launches[name]:
                self._acting[name].fill(launch)
                launch.clock, launch.fault = arena.launch.clock, arena.launch.fault
        # a rollout that raises leaves the environments in the middle
        self._must_reset = True
        if self._asked.prefetch:
            with self._side.begin():
                self._run(arena)
        else:
            self._run(arena)
        self._must_reset = False
        self._turns.keep()
        return _Begun(arena, versions)

    def _run(self, arena: DeviceArena) -> None:
        if arena.graph is None:
            self._steps(arena)
        else:
            key = (arena.launch_bytes, *(one.key for one in self._acting.values()))
            arena.graph.run(key, lambda: self._steps(arena))
        self._pool.count_steps(self._length)

    def _steps(self, arena: DeviceArena) -> None:
        """T + 1 launches of each policy, and between them T of the environments."""
        for t in range(self._length):
            for name in arena.groups:
                self._act(arena, name, t)
            arena.launch.rows = arena.env_rows[t]
            self._pool.steps.step_rows(arena.launch, arena.env_actions[t])
        for name in arena.groups:
            self._act(arena, name, self._length)

    def _act(self, arena: DeviceArena, name: str, t: int) -> None:
        acting = self._acting[name]
        if acting.forward is not None:
            acting.forward.run(arena.groups[name].tensors, t, arena.ended)
        acting.launch(arena.policy_launches[name][t])

    def _finish(self, begun: _Begun) -> dict[str, RolloutBatch[Tensor]]:
        """Values the final observations of truncated episodes, if torch computes the values."""
        arena = begun.arena
        self._side.join()
        for name, group in arena.groups.items():
            acting = group.policy
            if acting.forward is not None:
                acting.forward.bootstrap(group.tensors, group.tensors["final_obs"])
                acting.launch(arena.policy_launches[name][self._length + 1])
        return {
            name: group.rollout(
                self._env_id[name], arena.episode_length, arena.ended, begun.versions[name]
            )
            for name, group in arena.groups.items()
        }


def _rows_of(env: Any, pool: Any) -> dict[str, ActorRows]:
    """Returns the rows whose actions must be chosen, by group."""
    dtypes, groups = pool.steps.obs_dtypes, getattr(env, "groups", None)
    if not groups:
        space, actions = env.single_observation_space, env.single_action_space
        return {
            ALONE: ActorRows(env.num_envs, 1, 0, 1, False, space.shape or (), dtypes[0], actions)
        }
    found, first = {}, 0
    for (name, group), dtype in zip(groups.items(), dtypes, strict=True):
        found[name] = ActorRows(
            env.num_envs,
            group.num_agents,
            first,
            len(env.agents),
            True,
            group.single_observation_space.shape or (),
            dtype,
            group.single_action_space,
        )
        first += group.num_agents
    return found
