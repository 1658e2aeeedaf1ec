# SPDX-License-Identifier: Apache-2.0
"""`HostedEngine`: environments in Python, in processes or in this one."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from multiprocessing.context import BaseContext
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from rollouts.checks import one_of, to_autoreset_mode, whole_number
from rollouts.envs.engine import Arrays, Info, NoStatistics, lacking, refuse
from rollouts.envs.hosted.agents.by_group import AgentColumns
from rollouts.envs.hosted.async_calls import AsyncCalls
from rollouts.envs.hosted.batch_spaces import (
    SpacePair,
    check_observation_mode,
    checked_functions,
    common_action_space,
    observation_spaces,
)
from rollouts.envs.hosted.batches import Batch, BatchInfos, BatchReader, HostedEpisodes
from rollouts.envs.hosted.call_checks import rows_of
from rollouts.envs.hosted.counts import Counts
from rollouts.envs.hosted.in_flight import InFlight
from rollouts.envs.hosted.processes.host import Host
from rollouts.envs.hosted.processes.lifecycle import HostOptions, to_context
from rollouts.envs.hosted.processes.local_host import LocalHost
from rollouts.envs.hosted.processes.process_host import ProcessHost
from rollouts.envs.hosted.processes.records import EnvFn
from rollouts.envs.hosted.processes.step_trial import default_processes
from rollouts.envs.hosted.processes.wire import Kind
from rollouts.envs.hosted.receiver import BatchReceiver
from rollouts.envs.hosted.resets import Resets
from rollouts.envs.hosted.sender import ActionSender
from rollouts.envs.observation_parts import ObservationParts
from rollouts.envs.stats import PoolStats
from rollouts.errors import SpecError
from rollouts.machine.cpu_count import usable_cpus
from rollouts.specs import AgentGroup, EnvSpec
from rollouts.support.no_room import named_if_no_room
from rollouts.support.user_warnings import warn_user


class HostedEngine:
    """Environments that Python functions make; see `rollouts.from_env_fns`.

    Its parts can each be tested alone: the host runs the environments, `ActionSender` and
    `BatchReceiver` move rows to and from it, `InFlight` keeps track of them, `Resets` begins
    episodes, `BatchReader` and `BatchInfos` make batches, `Counts` measures.

    Attributes:
      num_processes: Processes that step; 0: this process steps.
      num_threads: `num_processes`, but at least 1.
      async_calls: `reset_async` and the like.
      seed: Seed of the first reset; None: there is none.
    """

    name = "a pool of environments in Python"
    kind = "hosted"
    groups: tuple[AgentGroup, ...] = ()
    info_names: tuple[str, ...] = ()  # the names are known only once environments report them
    has_columns = True
    parts: ObservationParts | None = None
    device = None
    why_not_collects = (
        "the environments run in Python: this is no native pool, and native pools alone compute "
        "policies by their own threads"
    )

    def __init__(
        self,
        env_fns: Sequence[EnvFn],
        *,
        num_processes: int | None = None,
        batch_size: int | None = None,
        seed: int | None = None,
        autoreset_mode: str | AutoresetMode = "next_step",
        env_id_offset: int = 0,
        on_env_error: str = "raise",
        start_method: str | None = None,
        observation_mode: str | SpacePair = "same",
        episode_statistics: bool | None = None,
        copy: bool = True,
        has_agents: bool = False,
    ) -> None:
        """Checks the arguments and makes the environments.

        Args:
          env_fns: Functions that make environments.
          has_agents: Whether each function makes a `ParallelEnvAsOne`.
          num_processes, batch_size, seed, autoreset_mode, env_id_offset, on_env_error,
            start_method, observation_mode, episode_statistics, copy: As `from_env_fns`.
        """
        # the arguments make this engine again, in another process
        self._arguments = {k: v for k, v in locals().items() if k not in ("self", "env_fns")}
        self._env_fns = env_fns = checked_functions(env_fns)
        check_observation_mode(observation_mode)
        self.num_envs = len(env_fns)
        rows = self.num_envs if batch_size is None else batch_size
        self.batch_size = whole_number("batch_size", rows, 1, self.num_envs)
        if num_processes is not None:
            num_processes = whole_number("num_processes", num_processes, 0, self.num_envs)
        if num_processes == 0 and start_method is not None:
            raise SpecError(
                f"start_method is {start_method!r}, and num_processes=0 starts no process: "
                "leave one of them out"
            )
        context = to_context(start_method)
        self._is_synchronous = self.batch_size == self.num_envs
        most = 2**31 - 1 - self.num_envs
        self.env_id_offset = whole_number("env_id_offset", env_id_offset, 0, most)
        self.autoreset_mode = to_autoreset_mode(autoreset_mode)
        reports_errors = one_of("on_env_error", on_env_error, ("raise", "reset")) == 1
        self.seed = seed = None if seed is None else whole_number("seed", seed, 0, 2**63 - 1)
        if num_processes is None:
            with _named_if_no_room(1):
                num_processes = default_processes(env_fns[0], context, self.num_envs, usable_cpus())
        self.num_processes, self.num_threads = num_processes, max(1, num_processes)
        self._host = self._start(context, seed)
        try:
            self._take_spaces(observation_mode)
            with _named_if_no_room(num_processes):
                self._host.share(self.single_observation_space, self.single_action_space)
        except BaseException:
            self._host.close()
            raise
        if episode_statistics is None:
            episode_statistics = not self._is_synchronous
        self._make_parts(
            seed,
            copies=copy,
            has_statistics=bool(episode_statistics),
            reports_errors=reports_errors,
        )
        if has_agents:
            self._take_agents(reports_errors=reports_errors)

    # -- construction --------------------------------------------------------------

    def _start(self, context: BaseContext, seed: int | None) -> Host:
        options = HostOptions(
            num_processes=self.num_processes,
            context=context,
            autoreset_mode=self.autoreset_mode,
            reports_each=not self._is_synchronous,
            env_id_offset=self.env_id_offset,
            seed=seed,
        )
        make_host = ProcessHost if self.num_processes else LocalHost
        with _named_if_no_room(self.num_processes):
            return make_host(self._env_fns, options)

    def _take_spaces(self, mode: str | SpacePair) -> None:
        """Sets the attributes that come from the processes' reports on their environments."""
        hellos = self._host.hellos
        self.metadata = {**hellos[0].metadata, "autoreset_mode": self.autoreset_mode}
        self.render_mode = hellos[0].render_mode
        self.observation_space, self.single_observation_space = observation_spaces(
            hellos, mode, self.batch_size
        )
        self.single_action_space = common_action_space(hellos)
        self.action_space = batch_space(self.single_action_space, self.batch_size)
        self.env_spec = EnvSpec(
            "env_fns[0]",
            self.single_observation_space,
            self.single_action_space,
            max_episode_steps=None,
            reward_threshold=None,
            cpu_only=True,
        )

    def _make_parts(
        self, seed: int | None, *, copies: bool, has_statistics: bool, reports_errors: bool
    ) -> None:
        host, same_step = self._host, self.autoreset_mode is AutoresetMode.SAME_STEP
        episodes = HostedEpisodes(self.num_envs, self.autoreset_mode)
        self._flight = flight = InFlight(
            episodes,
            self.num_envs,
            env_id_offset=self.env_id_offset,
            is_synchronous=self._is_synchronous,
        )
        reader = BatchReader(
            host,
            self.single_observation_space,
            episodes,
            env_id_offset=self.env_id_offset,
            copies=copies,
        )
        self._counts = Counts(host)
        self._sender = ActionSender(
            host, episodes, flight, is_synchronous=self._is_synchronous, same_step=same_step
        )
        self._receiver = BatchReceiver(
            host,
            flight,
            reader,
            self._counts,
            batch_size=self.batch_size,
            same_step=same_step,
            raises_errors=not reports_errors,
        )
        self._resets = Resets(
            host,
            episodes,
            flight,
            reader,
            self._receiver,
            batch_size=self.batch_size,
            env_id_offset=self.env_id_offset,
            same_step=same_step,
            seed=seed,
        )
        self._infos = BatchInfos(
            reader,
            same_step=same_step,
            has_statistics=has_statistics,
            reports_errors=reports_errors,
        )
        self.async_calls = AsyncCalls(
            host, flight, self._sender, self._receiver, self._resets, self._infos
        )
        self.statistics = NoStatistics(self.name)
        self._agents: AgentColumns | None = None
        self.can = frozenset(
            {"async", "python", "render", *(["out"] if self._is_synchronous else [])}
        )

    def _take_agents(self, *, reports_errors: bool) -> None:
        """Asks the environments for their agents; from now on batches are shown by group."""
        try:
            self._agents = AgentColumns(self.call("groups"), reports_errors=reports_errors)
        except BaseException:
            self._host.close()
            raise
        self.groups = self._agents.groups
        self.env_spec = replace(self.env_spec, groups=self.groups)
        self.can = frozenset({"async", "python", "render", "joins", "agent_rows"})

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the arguments, not the state: unpickling makes fresh environments."""
        import cloudpickle  # type: ignore[import-untyped]

        return _remake, (cloudpickle.dumps(self._env_fns), self._arguments)

    def __del__(self) -> None:
        """Closes an engine that is no longer referenced."""
        if hasattr(self, "async_calls"):
            self.close()

    def close(self, **kwargs: Any) -> None:
        """Closes environments and ends processes; wakes threads that wait in `recv`.

        Args:
          kwargs: timeout: seconds that environments may take, after which their process is
            killed. terminate: True for a timeout of 0.
        """
        if self._flight.pending is not None and not self._host.is_closed:
            warn_user(
                "Calling `close` while waiting for a pending call to "
                f"`{self._flight.pending}` to complete.",
                UserWarning,
            )
        timeout = 0.0 if kwargs.get("terminate") else kwargs.get("timeout")
        if timeout is None:
            self._host.close()
        else:
            self._host.close(timeout)

    def describe(self) -> str:
        """Sizes and processes."""
        return (
            f"{self.name}, num_envs={self.num_envs}, batch_size={self.batch_size}, "
            f"num_processes={self.num_processes}, autoreset_mode={self.autoreset_mode.name}"
        )

    # -- stepping ------------------------------------------------------------------

    def reset(
        self, seed: int | Sequence[int | None] | None, options: dict[str, Any] | None
    ) -> Arrays:
        """Starts episodes as `VectorEnv.reset`; environments get the options except reset_mask."""
        return self._arrays(self._resets.end(self._resets.begin(seed, options), None))

    def async_reset(self) -> None:
        """Starts a new episode everywhere without waiting."""
        self._resets.begin_all()

    def send(self, actions: Any, env_id: npt.ArrayLike | None, out: dict[str, Any] | None) -> None:
        """Starts stepping environments; `actions` are nested as the batched action space."""
        if self._agents is not None:
            if out is not None:
                refuse(self, "out")
            actions = self._agents.actions(actions)
        self._sender.send(actions, env_id, out)

    def recv(self, timeout_s: float | None, min_envs: int | None, max_envs: int | None) -> Arrays:
        """Waits for the next batch."""
        return self._arrays(self._receiver.next_batch(timeout_s, min_envs, max_envs))

    def step(
        self, actions: Any, env_id: npt.ArrayLike | None, out: dict[str, Any] | None
    ) -> Arrays:
        """Sends and receives."""
        self.send(actions, env_id, out)
        return self._arrays(self._receiver.next_batch(None))

    def drain(self, timeout_s: float | None) -> Arrays:
        """Waits for everything in flight."""
        return self._arrays(self._receiver.next_batch(timeout_s, drains=True))

    def _arrays(self, batch: Batch) -> Arrays:
        return batch if self._agents is None else self._agents.split(batch)

    def info(self, arrays: Arrays) -> Info:
        """The environments' infos, merged as Gymnasium does; see `from_env_fns`."""
        batch: Any = arrays
        return self._infos.of_step(batch)

    def columns(self, arrays: Arrays) -> Info:
        """Arrays that the environments reported, without nested dicts."""
        batch: Any = arrays
        if self._agents is not None:
            batch = Batch._make(arrays[: len(Batch._fields)])
        return self._infos.columns(batch)

    @property
    def num_calls(self) -> int:
        """The number of steps, resets and receives so far, for collectors."""
        return self._flight.num_calls

    # -- calls by name -------------------------------------------------------------

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Calls a method of every environment, or reads an attribute; returns N results.

        Raises:
          ProtocolError: Environments are in flight. EnvError: one of them raised something.
          EnvAttributeError: One of them has no such attribute; also an AttributeError.
        """
        self._check_rest(f"call({name!r})")
        messages = [(name, args, kwargs)] * len(self._host.hellos)
        return self._host.call(Kind.CALL, messages, f"call({name!r})")

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """Reads an attribute of every environment or of its wrappers; returns N values."""
        return self.call(name)

    @property
    def np_random(self) -> tuple[Any, ...]:
        """Copies of the environments' generators."""
        return self.call("np_random")

    @property
    def np_random_seed(self) -> tuple[Any, ...]:
        """The seed of every environment's generator."""
        return self.call("np_random_seed")

    def set_attr(self, name: str, values: Any) -> None:
        """Sets an attribute of every environment or of its wrappers.

        Args:
          name: The attribute.
          values: A list or tuple of N values, or one for all.
        """
        self._check_rest(f"set_attr({name!r})")
        if not isinstance(values, (list, tuple)):
            values = [values] * self.num_envs
        if len(values) != self.num_envs:
            raise SpecError(
                f"set_attr({name!r}) got {len(values)} values, expected one for each of the "
                f"{self.num_envs} environments or a single one that is no list or tuple"
            )
        messages = [(name, part) for part in self._host.split(values)]
        self._host.call(Kind.SET_ATTR, messages, f"set_attr({name!r})")

    def render(self, env_ids: npt.ArrayLike | None, camera: int | str | None) -> tuple[Any, ...]:
        """Frames that the environments draw."""
        if camera is not None:
            raise SpecError(
                f"camera is {camera!r}, and environments in Python draw themselves: choose it "
                "where the functions make them"
            )
        if env_ids is None:
            return self.call("render")
        rows = rows_of(np.atleast_1d(env_ids), self.env_id_offset, self.num_envs)
        frames = self.call("render")
        return tuple(frames[row] for row in rows)

    def _check_rest(self, what: str) -> None:
        self._host.check_open()
        self._flight.check_rest(what)

    # -- measurements --------------------------------------------------------------

    def synchronize(self) -> None:
        """Does nothing: a batch of `recv` is complete when it is returned."""

    @property
    def num_in_flight(self) -> int:
        """Environments sent and not yet received."""
        return self._flight.count

    @property
    def buffer_bytes(self) -> int:
        """Bytes of the memory shared with the processes."""
        return self._host.num_bytes

    def stats(self) -> PoolStats:
        """As `VectorEnv.stats`."""
        return self._counts.stats(self._flight.count)

    def reset_stats(self) -> None:
        """As `VectorEnv.reset_stats`."""
        self._counts.reset()

    def env_specs(self) -> tuple[EnvSpec, ...]:
        """The first environment's spec for all of them: their spaces are the same."""
        return (self.env_spec,) * self.num_envs

    def mujoco_engines(self) -> list[tuple[str, str]]:
        """Returns ("", "") for each: the engines of environments in Python are not known."""
        return [("", "")] * self.num_envs

    # -- what environments in Python cannot do --------------------------------------

    @property
    def recipe(self) -> NoReturn:
        """Raises SpecError: environments are made by functions, which have no ids."""
        refuse(self, "recipe")

    collect = lacking("collect")
    rollout = lacking("rollout")
    save = load = lacking("states")
    env_options = lacking("options")
    model_fields = model_field = lacking("model")
    action_masks = lacking("masks")
    xla_handle = lacking("xla")


def _named_if_no_room(num_processes: int) -> AbstractContextManager[None]:
    what = f"num_processes={num_processes} for environments"
    return named_if_no_room(what, "ask for less num_processes (0: this process)")


def _remake(env_fns: bytes, arguments: dict[str, Any]) -> HostedEngine:
    return HostedEngine(pickle.loads(env_fns), **arguments)
