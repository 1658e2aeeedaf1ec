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

if TYPE_CHECKING:
    from torch import Tensor

Array = npt.NDArray[Any]


def read_policy(path: Path, id: str | None) -> Checkpoint:
    """Reads a checkpoint, or a file with nothing but the state_dict of a policy's module.

    Args:
      path: Path of the file, or a run's directory.
      id: What it is to play; None: what it was trained in, which no state_dict says.

    Raises:
      SpecError: As `rollouts.checkpoint.load_checkpoint`; the checkpoint is of another id.
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
    """Makes the policy whose weights a checkpoint has. Nothing in the checkpoint is executed.

    Args:
      checkpoint: What was read.
      path: From where; for messages.
      spec: Spec of the environment, with its options.
      program: Has `make_policy(spec)`, as a `rollouts.RolloutCoordinator` takes it.
      samples: Whether actions are drawn as in training, else the most likely one is taken.
      seed: Seed of what is drawn.
      num_envs: Environments that it acts in.
      group: The agents that it acts for; None: there is one agent.

    Raises:
      SpecError: The program makes no policy, or one of other weights.
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
    """An `ActionHead` that does not explore: the most likely action, or that of highest value."""

    def __init__(self, head: Any, action_space: spaces.Space[Any]) -> None:
        """Wraps the head of a policy; heads without `most_likely` for Box actions go on drawing."""
        self._head, self._space = head, action_space
        self.dtype = head.dtype

    def sample(self, params: Any, generator: Any) -> tuple[Tensor, Tensor]:
        """Chooses actions and calls their log_prob 0."""
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
    # examples that explore ask how many environments there are
    if "total_envs" in inspect.signature(program.make_policy).parameters:
        options = {**options, "total_envs": asked.num_envs}
    try:
        return program.make_policy(asked, **options)
    except Exception as error:  # the program is not ours and may raise anything
        raise SpecError(
            f"make_policy(spec) of {program.path} makes no policy for {asked.id} "
            f"({type(error).__name__}: {error}). If it needs more than spec, give a Python file "
            "with --network whose make_policy passes that on"
        ) from error
