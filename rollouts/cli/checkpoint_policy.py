# SPDX-License-Identifier: Apache-2.0
"""The policy of a checkpoint: a Python file makes it, the checkpoint has its weights."""

from __future__ import annotations

import inspect
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy.typing as npt
from gymnasium import spaces

from rollouts.checkpoint import Checkpoint, from_state, read_state
from rollouts.cli.checkpoint_program import PolicyFile
from rollouts.errors import SpecError
from rollouts.specs import AgentGroup, EnvSpec
from rollouts.support.plain_values import shown

if TYPE_CHECKING:
    from torch import Tensor

Array = npt.NDArray[Any]


def read_policy(path: Path, id: str | None) -> Checkpoint:
    """Reads a checkpoint, or a file with only the state_dict of a policy's module.

    Args:
      path: Path of the file, or a run's directory.
      id: The id to play; None: the id of the training, which a state_dict does not have.

    Raises:
      SpecError: As `rollouts.checkpoint.load_checkpoint`; or the checkpoint is of another id.
    """
    state = read_state(path)
    if state and all(_is_tensor(value) for value in state.values()):
        if id is None:
            raise SpecError(
                f"{path} has weights alone and does not say what they were trained in: add "
                "--env-id ID"
            )
        return Checkpoint(id=id, weights=state, program="", policy_version=2)
    checkpoint = from_state(state, path)
    if id not in (None, checkpoint.id):
        raise SpecError(
            f"{path} was trained in {checkpoint.id}, --env-id is {id}: leave --env-id out, "
            "or give a checkpoint of that id"
        )
    return checkpoint


def _is_tensor(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor)


def load_policy(
    checkpoint: Checkpoint,
    path: Path,
    spec: EnvSpec,
    *,
    program: PolicyFile,
    samples: bool,
    seed: int,
    num_envs: int,
    group: AgentGroup | None = None,
) -> Any:
    """Makes the policy with a checkpoint's weights. Nothing in the checkpoint is executed.

    Args:
      checkpoint: The checkpoint that was read.
      path: Its path, for messages.
      spec: Spec of the environment, with its options.
      program: Has `make_policy(spec)`, as a `rollouts.RolloutCoordinator` takes it.
      samples: Whether actions are drawn as in training; else the most likely one is taken.
      seed: Seed of the draws.
      num_envs: Number of environments.
      group: The policy's group of agents; None: there is one agent.

    Raises:
      SpecError: The program makes no policy, or one with other weights.
    """
    asked = _asked(spec, group, seed, num_envs)
    policy = _make_policy(program, asked)
    weights = checkpoint.weights
    if group is not None:
        prefix = f"{group.name}/"
        weights = {k.removeprefix(prefix): v for k, v in weights.items() if k.startswith(prefix)}
    try:
        arrays = {name: _to_numpy(each) for name, each in weights.items()}
        policy.load_weights(arrays, checkpoint.policy_version)
    except (RuntimeError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise SpecError(
            f"the weights in {path}, which was trained in {checkpoint.id}, are not those of "
            f"the network that {program.path} makes for {spec.id}: "
            f"{' '.join(str(error).split())[:400]}. Give the program that it was trained with "
            "(--network FILE)"
        ) from error
    if not samples and hasattr(policy, "head"):
        policy.head = MostLikely(policy.head, asked.single_action_space)
    return policy


class MostLikely:
    """An `ActionHead` that does not explore: takes the most likely or highest-valued action."""

    def __init__(self, head: Any, action_space: spaces.Space[Any]) -> None:
        """Wraps a policy's head; a head without `most_likely` for Box actions still draws."""
        self._head, self._space = head, action_space
        self.dtype = head.dtype

    def sample(self, params: Any, generator: Any) -> tuple[Tensor, Tensor]:
        """Chooses actions and returns 0 as their log_prob."""
        if hasattr(self._head, "most_likely"):
            action: Tensor = self._head.most_likely(params)
        elif isinstance(self._space, spaces.Discrete):
            action = params[0].argmax(-1) + int(self._space.start)
        else:
            drawn: tuple[Tensor, Tensor] = self._head.sample(params, generator)
            return drawn
        return action, action.new_zeros(len(action), dtype=params[0].dtype)


def _to_numpy(weight: Tensor) -> Array:
    # NumPy has no bfloat16
    narrow = str(weight.dtype) == "torch.bfloat16"
    array: Array = (weight.float() if narrow else weight).detach().numpy()
    return array


def _asked(spec: EnvSpec, group: AgentGroup | None, seed: int, num_envs: int) -> Any:
    from rollouts.workers import PolicySpec

    asked = PolicySpec.here(spec.id, group or spec, num_envs=num_envs, seed=seed)
    return asked if group is None else replace(asked, policy=group.name, group=group.name)


def _make_policy(program: PolicyFile, asked: Any) -> Any:
    options = program.options
    # examples that explore need the number of environments
    if "total_envs" in inspect.signature(program.make_policy).parameters:
        options = {**options, "total_envs": asked.num_envs}
    try:
        policy = program.make_policy(asked, **options)
    except Exception as error:  # the program is not ours and may raise anything
        raise SpecError(
            f"make_policy(spec) of {program.path} makes no policy for {asked.id} "
            f"({type(error).__name__}: {error}). If it needs more than spec, give a Python file "
            "with --network whose make_policy passes that on"
        ) from error
    if not hasattr(policy, "load_weights"):
        raise SpecError(
            f"make_policy(spec) of {program.path} returned {shown(policy)}, expected a policy: "
            "rollouts.TorchPolicy(module, spec.single_action_space), for one"
        )
    return policy
