# SPDX-License-Identifier: Apache-2.0
"""`Recorder`: records whole episodes of a collector, a coordinator or an environment."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Literal, Self

import numpy as np

from rollouts.batch import MultiAgentRollout, RolloutBatch
from rollouts.checks import whole_number
from rollouts.collecting.batched_env import cell_of, check_autoreset
from rollouts.datasets.about import about_of
from rollouts.datasets.cutter import StepBlock
from rollouts.datasets.group_writer import GroupWriter, Quotas
from rollouts.datasets.start_states import StartStates
from rollouts.datasets.step_blocks import (
    FragmentStreams,
    StepRows,
    block_of,
    check_rollout,
    ends_of,
    on_host,
    streams_of,
)
from rollouts.datasets.targets import make_target
from rollouts.datasets.writing_thread import WritingThread
from rollouts.errors import ClosedError, DTypeError, FileError, ProtocolError, SpecError
from rollouts.features import check
from rollouts.learner.fragment import Fragment
from rollouts.support import at_exit

IfFull = Literal["stop", "drop"]
Compression = Literal["auto", "gzip", "none"]

_STEPS_OF_A_BLOCK = 64  # a block of Recorder.step


class Recorder:
    """Writes whole episodes, in a thread of its own, while the environments go on.

    An episode is written when its end is known, with its final observation, together with others in
    a part. The disk has whole episodes at any time, even after the process was killed. Episodes
    that were still open or not yet written are then lost: at most `part_bytes`, and the data that
    waits. If the disk is slower than the environments, the caller waits.

    The actions are those that the environments took: clipped to the bounds of their space. Stacked
    frames are stored once each.

    Not thread-safe; `close` or the end of a `with` block completes the set.

    Example:
      collector = rollouts.Collector(env, policy, 128, keep_final_obs=True)
      with rollouts.Recorder(collector, "minari:cheetah/random-v0") as recorder:
          recorder.record(num_steps=1_000_000)

    Attributes:
      source: The collector, coordinator or environment.
      paths: Group -> path of its data set; "" is the group of environments with one agent.
    """

    def __init__(
        self,
        source: Any,
        to: str | os.PathLike[str],
        *,
        infos: Sequence[str] = (),
        states: bool = False,
        compression: Compression = "auto",
        if_full: IfFull = "stop",
        part_bytes: int = 4 << 20,
        max_pending_bytes: int = 256 << 20,
    ) -> None:
        """Makes an empty data set.

        Args:
          source: A `Collector` with keep_final_obs=True, a `RolloutCoordinator` with
            collect=CollectOptions(keep_final_obs=True), or a synchronous `VectorEnv` of one agent
            that autoresets in the same step.
          to: minari:NAME-v0, for `minari.load_dataset`; FOLDER.parquet; FILE.hdf5. Several groups
            of agents make a set each: NAME/GROUP-v0, FOLDER.parquet/GROUP, FILE-GROUP.hdf5.
          infos: Names of values to keep beside each step: from rollouts "log_prob", "value",
            "policy_version" and extras; from `step` infos of the environment, such as "lives".
          states: Whether to keep the environments' saved states at the start of episodes, for
            `set_state`. A second pool of as many environments makes them. Without them, episodes
            can be played again from their random streams.
          compression: Method for arrays of bytes, such as frames: "auto" (gzip in HDF5, Zstandard
            in Parquet), "gzip" or "none". Other arrays are stored as they are.
          if_full: "stop": an episode that cannot be written raises FileError. "drop": it is left
            out and counted, and the recording goes on.
          part_bytes: Size of a part, in bytes of episodes.
          max_pending_bytes: Most bytes of rollouts that wait to be written.

        Raises:
          SpecError: A source or a name of another kind, a set that exists already, or spaces whose
            values are not arrays. EngineError: A library is missing (extra `datasets`). FileError:
            The set cannot be written there.
        """
        self.source = source
        _check(infos, compression, if_full)
        self._kind, env = _kind_of(source)
        self._env, self._infos = env, tuple(infos)
        self._num_envs = _num_envs_of(source, env)
        self._if_full, self._is_closed = if_full, False
        whole_number("part_bytes", part_bytes, 1, 2**40)
        whole_number("max_pending_bytes", max_pending_bytes, 1, 2**50)
        self._abouts = about_of(env, self._infos)
        self._quotas = Quotas()
        if _is_on_device(source):
            self._abouts = {
                name: replace(about, why_not_again="a device stepped the environments")
                for name, about in self._abouts.items()
            }
        starts = StartStates(env, is_on_device=_is_on_device(source)) if states else None
        groups = getattr(env, "groups", None) or {}
        self._writers = {
            name: GroupWriter(
                make_target(to, about, compression), about.stack_num, part_bytes,
                num_agents=groups[name].num_agents if name else 1, quotas=self._quotas,
                starts=starts, drops=if_full == "drop",
            )
            for name, about in self._abouts.items()
        }  # fmt: skip
        self._starts = starts
        self.paths = {name: one.target.path for name, one in self._writers.items()}
        for one in self._writers.values():
            one.target.begin()
        counts = self._kind == "coordinator" and not _is_on_device(source)
        seeds = source.env_seed if counts else None
        self._fragments = FragmentStreams(seeds)
        self._steps = StepRows(self._infos, _STEPS_OF_A_BLOCK)
        self._obs: Any = None
        self._thread: WritingThread[dict[str, Any]] = WritingThread(self._write, max_pending_bytes)
        at_exit.call_at_exit(self.close)

    # -- recording ---------------------------------------------------------------------

    def record(self, *, num_steps: int | None = None, num_episodes: int | None = None) -> None:
        """Collects until the set has this many more steps or episodes, and all are written.

        Args:
          num_steps: Steps of whole episodes, at least this many.
          num_episodes: Episodes, exactly this many: environment i plays E // N of them, the first E
            % N one more. The first E episodes to end would be biased towards short ones.

        Raises:
          SpecError: Both or neither of them are given, or the source is stepped by `step`. Also
            the errors of `add` and of collecting.
        """
        if (num_steps is None) == (num_episodes is None):
            raise SpecError("record() takes num_steps or num_episodes, one of both")
        if self._kind == "env":
            raise SpecError(
                "record() needs a Collector or a RolloutCoordinator, which have a policy: the "
                "steps of a VectorEnv are recorded by reset() and step(actions)"
            )
        if num_episodes is not None:
            whole_number("num_episodes", num_episodes, 1, 2**40)
            self._thread.wait()
            self._quotas.set(num_episodes, self._num_envs)
            for one in self._writers.values():
                one.begin_quotas()
            while not self._is_full():
                self._add_next()
            return self._quotas.clear()
        wanted = self.stats()["num_steps"] + whole_number("num_steps", num_steps, 1, 2**50)
        while (left := wanted - self.stats()["num_steps"]) > 0:
            while left > 0:
                left -= self._add_next()
            self._thread.wait()
        return None

    def add(self, rollout: RolloutBatch | MultiAgentRollout | Fragment) -> None:
        """Records a rollout of the source; waits while there are too many bytes to write.

        The rollout's arrays must not change afterwards; a collector's rollouts own theirs.

        Raises:
          SpecError: It has no final_obs, or lacks requested infos. FileError: An episode could not
            be written. ClosedError: The recorder was closed.
        """
        if self._is_closed:
            raise ClosedError("the recorder is closed")
        streams = None
        payload: Any = rollout
        if isinstance(rollout, Fragment):
            payload = rollout.payload
        by_group = payload if isinstance(payload, MultiAgentRollout) else {"": payload}
        if set(by_group) != set(self._writers):
            raise DTypeError(
                f"rollout has the groups {sorted(by_group)}, expected {sorted(self._writers)}: one "
                "of what the recorder was made for"
            )
        by_group = {name: on_host(one) for name, one in by_group.items()}
        for one in by_group.values():
            check_rollout(getattr(one, "rest", one), self._infos)
        rests = {name: getattr(one, "rest", one) for name, one in by_group.items()}
        if isinstance(rollout, Fragment):
            over = ends_of(rests.values(), self.source.num_envs_per_worker)
            streams = self._fragments.behind(rollout.info, rests, over)
        elif self._kind == "collector" and not self.source.prefetch:
            streams = streams_of(self._env, ends_of(rests.values(), self._env.num_envs))
        blocks = {name: (one, streams) for name, one in by_group.items()}  # cut by the thread
        self._thread.put(blocks, sum(one.nbytes for one in by_group.values()))

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        """Resets the environments of a recorder for single steps, like `VectorEnv.reset`."""
        self._check_steps()
        self._flush_steps()
        obs, info = self._env.reset(**options)
        self._obs = np.array(obs)
        return obs, info

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Steps the environments and records the step, like `VectorEnv.step`.

        Raises:
          ProtocolError: `reset` was not called. Also the errors of `VectorEnv.step` and `add`.
        """
        self._check_steps()
        if self._obs is None:
            raise ProtocolError("step() was called before reset(): call reset() first")
        five: tuple[Any, Any, Any, Any, dict[str, Any]] = self._env.step(actions)
        is_full = self._steps.add(self._obs, actions, five, self._env.single_action_space)
        self._obs = np.array(five[0])
        if is_full:
            self._flush_steps()
        return five

    def stats(self) -> dict[str, int | float]:
        """Returns counts so far, of all groups together.

        num_episodes, num_steps: written or waiting to be written; num_cut: left out because steps
        are missing after recorded ones; num_dropped: left out because the disk is full.
        """
        writers = self._writers.values()
        return {
            "num_episodes": sum(one.num_episodes for one in writers),
            "num_steps": sum(one.num_steps for one in writers),
            "num_cut": sum(one.num_cut for one in writers),
            "num_dropped": sum(one.num_dropped for one in writers),
        }

    def flush(self) -> None:
        """Waits until all whole episodes so far are on the disk.

        Raises:
          FileError: An episode could not be written.
        """
        self._flush_steps()
        self._thread.wait()
        self._thread.put({}, 0)
        self._thread.wait()

    def close(self) -> None:
        """Writes all whole episodes, and completes the set; may be called twice.

        Raises:
          FileError: An episode could not be written. The others were written.
        """
        if self._is_closed:
            return
        try:
            self._flush_steps()
        finally:
            self._is_closed = True
            try:
                self._thread.finish()
            finally:
                for one in self._writers.values():
                    one.close()
                if self._starts is not None:
                    self._starts.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if exc is None:
            return self.close()
        # the error of the `with` block is the one to show
        with contextlib.suppress(FileError):
            self.close()
        return None

    # -- below -------------------------------------------------------------------------

    def _add_next(self) -> int:
        """Collects a rollout and records it; returns the steps of the episodes that end in it."""
        if self._kind == "coordinator":
            rollouts: list[Any] = self.source.get_fragments(1)
        else:
            rollouts = [self.source.collect()]
        total = 0
        for one in rollouts:
            self.add(one)
            payload = one.payload if isinstance(one, Fragment) else one
            groups = payload.values() if isinstance(payload, Mapping) else [payload]
            batches: list[Any] = [getattr(each, "rest", each) for each in groups]
            total += sum(int(each.episodes().lengths.sum()) for each in batches)
        return total

    def _is_full(self) -> bool:
        self._thread.wait()
        return self._quotas.is_full(self._writers)

    def _check_steps(self) -> None:
        if self._kind != "env":
            raise SpecError(
                f"the recorder's source is a {type(self.source).__name__}, which steps by itself: "
                "call record() or add(); reset() and step() are for Recorder(VectorEnv, ...)"
            )
        if self._is_closed:
            raise ClosedError("the recorder is closed")

    def _flush_steps(self) -> None:
        if self._kind != "env" or self._obs is None:
            return
        block = self._steps.take(self._obs, self._abouts[""].stack_num, self._env)
        if block is not None:
            self._thread.put({"": block}, block.nbytes)

    def _write(self, blocks: dict[str, Any]) -> None:
        """Cuts and writes blocks, in the thread; without blocks, writes all whole episodes."""
        if not blocks:
            for one in self._writers.values():
                one.publish()
        for name, one in blocks.items():
            about = self._abouts[name]
            block = one if isinstance(one, StepBlock) else block_of(
                one[0], infos=self._infos, action_space=about.action_space,
                stack_num=about.stack_num, streams=one[1],
            )  # fmt: skip
            self._writers[name].add(block)


def _check(infos: Sequence[str], compression: str, if_full: str) -> None:
    if isinstance(infos, str) or not all(isinstance(one, str) for one in infos):
        raise SpecError(f"infos is {infos!r}, expected names such as ('log_prob',)")
    for name, value, known in (
        ("compression", compression, ("auto", "gzip", "none")),
        ("if_full", if_full, ("stop", "drop")),
    ):
        if value not in known:
            raise SpecError(f"{name} is {value!r}, expected one of {', '.join(known)}")


def _kind_of(source: Any) -> tuple[str, Any]:
    """Returns the kind of a source, and the environments that describe it.

    Raises:
      SpecError: It is of another kind, or its episodes cannot be recorded whole.
    """
    if hasattr(source, "get_fragments"):
        if not source.collect.keep_final_obs:
            raise SpecError(
                "the coordinator's fragments have no final_obs: make it with "
                "collect=CollectOptions(keep_final_obs=True)"
            )
        with source.make_env() as env:
            return "coordinator", env
    if hasattr(source, "rollout_length"):
        return "collector", source.env
    if not hasattr(source, "autoreset_mode") or not hasattr(source, "engine"):
        raise SpecError(
            f"source is a {type(source).__name__}, expected a Collector, a RolloutCoordinator or a "
            "VectorEnv of make_vec"
        )
    check_autoreset(source)
    check("Recorder", ["reset and step"], cell_of(source))
    if source.batch_size < source.num_envs:
        raise SpecError(
            "source is asynchronous, and single steps of some environments are not recorded: leave "
            "batch_size out of make_vec, or give Recorder a Collector of it"
        )
    return "env", source


def _num_envs_of(source: Any, env: Any) -> int:
    """Number of environments of a source, including those of all workers."""
    if not hasattr(source, "num_envs_per_worker"):
        return int(env.num_envs)
    return int(max(source.num_workers, 1) * source.num_envs_per_worker)


def _is_on_device(source: Any) -> bool:
    """Tells if a coordinator's workers have their environments on a device."""
    return getattr(getattr(source, "collect", None), "device", None) is not None
