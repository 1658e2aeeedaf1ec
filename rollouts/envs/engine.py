# SPDX-License-Identifier: Apache-2.0
"""`Engine`: the interface of engines, which step environments, and stand-ins for what one lacks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from rollouts.errors import SpecError
from rollouts.features import cannot
from rollouts.specs import AgentGroup, EnvSpec

if TYPE_CHECKING:
    from rollouts.envs.observation_parts import ObservationParts
    from rollouts.envs.statistics import NormalizerStatistics

Array = npt.NDArray[Any]
Info = dict[str, Any]
# A batch has STEP_ARRAYS in order, then arrays that only the engine reads, then arrays of groups.
# Where agents can join, a (B, A) bool array for each group, which marks them, comes before those.
Arrays = tuple[Any, ...]

# The order is that of the native enum; kernels use the same numbers.
AUTORESET = (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED)


class Engine(Protocol):
    """N environments and the code that steps them.

    A face, such as `VectorEnv`, holds an engine and is the object that users call.

    Attributes:
      name: The name of this kind of engine in messages.
      kind: A key of `rollouts.features.PLACES`.
      can: Names of `rollouts.features.FEATURES`; for all others `refuse` raises SpecError.
      env_spec: The EnvSpec of the first environment's id.
      device: The `torch.device` of the arrays; None: they are NumPy's.
      groups: Groups of agents; empty where environments have one agent.
      info_names: Names of what the environments report, such as "lives" or "action_mask".
      has_columns: Whether the dict of `columns` can have entries.
      parts: How observations are split into a dict; None: they are not.
      single_observation_space, single_action_space, observation_space, action_space: Spaces of
        one environment and of a batch, where environments have one agent.
    """

    name: str
    kind: str
    can: frozenset[str]
    groups: tuple[AgentGroup, ...]
    device: Any
    env_spec: EnvSpec
    num_envs: int
    batch_size: int
    num_threads: int
    env_id_offset: int
    autoreset_mode: AutoresetMode
    render_mode: str | None
    metadata: dict[str, Any]
    info_names: tuple[str, ...]
    has_columns: bool
    parts: ObservationParts | None
    single_observation_space: spaces.Space[Any]
    single_action_space: spaces.Space[Any]
    observation_space: spaces.Space[Any]
    action_space: spaces.Space[Any]

    @property
    def recipe(self) -> tuple[str | list[str], int, dict[str, Any]]:
        """Ids, N and the other arguments, from which any process can make this engine again."""

    @property
    def num_calls(self) -> int:
        """The number of steps, resets, receives and set states so far, compiled functions' too."""

    @property
    def statistics(self) -> NormalizerStatistics | NoStatistics:
        """Running statistics of observations and rewards."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles what makes the engine again, not its state."""

    # -- what every engine does ----------------------------------------------------

    def reset(
        self, seed: int | Sequence[int | None] | None, options: dict[str, Any] | None
    ) -> Arrays:
        """Starts episodes and waits for their first observations."""

    def async_reset(self) -> None:
        """Starts new episodes everywhere without waiting."""

    def send(self, actions: Any, env_id: npt.ArrayLike | None, out: dict[str, Any] | None) -> None:
        """Starts stepping environments. Actions of agents are a list, one entry per group."""

    def recv(self, timeout_s: float | None, min_envs: int | None, max_envs: int | None) -> Arrays:
        """Waits for the next batch."""

    def step(
        self, actions: Any, env_id: npt.ArrayLike | None, out: dict[str, Any] | None
    ) -> Arrays:
        """Sends and receives."""

    def drain(self, timeout_s: float | None) -> Arrays:
        """Waits for everything in flight."""

    def info(self, arrays: Arrays) -> Info:
        """The info that `step` returns for this batch; called once per batch."""

    def columns(self, arrays: Arrays) -> Info:
        """The info that `recv_batch` returns: plain arrays.

        Where an episode ended, they are of its last step, not of the reset.
        Failures are in env_error and _env_error, where the user asked for them.
        """

    def render(self, env_ids: npt.ArrayLike | None, camera: int | str | None) -> tuple[Any, ...]:
        """Draws environments as they are now."""

    @property
    def num_in_flight(self) -> int:
        """Environments sent and not yet received."""

    @property
    def buffer_bytes(self) -> int:
        """Bytes of all buffers that the engine owns."""

    def synchronize(self) -> None:
        """Waits for everything that was launched, and raises its errors."""

    def stats(self) -> Any:
        """Counts and times since construction or `reset_stats`: PoolStats or DeviceStats."""

    def reset_stats(self) -> None:
        """Begins the counts and times of `stats` anew."""

    def close(self, **kwargs: Any) -> None:
        """Frees everything; wakes threads that wait in `recv`. May be called twice."""

    def describe(self) -> str:
        """The text between the parentheses of the face's repr."""

    # -- what some engines do ------------------------------------------------------

    @property
    def why_not_collects(self) -> str:
        """The reason why the engine computes no policy; "" where it does."""

    def collect(
        self,
        policies: list[Any],
        arrays: list[dict[str, Array]],
        rules: dict[str, Any],
        poll: Callable[[], None] | None,
        normalize: dict[str, Any] | None,
    ) -> list[Array] | None:
        """Steps all environments T times with a policy for each group."""

    def rollout(
        self, num_steps: int, actions: Any, action_seed: int, record: bool
    ) -> tuple[Arrays, list[Any]]:
        """Steps all environments K times by one launch; returns rows and the recorded actions."""

    def save(self, env_id: npt.ArrayLike | None) -> list[bytes]:
        """Saves environments whole."""

    def load(self, env_id: npt.ArrayLike | None, states: Sequence[Any]) -> None:
        """Puts saved states into environments."""

    def env_specs(self) -> tuple[EnvSpec, ...]:
        """Specs of the environments' ids, in env order."""

    def mujoco_engines(self) -> list[tuple[str, str]]:
        """("lanes", "") or ("mujoco", why not lanes) per environment; ("", "") without MuJoCo."""

    def env_options(self) -> dict[str, Any]:
        """Options in force, by name."""

    def model_fields(self) -> list[str]:
        """Fields of MuJoCo's model that a reset may change."""

    def model_field(self, field: str, *, of_file: bool) -> Array:
        """The values of a field of MuJoCo's model, one for each environment."""

    def action_masks(self) -> Array:
        """Actions that the observations of the last batch allow."""

    def xla_handle(self) -> int:
        """The number by which compiled functions find the pool."""


class NoStatistics:
    """Statistics of an engine that normalises nothing."""

    kinds: tuple[str, ...] = ()
    are_updated = False

    def __init__(self, name: str) -> None:
        """Takes the name of the engine."""
        self.name = name

    def read(self, kind: str, *, fresh: bool = False) -> NoReturn:
        """Raises SpecError: there are none."""
        refuse(self, "statistics")

    def take_new(self) -> dict[str, Any]:
        """Nothing was counted."""
        return {}

    def replace(self, kind: str, statistics: object) -> NoReturn:
        """Raises SpecError: there are none."""
        refuse(self, "statistics")

    def update(self, updates: bool) -> NoReturn:
        """Raises SpecError: there are none."""
        refuse(self, "statistics")


class _Named(Protocol):
    name: str


def refuse(engine: _Named, feature: str) -> NoReturn:
    """Raises the SpecError for a feature that an engine lacks."""
    raise SpecError(cannot(engine.name, feature))


def lacking(feature: str) -> Callable[..., Any]:
    """A method of an engine that lacks a feature: it raises the SpecError of `refuse`."""

    def refused(engine: _Named, *_: Any, **__: Any) -> NoReturn:
        refuse(engine, feature)

    return refused
