# SPDX-License-Identifier: Apache-2.0
"""`Engine`: what steps the environments behind a face, and what each kind of it can do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from rollouts.errors import SpecError
from rollouts.specs import AgentGroup

if TYPE_CHECKING:
    from rollouts.pool.observation_parts import ObservationParts
    from rollouts.pool.statistics import PoolStatistics
    from rollouts.pool.stats import PoolStats

Array = npt.NDArray[Any]
Info = dict[str, Any]
# of one batch: STEP_ARRAYS in order, then what the engine alone reads, arrays of groups last
Arrays = tuple[Any, ...]

# in the order of the native enum, by which kernels know them too
AUTORESET = (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED)

# what an engine may lack, and the end of the sentence that refuses it
FEATURES = {
    "async": "step some environments while others are waited for: leave batch_size out",
    "out": "write into arrays of the caller's: leave out out",
    "collect": "compute a policy: collect with engine='torch'",
    "states": "save environments: get_state and set_state need a pool that make_vec makes",
    "options": "tell options: make_vec makes pools that do",
    "model": "change models of MuJoCo's: make_vec makes pools that do, of ids that are on MuJoCo",
    "masks": "tell masks of actions beside infos: read info['action_mask']",
    "statistics": "normalise: give make_vec normalize_observation or normalize_reward",
    "xla": "be stepped by functions that JAX compiles: make_vec makes pools that are",
}


class Engine(ABC):
    """N environments and what steps them. A face holds one and shows it as its users expect.

    Attributes:
      name: What sentences call this kind of engine.
      can: Names of FEATURES; the methods of the others raise SpecError.
      groups: Of agents; empty where environments have one agent.
      info_names: What the environments report, such as "lives" or "action_mask".
      num_calls: How often somebody stepped, reset, received or set states, for collectors.
      parts: How observations are split into a dict; None: they are not.
      single_observation_space, single_action_space, observation_space, action_space: Of one
        environment and of a batch, where environments have one agent.
    """

    name: ClassVar[str]
    can: frozenset[str]
    groups: tuple[AgentGroup, ...]
    num_envs: int
    batch_size: int
    env_id_offset: int
    autoreset_mode: AutoresetMode
    render_mode: str | None
    metadata: dict[str, Any]
    info_names: tuple[str, ...] = ()
    num_calls: int = 0
    parts: ObservationParts | None = None
    single_observation_space: spaces.Space[Any]
    single_action_space: spaces.Space[Any]
    observation_space: spaces.Space[Any]
    action_space: spaces.Space[Any]

    # -- what every engine does ----------------------------------------------------

    @abstractmethod
    def reset(
        self, seed: int | Sequence[int | None] | None, options: dict[str, Any] | None
    ) -> Arrays:
        """Starts episodes and waits for their first observations."""

    @abstractmethod
    def async_reset(self) -> None:
        """Starts new episodes everywhere without waiting."""

    @abstractmethod
    def send(self, actions: Any, env_id: npt.ArrayLike | None, out: dict[str, Any] | None) -> None:
        """Starts stepping environments. Actions of agents are a list, one entry per group."""

    @abstractmethod
    def recv(self, timeout_s: float | None, min_envs: int | None, max_envs: int | None) -> Arrays:
        """Waits for the next batch."""

    @abstractmethod
    def step(
        self, actions: Any, env_id: npt.ArrayLike | None, out: dict[str, Any] | None
    ) -> Arrays:
        """Sends and receives."""

    @abstractmethod
    def drain(self, timeout_s: float | None) -> Arrays:
        """Waits for everything in flight."""

    @abstractmethod
    def info(self, arrays: Arrays) -> Info:
        """What `step` returns as info of this batch, which is asked for once."""

    @abstractmethod
    def columns(self, arrays: Arrays) -> Info:
        """What `recv_batch` returns as info: plain arrays, of the step that ended an episode."""

    @abstractmethod
    def take_failures(self) -> list[tuple[int, str]]:
        """Failures since the last call as (env_id, message), where the user asked for them."""

    @abstractmethod
    def render(self, env_ids: npt.ArrayLike | None, camera: int | str | None) -> tuple[Any, ...]:
        """Draws environments as they are now."""

    @property
    @abstractmethod
    def num_in_flight(self) -> int:
        """Environments sent and not yet received."""

    @property
    @abstractmethod
    def buffer_bytes(self) -> int:
        """Bytes of all buffers that the engine owns."""

    @abstractmethod
    def stats(self) -> PoolStats:
        """Counts and times since construction or `reset_stats`."""

    @abstractmethod
    def reset_stats(self) -> None:
        """Begins the counts and times of `stats` anew."""

    @abstractmethod
    def close(self, **kwargs: Any) -> None:
        """Frees everything; wakes those who wait in `recv`. May be called twice."""

    @abstractmethod
    def describe(self) -> str:
        """What the face's repr says between its parentheses."""

    @property
    def num_xla_calls(self) -> int:
        """How often functions that JAX compiled have sent or received."""
        return 0

    # -- what some engines do ------------------------------------------------------

    def refuse(self, feature: str) -> NoReturn:
        """Raises the SpecError of a feature that this engine lacks."""
        raise SpecError(f"{self.name} cannot {FEATURES[feature]}")

    @property
    def why_not_collects(self) -> str:
        """What keeps a policy out of the engine; "" where nothing does."""
        return f"{self.name} cannot {FEATURES['collect']}"

    def collect(
        self,
        policies: list[Any],
        arrays: list[dict[str, Array]],
        keep_final_obs: bool,
        poll: Callable[[], None] | None,
        rule: Any,
        normalize: dict[str, Any] | None,
    ) -> list[Array] | None:
        """Steps all environments T times with a policy for each group."""
        self.refuse("collect")

    def save(self, env_id: npt.ArrayLike | None) -> list[bytes]:
        """Saves environments whole."""
        self.refuse("states")

    def load(self, env_id: npt.ArrayLike | None, states: Sequence[Any]) -> None:
        """Puts saved states into environments."""
        self.refuse("states")

    def env_options(self) -> dict[str, Any]:
        """Options in force, by name."""
        self.refuse("options")

    def model_fields(self) -> list[str]:
        """Fields of MuJoCo's model that a reset may change."""
        self.refuse("model")

    def model_field(self, field: str, *, of_file: bool) -> Array:
        """The values of a field of MuJoCo's model, one for each environment."""
        self.refuse("model")

    def action_masks(self) -> Array:
        """Which actions the observations of the last batch allow."""
        self.refuse("masks")

    @property
    def statistics(self) -> PoolStatistics:
        """Running statistics of observations and rewards."""
        self.refuse("statistics")

    def xla_handle(self) -> int:
        """The number by which compiled functions find the pool."""
        self.refuse("xla")
