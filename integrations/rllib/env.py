# SPDX-License-Identifier: Apache-2.0
"""Native pools as RLlib's vectorised environments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gymnasium.vector import AutoresetMode, VectorWrapper
from numpy.typing import ArrayLike, NDArray
from ray.rllib.env.env_context import EnvContext
from ray.tune.registry import ENV_CREATOR, _global_registry, register_env

import rollouts
from rollouts.batch import NUM_STEP_ARRAYS, StepBatch
from rollouts.checks import to_autoreset_mode
from rollouts.envs.native import NativeEngine
from rollouts.envs.registry import is_env_id, is_multi_agent
from rollouts.envs.wrappers import NORMALIZERS
from rollouts.errors import SpecError
from rollouts.own_env.registrations import travelling

from .masked_obs import WithActionMasks

Array = NDArray[Any]

PREFIX = "rollouts/"
# RLlib counts these itself, and makes a dict of infos per environment and step
_COUNTED = ("env_id", "episode_return", "episode_length")


class RolloutsVectorEnv(rollouts.VectorEnv):
    """A VectorEnv whose infos have the environment's own keys only."""

    @property
    def has_infos(self) -> bool:
        """Tells if the environment has infos of its own."""
        return bool(self.info_names)

    def reset(self, **kwargs: Any) -> tuple[Array, dict[str, Any]]:
        """As `rollouts.VectorEnv.reset`."""
        obs, info = super().reset(**kwargs)
        return obs, _own_keys(info)

    def step(
        self, actions: ArrayLike, env_id: ArrayLike | None = None, **kwargs: Any
    ) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        """As `rollouts.VectorEnv.step`."""
        *arrays, info = super().step(actions, env_id, **kwargs)
        obs, reward, terminated, truncated = arrays
        return obs, reward, terminated, truncated, _own_keys(info)

    def step_batch(self, actions: ArrayLike) -> StepBatch:
        """As `step`; returns what `recv_batch` does."""
        arrays = self.engine.step(actions, None, None)
        return StepBatch._make((*arrays[:NUM_STEP_ARRAYS], self.engine.columns(arrays)))


class BatchSteps(VectorWrapper):
    """Lets a same-step pool's `step` return plain arrays, without dicts of final observations."""

    env: RolloutsVectorEnv

    def step(  # type: ignore[override]
        self, actions: ArrayLike | Callable[[RolloutsVectorEnv], Any]
    ) -> Any:
        """Steps all environments and returns what `recv_batch` does.

        `actions` may also be a function of the pool, which steps it any number of times; its result
        is returned then.
        """
        return actions(self.env) if callable(actions) else self.env.step_batch(actions)


@dataclass(frozen=True)
class EnvCreator:
    """A picklable function that RLlib calls with its env_config in every worker.

    Attributes:
      id: As for `rollouts.make_vec`.
      options: Keyword arguments of `rollouts.make_vec`, and action_masks; env_config overrides
        them.
    """

    id: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def has_action_masks(self, env_config: Mapping[str, Any]) -> bool:
        """Tells if observations are to be dicts with masks of actions."""
        return bool({**self.options, **env_config}.get("action_masks"))

    def __call__(self, env_config: Mapping[str, Any]) -> RolloutsVectorEnv | WithActionMasks:
        """Makes the environments of one of RLlib's own runners.

        Raises:
          SpecError: RLlib wants single environments, or another autoreset mode was asked for.
        """
        if is_multi_agent(self.id):
            raise SpecError(
                f"{self.id} has several agents in each of a batch of environments: set "
                "config.env_runners(env_runner_cls=RolloutsMultiAgentEnvRunner)"
            )
        config = dict(env_config)
        num_envs = config.pop("num_envs", None)
        if num_envs is None:
            raise SpecError(
                f"{self.id} comes as a batch of environments: set config.env_runners("
                'gym_env_vectorize_mode="vector_entry_point"), got another vectorize mode'
            )
        return self.make(num_envs, config, AutoresetMode.NEXT_STEP)

    def make(
        self, num_envs: int, env_config: Mapping[str, Any], mode: AutoresetMode
    ) -> RolloutsVectorEnv | WithActionMasks:
        """Makes `num_envs` environments in an autoreset mode that the caller can handle."""
        arguments = self._arguments(num_envs, env_config)
        arguments["env_options"].pop("action_masks", None)
        engine = NativeEngine(self.id, num_envs, autoreset_mode=mode, **arguments)
        env = RolloutsVectorEnv(engine)
        return WithActionMasks(env) if self.has_action_masks(env_config) else env

    def make_agents(
        self, num_envs: int, env_config: Mapping[str, Any], mode: AutoresetMode
    ) -> rollouts.MultiAgentVectorEnv:
        """As `make`, of environments with several agents.

        Raises:
          SpecError: As `make`, or the environments have one agent.
        """
        if not is_multi_agent(self.id):
            raise SpecError(
                f"{self.id} has one agent: use RolloutsEnvRunner and leave "
                "config.multi_agent() out, or take one of rollouts.multi_agent_ids()"
            )
        arguments = self._arguments(num_envs, env_config)
        engine = NativeEngine(self.id, num_envs, autoreset_mode=mode, **arguments)
        return rollouts.MultiAgentVectorEnv(engine)

    def _arguments(self, num_envs: int, env_config: Mapping[str, Any]) -> dict[str, Any]:
        """Keyword arguments of a vector environment."""
        kwargs = {**self.options, **env_config}
        refuse_statistics(kwargs)
        asked = kwargs.pop("autoreset_mode", AutoresetMode.NEXT_STEP)
        if to_autoreset_mode(asked) is not AutoresetMode.NEXT_STEP:
            raise SpecError(
                f"autoreset_mode is {asked!r}, expected 'next_step' or none: RLlib takes "
                "next-step autoreset for granted and would record the next episode's first "
                "observation as the last of the one that ended"
            )
        names = ("batch_size", "num_threads", "seed", "max_episode_steps", "on_env_error")
        known = {name: kwargs.pop(name) for name in (*names, "pin_threads") if name in kwargs}
        if known.get("batch_size", num_envs) != num_envs:
            raise SpecError(
                f"batch_size is {known['batch_size']}, expected none: RLlib steps all "
                f"{num_envs} environments together"
            )
        known.setdefault("num_threads", _assigned_cpus(num_envs))
        return {**known, "env_options": kwargs}


def register(id: str, name: str | None = None, **options: Any) -> str:
    """Registers environments with RLlib, in this process and all of its Ray's workers.

    Args:
      id: One of `rollouts.env_ids()`, or of `rollouts.multi_agent_ids()` for our own runner.
      name: The name in RLlib; None: "rollouts/" and the id.
      options: Keyword arguments of `rollouts.make_vec`, such as max_episode_steps or an
        environment's own options, and action_masks=True for observations that are dicts of
        "action_mask" and "observations"; the config's env_config overrides them.

    Returns:
      The name, for `config.environment(env=...)`.

    Raises:
      SpecError: There is no such id.
    """
    if not is_env_id(id):
        raise SpecError(f"unknown environment id {id!r}; `rollouts.env_ids()` lists all")
    refuse_statistics(options)
    known_as = name or PREFIX + id
    # `travelling` brings an environment of the user's own along to workers
    register_env(known_as, EnvCreator(travelling(id), options))
    return known_as


def refuse_statistics(options: Mapping[str, Any]) -> None:
    """Raises SpecError for wrappers with running statistics: RLlib keeps only the statistics of
    connectors.

    RLlib merges and saves the statistics of a MeanStdFilter and hands them to evaluation. Each pool
    would keep its own, and begin anew where an algorithm is restored.
    """
    asked = [name for name in NORMALIZERS if options.get(name) not in (None, False)]
    if asked:
        raise SpecError(
            f"{' and '.join(asked)}: RLlib neither merges nor saves the statistics of a pool; set "
            "config.env_runners(env_to_module_connector=lambda env, spaces, device: "
            "MeanStdFilter()), of ray.rllib.connectors.env_to_module, for observations"
        )


def creator_of(env: object) -> EnvCreator | None:
    """The creator behind a config's env; None where it is not an environment of ours.

    Ours are a name given to `register`, and an id of ours with or without "rollouts/".
    """
    if not isinstance(env, str):
        return None
    if _global_registry.contains(ENV_CREATOR, env):
        creator = _global_registry.get(ENV_CREATOR, env)
        return creator if isinstance(creator, EnvCreator) else None
    env_id = env.removeprefix(PREFIX)
    return EnvCreator(env_id) if is_env_id(env_id) else None


def context_of(runner: Any) -> EnvContext:
    """The env_config of a runner, with the numbers of workers that RLlib adds."""
    env_config = runner.config.env_config
    if isinstance(env_config, EnvContext):
        return env_config
    return EnvContext(
        env_config,
        worker_index=runner.worker_index,
        num_workers=runner.num_workers,
        remote=runner.config.remote_worker_envs,
    )


def require_next_step(env: Any) -> None:
    """Refuses a vector environment that RLlib's own loop would record wrongly.

    Raises:
      SpecError: Its autoreset mode is not next-step.
    """
    mode = env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
    if mode is not AutoresetMode.NEXT_STEP:
        raise SpecError(
            f"{env} has the autoreset mode {mode}, expected {AutoresetMode.NEXT_STEP}: RLlib "
            "would record the next episode's first observation as the last of the one that ended"
        )


def _assigned_cpus(num_envs: int) -> int | None:
    """Threads for a Ray worker's share of CPUs; outside of workers None, which means all CPUs."""
    import ray

    if not ray.is_initialized():
        return None
    context: Any = ray.get_runtime_context()
    if context.get_actor_id() is None:
        return None
    cpus = context.get_assigned_resources().get("CPU")
    return None if not cpus else max(1, min(int(cpus), num_envs))


def _own_keys(info: dict[str, Any]) -> dict[str, Any]:
    return {name: values for name, values in info.items() if name not in _COUNTED}
