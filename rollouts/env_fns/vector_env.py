# SPDX-License-Identifier: Apache-2.0
"""`EnvFnsVectorEnv`: the Gymnasium face of environments that run in processes."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode
from gymnasium.vector import VectorEnv as GymnasiumVectorEnv
from gymnasium.vector.utils import batch_space

from rollouts.arguments import int_between, one_of, to_autoreset_mode
from rollouts.cpu_count import usable_cpus
from rollouts.env_fns.batch_spaces import (
    SpacePair,
    check_observation_mode,
    checked_functions,
    common_action_space,
    observation_spaces,
)
from rollouts.env_fns.batches import Batch, BatchReader, Episodes
from rollouts.env_fns.processes.host import Host
from rollouts.env_fns.processes.lifecycle import HostOptions
from rollouts.env_fns.processes.records import EnvFn
from rollouts.env_fns.processes.timing import WaitTimer
from rollouts.env_fns.processes.wire import Kind
from rollouts.env_fns.send_recv import EnvFnsSendRecv
from rollouts.errors import DTypeError, ProtocolError, SpecError

Array = npt.NDArray[Any]
Info = dict[str, Any]


class EnvFnsVectorEnv(EnvFnsSendRecv, GymnasiumVectorEnv[Any, Any, Array]):
    """N Python environments in processes, stepped as a batch; see `rollouts.from_env_fns`.

    Implements `gymnasium.vector.VectorEnv`, and has the `send`, `recv` and `async_reset` of
    `rollouts.VectorEnv` with the same meaning. `call`, `get_attr` and `set_attr` are those of
    Gymnasium's vector environments.

    Attributes:
      num_envs: Environments N.
      batch_size: Rows B of a batch; N in synchronous mode.
      num_processes: Processes that step.
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
        """Checks the arguments and starts the processes; see `from_env_fns`."""
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
        self.batch_size = int_between("batch_size", rows, 1, self.num_envs)
        processes = min(usable_cpus(), self.num_envs) if num_processes is None else num_processes
        self.num_processes = int_between("num_processes", processes, 1, self.num_envs)
        self._synchronous = self.batch_size == self.num_envs
        self.env_id_offset = int_between(
            "env_id_offset", env_id_offset, 0, 2**31 - 1 - self.num_envs
        )
        self.autoreset_mode = to_autoreset_mode(autoreset_mode)
        self._same_step = self.autoreset_mode is AutoresetMode.SAME_STEP
        self._reports_errors = one_of("on_env_error", on_env_error, ("raise", "reset")) == 1
        self._has_statistics = (
            not self._synchronous if episode_statistics is None else bool(episode_statistics)
        )
        self._seed = None if seed is None else int_between("seed", seed, 0, 2**63 - 1)
        self._is_first_reset = True

        self._host = Host(
            env_fns,
            HostOptions(
                num_processes=self.num_processes,
                start_method=start_method,
                autoreset_mode=self.autoreset_mode,
                reports_each=not self._synchronous,
                env_id_offset=self.env_id_offset,
                seed=self._seed,
            ),
        )
        try:
            self._take_spaces(observation_mode)
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

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Any, Info]:
        """Starts new episodes and returns their first observations.

        Batches in flight are waited for and discarded. In asynchronous mode the result is the
        first batch of B environments; recv returns the others.

        Args:
          seed: int: environment i is reset with seed + env_id. Sequence of N ints or None: one
            per environment. None: the first reset of all uses the seed that this VectorEnv was
            made with, if any; later ones none.
          options: {"reset_mask": (N,) bool} resets the marked environments alone and returns all
            N observations (synchronous mode only). Everything else is passed on to `reset` of
            each environment.

        Returns:
          obs, nested as the batched observation space, and info of the environments reset.

        Raises:
          SpecError, DTypeError: Bad mask or seed; nothing has changed then.
          ProtocolError: A mask while environments are in flight, or one that leaves out
            environments that were never reset.
          EnvError: An environment failed. ClosedError: the VectorEnv was closed.
        """
        given = dict(options or {})  # wrappers above read the mask from theirs later
        mask = given.pop("reset_mask", None)
        rows = np.arange(self.num_envs) if mask is None else self._masked_rows(mask)
        seeds = self._seeds(seed)
        if mask is None:
            self._discard()
        self._host.reset(rows, [seeds[row] for row in rows.tolist()], given or None)
        self._sent(rows if mask is not None or not self._synchronous else None, is_reset=True)
        batch = self._next_batch(None, None, None)
        if mask is None:
            return batch.obs, self._info(batch)
        return self._reader.observations(slice(None)), self._info(self._widened(batch, rows))

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
        """
        self._check_rest(f"call({name!r})")
        messages = [(name, args, kwargs)] * self.num_processes
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

    # -- helpers -------------------------------------------------------------------

    def _masked_rows(self, mask: Any) -> Array:
        what = "`options['reset_mask']`"
        if not isinstance(mask, np.ndarray):
            raise DTypeError(f"{what} must be a numpy array, got {type(mask)}")
        if mask.shape != (self.num_envs,):
            raise SpecError(f"{what} must have shape `({self.num_envs},)`, got {mask.shape}")
        if mask.dtype != np.bool_:
            raise DTypeError(f"{what} must have `dtype=np.bool_`, got {mask.dtype}")
        if not mask.any():
            raise SpecError(
                f"{what} must contain a boolean array with at least one True value, "
                f"got reset_mask={mask}"
            )
        if not self._synchronous:
            raise SpecError(
                f"{what} needs a synchronous environment (batch_size == num_envs), this one has "
                f"batch_size {self.batch_size} and num_envs {self.num_envs}"
            )
        self._check_rest("a reset of some environments")
        missing = np.flatnonzero(~mask & ~self._episodes.has_begun)
        if missing.size:
            raise ProtocolError(
                f"{what} leaves out env_id {missing[0] + self.env_id_offset}, which was never reset"
            )
        return np.flatnonzero(mask)

    def _widened(self, batch: Batch, rows: Array) -> Batch:
        """A batch of all N environments, of which only `rows` have something to tell."""
        nothing = np.zeros(self.num_envs, np.bool_)
        truncated = nothing.copy()
        truncated[rows] = batch.truncated
        everything = np.arange(self.num_envs)
        return replace(
            batch,
            terminated=nothing,
            truncated=truncated,
            env_id=(everything + self.env_id_offset).astype(np.int32),
            episode_return=self._episodes.returns.copy(),
            episode_length=self._episodes.lengths.copy(),
            final_obs=self._reader.final_observations() if self._same_step else None,
            records=[(int(rows[place]), record) for place, record in batch.records],
        )

    def _seeds(self, seed: int | Sequence[int | None] | None) -> list[int | None]:
        first, self._is_first_reset = self._is_first_reset, False
        if seed is None and first:
            seed = self._seed
        if seed is None:
            return [None] * self.num_envs
        if isinstance(seed, (int, np.integer)):
            return [int(seed) + self.env_id_offset + row for row in range(self.num_envs)]
        if len(seed) != self.num_envs:
            raise SpecError(
                f"seed has {len(seed)} entries, expected an int or one entry for each of the "
                f"{self.num_envs} environments"
            )
        return [None if one is None else int(one) for one in seed]

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


def _remake(env_fns: bytes, recipe: dict[str, Any]) -> EnvFnsVectorEnv:
    return EnvFnsVectorEnv(pickle.loads(env_fns), **recipe)
