# SPDX-License-Identifier: Apache-2.0
"""`EnvFnsVectorEnv`: the Gymnasium face of environments that run in processes."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Self

import numpy.typing as npt
from gymnasium.vector import AutoresetMode
from gymnasium.vector import VectorEnv as GymnasiumVectorEnv
from gymnasium.vector.utils import batch_space

from rollouts.checks import one_of, to_autoreset_mode, whole_number
from rollouts.env_fns.batch_spaces import (
    SpacePair,
    check_observation_mode,
    checked_functions,
    common_action_space,
    observation_spaces,
)
from rollouts.env_fns.batches import BatchReader, Episodes
from rollouts.env_fns.processes.lifecycle import HostOptions, to_context
from rollouts.env_fns.processes.local_host import LocalHost
from rollouts.env_fns.processes.process_host import ProcessHost
from rollouts.env_fns.processes.records import EnvFn
from rollouts.env_fns.processes.timing import WaitTimer
from rollouts.env_fns.processes.trial import default_processes
from rollouts.env_fns.processes.wire import Kind
from rollouts.env_fns.resets import EnvFnsResets
from rollouts.errors import SpecError
from rollouts.machine.cpu_count import usable_cpus
from rollouts.support.no_room import named_if_no_room

Array = npt.NDArray[Any]
Info = dict[str, Any]


class EnvFnsVectorEnv(EnvFnsResets, GymnasiumVectorEnv[Any, Any, Array]):
    """N Python environments, stepped as a batch in processes; see `rollouts.from_env_fns`.

    Implements `gymnasium.vector.VectorEnv`, and has the `send`, `recv` and `async_reset` of
    `rollouts.VectorEnv` with the same meaning. `call`, `get_attr`, `set_attr` and the pairs
    `reset_async`, `reset_wait` and `step_async`, `step_wait` are those of Gymnasium's
    AsyncVectorEnv.

    Attributes:
      num_envs: Environments N.
      batch_size: Rows B of a batch; N in synchronous mode.
      num_processes: Processes that step; 0: this one does.
      env_id_offset: Global id of row 0's environment.
      autoreset_mode: As in `metadata["autoreset_mode"]`.
    """

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
    ) -> None:
        """Checks the arguments and makes the environments; see `from_env_fns`."""
        self.closed = True  # until there is something to close
        env_fns = checked_functions(env_fns)
        # what makes this environment again, in another process
        self._env_fns = env_fns
        self._recipe = {
            "num_processes": num_processes,
            "batch_size": batch_size,
            "seed": seed,
            "autoreset_mode": autoreset_mode,
            "env_id_offset": env_id_offset,
            "on_env_error": on_env_error,
            "start_method": start_method,
            "observation_mode": observation_mode,
            "episode_statistics": episode_statistics,
            "copy": copy,
        }
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
        self._synchronous = self.batch_size == self.num_envs
        self.env_id_offset = whole_number(
            "env_id_offset", env_id_offset, 0, 2**31 - 1 - self.num_envs
        )
        self.autoreset_mode = to_autoreset_mode(autoreset_mode)
        self._same_step = self.autoreset_mode is AutoresetMode.SAME_STEP
        self._reports_errors = one_of("on_env_error", on_env_error, ("raise", "reset")) == 1
        self._has_statistics = (
            not self._synchronous if episode_statistics is None else bool(episode_statistics)
        )
        self._seed = None if seed is None else whole_number("seed", seed, 0, 2**63 - 1)
        self._is_first_reset = True
        if num_processes is None:
            with _named_if_no_room(1):
                num_processes = default_processes(env_fns[0], context, self.num_envs, usable_cpus())
        self.num_processes = num_processes
        make_host = ProcessHost if num_processes else LocalHost
        options = HostOptions(
            num_processes=self.num_processes,
            context=context,
            autoreset_mode=self.autoreset_mode,
            reports_each=not self._synchronous,
            env_id_offset=self.env_id_offset,
            seed=self._seed,
        )
        with _named_if_no_room(num_processes):
            self._host = make_host(env_fns, options)
        try:
            self._take_spaces(observation_mode)
            with _named_if_no_room(num_processes):
                self._host.share(self.single_observation_space, self.single_action_space)
        except BaseException:
            self._host.close()
            raise
        self._episodes = Episodes(self.num_envs, self.autoreset_mode)
        self._reader = BatchReader(
            self._host,
            self.single_observation_space,
            self._episodes,
            env_id_offset=self.env_id_offset,
            copies=copy,
        )
        self._waits = WaitTimer()
        self._begin_counts()
        self.closed = False

    def _take_spaces(self, mode: str | SpacePair) -> None:
        """Sets spaces, metadata and render_mode by what the processes told."""
        hellos = self._host.hellos
        self.metadata = {**hellos[0].metadata, "autoreset_mode": self.autoreset_mode}
        self.render_mode = hellos[0].render_mode
        self.observation_space, self.single_observation_space = observation_spaces(
            hellos, mode, self.batch_size
        )
        self.single_action_space = common_action_space(hellos)
        self.action_space = batch_space(self.single_action_space, self.batch_size)

    # -- Gymnasium -----------------------------------------------------------------

    def step(
        self,
        actions: Any,
        env_id: npt.ArrayLike | None = None,
        *,
        out: dict[str, Array] | None = None,
    ) -> tuple[Any, Array, Array, Array, Info]:
        """Steps the environments and waits for a batch: `send` and `recv` in one call.

        Args:
          actions: Batch of actions, one per environment stepped.
          env_id: As for `send`.
          out: As for `send`.

        Returns:
          obs nested as the batched space, reward (B,) float64, terminated (B,) bool, truncated
          (B,) bool, info. Rows are in env order in synchronous mode, in the order of
          `info["env_id"]` otherwise. info has what the environments reported, merged as
          Gymnasium does; with episode_statistics also env_id (B,) int32, episode_return (B,)
          float64 and episode_length (B,) int32; in same-step mode final_obs and final_info where
          an episode ended; with on_env_error="reset" env_error (B,) object and _env_error.

        Raises:
          SpecError, DTypeError: Not one action per environment, or a wrong shape or dtype.
          ProtocolError: Never reset, already in flight, or ended with autoreset disabled.
          EnvError: An environment failed; the batch comes with the next recv.
          ClosedError: The VectorEnv was closed.
        """
        self.send(actions, env_id, out=out)
        return self.recv()

    def render(self) -> tuple[Any, ...]:
        """Renders every environment; returns N frames."""
        return self.call("render")

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Calls a method of every environment, or reads an attribute; returns N results.

        Raises:
          ProtocolError: Environments are in flight. EnvError: one of them raised something.
          EnvAttributeError: One of them has nothing of that name; an AttributeError too.
        """
        self._check_rest(f"call({name!r})")
        messages = [(name, args, kwargs)] * len(self._host.hellos)
        return self._host.call(Kind.CALL, messages, f"call({name!r})")

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """Reads an attribute of every environment or of its wrappers; returns N values."""
        return self.call(name)

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

    @property
    def np_random_seed(self) -> tuple[Any, ...]:  # type: ignore[override]
        """The seed of every environment's generator."""
        return self.get_attr("np_random_seed")

    @property  # type: ignore[misc]
    def np_random(self) -> tuple[Any, ...]:  # type: ignore[override]
        """Copies of the environments' generators."""
        return self.get_attr("np_random")

    def close_extras(self, **kwargs: Any) -> None:
        """Closes the environments and ends the processes.

        Args:
          kwargs: timeout: seconds that environments may take, after which their process is
            killed. terminate: True for a timeout of 0.
        """
        if self._pending is not None:
            warnings.warn(
                f"Calling `close` while waiting for a pending call to `{self._pending}` to "
                "complete.",
                UserWarning,
                stacklevel=3,
            )
        timeout = 0.0 if kwargs.get("terminate") else kwargs.get("timeout")
        if timeout is None:
            self._host.close()
        else:
            self._host.close(timeout)

    def close(self, **kwargs: Any) -> None:
        """Closes environments and processes; wakes who waits in `recv`. May be called twice."""
        if not self.closed:
            self.closed = True
            self.close_extras(**kwargs)

    def __del__(self) -> None:
        """Closes what nobody holds any more; Gymnasium's class did so until 1.3."""
        if not getattr(self, "closed", True):
            self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the arguments, not the state: unpickling makes fresh environments."""
        import cloudpickle  # type: ignore[import-untyped]

        return _remake, (cloudpickle.dumps(self._env_fns), self._recipe)

    def __repr__(self) -> str:
        return (
            f"rollouts.from_env_fns(num_envs={self.num_envs}, batch_size={self.batch_size}, "
            f"num_processes={self.num_processes}, autoreset_mode={self.autoreset_mode.name})"
        )


def _named_if_no_room(num_processes: int) -> AbstractContextManager[None]:
    what = f"num_processes={num_processes} for environments"
    return named_if_no_room(what, "ask for less num_processes (0: this process)")


def _remake(env_fns: bytes, recipe: dict[str, Any]) -> EnvFnsVectorEnv:
    return EnvFnsVectorEnv(pickle.loads(env_fns), **recipe)
