# SPDX-License-Identifier: Apache-2.0
"""Networks of other libraries as modules that return (logits, value) or (mean, log_std, value).

Each function takes the library's own objects without importing the library. The module that it
returns calls these objects' own methods and shares their state_dict, so that it always has their
present weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rollouts.errors import SpecError
from rollouts.support.extras import needs

with needs("torch", "rollouts.policies.foreign"):
    import torch
    from torch import Tensor, nn

Outputs = tuple[Tensor, ...]

_SB3 = "stable_baselines3.common.policies.ActorCriticPolicy"
_RLLIB = "ray.rllib.core.rl_module.torch.torch_rl_module.TorchRLModule"
# the methods that determine an SB3 policy's results: a subclass that overrides one is refused
_SB3_OWN = ("forward", "extract_features", "_get_action_dist_from_latent", "predict_values")
_SB3_LOGITS = ("CategoricalDistribution", "MultiCategoricalDistribution", "BernoulliDistribution")


def as_actor_critic(module: nn.Module) -> nn.Module:
    """Returns `module`, or a module that wraps an SB3 policy, an RLModule or CleanRL's Agent.

    Raises:
      SpecError: It is one of these, but of a kind that has no (logits, value) or (mean, log_std,
        value).
    """
    if class_of(module, _SB3) is not None:
        return from_sb3(module)
    if class_of(module, _RLLIB) is not None:
        return from_rllib(module)
    if hasattr(module, "get_action_and_value") and hasattr(module, "get_value"):
        return from_cleanrl(module)
    return module


def from_sb3(policy: nn.Module) -> nn.Module:
    """Stable-Baselines3's ActorCriticPolicy, as in PPO and A2C: `model.policy`.

    Raises:
      SpecError: It draws by generalised exploration (use_sde), or is a subclass with its own
        forward.
    """
    base = class_of(policy, _SB3)
    changed = [
        name
        for name in _SB3_OWN
        if name in vars(policy) or getattr(type(policy), name) is not getattr(base, name, None)
    ]
    if changed:
        raise SpecError(
            f"{type(policy).__name__} has its own {changed[0]}, expected ActorCriticPolicy's: give "
            "a module that returns (logits, value), or use engine='torch'"
        )
    kind = type(policy.action_dist).__name__
    if kind not in (*_SB3_LOGITS, "DiagGaussianDistribution"):
        raise SpecError(
            f"the policy's actions are of a {kind}, expected one of {', '.join(_SB3_LOGITS)} or "
            "DiagGaussianDistribution: make it with use_sde=False, or use engine='torch'"
        )
    return _Sb3(policy)


def from_rllib(module: nn.Module) -> nn.Module:
    """RLlib's TorchRLModule with a value function, such as the default one of PPO and IMPALA.

    Raises:
      SpecError: It has no value function, has memory, or its actions follow neither logits nor a
        Gaussian.
    """
    values: Any = module
    # if the space sets arguments, RLlib derives a class, whose name contains the original's name
    kind = values.get_exploration_action_dist_cls().__name__
    known = ("TorchCategorical", "TorchMultiCategorical", "TorchDiagGaussian")
    if not any(name in kind for name in known):
        raise SpecError(
            f"the RLModule's actions are of a {kind}, expected one of {', '.join(known)}: use "
            "engine='torch'"
        )
    if values.is_stateful():
        raise SpecError(
            "the RLModule has memory, which native code has of modules with initial_state alone"
        )
    if not hasattr(module, "compute_values") or values.inference_only:
        raise SpecError(
            f"{type(module).__name__} has no value function here: make it with inference_only=False"
        )
    return _Rllib(module, kind == "TorchDiagGaussian")


def from_cleanrl(agent: nn.Module) -> nn.Module:
    """CleanRL's Agent: `actor` or `actor_mean` and `actor_logstd`, `critic`, perhaps `network`.

    Raises:
      SpecError: It has no such parts.
    """
    if not hasattr(agent, "actor") and not hasattr(agent, "actor_mean"):
        raise SpecError(
            f"{type(agent).__name__} has neither actor nor actor_mean, which CleanRL's Agent has: "
            "give a module that returns (logits, value)"
        )
    return _CleanRl(agent)


def from_tianshou(actor: nn.Module, critic: nn.Module) -> nn.Module:
    """Tianshou's DiscreteActor, Net or ContinuousActorProbabilistic, and a critic of states."""
    return _Tianshou(actor, critic)


def from_torchrl(actor: nn.Module, critic: nn.Module) -> nn.Module:
    """TorchRL's ProbabilisticActor and ValueOperator, or the modules inside: an MLP, or modules
    that return logits or (loc, scale).

    Raises:
      SpecError: The actor's distribution is neither categorical nor Normal.
    """
    for part in actor.modules():
        kind = getattr(getattr(part, "distribution_class", None), "__name__", None)
        if kind not in (None, "Categorical", "OneHotCategorical", "Normal", "IndependentNormal"):
            raise SpecError(
                f"the actor's actions are of a {kind}, expected Categorical, OneHotCategorical, "
                "Normal or IndependentNormal: use engine='torch'"
            )
    return _TorchRl(actor, critic)


class Wrapped(nn.Module):
    """Wraps a module, but keeps the names of the module's layers and weights."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module: Any = module

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """The wrapped module's state_dict."""
        return self.module.state_dict(*args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Loads a state_dict into the wrapped module."""
        return self.module.load_state_dict(*args, **kwargs)

    def named_modules(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, nn.Module]]:
        """The wrapped module's layers."""
        yield from self.module.named_modules(*args, **kwargs)


class Unwrapped(nn.Module):
    """A `Wrapped` whose layers have names below its own, as torch's exporters expect."""

    def __init__(self, wrapped: Wrapped) -> None:
        super().__init__()
        self.module = wrapped.module
        # torch does not register a module in a plain list, so its layers count only once
        self._wrapped = [wrapped]

    def forward(self, obs: Tensor) -> Any:
        """The outputs of the `Wrapped`."""
        return self._wrapped[0].forward(obs)


class _Sb3(Wrapped):
    def forward(self, obs: Tensor) -> Outputs:
        policy = self.module
        features = policy.extract_features(obs)
        actor, critic = features if isinstance(features, tuple) else (features, features)
        action = policy.action_net(policy.mlp_extractor.forward_actor(actor))
        value = policy.value_net(policy.mlp_extractor.forward_critic(critic))
        is_gaussian = type(policy.action_dist).__name__ == "DiagGaussianDistribution"
        return (action, policy.log_std, value) if is_gaussian else (action, value)


class _Rllib(Wrapped):
    def __init__(self, module: nn.Module, is_gaussian: bool) -> None:
        super().__init__(module)
        self._is_gaussian = is_gaussian

    def forward(self, obs: Tensor) -> Outputs:
        action = self.module._forward_exploration({"obs": obs})["action_dist_inputs"]
        value = self.module.compute_values({"obs": obs})
        return (*action.chunk(2, -1), value) if self._is_gaussian else (action, value)


class _CleanRl(Wrapped):
    def forward(self, obs: Tensor) -> Outputs:
        agent = self.module
        # CleanRL's Atari agents divide in both methods, before the network
        scaled = obs / 255.0 if obs.dtype == torch.uint8 else obs
        features = agent.network(scaled) if hasattr(agent, "network") else scaled
        value = agent.get_value(obs)
        if hasattr(agent, "actor_mean"):
            return agent.actor_mean(features), agent.actor_logstd, value
        return agent.actor(features), value


class _Tianshou(nn.Module):
    def __init__(self, actor: nn.Module, critic: nn.Module) -> None:
        super().__init__()
        self.actor: Any = actor
        self.critic = critic

    def forward(self, obs: Tensor) -> Outputs:
        value = self.critic(obs)
        if getattr(self.actor, "softmax_output", False):
            # the logits that the actor turns into probabilities
            return self.actor.last(self.actor.preprocess(obs)[0]), value
        action, _ = self.actor(obs)
        return (action[0], action[1].log(), value) if isinstance(action, tuple) else (action, value)


class _TorchRl(nn.Module):
    def __init__(self, actor: nn.Module, critic: nn.Module) -> None:
        super().__init__()
        self.actor, self.critic = actor, critic

    def forward(self, obs: Tensor) -> Outputs:
        action, value = _run_keyed(self.actor, obs), _run_keyed(self.critic, obs)[-1]
        return (action[0], action[1].log(), value) if len(action) == 2 else (action[0], value)


def _run_keyed(module: Any, obs: Tensor) -> Outputs:
    """Runs a TensorDictModule, or several in turn, but stops before actions are drawn.

    Any other module is called with the observations. The modules get no other input.
    """
    values: dict[Any, Tensor] = {}

    def run(part: Any) -> Outputs:
        inner = getattr(part, "module", None)
        if inner is None or not hasattr(part, "in_keys"):
            outputs = part(obs)
            return outputs if isinstance(outputs, tuple) else (outputs,)
        if isinstance(inner, nn.ModuleList):
            steps = [each for each in inner if not hasattr(each, "distribution_class")]
            return [run(each) for each in steps][-1]
        outputs = inner(*(values.get(key, obs) for key in part.in_keys))
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        values.update(zip(part.out_keys, outputs, strict=False))
        return outputs

    return run(module)


def is_of(value: object, full_name: str) -> bool:
    """Returns whether a value is of the class of this name, directly or by inheritance."""
    return class_of(value, full_name) is not None


def class_of(value: object, full_name: str) -> type | None:
    """The class of this name in the bases of `value`'s class, or None."""
    for kind in type(value).__mro__:
        if f"{kind.__module__}.{kind.__qualname__}" == full_name:
            return kind
    return None
