# SPDX-License-Identifier: Apache-2.0
"""The forward pass of Stable-Baselines3's actor-critic policies without checks of arguments."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from ..shared.missing import needs
from ..shared.native_training import has_hooks

try:
    from stable_baselines3.common.distributions import (
        CategoricalDistribution,
        DiagGaussianDistribution,
    )
    from stable_baselines3.common.policies import ActorCriticPolicy
    from stable_baselines3.common.preprocessing import is_image_space, preprocess_obs
    from stable_baselines3.common.torch_layers import FlattenExtractor, MlpExtractor
except ImportError as error:
    raise needs("sb3", error) from error

Array = NDArray[Any]
Layer = Callable[[Tensor], Tensor]

# methods that decide what forward computes: a subclass that overrides one is called as it is
_OWN = ("forward", "extract_features", "_get_action_dist_from_latent", "predict_values")
_LOG_SQRT_2PI = math.log(math.sqrt(2 * math.pi))


class ActorCriticForward:
    """Calls `policy(obs)` and `policy.predict_values(obs)`, or computes the same bits faster.

    The faster way is for policies whose features are the flattened observation and whose networks
    end in Discrete or Box actions: linear layers are called without the module around them, and
    actions are drawn without objects of torch.distributions, which validate their arguments.
    Operations, their order and the random numbers are the same; any other policy is called as it
    is. When a policy's parameters are replaced by others, make a new object.
    """

    def __init__(self, policy: Any) -> None:
        self._policy = policy
        self._sample = _sampler(policy)
        if self._sample is None:
            return
        self._shape: tuple[int, ...] = policy.action_space.shape
        self._space = policy.observation_space
        # observations of floats only need to be flattened
        self._plain = isinstance(self._space, spaces.Box) and not (
            policy.normalize_images and is_image_space(self._space)
        )
        extractor = policy.mlp_extractor
        self._actor = [*_layers(extractor.policy_net), *_layers(policy.action_net)]
        self._critic = [*_layers(extractor.value_net), *_layers(policy.value_net)]

    @property
    def is_fast(self) -> bool:
        """Tells if the policy is computed in the faster way."""
        return self._sample is not None

    @torch.no_grad()
    def act(self, obs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns actions (N, *action_shape), values (N, 1) and log_probs (N,) for obs (N, ...)."""
        if self._sample is None:
            actions, values, log_probs = self._policy(obs)
            return actions, values, log_probs
        features = self._features(obs)
        values = _run(self._critic, features)
        actions, log_probs = self._sample(_run(self._actor, features))
        return actions.reshape((-1, *self._shape)), values, log_probs

    @torch.no_grad()
    def value(self, obs: Tensor) -> Tensor:
        """Returns values (N, 1) for obs (N, ...); draws no random numbers."""
        if self._sample is None:
            values: Tensor = self._policy.predict_values(obs)
            return values
        return _run(self._critic, self._features(obs))

    def _features(self, obs: Tensor) -> Tensor:
        if self._plain:
            return obs.float().flatten(1)
        features: Tensor = preprocess_obs(
            obs, self._space, normalize_images=self._policy.normalize_images
        )
        return features.flatten(1)


def env_actions(model: Any, actions: Array) -> Array:
    """The environments' actions for the policy's actions, inside the bounds of a Box."""
    space = model.action_space
    if not isinstance(space, spaces.Box):
        return actions
    if model.policy.squash_output:
        unscaled: Array = model.policy.unscale_action(actions)
        return unscaled
    return np.clip(actions, space.low, space.high)


def _sampler(policy: Any) -> Callable[[Tensor], tuple[Tensor, Tensor]] | None:
    """A function that draws actions from the actor's outputs; None to call the policy as it is."""
    if not isinstance(policy, ActorCriticPolicy) or isinstance(
        policy.observation_space, spaces.Dict
    ):
        return None
    same = all(getattr(type(policy), name) is getattr(ActorCriticPolicy, name) for name in _OWN)
    extractors = [policy.features_extractor, policy.pi_features_extractor]
    extractors.append(policy.vf_features_extractor)
    plain = type(policy.mlp_extractor) is MlpExtractor and all(
        type(extractor) is FlattenExtractor for extractor in extractors
    )
    parts = [policy, policy.mlp_extractor, *extractors]
    if not (same and plain) or any(has_hooks(part) for part in parts):
        return None
    if type(policy.action_dist) is CategoricalDistribution:
        return _sample_categorical
    if type(policy.action_dist) is DiagGaussianDistribution:
        return partial(_sample_gaussian, policy.log_std)
    return None


def _sample_categorical(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Samples as torch.distributions.Categorical: the same draws, the same log_prob."""
    log_probs = logits - logits.logsumexp(dim=-1, keepdim=True)
    probs = functional.softmax(log_probs, dim=-1)
    action = torch.multinomial(probs, 1, True)
    return action[:, 0], log_probs.gather(-1, action)[:, 0]


def _sample_gaussian(log_std: Tensor, mean: Tensor) -> tuple[Tensor, Tensor]:
    """Samples as torch.distributions.Normal: the same draws, the same log_prob."""
    std = torch.ones_like(mean) * log_std.exp()
    noise = torch.normal(torch.zeros_like(mean), torch.ones_like(mean))
    action = mean + noise * std
    density = -((action - mean) ** 2) / (2 * std**2) - std.log() - _LOG_SQRT_2PI
    return action, density.sum(dim=1)


def _layers(module: nn.Module) -> list[Layer]:
    """Functions that together compute the module."""
    if type(module) is nn.Sequential and not has_hooks(module):
        return [layer for child in module for layer in _layers(child)]
    if has_hooks(module):
        return [module]
    if type(module) is nn.Linear:
        return [partial(_linear, module.weight, module.bias)]
    if type(module) is nn.Tanh:
        return [torch.tanh]
    if type(module) is nn.ReLU and not module.inplace:
        return [torch.relu]
    return [module]


def _linear(weight: Tensor, bias: Tensor | None, inputs: Tensor) -> Tensor:
    return functional.linear(inputs, weight, bias)


def _run(layers: list[Layer], outputs: Tensor) -> Tensor:
    for layer in layers:
        outputs = layer(outputs)
    return outputs
