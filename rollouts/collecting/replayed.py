# SPDX-License-Identifier: Apache-2.0
"""`replay_run`: makes a fragment of a recorded run again, bit for bit."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from rollouts.batch import RolloutBatch
from rollouts.checks import whole_number
from rollouts.collecting.asked import Asked
from rollouts.collecting.batched_env import check_env
from rollouts.collecting.deadline import Deadline
from rollouts.collecting.on_host import OnHost
from rollouts.collecting.rows import ALONE
from rollouts.envs.make import make_pool
from rollouts.envs.statistics import RunningStatistics
from rollouts.errors import ProtocolError, SpecError
from rollouts.policies.protocol import PolicyOutput
from rollouts.run_log.fragment_sums import sum_of
from rollouts.run_log.log_format import LogRecord
from rollouts.run_log.log_header import LogHeader
from rollouts.run_log.log_reader import Chain, find_log, open_log
from rollouts.support.user_warnings import warn_user

Array = npt.NDArray[Any]
MakeLogged = Callable[[LogHeader], Any]
See = Callable[[Any, int], None]


@dataclass(frozen=True, slots=True, eq=False)
class ReplayedFragment:
    """A fragment that was made again, with the step that was asked for.

    Attributes:
      header: Header of the log.
      env_id: The environment that was asked for.
      step: The step of that environment that was asked for.
      first_step: The environment's step in row 0.
      num_steps: Rows that the run had; fewer than T where an error ended the fragment.
      policy_version: (oldest, newest) version of the weights that chose the actions.
      batches: group -> the batch of the whole pool, "" for one agent. The policy's numbers
        (log_prob, value) are zeros.
      is_verified: Whether the checksum equals the run's; False where an error ended the fragment,
        which then has no checksum.
      failed: The error that ended the fragment; "" without one.
      env_errors: Errors of environments while the fragment was made again.
    """

    header: LogHeader
    env_id: int
    step: int
    first_step: int
    num_steps: int
    policy_version: tuple[int, int] | None
    batches: Mapping[str, RolloutBatch]
    is_verified: bool
    failed: str = ""
    env_errors: list[str] = field(default_factory=list)

    def of_env(self) -> dict[str, Array]:
        """Returns the environment's own arrays by name, with "<group>/<name>" for groups.

        Returns:
          step (T,) int64; obs (T, ...), action (T, ...), reward, terminated, truncated,
          episode_return and episode_length (T,), and last_obs, as in RolloutBatch; for agents with
          an axis A after T.
        """
        rows, column = self.num_steps, self.env_id - self.header.env_id_offset
        found: dict[str, Array] = {"step": self.first_step + np.arange(rows)}
        for name, batch in self.batches.items():
            agents = self.header.groups.get(name, 1)
            columns: Any = slice(column * agents, (column + 1) * agents) if name else column
            prefix = f"{name}/" if name else ""
            for one in _SHOWN:
                found[prefix + one] = getattr(batch, one)[:rows, columns]
            is_whole = rows == len(batch.reward)
            found[f"{prefix}last_obs"] = (
                batch.last_obs[columns] if is_whole else batch.obs[rows, columns]
            )
        return found


_SHOWN = (
    "obs",
    "action",
    "reward",
    "terminated",
    "truncated",
    "episode_return",
    "episode_length",
)


def replay_run(
    path: str | os.PathLike[str],
    *,
    env_id: int,
    step: int,
    worker: int | None = None,
    incarnation: int | None = None,
    make_env: MakeLogged | None = None,
    env_options: Mapping[str, Any] | None = None,
    any_release: bool = False,
    see: See | None = None,
) -> ReplayedFragment:
    """Makes the fragment with a step of a recorded run again, and checks that it is the same.

    Args:
      path: The log's folder, or the run's directory, in which it is called "log".
      env_id: Global id of the environment.
      step: Its step, from 0 in each incarnation of its worker.
      worker, incarnation: Numbers in the log; None: the newest that has the step.
      make_env: Makes the environments, if Python functions made those of the run; called with the
        log's `LogHeader`. They must be as many, with the same seed, and autoreset in the same step.
      env_options: Options that replace those in the log. Check the options of a log from a source
        that you do not trust: they may name files.
      any_release: Whether to make a fragment of another release's log, with a warning.
      see: Called with the environments and t before each step t of the fragment.

    Raises:
      SpecError: There is no such log or step, another release wrote it, or `make_env` is needed.
      ProtocolError: The result differs from the run.
    """
    whole_number("env_id", env_id, 0)
    whole_number("step", step, 0)
    log = find_log(open_log(path), env_id, step, worker, incarnation)
    chain = log.chain_to(step)
    if sentence := chain.header.other_release:
        if not any_release:
            raise SpecError(f"{sentence}; install that release, or ask for any_release")
        warn_user(f"{sentence}; its checksums will tell", RuntimeWarning)
    env: Any = _Watched(_make_env(chain.header, make_env, env_options))
    try:
        return _again(env, chain, env_id, step, see)
    finally:
        env.close()


def _again(
    env: _Watched, chain: Chain, env_id: int, step: int, see: See | None
) -> ReplayedFragment:
    header, last = chain.header, chain.fragments[-1]
    groups = env.groups if header.groups else {ALONE: env}
    acting: dict[str, Any] = {
        name: _Recorded(group.single_action_space.dtype) for name, group in groups.items()
    }
    check_env(env)
    asked = Asked(
        rollout_length=header.rollout_length,
        keep_final_obs=header.keep_final_obs,
        engine="torch",
    )
    steps = OnHost(env, acting, asked)
    if header.has_states:
        steps.begin_from(_go_to(env, chain.state, acting))
    for record in chain.fragments:
        env.begin()
        is_last = record is last
        _set_statistics(env, record)
        for name, policy in acting.items():
            is_first = name == next(iter(acting))
            watch = see if is_last and is_first else None
            policy.begin(_actions(record, name, header), watch and _seeing(watch, env))
        batches = steps.collect(Deadline(None))
        is_verified = _check(batches, record, header)
    counts = last.arrays.get("counts")
    num_steps = header.rollout_length
    if counts is not None:
        num_steps = int(counts[env_id - header.env_id_offset])
    versions = last.facts.get("policy_version")
    return ReplayedFragment(
        header=header,
        env_id=env_id,
        step=step,
        first_step=int(last.facts["first_step"]),
        num_steps=num_steps,
        policy_version=None if versions is None else (int(versions[0]), int(versions[1])),
        batches=dict(batches),
        is_verified=is_verified,
        failed=str(last.facts.get("failed", "")),
        env_errors=[text for t, one, text in env.errors if one == env_id and t < num_steps],
    )


class _Watched:
    """Environments whose failures are recorded."""

    def __init__(self, env: Any) -> None:
        self._env = env
        self._t = 0
        self.errors: list[tuple[int, int, str]] = []  # step, env_id, words

    def begin(self) -> None:
        """Marks the start of a fragment."""
        self._t = 0
        self.errors.clear()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)

    def recv_batch(self, timeout_s: float | None = None) -> Any:
        batch = self._env.recv_batch(timeout_s)
        # a batch with several agents has no info: it has a mask of failures, without messages
        info = getattr(batch, "info", {"_env_error": getattr(batch, "failed", None)})
        if (failed := info.get("_env_error")) is not None:
            words = info.get("env_error", ["failed"] * len(failed))
            for row in np.flatnonzero(failed):
                self.errors.append((self._t, int(batch.env_id[row]), str(words[row])))
        self._t += 1
        return batch


class _Recorded:
    """A policy that returns the actions of a log for any observations."""

    policy_version = 0

    def __init__(self, dtype: Any) -> None:
        """Takes the dtype of actions; a log may keep them in a narrower one."""
        self._dtype, self._actions = dtype, np.empty(0, dtype)
        self._t, self._see = 0, None

    def begin(self, actions: Array, see: Any) -> None:
        """Takes the actions (T, B, ...) of the next fragment."""
        self._actions, self._t, self._see = actions.astype(self._dtype), 0, see

    def act(self, obs: Array) -> PolicyOutput:
        if self._see is not None:
            self._see(self._t)
        action = self._actions[self._t]
        self._t += 1
        zeros = np.zeros(len(obs), np.float32)
        return PolicyOutput(action=action, log_prob=zeros, value=zeros)

    def value(self, obs: Array) -> Array:
        return np.zeros(len(obs), np.float32)


def _seeing(see: See, env: _Watched) -> Callable[[int], None]:
    return lambda t: see(env, t)


def _make_env(
    header: LogHeader, make_env: MakeLogged | None, options: Mapping[str, Any] | None
) -> Any:
    if make_env is not None:
        env = make_env(header)
        expected = (header.num_envs, header.env_id_offset)
        if (given := (env.num_envs, env.env_id_offset)) != expected:
            env.close()
            raise SpecError(
                f"make_env made an environment with (num_envs, env_id_offset) {given}, expected "
                f"{expected} as the log says"
            )
        return env
    if header.why_not_made:
        raise SpecError(
            f"the log does not say how to make its environments, as {header.why_not_made}: give "
            "make_env, a function that makes them"
        )
    ids = header.ids
    return make_pool(
        ids[0] if len(ids) == 1 else ids,
        header.num_envs,
        env_options=header.env_options if options is None else options,
        autoreset_mode="same_step",
        env_id_offset=header.env_id_offset,
        max_episode_steps=header.max_episode_steps,
        # failures are shown instead of raised
        on_env_error="reset",
    )


def _go_to(env: Any, state: LogRecord, groups: Mapping[str, Any]) -> dict[str, Array]:
    """Sets the states of a record; returns the observations of the groups' rows."""
    env.reset()
    ends = np.cumsum(state.facts["sizes"])[:-1]
    env.set_state(None, [part.tobytes() for part in np.split(state.arrays["states"], ends)])
    if f"obs.{next(iter(groups))}" in state.arrays:
        return {name: state.arrays[f"obs.{name}"] for name in groups}
    # a reset of no environment returns the present observations of all
    obs, _ = env.reset(options={"reset_mask": np.zeros(env.num_envs, np.bool_)})
    return dict(obs) if isinstance(obs, Mapping) else {next(iter(groups)): obs}


def _set_statistics(env: Any, record: LogRecord) -> None:
    counts = record.facts.get("count_of", {})
    for kind, count in counts.items():
        mean, var = record.arrays[f"mean.{kind}"], record.arrays[f"var.{kind}"]
        env.engine.statistics.replace(kind, RunningStatistics(mean, var, float(count)))
    if counts:
        env.engine.statistics.update(bool(record.facts["counting"]))


def _actions(record: LogRecord, name: str, header: LogHeader) -> Array:
    """Returns a group's actions (T, B, ...); after an error an env's last one is repeated."""
    actions = record.arrays[f"action.{name}"]
    counts = record.arrays.get("counts")
    if counts is None:
        return actions
    last = np.repeat(np.maximum(counts - 1, 0), header.groups.get(name, 1))
    rows = np.minimum(np.arange(len(actions))[:, None], last)
    chosen: Array = actions[rows, np.arange(actions.shape[1])]
    return chosen


def _check(batches: Mapping[str, RolloutBatch], record: LogRecord, header: LogHeader) -> bool:
    """Returns True if the checksum equals the run's, False if the run has none.

    Raises:
      ProtocolError: The checksums differ.
    """
    expected = record.facts["sum"]
    if expected is None:
        return False
    if (found := sum_of(batches)) != int(expected):
        raise ProtocolError(
            f"fragment {record.facts['seq']} of worker {header.worker_id}, incarnation "
            f"{header.incarnation}, is not what the run did (checksum {found:016x}, expected "
            f"{int(expected):016x}): the environments are others (options, a seed, files that they "
            "read), draw from generators that reset does not seed, or were changed by "
            "reset(options=...)"
        )
    return True
