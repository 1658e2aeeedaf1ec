# SPDX-License-Identifier: Apache-2.0
"""An RLModule's actor as the pool's threads compute it, between the steps of the environments."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch
import tree
from gymnasium import spaces
from numpy.typing import NDArray
from ray.rllib.core.columns import Columns
from ray.rllib.core.distribution.torch.torch_distribution import (
    TorchCategorical,
    TorchDiagGaussian,
)
from ray.rllib.core.rl_module.torch.torch_rl_module import TorchRLModule
from torch import Tensor

import rollouts
from rollouts.errors import SpecError
from rollouts.policies.foreign import Wrapped
from rollouts.policies.native import Head, HeadName, NativePolicy

from ..shared.native_arrays import step_arrays
from .actions import ActionScaling, Forward, choose, forwards, to_numpy, to_tensor
from .module_states import Memory, columns_of, states_after, with_time
from .segment import Block

Array = NDArray[Any]

# what RLlib's distributions are called here
HEADS: dict[Any, HeadName] = {TorchCategorical: "categorical", TorchDiagGaussian: "gaussian"}
_SAID = {Columns.ACTIONS, Columns.ACTION_LOGP, Columns.ACTION_DIST_INPUTS}


class NativeActor:
    """Chooses actions inside a pool as an RLModule does, exploring or not.

    The module keeps the weights: new ones loaded into it are used from the next rollout on.

    Attributes:
      module: The module whose actor it is.
    """

    def __init__(
        self,
        env: rollouts.VectorEnv,
        module: TorchRLModule,
        scaling: ActionScaling,
        *,
        explore: bool,
        seed: tuple[int, int],
    ) -> None:
        """Reads a module that is in eval mode.

        Raises:
          SpecError: The module has operations that native code lacks.
        """
        self.module = module
        _check_pool(env)
        if any(parameter.device.type != "cpu" for parameter in module.parameters()):
            raise SpecError("the RLModule is not on the CPU")
        if explore:
            dist_class = module.get_exploration_action_dist_cls()
        else:
            dist_class = module.get_inference_action_dist_cls()
        if dist_class not in HEADS:
            known = " or ".join(each.__name__ for each in HEADS)
            raise SpecError(f"actions are of a {dist_class.__name__}, expected {known}")
        exploring, exploiting = forwards(module)
        forward = functools.partial(exploring, t=_Untold()) if explore else exploiting
        # None for a module without states
        self._state_like = module.get_initial_state() if module.is_stateful() else None
        self._like = _answer(env, module, forward, self._state_like, explore=explore)
        self._num_inputs = self._like[Columns.ACTION_DIST_INPUTS].shape[1]
        self._explore, self._factor = explore, scaling.factor()
        head = HEADS[dist_class]
        make_actor = _Actor if self._state_like is None else _RememberingActor
        self._policy = NativePolicy.from_torch(
            make_actor(module, forward, self._factor, is_gaussian=head == "gaussian"),
            env.single_action_space,
            env.single_observation_space,
            head=Head(head, deterministic=not explore),
            seed=seed,
        )

    def seed(self, seed: tuple[int, int]) -> None:
        """Starts the noise anew from `seed`; a reset with the pool's seed would repeat noise."""
        self._policy.seed(seed)

    def refresh(self) -> None:
        """Takes over the module's weights.

        Raises:
          SpecError: A weight is NaN or infinite.
        """
        self._policy.refresh()

    def collect(self, env: rollouts.VectorEnv, *, obs: Array, memory: Memory) -> Block | SpecError:
        """Steps all environments T times.

        Args:
          obs: (T + 1, N, ...); the first row is read, the others are written.
          memory: States of these environments; not used for a module without states.
        Returns:
          The steps; or an error of the module. After such an error the environments are in the
          middle of the rollout, although none of them failed.
        Raises:
          EnvError, ClosedError: As `VectorEnv.collect`.
        """
        steps, num_envs = len(obs) - 1, obs.shape[1]
        arrays = step_arrays(env, steps)
        arrays |= {
            "obs": obs,
            "last_value": np.empty(num_envs, np.float32),
            "inputs": np.empty((steps, num_envs, self._num_inputs), np.float32),
        }
        if self._state_like is not None:
            arrays |= memory.arrays(steps, sum(leaf.numel() for leaf in self._initial()))
        try:
            ended = env.collect(self._policy, arrays, rules={"keep_final_obs": True})
        except SpecError as error:
            return error
        assert ended is not None
        return Block(
            self._columns(arrays),
            arrays["terminated"],
            arrays["truncated"],
            ended.reshape(-1).view(obs.dtype).reshape(-1, *obs.shape[2:]),
        )

    # -- helpers -------------------------------------------------------------------

    def _columns(self, arrays: dict[str, Array]) -> dict[str, Array]:
        """The columns of an episode's steps, in the dtypes of torch's outputs."""
        action, log_prob, inputs = arrays["action"], arrays["log_prob"], arrays["inputs"]
        if self._factor is not None:
            # episodes hold the module's own actions, which are normalised
            action = action / self._factor
            inputs = inputs / np.append(self._factor, np.ones_like(self._factor))
            logs = np.log(self._factor)
            inputs[..., len(logs) :] -= logs
            log_prob = log_prob + logs.sum()
        if not self._explore:
            # RLlib's log-density of an action that is not drawn is 0
            log_prob = np.zeros((*log_prob.shape, *self._like[Columns.ACTION_LOGP].shape[1:]))
        said = {
            Columns.ACTIONS: action,
            Columns.ACTION_LOGP: log_prob,
            Columns.ACTION_DIST_INPUTS: inputs,
        }
        typed = {name: array.astype(self._like[name].dtype) for name, array in said.items()}
        if self._state_like is not None:
            states = states_after(arrays, self._policy.module_outputs)
            typed |= columns_of(states, self._state_like)
        return {Columns.REWARDS: arrays["reward"].astype(np.float64), **typed}

    def _initial(self) -> list[Tensor]:
        leaves: list[Tensor] = tree.flatten(self._state_like)
        return leaves


class _Actor(Wrapped):
    """Returns (logits,), or (mean, log_std) of the environment's actions."""

    def __init__(
        self, module: TorchRLModule, forward: Forward, factor: Array | None, *, is_gaussian: bool
    ) -> None:
        super().__init__(module)
        self._forward, self._is_gaussian = forward, is_gaussian
        self._factor = None if factor is None else torch.from_numpy(factor)

    def forward(self, obs: Tensor) -> tuple[Tensor, ...]:
        floats = obs.float() if obs.is_floating_point() else obs
        return self._head(self._forward({Columns.OBS: floats})[Columns.ACTION_DIST_INPUTS])

    def _head(self, inputs: Tensor) -> tuple[Tensor, ...]:
        if not self._is_gaussian:
            return (inputs,)
        mean, log_std = inputs.chunk(2, -1)
        if self._factor is None:
            return mean, log_std
        return mean * self._factor, log_std + self._factor.log()


class _RememberingActor(_Actor):
    """Computes a stateful module in the same way; takes and returns its states, too."""

    def initial_state(self) -> tuple[Tensor, ...]:
        return tuple(tree.flatten(self.module.get_initial_state()))

    def forward(self, obs: Tensor, state: tuple[Tensor, ...]) -> tuple[Any, ...]:  # type: ignore[override]
        floats = obs.float() if obs.is_floating_point() else obs
        like = self.module.get_initial_state()
        output = self._forward(with_time({Columns.OBS: floats}, like, state))
        head = self._head(output[Columns.ACTION_DIST_INPUTS][:, 0])
        return *head, tuple(tree.flatten(output[Columns.STATE_OUT]))


class _Untold:
    """A stand-in for the time step; every computation with it fails."""

    def __bool__(self) -> bool:
        raise TypeError("what native code computes cannot depend on the time step t")


def _answer(
    env: rollouts.VectorEnv,
    module: TorchRLModule,
    forward: Forward,
    state_like: Any,
    *,
    explore: bool,
) -> dict[str, Array]:
    """The module's outputs for two observations, computed by torch.

    Raises SpecError where the module fails, or returns more than the inputs of a distribution.
    """
    space = env.single_observation_space
    obs = np.zeros((2, *(space.shape or ())), space.dtype)
    try:
        with torch.no_grad():
            batch = {Columns.OBS: to_tensor(obs, "cpu")}
            if state_like is not None:
                state = tuple(torch.stack([leaf, leaf]) for leaf in tree.flatten(state_like))
                batch = with_time(batch, state_like, state)
            output = forward(batch)
            if state_like is not None:
                # states are read with the steps; the other outputs lose their axis of time
                del output[Columns.STATE_OUT]
                output = {name: tensor[:, 0] for name, tensor in output.items()}
            choose(output, module, explore=explore)
    except Exception as error:
        raise SpecError(
            "the RLModule cannot act without being told the time step: "
            f"{type(error).__name__}: {error}"
        ) from error
    if set(output) != _SAID:
        names = ", ".join(sorted(output))
        raise SpecError(f"the RLModule returned {names}, expected inputs of a distribution alone")
    return {name: to_numpy(tensor) for name, tensor in output.items()}


def _check_pool(env: rollouts.VectorEnv) -> None:
    if why_not := env.why_not_collects:
        raise SpecError(why_not)
    space = env.single_action_space
    if isinstance(space, spaces.Discrete) and space.start != 0:
        raise SpecError(f"the action space is {space}, expected one that starts at 0")
