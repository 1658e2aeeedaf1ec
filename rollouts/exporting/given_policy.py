# SPDX-License-Identifier: Apache-2.0
"""Reads a policy of any library: its network, its head, and the work around both."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
from torch import nn

from rollouts.errors import SpecError
from rollouts.exporting.deployment import Floats, Surroundings
from rollouts.exporting.foreign_actors import ForeignActor, foreign_actor, policy_of
from rollouts.exporting.rllib_actors import rllib_actor
from rollouts.policies.foreign import Unwrapped, Wrapped, as_actor_critic, is_of
from rollouts.policies.native import NativePolicy
from rollouts.policy import SquashedGaussianHead, make_action_head

_SB3 = "stable_baselines3.common.policies.BasePolicy"
_SB3_ACTOR_CRITIC = "stable_baselines3.common.policies.ActorCriticPolicy"


def network_of(
    policy: Any, agents: Any, around: Surroundings, *, noise: bool
) -> tuple[nn.Module, Any, Surroundings]:
    """Returns the network, its action head, and the work around both.

    Args:
      policy: As for `rollouts.export`.
      agents: An object with the spaces of one agent.
      around: The work of the pool's wrappers.

    Raises:
      SpecError: The policy is of an unknown kind, or noise cannot draw its actions.
    """
    space: gymnasium.Space[Any] = agents.single_action_space
    if isinstance(policy, NativePolicy):
        return *_of_native(policy, space, noise=noise), around
    policy = policy_of(policy)
    module = _module_of(policy)
    if any(each.device.type != "cpu" for each in module.parameters()):
        raise SpecError("the network is on a GPU, expected the CPU: move it there to export it")
    if module is not policy and getattr(policy, "module", None) is module:
        # a policy of this library, with any library's network
        head = getattr(policy, "head", None)
        return _exportable(as_actor_critic(module)), head or make_action_head(space), around
    around = _with_normalizer(around, policy)
    actor = foreign_actor(module, agents.single_observation_space)
    actor = actor or rllib_actor(module, space, noise=noise)
    if actor is not None:
        if noise and actor.why_no_noise:
            raise SpecError(
                "noise=True is for a policy that draws each action by itself: "
                f"{type(module).__name__} {actor.why_no_noise}; leave it out"
            )
        return _exportable(actor.module), actor.head, _around_actor(around, actor)
    network = as_actor_critic(module)
    if is_of(module, _SB3):
        around = _clipped(around, module)
    return _exportable(network), make_action_head(space), around


def _clipped(around: Surroundings, policy: Any) -> Surroundings:
    """Adds the clipping of Stable-Baselines3 to the bounds of its policy's Box actions."""
    if not is_of(policy, _SB3_ACTOR_CRITIC):
        raise SpecError(
            f"policy is a {type(policy).__name__} of Stable-Baselines3, expected one of PPO, A2C, "
            "DQN, SAC, TD3 or DDPG: give the part that acts as a torch module that returns "
            "(logits, value) or (mean, log_std, value)"
        )
    space = policy.action_space
    if not isinstance(space, gymnasium.spaces.Box):
        return around
    return _within(around, space.low.astype(np.float32), space.high.astype(np.float32))


def _within(around: Surroundings, low: Floats, high: Floats) -> Surroundings:
    if around.low is not None and around.high is not None:
        low, high = np.maximum(low, around.low), np.minimum(high, around.high)
    return replace(around, low=low, high=high)


def _around_actor(around: Surroundings, actor: ForeignActor) -> Surroundings:
    """Adds the policy's own bounds and scale, which come before the pool's."""
    if actor.scale is not None and actor.offset is not None:
        scale, offset = actor.scale, actor.offset
        outer = 1.0 if around.scale is None else around.scale
        beyond = 0.0 if around.offset is None else around.offset
        # the pool's bounds, converted to actions before the policy's scaling
        low, high = (
            None if bound is None else (bound - offset) / scale
            for bound in (around.low, around.high)
        )
        around = replace(
            around, low=low, high=high, scale=np.asarray(scale * outer, np.float32),
            offset=np.asarray(offset * outer + beyond, np.float32),
        )  # fmt: skip
    if actor.low is not None and actor.high is not None:
        around = _within(around, actor.low, actor.high)
    return around


def _with_normalizer(around: Surroundings, policy: Any) -> Surroundings:
    """Adds the scaling of observations by the VecNormalize of a Stable-Baselines3 model."""
    normalize = getattr(policy, "get_vec_normalize_env", lambda: None)()
    if normalize is None or not normalize.norm_obs or not hasattr(normalize.obs_rms, "mean"):
        return around
    # a pool that normalises either has the same statistics, or was not used in training
    return replace(
        around,
        mean=normalize.obs_rms.mean.astype(np.float32),
        deviation=np.sqrt(normalize.obs_rms.var + normalize.epsilon).astype(np.float32),
        limit=float(normalize.clip_obs) if normalize.clip_obs else math.inf,
    )


def _of_native(
    policy: NativePolicy, action_space: gymnasium.Space[Any], *, noise: bool
) -> tuple[nn.Module, Any]:
    if policy.reading is None:
        raise SpecError("the NativePolicy was made of a program, expected one of a torch module")
    head = policy.head
    if noise and (head.kind == "epsilon_greedy" or head.damping < 1 or head.deterministic):
        raise SpecError(
            f"noise=True is for a head that draws each action by itself, this one is {head}: "
            "leave it out"
        )
    made = SquashedGaussianHead.of if head.kind == "tanh_gaussian" else make_action_head
    return _exportable(policy.reading.module), made(action_space)


def _module_of(policy: Any) -> nn.Module:
    module = getattr(policy, "module", None)
    if not isinstance(module, nn.Module) or isinstance(policy, nn.Module):
        module = policy if isinstance(policy, nn.Module) else getattr(policy, "policy", None)
    if not isinstance(module, nn.Module):
        raise SpecError(
            f"policy is a {type(policy).__name__}, expected a TorchPolicy, a NativePolicy, a torch "
            "module that returns (logits, value) or (mean, log_std, value), a model of "
            "Stable-Baselines3, or a policy of Tianshou"
        )
    return module


def _exportable(module: nn.Module) -> nn.Module:
    return Unwrapped(module) if isinstance(module, Wrapped) else module
