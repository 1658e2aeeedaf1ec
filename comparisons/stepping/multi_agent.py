# SPDX-License-Identifier: Apache-2.0
"""Other libraries' environments with several agents."""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.metadata
import io
import sys
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from comparisons.stepping.vector_libraries import load
from rollouts.bench.measurement import Settings
from rollouts.bench.own_pools import OpenEnv
from rollouts.envs.hosted import from_parallel_env_fns
from rollouts.errors import SpecError
from rollouts.specs import EnvSpec

Groups = Mapping[str, Any]  # group -> (rows, agents, ...)

# options of ours that WarpDrive's constructors do not have
_OURS = ("start_seed", "randomize_starts")


class WarpDrive:
    """WarpDrive's own Python step of Tag, one environment: it has no vectorisation on a CPU."""

    name = "warpdrive"

    def version(self) -> str:
        """The installed version; its environments are in a package of their own."""
        # WarpDrive imports Gym for the spaces alone, which have the same names in Gymnasium
        for name in ("gym", "gym.spaces"):
            sys.modules.setdefault(name, importlib.import_module(name.replace("gym", "gymnasium")))
        load("example_envs.tag_continuous.tag_continuous", "rl-warp-drive", peer=self.name)
        return importlib.metadata.version("rl-warp-drive")

    def make(self, settings: Settings, spec: EnvSpec) -> OpenEnv:
        """Makes one environment, which is stepped num_envs times."""
        version = self.version()
        options = {name: value for name, value in spec.options.items() if name not in _OURS}
        arguments: dict[str, Any] = {**options, "episode_length": spec.max_episode_steps}
        if spec.id == "TagContinuous-v0":
            module = importlib.import_module("example_envs.tag_continuous.tag_continuous")
            env = module.TagContinuous(**arguments, seed=spec.options["start_seed"])
        elif spec.id == "TagGridWorld-v0":
            module = importlib.import_module("example_envs.tag_gridworld.tag_gridworld")
            env = module.TagGridWorld(**arguments)
        else:
            raise SpecError(f"peer 'warpdrive' has no environment {spec.id!r}: leave this peer out")
        return OpenEnv(
            self.name,
            version,
            _WarpDriveDriver(env),
            num_envs=1,
            batch_size=1,
            num_threads=1,
            start=env.reset,
            close=lambda: None,
            options=arguments,
            notes=("Its Python step, of one environment; rates are per environment.",),
            translate=_by_number,
        )


class _WarpDriveDriver:
    """Steps, and resets where an episode is over."""

    def __init__(self, env: Any) -> None:
        self._env = env

    def step(self, actions: Any) -> Any:
        obs, reward, done, info = self._env.step(actions)
        if done["__all__"]:
            self._env.reset()
        return obs, reward, done, info


def _by_number(actions: Groups) -> dict[int, Any]:
    rows = np.concatenate([group[0] for group in actions.values()])
    return dict(enumerate(rows))


class SuperSuit:
    """mpe2 under SuperSuit's vectorisation: processes that step Python environments."""

    name = "supersuit"

    def version(self) -> str:
        """Versions of both."""
        load("supersuit", "supersuit", peer=self.name)
        load("mpe2", "mpe2", peer=self.name)
        versions = [importlib.metadata.version(name) for name in ("supersuit", "mpe2")]
        return f"{versions[0]} with mpe2 {versions[1]}"

    def make(self, settings: Settings, spec: EnvSpec) -> OpenEnv:
        """Makes num_envs environments, which num_threads processes step."""
        version = self.version()
        if len(spec.groups) > 1:
            raise SpecError(
                f"peer 'supersuit' steps one group of agents, and {spec.id} has the groups "
                f"{[group.name for group in spec.groups]}: leave this peer out"
            )
        supersuit = importlib.import_module("supersuit")
        module, arguments = _find_mpe2(self.name, settings, spec)
        # SuperSuit prints where it converts a space
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            one = supersuit.pettingzoo_env_to_vec_env_v1(module.parallel_env(**arguments))
            env = supersuit.concat_vec_envs_v1(
                one, settings.num_envs, num_cpus=settings.num_threads, base_class="gymnasium"
            )
        agents = spec.groups[0].num_agents
        return OpenEnv(
            self.name,
            version,
            env,
            num_envs=settings.num_envs,
            batch_size=settings.num_envs,
            num_threads=settings.num_threads,
            start=env.reset,
            close=env.close,
            options=arguments,
            notes=(f"{settings.num_threads} processes; autoreset is same-step.",),
            translate=lambda actions: _as_rows(actions, settings.num_envs * agents),
        )


def _find_mpe2(peer: str, settings: Settings, spec: EnvSpec) -> tuple[Any, dict[str, Any]]:
    """The module of mpe2 for an id's environment, and the arguments of its functions."""
    try:
        module = importlib.import_module(f"mpe2.{spec.id}")
    except ImportError as error:
        raise SpecError(f"peer {peer!r} has no environment {spec.id!r}: {error}") from error
    # mpe2 has the same defaults, and the same names of options
    return module, {**settings.env_options, "max_cycles": spec.max_episode_steps}


def _as_rows(actions: Any, rows: int) -> Any:
    array = next(iter(actions.values())) if isinstance(actions, Mapping) else actions
    return np.asarray(array).reshape(rows, *np.shape(array)[2:])


class HostedMpe2:
    """mpe2 in our own processes, as any environment of PettingZoo may be hosted."""

    name = "pettingzoo"

    def version(self) -> str:
        """Versions of both."""
        load("mpe2", "mpe2", peer=self.name)
        versions = [importlib.metadata.version(name) for name in ("pettingzoo", "mpe2")]
        return f"{versions[0]} with mpe2 {versions[1]}"

    def make(self, settings: Settings, spec: EnvSpec) -> OpenEnv:
        """Makes num_envs environments, which num_threads processes step."""
        version = self.version()
        module, arguments = _find_mpe2(self.name, settings, spec)
        make_one = functools.partial(module.parallel_env, **arguments)
        env = from_parallel_env_fns(
            [make_one] * settings.num_envs,
            num_processes=min(settings.num_threads, settings.num_envs),
            seed=settings.seed,
        )
        return OpenEnv(
            self.name,
            version,
            env,
            num_envs=settings.num_envs,
            batch_size=settings.num_envs,
            num_threads=settings.num_threads,
            start=env.reset,
            close=env.close,
            options=arguments,
            notes=(f"{settings.num_threads} processes of rollouts.from_parallel_env_fns.",),
        )


class TagLoop:
    """A plain C++ loop over TagContinuous, one thread: all pairs of agents, then a partial sort."""

    name = "all-pairs"

    def version(self) -> str:
        """The version of rollouts."""
        import rollouts

        return rollouts.__version__

    def make(self, settings: Settings, spec: EnvSpec) -> OpenEnv:
        """Makes the loop."""
        from rollouts import _native

        if spec.id != "TagContinuous-v0":
            raise SpecError(f"peer 'all-pairs' steps TagContinuous-v0 alone, got {spec.id!r}")
        env = _native.TagLoop(dict(spec.options), settings.num_envs, spec.max_episode_steps or 0)
        return OpenEnv(
            self.name,
            self.version(),
            env,
            num_envs=settings.num_envs,
            batch_size=settings.num_envs,
            num_threads=1,
            start=env.reset,
            close=lambda: None,
            options=spec.options,
            notes=("One thread.",),
            translate=lambda actions: np.concatenate(
                [np.asarray(group, np.int32) for group in actions.values()], axis=1
            ),
        )
