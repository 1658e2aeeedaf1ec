# SPDX-License-Identifier: Apache-2.0
"""The names of all environments' options, for type checkers.

`rollouts.env_spec(id).options` has those that an id takes, with their defaults, and `.option_help`
explains them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, TypeVar

import numpy.typing as npt
from gymnasium.vector import AutoresetMode

if TYPE_CHECKING:
    from rollouts.own_model.step import BatchFunction

_Value = TypeVar("_Value")
# one value for all environments, or one for each
Column: TypeAlias = _Value | Sequence[_Value] | npt.NDArray[Any]
# (low, high) for all, or N of them
Range: TypeAlias = tuple[float, float] | Sequence[tuple[float, float]] | npt.NDArray[Any]


class EnvOptions(TypedDict, total=False):
    """Options of `make_vec`: a name that is not here is an error to a type checker."""

    agent_room_x: Column[int]
    agent_room_y: Column[int]
    agent_start_dir: Column[int]
    agent_start_x: Column[int]
    agent_start_y: Column[int]
    agent_view_size: Column[int]
    agent_x: Column[int]
    agent_y: Column[int]
    audio_buffer_enabled: Column[bool]
    automap_buffer_enabled: Column[bool]
    blocked: Column[bool]
    cfg_file: Column[str]
    contact_cost_max: Column[float]
    contact_cost_min: Column[float]
    contact_cost_weight: Column[float]
    contact_force_max: Column[float]
    contact_force_min: Column[float]
    continuous: Column[bool]
    continuous_action_threshold: Column[float]
    ctrl_cost_weight: Column[float]
    depth_buffer_enabled: Column[bool]
    difficulty: Column[int]
    distractors: Column[bool]
    domain_randomize: Column[bool]
    doom_map: Column[str]
    doom_skill: Column[int]
    doors_open: Column[bool]
    enable_wind: Column[bool]
    engine: Column[str]
    episode_timeout: Column[int]
    episodic_life: Column[bool] | Column[str]
    exclude_current_positions_from_observation: Column[bool]
    fickle_passenger: Column[bool]
    fickle_probability: Column[float]
    force_mag: Column[float]
    forward_reward_weight: Column[float]
    frame_skip: Column[int]
    frameskip: Column[int]
    from_pixels: Column[bool]
    full_action_space: Column[bool]
    game_args: Column[str]
    goal_velocity: Column[float]
    goal_x: Column[int]
    goal_y: Column[int]
    gravity: Column[float]
    grayscale: Column[bool]
    grid_height: Column[int]
    grid_width: Column[int]
    hardcore: Column[bool]
    healthy_angle_max: Column[float]
    healthy_angle_min: Column[float]
    healthy_reward: Column[float]
    healthy_state_max: Column[float]
    healthy_state_min: Column[float]
    healthy_z_max: Column[float]
    healthy_z_min: Column[float]
    highlight: Column[bool]
    img_height: Column[int]
    img_width: Column[int]
    impact_cost_max: Column[float]
    impact_cost_min: Column[float]
    impact_cost_weight: Column[float]
    implicit_unlock: Column[bool]
    include_cfrc_ext_in_observation: Column[bool]
    include_cinert_in_observation: Column[bool]
    include_cvel_in_observation: Column[bool]
    include_qfrc_actuator_in_observation: Column[bool]
    is_rainy: Column[bool]
    is_slippery: Column[bool]
    iwad_file: Column[str]
    key_in_box: Column[bool]
    labels_buffer_enabled: Column[bool]
    lap_complete_percent: Column[float]
    large: Column[float]
    length: Column[float]
    life_loss_info: Column[bool]
    locations: Column[bool]
    locked_room_prob: Column[float]
    main_body: Column[int] | Column[str]
    mass: Column[float]
    mass_cart: Column[float]
    mass_pole: Column[float]
    max_buttons_pressed: Column[int]
    max_num_rooms: Column[int]
    max_room_size: Column[int]
    max_steps: Column[int]
    maxpool: Column[bool]
    min_num_rooms: Column[int]
    mode: Column[int]
    n_obstacles: Column[int]
    natural: Column[bool]
    nips: Column[bool]
    noop_max: Column[int]
    num_crossings: Column[int]
    num_dists: Column[int]
    num_doors: Column[int]
    num_objs: Column[int]
    num_quarters: Column[int]
    num_rooms_visited: Column[int]
    num_rows: Column[int]
    obj_type: Column[str]
    objs_per_room: Column[int]
    obs_dtype: Column[str]
    obs_type: Column[str]
    obstacle_type: Column[str]
    pole_half_length: Column[float]
    rainy_probability: Column[float]
    ram_info: Column[bool]
    random_length: Column[bool]
    random_start: Column[bool]
    randomize: Column[bool]
    repeat_action_probability: Column[float]
    reset_noise_scale: Column[float]
    reward_clipping: Column[bool]
    reward_control_weight: Column[float]
    reward_dist_weight: Column[float]
    reward_frozen: Column[float]
    reward_goal: Column[float]
    reward_hole: Column[float]
    reward_near_weight: Column[float]
    room_size: Column[int]
    sab: Column[bool]
    screen_format: Column[str]
    screen_resolution: Column[str]
    see_through_walls: Column[bool]
    select_by: Column[str]
    size: Column[int]
    slip: Column[float]
    small: Column[float]
    stack_num: Column[int]
    start_carrying: Column[bool]
    strict: Column[bool]
    strip2_row: Column[int]
    success_rate: Column[float]
    sutton_barto_reward: Column[bool]
    terminate_when_unhealthy: Column[bool]
    tile_size: Column[int]
    treat_episode_timeout_as_truncation: Column[bool] | Column[str]
    turbulence_power: Column[float]
    unblocking: Column[bool]
    uph_cost_weight: Column[float]
    use_contact_forces: Column[bool]
    use_fire_reset: Column[bool]
    use_inter_area_resize: Column[bool]
    wad_file: Column[str]
    wind_power: Column[float]
    xml_file: Column[str]

    # ranges, as Gymnasium writes them
    contact_cost_range: Range
    contact_force_range: Range
    healthy_angle_range: Range
    healthy_state_range: Range
    healthy_z_range: Range
    impact_cost_range: Range

    # wrappers around any environments
    clip_action: bool
    rescale_action: bool | tuple[npt.ArrayLike, npt.ArrayLike]
    time_aware: bool | str
    frame_stack: int | None
    normalize_observation: bool | Mapping[str, float]
    normalize_reward: bool | Mapping[str, float]
    clip_reward: float | tuple[float | None, float | None] | None

    # fields of the model that differ from its file
    model: Mapping[str, Any]

    # options of MuJoCo-v0
    keyframe: Column[int] | Column[str]
    qvel_noise: Column[str]
    reward: BatchFunction
    terminated: BatchFunction
    observation: Column[str]  # also of grids
    info: Sequence[str]

    # options of frames, by Gymnasium's names and EnvPool's
    width: int
    height: int
    camera_id: int
    camera_name: str
    default_camera_config: Mapping[str, Any] | None
    max_geom: int
    visual_options: Mapping[int, bool]
    render_width: int
    render_height: int
    render_camera_id: int
    render_camera_name: str
    render_default_camera_config: Mapping[str, Any] | None
    render_max_geom: int
    render_visual_options: Mapping[int, bool]


class PoolOptions(EnvOptions, total=False):
    """The keywords of `make_vec` except device, for its overloads; its docstring explains them."""

    batch_size: int | None
    num_threads: int | None
    seed: int | None
    autoreset_mode: str | AutoresetMode
    env_id_offset: int
    max_episode_steps: int | None
    on_env_error: str
    pin_threads: bool | Sequence[int]
    render_mode: str | None
    flatten_observation: bool
