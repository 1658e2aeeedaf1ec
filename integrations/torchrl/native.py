# SPDX-License-Identifier: Apache-2.0
"""A TorchRL policy as the pool's threads compute it, and when they can."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from tensordict import TensorDict
from tensordict.nn import (
    ProbabilisticTensorDictModule,
    ProbabilisticTensorDictSequential,
    TensorDictModule,
    TensorDictSequential,
)
from torch import Tensor, distributions
from torchrl.modules import (
    IndependentNormal,
    SafeModule,
    SafeProbabilisticModule,
    SafeProbabilisticTensorDictSequential,
    SafeSequential,
    TanhNormal,
)
from torchrl.modules.distributions import OneHotCategorical

from rollouts.errors import SpecError
from rollouts.policies.foreign import Wrapped
from rollouts.policies.native import Head, HeadName, NativePolicy
from rollouts.policies.trace import random_rows

Array = npt.NDArray[Any]
Values = dict[str, Tensor]

_OBS, _ACTION, _VALUE = "observation", "action", "state_value"
_INDICES = (distributions.Categorical,)
_ONE_HOT = (OneHotCategorical, distributions.OneHotCategorical)
# modules whose forward only runs their parts one after the other
_SEQUENCES = (
    TensorDictSequential,
    SafeSequential,
    ProbabilisticTensorDictSequential,
    SafeProbabilisticTensorDictSequential,
)
_DRAWS = (ProbabilisticTensorDictModule, SafeProbabilisticModule)
_COMPUTES = (TensorDictModule, SafeModule)
_COMPARED_ROWS = 12
# tolerance of log-densities that are computed through the inverse of tanh
_TOLERANCE = 1e-3


class NativeActor:
    """Chooses actions inside a pool as a TensorDict policy does.

    The policy keeps the weights: what it learns is used from the next rollout on.

    Attributes:
      policy: The argument of `VectorEnv.collect`.
      num_inputs: Number of the logits, or of the means and log stds.
    """

    def __init__(
        self, policy: Any, pool: Any, *, one_hot: bool, casts: bool, deterministic: bool
    ) -> None:
        """Reads a policy.

        Args:
          one_hot: Whether Discrete actions are one-hot vectors.
          casts: Whether the policy gets observations as float32, whatever their dtype in the pool.
        Raises:
          SpecError: The policy has operations that native code lacks.
        """
        self._parts = _Parts(policy, casts=casts)
        if any(parameter.device.type != "cpu" for parameter in policy.parameters()):
            raise SpecError("the policy is not on the CPU")
        self._space, self._one_hot = pool.single_action_space, one_hot
        kind = _kind_of(self._parts, pool, one_hot=one_hot)
        self.policy = NativePolicy.from_torch(
            _Reader(policy, self._parts),
            self._space,
            pool.single_observation_space,
            head=Head(kind, deterministic=deterministic),
            # this seed is drawn from torch's random numbers, so that torch's seed decides it
            seed=int(torch.randint(2**63 - 1, ()).item()),
        )
        self._kind = kind
        is_discrete = kind == "categorical"
        self.num_inputs = int(self._space.n) if is_discrete else 2 * int(np.prod(self._space.shape))

    def outputs(self, obs: Tensor, arrays: Mapping[str, Array]) -> dict[Any, Tensor]:
        """The policy's outputs, by its keys.

        Args:
          obs: (N, T, *obs_shape)
          arrays: The rollout's "action" (T, N, ...), "log_prob" and "value" (T, N), and "inputs",
            the distribution's parameters (T, N, k).

        Returns:
          Tensors (N, T, ...), contiguous.
        """
        found = {_ACTION: self._action(arrays["action"])}
        draw = self._parts.draw
        inputs = _by_env(arrays["inputs"])
        if self._kind == "categorical":
            found["logits"] = inputs
        else:
            mean, log_std = inputs.chunk(2, -1)
            shape = (*inputs.shape[:2], *self._space.shape)
            found["loc"] = mean.reshape(shape)
            found["scale"] = log_std.exp().reshape(shape)
        # the policy's keys of the distribution's parameters
        keys = dict(zip(draw.dist_keys, draw.in_keys, strict=True))
        known: dict[Any, Tensor] = {key: found[name] for name, key in keys.items() if name in found}
        known[_ACTION] = found[_ACTION]
        if draw.return_log_prob:
            known[draw.log_prob_key] = _by_env(arrays["log_prob"])
        if self._parts.has_value:
            known[_VALUE] = _by_env(arrays["value"]).unsqueeze(-1)
        wanted = list(self._parts.out_keys)
        if any(key not in known for key in wanted):
            # computes the other outputs: the same layers, once for all steps
            with torch.no_grad():
                values = self._parts.run(obs.reshape(-1, *obs.shape[2:]))
            rest = {
                key: value.reshape(*obs.shape[:2], *value.shape[1:])
                for key, value in values.items()
            }
            known = rest | known
        return {key: known[key] for key in wanted}

    def _action(self, action: Array) -> Tensor:
        tensor = _by_env(action)
        if self._kind == "categorical":
            if not self._one_hot:
                return tensor
            return torch.nn.functional.one_hot(tensor, int(self._space.n))
        tensor = tensor.float()
        if self._kind == "tanh_gaussian":
            # the bounds of TorchRL, at which the inverse of tanh is finite
            edge = 1 - torch.finfo(tensor.dtype).resolution
            tensor = tensor.clamp(-edge, edge)
        return tensor


class _Parts:
    """The modules of a policy in the order in which they run.

    Attributes:
      draw: The module that draws actions.
      has_value: Whether one of the modules writes "state_value".
      out_keys: The keys that the policy writes.
    """

    def __init__(self, policy: Any, *, casts: bool) -> None:
        self._casts = casts
        parts = list(_flatten(policy))
        # checked first, because the layers' hooks would notice the calls that follow
        if any(layer._forward_hooks or layer._forward_pre_hooks for layer in policy.modules()):
            raise SpecError("a layer has hooks, which native code would not call")
        draws = [part for part in parts if type(part) in _DRAWS]
        if len(draws) != 1:
            raise SpecError(
                f"{len(draws)} parts of the policy draw actions, expected one: a "
                "ProbabilisticActor or an ActorValueOperator of one"
            )
        self.draw: Any = draws[0]
        self.out_keys = tuple(policy.out_keys)
        self._computes = [part for part in parts if part is not self.draw]
        written = {_OBS}
        for part in self._computes:
            if not set(part.in_keys) <= written:
                raise SpecError(
                    f"a part reads {list(part.in_keys)}, expected the observation and what other "
                    "parts make of it"
                )
            written |= set(part.out_keys)
        if self.draw.out_keys[0] != _ACTION or self.draw.num_samples not in (None, ()):
            raise SpecError(f"what is drawn is {self.draw.out_keys}, expected one action")
        self.has_value = _VALUE in written
        unknown = set(self.out_keys) - written - set(self.draw.out_keys)
        if unknown:
            raise SpecError(f"it is not known what writes {sorted(map(str, unknown))}")

    def run(self, obs: Tensor) -> Values:
        """Computes all outputs for observations (B, ...), by key."""
        values: Values = {_OBS: obs.float() if self._casts else obs}
        for part in self._computes:
            outputs = part.module(*(values[key] for key in part.in_keys))
            outputs = outputs if isinstance(outputs, tuple) else (outputs,)
            values.update(zip(part.out_keys, outputs, strict=False))
        return values

    def params(self, values: Values) -> dict[str, Tensor]:
        """Parameters of the distribution: logits, or loc and scale."""
        keys = zip(self.draw.dist_keys, self.draw.in_keys, strict=True)
        params = {name: values[key] for name, key in keys}
        if set(params) not in ({"logits"}, {"loc", "scale"}):
            raise SpecError(
                f"the distribution is made of {', '.join(params)}, expected logits or loc and scale"
            )
        return params


class _Reader(Wrapped):
    """Returns (logits,) or (mean, log_std), and the value where there is one."""

    def __init__(self, policy: Any, parts: _Parts) -> None:
        super().__init__(policy)
        self._parts = parts

    def forward(self, obs: Tensor) -> tuple[Tensor, ...]:
        values = self._parts.run(obs)
        params = self._parts.params(values)
        value = (values[_VALUE],) if self._parts.has_value else ()
        if "logits" in params:
            return (params["logits"], *value)
        return (params["loc"], params["scale"].log(), *value)


def _flatten(part: Any) -> Iterator[Any]:
    """Yields the parts of a policy; SpecError where one has a forward of its own."""
    if _is_of(part, _SEQUENCES):
        for each in part.module:
            yield from _flatten(each)
    elif type(part) in _DRAWS or (_is_of(part, _COMPUTES) and not part._kwargs):
        yield part
    else:
        raise SpecError(
            f"the policy has a {type(part).__name__}, expected a ProbabilisticActor or an "
            "ActorValueOperator of TensorDictModules"
        )


def _is_of(part: Any, kinds: tuple[type, ...]) -> bool:
    """Tells if the part is of one of these classes, or of one with the same forward."""
    own: Any = getattr(type(part), "forward", None)
    return isinstance(part, kinds) and any(own is vars(kind).get("forward") for kind in kinds)


def _kind_of(parts: _Parts, pool: Any, *, one_hot: bool) -> HeadName:
    """The head that draws as the policy's distribution does; compares both on observations."""
    space = pool.single_observation_space
    if not isinstance(space, spaces.Box):
        raise SpecError(f"observations are of {space}, expected a Box")
    rows = random_rows(space, _COMPARED_ROWS, np.random.default_rng(0))
    with torch.no_grad():
        try:
            values = parts.run(torch.from_numpy(rows))
        except SpecError:
            raise
        except Exception as error:
            raise SpecError(
                f"the policy fails for observations of shape {rows.shape} and {rows.dtype}: "
                f"{type(error).__name__}: {error}"
            ) from error
        # parameters other than the policy's present ones, so that large ones are compared, too
        params = _some_params(parts.params(values))
        keys = dict(zip(parts.draw.dist_keys, parts.draw.in_keys, strict=True))
        named = {keys[name]: value for name, value in params.items()}
        dist = parts.draw.get_dist(TensorDict(named, [_COMPARED_ROWS]))
        if "logits" in params:
            return _discrete_kind(dist, params["logits"], pool, one_hot=one_hot)
        return _box_kind(dist, params["loc"], params["scale"], pool)


def _some_params(like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Returns other parameters of these shapes, small and large."""
    rng = np.random.default_rng(1)
    params = {
        name: torch.from_numpy(3 * rng.normal(size=each.shape)).to(each)
        for name, each in like.items()
    }
    if "scale" in params:
        params["scale"] = params["scale"].abs() / 3 + 0.2
    return params


def _discrete_kind(dist: Any, logits: Tensor, pool: Any, *, one_hot: bool) -> HeadName:
    space = pool.single_action_space
    kinds = _ONE_HOT if one_hot else _INDICES
    fits = isinstance(space, spaces.Discrete) and space.start == 0 and logits.ndim == 2
    if type(dist) not in kinds or not fits or logits.shape[1] != space.n:
        raise SpecError(
            f"actions are of a {type(dist).__name__} for {space}, expected a {kinds[0].__name__} "
            "for Discrete actions that begin at 0"
        )
    actions = torch.arange(int(space.n)).expand(len(logits), -1).T
    said = actions if not one_hot else torch.nn.functional.one_hot(actions, int(space.n))
    _check_density(dist, said, logits.log_softmax(-1).T)
    return "categorical"


def _box_kind(dist: Any, loc: Tensor, scale: Tensor, pool: Any) -> HeadName:
    space = pool.single_action_space
    squashes = type(dist) is TanhNormal
    is_normal = type(dist) is IndependentNormal or (
        type(dist) is distributions.Independent and type(dist.base_dist) is distributions.Normal
    )
    if not (squashes or is_normal) or not isinstance(space, spaces.Box):
        raise SpecError(
            f"actions are of a {type(dist).__name__} for {space}, expected a TanhNormal or an "
            "IndependentNormal for a Box"
        )
    if is_normal and (space.bounded_below.any() or space.bounded_above.any()):
        raise SpecError(
            f"actions beyond the bounds of {space} reach the environment as they are: use a "
            "TanhNormal"
        )
    if squashes and not ((space.low <= -1).all() and (space.high >= 1).all()):
        raise SpecError(f"actions of a TanhNormal are for {space}, expected one from -1 to 1")
    # not so far out that tanh cannot be inverted
    drawn = (loc + scale / 2).clamp(-2, 2)
    normal: Any = distributions.Normal(loc, scale)
    density = normal.log_prob(drawn)
    if squashes:
        density = density - (1 - drawn.tanh().square()).log()
    _check_density(dist, drawn.tanh() if squashes else drawn, density.sum(-1))
    return "tanh_gaussian" if squashes else "gaussian"


def _check_density(dist: Any, actions: Tensor, expected: Tensor) -> None:
    """Raises SpecError where a density does not follow from the distribution's parameters alone."""
    density = dist.log_prob(actions)
    if density.shape != expected.shape or not torch.allclose(
        density, expected, rtol=_TOLERANCE, atol=_TOLERANCE
    ):
        raise SpecError(
            f"the {type(dist).__name__} has settings (distribution_kwargs) that native code does "
            "not have, such as other bounds than -1 and 1 or one density for each element"
        )


def _by_env(array: Array) -> Tensor:
    """Copies (T, N, ...) to a tensor (N, T, ...)."""
    return torch.from_numpy(array).transpose(0, 1).contiguous()
