# SPDX-License-Identifier: Apache-2.0
"""`make_vec`: its signature, its documentation and its checks; engines do the work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

import numpy as np
from gymnasium.vector import AutoresetMode

from rollouts.envs.engine import Engine
from rollouts.envs.multi_agent_env import MultiAgentVectorEnv
from rollouts.envs.native import NativeEngine
from rollouts.envs.option_types import EnvOptions, PoolOptions
from rollouts.envs.pool_recipe import read_ids
from rollouts.envs.registry import is_multi_agent
from rollouts.envs.vector_env import VectorEnv
from rollouts.envs.wrappers import asked_for
from rollouts.errors import SpecError
from rollouts.features import Cell, check
from rollouts.rendering.pixels import asks_for_pixels

if TYPE_CHECKING:
    from torch import Tensor

# what `multi_agent_ids()` returns, for type checkers
MultiAgentId = Literal[
    "TagContinuous-v0",
    "TagGridWorld-v0",
    "simple_adversary_v3",
    "simple_crypto_v3",
    "simple_push_v3",
    "simple_reference_v3",
    "simple_speaker_listener_v4",
    "simple_spread_v3",
    "simple_tag_v3",
    "simple_v3",
    "simple_world_comm_v3",
]


@overload
def make_vec(  # type: ignore[overload-overlap]  # an id with several agents is a str, too
    id: MultiAgentId,
    num_envs: int | None = None,
    *,
    device: str | None = None,
    **options: Unpack[PoolOptions],
) -> MultiAgentVectorEnv: ...
@overload
def make_vec(
    id: str | Sequence[str],
    num_envs: int | None = None,
    *,
    device: None = None,
    **options: Unpack[PoolOptions],
) -> VectorEnv: ...
@overload
def make_vec(
    id: str | Sequence[str],
    num_envs: int | None = None,
    *,
    device: str,
    **options: Unpack[PoolOptions],
) -> VectorEnv[Tensor]: ...
@overload
def make_vec(
    id: str | Sequence[str],
    num_envs: int | None = None,
    *,
    device: str | None,
    **options: Unpack[PoolOptions],
) -> VectorEnv[Any]: ...
def make_vec(
    id: str | Sequence[str],
    num_envs: int | None = None,
    *,
    batch_size: int | None = None,
    num_threads: int | None = None,
    seed: int | None = None,
    autoreset_mode: str | AutoresetMode = "next_step",
    env_id_offset: int = 0,
    max_episode_steps: int | None = None,
    on_env_error: str = "raise",
    pin_threads: bool | Sequence[int] = False,
    render_mode: str | None = None,
    flatten_observation: bool = True,
    device: str | None = None,
    **env_options: Unpack[EnvOptions],
) -> VectorEnv[Any] | MultiAgentVectorEnv:
    """Makes a batch of environments, which C++ threads or a GPU step.

    Args:
      id: One of `rollouts.env_ids()`, such as "CartPole-v1" or "ALE/Pong-v5", or a
        sequence of N ids whose spaces and info columns are equal: a mixed pool. Each
        environment has its own id's time limit and defaults. Pools step fastest where
        equal ids are neighbours.
      num_envs: Number of environments N; None: 1, or as many as there are ids.
      batch_size: Rows B of a recv. None or N: synchronous, every environment steps
        together. Less than N: asynchronous, recv returns the first B to finish.
      num_threads: Threads that step; None: as many as this process may use (affinity
        mask and cgroup quota), at most N.
      seed: Seed of all random streams, 0 <= seed < 2**64; None: from the system's
        entropy. The data depend on (seed, env_id, episode) alone, not on threads or
        batch_size.
      autoreset_mode: "next_step" (Gymnasium's default), "same_step" (the last
        observation comes as final_obs) or "disabled" (reset by reset_mask).
      env_id_offset: Global id of the first environment; workers of one job take
        consecutive ranges, so that no two environments share a random stream.
      max_episode_steps: Time limit in place of the id's own; 0: none.
      on_env_error: What follows an environment's failure, such as an exception in its engine.
        Its row is truncated and its next episode begins as after any end. In addition,
        "raise" raises EnvError in recv, before the batch, and "reset" reports the failure in
        info["env_error"].
      pin_threads: True keeps worker thread i on the i-th CPU of this process' affinity
        mask. In synchronous mode it skips the first CPU, which is left to the thread that
        calls step; that thread is never pinned. A sequence names the worker threads' CPUs
        (one less than num_threads in synchronous mode). Linux only.
      render_mode: "rgb_array" or None, for wrappers that read it and metadata["render_fps"];
        `render` works with either. It must be None for environments that cannot be drawn.
      flatten_observation: False: observations of the DeepMind Control Suite's tasks, of
        MiniGrid and of BabyAI are dicts of arrays (B, *shape) by the names of dm_control and
        minigrid (whose mission has a number for each word: `decode_mission`), views of the same
        batch, and the spaces are `gymnasium.spaces.Dict`. `send(out=)` still takes flat rows.
        Observations of ViZDoom, which are the screen otherwise, are vizdoom's dict: screen,
        gamevariables and buffers. With from_pixels, observations are a dict of "pixels" and of
        "state" or dm_control's names.
      device: "cuda" or "cuda:1": a kernel on that GPU steps the environments, and arrays are torch
        tensors there. It works for environments whose `env_spec(id).runs_on_gpu` is True.
        mujoco_warp steps Gymnasium's -v5 MuJoCo tasks, MuJoCo-v0 and tasks of the DeepMind Control
        Suite there, with options nconmax and njmax: memory for contacts and rows of constraints of
        an environment. "cpu-emulation": that kernel as loops on the host, for tests. None: C++
        threads. With a device, the option obs_dtype ("float32", "float16", "bfloat16") is the dtype
        of float observations.
      env_options: Options of the environments; `rollouts.env_spec(id).options`
        lists them with their defaults. A list, tuple or (N,) array gives each
        environment its own value. All ids of a mixed pool must take them. Ranges may be
        written as Gymnasium writes them: healthy_z_range=(0.2, 1.0) is healthy_z_min=0.2
        and healthy_z_max=1.0.
        MuJoCo environments also take Gymnasium's options for frames, one value for all: width,
        height (480 pixels), camera_id or camera_name ("track" where the model has it),
        default_camera_config, max_geom, visual_options; Tag takes width and height. EnvPool's names
        work too: render_width, render_height, render_camera_id.
        With from_pixels=True, observations of MuJoCo environments are images (height, width, 3)
        uint8, 84 x 84 by default, to which the options for frames apply too; grayscale=True:
        (height, width).
        The option model={field: values} replaces fields of each environment's model, from the
        first episode on. The values have the form that `reset(options={"model": ...})` takes.
        "MuJoCo-v0" takes the user's model and functions: see `rollouts.own_model`.
        Wrappers around environments with one agent, for any id, give the results of Gymnasium's
        wrappers but run in the pool's threads, in this order (`docs/how_to/wrappers.md`):
        clip_action=True; rescale_action=True or (low, high); time_aware=True or "fraction";
        frame_stack=4; normalize_observation=True or {"epsilon", "clip"}; normalize_reward=True or
        {"gamma", "epsilon"}; clip_reward=c or (low, high).

    Returns:
      A VectorEnv, or a MultiAgentVectorEnv for an id of `rollouts.multi_agent_ids()`. For an id
      that type checkers cannot read, `make_multi_agent_vec` has the return type
      MultiAgentVectorEnv. It owns threads: close it or use it in a `with`.

    Raises:
      SpecError: Unknown id or option, a value out of range, not one value per
        environment, or environments whose spaces differ; a model field that does not
        exist, or values of another shape; for pin_threads also fewer CPUs than threads,
        or CPUs that this process may not use.
      EngineError: The engine behind the id is missing or not supported, or from_pixels finds no
        OpenGL that draws off screen.

    Example:
      with rollouts.make_vec("CartPole-v1", 64, seed=1) as env:
          obs, info = env.reset()
          obs, reward, terminated, truncated, info = env.step(env.action_space.sample())

      rollouts.make_vec("CartPole-v1", 64, pole_half_length=np.linspace(0.4, 0.6, 64))
      rollouts.make_vec(["ALE/Pong-v5"] * 8 + ["ALE/Breakout-v5"] * 8, full_action_space=True)
      rollouts.make_vec("Ant-v5", 64, model={"body_mass": rollouts.mujoco.Scaled(0.8, 1.2)})
    """
    pool_arguments: dict[str, Any] = {
        "batch_size": batch_size,
        "num_threads": num_threads,
        "on_env_error": on_env_error,
        "pin_threads": pin_threads,
        "render_mode": render_mode,
        "flatten_observation": flatten_observation,
    }
    arguments: dict[str, Any] = {
        "seed": seed,
        "autoreset_mode": autoreset_mode,
        "env_id_offset": env_id_offset,
        "max_episode_steps": max_episode_steps,
        "env_options": env_options,
    }
    ids, _ = read_ids(id, num_envs)
    cell = cell_of_id(ids[0], device)
    _check_cell(cell, ids, {**pool_arguments, "env_options": env_options}, num_envs)
    make_engine: Any = NativeEngine
    if device is None:
        arguments |= pool_arguments
    else:
        make_engine, arguments["device"] = _device_engine(cell), device
    return _face_of(make_engine(id, num_envs, **arguments))


def cell_of_id(id: str, device: str | None) -> Cell:
    """Returns the kind of environments that `make_vec` makes for an id."""
    if device is None:
        return Cell("native", is_multi_agent(id))
    from rollouts.envs.physics import supported

    if id in supported.PHYSICS_IDS or id in supported.ON_CPU_ALONE:
        return Cell("physics")
    return Cell("kernel", is_multi_agent(id))


def _check_cell(
    cell: Cell, ids: Sequence[str], given: Mapping[str, Any], num_envs: int | None
) -> None:
    """Refuses keywords that these environments do not have."""
    usual = {"batch_size": (None, num_envs), "on_env_error": ("raise",), "pin_threads": (False,)}
    usual |= {"num_threads": (None,), "render_mode": (None,), "flatten_observation": (True,)}
    asked = [
        name
        for name, values in usual.items()
        if not any(_is_equal(given[name], one) for one in values)
    ]
    asked += ["several ids"] if len({*ids}) > 1 else []
    asked += ["from_pixels"] if asks_for_pixels(given["env_options"]) else []
    check("make_vec", asked + asked_for(given["env_options"]), cell)


def _is_equal(value: object, usual: object) -> bool:
    """Returns whether a value is the usual one; False is not 0."""
    alike = isinstance(value, bool) == isinstance(usual, bool)
    return value is usual or (np.isscalar(value) and alike and bool(value == usual))


def _device_engine(cell: Cell) -> Any:
    """The engine that steps environments on a device."""
    # imports torch, and for physics Warp
    if cell.engine == "physics":
        from rollouts.envs.physics.physics_engine import PhysicsEngine

        return PhysicsEngine
    from rollouts.envs.kernel.kernel_engine import KernelEngine

    return KernelEngine


def _face_of(engine: Engine) -> VectorEnv[Any] | MultiAgentVectorEnv:
    return MultiAgentVectorEnv(engine) if engine.groups else VectorEnv(engine)


def make_pool(
    id: str | Sequence[str],
    num_envs: int | None,
    *,
    env_options: Mapping[str, Any],
    **arguments: Any,
) -> Any:
    """Makes a pool of threads with options from a file or a command line.

    Args:
      id, num_envs, arguments: As `make_vec`.
      env_options: Only options of the environment and of wrappers. It has no arguments of
        `make_vec`.

    Returns:
      A VectorEnv, or a MultiAgentVectorEnv where environments have several agents.

    Raises:
      SpecError: As `make_vec`.
    """
    return _face_of(NativeEngine(id, num_envs, env_options=env_options, **arguments))


def make_multi_agent_vec(
    id: str | Sequence[str], num_envs: int | None = None, **arguments: Any
) -> MultiAgentVectorEnv:
    """Makes a batch of environments with several agents: `make_vec` with the type of its result.

    Args:
      id, num_envs, arguments: As `make_vec`.

    Raises:
      SpecError: As `make_vec`; or environments with one agent.
    """
    env: VectorEnv[Any] | MultiAgentVectorEnv = make_vec(id, num_envs, **arguments)
    if isinstance(env, MultiAgentVectorEnv):
        return env
    env.close()
    raise SpecError(f"{env.env_spec.id} has one agent: make_vec makes a VectorEnv of it")
