# SPDX-License-Identifier: Apache-2.0
"""A Tianshou policy's outputs for a step, and the distribution that its actions come from."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from tianshou.data import Batch, to_numpy
from tianshou.data.collector import get_stddev_from_dist
from torch.distributions import Categorical, Distribution

Array = npt.NDArray[Any]


class Action(NamedTuple):
    """Actions of R environments.

    Attributes:
      act       (R, *action_shape)   the policy's choice, which the buffer keeps
      env_act   (R, *action_shape)   the action in the environment's form
      policy    Batch                further entries of the policy for the buffer
      dist      Distribution         the distribution that act was drawn from, or None
      state     any of R rows        hidden state of a recurrent policy, or None
    """

    act: Array
    env_act: Array
    policy: Any
    dist: Distribution | None
    state: Any


def random_action(policy: Any, action_space: Any, ids: Array) -> Action:
    """Samples each environment's own action space."""
    env_act = np.array([action_space[i].sample() for i in ids])
    return Action(policy.map_action_inverse(np.array(env_act)), env_act, Batch(), None, None)


def policy_action(policy: Any, batch: Any, state: Any, exploration_noise: bool) -> Action:
    """Calls the policy and its methods in the order of Tianshou's Collector.

    Raises:
      RuntimeError: The policy's entry for the buffer is no Batch.
    """
    result = policy(batch, state)
    act = to_numpy(result.act)
    if exploration_noise:
        act = policy.add_exploration_noise(act, batch)
    entry = result.get("policy", Batch())
    if not isinstance(entry, Batch):
        raise RuntimeError(f"The policy result should be a {Batch}, but got {type(entry)}")
    hidden = result.get("state", None)
    if hidden is not None:
        # the buffer stores the state as a part of the policy's entry
        entry.hidden_state = hidden
    return Action(act, policy.map_action(act), entry, result.get("dist"), hidden)


class Spread:
    """The standard deviations of the distributions of a collect, computed together at its end."""

    def __init__(self) -> None:
        """Starts without distributions."""
        self._probs: list[torch.Tensor] = []
        self._done: list[Array] = []

    def add(self, dist: Distribution | None) -> None:
        """Takes a step's distribution, if it has one."""
        if isinstance(dist, Categorical) and dist.probs.ndim == 2:
            # the probabilities are computed already; their graph is not needed
            self._probs.append(dist.probs.detach())
        elif dist is not None:
            self._settle()
            self._done.append(np.atleast_2d(to_numpy(get_stddev_from_dist(dist))))

    def array(self) -> Array | None:
        """(number of actions, D), as CollectStats.pred_dist_std_array; None if there are none."""
        self._settle()
        return np.concatenate(self._done) if self._done else None

    def _settle(self) -> None:
        if not self._probs:
            return
        probs = torch.cat(self._probs)
        values = torch.arange(probs.shape[-1], device=probs.device, dtype=torch.float32)
        mean = (probs * values).sum(1, keepdim=True)
        spread = (probs * (values - mean) ** 2).sum(1).sqrt()
        self._done.append(to_numpy(spread)[:, None])
        self._probs = []
