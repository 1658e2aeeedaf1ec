# SPDX-License-Identifier: Apache-2.0
"""`from_parallel_env_fns`: any PettingZoo environments, in processes, as one batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gymnasium.vector import AutoresetMode

from rollouts.env_fns.agents.one_env import ParallelEnvFn, agent_groups
from rollouts.env_fns.agents.vector_env import ParallelEnvsVectorEnv

__all__ = ["ParallelEnvsVectorEnv", "agent_groups", "from_parallel_env_fns"]


def from_parallel_env_fns(
    env_fns: Sequence[ParallelEnvFn],
    *,
    num_processes: int | None = None,
    batch_size: int | None = None,
    seed: int | None = None,
    autoreset_mode: str | AutoresetMode = "next_step",
    env_id_offset: int = 0,
    on_env_error: str = "raise",
    start_method: str | None = None,
) -> ParallelEnvsVectorEnv:
    """Hosts any PettingZoo `ParallelEnv`s in processes, with the interface of a native pool.

    What `from_env_fns` is for environments with one agent. Agents may come and go: `active` says
    who took part in a step, and what an environment tells of others is ignored. One that comes late
    or again begins as a new one, with a return of its own. An environment's episode is over when
    all of its agents have left or ended. AEC
    environments go through `pettingzoo.utils.conversions.aec_to_parallel`.

    Args:
      env_fns: N functions without arguments, each of which makes a ParallelEnv whose
        possible_agents are the same. They are called in the processes only.
      num_processes, batch_size, seed, autoreset_mode, env_id_offset, on_env_error, start_method:
        As `from_env_fns`.

    Returns:
      What `make_vec` makes of a native id with several agents, but for states and options. It owns
      processes: close it or use it in a `with`.

    Raises:
      SpecError: An argument is wrong, or the environments' agents or spaces differ.
      EnvError: An environment cannot be made. WorkerError: A process died while it made one.

    Example:
      with rollouts.from_parallel_env_fns([simple_spread_v3.parallel_env] * 64) as envs:
          obs, info = envs.reset(seed=0)
          obs, reward, terminated, truncated, info = envs.step(envs.action_space.sample())
    """
    arguments: dict[str, Any] = {
        "num_processes": num_processes,
        "batch_size": batch_size,
        "seed": seed,
        "autoreset_mode": autoreset_mode,
        "env_id_offset": env_id_offset,
        "on_env_error": on_env_error,
        "start_method": start_method,
    }
    return ParallelEnvsVectorEnv(env_fns, **arguments)
