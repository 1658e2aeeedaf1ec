# SPDX-License-Identifier: Apache-2.0
"""`TorchPolicy`, the `Policy` that wraps a torch module."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, log, pi
from typing import Any, Protocol

import gymnasium
import numpy as np
from numpy.typing import DTypeLike, NDArray

from rollouts.errors import SpecError
from rollouts.policies.output_checks import (
    check_module_outputs,
    check_names,
    check_seed,
    head_inputs,
    output_names,
)
from rollouts.policies.protocol import Array as Array
from rollouts.policies.protocol import Policy as Policy
from rollouts.policies.protocol import PolicyOutput as PolicyOutput
from rollouts.policies.protocol import RecurrentPolicy as RecurrentPolicy
from rollouts.policies.protocol import Rows as Rows
from rollouts.support.extras import needs

with needs("torch", "TorchPolicy"):
    import torch
    from torch import Tensor, nn

    from rollouts.machine.torch_device import read_device
    from rollouts.policies.gaussian import GaussianHead as GaussianHead
    from rollouts.policies.gaussian import OrnsteinUhlenbeckHead as OrnsteinUhlenbeckHead
    from rollouts.policies.inputs import as_input, call_module, check_module
    from rollouts.policies.logit_masks import check_masks
    from rollouts.policies.logit_masks import mask_logits as mask_logits


class TorchPolicy:
    """A `Policy` around an actor-critic module.

    The module maps obs (B, *obs_shape) to the outputs below. Floats, such as MuJoCo's float64, are
    cast to the dtype of its parameters. Whole numbers, such as the uint8 of pixels, are passed
    unchanged: the module divides them (obs / 255), or has an embedding for them.

      Discrete actions:       (logits (B, A), value (B,) or (B, 1))
      MultiDiscrete actions:  (logits (B, A_0 + A_1 + ...), value), element after element
      Box actions:            (mean (B, *action_shape), log_std broadcastable to mean, value)

    It must not write to its input, which shares memory with the environment's arrays. Gaussian
    actions are returned as sampled, not clipped to the bounds: `log_prob` belongs to that sample.
    """

    def __init__(
        self,
        module: nn.Module,
        action_space: gymnasium.Space[Any],
        *,
        seed: int | Sequence[int] = 0,
        device: str | torch.device = "cpu",
    ) -> None:
        """Moves `module` to `device` and seeds the sampling.

        Args:
          module: actor-critic as described above; shared with the caller, not copied.
          action_space: Discrete, MultiDiscrete or Box, of one environment.
          seed: a number, or several such as (seed, worker_id); the same seed, weights and
            observations give the same actions, whatever else draws random numbers in the process.
          device: where the module runs.
        Raises:
          DTypeError: module is no torch module. SpecError: action_space is neither Discrete,
            MultiDiscrete nor Box of floats, or there is no such device.
        """
        check_module(module)
        self.action_space = action_space
        self._device = read_device(device)
        self.module = module.to(self._device)
        self.head = make_action_head(action_space)
        self.policy_version = 0
        # names of the extra outputs of `act`, see `outputs` of `rollouts.Collector`
        self.extra_outputs: tuple[str, ...] = ()
        self._generator = torch.Generator(self._device)
        self.seed(seed)

    def seed(self, seed: int | Sequence[int]) -> None:
        """Starts the sampling anew from `seed`."""
        check_seed(seed)
        state = np.random.SeedSequence(seed).generate_state(1, np.uint64)
        # also the seed of the noise where native code samples instead of torch
        self.noise_seed = int(state[0] >> np.uint64(1))
        self._generator.manual_seed(self.noise_seed)

    @torch.inference_mode()
    def act(self, obs: Array, action_mask: Array | None = None) -> PolicyOutput:
        """Samples an action for each row of `obs`, in one forward pass.

        Args:
          obs: (B, *obs_shape).
          action_mask: (B, A) bool, which actions may be chosen; for MultiDiscrete actions A is the
            sum of nvec. None: all.
        Raises:
          SpecError: A row allows no action, or the masks do not fit the module's logits.
        """
        outputs = call_module(self.module, as_tensor(obs).to(self._device))
        check_module_outputs(outputs, output_names(self.head), len(obs))
        *params, value = outputs
        return self._sample(params, value, action_mask)

    @torch.inference_mode()
    def value(self, obs: Array) -> NDArray[np.float32]:
        """Returns the module's value (B,) for each row of `obs`."""
        outputs = call_module(self.module, as_tensor(obs).to(self._device))
        check_module_outputs(outputs, output_names(self.head), len(obs))
        value: Tensor = outputs[-1]
        result: NDArray[np.float32] = value.reshape(-1).cpu().numpy()
        return result

    def weights(self) -> dict[str, Array]:
        """Returns a copy of the module's state_dict as NumPy arrays."""
        state = self.module.state_dict()
        return {name: np.array(tensor.detach().cpu().numpy()) for name, tensor in state.items()}

    def weight_shapes(self) -> dict[str, tuple[int, ...]]:
        """Returns the names and shapes that `load_weights` takes."""
        return {name: tuple(tensor.shape) for name, tensor in self.module.state_dict().items()}

    def load_weights(self, weights: Mapping[str, Array | Tensor], version: int) -> None:
        """Copies `weights` into the module, which must have the same names and shapes."""
        check_names(weights, self.weight_shapes())
        state = {
            name: value if isinstance(value, Tensor) else as_tensor(np.asarray(value))
            for name, value in weights.items()
        }
        self.module.load_state_dict(state)
        self.policy_version = version

    def _sample(
        self, params: Sequence[Tensor], value: Tensor, action_mask: Array | None = None
    ) -> PolicyOutput:
        if action_mask is not None:
            mask = as_tensor(np.asarray(action_mask, np.bool_)).to(self._device)
            check_masks(mask, self.action_space)
            params = [mask_logits(params[0], mask), *params[1:]]
        action, log_prob = self.head.sample(params, self._generator)
        return PolicyOutput(
            action.cpu().numpy().astype(self.head.dtype, copy=False),
            log_prob.cpu().numpy(),
            value.reshape(-1).cpu().numpy(),
            self._extras(params, action) if self.extra_outputs else {},
        )

    def _extras(self, params: Sequence[Tensor], action: Tensor) -> dict[str, Array]:
        # one standard deviation may count for all rows and dimensions
        names = head_inputs(self.action_space)
        said = {n: p.expand_as(params[0]) for n, p in zip(names, params, strict=False)}
        if "entropy" in self.extra_outputs:
            said["entropy"] = self.head.evaluate(params, action)[1]
        return {name: said[name].cpu().numpy() for name in self.extra_outputs if name in said}

    def as_input(self, obs: Array) -> Tensor:
        """Observations as inputs of the module, for a learner's own calls, too.

        Returns:
          A tensor on the module's device; floats of any precision get its parameters' dtype.
        """
        return as_input(self.module, as_tensor(obs).to(self._device))


class ActionHead(Protocol):
    """Turns a module's action outputs into samples and densities; one per kind of action space."""

    @property
    def dtype(self) -> DTypeLike:
        """The dtype of the action space."""
        ...

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the module's outputs that determine actions, in order; for messages.
        A user's head may leave it out."""
        ...

    def sample(self, params: Sequence[Tensor], generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draws actions (B, *action_shape) and returns them with their log_prob (B,)."""
        ...

    def evaluate(self, params: Sequence[Tensor], action: Tensor) -> tuple[Tensor, Tensor]:
        """Returns log_prob (B,) of `action` and the entropy (B,), both differentiable."""
        ...


def make_action_head(action_space: gymnasium.Space[Any]) -> ActionHead:
    """Returns the head for `action_space`; the learner calls its `evaluate`.

    Raises:
      SpecError: action_space is neither Discrete, MultiDiscrete nor Box of floats.
    """
    if not isinstance(action_space, gymnasium.Space):
        raise SpecError(
            f"action_space is {action_space!r}, expected a space of Gymnasium: "
            "env.single_action_space"
        )
    # Gymnasium's versions declare different types for a space's dtype
    dtype = np.dtype(action_space.dtype)
    if isinstance(action_space, gymnasium.spaces.Discrete):
        return CategoricalHead(start=int(action_space.start), dtype=dtype)
    if isinstance(action_space, gymnasium.spaces.MultiDiscrete) and not np.any(action_space.start):
        nvec = tuple(int(n) for n in np.ravel(action_space.nvec))
        return MultiCategoricalHead(nvec, tuple(action_space.nvec.shape), dtype)
    if isinstance(action_space, gymnasium.spaces.Box) and dtype.kind == "f":
        return GaussianHead(dtype=dtype)
    raise SpecError(
        f"action space is {action_space}, expected Discrete, MultiDiscrete from 0 on or Box of "
        "floats: write a class with the methods of rollouts.policy.Policy for other spaces"
    )


@dataclass(frozen=True, slots=True)
class CategoricalHead:
    """Discrete actions from logits (B, A); action i is the space's number `start` + i."""

    start: int
    dtype: DTypeLike
    outputs: tuple[str, ...] = ("logits",)

    def sample(self, params: Sequence[Tensor], generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draws by racing exponential clocks, the earliest of which is i with probability p_i.

        It takes a fifth of the time of `torch.distributions`, which validates and draws from a CDF.
        """
        (logits,) = params
        log_probs = logits.log_softmax(-1)
        clock = torch.empty_like(log_probs).exponential_(generator=generator)
        index = (log_probs.exp() / clock).argmax(-1, keepdim=True)
        log_prob = log_probs.gather(-1, index)[:, 0]
        action = index[:, 0]
        return (action + self.start if self.start else action), log_prob

    def most_likely(self, params: Sequence[Tensor]) -> Tensor:
        """Returns the actions (B,) of the greatest probability."""
        return params[0].argmax(-1) + self.start

    def evaluate(self, params: Sequence[Tensor], action: Tensor) -> tuple[Tensor, Tensor]:
        """Returns log_prob and entropy (B,) for action (B,)."""
        (logits,) = params
        log_probs = logits.log_softmax(-1)
        index = (action.long() - self.start)[:, None]
        # an action of probability 0 adds nothing, where 0 * -inf would add NaN
        finite = log_probs.masked_fill(log_probs == -inf, 0.0)
        entropy = -(log_probs.exp() * finite).sum(-1)
        return log_probs.gather(-1, index)[:, 0], entropy


@dataclass(frozen=True, slots=True)
class MultiCategoricalHead:
    """MultiDiscrete actions: each element from its own slice of the logits, independent of others.

    Attributes:
      nvec: Number of actions, and of logits, of each element.
      shape: Shape of an action.
    """

    nvec: tuple[int, ...]
    shape: tuple[int, ...]
    dtype: DTypeLike
    outputs: tuple[str, ...] = ("logits",)

    def sample(self, params: Sequence[Tensor], generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draws each element as `CategoricalHead` does."""
        pairs = [_CATEGORICAL.sample((logits,), generator) for logits in self._split(params)]
        actions, log_probs = zip(*pairs, strict=True)
        return torch.stack(actions, -1).reshape(-1, *self.shape), torch.stack(log_probs).sum(0)

    def most_likely(self, params: Sequence[Tensor]) -> Tensor:
        """Returns the actions (B, *shape) of the greatest probability."""
        best = [logits.argmax(-1) for logits in self._split(params)]
        return torch.stack(best, -1).reshape(-1, *self.shape)

    def evaluate(self, params: Sequence[Tensor], action: Tensor) -> tuple[Tensor, Tensor]:
        """Returns log_prob and entropy (B,), summed over the elements, for action (B, *shape)."""
        elements = action.flatten(1).unbind(-1)
        split = self._split(params)
        pairs = [
            _CATEGORICAL.evaluate((logits,), element)
            for logits, element in zip(split, elements, strict=True)
        ]
        log_probs, entropies = zip(*pairs, strict=True)
        return torch.stack(log_probs).sum(0), torch.stack(entropies).sum(0)

    def _split(self, params: Sequence[Tensor]) -> tuple[Tensor, ...]:
        (logits,) = params
        if logits.shape[-1] != sum(self.nvec):
            raise SpecError(
                f"the module returned {logits.shape[-1]} logits, expected {sum(self.nvec)}: one "
                f"for each action of the elements {self.nvec}"
            )
        return torch.split(logits, list(self.nvec), -1)


# the head for a space of one element
_CATEGORICAL = CategoricalHead(0, np.dtype(np.int64))


@dataclass(frozen=True, slots=True, eq=False)
class SquashedGaussianHead:
    """Continuous actions within finite bounds, as in soft actor-critic: tanh of a Gaussian sample,
    scaled to the bounds. Assign one to `TorchPolicy.head`.

    Attributes:
      low, high: (*action_shape) float32, on the device of the module's outputs.
    """

    low: Tensor
    high: Tensor
    dtype: DTypeLike
    outputs: tuple[str, ...] = ("mean", "log_std")

    @classmethod
    def of(
        cls, action_space: gymnasium.Space[Any], device: str | torch.device = "cpu"
    ) -> SquashedGaussianHead:
        """Makes the head of an action space.

        Raises:
          SpecError: It is no Box of floats with finite bounds, low below high.
        """
        dtype = np.dtype(action_space.dtype)
        if not isinstance(action_space, gymnasium.spaces.Box) or dtype.kind != "f":
            raise SpecError(f"action space is {action_space}, expected a Box of floats")
        low, high = (
            torch.as_tensor(bound, dtype=torch.float32, device=device)
            for bound in (action_space.low, action_space.high)
        )
        if not ((high - low).isfinite() & (low < high)).all():
            raise SpecError(
                f"action space is {action_space}, expected finite bounds, low below high"
            )
        return cls(low, high, dtype)

    def sample(self, params: Sequence[Tensor], generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draws actions (B, *action_shape) and returns them with their log_prob (B,)."""
        mean, log_std = params
        noise = torch.empty_like(mean).normal_(generator=generator)
        unit, log_prob = self.squash(mean, log_std, noise)
        return self.scaled(unit), log_prob - self._log_halves()

    def most_likely(self, params: Sequence[Tensor]) -> Tensor:
        """Returns the actions (B, *action_shape) to which the Gaussian's mean is mapped."""
        return self.scaled(params[0].tanh())

    def evaluate(self, params: Sequence[Tensor], action: Tensor) -> tuple[Tensor, Tensor]:
        """Returns log_prob (B,) of actions, and the entropy (B,) of the Gaussian before its tanh.

        Near a bound, many samples round to the same float32 action: log_prob is then that of the
          nearest action that differs from the bound.
        """
        mean, log_std = params
        edge = 1 - torch.finfo(torch.float32).eps
        raw = self.unit(action).clamp(-edge, edge).atanh()
        noise = (raw - mean) / log_std.exp()
        _, log_prob = self.squash(mean, log_std, noise)
        entropy = (log_std.expand_as(mean) + 0.5 * (1 + log(2 * pi))).flatten(1).sum(1)
        return log_prob - self._log_halves(), entropy

    def squash(self, mean: Tensor, log_std: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Maps noise to actions within [-1, 1], and returns their log density (B,) there, too."""
        raw = torch.addcmul(mean, log_std.exp().expand_as(mean), noise)
        # log(1 - tanh(raw)^2), without a difference that rounds to 0
        log_slope = 2 * (log(2) - raw - nn.functional.softplus(-2 * raw))
        log_prob = -0.5 * noise.square() - log_std - 0.5 * log(2 * pi) - log_slope
        return raw.tanh(), log_prob.flatten(1).sum(1)

    def scaled(self, unit: Tensor) -> Tensor:
        """Maps [-1, 1] to the bounds."""
        scaled = torch.addcmul((self.high + self.low) / 2, unit, (self.high - self.low) / 2)
        # rounding may exceed the bounds
        return scaled.clamp(self.low, self.high)

    def unit(self, action: Tensor) -> Tensor:
        """Maps the bounds to [-1, 1]."""
        return 2 * (action - self.low) / (self.high - self.low) - 1

    def _log_halves(self) -> Tensor:
        return ((self.high - self.low) / 2).log().sum()


def as_tensor(array: Array) -> Tensor:
    """Returns a tensor that shares the memory of `array`, even if `array` is read-only."""
    if array.flags.writeable:
        return torch.from_numpy(array)
    # torch has no read-only tensors and warns; this library does not write to its inputs
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writ")
        return torch.from_numpy(array)
