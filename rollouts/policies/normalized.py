# SPDX-License-Identifier: Apache-2.0
"""`NormalizedModule`: scales observations for a network that was trained on scaled ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

Floats = NDArray[np.float32]


def normalized(obs: Tensor, mean: Tensor, deviation: Tensor, limit: float) -> Tensor:
    """Returns observations scaled as by the wrapper normalize_observation."""
    return ((obs - mean) / deviation).clamp(-limit, limit)


class NormalizedModule(nn.Module):
    """Scales observations (B, *obs_shape) by fixed statistics and calls a network with them."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, network: nn.Module, mean: Floats, deviation: Floats, limit: float) -> None:
        """Takes the network as it is.

        Args:
          network: A network for `rollouts.TorchPolicy` or `rollouts.RecurrentTorchPolicy`.
          mean: Mean of each number of an observation, (*obs_shape).
          deviation: Divisor of each number's difference from its mean, (*obs_shape).
          limit: Largest magnitude of a scaled number.
        """
        super().__init__()
        self.network, self._limit = network, limit
        self.register_buffer("mean", torch.from_numpy(mean.copy()))
        self.register_buffer("deviation", torch.from_numpy(deviation.copy()))
        if hasattr(network, "initial_state"):
            self.initial_state = network.initial_state

    def forward(self, obs: Tensor, *others: Any) -> Any:
        """The network's outputs; `others` are the states of a recurrent network."""
        return self.network(normalized(obs, self.mean, self.deviation, self._limit), *others)
