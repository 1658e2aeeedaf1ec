# SPDX-License-Identifier: Apache-2.0
"""Actions of agents by the modules that act for them: one forward pass per module."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from ray.rllib.core.columns import Columns
from ray.rllib.env.multi_agent_episode import MultiAgentEpisode

from rollouts.errors import SpecError
from rollouts.specs import AgentGroup

from .actions import ActionScaling, check_spaces, choose, forwards, to_numpy, to_tensor
from .agents_env import idle_action

Array = NDArray[Any]


class ModuleOutputs(NamedTuple):
    """The outputs of all modules in one step.

    Attributes:
      actions: group -> (N * A, ...) as the modules chose them.
      for_env: group -> (N, A, ...) as the pool takes them.
      extras: group -> name -> (N * A, ...), the modules' other outputs.
    """

    actions: dict[str, Array]
    for_env: dict[str, Array]
    extras: dict[str, dict[str, Array]]


class _Share(NamedTuple):
    """The rows of a group that a module acts for; None: all of them."""

    group: str
    rows: Array | None


class AgentActions:
    """Calls the modules for all agents of all environments.

    Agents that left get the action 0, which is ignored.

    Attributes:
      said: module -> names of its outputs other than actions, since the last `forget`.
      num_acting: Agents that act in the next step.
      agent_steps, module_steps: Steps by agent and by module since the last `forget`.
    """

    def __init__(
        self, groups: Mapping[str, AgentGroup], num_envs: int, *, normalize: bool, clip: bool
    ) -> None:
        """Acts for N environments with these groups; `normalize`, `clip`: as in RLlib's config."""
        self._groups, self._num_envs = groups, num_envs
        self._scale = {
            name: ActionScaling(group.single_action_space, normalize=normalize, clip=clip)
            for name, group in groups.items()
        }
        self._idle = {
            name: idle_action(group.single_action_space) for name, group in groups.items()
        }
        self._shares: dict[str, list[_Share]] = {}
        self._agent_counts: Counter[str] = Counter()
        # (group, output) -> its shape and dtype, and the module that first returned it
        self._kinds: dict[tuple[str, str], tuple[tuple[Any, Any], str]] = {}
        self.num_acting = 0
        self.forget()

    def forget(self) -> None:
        """Begins to count anew."""
        self.said: dict[str, set[str]] = {}
        self.agent_steps: Counter[str] = Counter()
        self.module_steps: Counter[str] = Counter()

    def assign(self, episodes: Sequence[MultiAgentEpisode], acting: Mapping[str, Array]) -> None:
        """Assigns agents to modules, by `module_for` of each environment's episode.

        Args:
          episodes: One for each environment.
          acting: group -> (N * A,) bool, the agents that act in the next step.
        """
        self._shares, self._agent_counts = {}, Counter()
        for name, group in self._groups.items():
            modules = np.array(
                [[episode.module_for(agent) for agent in group.agents] for episode in episodes],
                object,
            ).ravel()
            for module_id in dict.fromkeys(modules[acting[name]]):
                rows = (modules == module_id) & acting[name]
                share = _Share(name, None if rows.all() else rows.nonzero()[0])
                self._shares.setdefault(module_id, []).append(share)
            counts = acting[name].reshape(self._num_envs, -1).sum(0).tolist()
            self._agent_counts.update(dict(zip(group.agents, counts, strict=True)))
        self._module_counts = {
            module_id: sum(len(self._rows(share)) for share in shares)
            for module_id, shares in self._shares.items()
        }
        self.num_acting = self._agent_counts.total()

    def count(self) -> None:
        """Counts a step of all agents that act."""
        self.agent_steps.update(self._agent_counts)
        self.module_steps.update(self._module_counts)

    def act(
        self,
        modules: Any,
        obs: Mapping[str, Array],
        device: torch.device | str | None,
        *,
        explore: bool,
        t: int,
    ) -> ModuleOutputs:
        """Runs each module once.

        Args:
          modules: The MultiRLModule.
          obs: group -> (N * A, ...).
          device: Device of the modules.
          explore: Whether actions are drawn.
          t: The time step that exploring modules get.

        Raises:
          SpecError: Modules of one group have outputs of one name that differ in shape or dtype.
        """
        acted = ModuleOutputs({}, {}, {name: {} for name in self._groups})
        for module_id, shares in self._shares.items():
            parts = [obs[name] if rows is None else obs[name][rows] for name, rows in shares]
            inputs = parts[0] if len(parts) == 1 else np.concatenate(parts)
            output = _run(modules[module_id], inputs, device, explore=explore, t=t)
            self.said[module_id] = set(output) - {Columns.ACTIONS}
            first = 0
            for share, part in zip(shares, parts, strict=True):
                for name, array in output.items():
                    here = array[first : first + len(part)]
                    into = acted.extras[share.group]
                    if name == Columns.ACTIONS:
                        into = acted.actions
                    self._write(into, share, name, here, module_id)
                first += len(part)
        for name, group in self._groups.items():
            rows = self._num_envs * group.num_agents
            action = acted.actions.get(name)
            if action is None:
                # all agents of the group left
                action = acted.actions[name] = np.tile(
                    self._idle[name], (rows, *[1] * self._idle[name].ndim)
                )
            scaled = self._scale[name](action)
            acted.for_env[name] = scaled.reshape(self._num_envs, -1, *scaled.shape[1:])
        return acted

    def random(self, actions: Mapping[str, Array]) -> ModuleOutputs:
        """Returns what `act` does, for random actions (N, A, ...) by group."""
        flat = {name: array.reshape(-1, *array.shape[2:]) for name, array in actions.items()}
        return ModuleOutputs(flat, dict(actions), {name: {} for name in self._groups})

    # -- helpers -------------------------------------------------------------------

    def _rows(self, share: _Share) -> Array:
        if share.rows is not None:
            return share.rows
        return np.arange(self._num_envs * self._groups[share.group].num_agents)

    def _write(
        self, into: dict[str, Array], share: _Share, name: str, array: Array, module_id: str
    ) -> None:
        """Writes a module's output into its rows of a group's array."""
        kind = array.shape[1:], array.dtype
        known, of = self._kinds.setdefault((share.group, name), (kind, module_id))
        if known != kind:
            raise SpecError(
                f"for group {share.group!r} module {module_id!r} returns {name!r} of shape "
                f"{kind[0]} and {kind[1]}, {of!r} of {known[0]} and {known[1]}: let modules that "
                "act for one group return equal outputs"
            )
        key = share.group if name == Columns.ACTIONS else name
        if share.rows is None:
            into[key] = array
            return
        if key not in into:
            rows = self._num_envs * self._groups[share.group].num_agents
            into[key] = np.zeros((rows, *kind[0]), kind[1])
        into[key][share.rows] = array


class AgentCheck:
    """Checks the modules that policy_mapping_fn gives to agents; remembers pairs that passed."""

    def __init__(self, groups: Mapping[str, AgentGroup]) -> None:
        """Takes agents of these groups."""
        self._places = {
            agent: (name, group) for name, group in groups.items() for agent in group.agents
        }
        self._right: dict[tuple[str, str], Any] = {}

    def __call__(self, modules: Any, module_of: Mapping[str, str]) -> None:
        """Checks the modules of all agents.

        Args:
          modules: The MultiRLModule.
          module_of: agent -> module.

        Raises:
          SpecError: A module does not exist, or its spaces differ from an agent's.
        """
        for agent, module_id in module_of.items():
            name, group = self._places[agent]
            if module_id not in modules:
                known = ", ".join(map(repr, modules.keys()))
                raise SpecError(
                    f"policy_mapping_fn returned {module_id!r} for agent {agent!r}, expected one "
                    f"of {known}: the modules of config.multi_agent(policies=...)"
                )
            module = modules[module_id]
            if self._right.get((module_id, name)) is module:
                continue
            check_spaces(
                module,
                group.single_observation_space,
                group.single_action_space,
                name=f"module {module_id!r}",
                whose=f"agent {agent!r}",
            )
            self._right[module_id, name] = module


@contextlib.contextmanager
def in_eval_mode(modules: Any) -> Iterator[None]:
    """Keeps modules in eval mode, once for all steps of a call."""
    before = [
        (module, module.training)
        for module in (modules.values() if modules is not None else ())
        if isinstance(module, torch.nn.Module)
    ]
    for module, _ in before:
        module.eval()
    try:
        yield
    finally:
        for module, was_training in before:
            module.train(was_training)


def _run(
    module: Any, obs: Array, device: torch.device | str | None, *, explore: bool, t: int
) -> dict[str, Array]:
    """A module's outputs for (B, ...) observations, with actions."""
    exploring, exploiting = forwards(module)
    batch = {Columns.OBS: to_tensor(obs, device)}
    with torch.no_grad():
        output = exploring(batch, t=t) if explore else exploiting(batch)
        choose(output, module, explore=explore)
    return {name: to_numpy(tensor) for name, tensor in output.items()}
