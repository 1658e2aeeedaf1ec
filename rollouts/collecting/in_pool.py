# SPDX-License-Identifier: Apache-2.0
"""`InPool`: the pool's own threads compute the policies, between steps, without Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rollouts.batch import RolloutBatch
from rollouts.collecting.deadline import Deadline
from rollouts.collecting.prefetch import Poll, Prefetch
from rollouts.collecting.rows import ALONE, RolloutRows
from rollouts.collecting.turns import Turns
from rollouts.errors import SpecError
from rollouts.run_log.tape import Tape

if TYPE_CHECKING:
    from rollouts.policies.native import FrozenPolicy, NativePolicy
    from rollouts.returns import Gae, Nstep

Batches = list[RolloutBatch]

_NOT_STEPPED = -1  # no episode has this length


class InPool:
    """Collects T steps by one call of the pool, in this thread or in one of its own.

    Attributes:
      tape: Records the rollouts; None: no record.
    """

    def __init__(
        self,
        env: Any,
        groups: Sequence[RolloutRows],
        turns: Turns,
        *,
        keep_final_obs: bool,
        returns: Gae | Nstep | None,
        prefetches: bool,
    ) -> None:
        """Takes the rows to fill, and the turns that count the pool's calls.

        Raises:
          SpecError: The system cannot start a thread.
        """
        self._env, self._groups, self._turns = env, groups, turns
        self._keeps_final_obs, self._returns = keep_final_obs, returns
        self._prefetches = prefetches
        self.tape: Tape | None = None
        # a rollout that is collected between two calls of collect
        self.ahead: Prefetch[Batches] = Prefetch(begins=prefetches)

    def collect(
        self, native: Mapping[str, NativePolicy], ahead: Batches | None, deadline: Deadline
    ) -> Batches:
        """Returns `ahead`, the rollout that was begun before, or collects one.

        Raises:
          CallTimeoutError: There was none in time; it goes on.
        """
        versions = [rows.policy.policy_version for rows in self._groups]
        if not self._prefetches and deadline.is_never:
            self._turns.go_on()
            return self._run(native, versions)
        # frozen in this thread, because the caller's next update changes weights and version
        try:
            frozen = {name: policy.freeze() for name, policy in native.items()}
        except SpecError:
            if ahead is None:
                raise
            return ahead  # errors in the weights are raised by the next call
        run, batches = partial(self._run, frozen, versions), ahead
        if batches is None:
            self._turns.go_on()
            self.ahead.start(run)
            batches = self.ahead.take(deadline)
            assert batches is not None
        if self._prefetches:
            self._turns.go_on()
            self.ahead.start(run)
        return batches

    def _run(
        self,
        policies: Mapping[str, NativePolicy | FrozenPolicy],
        versions: Sequence[int],
        poll: Poll | None = None,
    ) -> Batches:
        groups, tape = self._groups, self.tape
        if tape is not None:
            tape.begin(groups)
        arrays = {
            rows.name: rows.native_arrays(version)
            for rows, version in zip(groups, versions, strict=True)
        }
        if tape is not None:
            # what an error leaves so was not stepped
            for one in arrays.values():
                one["episode_length"][:] = _NOT_STEPPED
        is_alone = groups[0].name == ALONE
        final_obs = self._env.collect(
            policies[ALONE] if is_alone else policies,
            arrays[ALONE] if is_alone else arrays,
            keep_final_obs=self._keeps_final_obs,
            poll=poll,
            returns=self._returns,
        )
        finals = {ALONE: final_obs} if is_alone else (final_obs or {})
        batches = [rows.take_native(arrays[rows.name], finals.get(rows.name)) for rows in groups]
        if tape is not None:
            tape.end({rows.name: one for rows, one in zip(groups, batches, strict=True)})
        return batches

    def chosen_steps(self) -> NDArray[np.intp]:
        """Returns (N,) numbers of steps with an action, after an error in a recorded rollout."""
        first = self._groups[0]
        length = first.arena.outcome["episode_length"]
        # all agents of an environment step together
        each = length.reshape(len(length), self._env.num_envs, -1)[:, :, 0]
        stepped = np.count_nonzero(each != _NOT_STEPPED, axis=0)
        # with statistics, an action is chosen before the step's outcome is written
        ahead = bool(getattr(self._env.engine.statistics, "are_updated", False))
        chosen: NDArray[np.intp] = np.minimum(stepped + ahead, len(length))
        return chosen
