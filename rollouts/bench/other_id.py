# SPDX-License-Identifier: Apache-2.0
"""Ours once more, as a peer: another id (one header compiled in two ways, say) or engine."""

from __future__ import annotations

import dataclasses

from rollouts.bench.measurement import Settings
from rollouts.bench.peers import OpenEnv, Rollouts
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


ENGINE_PEERS = {one.name: one for one in (OneEngine("native"), OneEngine("ale"))}
