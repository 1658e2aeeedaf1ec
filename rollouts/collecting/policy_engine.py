# SPDX-License-Identifier: Apache-2.0
"""Chooses the code that computes a policy: the pool's own threads, or the policy step by step."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, get_args

import gymnasium

from rollouts import _native
from rollouts.errors import SpecError

if TYPE_CHECKING:
    from rollouts.policies.native import Head, NativePolicy
    from rollouts.policy import TorchPolicy

Engine = Literal["auto", "native", "torch"]


def check_engine(engine: Engine, name: str = "engine") -> Engine:
    """Returns `engine`, if it is valid.

    Raises:
      SpecError: It is none of the three names.
    """
    if engine not in get_args(Engine):
        raise SpecError(f"{name} is {engine!r}, expected 'auto', 'native' or 'torch'")
    return engine


def choose_engine(
    engine: Engine, env: Any, policies: Mapping[str, Any]
) -> tuple[dict[str, NativePolicy] | None, str]:
    """Returns the groups' policies that native code computes, or None and why it does not.

    Args:
      engine: "auto", "native" or "torch".
      env: The environments.
      policies: group -> its policy; "" is the group of environments with one agent. Native code
        computes all of them, or none.

    Raises:
      SpecError: engine is none of the three, or is "native" where that is not possible.
    """

    def read_one(name: str, policy: Any) -> NativePolicy:
        try:
            return _native_policy(policy, lambda: observation_space_of(env, name))
        except SpecError as error:
            if not name:
                raise
            raise SpecError(f"group {name!r}: {error}") from error

    if check_engine(engine) == "torch":
        return None, "engine='torch' was asked for"
    try:
        check_pool(env, must=engine == "native")
        return {name: read_one(name, policy) for name, policy in policies.items()}, ""
    except SpecError as error:
        if engine == "native":
            raise SpecError(f"engine='native' is not possible: {error}") from error
        return None, str(error)


def observation_space_of(env: Any, group: str) -> gymnasium.Space[Any]:
    """Returns the space of one agent of a group; "" is the group of one agent."""
    space: gymnasium.Space[Any] = (
        env.single_observation_spaces[group] if group else env.single_observation_space
    )
    return space


def check_pool(env: Any, *, must: bool) -> None:
    """Raises SpecError where an environment's threads cannot compute a policy.

    Args:
      env: The environment.
      must: Whether native code is required even if torch is faster.
    """
    # a wrapper passes on attributes of the environment inside it, but its class does not have them
    if not hasattr(type(env), "why_not_collects"):
        raise SpecError(
            f"a {type(env).__name__} is no native pool: its environments run in Python or on a "
            "device, and native pools alone compute policies by their own threads"
        )
    if why_not := env.why_not_collects:
        raise SpecError(why_not)
    if not must and (why_not := why_slow()):
        raise SpecError(why_not)


def why_slow() -> str:
    """The reason why torch is faster than native code on this machine; "" where it is not."""
    if _native.policy_kernels_in_use() == "emulated":
        return "this machine has no fused multiply-add, without which torch is faster"
    return ""


def _native_policy(policy: Any, space: Callable[[], gymnasium.Space[Any]]) -> NativePolicy:
    # if neither module was imported, `policy` cannot be of one of their classes
    if "rollouts.policy" not in sys.modules and "rollouts.policies.native" not in sys.modules:
        raise SpecError(f"a {type(policy).__name__} chooses its actions itself")
    return native_of(policy, space())


def native_of(policy: Any, observation_space: gymnasium.Space[Any]) -> NativePolicy:
    """Returns a native policy as it is, and the native policy for a `TorchPolicy` or a
    `RecurrentTorchPolicy`, with shared weights and seed.

    Raises:
      SpecError: It is of another class, or its module cannot be read.
    """
    from rollouts.policies.native import NativePolicy
    from rollouts.policy import TorchPolicy
    from rollouts.recurrent import RecurrentTorchPolicy

    if isinstance(policy, NativePolicy):
        return policy
    head = head_of(policy) if type(policy) in (TorchPolicy, RecurrentTorchPolicy) else None
    if head is None:
        raise SpecError(
            f"the policy is a {type(policy).__name__} of its own, whose actions native code does "
            "not choose"
        )
    if type(policy) is TorchPolicy and hasattr(policy.module, "initial_state"):
        raise SpecError(
            f"{type(policy.module).__name__} has memory (initial_state), expected a "
            "RecurrentTorchPolicy of it"
        )
    native = NativePolicy.from_torch(
        policy.module, policy.action_space, observation_space, head=head
    )
    native.seed_with(policy.noise_seed)
    native.made_of = parts_of(policy)
    return native


def head_of(policy: TorchPolicy) -> Head | None:
    """Returns the native head that replaces the policy's; None for a user's own head.

    Raises:
      SpecError: It squashes actions to other bounds than those of the action space.
    """
    from rollouts import policy as heads
    from rollouts.policies.native import Head

    if isinstance(policy.head, heads.OrnsteinUhlenbeckHead):
        return Head("gaussian", damping=policy.head.damping)
    kinds: dict[type, Head] = {
        heads.CategoricalHead: Head("categorical"),
        heads.MultiCategoricalHead: Head("multi_categorical"),
        heads.GaussianHead: Head("gaussian"),
        heads.SquashedGaussianHead: Head("tanh_gaussian"),
    }
    head: Any = policy.head
    if isinstance(head, heads.SquashedGaussianHead):
        own = heads.SquashedGaussianHead.of(policy.action_space)
        if not (own.low.equal(head.low.cpu()) and own.high.equal(head.high.cpu())):
            raise SpecError(
                f"the policy's head squashes actions to {head.low.tolist()} to "
                f"{head.high.tolist()}, expected the bounds of {policy.action_space}"
            )
    return kinds.get(type(head))


def still_computes(native: NativePolicy, policy: Any, obs: Any = None) -> bool:
    """Tells if `native` still computes `policy`, which may have got other layers, head or seed,
    or read other values.

    Args:
      obs: (B, *obs_shape), its next observations, if they are known.
    """
    if native is not policy and native.made_of != parts_of(policy):
        return False
    return native.agrees(obs)


def parts_of(policy: Any) -> tuple[Any, ...]:
    """Returns the parts of a policy from which a native policy is made."""
    return tuple(getattr(policy, name, None) for name in ("module", "head", "noise_seed"))
