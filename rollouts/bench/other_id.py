# SPDX-License-Identifier: Apache-2.0
"""Ours once more, as a peer: another id (one header compiled in two ways, say), engine or host."""

from __future__ import annotations

import dataclasses
import importlib

from rollouts.bench.measurement import Settings
from rollouts.bench.peers import OpenEnv, Rollouts, gymnasium_maker
from rollouts.errors import SpecError
from rollouts.pool.registry import env_spec
from rollouts.specs import EnvSpec


class OtherId(Rollouts):
    """Environments of an id of ours whose spaces are those of what is measured."""

    def __init__(self, env_id: str) -> None:
        """`env_id`: any id of `make_vec`."""
        self.name = env_id

    def make(self, settings: Settings, spec: EnvSpec) -> OpenEnv:
        """Makes it with the same settings. Raises SpecError where its spaces differ."""
        own = env_spec(
            self.name, max_episode_steps=settings.max_episode_steps, **dict(settings.env_options)
        )
        for space in ("single_observation_space", "single_action_space"):
            ours, theirs = getattr(own, space), getattr(spec, space)
            if ours != theirs:
                raise SpecError(
                    f"{self.name} cannot be measured beside {spec.id}: its {space} is {ours}, not "
                    f"{theirs}"
                )
        return super().make(settings, dataclasses.replace(own, id=self.name))


class OneEngine(Rollouts):
    """This library once more, with `engine` set: our own Atari 2600, or ALE's."""

    def __init__(self, engine: str) -> None:
        """`engine`: "native" or "ale"."""
        self.name = f"rollouts-{engine}"
        self._engine = engine

    def make(self, settings: Settings, spec: EnvSpec) -> OpenEnv:
        """Makes it with the same settings. Raises SpecError for ids that have no engines."""
        if "obs_type" not in spec.options:
            raise SpecError(
                f"peer {self.name!r} has no environment {spec.id!r}: measure an 'ALE/...-v5' id, "
                "or leave this peer out"
            )
        options = {**settings.env_options, "engine": self._engine}
        own = env_spec(spec.id, max_episode_steps=settings.max_episode_steps, **options)
        return super().make(dataclasses.replace(settings, env_options=options), own)


class Hosted(Rollouts):
    """`from_env_fns` over Gymnasium's Python environments, as another vectoriser steps them."""

    name = "rollouts-hosted"

    def make(self, settings: Settings, spec: EnvSpec) -> OpenEnv:
        """Makes them in num_threads processes at most.

        Raises:
          SpecError: Gymnasium does not have the environment, or not with these options.
          EngineError: A library it needs is missing.
        """
        make_one, options, differs = gymnasium_maker(settings, spec)
        # brings multiprocessing
        hosts = importlib.import_module("rollouts.env_fns")
        env = hosts.from_env_fns(
            [make_one] * settings.num_envs,
            num_processes=min(settings.num_threads, settings.num_envs),
            batch_size=settings.batch_size,
            seed=settings.seed,
            copy=False,
        )
        return OpenEnv(
            self.name,
            self.version(),
            env,
            num_envs=settings.num_envs,
            batch_size=settings.batch_size,
            num_threads=env.num_processes,
            start=env.async_reset if settings.is_async else env.reset,
            close=env.close,
            options=options,
            notes=(
                f"Gymnasium's Python environments in {env.num_processes} of our processes.",
                *differs,
            ),
        )


OTHERS_OF_OURS = {one.name: one for one in (OneEngine("native"), OneEngine("ale"), Hosted())}
