# SPDX-License-Identifier: Apache-2.0
"""Types of the extension module; native/bindings/ has the code."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
_Owner = TypeVar("_Owner")
# one value for all environments, or a list with one for each
OptionColumn = bool | int | float | str | Sequence[bool | int | float | str]

# names of what recv returns first; info_names follow, and those again of begun episodes
STEP_ARRAYS: tuple[str, ...]

class CpuPool:
    info_names: tuple[str, ...]
    num_in_flight: int
    buffer_bytes: int
    closed: bool
    def __init__(
        self,
        *,
        segments: Sequence[tuple[str, int, int, Mapping[str, OptionColumn]]],
        env_options: Mapping[str, OptionColumn],
        num_envs: int,
        batch_size: int,
        num_threads: int,
        env_id_offset: int,
        seed: int,
        autoreset_mode: int,
        on_env_error: int,
        pin_cpus: Sequence[int],
        wrappers: Mapping[str, Any],
    ) -> None: ...
    def read_statistics(self, of: str, fresh: bool) -> tuple[Array, Array, float]: ...
    def set_statistics(self, of: str, mean: Array, var: Array, count: float) -> None: ...
    def update_statistics(self, updates: bool) -> None: ...
    updates_statistics: bool
    def send(
        self, actions: npt.ArrayLike, env_id: npt.ArrayLike | None, out: dict[str, Array] | None
    ) -> None: ...
    def collect(
        self,
        policies: Sequence[NativePolicy],
        arrays: Sequence[dict[str, Array]],
        rules: dict[str, Any],
        poll: Callable[[], None] | None,
        normalize: dict[str, Any] | None,
    ) -> list[Array] | None: ...
    def recv(self, timeout_s: float | None) -> tuple[Array, ...]: ...
    def recv_rows(self, min: int, max: int, timeout_s: float | None) -> tuple[Array, ...]: ...
    def recv_all(self, timeout_s: float | None) -> tuple[Array, ...]: ...
    def take_failures(self) -> list[tuple[int, str]]: ...
    def step(
        self, actions: npt.ArrayLike, env_id: npt.ArrayLike | None, out: dict[str, Array] | None
    ) -> tuple[Array, ...]: ...
    def check_reset(self, mask: npt.NDArray[np.bool_] | None) -> None: ...
    def send_reset(self, mask: npt.NDArray[np.bool_] | None) -> None: ...
    def discard(self, timeout_s: float | None) -> None: ...
    def change(
        self,
        mask: npt.NDArray[np.bool_] | None,
        options: Mapping[str, OptionColumn],
        model: Sequence[tuple[str, bool, Array | None, Array | None]],
    ) -> None: ...
    def read_model(self, env: int, field: str, of_file: bool) -> Array: ...
    def model_fields(self, env: int) -> list[str]: ...
    def env_options(self) -> dict[str, list[bool | int | float | str | None]]: ...
    def seed(self, env: int, seed: int, /) -> None: ...
    # random stream of an environment at rest, by index: seed, stream, number of its next episode
    def stream_of(self, env: int) -> tuple[int, int, int]: ...
    def seek(self, env: int, seed: int, stream_id: int, next_episode: int) -> None: ...
    # raw struct of a light environment, by index: for the oracle tests
    def get_state(self, env: int) -> bytes: ...
    def set_state(self, env: int, state: bytes) -> None: ...
    # whole states, by global id: VectorEnv's get_state and set_state
    def save_states(self, env_id: npt.ArrayLike) -> list[bytes]: ...
    def render(self, env_id: npt.ArrayLike) -> list[npt.NDArray[np.uint8]]: ...
    # of environments with several agents: arrays by name, also "elapsed_steps"; `first`: as their
    # episodes began
    def read_worlds(self, env_id: npt.ArrayLike, first: bool) -> list[dict[str, Array]]: ...
    def load_states(self, env_id: npt.ArrayLike, states: Sequence[bytes]) -> None: ...
    # for rollouts/own_model: the last actions, returns and ends of environments at rest, and their
    # arrays as recv returns them; `begin`: where an episode is over, the next one begins
    def action_rows(self, env_id: npt.ArrayLike) -> npt.NDArray[np.float32]: ...
    def end_steps(
        self,
        env_id: npt.ArrayLike,
        reward: npt.NDArray[np.float64],
        terminated: npt.NDArray[np.bool_],
    ) -> None: ...
    def show_idle(self, env_id: npt.ArrayLike, begin: bool) -> tuple[Array, ...]: ...
    # keyword arguments of rollouts.envs.stats.PoolStats
    def engines(self) -> list[tuple[str, str]]: ...
    def stats(self) -> dict[str, Any]: ...
    def reset_stats(self) -> None: ...
    # number by which XLA's calls know the pool
    def xla_handle(self) -> int: ...
    @property
    def num_xla_calls(self) -> int: ...
    def close(self) -> None: ...

class AtariEmulation:
    def __init__(self, rom_path: str, frameskip: int) -> None: ...
    # (T,) int32; seconds
    def run(self, actions: Array) -> float: ...

class AtariConsole:
    def __init__(
        self,
        rom_path: str,
        mode: int = -1,
        difficulty: int = -1,
        repeat_action_probability: float = 0.0,
        random_seed: int = 0,
    ) -> None: ...
    def restart(self) -> None: ...
    def reset(self) -> None: ...
    def act(self, action: int) -> int: ...
    def legal_actions(self) -> Sequence[int]: ...
    # address 0..127
    def poke(self, address: int, value: int) -> None: ...
    def game_over(self) -> bool: ...
    def lives(self) -> int: ...
    # (height, 160) palette indices
    def screen(self) -> npt.NDArray[np.uint8]: ...
    def ram(self) -> npt.NDArray[np.uint8]: ...

class PlainLoop:
    def __init__(
        self,
        id: str,
        env_options: Mapping[str, Any],
        num_envs: int,
        max_episode_steps: int,
        seed: int,
    ) -> None: ...
    # (obs, reward, terminated, truncated), one row per environment; every call writes them again
    def reset(self) -> tuple[Array, ...]: ...
    def step(self, actions: Array) -> tuple[Array, ...]: ...

class TagLoop:
    def __init__(
        self, env_options: Mapping[str, Any], num_envs: int, max_episode_steps: int
    ) -> None: ...
    def reset(self) -> None: ...
    def step(self, actions: Array) -> None: ...
    @property
    def reward(self) -> list[float]: ...

class AleState: ...

class AleEmulator:
    def __init__(self, rom_path: str) -> None: ...
    def act(self, action: int, strength: float = 1.0) -> int: ...
    def game_over(self) -> bool: ...
    def reset_game(self) -> None: ...
    def lives(self) -> int: ...
    def screen(self) -> npt.NDArray[np.uint8]: ...
    def ram(self) -> npt.NDArray[np.uint8]: ...
    def minimal_actions(self) -> Sequence[int]: ...
    def legal_actions(self) -> Sequence[int]: ...
    def palette_gray(self) -> npt.NDArray[np.uint8]: ...
    def clone_state(self) -> AleState: ...
    def restore_state(self, state: AleState) -> None: ...

def registry() -> list[dict[str, Any]]: ...
def register_env(
    *,
    id: str,
    max_episode_steps: int,
    reward_threshold: float,
    header: str,
    type: str,
    library: str,
) -> None: ...
def own_env_names(library: str) -> tuple[list[str], list[str]]: ...
def make_spec(id: str, options: Mapping[str, Any]) -> dict[str, Any]: ...
def has_box2d() -> bool: ...
def load_ale(so_path: str, version: str) -> None: ...
def load_doom(so_path: str, version: str, game: str, guardian: str) -> None: ...

MUJOCO_RELEASES: tuple[str, ...]

def load_mujoco(so_path: str, version: str) -> None: ...

class PhysicsModel:
    @property
    def xml_path(self) -> str: ...
    def binary(self) -> bytes: ...

def learn_mujoco_timer(folder: str) -> None: ...
def take_lanes_warnings() -> list[str]: ...
def choose_opengl(library: str) -> None: ...

# of one entry of VectorEnv.get_state: mjSTATE_INTEGRATION, and what CpuPool.get_state returns
def physics_state(state: bytes) -> npt.NDArray[np.float64]: ...
def physics_model(xml_path: str) -> PhysicsModel: ...
def physics_fields(state: bytes) -> dict[str, bytes]: ...
def env_state(state: bytes) -> bytes: ...
def dm_control_models() -> dict[str, tuple[str, str]]: ...
def lanes_widths() -> list[int]: ...

class LanesComparer:
    def __init__(self, xml_path: str) -> None: ...
    @property
    def why_not(self) -> str: ...
    @property
    def outputs(self) -> list[str]: ...
    @property
    def sensed(self) -> list[bool]: ...
    def forward(
        self,
        qpos: npt.NDArray[np.float64],
        qvel: npt.NDArray[np.float64],
        act: npt.NDArray[np.float64],
        qacc_warmstart: npt.NDArray[np.float64],
        ctrl: npt.NDArray[np.float64],
        *,
        width: int = 0,
    ) -> dict[str, Any]: ...
    def step(
        self,
        qpos: npt.NDArray[np.float64],
        qvel: npt.NDArray[np.float64],
        act: npt.NDArray[np.float64],
        qacc_warmstart: npt.NDArray[np.float64],
        ctrl: npt.NDArray[np.float64],
        *,
        width: int = 0,
        substeps: int = 1,
        up_to_date: bool = False,
        outputs: Sequence[str] = (),
    ) -> dict[str, Any]: ...

def mujoco_model_fields(xml_path: str) -> list[str]: ...
def mujoco_quaternions(xml_path: str, field: str) -> list[int]: ...
def mujoco_parts(
    xml_path: str, option: str, names: str
) -> list[tuple[str, tuple[int, ...], str, int]]: ...
def resize_frame(
    image: npt.NDArray[np.uint8], height: int, width: int, by_area: bool = True
) -> npt.NDArray[np.uint8]: ...
def has_atari_rules(game: str) -> bool: ...
def read_atari_scores(
    rom_path: str, ram: npt.NDArray[np.uint8], by_ale: bool
) -> npt.NDArray[np.int32]: ...

# (advantage, target), each (T, B) float32, of C-contiguous arrays (T, B), last_value (B,), all
# float32 or all float64; rollouts/returns.py
def gae(
    reward: Array,
    value: Array,
    terminated: npt.NDArray[np.bool_],
    truncated: npt.NDArray[np.bool_],
    bootstrap_value: Array,
    last_value: Array,
    *,
    gamma: float,
    gae_lambda: float,
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]: ...
def nstep(
    reward: Array,
    value: Array,
    terminated: npt.NDArray[np.bool_],
    truncated: npt.NDArray[np.bool_],
    bootstrap_value: Array,
    last_value: Array,
    *,
    gamma: float,
    n: int,
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]: ...
def vtrace(
    reward: Array,
    value: Array,
    terminated: npt.NDArray[np.bool_],
    truncated: npt.NDArray[np.bool_],
    bootstrap_value: Array,
    last_value: Array,
    behaviour_log_prob: Array,
    target_log_prob: Array,
    *,
    gamma: float,
    vtrace_lambda: float,
    rho_bar: float,
    c_bar: float,
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]: ...

# Of one vector env. `add` puts final_obs, final_info and their masks into the info of a batch in
# which an episode ended, in Gymnasium's layout, and says whether one did; final_obs (B, *obs_shape)
# is valid where one ended, as are the columns of begun: what takes the place of the same keys of
# info, for the next episode. Arrays that the caller has dropped are written anew.
class FinalRows:
    def __init__(self) -> None: ...
    def add(
        self,
        info: dict[str, Array],
        final_obs: Array,
        terminated: npt.NDArray[np.bool_],
        truncated: npt.NDArray[np.bool_],
        begun: dict[str, Array] = ...,
    ) -> bool: ...

# (frames (F, ...), index (T + 1, B, S)) of obs (T, B, S, ...) and last_obs (B, S, ...), both
# C-contiguous and of one dtype; rollouts/collecting/frame_stacks.py
def end_after_parent(grace_s: int) -> bool: ...

# Semantics: native/include/rollouts/support/checksum.h; of arrays (n, ...) with contiguous rows
def checksum(arrays: list[npt.NDArray[Any]]) -> int: ...

# (bytes, smallest number, bits of each): include/rollouts/data/packed_integers.h; None: 64 bits
def pack_integers(array: Array) -> tuple[bytes, int, int] | None: ...

# (digest (B,), largest_reward (B,), is_obs_finite (B,)): include/rollouts/data/column_digests.h
def digest_columns(
    obs: Array,
    last_obs: Array,
    reward: npt.NDArray[np.float32],
    terminated: npt.NDArray[np.bool_],
    truncated: npt.NDArray[np.bool_],
    active: npt.NDArray[np.bool_] | None = ...,
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.float32], npt.NDArray[np.bool_]]: ...

# (checksum, (largest_reward, is_obs_finite) of each group); a group is (digest (B,),
# largest_reward (B,), is_obs_finite (B,), episode_return (T, B), episode_length (T, B), final_obs)
def sum_fragment(
    groups: Sequence[
        tuple[
            npt.NDArray[np.uint64],
            npt.NDArray[np.float32],
            npt.NDArray[np.bool_],
            npt.NDArray[np.float64],
            npt.NDArray[np.int32],
            Array | None,
        ]
    ],
) -> tuple[int, tuple[tuple[float, bool], ...]]: ...
def pack_frame_stacks(obs: Array, last_obs: Array) -> tuple[Array, npt.NDArray[np.int32]]: ...

# Semantics: native/bindings/interrupts.h
class NativeCall:
    def __enter__(self) -> None: ...
    def __exit__(self, *error: object) -> None: ...

# Semantics: native/include/rollouts/replay/state_snapshot.h
class StatePieces:
    nbytes: int
    def __iter__(self) -> Iterator[npt.NDArray[np.uint8]]: ...
    def __next__(self) -> npt.NDArray[np.uint8]: ...

# Semantics: native/include/rollouts/replay/replay_store.h
class ReplayStore:
    num_streams: int
    tables: tuple[str, ...]
    closed: bool
    # columns: (name, dtype, shape, stack, "zero" | "repeat"); tables: see replay_arrays.cpp
    def __init__(
        self,
        columns: Sequence[tuple[str, npt.DTypeLike, Sequence[int], int, str]],
        tables: Sequence[Mapping[str, Any]],
        *,
        num_streams: int = 0,
        chunk_rows: int = 64,
        history_rows: int = 256,
        max_bytes: int = 0,
        num_threads: int = 1,
        path: str = "",
    ) -> None: ...
    def add_streams(self, n: int) -> int: ...
    # of save_state
    def state_pieces(self) -> StatePieces: ...
    # row numbers (T, B) int64, or (B,) without a time axis; -1 where not valid
    def append(
        self,
        stream_id: npt.ArrayLike,
        columns: Mapping[str, Array],
        *,
        first: npt.NDArray[np.bool_] | None = None,
        ended: npt.NDArray[np.bool_] | None = None,
        final: Mapping[str, Array] | None = None,
        valid: npt.NDArray[np.bool_] | None = None,
    ) -> npt.NDArray[np.int64]: ...
    # (oldest row an item may start at, next row), each (K,)
    def stream_rows(
        self, stream_id: npt.ArrayLike
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]: ...
    def end_streams(self, stream_id: npt.ArrayLike) -> None: ...
    # keys (n,), n < K only where timeout_s passed
    def insert(
        self,
        table: str,
        stream_id: npt.ArrayLike,
        start: npt.ArrayLike,
        length: int | npt.ArrayLike,
        priority: npt.ArrayLike | None = None,
        *,
        timeout_s: float | None = None,
    ) -> npt.NDArray[np.int64]: ...
    def sample(
        self,
        table: str,
        plan: GatherPlan,
        batch_size: int,
        *,
        timeout_s: float | None = None,
        out: Mapping[str, Array] | None = None,
    ) -> dict[str, Array]: ...
    def gather(self, table: str, plan: GatherPlan, keys: npt.ArrayLike) -> dict[str, Array]: ...
    def update_priorities(
        self, table: str, keys: npt.ArrayLike, priority: npt.ArrayLike
    ) -> int: ...
    def delete(self, table: str, keys: npt.ArrayLike) -> int: ...
    def reset(self, table: str) -> None: ...
    def keys(self, table: str) -> npt.NDArray[np.int64]: ...
    def info(self, table: str) -> dict[str, Any]: ...
    def can_insert(self, table: str, n: int = 1) -> bool: ...
    def can_sample(self, table: str, n: int = 1) -> bool: ...
    def memory(self) -> dict[str, int]: ...
    def save_state(self) -> npt.NDArray[np.uint8]: ...
    def load_state(self, state: bytes | npt.NDArray[np.uint8]) -> None: ...
    def close(self) -> None: ...

class GatherPlan:
    # (field, column, offset, count)
    def __init__(
        self,
        store: ReplayStore,
        fields: Sequence[tuple[str, str, int, int]],
        *,
        time_major: bool = False,
        # strategy, reward, share, threshold, steps, achieved, desired, size
        hindsight: tuple[str, str, float, float, int, int, int, int] | None = None,
    ) -> None: ...

# Semantics: native/include/rollouts/replay/writer.h
class ReplayWriter:
    num_streams: int
    num_pending: int
    has_cut_away: bool
    cut_away: list[int]  # by table
    policy_version: int
    produced: int
    episodes_cut: int
    # kinds: rollouts/replay/items.py; convert(name, value, leading shape, dtype, shape)
    def __init__(
        self,
        store: ReplayStore,
        kinds: Sequence[tuple[int, int, str]],
        history_rows: int,
        convert: Callable[[str, Any, tuple[int, ...], Any, tuple[int, ...]], Array],
        /,
    ) -> None: ...
    # columns: in the order of the store's; mode: 0 next_step, 1 same_step, 2 disabled. Items
    # inserted without waiting.
    def add_step(
        self,
        columns: tuple[Any, ...],
        next_obs: Any,
        env_id: Any,
        failed: Any,
        info: Mapping[str, Any],
        mode: int,
        priority: float | Array | None,
        /,
    ) -> int: ...
    def add_batch(
        self,
        columns: tuple[Any, ...],
        last_obs: Any,
        env_id: Any,
        final_obs: Any,
        active: Array | None,
        priority: float | Array | None,
        /,
    ) -> int: ...
    def end_episodes(self, env_id: npt.ArrayLike | None, /) -> None: ...
    def insert(self, table: int, timeout_s: float, /) -> int: ...
    def insert_now(self) -> int: ...
    def pending(self, table: int, /) -> int: ...
    def state(self) -> dict[str, Array]: ...
    def load_state(self, state: dict[str, Array], /) -> None: ...
    def env_ids(self) -> npt.NDArray[np.int64]: ...

# the highest priority of a table whose selector is "prioritized" with this exponent
def most_priority(exponent: float) -> float: ...
def xla_handler() -> Any: ...  # capsule of the function that XLA calls

class NativePolicy:
    def __init__(
        self,
        obs_size: int,
        ops: Sequence[tuple[str, Sequence[int], Sequence[int], Sequence[float], int]],
        params: Sequence[tuple[str, int]],
        outputs: Sequence[int],
        head: Mapping[str, Any],
        states: Sequence[int],
    ) -> None: ...
    def load(self, params: Sequence[Array], sources: Sequence[Array], initial: Array) -> None: ...
    def holds(self, sources: Sequence[Array]) -> bool: ...
    def snapshot(self) -> NativePolicy: ...
    def layout(self) -> dict[str, Any]: ...
    def pack(self, params: Sequence[Array]) -> npt.NDArray[np.float32]: ...
    def evaluate(self, obs: Array) -> tuple[Array, ...]: ...
    def act(self, obs: Array, keys: Array, mask: Array | None = ...) -> tuple[Array, ...]: ...

class Gradients:
    def __init__(
        self,
        obs_size: int,
        ops: Sequence[tuple[str, Sequence[int], Sequence[int], Sequence[float], int]],
        params: Sequence[tuple[str, int]],
        outputs: Sequence[int],
        states: Sequence[int],
        trained: Sequence[bool],
    ) -> None: ...
    def run(
        self, params: Sequence[Array], obs: Array, given: Sequence[Array]
    ) -> list[npt.NDArray[np.float32] | None]: ...
    def run_sequences(
        self,
        params: Sequence[Array],
        obs: Array,
        states: Array,
        initial: Array,
        ended: Array,
        given: Sequence[Array],
        burn_in: int = ...,
    ) -> list[npt.NDArray[np.float32] | None]: ...

class PpoLearner:
    def __init__(
        self,
        obs_size: int,
        ops: Sequence[tuple[str, Sequence[int], Sequence[int], Sequence[float], int]],
        params: Sequence[tuple[str, int]],
        outputs: Sequence[int],
        states: Sequence[int],
        views: Sequence[tuple[int, int, Sequence[int], Sequence[int]]],
        trained: Sequence[bool],
        head: str,
        nvec: Sequence[int],
        num_threads: int,
    ) -> None: ...
    def update(
        self,
        sources: Sequence[tuple[Array, tuple[Any, ...] | None]],
        rows: Mapping[str, Any],
        order: npt.NDArray[np.int64],
        minibatch: int,
        settings: Mapping[str, Any],
        timeout_s: float | None = ...,
        average: Callable[[npt.NDArray[np.float32]], None] | None = ...,
    ) -> npt.NDArray[np.float32]: ...
    def evaluate(
        self,
        sources: Sequence[tuple[Array, tuple[Any, ...] | None]],
        rows: Mapping[str, Any],
    ) -> npt.NDArray[np.float32]: ...
    @property
    def num_steps(self) -> int: ...

class RowLossLearner:
    def __init__(
        self,
        obs_size: int,
        ops: Sequence[tuple[str, Sequence[int], Sequence[int], Sequence[float], int]],
        params: Sequence[tuple[str, int]],
        outputs: Sequence[int],
        views: Sequence[tuple[int, int, Sequence[int], Sequence[int]]],
        trained: Sequence[bool],
        num_threads: int,
    ) -> None: ...
    def update(
        self,
        sources: Sequence[tuple[Array, tuple[Any, ...] | None]],
        rows: Array,
        max_norm: float | None,
        clip_by: str,
        timeout_s: float | None = ...,
        average: Callable[[npt.NDArray[np.float32]], None] | None = ...,
    ) -> tuple[float, float, npt.NDArray[np.float32]]: ...
    def compute(
        self,
        sources: Sequence[tuple[Array, tuple[Any, ...] | None]],
        rows: Array,
        timeout_s: float | None = ...,
        average: Callable[[npt.NDArray[np.float32]], None] | None = ...,
    ) -> tuple[float, float, npt.NDArray[np.float32]]: ...
    def apply(
        self,
        sources: Sequence[tuple[Array, tuple[Any, ...] | None]],
        max_norm: float | None,
        clip_by: str,
    ) -> None: ...
    @property
    def num_steps(self) -> int: ...

def move_towards(arrays: Sequence[Array], targets: Sequence[Array], share: float) -> None: ...
def policy_kernels() -> list[str]: ...
def policy_kernels_in_use() -> str: ...

CLOCK_DTYPE: np.dtype[np.void]  # a row of clocks

# Semantics: native/bindings/row_sets.h
class RowSets(Generic[_Owner]):
    def __init__(self, use_count: Callable[[int], int] | None) -> None: ...
    def add(
        self,
        owner: _Owner,
        tensors: list[Any],
        storages: list[int],
        arrays: tuple[Any, ...],
        launch: object,
        launch_address: int,
    ) -> None: ...
    def take(self) -> _Owner | None: ...
    def clear(self) -> None: ...
    @property
    def owners(self) -> list[_Owner]: ...

# Semantics: native/bindings/cuda_entry.h
class CudaEntry:
    def __init__(
        self,
        driver: dict[str, int],
        context: int,
        function: int,
        current_stream: Callable[[int], int],
        device: int,
    ) -> None: ...
    def launch(self, args: int, num_blocks: int, num_threads: int, shared_bytes: int) -> None: ...
    @property
    def num_launches(self) -> int: ...

# Semantics: native/bindings/step_launches.cpp
class StepLaunches:
    def __init__(
        self,
        *,
        sets: RowSets[Any],
        forms: list[Any],
        in_list: bool,
        tensor_type: type,
        actions_at: int,
        bytes_at: int,
        entry: CudaEntry | Callable[..., None],
        grid: tuple[int, int, int],
        recording: Callable[[], object | None] | None,
    ) -> None: ...
    def step(self, actions: Any) -> tuple[Any, ...] | None: ...

# Semantics: native/bindings/rows_by_group.cpp
class RowsByGroup:
    def __init__(self, names: tuple[str, ...], keeps_final_obs: bool) -> None: ...
    def step(self, arrays: tuple[Any, ...]) -> tuple[Any, Any, Any, Any, dict[str, Any]]: ...
    def columns(self, arrays: tuple[Any, ...]) -> list[Any]: ...
    def in_order(self, actions: Any) -> list[Any] | None: ...
    @staticmethod
    def ended(arrays: tuple[Any, ...]) -> Any: ...

def device_facts(id: str, options: dict[str, Any], num_envs: int) -> dict[str, Any]: ...
def task_facts(
    id: str, options: dict[str, Any], num_envs: int, of_model: bool
) -> dict[str, Any]: ...
def seal_states(
    id: str,
    options: dict[str, Any],
    num_envs: int,
    envs: Sequence[int],
    clocks: Array,
    fields: Array,
) -> list[bytes]: ...
def seal_worlds(
    id: str, options: dict[str, Any], envs: Sequence[int], clocks: Array, worlds: Array
) -> list[bytes]: ...
def open_worlds(
    id: str,
    options: dict[str, Any],
    envs: Sequence[int],
    states: Sequence[bytes],
    world_bytes: int,
) -> tuple[Array, npt.NDArray[np.uint8]]: ...
def open_states(
    id: str, options: dict[str, Any], num_envs: int, envs: Sequence[int], states: Sequence[bytes]
) -> tuple[Array, npt.NDArray[np.float64]]: ...
