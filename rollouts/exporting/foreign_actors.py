# SPDX-License-Identifier: Apache-2.0
"""`ForeignActor`: how DQN, SAC and TD3 of Stable-Baselines3 act, and policies of Tianshou.

As in `rollouts.policies.foreign`, nothing of these libraries is imported, and their own methods are
called.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from rollouts.errors import SpecError
from rollouts.policies.foreign import Wrapped, class_of
from rollouts.support.extras import needs

with needs("torch", "rollouts.exporting.foreign_actors"):
    import torch
    from torch import Tensor

    from rollouts.policies.read_actor import ReadActor
    from rollouts.policy import ActionHead, SquashedGaussianHead, make_action_head

Floats = NDArray[np.float32]

_SB3_ACTORS = {
    "DQN": ("stable_baselines3.dqn.policies.DQNPolicy", "q_net"),
    "SAC": ("stable_baselines3.sac.policies.SACPolicy", "actor"),
    "TD3": ("stable_baselines3.td3.policies.TD3Policy", "actor"),
}
_TIANSHOU = "tianshou.algorithm."
_OF_TIANSHOU = f"{_TIANSHOU}algorithm_base.Policy"
# these classes act by `forward`, `map_action` and, with values, `compute_q_value`
_TIANSHOU_POLICIES = (
    f"{_TIANSHOU}modelfree.reinforce.ProbabilisticActorPolicy",
    f"{_TIANSHOU}modelfree.discrete_sac.DiscreteSACPolicy",
    f"{_TIANSHOU}modelfree.ddpg.ContinuousDeterministicPolicy",
    f"{_TIANSHOU}modelfree.sac.SACPolicy",
    f"{_TIANSHOU}modelfree.redq.REDQPolicy",
    f"{_TIANSHOU}modelfree.fqf.FQFPolicy",
    f"{_TIANSHOU}modelfree.iqn.IQNPolicy",
    f"{_TIANSHOU}modelfree.qrdqn.QRDQNPolicy",
    f"{_TIANSHOU}modelfree.c51.C51Policy",
    f"{_TIANSHOU}modelfree.dqn.DiscreteQLearningPolicy",
    f"{_TIANSHOU}imitation.imitation_base.ImitationPolicy",
)
_NETWORKS = "tianshou.utils.net.discrete."
GREEDY = "chooses the action of the greatest value, and explores in Python"
_EXACT = "gives actions without noise, and explores in Python"


@dataclass(frozen=True, slots=True, eq=False)
class ForeignActor:
    """The part of a policy that acts.

    Attributes:
      module: Returns (logits, None), (mean, log_std, None), or (action, None), as there is no
        value.
      head: The head for these outputs.
      low, high: Bounds of the head's actions, before the scaling; None: none.
      scale, offset: The environment gets scale * action + offset; None: the action itself.
      why_no_noise: The reason why noise cannot draw this policy's actions; "" if it can.
    """

    module: Wrapped
    head: ActionHead
    low: Floats | None = None
    high: Floats | None = None
    scale: Floats | None = None
    offset: Floats | None = None
    why_no_noise: str = ""


def policy_of(given: Any) -> Any:
    """The policy of a Tianshou algorithm; any other object unchanged."""
    is_algorithm = class_of(given, f"{_TIANSHOU}algorithm_base.Algorithm") is not None
    return given.policy if is_algorithm else given


def foreign_actor(policy: Any, observation_space: gymnasium.Space[Any]) -> ForeignActor | None:
    """Returns the actor of a policy; None if it is of neither DQN, SAC, TD3 nor Tianshou.

    Args:
      policy: A torch module.
      observation_space: Space of one observation.

    Raises:
      SpecError: Its way of acting is not supported.
    """
    if class_of(policy, _OF_TIANSHOU) is not None:
        return _of_tianshou(policy, observation_space)
    for algorithm, (name, part) in _SB3_ACTORS.items():
        if (base := class_of(policy, name)) is not None:
            check_own(policy, base, ("_predict",))
            return _of_sb3(algorithm, getattr(policy, part), policy.action_space)
    return None


def _of_sb3(algorithm: str, network: Any, space: gymnasium.Space[Any]) -> ForeignActor:
    if algorithm == "DQN":
        return ForeignActor(_Says(network), make_action_head(space), why_no_noise=GREEDY)
    # TD3 and SAC give actions from -1 to 1, which are scaled to the space
    if algorithm == "TD3":
        scale, offset = scale_to(space)
        return ForeignActor(
            _Says(network), make_action_head(space), scale=scale, offset=offset,
            why_no_noise=_EXACT,
        )  # fmt: skip
    why_not = "explores by noise that goes on (use_sde)" if network.use_sde else ""
    head = SquashedGaussianHead.of(space)
    return ForeignActor(_BeforeTanh(network), head, why_no_noise=why_not)


class _Says(Wrapped):
    """A network of SB3 that returns a value for each action, or an action."""

    def forward(self, obs: Tensor) -> tuple[Any, ...]:
        return self.module(obs), None


class _BeforeTanh(Wrapped):
    """SAC's actor of SB3, before the tanh."""

    def forward(self, obs: Tensor) -> tuple[Any, ...]:
        mean, log_std, _ = self.module.get_action_dist_params(obs)
        # with gSDE, log_std is that of the noise's weights, not of actions
        return (mean, None) if self.module.use_sde else (mean, log_std, None)


def _of_tianshou(policy: Any, observation_space: gymnasium.Space[Any]) -> ForeignActor:
    bases = [class_of(policy, name) for name in _TIANSHOU_POLICIES]
    base = next((each for each in bases if each is not None), None)
    if base is None:
        known = ", ".join(name.rpartition(".")[2] for name in _TIANSHOU_POLICIES)
        raise SpecError(
            f"policy is a {type(policy).__name__} of Tianshou, expected one of {known}: give the "
            "part that acts as a torch module that returns (logits, value) or "
            "(mean, log_std, value)"
        )
    check_own(policy, base, ("forward", "map_action", "compute_q_value"))
    kind, space = base.__name__, policy.action_space
    if hasattr(policy, "compute_q_value"):
        module = _values_of_tianshou(policy, kind)
        return ForeignActor(module, make_action_head(space), why_no_noise=GREEDY)
    if kind in ("ProbabilisticActorPolicy", "SACPolicy", "REDQPolicy", "DiscreteSACPolicy"):
        return _drawn_by_tianshou(policy, kind, observation_space)
    module = _TianshouActions(policy)
    if policy.action_type == "discrete":
        return ForeignActor(module, make_action_head(space), why_no_noise=GREEDY)
    return _mapped(module, policy, why_no_noise=_EXACT)


def _drawn_by_tianshou(
    policy: Any, kind: str, observation_space: gymnasium.Space[Any]
) -> ForeignActor:
    """A policy that draws: from logits, a Gaussian, or tanh of one."""
    space = policy.action_space
    if kind != "ProbabilisticActorPolicy":
        module: Wrapped = _TianshouActions(policy)
    else:
        actor = ReadActor(policy, observation_space)
        module = _ReadParams(actor)
    if not isinstance(space, gymnasium.spaces.Box):
        return ForeignActor(module, make_action_head(space))
    squashes = kind != "ProbabilisticActorPolicy" or policy.action_bound_method == "tanh"
    if not squashes:
        return _mapped(module, policy)
    within = space
    if not policy.action_scaling:
        within = gymnasium.spaces.Box(-1, 1, space.shape, np.float32)
    return ForeignActor(module, SquashedGaussianHead.of(within))


def _values_of_tianshou(policy: Any, kind: str) -> Wrapped:
    if kind == "FQFPolicy":
        _check_network(policy.model, "FullQuantileFunction")
        _check_network(policy.fraction_model, "FractionProposalNetwork")
        return _ProposedQuantiles(policy)
    if kind == "IQNPolicy":
        _check_network(policy.model, "ImplicitQuantileNetwork")
        return _EvenQuantiles(policy)
    return _TianshouValues(policy)


def _check_network(network: Any, name: str) -> None:
    """Raises SpecError where a quantile network is of no class of Tianshou."""
    base = class_of(network, f"{_NETWORKS}{name}")
    if base is None:
        raise SpecError(
            f"the policy's network is a {type(network).__name__}, expected Tianshou's {name}: give "
            "the part that acts as a torch module that returns (logits, value)"
        )
    check_own(network, base, ("forward", "_compute_quantiles"))


class _TianshouValues(Wrapped):
    """A policy of Tianshou that chooses by the values of actions."""

    def forward(self, obs: Tensor) -> tuple[Any, ...]:
        outputs, state = self.module.model(obs, state=None, info={})
        _check_no_state(state)
        return self.module.compute_q_value(outputs, None), None


class _ProposedQuantiles(Wrapped):
    """Tianshou's FQF: quantiles at fractions that a network proposes, weighted by their widths."""

    def forward(self, obs: Tensor) -> tuple[Any, ...]:
        model, proposal = self.module.model, self.module.fraction_model
        features = _features(model, obs)
        # equal to the proposal's own forward, except for the checks of its distribution
        ends = proposal.net(features).softmax(-1).cumsum(-1)
        taus = torch.cat([torch.zeros_like(ends[:, :1]), ends], 1)
        begins, ends = taus[:, :-1], taus[:, 1:]
        quantiles = model._compute_quantiles(features, (begins + ends) / 2)
        return ((ends - begins).unsqueeze(1) * quantiles).sum(2), None


class _EvenQuantiles(Wrapped):
    """Tianshou's IQN, whose random fractions are replaced by the midpoints of equal intervals."""

    def forward(self, obs: Tensor) -> tuple[Any, ...]:
        model, count = self.module.model, self.module.sample_size
        features = _features(model, obs)
        taus = [torch.full((1, 1), (place + 0.5) / count) for place in range(count)]
        # a loop over fractions, because native code has no layer over several rows per observation
        values = [model.last(features * model.embed_model(tau)[:, 0]) for tau in taus]
        return torch.stack(values).mean(0), None


def _features(model: Any, obs: Tensor) -> Tensor:
    features: Tensor
    features, state = model.preprocess(obs, state=None)
    _check_no_state(state)
    return features


class _TianshouActions(Wrapped):
    """A policy of Tianshou whose actor returns logits, an action, or (mean, std) before tanh."""

    def forward(self, obs: Tensor) -> tuple[Any, ...]:
        outputs, state = self.module.actor(obs, state=None, info={})
        _check_no_state(state)
        if isinstance(outputs, tuple):
            return outputs[0], outputs[1].log(), None
        return outputs, None


class _ReadParams(Wrapped):
    """The actor of a ProbabilisticActorPolicy."""

    def __init__(self, actor: ReadActor) -> None:
        super().__init__(actor.module)
        # torch does not register a module in a plain list, so the names of the actor's parameters
        # stay
        self._actor = [actor]

    def forward(self, obs: Tensor) -> tuple[Any, ...]:
        return (*self._actor[0].forward(obs), None)


def _mapped(module: Wrapped, policy: Any, why_no_noise: str = "") -> ForeignActor:
    """The bounds and the scale of `map_action`, if it does not squash."""
    space, method = policy.action_space, policy.action_bound_method
    if method == "tanh":
        raise SpecError(
            f"{type(policy).__name__} takes tanh of actions that it does not draw, expected "
            "action_bound_method='clip' or None"
        )
    bound = np.ones(space.shape, np.float32)
    low, high = (-bound, bound) if method == "clip" else (None, None)
    scale, offset = scale_to(space) if policy.action_scaling else (None, None)
    return ForeignActor(module, make_action_head(space), low, high, scale, offset, why_no_noise)


def scale_to(space: gymnasium.Space[Any]) -> tuple[Floats, Floats]:
    """Scale and offset by which actions from -1 to 1 become those of a space."""
    assert isinstance(space, gymnasium.spaces.Box)
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise SpecError(f"actions are scaled to {space}, expected finite bounds")
    return ((high - low) / 2).astype(np.float32), ((high + low) / 2).astype(np.float32)


def check_own(policy: Any, base: type, names: tuple[str, ...]) -> None:
    """Raises SpecError if a policy overrides methods with which its library's class acts."""
    for name in names:
        if name in vars(policy) or getattr(type(policy), name, None) is not getattr(
            base, name, None
        ):
            raise SpecError(
                f"{type(policy).__name__} has its own {name}, expected {base.__name__}'s: give the "
                "part that acts as a torch module that returns (logits, value) or "
                "(mean, log_std, value)"
            )


def _check_no_state(state: Any) -> None:
    if state is not None:
        raise SpecError(
            "the actor is recurrent, whose states Tianshou's loop carries: expected one without "
            "memory, or a module with initial_state"
        )
