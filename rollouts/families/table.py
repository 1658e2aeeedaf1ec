# SPDX-License-Identifier: Apache-2.0
"""FAMILIES: every family of environments, one row each.

A new family is a folder of headers in native/include/rollouts/envs, their lines in
native/envs.cmake, and a row here. Where an engine must be loaded, or ids depend on what is
installed, a file beside this one makes the row, as atari.py does. A new renderer of frames is a new
`Drawer`.
"""

from __future__ import annotations

from rollouts.errors import SpecError
from rollouts.families import atari, box2d, dm_control, minigrid, mujoco_engine, vizdoom
from rollouts.families.family import Family

FAMILIES = (
    Family(headers="envs/classic/", drawer="gymnasium"),
    Family(headers="envs/toy_text/"),
    *minigrid.FAMILIES,
    Family(headers="envs/multi_agent/", drawer="tag"),
    Family(headers="envs/mpe/", drawer="particles"),
    Family(headers="own/"),  # headers of users, see rollouts/own_env/
    atari.FAMILY,
    box2d.FAMILY,
    vizdoom.FAMILY,
    mujoco_engine.FAMILY,
    dm_control.FAMILY,
)

INTERNAL_OPTIONS = frozenset(name for family in FAMILIES for name in family.internal)


def family_of(header: str) -> Family:
    """The family of an environment, by `EnvSpec.header`."""
    for family in FAMILIES:
        if header.startswith(family.headers):
            return family
    raise SpecError(
        f"{header} is in no family's folder: add a row to rollouts/families/table.py, which has "
        f"{', '.join(family.headers for family in FAMILIES)}"
    )


def entry_id(id: str) -> str:
    """The id of the entry in native/envs.cmake behind an id of `make_vec`."""
    for family in FAMILIES:
        if family.entry and family.prefix and id.startswith(family.prefix):
            return family.entry
    return id


def installed_ids(native_id: str, header: str) -> list[str]:
    """The ids that `make_vec` takes for an entry, which depend on what is installed."""
    return family_of(header).ids(native_id)
