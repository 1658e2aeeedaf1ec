# SPDX-License-Identifier: Apache-2.0
"""`export`: writes a policy to a file, after comparing the file with the policy."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from rollouts.envs.make import make_pool
from rollouts.errors import SpecError
from rollouts.exporting.c_header import c_header
from rollouts.exporting.deployment import (
    Deployment,
    Port,
    Surroundings,
    outer_options,
    surroundings_of,
)
from rollouts.support.extras import needs
from rollouts.support.no_collection import no_collection
from rollouts.support.plain_values import plain_option, plain_path
from rollouts.support.whole_file import replace_whole

with needs("torch", "rollouts.export"):
    import torch
    from torch import Tensor, nn

    from rollouts.exporting import graph_files
    from rollouts.exporting.deployed_module import DeployedModule, Scores
    from rollouts.exporting.given_policy import network_of
    from rollouts.policies.program import parameters_of
    from rollouts.policies.sources import Sources
    from rollouts.policies.trace import random_rows, trace

Array = NDArray[Any]
_TOLERANCE = 1e-5  # relative to the largest compared number, or to 1 if that is larger
_MOST_DIFFERENT = 0.01  # largest share of actions that may differ
# all threads of the process share torch's exporters and a module's mode
_one_at_a_time = threading.Lock()
_WRITERS = {
    ".onnx": (graph_files.to_onnx, graph_files.from_onnx),
    ".pt2": (graph_files.to_pt2, graph_files.from_pt2),
    ".pt": (graph_files.to_torchscript, graph_files.from_torchscript),
}


def export(
    policy: Any,
    path: str | os.PathLike[str],
    env: Any,
    *,
    noise: bool = False,
    action_mask: bool = False,
    group: str | None = None,
    num_compared: int = 1000,
) -> Deployment:
    """Writes a policy as a file that acts without this library.

    The file takes observations of the environment without wrappers that scale, and returns actions
    for it: the work of the pool's `normalize_observation`, `rescale_action` and `clip_action` is
    done in the file, with the present running statistics. Stacked frames, and the time of
    `time_aware`, remain parts of the observation. Floats are float32 inputs.

    Before the file is written, the runtime for its kind (onnxruntime or torch) acts on observations
    of random episodes, and the results are compared with the policy's.

    Args:
      policy: A `TorchPolicy`, `RecurrentTorchPolicy` or `NativePolicy`; a torch module for one of
        these; a Stable-Baselines3 model of PPO, A2C, DQN, SAC, TD3 or DDPG, an RLModule, a policy
        or an algorithm of Tianshou, or CleanRL's Agent.
      path: The file: `.onnx`; `.pt2` of torch.export; `.pt` of TorchScript; or `.h`, C without any
        library, for networks of linear layers.
      env: The policy's pool: its id, options, spaces, wrappers and statistics count.
      noise: Whether the file takes noise, with which it draws actions as in training; else it takes
        the most likely action. Not for `.h`.
      action_mask: Whether the file takes masks (B, A).
      group: Name of the policy's group, if there are several agents.
      num_compared: Observations that are compared.

    Returns:
      The description in the file.

    Raises:
      SpecError: The policy or the ending is not supported, the network cannot be exported, or the
        file's actions differ from the policy's; nothing is written.
      FileError: The file cannot be written.
      EngineError: A package is missing, such as onnxscript.
    """
    endings = f"one that ends in {', '.join(_WRITERS)} or .h"
    path = Path(plain_path("path", path, endings))
    if path.suffix not in (*_WRITERS, ".h"):
        raise SpecError(f"path is {str(path)!r}, expected {endings}")
    if noise and path.suffix == ".h":
        raise SpecError("noise=True is not for .h, which acts deterministically: leave it out")
    arguments, options = _options_of(env)
    agents = _agents_of(env, group)
    # options may have a value for each environment
    each = any(isinstance(v, list | tuple | np.ndarray) for v in arguments["env_options"].values())
    num_envs = env.num_envs if each else 8
    with make_pool(
        env.env_spec.id, num_envs, seed=0, autoreset_mode="same_step", **arguments
    ) as raw:
        around = surroundings_of(env, _agents_of(raw, group).single_action_space, options)
        obs = _observations(raw, group, num_compared)
    # torch's exporters exchange a network's parameters, and other threads may export it, too. They
    # also parse source. In Python 3.11 a parse that the collector interrupts fails if a finaliser
    # or another thread parses meanwhile: "AST constructor recursion depth mismatch"
    with _one_at_a_time, no_collection():
        network, head, around = network_of(policy, agents, around, noise=noise)
        with _acting(network), torch.no_grad():
            module = DeployedModule(network, head, around, noise=noise, masks=action_mask)
            inputs = _inputs(module, around, obs, noise=noise, masks=action_mask)
            expected = [each.numpy() for each in module(*inputs.values())]
            about = _describe(module, around, env.env_spec, group, inputs, expected)
            _write(path, module, about, inputs, expected)
    return about


@contextmanager
def _acting(network: nn.Module) -> Iterator[None]:
    """Puts each layer of a network into evaluation mode, and restores its mode afterwards."""
    training = [layer for layer in network.modules() if layer.training]
    network.eval()
    try:
        yield
    finally:
        for layer in training:
            layer.training = True


def _write(
    path: Path,
    module: DeployedModule,
    about: Deployment,
    inputs: Mapping[str, Tensor],
    expected: Sequence[Array],
) -> None:
    if path.suffix == ".h":
        data = _in_c(module, about, inputs, path.stem)
    else:
        write, read = _WRITERS[path.suffix]
        example = tuple(each[:2].clone() for each in inputs.values())
        data = write(module, example, about)
        _, run = read(data, path)
        arrays = [each.numpy() for each in inputs.values()]
        _compare(path, expected, run(arrays))
        _compare(path, [each[:1] for each in expected], run([each[:1] for each in arrays]))
    with replace_whole(path) as file:
        file.write(data)


def _in_c(
    module: DeployedModule, about: Deployment, inputs: Mapping[str, Tensor], name: str
) -> bytes:
    obs = inputs["obs"]
    # the space of whole numbers extends from 0 to the largest observed one
    space: gymnasium.Space[Any] = gymnasium.spaces.Box(-np.inf, np.inf, obs.shape[1:], np.float32)
    if not obs.is_floating_point():
        space = gymnasium.spaces.Box(0, int(obs.max()), obs.shape[1:], obs.numpy().dtype.type)
    scores = Scores(module)
    try:
        program = trace(scores, space)
    except SpecError as error:
        advice = str(error).replace("use engine='torch'", "export it to .onnx or .pt2")
        raise SpecError(advice) from error
    arrays = parameters_of(program, Sources(scores).arrays())
    return c_header(program.without_detach(), arrays, about, name).encode()


def _options_of(env: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arguments of `make_pool` without the wrappers in the file; and all given options."""
    engine: Any = getattr(env, "engine", None)
    if "recipe" not in getattr(engine, "can", ()):
        raise SpecError(
            f"env is a {type(env).__name__}, expected a pool of rollouts.make_vec that native code "
            "steps: it says what the policy was trained in"
        )
    arguments = engine.recipe[2]
    given, limit = dict(arguments["env_options"]), arguments["max_episode_steps"]
    # obs_dtype is no option of the environment, but the precision of a GPU's rows
    given.pop("obs_dtype", None)
    outer = outer_options(given)
    if limit is not None:
        given["max_episode_steps"] = limit
    return {"max_episode_steps": limit, "env_options": outer}, given


def _agents_of(env: Any, group: str | None) -> Any:
    """The pool, or one group of its agents: an object with the spaces of one agent.

    Raises:
      SpecError: There is no such group.
    """
    groups = getattr(env, "groups", None) or {}
    if group is None and not groups:
        return env
    if group in groups:
        return groups[group]
    known = ", ".join(groups) or "none, as there is one agent"
    raise SpecError(f"group is {group!r}, expected one of the environment's groups: {known}")


def _observations(raw: Any, group: str | None, count: int) -> Array:
    """Observations (count, *obs_shape) of random episodes, floats as float32."""

    def rows(shown: Any) -> Array:
        if group is None:
            return np.array(shown)
        of_agents = np.array(shown[group])
        return of_agents.reshape(-1, *of_agents.shape[2:])

    raw.action_space.seed(0)
    found = [rows(raw.reset(seed=0)[0])]
    while sum(map(len, found)) < count:
        found.append(rows(raw.step(raw.action_space.sample())[0]))
    obs = np.concatenate(found)[:count]
    return obs.astype(np.float32) if obs.dtype.kind == "f" else obs


def _inputs(
    module: DeployedModule, around: Surroundings, obs: Array, *, noise: bool, masks: bool
) -> dict[str, Tensor]:
    rng = np.random.default_rng(0)
    inputs = {"obs": torch.from_numpy(obs)}
    for i, first in enumerate(module.initial):
        space = gymnasium.spaces.Box(-np.inf, np.inf, tuple(first.shape), np.float32)
        inputs[f"state_{i}"] = torch.from_numpy(random_rows(space, len(obs), rng))
    size = _params_of(module, inputs, around.action_space)[0].shape[1:]
    if masks:
        if not module.is_discrete:
            raise SpecError(
                "action_mask=True is for Discrete or MultiDiscrete actions: leave it out"
            )
        allowed = rng.random((len(obs), *size)) < 0.7
        # an element of the action must have an allowed choice
        allowed[:, _first_of_elements(around, size[0])] = True
        inputs["action_mask"] = torch.from_numpy(allowed)
    if noise:
        shape = (len(obs), *size)
        drawn = rng.gumbel(size=shape) if module.is_discrete else rng.normal(size=shape)
        inputs["noise"] = torch.from_numpy(drawn.astype(np.float32))
    return inputs


def _params_of(
    module: DeployedModule, inputs: Mapping[str, Tensor], space: gymnasium.Space[Any] | None
) -> tuple[Tensor, ...]:
    """Inputs of the head.

    Raises:
      SpecError: The network does not take the observations, or its outputs do not fit the space.
    """
    obs = inputs["obs"]
    given = f"observations (B{''.join(f', {n}' for n in obs.shape[1:])}) of {obs.numpy().dtype}"
    try:
        params, _ = module.params(*inputs.values())
    except SpecError:
        raise
    except Exception as error:
        first = next(iter(str(error).splitlines()), "")
        raise SpecError(
            f"the network fails for the environment's {given} ({type(error).__name__}: "
            f"{first[:300]}): give the pool that it acts in, with the same wrappers"
        ) from error
    expected = getattr(space, "shape", ())
    if module.is_discrete:
        expected = (int(np.sum(getattr(space, "nvec", getattr(space, "n", 0)))),)
    if tuple(params[0].shape[1:]) != expected:
        raise SpecError(
            f"the network gives {tuple(params[0].shape[1:])} numbers for each observation, "
            f"expected {expected} for {space}: give the pool that it acts in"
        )
    return params


def _first_of_elements(around: Surroundings, size: int) -> list[int]:
    space = around.action_space
    nvec = np.ravel(space.nvec) if isinstance(space, gymnasium.spaces.MultiDiscrete) else [size]
    return [int(sum(nvec[:i])) for i in range(len(nvec))]


_MEANINGS = {
    "obs": "observation of the environment, as make_vec(id, **env_options) shows it",
    "action_mask": "True for each action that may be chosen",
    "noise": "noise by which actions are drawn: normally distributed, of logits standard Gumbel",
    "action": "action, as that environment takes it",
    "logits": "unnormalised log probabilities of the actions",
}


def _describe(
    module: DeployedModule,
    around: Surroundings,
    spec: Any,
    group: str | None,
    inputs: Mapping[str, Tensor],
    outputs: Sequence[Array],
) -> Deployment:
    import rollouts

    names = ["action", *(["logits"] if module.is_discrete else [])]
    names += [f"next_state_{i}" for i in range(module.num_states)]
    space = around.action_space
    nvec = np.ravel(space.nvec) if isinstance(space, gymnasium.spaces.MultiDiscrete) else ()
    return Deployment(
        id=spec.id,
        env_options={name: plain_option(name, value) for name, value in around.env_options.items()},
        group=group or "",
        parts=spec.observation_parts,
        inputs=tuple(_port(name, each.numpy()) for name, each in inputs.items()),
        outputs=tuple(_port(name, each) for name, each in zip(names, outputs, strict=True)),
        first=int(getattr(space, "start", 0))
        if isinstance(space, gymnasium.spaces.Discrete)
        else 0,
        nvec=tuple(int(n) for n in nvec),
        initial_states=tuple(tuple(each.flatten().tolist()) for each in module.initial),
        rollouts_version=rollouts.__version__,
    )


def _port(name: str, array: Array) -> Port:
    meaning = _MEANINGS.get(name, "what the network remembers of the episode")
    return Port(name, tuple(array.shape[1:]), str(array.dtype), meaning)


def _compare(path: Path, expected: Sequence[Array], found: Sequence[Array]) -> None:
    """Raises SpecError where a file's actions differ from the policy's."""
    action, *others = zip(expected, found, strict=True)
    for wanted, got in others:
        _check_close(path, wanted, got)
    if action[0].dtype.kind == "f":
        return _check_close(path, *action)
    # between two equally good actions, rounding may rarely change the choice
    differs = int(np.sum(np.any((action[0] != action[1]).reshape(len(action[0]), -1), axis=1)))
    if differs > _MOST_DIFFERENT * len(action[0]):
        raise SpecError(
            f"{path} was not written: it chooses other actions than the policy for {differs} of "
            f"{len(action[0])} observations: report this with the network"
        )


def _check_close(path: Path, wanted: Array, got: Array) -> None:
    # logits of actions that are not allowed are hugely negative, and are not compared
    counts = np.abs(wanted) < 1e6
    apart = np.abs(wanted[counts] - got[counts]).max(initial=0)
    if not apart <= _TOLERANCE * np.abs(wanted[counts]).max(initial=1):
        raise SpecError(
            f"{path} was not written: its answers are up to {apart:.2g} off the policy's, expected "
            f"{_TOLERANCE}: does the network draw random numbers, or compute in half precision?"
        )
