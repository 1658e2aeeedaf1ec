# SPDX-License-Identifier: Apache-2.0
"""`DeviceCollector`: rollouts of a GPU's pool, whose policy a kernel computes beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rollouts.batch import MultiAgentRollout, RolloutBatch
from rollouts.checks import flag, whole_number
from rollouts.collecting.batched_env import check_autoreset
from rollouts.collecting.device_arena import DeviceArena, GroupArena
from rollouts.collecting.device_policy import ActorRows, DevicePolicy
from rollouts.collecting.device_torch import TorchForward
from rollouts.collecting.engine import (
    Engine,
    check_engine,
    native_of,
    observation_space_of,
    still_computes,
)
from rollouts.collecting.rows import by_group
from rollouts.collecting.turns import Turns
from rollouts.collecting.wanted import Wanted
from rollouts.device.graph import make_graphs
from rollouts.device.rows import RowRing
from rollouts.device.streams import SideStream
from rollouts.errors import ProtocolError, SpecError
from rollouts.policies.checks import check_policy
from rollouts.pool.engine import refuse
from rollouts.returns import Gae, Nstep

if TYPE_CHECKING:
    from rollouts.policies.protocol import Policy
    from rollouts.pool.multi_agent_env import MultiAgentVectorEnv
    from rollouts.pool.vector_env import VectorEnv

_ALONE = ""  # the group of environments with one agent


@dataclass(frozen=True, slots=True)
class _Begun:
    """A rollout that was launched, by weights of these versions of the groups' policies."""

    arena: DeviceArena
    versions: dict[str, int]


class DeviceCollector:
    """Yields rollouts of `rollout_length` steps of all environments of a GPU's pool.

    What `Collector` is for C++ pools. Environments, policy and returns
    are kernels: T + 1 launches of the policy and T of the environments make a rollout. Nothing is
    copied to the host, and `collect` returns before the device has done any of it: what a learner
    computes with the tensors waits on the same stream.

    Actions are drawn as in a C++ pool: for the same seed, weights and observations the same
    actions, log-probabilities and values, to the bit. Noise is a pure function of (seed, env_id,
    episode, step).

    With `engine="torch"` torch calls the policy's module between the launches, whatever it is made
    of and in which precision, with memory or without, and a kernel draws the actions by the same
    noise. A large network is faster so. `collect` then waits once, to value what truncated episodes
    ended with.

    With `prefetch=1` the device steps the next rollout while it learns from the last one, on a
    stream of its own. With `cuda_graph=True` the steps of a rollout are recorded once and started
    as one, which spares the host a launch for each.

    A rollout's tensors are its own as long as somebody holds one of them. What goes wrong on the
    device (a value that is not finite, say) is raised by `synchronize`.

    Not thread-safe; nobody else steps the environments meanwhile.
    """

    def __init__(
        self,
        env: VectorEnv[Tensor] | MultiAgentVectorEnv,
        policy: Policy | Mapping[str, Policy],
        rollout_length: int,
        *,
        outputs: Sequence[str] = (),
        returns: Gae | Nstep | None = None,
        engine: Engine = "auto",
        prefetch: int = 0,
        cuda_graph: bool = False,
        keep_final_obs: bool = False,
    ) -> None:
        """Takes a pool that nobody else steps; does not step it yet.

        Args:
          env: Of `make_vec(..., device="cuda", autoreset_mode="same_step")`.
          policy: A `TorchPolicy`, `RecurrentTorchPolicy` or `NativePolicy` whose module native code
            can read; its weights are read where they lie, before each rollout: best on the same
            device. Of environments with agents: group -> its policy, or one for all.
          rollout_length: Steps T.
          outputs: As of `Collector`.
          returns: As of `Collector`: extras["advantage"] and extras["target"] (T, B), the bits of
            `rollouts.returns`.
          engine: "native": kernels compute the policy. "torch": torch does, of policies of torch.
            "auto": kernels, of modules that native code can read, else torch.
          prefetch: 1: each rollout but the first is of the weights before the last update, as its
            `policy_version` says. Between two calls of `collect` nobody else may use the
            environments, and what reads a rollout is launched on the stream that calls `collect`.
          cuda_graph: True: Python code of the policy's module is run twice for each of the few
            rollouts that are held at once, and must not wait for the device.
          keep_final_obs: Whether rollouts have what episodes ended with, as a replay needs it.

        Raises:
          SpecError: The pool is none of a GPU or autoresets otherwise, rollout_length is below 1,
            prefetch is neither 0 nor 1, or the policy cannot be read, does not fit or has no such
            outputs. EngineError: As `make_vec`.
        """
        on_device: Any = getattr(env, "engine", None)
        if getattr(on_device, "device", None) is None:
            raise SpecError(
                f"env is a {type(env).__name__}, expected a pool of a GPU, as make_vec(..., "
                "device='cuda') makes it: rollouts.Collector takes the others"
            )
        check_autoreset(env)
        if cuda_graph and "graph" not in on_device.can:
            refuse(on_device, "graph")
        self._on_device = on_device
        self.env = env
        self._turns = Turns(env)
        self.rollout_length = whole_number("rollout_length", rollout_length, 1, 2**31 - 1)
        rows = _rows_of(env)
        groups: Any = getattr(env, "groups", None) or {_ALONE: None}
        self.policies: dict[str, Any] = by_group(policy, groups)
        for one in self.policies.values():
            check_policy(one)
        self._rows, self._engine = rows, check_engine(engine)
        self._keep_final_obs = flag("keep_final_obs", keep_final_obs)
        self._wanted = {
            name: Wanted(outputs, returns, one.action_space) for name, one in rows.items()
        }
        self._env_id = {name: _env_ids(env, one) for name, one in rows.items()}
        self._prefetches = bool(whole_number("prefetch", prefetch, 0, 1))
        self._side = SideStream(env.device)
        self._ahead: _Begun | None = None
        self._records = cuda_graph
        self._make_graph = (
            make_graphs(env.device, emulated=self._on_device.is_emulated)
            if cuda_graph
            else lambda: None
        )
        self._read_policies()
        self._must_reset = True
        self._last_obs: dict[str, Tensor] = {}

    def __iter__(self) -> Iterator[Any]:
        """Collects rollouts for ever."""
        while True:
            yield self.collect()

    def reset(self) -> None:
        """Has the next rollout begin with new episodes; one that was begun is dropped."""
        self._side.join()
        self._ahead = None
        self._turns.forget()
        self._must_reset = True

    def collect(self) -> Any:
        """Launches T steps of every environment and returns what they will have written.

        Returns:
          A `RolloutBatch` of tensors, or of environments with agents a `MultiAgentRollout`.

        Raises:
          SpecError: A policy's module has got another layer that cannot be read, or does what a
            CUDA graph cannot record. ClosedError: The environments were closed. ProtocolError:
            Somebody else has used them since the last rollout; the next one begins new episodes.
        """
        try:
            self._turns.check()
        except ProtocolError:
            self.reset()
            raise
        found = self._finish(self._ahead or self._begin())
        self._ahead = None
        if self._prefetches:
            # what is wrong with the weights is raised by the next call, which begins one itself
            with suppress(SpecError):
                self._ahead = self._begin()
        return found.get(_ALONE) or MultiAgentRollout(found, self.env.num_envs)

    def synchronize(self) -> None:
        """Waits until the device has done what was launched.

        Raises:
          EnvError: Something went wrong there since the last time; it names the env_id.
        """
        self.env.synchronize()

    def close(self) -> None:
        """Closes the environments; may be called twice."""
        # what was begun still writes their memory
        self._side.join()
        self._ahead = None
        self.env.close()

    def _read_policies(self) -> None:
        env = self.env
        read: dict[str, DevicePolicy] = {}
        kept = {}
        for name, policy in self.policies.items():
            rows = self._rows[name]
            try:
                acting = self._acting_of(policy, rows, observation_space_of(env, name))
                self._wanted[name].check(policy, acting.native)
            except SpecError as error:
                of = f" of group {name!r}" if name else ""
                raise SpecError(f"the policy{of} cannot act on the device: {error}") from error
            read[name] = acting
            keeps_all = getattr(policy, "keeps_states", False)
            kept[name] = self.rollout_length if keeps_all else 1

        def make(shape: tuple[int, ...]) -> DeviceArena:
            groups = {
                name: GroupArena(
                    acting,
                    self._wanted[name],
                    self.rollout_length,
                    kept[name],
                    env.device,
                    keep_final_obs=self._keep_final_obs,
                )
                for name, acting in read.items()
            }
            return DeviceArena(env, groups, self.rollout_length, self._make_graph())

        self._acting, self._ring = read, RowRing(env.num_envs, make)

    def _acting_of(self, policy: Any, rows: ActorRows, obs_space: Any) -> DevicePolicy:
        if self._engine == "torch":
            return self._with_torch(policy, rows)
        try:
            native = native_of(policy, obs_space)
            return DevicePolicy(native, rows, self.env.device, emulated=self._on_device.is_emulated)
        except SpecError as error:
            if self._engine == "native":
                raise
            try:
                return self._with_torch(policy, rows)
            except SpecError:
                raise error from None

    def _with_torch(self, policy: Any, rows: ActorRows) -> DevicePolicy:
        device, emulated = self.env.device, self._on_device.is_emulated
        forward = TorchForward(policy, rows, device, is_copied=self._prefetches)
        if self._records and forward.memory is not None:
            raise SpecError(
                "cuda_graph=True of a policy with memory that torch computes, whose states lie "
                "elsewhere in each rollout: leave cuda_graph out"
            )
        return DevicePolicy(forward.native, rows, device, emulated=emulated, forward=forward)

    def _begin(self) -> _Begun:
        """Launches a rollout by the policies as they are now."""
        if not all(
            still_computes(one.native, self.policies[name]) for name, one in self._acting.items()
        ):
            before = self._acting
            self._read_policies()
            for name, one in self._acting.items():
                one.go_on_from(before[name])
        versions = {name: policy.policy_version for name, policy in self.policies.items()}
        for acting in self._acting.values():
            acting.refresh()
        if self._must_reset:
            self._side.join()
            obs, _ = self.env.reset()
            obs = obs if isinstance(obs, dict) else {next(iter(self._rows)): obs}
            self._last_obs, self._must_reset = dict(obs), False
            for acting in self._acting.values():
                if acting.forward is not None and acting.forward.memory is not None:
                    acting.forward.memory.reset()
        arena = self._ring.take()
        for name, group in arena.groups.items():
            group.tensors["obs"][0].copy_(self._last_obs[name])
        self._last_obs = {name: one.tensors["obs"][-1] for name, one in arena.groups.items()}
        self._on_device.steps.refill(arena.renew_launch())
        for name in arena.groups:
            for launch in arena.policy_launches[name]:
                self._acting[name].fill(launch)
                launch.clock, launch.fault = arena.launch.clock, arena.launch.fault
        # a rollout that raises leaves the environments somewhere in it
        self._must_reset = True
        if self._prefetches:
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
        self._on_device.count_steps(self.rollout_length)

    def _steps(self, arena: DeviceArena) -> None:
        """T + 1 launches of each policy, and between them T of the environments."""
        for t in range(self.rollout_length):
            for name in arena.groups:
                self._act(arena, name, t)
            arena.launch.rows = arena.env_rows[t]
            self._on_device.steps.step_rows(arena.launch, arena.env_actions[t])
        for name in arena.groups:
            self._act(arena, name, self.rollout_length)

    def _act(self, arena: DeviceArena, name: str, t: int) -> None:
        acting = self._acting[name]
        if acting.forward is not None:
            acting.forward.run(arena.groups[name].tensors, t, arena.ended)
        acting.launch(arena.policy_launches[name][t])

    def _finish(self, begun: _Begun) -> dict[str, RolloutBatch[Tensor]]:
        """Values what truncated episodes ended with, where torch does that."""
        arena = begun.arena
        self._side.join()
        for name, group in arena.groups.items():
            acting = group.policy
            if acting.forward is not None:
                acting.forward.bootstrap(group.tensors, group.tensors["final_obs"])
                acting.launch(arena.policy_launches[name][self.rollout_length + 1])
        return {
            name: group.rollout(
                self._env_id[name], arena.episode_length, arena.ended, begun.versions[name]
            )
            for name, group in arena.groups.items()
        }


def _rows_of(env: Any) -> dict[str, ActorRows]:
    """Whose actions there are to choose, by group."""
    dtypes = env.engine.steps.obs_dtypes
    if not env.env_spec.groups:
        space, actions = env.single_observation_space, env.single_action_space
        return {
            _ALONE: ActorRows(env.num_envs, 1, 0, 1, False, space.shape or (), dtypes[0], actions)
        }
    found, first = {}, 0
    for (name, group), dtype in zip(env.groups.items(), dtypes, strict=True):
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


def _env_ids(env: Any, rows: ActorRows) -> Tensor:
    """(rows,) int32: of agents the environment's times A, and their places."""
    first = env.env_id_offset * rows.num_agents
    return torch.arange(first, first + rows.num_rows, dtype=torch.int32, device=env.device)
