# SPDX-License-Identifier: Apache-2.0
"""`PoolFace`: the common base of both faces of an engine."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, overload

import numpy.typing as npt

from rollouts.batch import A
from rollouts.envs.engine import Engine
from rollouts.envs.of_engine import OfEngine
from rollouts.envs.stats import DeviceStats, PoolStats
from rollouts.errors import SpecError
from rollouts.specs import EnvSpec, OptionValue

if TYPE_CHECKING:
    import torch

Array = npt.NDArray[Any]
P = TypeVar("P", bound="PoolFace[Any]")


def check_is_engine(face: str, given: object) -> None:
    """Refuses an argument that is not an engine, such as an id.

    Raises:
      SpecError: It is an id, several ids, an environment or something else.
    """
    if hasattr(given, "can") and hasattr(given, "groups"):
        return
    makes = "rollouts.make_vec(id, ...) makes both"
    if isinstance(given, (str, list, tuple)):
        makes = f"rollouts.make_vec({given!r}, ...) makes both"
    elif isinstance(given, PoolFace):
        makes = f"it has one, {given.engine.name}, and is a {type(given).__name__} already"
    raise SpecError(f"{face} takes an engine, got {given!r}: {makes}")


def check_on_host(env: object, hint: str = "") -> None:
    """Refuses environments whose arrays are on a device; `hint` names an alternative.

    Raises:
      SpecError: The arrays are on a device. Only environments of this library are checked.
    """
    if isinstance(env, PoolFace) and env.device is not None:
        raise SpecError(
            f"env is {env!r}, whose tensors stay on its device, expected one whose arrays are "
            f"NumPy's: {hint}leave device out of make_vec"
        )


def on_host(env: P) -> P:
    """Returns a newly made pool, but closes and refuses it if its arrays are on a device.

    Raises:
      SpecError: As `check_on_host`.
    """
    try:
        check_on_host(env)
    except SpecError:
        env.close()
        raise
    return env


class PoolFace(Generic[A]):
    """Base of VectorEnv and MultiAgentVectorEnv: members that do not depend on agents."""

    metadata: dict[str, Any]
    # members that only the engine of environments in Python has
    call = OfEngine("python", "call")
    get_attr = OfEngine("python", "get_attr")
    set_attr = OfEngine("python", "set_attr")
    num_processes = OfEngine("python", "num_processes")
    closed: bool = True  # until there is something to close
    device: Any  # torch.device of all tensors; None: arrays are NumPy's

    def __init__(self, engine: Engine) -> None:
        """Takes over an engine; `close` closes it."""
        self.engine = engine
        self.num_envs, self.batch_size = engine.num_envs, engine.batch_size
        self.num_threads = engine.num_threads
        self.env_id_offset = engine.env_id_offset
        self.env_spec = engine.env_spec
        self.autoreset_mode = engine.autoreset_mode
        self.render_mode = engine.render_mode
        self.device = engine.device
        # names of the environments' own infos, such as "lives" or "action_mask"
        self.info_names = engine.info_names
        self.metadata = {
            **getattr(self, "metadata", {}),
            "autoreset_mode": self.autoreset_mode,
            **engine.metadata,
        }
        self.closed = False

    def async_reset(self) -> None:
        """Starts a new episode everywhere without waiting; `recv` returns the first obs.

        Raises:
          ClosedError: The environment was closed.
        """
        self.engine.async_reset()

    def get_state(self, env_id: npt.ArrayLike | None = None) -> list[bytes]:
        """Saves whole environments: what they do next depends only on state and actions.

        A state has the environment itself, its random stream (seed, stream, episode and
        position in it), elapsed steps, episode return, and whether its episode has ended.
        Time limit and autoreset mode belong to this VectorEnv; a state does not have them.

        Args:
          env_id: (n,) int, global ids. None: all environments, in order.

        Returns:
          n states of type bytes, for `set_state` of this or any other VectorEnv of the
          same environment and options, in any process. The format has a version; other
          releases of rollouts may refuse it, and an engine's state may need the same
          release of the engine. With frameskip 1 or 2, the first frame after a restore
          of ALE/YarsRevenge-v5 may differ in a few pixels (native/.../atari.h).

        Raises:
          ProtocolError: An environment is in flight or was never reset.
          SpecError, DTypeError: Not ids of this VectorEnv. ClosedError: it was closed.
        """
        return self.engine.save(env_id)

    def set_state(
        self, env_id: npt.ArrayLike | None, state: Sequence[bytes | bytearray | memoryview]
    ) -> None:
        """Puts saved states into environments; the next `step` goes on from there.

        An environment keeps its own env_id and takes everything else over. It also goes on
        in the random stream that the state was saved in, and so do its later episodes:
        copies of one state do the same for the same actions until `reset(seed=...)` gives
        each its own stream again. An environment whose state was set needs no reset.
        Observations handed out before stay as they are. The next step observes the state, and so
        does `reset(options={"reset_mask": ...})`, which also returns observations of environments
        that the mask does not mark.

        Args:
          env_id: (n,) int, global ids, none twice. None: all environments, in order.
          state: n states of `get_state`, one per id; the same state may occur many times.

        Raises:
          SpecError: A state is of another environment or other options, truncated,
            damaged, or of another format version; number of states is not n; bad ids.
            The checksum finds damage, not malice: load states that you trust.
          ProtocolError: An environment is in flight or listed twice.
          DTypeError: A state is not bytes-like. ClosedError: the VectorEnv was closed.
          When an error is raised, no environment has changed.
        """
        self.engine.load(env_id, state)

    @property
    def num_calls(self) -> int:
        """The number of steps, resets, receives and set states so far, for collectors."""
        return self.engine.num_calls

    @property
    def why_not_collects(self) -> str:
        """The reason why the engine computes no policy; "" where it does."""
        return self.engine.why_not_collects

    @property
    def num_in_flight(self) -> int:
        """Environments sent and not yet received."""
        return self.engine.num_in_flight

    @property
    def buffer_bytes(self) -> int:
        """Bytes of all batch buffers the pool owns."""
        return self.engine.buffer_bytes

    def synchronize(self) -> None:
        """Waits for everything that was launched on a device; does nothing without one.

        Raises:
          EnvError: Something went wrong on the device since the last time; it names the env_id.
          ClosedError: The environment was closed.
        """
        self.engine.synchronize()

    @overload
    def stats(self: PoolFace[Array]) -> PoolStats: ...
    @overload
    def stats(self: PoolFace[torch.Tensor]) -> DeviceStats: ...
    def stats(self) -> PoolStats | DeviceStats:
        """Counts and times since construction or `reset_stats`: steps, waits, stragglers.

        A call costs little compared with a step of many environments. It may come from any thread
        at any time, also after `close`. Other threads go on stepping meanwhile, so numbers taken
        while environments are in flight may be a step apart. With a device the counts are tensors
        on it, and the call does not wait for it.
        """
        stats: PoolStats | DeviceStats = self.engine.stats()
        return stats

    def reset_stats(self) -> None:
        """Begins the counts and times of `stats` anew; any thread may call this at any time."""
        self.engine.reset_stats()

    @property
    def env_specs(self) -> tuple[EnvSpec, ...]:
        """Specs of the environments' ids, in env order: N entries."""
        return self.engine.env_specs()

    @property
    def env_options(self) -> dict[str, OptionValue | Array | None]:
        """Options in force, by name: one value where all environments share it, else an array (N,).

        In a mixed pool, None stands for environments that have no such option. An
        environment's options are `{name: np.broadcast_to(value, N)[i]}`.

        Raises:
          ClosedError: The environment was closed.
        """
        return self.engine.env_options()

    @property
    def mujoco_engine(self) -> str | tuple[str, ...] | None:
        """The engine of MuJoCo environments: "lanes" or "mujoco", or N of these where they differ.

        None where no environment is on MuJoCo. The option `engine` selects one of the two.
        `why_not_lanes` gives the reason for "mujoco".

        Raises:
          ClosedError: The environment was closed.
        """
        names = tuple(name for name, _ in self.engine.mujoco_engines())
        return (names[0] or None) if len(set(names)) == 1 else names

    @property
    def why_not_lanes(self) -> str:
        """Reasons why lanes do not step all of the environments; "" where they do.

        Raises:
          ClosedError: The environment was closed.
        """
        reasons = dict.fromkeys(reason for _, reason in self.engine.mujoco_engines() if reason)
        return "; ".join(reasons)

    def close(self, **kwargs: Any) -> None:
        """Closes the engine; wakes threads that wait in `recv`. May be called twice.

        Args:
          kwargs: Only for environments in Python. timeout: seconds that they may take before their
            process is killed. terminate: True for a timeout of 0.
        """
        if not self.closed:
            self.closed = True
            self.engine.close(**kwargs)

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
        """Pickles what makes the engine again, not its state: see `NativeEngine`."""
        make, arguments = self.engine.__reduce__()
        return _remake, (type(self), make, arguments)

    def __repr__(self) -> str:
        return f"rollouts.{type(self).__name__}({self.engine.describe()})"


def _remake(face: Any, make_engine: Any, arguments: tuple[Any, ...]) -> PoolFace:
    made: PoolFace = face(make_engine(*arguments))
    return made
