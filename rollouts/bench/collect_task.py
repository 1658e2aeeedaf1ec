# SPDX-License-Identifier: Apache-2.0
"""The task of all contestants of `rollouts bench collect`, and the interface of a contestant."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from rollouts.bench.measurement import Settings
from rollouts.bench.policy_kinds import PolicyKind
from rollouts.specs import EnvSpec

if TYPE_CHECKING:
    from rollouts.policy import Policy
    from rollouts.workers.worker_config import MakePolicy


@dataclass(frozen=True, slots=True)
class Task:
    """The task of every stream.

    Attributes:
      settings: Environment, sizes and time; batch_size is num_envs.
      spec: Spec of the environment with its options.
      rollout_length: Steps T of each environment per rollout.
      policy: See `policies.make_policy`.
    """

    settings: Settings
    spec: EnvSpec
    rollout_length: int
    policy: PolicyKind

    @property
    def make_policy(self) -> MakePolicy:
        """Makes the policy in the process that calls it; can be pickled."""
        from rollouts.bench.policies import make_policy

        return functools.partial(make_policy, kind=self.policy)

    def local_policy(self, num_envs: int) -> Policy:
        """The policy of `num_envs` environments, in this process."""
        from rollouts.workers.worker_config import PolicySpec

        return self.make_policy(
            PolicySpec.here(self.spec.id, self.spec, num_envs=num_envs, seed=self.settings.seed)
        )


class Stream(Protocol):
    """A source of rollouts that runs only between `resume` and `pause`."""

    name: str
    api: str
    notes: tuple[str, ...]
    num_envs: int
    num_threads: int

    def version(self) -> str:
        """The version of the library."""
        ...

    def resume(self) -> None:
        """Starts collecting, and returns in the steady state."""
        ...

    def collect(self) -> int:
        """Waits for the next rollout; returns its env-steps."""
        ...

    def pause(self) -> None:
        """Stops collecting; returns when nothing runs any more."""
        ...

    def close(self) -> None:
        """Frees processes and environments."""
        ...
