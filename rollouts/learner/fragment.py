# SPDX-License-Identifier: Apache-2.0
"""Fragment: a whole rollout and its origin; a handle stands for it on its way to the learner."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rollouts.batch import MultiAgentRollout, RolloutBatch
from rollouts.collecting.frame_stacks import PackedRollout, join
from rollouts.envs.statistics import RunningStatistics
from rollouts.errors import ProtocolError

if TYPE_CHECKING:
    from rollouts.collecting.frame_stacks import Payload


@dataclass(frozen=True, slots=True, kw_only=True)
class FragmentInfo:
    """The small part of a fragment, which the driver has while the arrays stay on their node.

    (worker_id, incarnation, seq_no) names a fragment for ever: seq_no counts 0, 1, 2, ... within
    one incarnation, and a worker that is started again gets the next incarnation.
    """

    worker_id: int
    incarnation: int
    seq_no: int
    num_steps: int  # env-steps, T * B
    min_policy_version: int
    max_policy_version: int
    collect_s: float
    nbytes: int  # bytes that are sent; each frame of stacked observations counts once
    # statistics of the worker's pool since its last fragment, if it normalises
    statistics: Mapping[str, RunningStatistics] = field(default_factory=dict, compare=False)
    # ways in which the worker got weights before it: way -> number of times
    weight_pulls: Mapping[str, int] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, eq=False)
class Fragment:
    """A completed fragment: its description and its arrays in the form in which they were sent."""

    info: FragmentInfo
    payload: Payload

    @functools.cached_property
    def batch(self) -> RolloutBatch:
        """The rollout; stacks of frames are formed at the first use, and kept.

        The rollout of a worker with a device has tensors.

        Arrays that came through Ray are read-only, formed stacks are not.

        Raises:
          ProtocolError: its environments have several agents; see `batches`.
        """
        if isinstance(self.payload, MultiAgentRollout):
            raise ProtocolError("a fragment of several agents has a batch for each group: batches")
        return join([self.payload])

    @property
    def batches(self) -> MultiAgentRollout:
        """The rollout of environments with several agents, by group.

        Raises:
          ProtocolError: its environments have one agent; see `batch`.
        """
        if not isinstance(self.payload, MultiAgentRollout):
            raise ProtocolError("a fragment of environments with one agent has one batch: batch")
        return self.payload

    @property
    def policy_version(self) -> NDArray[np.int64]:
        """(T, B), see `RolloutBatch`; a tensor for a device's rollout. Forms no stacks."""
        payload = self.payload
        rest: Any = payload.rest if isinstance(payload, PackedRollout) else payload
        versions: NDArray[np.int64] = rest.policy_version
        return versions

    @property
    def worker_id(self) -> int:
        """See FragmentInfo, also for the properties below."""
        return self.info.worker_id

    @property
    def incarnation(self) -> int:
        return self.info.incarnation

    @property
    def seq_no(self) -> int:
        return self.info.seq_no

    @property
    def num_steps(self) -> int:
        return self.info.num_steps

    @property
    def min_policy_version(self) -> int:
        return self.info.min_policy_version

    @property
    def max_policy_version(self) -> int:
        return self.info.max_policy_version

    @property
    def collect_s(self) -> float:
        return self.info.collect_s

    @property
    def statistics(self) -> Mapping[str, RunningStatistics]:
        return self.info.statistics

    @property
    def weight_pulls(self) -> Mapping[str, int]:
        return self.info.weight_pulls

    @property
    def nbytes(self) -> int:
        return self.info.nbytes


@dataclass(frozen=True, slots=True, eq=False)
class FragmentHandle:
    """A completed fragment whose arrays may still be elsewhere: what LearnerQueue holds.

    Attributes:
      info   Description of the fragment.
      fetch  Returns the arrays within a number of seconds. After a TimeoutError, which means that
             they did not arrive, it may be called again. WorkerError: they are lost for good.
    """

    info: FragmentInfo
    fetch: Callable[[float], Payload]

    def resolve(self, timeout_s: float) -> Fragment:
        """Fetches the arrays; see `fetch`."""
        return Fragment(self.info, self.fetch(timeout_s))
