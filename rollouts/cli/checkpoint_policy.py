# SPDX-License-Identifier: Apache-2.0
"""The policy of a checkpoint: a Python file makes it, the checkpoint has its weights."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy.typing as npt
from gymnasium import spaces

from rollouts.checkpoint import FILE_NAME, Checkpoint, from_state, read_state
from rollouts.errors import SpecError
from rollouts.specs import AgentGroup, EnvSpec

if TYPE_CHECKING:
    from torch import Tensor

Array = npt.NDArray[Any]


def read_policy(path: Path, env_id: str) -> Checkpoint:
    """Reads a checkpoint, or a file with nothing but the state_dict of a policy's module.

    Raises:
      SpecError: As `rollouts.checkpoint.load_checkpoint`.
    """
    import torch

    path = path / FILE_NAME if path.is_dir() else path
    state = read_state(path)
    if state and all(isinstance(value, torch.Tensor) for value in state.values()):
        return Checkpoint(env_id=env_id, weights=state, program="", policy_version=2)
    return from_state(state, path)


def load_policy(
    checkpoint: Checkpoint,
    path: Path,
    spec: EnvSpec,
    *,
    network: Path | None,
    samples: bool,
    seed: int,
    num_envs: int,
    group: AgentGroup | None = None,
) -> Any:
    """Makes the policy whose weights a checkpoint has. Nothing in the checkpoint is executed.

    Args:
      checkpoint: What was read.
      path: From where; for messages.
      spec: Of the environment, with its options.
      network: Python file whose `make_policy(spec)`, as for a `rollouts.RolloutCoordinator`,
        makes the policy; None: the program that the checkpoint names.
      samples: Whether actions are drawn as in training, else the most likely one is taken.
      seed: Of what is drawn.
      num_envs: That it acts in.
      group: The agents that it acts for; None: there is one agent.

    Raises:
      SpecError: No such program, or the weights of another network.
    """
    program = _program(checkpoint, path) if network is None else network
    options = checkpoint.program_options if network is None else {}
    asked = _asked(spec, group, seed, num_envs)
    policy = _make_policy(_import(program), program, asked, options)
    weights = checkpoint.weights
    if group is not None:
        prefix = f"{group.name}/"
        weights = {k.removeprefix(prefix): v for k, v in weights.items() if k.startswith(prefix)}
    try:
        arrays = {name: _to_numpy(each) for name, each in weights.items()}
        policy.load_weights(arrays, checkpoint.policy_version)
    except (RuntimeError, KeyError, AttributeError) as error:
        raise SpecError(
            f"the weights in {path}, which was trained in {checkpoint.env_id}, are not those of "
            f"the network that {program} makes for {spec.id}: {' '.join(str(error).split())[:400]}"
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


def _program(checkpoint: Checkpoint, path: Path) -> Path:
    """The file that a checkpoint names; only one below the working directory is run."""
    name = PurePosixPath(checkpoint.program)
    here = checkpoint.program and not name.is_absolute() and ".." not in name.parts
    if not here or not Path(name).is_file():
        found = f"{checkpoint.program!r}, which is no file in this directory" if name.parts else ""
        raise SpecError(
            f"{path} names {found or 'no program'}: run this where that program is, or say with "
            "--network which Python file has the make_policy(spec) of its network"
        )
    return Path(name)


def _import(program: Path) -> ModuleType:
    spec, name = None, f"rollouts_network_{program.stem}"
    if program.is_file():
        spec = importlib.util.spec_from_file_location(name, program.resolve())
    if spec is None or spec.loader is None:
        raise SpecError(f"--network is {program}, which is no Python file")
    module = importlib.util.module_from_spec(spec)
    # as for `python FILE`: its neighbours can be imported
    sys.path.insert(0, str(program.resolve().parent))
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _asked(spec: EnvSpec, group: AgentGroup | None, seed: int, num_envs: int) -> Any:
    from rollouts.distributed import PolicySpec

    asked = PolicySpec(
        env_id=spec.id,
        single_observation_space=spec.single_observation_space,
        single_action_space=spec.single_action_space,
        num_envs=num_envs,
        env_id_offset=0,
        worker_id=0,
        incarnation=0,
        seed=seed,
    )
    if group is None:
        return asked
    return replace(
        asked,
        single_observation_space=group.single_observation_space,
        single_action_space=group.single_action_space,
        policy=group.name,
        group=group.name,
    )


def _make_policy(module: ModuleType, program: Path, asked: Any, options: Mapping[str, Any]) -> Any:
    make = getattr(module, "make_policy", None)
    if make is None:
        raise SpecError(f"{program} has no function make_policy(spec)")
    # examples that explore ask how many environments there are
    if "total_envs" in inspect.signature(make).parameters:
        options = {**options, "total_envs": asked.num_envs}
    try:
        return make(asked, **options)
    except (TypeError, ValueError) as error:
        raise SpecError(
            f"make_policy(spec) of {program} makes no policy for {asked.env_id}: {error}. If it "
            "needs more than spec, give a Python file with --network whose make_policy passes "
            "that on"
        ) from error
