# SPDX-License-Identifier: Apache-2.0
"""`NativePolicy`: a policy whose network and sampling run in native code, inside the pool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from rollouts import _native
from rollouts.errors import ProtocolError, SpecError
from rollouts.policies.native_heads import Head as Head
from rollouts.policies.native_heads import HeadName as HeadName
from rollouts.policies.native_heads import bounds_of, head_of, is_discrete, nvec_of
from rollouts.policies.native_heads import check_action_space as check_action_space
from rollouts.policies.output_checks import check_seed, head_inputs
from rollouts.policies.program import Program, parameters_of
from rollouts.policies.protocol import PolicyOutput
from rollouts.policies.sources import Sources

if TYPE_CHECKING:
    from torch import Tensor, nn

    from rollouts.policies.reading import ModuleReading

Array = NDArray[Any]
# number of the episode for noise outside of a rollout, which no pool reaches
_NO_EPISODE = 2**32 - 1


class NativePolicy:
    """A `Policy` that computes a torch module without torch.

    A `Collector` over a native pool runs it in the pool, whose threads step environments and
    compute the network in turn, without Python, and without waiting for each other. Elsewhere `act`
    and `value` work like those of other policies.

    The module keeps its weights: they are read before each rollout and at each call, so
    that changes in place take effect, as with `TorchPolicy`. Other data that its forward reads,
    such as an attribute with a number, is checked too, and the module is read again where it has
    changed. Once in a while, for at most 1/200 of the time, the module itself computes a row for
    comparison: a difference leads to a RuntimeWarning and a SpecError.

    Numbers are float32, and sums are in the order of a layer's inputs: the bits are equal for every
    instruction set and any number of threads and environments. Noise is a pure function of (seed,
    env_id, episode, step, element). Outputs differ from torch's by about 1e-6 of the largest.

    A module with memory, as `RecurrentTorchPolicy` takes it, is computed only inside a pool, where
    the environment of each observation is known: `act` and `value` refuse it.
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
        """Takes a program and the source of its weights; `from_torch` makes both from a module.

        Raises:
          SpecError: Program, head and action space do not fit; a weight is not finite.
        """
        self.policy_version = 0
        # what `act` adds to its extras, as `rollouts.Collector` names it
        self.extra_outputs: tuple[str, ...] = ()
        # parts of the policy that it was made from and replaces, if any
        self.made_of: tuple[Any, ...] = ()
        self.program = program
        self.head = head
        self.sources = sources
        # shapes of the arrays that one environment's memory consists of
        self.state_shapes = tuple(each.shape for each in sources.initial_state())
        self._action_space = action_space
        check_action_space(action_space, head)
        self._first = int(action_space.start) if is_discrete(action_space) else 0
        self._calls = 0
        # set only in a policy that `from_torch` made
        self._reading: ModuleReading | None = None
        self._has_agreed = False
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
          module: Maps obs (B, *obs_shape) to (logits, value), (mean, log_std, value), or the head's
            inputs and perhaps a value; a module with memory also to its new state. Shared with the
            caller, not copied.
          action_space: Discrete, MultiDiscrete or Box, of one environment.
          observation_space: Space of one environment; a number stands for that many float32
            features. None: the number of features that the first linear layer reads.
          head: None for "categorical", "multi_categorical" or "gaussian", by the space.
          seed: Seed of the noise.
        Raises:
          SpecError: Native code does not support a layer, the module does not fit the spaces, or
            a weight is NaN or infinite.
        """
        from rollouts.policies.foreign import as_actor_critic
        from rollouts.policies.inputs import check_module
        from rollouts.policies.reading import ModuleReading

        check_module(module)
        given, module = module, as_actor_critic(module)
        if head is None:
            head = head_of(action_space)
        if observation_space is None:
            observation_space = _num_inputs(module)
        reading = ModuleReading(given, module, observation_space)
        policy = cls(reading.program, Sources(module), action_space, head, seed=seed)
        policy._reading = reading
        return policy

    @property
    def reading(self) -> ModuleReading | None:
        """The record of reading the module; None where the program was given."""
        return self._reading

    @property
    def action_space(self) -> gymnasium.Space[Any]:
        """The space of one environment's actions."""
        return self._action_space

    def seed(self, seed: int | Sequence[int]) -> None:
        """Starts the noise anew from `seed`."""
        check_seed(seed)
        state = np.random.SeedSequence(seed).generate_state(1, np.uint64)
        self.seed_with(int(state[0]))

    def seed_with(self, noise_seed: int) -> None:
        """As `seed`, with all 64 bits given."""
        self._noise_seed = noise_seed
        self._make()

    def _make(self) -> None:
        program, head = self.program.without_detach(), self.head
        self._made_head = head
        self._native = _native.NativePolicy(
            program.obs_size,
            *program.described(),
            list(program.outputs),
            {
                "kind": head.kind,
                "deterministic": head.deterministic,
                "epsilon": head.epsilon,
                "damping": head.damping,
                "seed": self._noise_seed % 2**64,
                "nvec": nvec_of(self._action_space),
                "bounds": bounds_of(self._action_space, head),
            },
            list(program.state_sizes),
        )
        self._load()

    def refresh(self, obs: Array | None = None) -> _native.NativePolicy:
        """Takes over the module's weights, and other data that it reads, where they have changed.

        Args:
          obs: (B, *obs_shape), its next observations, for a comparison with the module.
        Returns:
          The native policy that computes.
        Raises:
          SpecError: A weight is NaN or infinite, or has another shape than before; the module
            cannot be read any more, or its results differ.
        """
        reading = self._reading
        if reading is not None and not reading.is_as_read():
            self._read_again(reading)
        if self.head is not self._made_head:
            check_action_space(self._action_space, self.head)
            self._make()
        self._load()
        # a collector calls `agrees` first and can use torch instead; here a difference is an error
        has_agreed, self._has_agreed = self._has_agreed, False
        if reading is not None and not has_agreed and reading.check.is_due():
            reading.check.run(self, obs)
        return self._native

    def agrees(self, obs: Array | None = None) -> bool:
        """Tells if the module is as it was read, and its results are those of native code.

        Args:
          obs: As for `refresh`.
        """
        reading = self._reading
        self._has_agreed = True
        if self.head is not self._made_head:
            return False
        if reading is None or not reading.is_as_read():
            return reading is None
        if reading.check.is_due():
            # errors in the weights are raised by `refresh`
            with suppress(SpecError):
                self._load()
                reading.check.run(self, obs)
            return reading.is_as_read()
        return True

    def has_weights_of_module(self) -> bool:
        """Tells if the module's weights are still those that were taken over last."""
        return self._native.holds([*self.sources.arrays().values(), *self.sources.initial_state()])

    def evaluate_rows(self, rows: Array) -> tuple[NDArray[np.float32], ...]:
        """Each output (B, size) for rows (B, obs_size + state_sizes), by the refreshed weights."""
        found: tuple[NDArray[np.float32], ...] = self._native.evaluate(self._rows(rows))
        return found

    def _read_again(self, reading: ModuleReading) -> None:
        reading.read()
        self.sources = Sources(reading.module)
        if reading.program != self.program:
            self.program = reading.program
            self._make()

    def _load(self) -> _native.NativePolicy:
        arrays, initial = self.sources.arrays(), self.sources.initial_state()
        seen = [*arrays.values(), *initial]
        if not self._native.holds(seen):
            first = np.concatenate([np.zeros(0, np.float32), *map(np.ravel, initial)])
            self._native.load(parameters_of(self.program, arrays), seen, first)
        return self._native

    def freeze(self, obs: Array | None = None) -> FrozenPolicy:
        """Returns a policy with the weights of this moment, for `VectorEnv.collect`.

        Args:
          obs: As for `refresh`.
        Raises:
          SpecError: As `refresh`.
        """
        return FrozenPolicy(self.refresh(obs).snapshot())

    def act(self, obs: Array, action_mask: Array | None = None) -> PolicyOutput:
        """Chooses an action for each row of `obs`; noise differs from call to call.

        Args:
          obs: (B, *obs_shape).
          action_mask: As `TorchPolicy.act`.
        Raises:
          SpecError: A row allows no action, or the masks do not fit the logits.
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
        """Returns the module's outputs for rows of `obs`, each as (B, size).

        For a module with memory, each row has the flattened states after the observation, and the
        last outputs are the new states.
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
        # one standard deviation may count for all dimensions
        shape = (len(part), *(self._action_space.shape or ()))
        return np.broadcast_to(part, outputs[0].shape).reshape(shape)

    def _as_space(self, action: Array) -> Array:
        if is_discrete(self._action_space):
            return (action + self._first).astype(self._action_space.dtype, copy=False)
        shape = (len(action), *(self._action_space.shape or ()))
        return action.reshape(shape).astype(self._action_space.dtype, copy=False)


class FrozenPolicy:
    """A copy of a `NativePolicy` at one moment: later changes of its module do not matter."""

    def __init__(self, native: _native.NativePolicy) -> None:
        self._native = native

    def refresh(self, obs: Array | None = None) -> _native.NativePolicy:
        """Returns the native policy that computes, always the same one."""
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
