# SPDX-License-Identifier: Apache-2.0
"""R2D2's loss (Kapturowski et al. 2019) in the form of row_losses.py: a row is a whole sequence.

The module runs a network with memory over all steps of its rows, so that the steps, the loss and
the targets are one program.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rollouts.checks import whole_number
from rollouts.errors import SpecError
from rollouts.learner.row_losses import Outputs, RowLoss, of_difference, of_first_maximum
from rollouts.support.extras import needs

with needs("torch", "rollouts.learner.sequence_losses"):
    import torch
    from torch import Tensor, nn

Array = NDArray[Any]
EPSILON = 1e-3  # from Pohlen et al. 2018; makes `root` invertible


class SequenceFields(Protocol):
    """The fields of a replay's `SequenceBatch` that the loss reads, NumPy arrays or tensors."""

    obs: Any
    action: Any
    reward: Any
    terminated: Any
    valid: Any
    first: Any
    num_steps: Any
    weight: Any
    policy_state: tuple[Any, ...]
    burn_in: int


class SequenceDqnLoss(RowLoss):
    """The loss of double n-step Q-learning over sequences of a replay, with memory and a burn-in.

    Rows are sequences of T steps. Of each, the loss is the sum over the steps that are learnt from,
    weighted by the item's importance; its mean over rows is the mean over all learnt steps of the
    batch. Steps of the burn-in are learnt from only where the sequence begins with an episode. No
    gradient goes through the state that the burn-in leaves. Outputs are the loss (B, 1), the
    differences from the target (B, T), which are 0 for steps that are not learnt from, and the
    values of the chosen actions (B, T).
    """

    def __init__(
        self,
        network: nn.Module,
        target_network: nn.Module,
        obs_shape: tuple[int, ...],
        num_actions: int,
        state_shapes: tuple[tuple[int, ...], ...],
        *,
        num_steps: int,
        burn_in: int = 0,
        n: int = 1,
        discount: float = 0.99,
        huber: float | None = 1.0,
        rescale: bool = False,
    ) -> None:
        """Takes networks that map obs (steps, B, *obs_shape) and a state to values (steps, B,
        num_actions) and the state after them; a state is a tuple of tensors (B, *shape).

        Args:
          state_shapes: Shapes of an environment's state.
          num_steps: Steps of a sequence, T.
          burn_in: The first steps of a sequence, which bring the state up to date.
          n: Steps of a target; fewer at the end of a sequence.
          discount: Discount of one step.
          huber: As for `DqnLoss`.
          rescale: Whether values are learnt on the scale of `root`.

        Raises:
          SpecError: There are no steps after the burn-in, or n is above num_steps.
        """
        whole_number("num_steps", num_steps, 1, None)
        whole_number("burn_in", burn_in, 0, num_steps - 1)
        whole_number("n", n, 1, num_steps)
        states = {f"state_{i}": shape for i, shape in enumerate(state_shapes)}
        super().__init__(
            {
                "obs": (num_steps + 1, *obs_shape),
                "action": (num_steps, num_actions),
                **states,
                "reward": (num_steps,),
                "discount": (num_steps,),
                "discount_of_end": (num_steps,),
                "is_end": (num_steps + 1,),
                "weight": (num_steps,),
            },
            (target_network,),
        )
        self.network, self.target_network = network, target_network
        self.num_actions, self.num_states = num_actions, len(state_shapes)
        self.num_steps, self.burn_in = num_steps, burn_in
        self.n, self.discount = n, discount
        self.huber, self.rescale = huber, rescale

    def forward(self, rows: Tensor) -> Outputs:
        """Returns the loss (B, 1), the differences (B, T) and the values (B, T)."""
        obs, action, *rest = self.parts(rows)
        state, (reward, discount, of_end, is_end, weight) = rest[:-5], rest[-5:]
        values = self._unroll(self.network, obs, state)
        following = self._unroll(self.target_network, obs, state)
        best = of_first_maximum(values, following)[..., 0]
        if self.rescale:
            best = inverse_root(best)
        end = (best * is_end).sum(1, keepdim=True)
        later = torch.cat([best[:, self.n :], torch.zeros_like(best[:, : self.n - 1])], 1)
        target = reward + discount * later + of_end * end
        if self.rescale:
            target = root(target)
        value = (values[:, :-1] * action).sum(2)
        off = value - target
        loss = (weight * of_difference(off, self.huber)).sum(1, keepdim=True)
        is_learnt = torch.where(weight > 0, 1.0, 0.0)
        return loss, off * is_learnt, value

    def _unroll(self, network: nn.Module, obs: Tensor, state: list[Tensor]) -> Tensor:
        """Values (B, T + 1, num_actions) from the stored states on."""
        steps, now, found = obs.transpose(0, 1), tuple(state), list[Tensor]()
        for part in (steps[: self.burn_in], steps[self.burn_in :]):
            if len(part):
                values, after = network(part, now)
                found.append(values)
                now = tuple(each.detach() for each in after)
        return torch.cat(found).transpose(0, 1)

    def sequences(self, batch: SequenceFields, *, start: int = 0) -> dict[str, Array]:
        """Returns the parts of rows for a batch of a replay, whose arrays lie on the CPU.

        Args:
          batch: A `rollouts.replay.SequenceBatch` of `num_steps` steps.
          start: The action space's first action.

        Raises:
          SpecError: The sequences have another length or burn-in.
        """
        reward = np.asarray(batch.reward, np.float32)
        steps, count = reward.shape
        if (steps, batch.burn_in) != (self.num_steps, self.burn_in):
            raise SpecError(
                f"sequences have {steps} steps and a burn-in of {batch.burn_in}, expected "
                f"{self.num_steps} and {self.burn_in}"
            )
        num_steps = np.asarray(batch.num_steps)
        row = np.arange(steps)[:, None]
        end = np.minimum(row + self.n, num_steps)
        # an episode that terminated is worth nothing after its end
        goes_on = ~(np.asarray(batch.terminated).any(0) & (end == num_steps))
        factor = (self.discount ** (end - row) * goes_on).astype(np.float32)
        is_before = row + self.n <= num_steps
        padded = np.pad(reward, ((0, self.n - 1), (0, 0)))
        total = sum(self.discount**i * padded[i : i + steps] for i in range(self.n))
        # the state at the beginning of an episode is never outdated, and needs no burn-in
        first = np.asarray(batch.first)[0]
        learnt = np.asarray(batch.valid) & ((row >= self.burn_in) | first)
        share = learnt * np.asarray(batch.weight) * (count / max(1, learnt.sum()))
        index = np.where(batch.valid, np.asarray(batch.action) - start, 0).astype(np.int64)
        action = np.zeros((steps, count, self.num_actions), np.float32)
        np.put_along_axis(action, index[..., None], 1.0, 2)
        time_major = {
            "obs": np.asarray(batch.obs),
            "action": action,
            "reward": total,
            "discount": factor * is_before,
            "discount_of_end": factor * ~is_before,
            "is_end": np.arange(steps + 1)[:, None] == num_steps,
            "weight": share,
        }
        states = {f"state_{i}": np.asarray(each) for i, each in enumerate(batch.policy_state)}
        return {name: np.swapaxes(each, 0, 1) for name, each in time_major.items()} | states

    def priorities(self, parts: dict[str, Array], off: Array, eta: float) -> Array:
        """Returns the priorities (B,) of sequences: `eta` times the largest size of a difference,
        plus 1 - `eta` times the mean over the steps that are learnt from.

        Args:
          parts: What `sequences` returns.
          off: (B, T) The loss's second output.
          eta: Share of the largest difference.
        """
        size = np.abs(off)
        count = np.maximum((parts["weight"] > 0).sum(1), 1)
        found: Array = eta * size.max(1) + (1 - eta) * size.sum(1) / count
        return found


def root(value: Tensor) -> Tensor:
    """Converts values to a scale on which large ones grow like roots (Pohlen et al. 2018):
    sign(x) (sqrt(|x| + 1) - 1) + EPSILON x.
    """
    return value / ((value.abs() + 1.0).sqrt() + 1.0) + EPSILON * value


def inverse_root(value: Tensor) -> Tensor:
    """The value whose `root` is `value`.

    The formula divides by a sum where the published one takes a difference, which would lose half
    of the digits.
    """
    size = value.abs()
    base = 1 + 2 * EPSILON
    part = 2.0 / ((base * base + 4 * EPSILON * size).sqrt() + base)
    return value * part * (2.0 + size * part)
