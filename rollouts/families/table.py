# SPDX-License-Identifier: Apache-2.0
"""FAMILIES: every family of environments, one row each."""

from __future__ import annotations

from rollouts.families import atari, dm_control, mujoco_engine
from rollouts.families.family import Family

FAMILIES = (
    Family(headers="envs/classic/", drawer="gymnasium"),
    Family(headers="envs/toy_text/"),
    atari.FAMILY,
    mujoco_engine.FAMILY,
    dm_control.FAMILY,
)

INTERNAL_OPTIONS = frozenset(name for family in FAMILIES for name in family.internal)


def family_of(header: str) -> Family:
    """The family of an environment, by `EnvSpec.header`."""
    return next(family for family in FAMILIES if header.startswith(family.headers))


def entry_id(env_id: str) -> str:
    """The id of the entry in native/envs.cmake that an id of `make_vec` stands for."""
    for family in FAMILIES:
        if family.entry and family.prefix and env_id.startswith(family.prefix):
            return family.entry
    return env_id


def installed_ids(native_id: str, header: str) -> list[str]:
    """The ids that `make_vec` takes of an entry, with what is installed."""
    return family_of(header).ids(native_id)
