# SPDX-License-Identifier: Apache-2.0
"""Another of our ids as a peer: one header compiled in two ways, say."""

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
