# SPDX-License-Identifier: Apache-2.0
"""`OnHost`: rollouts of environments on the host; chooses the code that computes the policies."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from rollouts.batch import RolloutBatch
from rollouts.collecting.batched_env import is_async
from rollouts.collecting.deadline import Deadline
from rollouts.collecting.in_pool import InPool
from rollouts.collecting.masks import ActionMasks
from rollouts.collecting.policy_engine import choose_engine, parts_of, still_computes
from rollouts.collecting.rows import ALONE, RolloutRows
from rollouts.collecting.step_by_step import AsTheyCome, InOrder
from rollouts.collecting.turns import Turns
from rollouts.errors import CallTimeoutError, SpecError
from rollouts.machine.torch_threads import beside_a_pool
from rollouts.run_log.tape import Tape

if TYPE_CHECKING:
    from rollouts.collecting.asked import Asked
    from rollouts.policies.native import NativePolicy
    from rollouts.policies.protocol import Policy


class OnHost:
    """Steps a pool whose threads compute the policies, or calls the policies' own `act`.

    Attributes:
      why_not_native: The reason why native code does not compute the policies; "" where it does.
    """

    def __init__(
        self,
        env: Any,
        policies: Mapping[str, Policy],
        asked: Asked,
    ) -> None:
        """Takes the policy of each group, and the keywords of a `Collector`.

        Raises:
          SpecError: A policy cannot do what is asked for, or "native" is asked for but not
            possible.
        """
        self._env, self._policies, self._asked = env, policies, asked
        steps, groups = asked.rollout_length, getattr(env, "groups", None)
        self._turns = Turns(env)
        masks = ActionMasks(env, policies[ALONE]) if asked.mask_actions else None
        self._groups = [
            RolloutRows(env, groups and groups[name], one, asked, masks)
            for name, one in policies.items()
        ]
        source: Any = masks or env
        # our own pools write observations into the rollout; those of other environments are copied
        is_ours = "out" in getattr(getattr(env, "engine", None), "can", ())
        self._in_order = InOrder(env, source, self._groups, steps, writes_in_place=is_ours)
        self._as_they_come: AsTheyCome | None = None
        if is_async(env):
            self._as_they_come = AsTheyCome(env, source, self._groups[0], steps)
        self._prefetches = bool(asked.prefetch)
        self._in_pool = InPool(
            env, self._groups, self._turns, rules=asked.rules, prefetches=self._prefetches
        )
        self._choose_engine()
        self._tape: Tape | None = None
        if asked.record is not None:
            self._tape = Tape(env, asked.record, steps, keep_final_obs=asked.keep_final_obs)
            self._in_order.tape = self._in_pool.tape = self._tape

    @property
    def engine(self) -> str:
        """ "native" where native code computes the policies, "torch" where their own `act` does."""
        return "torch" if self._native is None else "native"

    def reset(self) -> None:
        """Drops what was collected of the current rollout; the next one starts new episodes."""
        self._in_pool.ahead.drop()
        self._turns.forget()
        for rows in self._groups:
            rows.reset()
        self._in_order.reset()
        if self._as_they_come is not None:
            self._as_they_come.reset()
        if self._tape is not None:
            self._tape.forget()

    def collect(self, deadline: Deadline) -> dict[str, RolloutBatch]:
        """Returns group -> its batch of T steps; errors are those of `Collector.collect`."""
        try:
            batches = self._batches(deadline)
        except CallTimeoutError:
            if self._native is None:
                self._turns.keep()
            raise
        except BaseException as error:
            # a rollout in another thread would write into the same log
            self._in_pool.ahead.drop()
            if self._tape is not None and isinstance(error, Exception):
                self._tape.failed(error, self._groups, self._chosen_steps())
            # an incomplete rollout must not be continued after an error
            self.reset()
            raise
        return {rows.name: one for rows, one in zip(self._groups, batches, strict=True)}

    def synchronize(self) -> None:
        """Waits for the log; the rollouts themselves are complete."""
        if self._tape is not None:
            self._tape.flush()

    def close(self) -> None:
        """Ends a rollout that runs between two calls; may be called twice."""
        self._in_pool.ahead.close()
        if self._tape is not None:
            self._tape.close()

    def begin_from(self, obs: Mapping[str, Any]) -> None:
        """Makes the next rollout continue from states that were set in the environments.

        Args:
          obs: group -> the observations (rows, ...) of its rows in these states.
        """
        self.reset()
        for rows in self._groups:
            rows.arena.obs[0] = obs[rows.name].reshape(rows.arena.obs[0].shape)
        self._in_order.go_on()

    def _chosen_steps(self) -> Any:
        """Returns (N,) numbers of steps with an action in the present rollout."""
        if self._native is None:
            return self._in_order.chosen_steps()
        return self._in_pool.chosen_steps()

    def _batches(self, deadline: Deadline) -> list[RolloutBatch]:
        ahead = self._in_pool.ahead.take(deadline)
        self._turns.check()
        if ahead is not None and not self._prefetches:
            return ahead  # the rollout of a call that timed out
        if not self._is_as_chosen():
            self._choose_engine()
        if self._native is not None:
            self._in_order.start(deadline)
            return self._in_pool.collect(self._native, ahead, deadline)
        with ExitStack() as during:
            first, threads = self._groups[0].policy, self._asked.num_torch_threads
            during.enter_context(beside_a_pool(first, self._env.batch_size, threads))
            for rows in self._groups:
                during.enter_context(rows.wanted.asked_of(rows.policy))
            batches = (self._as_they_come or self._in_order).collect(deadline)
        self._turns.keep()
        return batches

    def _is_as_chosen(self) -> bool:
        """Returns whether the chosen engine still computes the present policies."""
        if self._native is not None:
            return self._still_computes(self._native)
        # changed policies may be readable now; but states in torch stay with torch, and a rollout
        # that has begun is finished
        stays = self._in_order.is_under_way or any(rows.remembers for rows in self._groups)
        return stays or self._parts == self._parts_now()

    def _parts_now(self) -> list[tuple[Any, ...]]:
        return [parts_of(rows.policy) for rows in self._groups]

    def _still_computes(self, native: Mapping[str, NativePolicy]) -> bool:
        is_new = self._in_order.is_new
        return all(
            still_computes(native[rows.name], rows.policy, None if is_new else rows.arena.obs[0])
            for rows in self._groups
        )

    def _choose_engine(self) -> None:
        native, why_not = choose_engine(self._asked.engine, self._env, self._policies)
        # before the choice is stored, so that each call raises it, not only the first
        if self._prefetches and native is None:
            raise SpecError(f"prefetch=1 needs the native engine, which is not possible: {why_not}")
        self._native, self.why_not_native = native, why_not
        self._parts = self._parts_now()
        for rows in self._groups:
            rows.carry_states(None if native is None else native[rows.name])
