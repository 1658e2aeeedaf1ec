# SPDX-License-Identifier: Apache-2.0
"""`RolloutsCollector`: Tianshou's Collector, which writes blocks instead of a Batch per step."""

from __future__ import annotations

import copy
import functools
import logging
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
from tianshou.data import Batch, Collector, CollectStats
from tianshou.data.collector import _HACKY_create_info_batch
from tianshou.utils.determinism import TraceLogger

from rollouts.collecting.policy_engine import Engine
from rollouts.machine.torch_threads import beside_a_pool

from .action import Action, Spread, policy_action, random_action
from .blocks import BlockWriter, Ended
from .buffer_columns import StepWriter, numbers
from .native import NativeActor, PolicyReader
from .native_loop import NativeLoop
from .vector_env import PythonVectorEnv, RolloutsVectorEnv, dicts

Array = npt.NDArray[Any]
TCollectStats = TypeVar("TCollectStats", bound=CollectStats)
_log = logging.getLogger(__name__)

# methods of Collector that the blocks replace
_REPLACED = (
    "_compute_action_policy_hidden",
    "run_on_step_hook",
    "_reset_hidden_state_based_on_type",
)


class RolloutsCollector(Collector[TCollectStats], Generic[TCollectStats]):
    """Collects as Tianshou's Collector does: the same arguments, data, statistics and hooks.

    Given a synchronous RolloutsVectorEnv it gathers transitions and writes them to the buffer in
    blocks. With anything that needs a Batch per step (see the package's docstring), and with
    other environments, Tianshou's own loop runs.

    Torch computes with `num_torch_threads`, an attribute that may be set: None stands for 1 unless
    the policy is large, see `rollouts.machine.torch_threads`.

    Collects of `n_step` need no torch where native code can read the policy: the pool's threads
    compute it between the steps of their environments. Actions are then drawn from other random
    streams (torch's generator gives their seed); all else in the buffer and the statistics is what
    the policy would give for these actions, within 1e-5. `rollout_engine`, an attribute that may be
    set, is "auto" for native where possible, "torch", or "native", which raises SpecError where it
    is not possible.
    `engine` and `why_not_native` describe the last such collect. Collects of `n_episode` and random
    ones are made step by step.
    """

    num_torch_threads: int | None = None
    rollout_engine: Engine = "auto"
    # Collector's own: where the next collect begins
    _pre_collect_obs_RO: Any
    _pre_collect_info_R: Any
    _pre_collect_hidden_state_RH: Any

    @property
    def engine(self) -> str:
        """The engine of the last collect of n_step: "native", or "torch"."""
        return "torch" if self.why_not_native else "native"

    @property
    def why_not_native(self) -> str:
        """The reason why torch computes the policy; "" where it does not."""
        return self._policy_reader.why_not

    @functools.cached_property
    def _policy_reader(self) -> PolicyReader:
        return PolicyReader()

    def _collect(
        self,
        n_step: int | None = None,
        n_episode: int | None = None,
        random: bool = False,
        render: float | None = None,
        gym_reset_kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """See Collector.collect."""
        if n_step and not random:
            actor = self._native_actor(n_step, render, gym_reset_kwargs)
            if actor is not None:
                return self._collect_natively(actor, n_step)
        with beside_a_pool(self.policy, self.env_num, self.num_torch_threads):
            if render or not self._writes_blocks():
                return super()._collect(n_step, n_episode, random, render, gym_reset_kwargs)
            return self._collect_blocks(n_step, n_episode, random, gym_reset_kwargs)

    def _collect_blocks(
        self,
        n_step: int | None,
        n_episode: int | None,
        random: bool,
        gym_reset_kwargs: dict[str, Any] | None,
    ) -> Any:
        self._first()
        rows = self.env_num if n_step else min(self.env_num, n_episode or 0)
        if rows < self.env_num:
            _log.warning(
                "n_episode is %d, so %d of %d environments are not used",
                n_episode,
                self.env_num - rows,
                self.env_num,
            )
        loop = _BlockLoop(self, rows, random, gym_reset_kwargs or {})
        loop.run(n_step, n_episode)
        self.collect_step += loop.num_steps
        self.collect_episode += loop.num_episodes
        if n_step:
            self._keep(loop)
        else:
            self.reset_env(gym_reset_kwargs)
        return loop.statistics()

    def _native_actor(
        self, n_step: int, render: float | None, gym_reset_kwargs: dict[str, Any] | None
    ) -> NativeActor | None:
        """The actor in the pool's threads; None where torch acts."""
        why_not = ""
        if render or gym_reset_kwargs or not self._writes_blocks():
            why_not = "Tianshou's own loop is needed, see rollouts.integrations.tianshou"
        elif self._has_episode_hook():
            why_not = "an on_episode_done_hook sees the buffer whenever an episode has ended"
        elif TraceLogger.is_enabled:
            why_not = "actions are traced step by step"
        before = self.why_not_native
        reader = self._policy_reader
        actor = reader.choose(self.rollout_engine, self.env, self.policy, why_not)
        if reader.why_not not in ("", before):
            _log.info("torch computes the policy: %s", reader.why_not)
        return actor

    def _collect_natively(self, actor: NativeActor, n_step: int) -> Any:
        loop = NativeLoop(self.env, actor, self.buffer, self._first())
        # the environments are somewhere in the rollout while it runs: after an error they have to
        # be reset
        self._pre_collect_obs_RO = None
        loop.run(n_step)
        self.collect_step += loop.num_steps
        self.collect_episode += loop.num_episodes
        self._keep(loop)
        return loop.statistics(self.collect_stats_class())

    def _first(self) -> Array:
        """The observations with which the next collect begins."""
        if self._pre_collect_obs_RO is None or self._pre_collect_info_R is None:
            raise ValueError(
                "the collector has no first observations: call reset() or reset_env(), or pass "
                "reset_before_collect=True to collect()"
            )
        obs: Array = self._pre_collect_obs_RO
        return obs

    def _writes_blocks(self) -> bool:
        """True when blocks give the same result as Tianshou's loop."""
        if type(self.env) is PythonVectorEnv or not isinstance(self.env, RolloutsVectorEnv):
            return False
        stats = self.collect_stats_class
        return (
            not self.env.is_async
            and not self.env.has_action_masks
            and self._on_step_hook is None
            and all(getattr(type(self), name) is getattr(Collector, name) for name in _REPLACED)
            and stats.update_at_step_batch is CollectStats.update_at_step_batch
            and stats.update_at_episode_done is CollectStats.update_at_episode_done
            and BlockWriter.fits(self.buffer)
        )

    def _has_episode_hook(self) -> bool:
        own = type(self).run_on_episode_done is Collector.run_on_episode_done
        return self._on_episode_done_hook is not None or not own

    def _keep(self, loop: _BlockLoop | NativeLoop) -> None:
        """Remembers where the next collect begins."""
        self._pre_collect_obs_RO = loop.obs
        self._pre_collect_hidden_state_RH = loop.state
        self._pre_collect_info_R = loop.infos()
        # keeps both forms of the info, so that the next collect need not convert it
        self._kept_info = self._pre_collect_info_R, loop.info

    def _first_info(self, ids: Array) -> Any:
        """The policy's info at the start of a collect."""
        dicts_of, batch = getattr(self, "_kept_info", (None, None))
        if dicts_of is self._pre_collect_info_R and len(ids) == self.env_num:
            return batch
        return _HACKY_create_info_batch(self._pre_collect_info_R[ids])


class _BlockLoop:
    """One collect of R environments; with n_episode, R becomes smaller than N towards the end."""

    def __init__(
        self,
        collector: RolloutsCollector[Any],
        rows: int,
        random: bool,
        reset_kwargs: dict[str, Any],
    ) -> None:
        self._collector, self._random, self._reset_kwargs = collector, random, reset_kwargs
        self._env: RolloutsVectorEnv = collector.env
        self._writer = StepWriter(collector.buffer)
        self._spread = Spread()
        self._returns: list[Array] = []
        self._lengths: list[Array] = []
        self.num_steps = self.num_episodes = 0
        # state of the R environments
        self.ids = np.arange(rows)
        self.obs: Array = collector._pre_collect_obs_RO[self.ids]
        self.info = collector._first_info(self.ids)
        state = collector._pre_collect_hidden_state_RH
        self.state: Any = None if state is None else state[self.ids]
        self._has_info = np.ones(rows, np.bool_)

    def run(self, n_step: int | None, n_episode: int | None) -> None:
        """Steps until there are enough steps or episodes."""
        self._writer.load()
        try:
            while True:
                self._step(n_episode)
                if n_step and self.num_steps >= n_step:
                    return
                if n_episode and self.num_episodes >= n_episode:
                    return
        finally:
            # after any error, too, the buffer is whole
            self._writer.store()

    def statistics(self) -> Any:
        """The collector's kind of CollectStats; `collect` adds times and summaries."""
        stats = self._collector.collect_stats_class()
        stats.n_collected_steps = self.num_steps
        stats.n_collected_episodes = self.num_episodes
        if self._returns:
            stats.returns = np.concatenate(self._returns).astype(float)
            stats.lens = np.concatenate(self._lengths).astype(int)
        stats.pred_dist_std_array = self._spread.array()
        return stats

    def infos(self) -> Array:
        """(R,) object: `info` as a dict per environment, as the stock Collector keeps it."""
        columns = {name: self.info[name] for name in self.info.get_keys() if name != "env_id"}
        return dicts(self.ids, columns, self._has_info)

    def _step(self, n_episode: int | None) -> None:
        action = self._action()
        TraceLogger.log(_log, lambda: f"Action: {action.act}")
        step = self._env.step_columns(action.env_act, self.ids)
        done = step.terminated | step.truncated
        index, ended = self._writer.write(self.obs, action, step, done)
        self._spread.add(action.dist)
        self.num_steps += len(self.ids)
        self.num_episodes += len(ended.rows)

        self.obs = step.obs
        self.state = copy.copy(action.state)
        self._has_info = np.ones(len(self.ids), np.bool_)
        columns = numbers(step.info)
        if len(ended.rows):
            self._end_episodes(index, ended, n_episode is not None, columns)
        self.info = Batch(env_id=self.ids, **columns)
        if n_episode and len(ended.rows):
            self._leave_out(len(self.ids) - (n_episode - self.num_episodes), ended.rows)

    def _action(self) -> Action:
        one = self._collector
        if self._random:
            return random_action(one.policy, one.action_space, self.ids)
        batch = Batch(obs=self.obs, info=self.info)
        return policy_action(one.policy, batch, self.state, one.exploration_noise)

    def _end_episodes(
        self, index: Array, ended: Ended, whole_episodes: bool, columns: dict[str, Array]
    ) -> None:
        """Begins the next episodes and hands the ended ones to the hook."""
        rows = ended.rows
        self._returns.append(ended.returns)
        self._lengths.append(ended.lengths)
        obs, info, has_info = self._env.reset_columns(self.ids[rows], **self._reset_kwargs)
        self.obs = self.obs.copy()
        self.obs[rows] = obs
        self._collector._reset_hidden_state_based_on_type(rows, self.state)
        self._has_info[rows] = has_info
        for name in columns:
            columns[name] = columns[name].copy()
            columns[name][rows] = info.get(name, 0)
        if self._collector._has_episode_hook():
            self._writer.store()
            for row, start in zip(rows.tolist(), ended.starts.tolist(), strict=True):
                self._run_hook(start, int(index[row]) + 1, whole_episodes)
            self._writer.load()

    def _run_hook(self, start: int, stop: int, whole_episodes: bool) -> None:
        buffer = self._collector.buffer
        where = buffer.get_buffer_indices(start, stop)
        found = self._collector.run_on_episode_done(buffer[where])
        if found is None:
            return
        if not whole_episodes:
            raise ValueError(
                f"the on_episode_done_hook adds {list(found)} to the buffer, which needs whole "
                "episodes: collect with n_episode, not with n_step"
            )
        for key, values in found.items():
            buffer.set_array_at_key(values, key, index=where)

    def _leave_out(self, surplus: int, ended_rows: Array) -> None:
        """Stops the first `surplus` environments whose episode ended, as Tianshou does."""
        if surplus <= 0:
            return
        stay = np.ones(len(self.ids), np.bool_)
        stay[ended_rows[:surplus]] = False
        self.ids, self.obs, self.info = self.ids[stay], self.obs[stay], self.info[stay]
        self._has_info = self._has_info[stay]
        if self.state is not None:
            self.state = self.state[stay]
