# SPDX-License-Identifier: Apache-2.0
"""`NativePolicy`: a policy whose network and sampling run in native code, inside the pool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeGuard, get_args

import gymnasium
import numpy as np
from numpy.typing import NDArray

from rollouts import _native
from rollouts.errors import ProtocolError, SpecError
from rollouts.policies.checks import head_inputs
from rollouts.policies.program import Program, parameters_of
from rollouts.policies.protocol import PolicyOutput
from rollouts.policies.sources import Sources

if TYPE_CHECKING:
    from torch import Tensor, nn

Array = NDArray[Any]
HeadName = Literal[
    "categorical", "multi_categorical", "gaussian", "tanh_gaussian", "epsilon_greedy"
]

# noise of calls outside of a rollout, which know of no episode: one that no pool counts to
_NO_EPISODE = 2**32 - 1


@dataclass(frozen=True, slots=True)
class Head:
    """What is done with a network's outputs.

    Attributes:
      kind: "categorical" draws one of the logits (B, n); "multi_categorical" draws one of each
        slice of them, for MultiDiscrete actions; "gaussian" draws mean + std * noise of (mean,
        log_std), each (B, d); "tanh_gaussian" is its tanh, scaled to the bounds of the space if
        these are finite; "epsilon_greedy" takes the greatest of
        the values (B, n), or any with probability `epsilon`.
      deterministic: Takes the likeliest action in place of drawing.
      epsilon: From 0 to 1, for "epsilon_greedy".
      damping: For "gaussian", from 0.01 to 1: the share of a step's noise that the next one
        forgets, see `rollouts.policy.OrnsteinUhlenbeckHead`.
    """

    kind: HeadName = "categorical"
    deterministic: bool = False
    epsilon: float = 0.0
    damping: float = 1.0

    def __post_init__(self) -> None:
        if self.kind not in get_args(HeadName):
            known = ", ".join(get_args(HeadName))
            raise SpecError(f"head.kind is {self.kind!r}, expected one of {known}")
        if not 0 <= self.epsilon <= 1:
            raise SpecError(f"head.epsilon is {self.epsilon}, expected a share from 0 to 1")
        if not 0.01 <= self.damping <= 1:
            raise SpecError(f"head.damping is {self.damping}, expected a share from 0.01 to 1")
        if self.damping < 1 and self.kind != "gaussian":
            raise SpecError(f"head.damping is for a gaussian head, this one is {self.kind}")


class NativePolicy:
    """A `Policy` of a torch module, computed without torch.

    A `Collector` over a native pool takes it into the pool: its threads step environments and
    compute the network in turn, without Python, and without waiting for each other. Elsewhere
    `act` and `value` do what those of other policies do.

    The module stays the master: its weights are looked at before each rollout and at each call, so
    a learner that changes them in place is followed, as with `TorchPolicy`.

    Numbers are float32, sums are in the order of a layer's inputs: the same bits from every
    instruction set, for any number of threads and environments. Noise is a pure function of
    (seed, env_id, episode, step, element). Against torch's own answer, outputs differ by about
    1e-6 of the largest.

    A module with memory, as `RecurrentTorchPolicy` takes it, is computed inside a pool alone, which
    knows whose observations these are: `act` and `value` refuse it.
    """

    def __init__(
        self,
        program: Program,
        sources: Sources,
        action_space: gymnasium.Space[Any],
        head: Head,
        *,
        seed: int | Sequence[int] = 0,
    ) -> None:
        """Takes a program and where its weights come from; `from_torch` makes both of a module.

        Raises:
          SpecError: Program, head and action space do not fit; a weight is not finite.
        """
        self.policy_version = 0
        # what `act` adds to its extras, as `rollouts.Collector` names it
        self.extra_outputs: tuple[str, ...] = ()
        # parts of the policy that it stands for, where it was made for another one
        self.made_of: tuple[Any, ...] = ()
        self.program = program
        self.head = head
        self.sources = sources
        # of what is remembered of one environment
        self.state_shapes = tuple(each.shape for each in sources.initial_state())
        self._action_space = action_space
        check_action_space(action_space, head)
        self._first = int(action_space.start) if _is_discrete(action_space) else 0
        self._calls = 0
        self.seed(seed)

    @classmethod
    def from_torch(
        cls,
        module: nn.Module,
        action_space: gymnasium.Space[Any],
        observation_space: gymnasium.Space[Any] | int | None = None,
        *,
        head: Head | None = None,
        seed: int | Sequence[int] = 0,
    ) -> NativePolicy:
        """Reads a module as `TorchPolicy` takes it, or one of SB3, RLlib, CleanRL.

        Args:
          module: Maps obs (B, *obs_shape) to (logits, value), (mean, log_std, value), or what the
            head takes and perhaps a value; one with memory also its new state. Shared with the
            caller, not copied.
          action_space: Discrete, MultiDiscrete or Box, of one environment.
          observation_space: Of one environment; a number stands for as many float32 features.
            None for as many as the first linear layer reads.
          head: None for "categorical", "multi_categorical" or "gaussian", by the space.
          seed: Of the noise.
        Raises:
          SpecError: A layer is not known to native code, the module does not fit the spaces, or
            a weight is NaN or infinite.
        """
        from rollouts.policies.foreign import as_actor_critic
        from rollouts.policies.trace import trace

        module = as_actor_critic(module)
        if head is None:
            head = _head_of(action_space)
        if observation_space is None:
            observation_space = _num_inputs(module)
        program = trace(module, observation_space)
        return cls(program, Sources(module), action_space, head, seed=seed)

    def seed(self, seed: int | Sequence[int]) -> None:
        """Starts the noise anew from `seed`."""
        state = np.random.SeedSequence(seed).generate_state(1, np.uint64)
        self.seed_with(int(state[0]))

    def seed_with(self, noise_seed: int) -> None:
        """As `seed`, with the 64 bits themselves."""
        program, head = self.program, self.head
        self._native = _native.NativePolicy(
            program.obs_size,
            [(op.kind, op.inputs, op.params, op.numbers, op.size) for op in program.ops],
            [(param.name, int(np.prod(param.shape))) for param in program.params],
            list(program.outputs),
            {
                "kind": head.kind,
                "deterministic": head.deterministic,
                "epsilon": head.epsilon,
                "damping": head.damping,
                "seed": noise_seed % 2**64,
                "nvec": _nvec(self._action_space),
                "bounds": _bounds(self._action_space, head),
            },
            list(program.state_sizes),
        )
        self.refresh()

    def refresh(self) -> _native.NativePolicy:
        """Takes over the module's weights where they have changed; returns what computes.

        Raises:
          SpecError: A weight is NaN or infinite, or has another shape than before.
        """
        arrays, initial = self.sources.arrays(), self.sources.initial_state()
        seen = [*arrays.values(), *initial]
        if not self._native.holds(seen):
            first = np.concatenate([np.zeros(0, np.float32), *map(np.ravel, initial)])
            self._native.load(parameters_of(self.program, arrays), seen, first)
        return self._native

    def freeze(self) -> FrozenPolicy:
        """Returns what computes with the weights of this moment, as `VectorEnv.collect` takes it.

        Raises:
          SpecError: As `refresh`.
        """
        return FrozenPolicy(self.refresh().snapshot())

    def act(self, obs: Array, action_mask: Array | None = None) -> PolicyOutput:
        """Chooses an action for each row of `obs`; noise differs from call to call.

        Args:
          obs: (B, *obs_shape).
          action_mask: As `TorchPolicy.act`.
        Raises:
          SpecError: A row allows nothing, or masks are not of these logits.
        """
        self._refuse_memory("act")
        rows = self._rows(obs)
        keys = np.empty((3, len(rows)), np.uint32)
        keys[0] = np.arange(len(rows))
        keys[1], keys[2] = _NO_EPISODE, self._calls % 2**32
        self._calls += 1
        action, log_prob, entropy, *outputs = self.refresh().act(rows, keys, action_mask)
        extras = {name: self._extra(name, entropy, outputs) for name in self.extra_outputs}
        value = self._value(outputs, len(rows))
        return PolicyOutput(self._as_space(action), log_prob, value, extras)

    def value(self, obs: Array) -> NDArray[np.float32]:
        """Estimates the return (B,) from each row of `obs`."""
        self._refuse_memory("value")
        rows = self._rows(obs)
        return self._value(list(self.refresh().evaluate(rows)), len(rows))

    def module_outputs(self, obs: Array) -> tuple[NDArray[np.float32], ...]:
        """Returns what the module would, for rows of `obs`: each output as (B, size).

        Of a module with memory, rows have the states behind the observation, flattened, and the
        new states are the last outputs.
        """
        outputs: tuple[NDArray[np.float32], ...] = self.refresh().evaluate(self._rows(obs))
        return outputs

    def weights(self) -> dict[str, Array]:
        """Returns a copy of the module's state_dict as NumPy arrays."""
        return self.sources.copy()

    def weight_shapes(self) -> dict[str, tuple[int, ...]]:
        """Returns the names and shapes that `load_weights` takes."""
        return self.sources.shapes()

    def load_weights(self, weights: Mapping[str, Array | Tensor], version: int) -> None:
        """Copies `weights` into the module, which must have the same names and shapes."""
        self.sources.load(weights)
        self.refresh()
        self.policy_version = version

    def _refuse_memory(self, what: str) -> None:
        if self.state_shapes:
            raise ProtocolError(
                f"{what}() of a policy with memory was called without whose observations these "
                "are: give it to a Collector over a native pool, or use RecurrentTorchPolicy"
            )

    def _rows(self, obs: Array) -> NDArray[np.float32]:
        rows = np.ascontiguousarray(obs, np.float32)
        return rows.reshape(len(rows), -1)

    def _value(self, outputs: list[Array], num_rows: int) -> NDArray[np.float32]:
        num_inputs = 2 if self.head.kind.endswith("gaussian") else 1
        if len(outputs) == num_inputs:
            return np.zeros(num_rows, np.float32)
        value: NDArray[np.float32] = outputs[-1].reshape(num_rows)
        return value

    def _extra(self, name: str, entropy: Array, outputs: list[Array]) -> Array:
        if name == "entropy":
            return entropy
        part = outputs[head_inputs(self._action_space).index(name)]
        if name == "logits":
            return part
        # one standard deviation may serve all dimensions
        shape = (len(part), *(self._action_space.shape or ()))
        return np.broadcast_to(part, outputs[0].shape).reshape(shape)

    def _as_space(self, action: Array) -> Array:
        if _is_discrete(self._action_space):
            return (action + self._first).astype(self._action_space.dtype, copy=False)
        shape = (len(action), *(self._action_space.shape or ()))
        return action.reshape(shape).astype(self._action_space.dtype, copy=False)


class FrozenPolicy:
    """What a `NativePolicy` computed at one moment, whatever becomes of its module since."""

    def __init__(self, native: _native.NativePolicy) -> None:
        self._native = native

    def refresh(self) -> _native.NativePolicy:
        """Returns what computes: always the same."""
        return self._native


def _num_inputs(module: nn.Module) -> int:
    from torch import nn

    for layer in module.modules():
        if isinstance(layer, nn.Linear):
            return int(layer.in_features)
        if isinstance(layer, nn.RNNBase | nn.RNNCellBase):
            return int(layer.input_size)
    raise SpecError(
        "the module has no linear layer that would tell what it reads; give observation_space"
    )


def check_action_space(space: gymnasium.Space[Any], head: Head) -> None:
    """Raises SpecError where a head does not choose actions of this space."""
    is_box = isinstance(space, gymnasium.spaces.Box) and np.dtype(space.dtype).kind == "f"
    fits, wanted = _is_discrete(space), "Discrete"
    if head.kind.endswith("gaussian"):
        fits, wanted = is_box, "a Box of floats"
    elif head.kind == "multi_categorical":
        # what begins elsewhere has no native environment
        fits = isinstance(space, gymnasium.spaces.MultiDiscrete) and not np.any(space.start)
        wanted = "MultiDiscrete from 0 on"
    if not fits:
        raise SpecError(f"the action space is {space}, expected {wanted} for a {head.kind} head")


def _is_discrete(space: gymnasium.Space[Any]) -> TypeGuard[gymnasium.spaces.Discrete[Any]]:
    return isinstance(space, gymnasium.spaces.Discrete)


def _head_of(space: gymnasium.Space[Any]) -> Head:
    if isinstance(space, gymnasium.spaces.MultiDiscrete):
        return Head("multi_categorical")
    return Head("categorical" if _is_discrete(space) else "gaussian")


def _bounds(space: gymnasium.Space[Any], head: Head) -> NDArray[np.float32]:
    """What a squashed action is scaled to: low and high (2, d); (0,) for -1 to 1.

    Raises:
      SpecError: An action has no width.
    """
    if head.kind != "tanh_gaussian" or not isinstance(space, gymnasium.spaces.Box):
        return np.zeros(0, np.float32)
    with np.errstate(over="ignore"):
        bounds = np.stack([np.ravel(space.low), np.ravel(space.high)]).astype(np.float32)
    if not np.isfinite(bounds).all():
        return np.zeros(0, np.float32)
    if not (bounds[0] < bounds[1]).all():
        raise SpecError(f"the action space is {space}, expected low below high for each number")
    return bounds


def _nvec(space: gymnasium.Space[Any]) -> list[int]:
    """How many actions each element of a MultiDiscrete space has; of others none."""
    if not isinstance(space, gymnasium.spaces.MultiDiscrete):
        return []
    return [int(n) for n in np.ravel(space.nvec)]
