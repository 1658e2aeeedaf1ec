# SPDX-License-Identifier: Apache-2.0
"""A Tianshou policy as the pool's threads compute it, and when they can."""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import numpy.typing as npt
import torch
from tianshou.algorithm.algorithm_base import Policy
from tianshou.algorithm.modelfree.reinforce import ProbabilisticActorPolicy

from rollouts.checks import one_of
from rollouts.collecting.policy_engine import Engine, check_pool
from rollouts.errors import SpecError
from rollouts.policies.native import Head, HeadName, NativePolicy
from rollouts.policies.read_actor import ReadActor

from .vector_env import RolloutsVectorEnv

Array = npt.NDArray[Any]

# methods that decide an action: a policy that overrides one is not read
_OWN = {
    "forward": ProbabilisticActorPolicy,
    "map_action": Policy,
    "add_exploration_noise": Policy,
}


class Scaling(NamedTuple):
    """The environment's action: middle + half * action, clipped to the space's bounds.

    Attributes:
      middle, half: (*action_shape) float32
    """

    middle: Array
    half: Array


class NativeActor:
    """Chooses actions inside a pool as a ProbabilisticActorPolicy does.

    The policy keeps the weights: what it learns is used from the next collect on.

    Attributes:
      policy: The argument of `VectorEnv.collect`.
      num_inputs: Number of the logits, or of the means and log stds.
    """

    def __init__(self, policy: Any, env: Any, *, deterministic: bool) -> None:
        """Reads a policy that is in eval mode.

        Raises:
          SpecError: The policy has operations that native code lacks.
        """
        if any(parameter.device.type != "cpu" for parameter in policy.parameters()):
            raise SpecError("the policy is not on the CPU")
        self._space = env.single_action_space
        actor = ReadActor(policy, env.single_observation_space)
        kind: HeadName = "gaussian" if actor.is_gaussian else "categorical"
        _check_space(self._space, policy, kind)
        self._scaling = _scaling(policy) if actor.is_gaussian else None
        if self._scaling is not None:
            actor.scale(*self._scaling)
        self.policy = NativePolicy.from_torch(
            actor,
            self._space,
            env.single_observation_space,
            head=Head(kind, deterministic=deterministic),
            # this seed is drawn from torch's random numbers, so that torch's seed decides it
            seed=int(torch.randint(2**63 - 1, ()).item()),
        )
        size = int(self._space.n) if kind == "categorical" else 2 * int(np.prod(self._space.shape))
        self.num_inputs = size

    def act(self, action: Array) -> Array:
        """Converts actions to the policy's own scale and dtype."""
        if isinstance(self._space, gym.spaces.Discrete):
            return action
        if self._scaling is not None:
            action = (action - self._scaling.middle) / self._scaling.half
        return action.astype(np.float32)

    def spread(self, inputs: Array) -> Array:
        """Standard deviations (M, D) of the actions' distributions with inputs (M, k)."""
        if isinstance(self._space, gym.spaces.Discrete):
            shares = np.exp(inputs - inputs.max(1, keepdims=True))
            shares /= shares.sum(1, keepdims=True)
            numbers = np.arange(inputs.shape[1], dtype=np.float32)
            mean = (shares * numbers).sum(1, keepdims=True)
            spread: Array = np.sqrt((shares * (numbers - mean) ** 2).sum(1, keepdims=True))
            return spread
        spread = np.exp(inputs[:, inputs.shape[1] // 2 :])
        if self._scaling is not None:
            spread = spread / self._scaling.half.reshape(-1)
        return spread


class PolicyReader:
    """A collector's policy for native code, read again when the collector has another policy.

    Attributes:
      why_not: Why torch computes the policy; "" where the pool's threads do.
    """

    def __init__(self) -> None:
        """Starts without a policy."""
        self.why_not = "nothing was collected yet"
        self._seen: tuple[Any, ...] = ()
        self._read: NativeActor | str = ""

    def choose(self, wanted: Engine, env: Any, policy: Any, why_not: str) -> NativeActor | None:
        """Returns the actor of the pool's threads; None, with `why_not` set, where torch acts.

        Args:
          why_not: What native code lacks for the collector, hooks and buffer; "" for nothing.
        Raises:
          SpecError: wanted is no engine, or it is "native" and not possible.
        """
        one_of("rollout_engine", wanted, ("auto", "native", "torch"))
        if wanted == "torch":
            why_not = "rollout_engine='torch' was asked for"
        actor: NativeActor | None = None
        try:
            if why_not:
                raise SpecError(why_not)
            _check_env(env, must=wanted == "native")
            actor = self._actor(env.pool, policy)
            actor.policy.refresh()
            self.why_not = ""
        except SpecError as error:
            if wanted == "native":
                raise SpecError(f"rollout_engine='native' is not possible: {error}") from error
            actor, self.why_not = None, str(error)
        return actor

    def _actor(self, pool: Any, policy: Any) -> NativeActor:
        check_policy(policy)
        draws_the_likeliest = policy.deterministic_eval and not policy.is_within_training_step
        settings = (policy.action_scaling, policy.action_bound_method, draws_the_likeliest)
        seen = (pool, policy, policy.dist_fn, *settings, *policy.modules())
        if seen != self._seen:
            self._seen = seen
            try:
                self._read = NativeActor(policy, pool, deterministic=draws_the_likeliest)
            except SpecError as error:
                self._read = str(error)
        if isinstance(self._read, str):
            raise SpecError(self._read)
        return self._read


def _check_env(env: RolloutsVectorEnv, *, must: bool) -> None:
    pool: Any = env.pool
    check_pool(pool, must=must)
    if not env.goes_on_by_itself:
        raise SpecError("environments wait for a reset, or for one with other options")
    _, _, recipe = pool.engine.recipe
    if recipe["on_env_error"] == "reset":
        raise SpecError("environments that fail go on, and their last observation is not known")
    names = pool.info_names
    if names and not must:
        raise SpecError(
            f"the buffer keeps infos, which have {', '.join(names)}: with rollout_engine='native' "
            "they are left out"
        )


def check_policy(policy: Any) -> None:
    if not isinstance(policy, ProbabilisticActorPolicy):
        raise SpecError(
            f"the policy is a {type(policy).__name__}, expected a ProbabilisticActorPolicy, as "
            "PPO, A2C and Reinforce have it"
        )
    for name, owner in _OWN.items():
        if name in vars(policy) or getattr(type(policy), name) is not getattr(owner, name):
            raise SpecError(f"{type(policy).__name__} has its own {name}")
    # checked first, because the layers' hooks would notice the calls that follow
    if any(layer._forward_hooks or layer._forward_pre_hooks for layer in policy.modules()):
        raise SpecError("a layer has hooks, which native code would not call")


def _check_space(space: gym.Space[Any], policy: Any, kind: HeadName) -> None:
    wanted: Any = gym.spaces.Discrete if kind == "categorical" else gym.spaces.Box
    if not isinstance(space, wanted) or policy.action_space != space:
        raise SpecError(
            f"the environments' actions are {space} and the policy's {policy.action_space}, "
            f"expected the same {wanted.__name__} for what dist_fn makes"
        )
    if isinstance(space, gym.spaces.Discrete) and space.start != 0:
        raise SpecError(f"the action space is {space}, expected one that starts at 0")


def _scaling(policy: Any) -> Scaling | None:
    """The scaling of map_action, without its clipping to the space's bounds; None: no scaling."""
    space, method = policy.action_space, policy.action_bound_method
    low, high = space.low.astype(np.float32), space.high.astype(np.float32)
    is_unit = bool((low == -1).all() and (high == 1).all())
    if method == "clip" and policy.action_scaling:
        if is_unit:
            return None
        if not (np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all()):
            raise SpecError(f"actions are scaled to {space}, expected finite bounds")
        return Scaling((high + low) / 2, (high - low) / 2)
    if method == "clip" and is_unit:
        return None
    is_bounded = space.bounded_below.any() or space.bounded_above.any()
    if method is None and not policy.action_scaling and not is_bounded:
        return None
    raise SpecError(
        f"action_bound_method={method!r} with action_scaling={policy.action_scaling} maps actions "
        f"to {space} in another way than clipping and scaling"
    )
