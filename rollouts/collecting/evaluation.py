# SPDX-License-Identifier: Apache-2.0
"""Evaluation: the returns of a policy's whole episodes, the same number in each environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rollouts.batch import RolloutBatch
from rollouts.collecting.batched_env import BatchedEnv
from rollouts.collecting.collector import Collector
from rollouts.envs.multi_agent_env import MultiAgentVectorEnv
from rollouts.envs.statistics import frozen
from rollouts.errors import SpecError

if TYPE_CHECKING:
    from rollouts.policy import Policy

_ROLLOUT_LENGTH = 64


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """Episodes of a policy, those of the first environment first.

    Attributes:
      returns  (E,) float64   of the rewards that the environment gave
      lengths  (E,) int32     steps
    """

    returns: NDArray[np.float64]
    lengths: NDArray[np.int32]

    def summary(self) -> dict[str, dict[str, float]]:
        """mean, std, min and max of "return" and "length"."""
        return {"return": _summary(self.returns), "length": _summary(self.lengths)}


def evaluate(env: BatchedEnv, policy: Policy, num_episodes: int) -> Evaluation:
    """Plays a number of episodes that is fixed for each environment before the first step.

    The first E episodes to end would be biased: environments with short episodes would contribute
    more of them. Here environment i plays E // N episodes, the first E % N environments one more,
    and later episodes do not count. A pool's running statistics are restored afterwards.

    Args:
      env: N environments with same-step autoreset, as for `rollouts.Collector`.
      policy: Chooses the actions.
      num_episodes: E, at least N.

    Returns:
      The E episodes.

    Raises:
      SpecError: num_episodes is below N, or as `rollouts.Collector`.
    """
    tally = _Tally(env.num_envs, 1, num_episodes)
    with frozen(env):
        collector = Collector(env, policy, _ROLLOUT_LENGTH)
        while not tally.is_full:
            tally.add(collector.collect(), env.env_id_offset)
        # environments on a device report failures when they are waited for
        collector.synchronize()
    return tally.counted()


def evaluate_agents(
    env: MultiAgentVectorEnv, policies: Mapping[str, Policy], num_episodes: int
) -> dict[str, Evaluation]:
    """Evaluates policies of several agents: group -> the episodes of its A agents, E * A of them.

    Args:
      env: N environments, as for `rollouts.Collector`.
      policies: group -> the policy that its agents share.
      num_episodes: Number E of the environments' episodes, at least N.

    Raises:
      SpecError: num_episodes is below N, or as `rollouts.Collector`.
    """
    tallies = {
        name: _Tally(env.num_envs, group.num_agents, num_episodes)
        for name, group in env.groups.items()
    }
    collector = Collector(env, policies, _ROLLOUT_LENGTH)
    while not all(tally.is_full for tally in tallies.values()):
        for name, batch in collector.collect().items():
            tallies[name].add(batch, env.env_id_offset * env.groups[name].num_agents)
    collector.synchronize()
    return {name: tally.counted() for name, tally in tallies.items()}


class _Tally:
    """The first episodes of each column of rollouts, up to a number for each column."""

    def __init__(self, num_envs: int, num_agents: int, num_episodes: int) -> None:
        if num_episodes < num_envs:
            raise SpecError(
                f"num_episodes is {num_episodes}, expected at least one for each of the "
                f"{num_envs} environments: give more episodes, or fewer environments"
            )
        wanted = np.full(num_envs, num_episodes // num_envs)
        wanted[: num_episodes % num_envs] += 1
        self._wanted: list[int] = wanted.repeat(num_agents).tolist()
        self._played: list[list[tuple[float, int]]] = [[] for _ in self._wanted]

    def add(self, batch: RolloutBatch, first_column: int) -> None:
        ended = batch.episodes()[:3]
        for column, total, length in zip(*(array.tolist() for array in ended), strict=True):
            self._played[column - first_column].append((total, length))

    @property
    def is_full(self) -> bool:
        pairs = zip(self._played, self._wanted, strict=True)
        return all(len(played) >= wanted for played, wanted in pairs)

    def counted(self) -> Evaluation:
        pairs = zip(self._played, self._wanted, strict=True)
        counted = [one for played, wanted in pairs for one in played[:wanted]]
        returns, lengths = zip(*counted, strict=True)
        return Evaluation(np.array(returns, np.float64), np.array(lengths, np.int32))


def _summary(values: NDArray[Any]) -> dict[str, float]:
    numbers = {"mean": values.mean(), "std": values.std(), "min": values.min(), "max": values.max()}
    return {name: float(number) for name, number in numbers.items()}
