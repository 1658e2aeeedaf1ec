# SPDX-License-Identifier: Apache-2.0
"""`MultiAgentVectorEnv`: the interface of environments with several agents each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from rollouts import _native
from rollouts.batch import ENV_ID, EPISODE_LENGTH
from rollouts.checks import check_collects
from rollouts.envs.agent_groups import Grouped, MultiAgentBatch
from rollouts.envs.agent_rows import AgentRows
from rollouts.envs.engine import Arrays, Engine, refuse
from rollouts.envs.face import PoolFace, check_is_engine
from rollouts.envs.of_engine import OfEngine
from rollouts.errors import DTypeError, SpecError

if TYPE_CHECKING:
    from rollouts.policies.native import FrozenPolicy, NativePolicy
    from rollouts.specs import AgentGroup

Array = npt.NDArray[Any]
Info = dict[str, Any]
T = TypeVar("T")
# the arrays of a group, in the native order
_GROUP_ARRAYS = (
    "obs",
    "reward",
    "terminated",
    "truncated",
    "active",
    "episode_return",
    "final_obs",
)


class MultiAgentVectorEnv(PoolFace[Any]):
    """N environments with several agents each, stepped as a batch by an engine.

    The counterpart of VectorEnv, with the same `send` and `recv`, seeds, autoreset modes, options,
    states and failures. Agents are in groups with equal spaces. An array that has one row per
    environment in VectorEnv is a dict of group -> (B, A, ...) here, or the array alone where the
    environment has one group.

    An agent may leave before its episode ends: it is `terminated` once, and from the next step on
    it is not `active`. Its row is given to no other agent; its actions are checked and ignored, and
    its reward is 0. The next episode has all agents again.

    Attributes:
      groups: name -> `AgentGroup`, in order.
      agents: Names of all agents as in PettingZoo, group after group.
      single_observation_spaces, single_action_spaces: group -> space of one agent.
      observation_space, action_space: Spaces of a batch, as `step` returns and takes it.
      num_envs, batch_size, num_threads, env_id_offset, env_spec, autoreset_mode, device: as
        VectorEnv.
    """

    groups: dict[str, AgentGroup]
    agents: list[str]
    single_observation_spaces: dict[str, spaces.Space[Any]]
    single_action_spaces: dict[str, spaces.Space[Any]]
    observation_space: spaces.Space[Any]
    action_space: spaces.Space[Any]

    def __init__(self, engine: Engine) -> None:
        """Takes over an engine, which `close` closes too; `make_vec` makes both.

        Raises:
          SpecError: Its environments have one agent.
        """
        check_is_engine("MultiAgentVectorEnv", engine)
        if not engine.groups:
            engine.close()
            raise SpecError(f"{engine.env_spec.id} has one agent: make_vec makes a VectorEnv of it")
        super().__init__(engine)
        self._set_groups(engine.groups, self.batch_size)
        self._same_step = self.autoreset_mode is AutoresetMode.SAME_STEP
        self._by_group = _native.RowsByGroup(tuple(self.groups), self._same_step)
        # most engines add no columns, and a call that is left out saves time in each step
        self._five = self._with_columns if engine.has_columns else self._by_group.step

    def __getattr__(self, name: str) -> Any:
        # Python calls this only where there is no such attribute
        member = getattr(type(self), name, None)
        if isinstance(member, OfEngine):
            # raises the error that gives the reason
            member.of(self.engine)
        known = f"{type(self).__name__!r} object has no attribute {name!r}"
        if name in ("single_observation_space", "single_action_space"):
            raise AttributeError(
                f"{known}: its agents have {name}s, by group. Collect them with "
                "rollouts.Collector, or give what expects one agent as_single_agent()"
            )
        raise AttributeError(known)

    def xla(self) -> tuple[Any, Any, Any, Any]:
        """Raises SpecError: functions for XLA are for environments with one agent only."""
        raise SpecError("xla() is for environments with one agent, and these have several")

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Grouped, Info]:
        """Starts new episodes and returns their first observations.

        Args:
          seed, options: As `VectorEnv.reset`; numbers of agents cannot change.

        Returns:
          obs and info, as `step`.

        Raises:
          As `VectorEnv.reset`.
        """
        obs, _, _, _, info = self._five(self.engine.reset(seed, options))
        return obs, info

    def step(
        self,
        actions: Grouped,
        env_id: npt.ArrayLike | None = None,
        *,
        out: dict[str, Any] | None = None,
    ) -> tuple[Grouped, Grouped, Grouped, Grouped, Info]:
        """Steps the environments and waits for a batch: `send` and `recv` in one call.

        Args:
          actions: group -> (B, A, *action_shape), one row per environment stepped. Actions of
            agents that left are ignored, but have to be in the action space too.
          env_id: As `VectorEnv.send`.
          out: As `VectorEnv.send`; arrays of agents as {name: {group: array}}.

        Returns:
          obs, reward, terminated, truncated and info; see `MultiAgentBatch` for the first four.
          `info` has active and episode_return as in `MultiAgentBatch`, env_id (B,) int32,
          episode_length (B,) int32 and ended (B,) bool. Same-step mode adds final_obs, valid where
          ended. on_env_error="reset" adds env_error and _env_error as VectorEnv does.

        Raises:
          SpecError, DTypeError: Wrong groups, shape, dtype or value; the message names group,
            agent and row. Nothing was sent then.
          ProtocolError, EnvError, ClosedError: As `VectorEnv.step`.
        """
        ordered = self._by_group.in_order(actions)
        if ordered is None:
            ordered = self._in_order(actions)
        if out is not None:
            out = _out_of_groups(self.groups, out)
        return self._five(self.engine.step(ordered, env_id, out))

    def send(
        self,
        actions: Grouped,
        env_id: npt.ArrayLike | None = None,
        *,
        out: dict[str, Any] | None = None,
    ) -> None:
        """Starts stepping environments and returns at once; see `step`."""
        if out is not None:
            out = _out_of_groups(self.groups, out)
        self.engine.send(self._in_order(actions), env_id, out)

    def recv(
        self,
        timeout_s: float | None = None,
        *,
        min_envs: int | None = None,
        max_envs: int | None = None,
    ) -> tuple[Grouped, Grouped, Grouped, Grouped, Info]:
        """Waits for the next batch; see `VectorEnv.recv` for the arguments and errors.

        Returns:
          As `step`.
        """
        return self._five(self.engine.recv(timeout_s, min_envs, max_envs))

    def drain(
        self, timeout_s: float | None = None
    ) -> tuple[Grouped, Grouped, Grouped, Grouped, Info]:
        """Waits for everything in flight and returns it as one batch; see `VectorEnv.drain`."""
        return self._five(self.engine.drain(timeout_s))

    def render(self, env_ids: npt.ArrayLike | None = None) -> tuple[npt.NDArray[np.uint8], ...]:
        """Draws environments as they are now, which changes nothing about them.

        Scenarios of MPE are drawn as in mpe2, except for the font of agents' messages, and for the
        agents of simple_crypto, which have no positions. In Tag, agents that left the episode are
        drawn faintly. Works with any render_mode, which only wrappers read. Needs pygame (extra
        `render`).

        Args:
          env_ids: (n,) int or int, global ids. None: all environments, in order.

        Returns:
          n frames (height, width, 3) uint8: 700 x 700 for MPE, and for Tag as large as the options
          width and height of `make_vec`.

        Raises:
          ProtocolError: An environment is in flight (call `drain` first) or was never reset.
          SpecError, DTypeError: Not ids of this environment. ClosedError: it was closed.
          EngineError: pygame is missing.
        """
        return self.engine.render(env_ids, None)

    def rollout(
        self,
        num_steps: int,
        actions: Grouped = "random",
        *,
        action_seed: int = 0,
        record: bool = False,
    ) -> tuple[Grouped, Grouped, Grouped, Grouped, Info]:
        """Steps all environments `num_steps` times by one launch; see `VectorEnv.rollout`."""
        if not (isinstance(actions, str) and actions == "random"):
            actions = self._in_order(actions)
        arrays, taken = self.engine.rollout(num_steps, actions, action_seed, record)
        five = self._five(arrays)
        if taken:
            five[4]["action"] = self._grouped(taken)
        return five

    def as_single_agent(self) -> AgentRows:
        """Agents as rows of a Gymnasium vector environment, for a policy that they share.

        Returns:
          A `gymnasium.vector.VectorEnv` of N * A environments over this one, for Collector,
          Stable-Baselines3, CleanRL or Tianshou. Step either, not both.

        Raises:
          SpecError: Groups with unlike spaces, an asynchronous pool, no autoreset, or a device.
        """
        if self.device is not None:
            refuse(self.engine, "agent_rows")
        return AgentRows(self)

    def collect(
        self,
        policies: Mapping[str, NativePolicy | FrozenPolicy],
        arrays: Mapping[str, dict[str, Array]],
        *,
        rules: dict[str, Any] | None = None,
        poll: Callable[[], None] | None = None,
    ) -> dict[str, Array] | None:
        """Steps all environments T times with a policy for each group, by the pool's threads.

        `rollouts.Collector` calls it. It works as `VectorEnv.collect`, but B counts the agents of a
        group instead of environments: the A agents of the first environment, then those of the
        next.

        Args:
          policies: group -> policy; groups may share one.
          arrays: group -> the arrays of `VectorEnv.collect`, with
            active           (T, B) bool              the agent took part in the step; if it left
                                                      before, it has no reward, and ends truncated
                                                      with the others
          rules, poll: As `VectorEnv.collect`.
        Returns:
          group -> (E, obs_bytes) uint8 by step and row, or None.
        Raises:
          As `VectorEnv.collect`.
        """
        acts = _of_groups(self.groups, "policies", policies)
        of_groups = _of_groups(self.groups, "arrays", arrays)
        for policy, one in zip(acts, of_groups, strict=True):
            check_collects(policy, one, self.engine.why_not_collects)
        final_obs = self.engine.collect(acts, of_groups, rules or {}, poll, None)
        return None if final_obs is None else dict(zip(self.groups, final_obs, strict=True))

    def recv_batch(
        self,
        timeout_s: float | None = None,
        *,
        min_envs: int | None = None,
        max_envs: int | None = None,
    ) -> MultiAgentBatch:
        """Waits for the next batch; see `VectorEnv.recv` for the arguments and errors."""
        arrays = self.engine.recv(timeout_s, min_envs, max_envs)
        told = self.engine.columns(arrays)
        grouped = dict(zip(_GROUP_ARRAYS, self._by_group.columns(arrays), strict=True))
        if not self._same_step:
            grouped["final_obs"] = None
        if "joins" in self.engine.can:
            # the arrays of agents that join come before those of groups
            first = len(arrays) - (len(_GROUP_ARRAYS) + 1) * len(self.groups)
            grouped["joined"] = self._grouped(arrays[first : first + len(self.groups)])
        env_id = arrays[ENV_ID]
        failed = told.get("_env_error")
        if failed is None:
            # False for each environment, as no id is below 0; an array of the same kind and device
            failed = env_id < 0
        return MultiAgentBatch(
            **grouped,
            ended=self._by_group.ended(arrays),
            failed=failed,
            env_id=env_id,
            episode_length=arrays[EPISODE_LENGTH],
        )

    def _with_columns(self, arrays: Arrays) -> tuple[Grouped, Grouped, Grouped, Grouped, Info]:
        five = self._by_group.step(arrays)
        five[4].update(self.engine.columns(arrays))
        return five

    def _set_groups(self, groups: Sequence[AgentGroup], rows: int) -> None:
        """Sets the public attributes of the groups; `rows` is the size of a batch."""
        self.groups = {group.name: group for group in groups}
        self.agents = [agent for group in groups for agent in group.agents]
        self.single_observation_spaces = {
            group.name: group.single_observation_space for group in groups
        }
        self.single_action_spaces = {group.name: group.single_action_space for group in groups}
        self.observation_space = self._batch_space(self.single_observation_spaces, rows)
        self.action_space = self._batch_space(self.single_action_spaces, rows)

    def _batch_space(self, single: Mapping[str, spaces.Space[Any]], rows: int) -> spaces.Space[Any]:
        batched = {
            name: batch_space(batch_space(space, self.groups[name].num_agents), rows)
            for name, space in single.items()
        }
        return spaces.Dict(batched) if len(batched) > 1 else next(iter(batched.values()))

    def _grouped(self, arrays: Sequence[Any]) -> Grouped:
        """One array for each group, in their order, as callers get them."""
        if len(self.groups) == 1:
            return arrays[0]
        return dict(zip(self.groups, arrays, strict=True))

    def _in_order(self, actions: Grouped) -> list[Any]:
        """The groups' actions in the order of the groups, whatever the order of the dict."""
        is_mapping = isinstance(actions, Mapping)
        if len(self.groups) == 1 and not is_mapping:
            return [actions]
        if is_mapping and actions.keys() == self.groups.keys():
            return [actions[name] for name in self.groups]
        expected = ", ".join(repr(name) for name in self.groups)
        if not is_mapping:
            raise SpecError(
                f"actions must be a dict of an array for each group ({expected}), got "
                f"{type(actions).__name__}"
            )
        missing = [name for name in self.groups if name not in actions]
        unknown = [name for name in actions if name not in self.groups]
        agents = [name for name in unknown if name in self.agents]
        raise SpecError(
            f"actions has {'no group' if missing else 'the unknown group'} "
            f"{(missing or unknown)[0]!r}, expected an array for each of {expected}"
            + (f"; {agents[0]!r} is an agent, not a group" if agents else "")
        )


def _of_groups(groups: Mapping[str, AgentGroup], what: str, given: Mapping[str, T]) -> list[T]:
    """Values of the groups, in their order."""
    if not isinstance(given, Mapping) or given.keys() != groups.keys():
        told = list(given) if isinstance(given, Mapping) else type(given).__name__
        raise SpecError(f"{what} must be a dict with one for each of {list(groups)}, got {told}")
    return [given[name] for name in groups]


def _out_of_groups(groups: Mapping[str, AgentGroup], out: object) -> dict[str, Any]:
    """`out` with the arrays of agents as dicts by group, even where there is only one group."""
    if not isinstance(out, Mapping):
        raise DTypeError(f"out must be a dict of arrays such as {{'obs': array}}, got {out!r}")
    if len(groups) > 1:
        return dict(out)
    (group,) = groups
    return {
        name: {group: array} if name in _GROUP_ARRAYS and not isinstance(array, Mapping) else array
        for name, array in out.items()
    }
