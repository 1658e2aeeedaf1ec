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
from rollouts.collecting.rollout_ahead import Poll, Prefetch
from rollouts.collecting.rows import ALONE, RolloutRows
from rollouts.collecting.turns import Turns
from rollouts.errors import SpecError
from rollouts.run_log.fragment_sums import PoolColumns
from rollouts.run_log.tape import Tape

if TYPE_CHECKING:
    from rollouts.policies.native import FrozenPolicy, NativePolicy

Batches = list[RolloutBatch]


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
        rules: dict[str, Any],
        prefetches: bool,
    ) -> None:
        """Takes the rows to fill, the turns that count the pool's calls, and the pool's options.

        Raises:
          SpecError: The system cannot start a thread.
        """
        self._env, self._groups, self._turns = env, groups, turns
        self._rules, self._prefetches = rules, prefetches
        self.tape: Tape | None = None
        self._columns: dict[str, PoolColumns] = {}  # the last rollout's, if it was recorded
        # a rollout that is collected between two calls of collect
        self.ahead: Prefetch[Batches] = Prefetch(begins=prefetches)

    def collect(
        self, native: Mapping[str, NativePolicy], ahead: Batches | None, deadline: Deadline
    ) -> Batches:
        """Returns `ahead`, the rollout that was begun before, or collects one.

        Raises:
          CallTimeoutError: No rollout was ready in time; the pool goes on collecting it.
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
            self._columns = tape.columns(groups)
            for name, columns in self._columns.items():
                arrays[name] |= columns.begin()
        is_alone = groups[0].name == ALONE
        final_obs = self._env.collect(
            policies[ALONE] if is_alone else policies,
            arrays[ALONE] if is_alone else arrays,
            rules=self._rules,
            poll=poll,
        )
        finals = {ALONE: final_obs} if is_alone else (final_obs or {})
        batches = [rows.take_native(arrays[rows.name], finals.get(rows.name)) for rows in groups]
        if tape is not None:
            named = zip(groups, batches, strict=True)
            tape.end({rows.name: batch for rows, batch in named}, self._columns)
        return batches

    def chosen_steps(self) -> NDArray[np.intp]:
        """Returns (N,) numbers of steps with an action, after an error in a recorded rollout."""
        num_envs = self._env.num_envs
        if not self._columns:
            return np.zeros(num_envs, np.intp)
        # an environment steps once all of its agents have an action
        agents = [one.num_chosen.reshape(num_envs, -1) for one in self._columns.values()]
        chosen: NDArray[np.intp] = np.hstack(agents).min(axis=1).astype(np.intp)
        return chosen
