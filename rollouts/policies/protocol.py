# SPDX-License-Identifier: Apache-2.0
"""The protocol between a `Collector` and the policy that chooses actions; needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Rows = NDArray[np.intp] | None


@dataclass(frozen=True, slots=True)
class PolicyOutput:
    """A policy's answer to B observations.

    Attributes:
      action    (B, *action_shape) action_dtype
      log_prob  (B,) float32   of `action`
      value     (B,) float32   estimated return from each observation
      extras    name -> (B, ...)   other values to keep in the rollout (an RNN state, logits, …)
    """

    action: Array
    log_prob: NDArray[np.float32]
    value: NDArray[np.float32]
    extras: dict[str, Array] = field(default_factory=dict)


class Policy(Protocol):
    """Chooses actions for whole batches of observations; one thread at a time.

    Observations may be read-only and their memory may be reused after the call: do not write to
    them or keep them. `policy_version` is the version of the weights in use; it is stored with
    every step.
    """

    policy_version: int

    def act(self, obs: Array) -> PolicyOutput:
        """Chooses an action for each row of `obs` (B, *obs_shape)."""
        ...

    def value(self, obs: Array) -> NDArray[np.float32]:
        """Estimates the return (B,) from each row of `obs` (B, *obs_shape); draws no numbers."""
        ...

    def weights(self) -> dict[str, Array]:
        """Returns a copy of the weights that later training does not change."""
        ...

    def load_weights(self, weights: Mapping[str, Array], version: int) -> None:
        """Takes over the values of `weights`, which may be read-only, and their version.

        The values are torch tensors on a GPU if `RolloutCoordinator.publish_from` sent them so. A
        policy may have a method `weight_shapes`, which returns name -> shape: publishing other
        names or shapes then raises a SpecError.
        """
        ...


class RecurrentPolicy(Policy, Protocol):
    """A policy with memory: one state per environment, kept from step to step.

    `Collector` calls the methods below in place of `act` and `value`. In each, `rows` (B,) are the
    environments of the B observations, none twice, as indices in the pool; None means all of them
    in order. `begins` (B,) bool marks observations that are the first of an episode: their state is
    the initial one, whatever the environment's last episode left.
    """

    def act_rows(self, obs: Array, rows: Rows, begins: NDArray[np.bool_]) -> PolicyOutput:
        """Chooses an action for each row of `obs` and updates the states of `rows`."""
        ...

    def value_rows(self, obs: Array, rows: Rows, begins: NDArray[np.bool_]) -> NDArray[np.float32]:
        """Estimates the return (B,) from each row of `obs`; leaves the states as they are."""
        ...

    def states(self, rows: Rows, begins: NDArray[np.bool_]) -> tuple[Array, ...]:
        """Returns copies (B, ...) of the states that belong to the next observations of `rows`."""
        ...
