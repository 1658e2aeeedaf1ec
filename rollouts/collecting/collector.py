# SPDX-License-Identifier: Apache-2.0
"""Steps a vector environment with a policy and keeps T steps of it as one `RolloutBatch`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from rollouts.batch import RolloutBatch, StepBatch
from rollouts.checks import flag, whole_number
from rollouts.collecting.arena import Arena, Row, Rows
from rollouts.collecting.batched_env import BatchedEnv, check_env
from rollouts.collecting.deadline import Deadline
from rollouts.collecting.engine import Engine, choose_engine, still_computes
from rollouts.collecting.masks import ActionMasks
from rollouts.collecting.native_states import NativeStates
from rollouts.collecting.policy_calls import make_policy_calls
from rollouts.collecting.prefetch import Poll, Prefetch
from rollouts.collecting.steps import cut_off, finite_bounds, least_advanced, select
from rollouts.collecting.turns import Turns
from rollouts.collecting.wanted import Wanted
from rollouts.errors import CallTimeoutError, SpecError
from rollouts.machine.torch_threads import beside_a_pool, check_threads
from rollouts.policies.checks import check_finite
from rollouts.pool.vector_env import VectorEnv
from rollouts.returns import Gae, Nstep

if TYPE_CHECKING:
    from rollouts.policies.native import FrozenPolicy, NativePolicy
    from rollouts.policy import Policy

Array = NDArray[Any]


class Collector:
    """Yields rollouts of `rollout_length` steps of all environments of one pool.

    Each batch owns its arrays: nothing that happens later changes them. An episode goes on from
    one rollout to the next. Box actions are clipped to the bounds of the space on their way to
    the environment; the batch keeps them as the policy sampled them, as `log_prob` belongs to that.

    An asynchronous pool delivers environments in any order; each has its own time index. One that
    has its T steps waits for the others, unless the pool could not fill a batch without it: then
    it runs ahead, by at most T + 1 steps, and these open the next rollout.

    While `collect` runs, torch computes in its thread with `num_torch_threads`: by default one,
    unless the policy's network is large, because torch's threads would take cores from the pool's.
    Then torch has as many as before; see `rollouts.machine.torch_threads.torch_threads`.

    Shapes of what the policy returns are checked at each step, finite numbers once per rollout.

    Not thread-safe. `collect` blocks as long as the environments and the policy take; an exception
    of either passes through, and the next `collect` starts new episodes.
    """

    def __init__(
        self,
        env: BatchedEnv,
        policy: Policy,
        rollout_length: int,
        *,
        keep_final_obs: bool = False,
        num_torch_threads: int | None = None,
        engine: Engine = "auto",
        prefetch: int = 0,
        outputs: Sequence[str] = (),
        returns: Gae | Nstep | None = None,
        mask_actions: bool = False,
    ) -> None:
        """Takes a pool that nobody else steps; does not step it yet.

        Args:
          env: That autoresets in the same step.
          policy: Chooses the actions.
          rollout_length: Steps T.
          keep_final_obs: Whether batches have `final_obs`, which a replay needs. That of an
            environment that failed is the observation it failed on.
          num_torch_threads: Threads that torch computes with during `collect`; None for what
            `rollouts.machine.torch_threads.threads_for` says, at most as many as torch has.
          engine: Who computes the policy. "native": the pool's own threads, between steps, without
            Python; for a `NativePolicy`, or a `TorchPolicy` or `RecurrentTorchPolicy` whose module
            can be read, over a synchronous native pool. "torch": the policy's own `act`, step by
            step. "auto": native where that is possible; `engine` says which it is,
            `why_not_native` the reason.
          prefetch: 1 has the pool collect the next rollout while the caller learns from the last
            one: each but the first is then of the weights before the last update, as its
            `policy_version` says. Native engine only. Between two calls of `collect` the pool is
            busy: nobody else may use it.
          outputs: What `extras` have of each step, (T, B, ...) float32: "entropy" of what actions
            are drawn from, and what says it: "logits", or of Box actions "mean" and "log_std".
          returns: Has batches come with extras["advantage"] and extras["target"] (T, B) float32,
            the bits of `rollouts.returns`, in the pass that collects where that is native.
          mask_actions: Has the policy choose among the actions that info["action_mask"] allows;
            extras["action_mask"] (T, B, A) bool are those it chose by, log_prob that among them.

        Raises:
          SpecError: env does not autoreset in the same step or observes something else than one
            array, a number is out of its range, the policy has no such outputs, or the native
            engine is asked for, by engine or by prefetch, and not possible.
        """
        check_env(env)
        rollout_length = whole_number("rollout_length", rollout_length, 1, 2**31 - 1)
        self.env = env
        self._turns = Turns(env)
        self.policy = policy
        self.rollout_length = rollout_length
        self._num_torch_threads = check_threads("num_torch_threads", num_torch_threads)
        self._keeps_final_obs = flag("keep_final_obs", keep_final_obs)
        self._bounds = finite_bounds(env.single_action_space)
        self._is_async = env.batch_size < env.num_envs
        # our own pool writes observations into the rollout; others' are copied
        self._writes_in_place = isinstance(env, VectorEnv) and not self._is_async
        # environments of an asynchronous pool may be up to T + 1 steps into the next rollout
        self._arena_steps = (2 if self._is_async else 1) * rollout_length + int(self._is_async)
        self._masks = ActionMasks(env, policy) if mask_actions else None
        self._source: Any = self._masks or env  # of batches
        self._calls = make_policy_calls(
            policy, num_envs=env.num_envs, rollout_length=rollout_length, masks=self._masks
        )
        self._wanted_engine = engine
        self._states = NativeStates((), env.num_envs, rollout_length, keep_all=False)
        self._prefetches = bool(whole_number("prefetch", prefetch, 0, 1))
        # a rollout that goes on between two calls of collect
        self._ahead: Prefetch[RolloutBatch] = Prefetch(begins=self._prefetches)
        self._wanted = Wanted(outputs, returns, env.single_action_space)
        self._choose_engine()
        self.reset()

    @property
    def engine(self) -> str:
        """Who computes the policy: "native", or "torch" for its own `act`."""
        return "torch" if self._native is None else "native"

    def reset(self) -> None:
        """Drops what was collected of the current rollout; the next one starts new episodes."""
        env = self.env
        self._ahead.drop()
        self._turns.forget()
        self._arena = Arena(
            self._arena_steps,
            env.num_envs,
            env.single_observation_space,
            keep_final_obs=self._keeps_final_obs,
        )
        self._calls.reset()
        self._states.reset()
        self._must_reset, self._is_resetting = True, False
        self._t, self._is_sent = 0, False  # synchronous pools: the step in hand
        # asynchronous pools: each environment's row of the arena for its next obs
        self._next_row = np.zeros(env.num_envs, np.intp)
        self._waiting = np.zeros(env.num_envs, np.bool_)

    def __iter__(self) -> Iterator[RolloutBatch]:
        """Collects rollouts for ever."""
        while True:
            yield self.collect()

    def collect(self, timeout_s: float | None = None) -> RolloutBatch:
        """Steps every environment T times and returns what happened.

        Args:
          timeout_s: Seconds to wait; None waits for ever. After a CallTimeoutError nothing is lost:
            the next `collect` returns the rollout that was begun, and until it has, nobody else may
            use the environment. Where native code computes the policy, it goes on meanwhile with
            the weights it began with; else the time is looked at after each step.

        Raises:
          SpecError: the policy returned a wrong shape, or a log_prob or value that is not finite;
            timeout_s is below 0. CallTimeoutError, a TimeoutError: no rollout within timeout_s.
            ProtocolError: Somebody else has used the environments since the last rollout.
        """
        deadline = Deadline(timeout_s)
        try:
            ahead = self._ahead.take(deadline)
            self._turns.check()
            if ahead is not None and not self._prefetches:
                return ahead  # what a call began that ran out of time
            seen = None if self._must_reset or self._is_resetting else self._arena.obs[0]
            if self._native and not still_computes(self._native, self.policy, seen):
                self._choose_engine()
            if self._native is not None:
                return self._collect_native(self._native, ahead, deadline)
            threads = beside_a_pool(self.policy, self.env.batch_size, self._num_torch_threads)
            with threads, self._wanted.asked_of(self.policy):
                collect = self._collect_async if self._is_async else self._collect_sync
                collect(deadline)
                return self._take_rollout()
        except CallTimeoutError:
            if self._native is None:
                self._turns.keep()
            raise
        except BaseException:
            # half a rollout must not be continued as if nothing had happened
            self.reset()
            raise

    def close(self) -> None:
        """Closes the environment; may be called twice."""
        self._ahead.close()
        self.env.close()

    def _choose_engine(self) -> None:
        self._native, self.why_not_native = choose_engine(
            self._wanted_engine, self.env, self.policy
        )
        self._carry_states(() if self._native is None else self._native.state_shapes)
        self._wanted.check(self.policy, self._native)
        if self._prefetches and self._native is None:
            raise SpecError(
                f"prefetch=1 needs the native engine, which is not possible: {self.why_not_native}"
            )

    def _carry_states(self, shapes: tuple[tuple[int, ...], ...]) -> None:
        """Has what is remembered where the policy is computed now."""
        states = self._states
        if states.shapes and self._native is None:
            self._calls.go_on(states.now(), states.begins)
        if states.shapes != shapes:
            keep_all = getattr(self.policy, "keeps_states", False)
            self._states = NativeStates(
                shapes, self.env.num_envs, self.rollout_length, keep_all=keep_all
            )

    def _start_sync(self, deadline: Deadline) -> None:
        if self._must_reset:
            self.env.async_reset()
            self._must_reset, self._is_resetting = False, True
        if self._is_resetting:
            self._arena.obs[0] = deadline.recv(self._source).obs
            self._is_resetting = False

    def _collect_native(
        self, native: NativePolicy, ahead: RolloutBatch | None, deadline: Deadline
    ) -> RolloutBatch:
        self._start_sync(deadline)
        if not self._prefetches and deadline.is_never:
            self._turns.go_on()
            return self._run_native(native, self.policy.policy_version)
        # in this thread: the caller's next update changes weights and version
        try:
            frozen, version = native.freeze(), self.policy.policy_version
        except SpecError:
            if ahead is None:
                raise
            return ahead  # what is wrong with the weights is raised in place of the next one
        run, batch = partial(self._run_native, frozen, version), ahead
        if batch is None:
            self._turns.go_on()
            self._ahead.start(run)
            batch = self._ahead.take(deadline)
            assert batch is not None
        if self._prefetches:
            self._turns.go_on()
            self._ahead.start(run)
        return batch

    def _run_native(
        self, policy: NativePolicy | FrozenPolicy, version: int, poll: Poll | None = None
    ) -> RolloutBatch:
        arena, env, wanted = self._arena, cast(VectorEnv, self.env), self._wanted
        arrays = arena.native_arrays(env.single_action_space, version)
        arrays["last_value"] = np.empty(env.num_envs, np.float32)
        arrays |= self._states.arrays() | wanted.arrays(arena.shape)
        arrays |= self._masks.arrays(self.rollout_length) if self._masks else {}
        keep = self._keeps_final_obs
        final_obs = env.collect(
            policy, arrays, keep_final_obs=keep, poll=poll, returns=wanted.returns
        )
        if final_obs is not None:
            arena.keep_final(final_obs)
        arena.extras = self._states.extras() | wanted.extras(arrays)
        arena.extras |= self._masks.take_over(arrays) if self._masks else {}
        return self._hand_out(arrays["last_value"], self._states.before())

    def _collect_sync(self, deadline: Deadline) -> None:
        arena = self._arena
        self._start_sync(deadline)
        while self._t < self.rollout_length:
            t = self._t
            if not self._is_sent:
                self._send_sync(t)
                self._is_sent = True
            step = deadline.recv(self._source)
            if not self._writes_in_place:
                arena.obs[t + 1] = step.obs
            self._write_outcome(t, None, step)
            self._t, self._is_sent = t + 1, False
        self._t = 0

    def _send_sync(self, t: int) -> None:
        arena, env = self._arena, self.env
        output = self._calls.act(arena.obs[t], None, t)
        arena.write_choice(t, None, output, self.policy.policy_version)
        action = self._env_action(output.action)
        if self._writes_in_place:
            cast(VectorEnv, env).send(action, out={"obs": arena.obs[t + 1]})
        else:
            env.send(action)

    def _collect_async(self, deadline: Deadline) -> None:
        if self._must_reset:
            self.env.async_reset()
            self._must_reset = False
        self._act_on_waiting(np.flatnonzero(self._waiting & ~self._has_rollout()))
        while not self._has_rollout().all():
            # those who wait and would let the pool fill a batch run ahead
            missing = self.env.batch_size - (self.env.num_envs - self._waiting.sum())
            self._act_on_waiting(least_advanced(self._waiting, self._next_row, missing))
            self._recv_and_act(deadline)

    def _recv_and_act(self, deadline: Deadline) -> None:
        """Files one batch under each environment's own time and sends on those not yet at T."""
        arena, step = self._arena, deadline.recv(self._source)
        rows = step.env_id.astype(np.intp) - self.env.env_id_offset
        now = self._next_row[rows]
        arena.obs[now, rows] = step.obs
        self._next_row[rows] += 1
        self._waiting[rows] = True

        # an environment's first observation after a reset is the outcome of nothing
        stepped = now > 0
        if stepped.all():
            self._write_outcome(now - 1, rows, step)
        elif stepped.any():
            self._write_outcome(now[stepped] - 1, rows[stepped], select(step, stepped))

        # as long as nobody has to wait the policy sees the pool's own array
        going = now < self.rollout_length
        if going.all():
            self._act_on(rows, step.obs)
        else:
            self._act_on_waiting(rows[going])

    def _has_rollout(self) -> NDArray[np.bool_]:
        """Tells (N,) which environments have T steps and the observation after them."""
        return self._next_row > self.rollout_length

    def _act_on_waiting(self, rows: NDArray[np.intp]) -> None:
        if rows.size:
            self._act_on(rows, self._arena.obs[self._next_row[rows] - 1, rows])

    def _act_on(self, rows: NDArray[np.intp], obs: Array) -> None:
        at = self._next_row[rows] - 1
        output = self._calls.act(obs, rows, at)
        self._arena.write_choice(at, rows, output, self.policy.policy_version)
        self._waiting[rows] = False
        env_id = (rows + self.env.env_id_offset).astype(np.int32)
        self.env.send(self._env_action(output.action), env_id)

    def _env_action(self, action: Array) -> Array:
        return action if self._bounds is None else action.clip(*self._bounds)

    def _write_outcome(self, t: Row, rows: Rows, step: StepBatch) -> None:
        self._arena.write_outcome(t, rows, step, self._bootstrap(step, rows))
        self._calls.see_ends(step, rows)

    def _bootstrap(self, step: StepBatch, rows: Rows) -> NDArray[np.float32] | None:
        """Values (B,) the final observations of truncated episodes; None where there are none."""
        cut = cut_off(step)
        if not cut.any():
            return None
        assert step.final_obs is not None
        bootstrap = np.zeros(len(cut), np.float32)
        cut_rows = np.flatnonzero(cut) if rows is None else rows[cut]
        bootstrap[cut] = self._calls.final_value(step.final_obs[cut], cut_rows)
        return bootstrap

    def _take_rollout(self) -> RolloutBatch:
        """Hands the arena's first T rows out and moves what lies beyond to a new arena."""
        batch = self._hand_out(self._last_value(), self._calls.take_states())
        for name in ("log_prob", "value", "last_value", "bootstrap_value"):
            check_finite(name, getattr(batch, name), batch.env_id)
        self._wanted.complete(batch)
        self._turns.keep()
        return batch

    def _hand_out(
        self, last_value: NDArray[np.float32], policy_state: tuple[Array, ...]
    ) -> RolloutBatch:
        steps, full = self.rollout_length, self._arena
        env_id = self.env.env_id_offset + np.arange(self.env.num_envs, dtype=np.int32)
        batch = full.first_steps(steps, env_id, last_value, policy_state)
        # one observation per environment, and in an asynchronous pool what was run ahead
        self._next_row -= steps if self._is_async else 0
        beyond = int(self._next_row.max()) if self._is_async else 1
        self._arena = full.next_arena(slice(steps, steps + beyond))
        return batch

    def _last_value(self) -> NDArray[np.float32]:
        """Values (N,) the observation after row T - 1 of each environment."""
        steps, arena = self.rollout_length, self._arena
        if not self._is_async:
            return self._calls.last_value(arena.obs[steps], None, None)
        # an environment that ran ahead acted on this observation and valued it then
        is_known = ~(self._waiting & (self._next_row == steps + 1))
        return self._calls.last_value(arena.obs[steps], arena.choice["value"][steps], is_known)
