# SPDX-License-Identifier: Apache-2.0
"""What acts in a recording: chance, or the policy of a checkpoint."""

from __future__ import annotations

import importlib.util
import inspect
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from rollouts.errors import SpecError
from rollouts.pool.agent_groups import Grouped
from rollouts.specs import EnvSpec
from rollouts.support.extras import needs

if TYPE_CHECKING:
    from torch import Tensor

Array = npt.NDArray[Any]

CHECKPOINT = "checkpoint.pt"  # in the directory of a run
# where a checkpoint of our examples has the weights of what acts
_WEIGHTS = ("model", "online", "actor")
_EXAMPLE = re.compile(r"rollouts examples/(\w+\.py), version \d+")


class Actor(Protocol):
    """Chooses actions in one environment."""

    def act(self, obs: Array, begins: bool) -> Array:
        """Chooses an action (1, *action_shape) for obs (1, *obs_shape).

        Args:
          obs: The observation.
          begins: Whether it is the first of an episode.
        """
        ...


class RandomActor:
    """Draws actions from the action space."""

    def __init__(self, action_space: spaces.Space[Any], seed: int) -> None:
        """Takes a space of one environment, and seeds it."""
        self._space = action_space
        self._space.seed(seed)

    def act(self, obs: Array, begins: bool) -> Array:
        """See `Actor`."""
        return np.asarray(self._space.sample())[None]


class RandomAgents:
    """Draws actions of all agents of an environment with several."""

    def __init__(self, action_space: spaces.Space[Any], seed: int) -> None:
        """Takes the space of a batch of one environment, and seeds it."""
        self._space = action_space
        self._space.seed(seed)

    def act(self, obs: Grouped, begins: bool) -> Grouped:
        """See `Actor`: group -> (1, A, *action_shape), or the array alone of one group."""
        return self._space.sample()


class PolicyActor:
    """Acts as a `rollouts.policy.Policy`, with or without memory."""

    def __init__(self, policy: Any, action_space: spaces.Space[Any]) -> None:
        """Wraps a policy that was made for one environment."""
        self._policy = policy
        self._bounds = None
        if isinstance(action_space, spaces.Box):
            self._bounds = action_space.low, action_space.high

    def act(self, obs: Array, begins: bool) -> Array:
        """See `Actor`; actions are clipped to the bounds, as by `rollouts.Collector`."""
        if hasattr(self._policy, "act_rows"):
            output = self._policy.act_rows(obs, None, np.array([begins]))
        else:
            output = self._policy.act(obs)
        action: Array = output.action
        return action if self._bounds is None else action.clip(*self._bounds)


def load_actor(
    path: Path, spec: EnvSpec, *, network: Path | None, samples: bool, seed: int
) -> Actor:
    """Makes the policy whose weights a checkpoint has. Nothing in the checkpoint is executed.

    Args:
      path: A checkpoint of an example, a file with the state_dict of a policy's module, or the
        directory of a run.
      spec: Of the environment.
      network: Python file whose `make_policy(spec)`, as for a `rollouts.RolloutCoordinator`,
        makes the policy; None: the program in the folder examples that the checkpoint names.
      samples: Whether actions are drawn as in training, else the most likely one is taken.
      seed: Of what is drawn.

    Raises:
      SpecError: Not a checkpoint, no such program, or the weights of another network.
    """
    path = path / CHECKPOINT if path.is_dir() else path
    state = _load(path)
    weights, version = _weights(state, path)
    program = _program(state, path) if network is None else network
    policy = _make_policy(_import(program), program, spec, seed)
    try:
        arrays = {name: _to_numpy(each) for name, each in weights.items()}
        policy.load_weights(arrays, version)
    except (RuntimeError, KeyError, AttributeError) as error:
        was = f", which was trained in {state['env_id']}," if "env_id" in state else ""
        raise SpecError(
            f"the weights in {path}{was} are not those of the network that {program} makes for "
            f"{spec.id}: {' '.join(str(error).split())[:400]}"
        ) from error
    if not samples and hasattr(policy, "head"):
        policy.head = MostLikely(policy.head, spec.single_action_space)
    return PolicyActor(policy, spec.single_action_space)


def _to_numpy(weight: Tensor) -> Array:
    # NumPy has no bfloat16
    narrow = str(weight.dtype) == "torch.bfloat16"
    array: Array = (weight.float() if narrow else weight).detach().numpy()
    return array


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


# -- reading checkpoints ---------------------------------------------------------------


def _load(path: Path) -> dict[str, Any]:
    with needs("torch", "reading a checkpoint"):
        import torch

    if not path.is_file():
        raise SpecError(
            f"no policy at {path}: give 'random', a checkpoint, or the directory of a run that has "
            f"a {CHECKPOINT}"
        )
    try:
        # weights_only: pickled code in a foreign file is refused instead of executed
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises a dozen types for damaged files
        reason = (str(error).splitlines() or [""])[0]
        raise SpecError(
            f"{path} is not a readable checkpoint ({type(error).__name__}: {reason}): expected a "
            "file of torch.save with tensors, numbers and strings alone"
        ) from error
    if not isinstance(state, dict):
        raise SpecError(f"{path} holds a {type(state).__name__}, expected a dict of weights")
    return state


def _weights(state: Mapping[str, Any], path: Path) -> tuple[Mapping[str, Tensor], int]:
    """Weights by name, and the policy's version: 1 before any training."""
    import torch

    if state and all(isinstance(value, torch.Tensor) for value in state.values()):
        return state, 2
    learner = state.get("learner", {})
    progress = state.get("progress", {})
    for name in _WEIGHTS:
        if isinstance(learner, dict) and isinstance(learner.get(name), dict):
            return learner[name], int(progress.get("updates", 1)) + 1
    raise SpecError(
        f"{path} has no weights: expected a state_dict, or a checkpoint of an example with "
        f"learner/{' or learner/'.join(_WEIGHTS)}, got the entries {', '.join(map(str, state))}"
    )


def _program(state: Mapping[str, Any], path: Path) -> Path:
    """The example that wrote a checkpoint."""
    found = _EXAMPLE.fullmatch(str(state.get("kind", "")))
    program = Path("examples") / found[1] if found else None
    if program is None or not program.is_file():
        wrote = f"{program}, which is not in this directory" if program else "an unknown program"
        raise SpecError(
            f"{path} was written by {wrote}: say with --network which Python file has the "
            "make_policy(spec) of its network"
        )
    return program


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


def _make_policy(module: ModuleType, program: Path, spec: EnvSpec, seed: int) -> Any:
    from rollouts.distributed import PolicySpec

    make = getattr(module, "make_policy", None)
    if make is None:
        raise SpecError(f"{program} has no function make_policy(spec)")
    # examples that explore ask how many environments there are
    options = {"total_envs": 1} if "total_envs" in inspect.signature(make).parameters else {}
    asked = PolicySpec(
        env_id=spec.id,
        single_observation_space=spec.single_observation_space,
        single_action_space=spec.single_action_space,
        num_envs=1,
        env_id_offset=0,
        worker_id=0,
        incarnation=0,
        seed=seed,
    )
    try:
        return make(asked, **options)
    except (TypeError, ValueError) as error:
        raise SpecError(
            f"make_policy(spec) of {program} makes no policy for {spec.id}: {error}. If it needs "
            "more than spec, give a Python file with --network whose make_policy passes that on"
        ) from error
