# SPDX-License-Identifier: Apache-2.0
"""Our ids in Gymnasium's registry, under `rollouts/`."""

from __future__ import annotations

import math

import gymnasium
from gymnasium.envs.registration import EnvSpec

from rollouts import _native
from rollouts.families.table import family_of
from rollouts.own_env.registrations import travelling

NAMESPACE = "rollouts"

# loaded when one of the ids is made; given by name, because this package imports no adapter
_SINGLE = "rollouts.integrations.gymnasium:NativeEnv"
_VECTOR = "rollouts.integrations.gymnasium:make_vector_env"


def gymnasium_id(id: str) -> str:
    """The id under which Gymnasium knows one of `rollouts.env_ids()`.

    "CartPole-v1" is "rollouts/CartPole-v1". Gymnasium allows one namespace, so "ALE/Pong-v5" is
    "rollouts/ALE-Pong-v5"; without "ALE-", Atari's Blackjack would be a version of the card game.
    """
    return f"{NAMESPACE}/{id.replace('/', '-')}"


def register_ids(*, only: str | None = None) -> None:
    """Registers every id with one agent, for `gymnasium.make_vec` and `gymnasium.make`.

    May be called again. `only` is the one id to register. The specs go straight into the registry:
    for each id, `gymnasium.register` would search all the others, and a second call would warn.
    """
    for entry in _native.registry():
        if entry["multi_agent"] or only not in (None, entry["id"]):
            continue
        family = family_of(entry["header"])
        ids = family.ids(entry["id"]) if family.entry else [entry["id"]]
        threshold = entry["reward_threshold"]
        for each in ids:
            spec = EnvSpec(
                id=gymnasium_id(each),
                entry_point=_SINGLE,
                vector_entry_point=_VECTOR,
                reward_threshold=None if math.isnan(threshold) else threshold,
                max_episode_steps=entry["max_episode_steps"] or None,
                # not "id": `gymnasium.make` has an argument of that name itself
                kwargs={"env_id": travelling(each)},
            )
            gymnasium.registry[spec.id] = spec
