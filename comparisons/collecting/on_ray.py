# SPDX-License-Identifier: Apache-2.0
"""Other libraries' collectors on Ray, to measure next to ours: see `rollouts.bench.collect`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

from comparisons.stepping.vector_libraries import gymnasium_maker
from rollouts.bench.collect_task import Task
from rollouts.errors import EngineError, SpecError
from rollouts.support.extras import needs
from rollouts.workers.on_ray.ray_session import check_connected

with needs("ray", "a peer of `rollouts bench collect`"):
    import ray as _typed_ray

# ray annotates only half of what it exports
ray: Any = _typed_ray


class _StepByStep:
    """A contestant that asks a policy and steps all its environments, T times a rollout."""

    _rollout_length: int

    def _step(self) -> Any:
        raise NotImplementedError

    def resume(self) -> None:
        self._step()

    def collect(self) -> int:
        kept = [self._step() for _ in range(self._rollout_length)]
        return sum(map(len, kept))

    def pause(self) -> None:
        """Every step is over when it returns."""


class EnvActors(_StepByStep):
    """One Gymnasium environment per Ray actor; a step sends to all and waits for all.

    Works like Tianshou's RayVectorEnv without its bookkeeping. After an episode the actor itself
    resets, which takes another round trip in Tianshou.
    """

    name = "one env per Ray actor"
    api = "ray.get"

    def __init__(self, task: Task, num_envs: int) -> None:
        """Starts the actors in the Ray that this process is connected to.

        Raises:
          SpecError: Gymnasium does not have the environment, or not with these options.
          EngineError: A library it needs is missing.
        """
        check_connected()
        make, _, differs = gymnasium_maker(task.settings, task.spec)
        self.num_envs, self.num_threads = num_envs, 1
        self.notes: tuple[str, ...] = (
            f"{num_envs} actors, stepped by one ray.get of all, as Tianshou's RayVectorEnv does; "
            "it keeps the observations only.",
            *differs,
        )
        self._rollout_length = task.rollout_length
        self._policy = task.local_policy(num_envs)
        recipe = ray.cloudpickle.dumps(make)
        # without regard to Ray's CPUs, because the actors wait most of the time
        actor_class = ray.remote(num_cpus=0, max_restarts=0)(_make_env_actor())
        self._actors = [actor_class.remote(list(sys.path), recipe) for _ in range(num_envs)]
        seed = task.settings.seed % 2**31
        self._obs = self._gather([a.reset.remote(seed + i) for i, a in enumerate(self._actors)])

    def version(self) -> str:
        return str(ray.__version__)

    def close(self) -> None:
        if ray.is_initialized():
            for actor in self._actors:
                ray.kill(actor)

    def _step(self) -> Any:
        actions = self._policy.act(self._obs).action
        results = ray.get(
            [a.step.remote(action) for a, action in zip(self._actors, actions, strict=True)]
        )
        self._obs = np.stack([result[0] for result in results])
        return self._obs

    def _gather(self, refs: list[Any]) -> Any:
        return np.stack(ray.get(refs))


class TianshouEnvs(_StepByStep):
    """Tianshou's own RayVectorEnv: an actor per environment, reset by the caller."""

    name = "Tianshou RayVectorEnv"
    api = "step"

    def __init__(self, task: Task, num_envs: int) -> None:
        """Starts the actors in the Ray that this process is connected to.

        Raises:
          SpecError: Gymnasium does not have the environment, or not with these options.
          EngineError: Tianshou, or a library it needs, is missing.
        """
        check_connected()
        tianshou = _load("tianshou", "tianshou.env", "Tianshou", "pip install tianshou")
        self._version = str(importlib.import_module("tianshou").__version__)
        make, _, differs = gymnasium_maker(task.settings, task.spec)
        self.num_envs, self.num_threads = num_envs, 1
        self.notes: tuple[str, ...] = (
            f"{num_envs} actors; an episode's end costs another round trip, as Tianshou has no "
            "autoreset; it keeps the observations only.",
            *differs,
        )
        self._rollout_length = task.rollout_length
        self._policy = task.local_policy(num_envs)
        self._env = tianshou.RayVectorEnv([make] * num_envs)
        seed = task.settings.seed % 2**31
        self._env.seed([seed + i for i in range(num_envs)])
        self._obs = np.stack(self._env.reset()[0])

    def version(self) -> str:
        return self._version

    def close(self) -> None:
        if ray.is_initialized():
            self._env.close()

    def _step(self) -> Any:
        obs, _, terminated, truncated, _ = self._env.step(self._policy.act(self._obs).action)
        self._obs = np.stack(obs)
        ended = np.flatnonzero(terminated | truncated)
        if ended.size:
            self._obs[ended] = np.stack(self._env.reset(ended)[0])
        return self._obs


class RLlibRunner:
    """RLlib's SingleAgentEnvRunner with its own vector environment, in this process."""

    name = "RLlib SingleAgentEnvRunner"
    api = "sample"

    def __init__(self, task: Task, num_envs: int) -> None:
        """Makes the runner.

        Raises:
          SpecError: observations are not vectors, or options are set.
          EngineError: RLlib cannot be imported.
        """
        runner, config = _rllib_runner(task, num_envs)
        self.num_envs, self.num_threads = num_envs, task.settings.num_threads
        self.notes: tuple[str, ...] = ("In this process, as a local worker: no transport.",)
        self._num_timesteps = num_envs * task.rollout_length
        self._is_random = task.policy.name == "random"
        self._runner = runner(config=config)

    def version(self) -> str:
        return str(ray.__version__)

    def resume(self) -> None:
        self.collect()

    def collect(self) -> int:
        episodes = self._runner.sample(
            num_timesteps=self._num_timesteps, random_actions=self._is_random
        )
        return sum(len(episode) for episode in episodes)

    def pause(self) -> None:
        """Nothing else runs during `sample`."""

    def close(self) -> None:
        self._runner.stop()


class RLlibActors:
    """RLlib's SingleAgentEnvRunner as Ray actors with one environment each, RLlib's default."""

    name = "RLlib, one env per Ray actor"
    api = "ray.get"

    def __init__(self, task: Task, num_envs: int) -> None:
        """Starts the actors in the Ray that this process is connected to.

        Raises:
          SpecError: observations are not vectors, or options are set.
          EngineError: RLlib cannot be imported.
        """
        check_connected()
        runner, config = _rllib_runner(task, 1)
        self.num_envs, self.num_threads = num_envs, 1
        self.notes: tuple[str, ...] = (
            f"{num_envs} actors with num_envs_per_env_runner=1; each is asked for its next sample "
            "as soon as the last one has arrived.",
        )
        self._sample = {
            "num_timesteps": task.rollout_length,
            "random_actions": task.policy.name == "random",
        }
        # as many as wished, whatever CPUs Ray has
        actor_class = ray.remote(num_cpus=0, max_restarts=0)(runner)
        self._actors = [
            actor_class.remote(config=config, worker_index=1 + i, num_workers=num_envs)
            for i in range(num_envs)
        ]
        self._pending: dict[Any, Any] = {}

    def version(self) -> str:
        return str(ray.__version__)

    def resume(self) -> None:
        # the first samples include the start of the processes
        ray.get([actor.sample.remote(**self._sample) for actor in self._actors])
        for actor in self._actors:
            self._ask(actor)

    def collect(self) -> int:
        ready, _ = ray.wait(list(self._pending), num_returns=1)
        actor = self._pending.pop(ready[0])
        episodes = ray.get(ready[0])
        self._ask(actor)
        return sum(len(episode) for episode in episodes)

    def pause(self) -> None:
        # the samples under way end, and are thrown away, before the next library's turn
        ray.get(list(self._pending))
        self._pending.clear()

    def close(self) -> None:
        if ray.is_initialized():
            for actor in self._actors:
                ray.kill(actor)

    def _ask(self, actor: Any) -> None:
        self._pending[actor.sample.remote(**self._sample)] = actor


def _rllib_runner(task: Task, num_envs: int) -> tuple[Any, Any]:
    """Returns RLlib's stock env runner class and the configuration for it."""
    space = task.spec.single_observation_space
    if not isinstance(space, gymnasium.spaces.Box) or len(space.shape) != 1:
        raise SpecError(
            f"RLlib is measured with vector observations, got id {task.spec.id!r} "
            f"with {space}: leave this peer out"
        )
    gymnasium_maker(task.settings, task.spec)
    ppo, runner, module = _load_rllib()
    config = (
        ppo.PPOConfig()
        .environment(task.spec.id)
        .env_runners(num_envs_per_env_runner=num_envs, rollout_fragment_length=task.rollout_length)
        .rl_module(
            model_config=module.DefaultModelConfig(
                fcnet_hiddens=list(task.policy.hidden or (64, 64)), fcnet_activation="tanh"
            )
        )
        .debugging(seed=task.settings.seed % 2**31)
    )
    return runner.SingleAgentEnvRunner, config


def _load_rllib() -> tuple[Any, Any, Any]:
    names = (
        "ray.rllib.algorithms.ppo",
        "ray.rllib.env.single_agent_env_runner",
        "ray.rllib.core.rl_module.default_model_config",
    )
    install = "pip install 'ray[rllib]' 'gymnasium==1.2.2'"
    ppo, runner, module = (_load("rllib", name, "RLlib", install) for name in names)
    return ppo, runner, module


def _load(peer: str, module: str, library: str, install: str) -> Any:
    """Imports a module of a peer's library; raises EngineError that says what to install."""
    try:
        return importlib.import_module(module)
    except Exception as error:  # some raise more than ImportError
        raise EngineError(
            f"peer {peer!r} needs {library}, which cannot be imported ({error!r}): run "
            f"`{install}`, or leave this peer out"
        ) from error


def _make_env_actor() -> type:
    """Makes the actor's class: a local one, so that Ray ships its code with it."""

    class EnvActor:
        def __init__(self, sys_path: list[str], recipe: bytes) -> None:
            import pickle
            import sys

            # the recipe has to import the same modules as the driver
            sys.path[:] = sys_path + [entry for entry in sys.path if entry not in sys_path]
            make: Callable[[], gymnasium.Env[Any, Any]] = pickle.loads(recipe)
            self._env = make()

        def reset(self, seed: int) -> Any:
            return self._env.reset(seed=seed)[0]

        def step(self, action: Any) -> tuple[Any, float, bool, bool]:
            obs, reward, terminated, truncated, _ = self._env.step(action)
            if terminated or truncated:
                obs, _ = self._env.reset()
            return obs, float(reward), terminated, truncated

    return EnvActor
