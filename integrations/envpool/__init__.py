# SPDX-License-Identifier: Apache-2.0
"""A module that scripts written for EnvPool can use in its place.

What to change, either one line of the script

    import rollouts.integrations.envpool as envpool        # was: import envpool

or none of it, where another library imports envpool (TorchRL, rl_games, Tianshou, Sample Factory):

    import rollouts.integrations.envpool
    rollouts.integrations.envpool.install()                # before they import envpool

Episodes follow EnvPool's rule: the step after an episode's end ignores its action and returns
the next episode's first observation. Ids and options are EnvPool's ("Pong-v5", frame_skip);
our own ids and, for light environments, our options work too.

`env_type` chooses the interface:
  "gymnasium"  (obs, reward, terminated, truncated, info); reset returns (obs, info).
  "gym"        the API of gym < 0.26, for which CleanRL's and Cleanba's scripts were written:
               (obs, reward, done, info), reset returns obs. With gym_reset_return_info=True, or
               after `install(gym_api="new")`, as "gymnasium". EnvPool >= 1.0 makes no such
               difference any more: there "gym" means "gymnasium".
  "dm"         `dm_env.TimeStep`s of arrays.

What differs from EnvPool, on purpose:
  * An environment's failure, a wrong action, an id twice and a recv that would never return are
    errors; there they end the process, corrupt data or hang.
  * `terminated` and `truncated` are independent; there the last allowed step is never terminated.
  * `seed` gives other random numbers than EnvPool's, and `reset(seed=...)` works.
  * `info` always has reward (unclipped), terminated (the game is over, int32), lives (0 where there
    are none), TimeLimit.truncated and all that the environment itself reports. An info for which
    EnvPool has a name of its own is also there under Gymnasium's name. "dm" has no
    TimeLimit.truncated.
  * MiniGrid and BabyAI report no agent_pos.
  * Bounds of observations are Gymnasium's and dm_control's. Parts of observations that a task
    lacks, while other tasks of its dm_control domain have them, are zero, and so is the origin of
    QuadrupedFetch.
  * Actions of MuJoCo are float64 in spaces, as there; the simulation gets them as float32.
  * There are no qpos0 and qvel0, which only builds of EnvPool for its own tests have.
  * elapsed_step and max_episode_steps count from the last reset: with episodic_life the steps of a
    life, where EnvPool counts those of a game.
  * `render` draws MuJoCo, Atari and classic control, the latter two in their own size. Where no
    camera is named, a MuJoCo model's own tracking camera is taken. There is no from_pixels.
  * There is one player.
"""

from __future__ import annotations

import sys
from typing import Any

from rollouts.integrations.envpool import python
from rollouts.integrations.envpool.envpool_options import OLD_ALIASES, gym_default
from rollouts.integrations.envpool.python.dm_envpool import DMEnvPool
from rollouts.integrations.envpool.python.env_spec import EnvSpec, make_spec
from rollouts.integrations.envpool.python.envpool import EnvPoolMixin
from rollouts.integrations.envpool.python.gym_envpool import GymEnvPool
from rollouts.integrations.envpool.python.gymnasium_envpool import GymnasiumEnvPool

import rollouts
from rollouts import env_ids
from rollouts.errors import ProtocolError, SpecError

__version__ = rollouts.__version__

# type of all environments of this module, for annotations
EnvPool = EnvPoolMixin

__all__ = [
    "DMEnvPool",
    "EnvPool",
    "EnvPoolMixin",
    "EnvSpec",
    "GymEnvPool",
    "GymnasiumEnvPool",
    "install",
    "list_all_envs",
    "make",
    "make_dm",
    "make_gym",
    "make_gymnasium",
    "make_spec",
    "python",
]


def make(task_id: str, env_type: str, **kwargs: Any) -> Any:
    """Makes a batch of environments with EnvPool's interface.

    Args:
      task_id: Such as "Pong-v5" or "CartPole-v1"; `list_all_envs()` has all.
      env_type: "gym", "gymnasium" or "dm".
      kwargs: num_envs (default 1), batch_size (0: num_envs), num_threads (0: as many as may be
        used), seed (42; an int or one per environment), max_episode_steps, thread_affinity_offset
        (-1: threads are not pinned), reward_threshold, gym_reset_return_info, max_num_players
        (1), base_path (ignored), and options of the environment. For Atari: stack_num, frame_skip,
        noop_max, episodic_life, reward_clip, use_fire_reset, img_height, img_width, gray_scale,
        mode, difficulty, full_action_space, repeat_action_probability, zero_discount_on_life_loss
        and use_inter_area_resize, with EnvPool's defaults. For MuJoCo: frame_stack (1). For
        MiniGrid and BabyAI: mission_bytes (96, 512). flatten_observation=True, which EnvPool
          lacks, gives rows in place of dicts.

    Raises:
      SpecError: Unknown id, type or option; the message lists those there are.
      EngineError: The engine behind the id, or for "dm" the package dm-env, is missing.
    """
    makers = {"gym": make_gym, "gymnasium": make_gymnasium, "dm": make_dm}
    if env_type not in makers:
        raise SpecError(f"env_type is {env_type!r}, expected one of {', '.join(makers)}")
    return makers[env_type](task_id, **kwargs)


def make_dm(task_id: str, **kwargs: Any) -> DMEnvPool:
    """As `make` with env_type="dm"."""
    return DMEnvPool(make_spec(task_id, **kwargs))


def make_gym(task_id: str, **kwargs: Any) -> GymEnvPool | GymnasiumEnvPool:
    """As `make` with env_type="gym", which is "gymnasium" where the new API is installed."""
    kwargs.setdefault("gym_reset_return_info", gym_default.returns_info)
    spec = make_spec(task_id, **kwargs)
    return GymnasiumEnvPool(spec) if spec.config.gym_reset_return_info else GymEnvPool(spec)


def make_gymnasium(task_id: str, **kwargs: Any) -> GymnasiumEnvPool:
    """As `make` with env_type="gymnasium"."""
    if kwargs.get("gym_reset_return_info") is False:
        raise SpecError(
            "gym_reset_return_info is False, expected True: Gymnasium's reset returns "
            "(obs, info); use env_type='gym' for the old API"
        )
    return GymnasiumEnvPool(make_spec(task_id, **kwargs))


def list_all_envs() -> list[str]:
    """Every id that `make` takes, as EnvPool writes them."""
    return [env_id.removeprefix("ALE/") for env_id in env_ids()] + sorted(OLD_ALIASES)


def install(*, gym_api: str = "old") -> None:
    """Puts this module into `sys.modules` as `envpool`, for code that imports that.

    Args:
      gym_api: What env_type="gym" means where gym_reset_return_info is not given: "old", the API
        of gym < 0.26 and of EnvPool of that time, or "new", that of "gymnasium" and EnvPool >= 1.0.
        Sample Factory's examples need "new".

    Raises:
      SpecError: Another gym_api. ProtocolError: EnvPool itself was imported before.
    """
    if gym_api not in ("old", "new"):
        raise SpecError(f"gym_api is {gym_api!r}, expected 'old' or 'new'")
    this = sys.modules[__name__]
    if sys.modules.get("envpool", this) is not this:
        raise ProtocolError(
            "EnvPool itself is imported already: call install() before anything imports envpool"
        )
    gym_default.returns_info = gym_api == "new"
    # makes `import envpool.python.envpool` find the modules of `python`
    inner = f"{__name__}.python"
    names = {name for name in sys.modules if name == inner or name.startswith(inner + ".")}
    for name in {__name__} | names:
        sys.modules["envpool" + name.removeprefix(__name__)] = sys.modules[name]
    sys.modules["envpool.registration"] = this
