# SPDX-License-Identifier: Apache-2.0
"""`from_env_fns`, `from_parallel_env_fns`: any Python environments, stepped as a pool.

Files in reading order: `leaves` (spaces as arrays), in `processes/` `shared_memory`, `wire`,
`identity` (classes shared by both sides), `copies`, `begin`, `episode_rules`, `worker`,
`lifecycle`, `host`, `process_host`, `local_host` (environments in this process) and `trial` (the
default number of processes), then `batches` and `infos` (what a step returns), `in_flight`,
`counts`, `sender`, `receiver`, `resets` and `async_calls` (one part each), and `hosted_engine`,
which puts them together. `agents/` has the additions for PettingZoo's environments.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import gymnasium
from gymnasium.vector import AutoresetMode

from rollouts.envs.hosted.agents.one_env import ParallelEnvAsOne, ParallelEnvFn
from rollouts.envs.hosted.batch_spaces import checked_functions
from rollouts.envs.hosted.hosted_engine import HostedEngine
from rollouts.envs.hosted.processes.failures import SpacesDifferError
from rollouts.envs.hosted.processes.records import EnvFn
from rollouts.envs.multi_agent_env import MultiAgentVectorEnv
from rollouts.envs.vector_env import VectorEnv

__all__ = ["HostedEngine", "SpacesDifferError", "from_env_fns", "from_parallel_env_fns"]


def from_env_fns(
    env_fns: Sequence[EnvFn],
    *,
    num_processes: int | None = None,
    batch_size: int | None = None,
    seed: int | None = None,
    autoreset_mode: str | AutoresetMode = "next_step",
    env_id_offset: int = 0,
    on_env_error: str = "raise",
    start_method: str | None = None,
    observation_mode: str | tuple[gymnasium.Space[Any], gymnasium.Space[Any]] = "same",
    episode_statistics: bool | None = None,
    copy: bool = True,
) -> VectorEnv:
    """Hosts any Gymnasium environments in processes: several in each, one message per step.

    Actions and results lie in memory that the processes share; what fits no array (infos, spaces
    such as Text and Graph) is pickled. A process that dies is started again; only the episodes of
    its environments are lost.

    It differs from Gymnasium's AsyncVectorEnv in these ways. An environment's exception becomes the
    `__cause__` of an EnvError, without warnings, and its process lives on. Actions reach an
    environment in the dtype of its action space. It accepts what AsyncVectorEnv refuses: spaces of
    any kind, and a reset_mask that marks nothing, which resets nothing. No info is cast or refused:
    numbers of several types get a type that holds them all, and what fits no array is a column of
    objects.

    Info keys that the library uses (`env_id`, `episode_return`, `episode_length`, `env_error`, and
    those that begin with `final_`, with or without an underscore before them) are shown as
    `env_info:<key>` if an environment reports them.

    Args:
      env_fns: N functions without arguments, each of which makes a `gymnasium.Env`. They are
        called in the process that steps the environment. With start methods other than "fork" they
        are pickled (by cloudpickle, so lambdas work).
      num_processes: Processes P. Environments of one process step one after the other;
        environment i belongs to process i * P // N or a neighbour of it. 0: this process, in the
        thread that sends, as in SyncVectorEnv: for environments so cheap that messages cost more,
        and for a debugger. None: one for each CPU that this process may use if steps compute, and
        more, up to one for each environment, if they wait (for a simulator, the network, a clock).
        With more environments than CPUs a trial decides: the first function makes an environment in
        a process of its own, which is reset, stepped with random actions for about 20 ms, and
        closed. Give a number where a trial does harm, or where the first environment is unlike the
        others. A RuntimeWarning follows if environments turn out to wait one after the other while
        CPUs idle; where warnings are errors, the batch comes with the next recv.
      batch_size: Rows B of a recv. None or N: synchronous, every environment steps together.
        Less than N: asynchronous, recv returns the first B to finish.
      seed: Seed of the first reset: environment i is reset with seed + env_id. None: unseeded. The
        global generators of NumPy, `random` and torch get other seeds in each process, derived from
        seed or, without one, from what NumPy's would draw next in a fork of this process.
      autoreset_mode: "next_step" (Gymnasium's default), "same_step" (the last observation comes
        as final_obs) or "disabled" (reset by reset_mask).
      env_id_offset: Global id of the first environment; see `make_vec`.
      on_env_error: What follows an environment's failure, be it an exception or the end of its
        process. Its row is truncated and its next episode begins as after any end, in an
        environment that is made anew if reset fails. In addition, "raise" raises EnvError in recv,
        before the batch, and "reset" reports the failure in info["env_error"].
      start_method: "fork", "forkserver" or "spawn"; None: multiprocessing's default. After
        "fork" an environment must not use threads or devices that this process has opened; torch,
        where this process has imported it, computes with one thread there.
      observation_mode: "same", "different" (equal shapes and dtypes, other bounds) or a pair of
        the batched and the single observation space, as in Gymnasium.
      episode_statistics: Whether info has env_id, episode_return and episode_length, as that of
        `make_vec` has. None: in asynchronous mode only, so that a synchronous one returns
        exactly what Gymnasium's own vector environments return. `recv_batch` always has them.
      copy: False returns views of the shared memory as observations in synchronous mode, valid
        until the next send.

    Returns:
      The vector environment. It owns processes: close it or use it in a `with`. Observations and
      actions are nested as the batched spaces. It has the attributes of every VectorEnv, and also
      `call`, `get_attr`, `set_attr`, `num_processes`, and AsyncVectorEnv's `reset_async`,
      `reset_wait`, `step_async` and `step_wait`; states, options and models are missing.

    Raises:
      SpecError, DTypeError: An argument is wrong, or the environments' spaces differ.
      EnvError: An environment cannot be made; the message has its traceback.
      WorkerError: A process died while it made its environments.

    Example:
      with rollouts.from_env_fns([lambda: gymnasium.make("CartPole-v1")] * 64) as envs:
          obs, info = envs.reset(seed=0)
          obs, reward, terminated, truncated, info = envs.step(envs.action_space.sample())
    """
    engine = HostedEngine(
        env_fns,
        num_processes=num_processes,
        batch_size=batch_size,
        seed=seed,
        autoreset_mode=autoreset_mode,
        env_id_offset=env_id_offset,
        on_env_error=on_env_error,
        start_method=start_method,
        observation_mode=observation_mode,
        episode_statistics=episode_statistics,
        copy=copy,
    )
    return VectorEnv(engine)


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
) -> MultiAgentVectorEnv:
    """Hosts any PettingZoo `ParallelEnv`s in processes, with the interface of a native pool.

    The counterpart of `from_env_fns` for environments with several agents. Agents may come and go:
    `active` tells which of them took part in a step, and results for the others are ignored. An
    agent that comes late or comes back starts with a return of 0. An environment's episode is over
    when all of its agents have left or ended. AEC environments go through
    `pettingzoo.utils.conversions.aec_to_parallel`.

    Args:
      env_fns: N functions without arguments, each of which makes a ParallelEnv whose
        possible_agents are the same. They are called in the processes only.
      num_processes, batch_size, seed, autoreset_mode, env_id_offset, on_env_error, start_method:
        As `from_env_fns`.

    Returns:
      A MultiAgentVectorEnv, as `make_vec` makes it of a native id with several agents, but without
      states and options. It owns processes: close it or use it in a `with`. Observations of agents
      that are not there are zeros. Infos of an environment's agents are in `info["agent_infos"]`,
      an object array of mappings agent -> info. Where same-step autoreset ended an episode, the
      array has the infos of the reset.

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
    functions = checked_functions(env_fns, "pettingzoo.butterfly.pistonball_v6.parallel_env")
    one_envs = [functools.partial(ParallelEnvAsOne, make) for make in functions]
    return MultiAgentVectorEnv(HostedEngine(one_envs, has_agents=True, **arguments))
