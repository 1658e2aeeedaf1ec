# SPDX-License-Identifier: Apache-2.0
"""FAMILIES: each environment has one row, and each row its environments."""

from __future__ import annotations

import pytest

import rollouts
from rollouts import _native
from rollouts.families.family import Family
from rollouts.families.table import FAMILIES, entry_id, family_of, installed_ids

ENTRIES = _native.registry()


def test_every_entry_is_of_one_family_and_every_family_has_entries() -> None:
    found = [
        [family for family in FAMILIES if entry["header"].startswith(family.headers)]
        for entry in ENTRIES
    ]
    assert {len(families) for families in found} == {1}
    # that of users has entries where some were registered
    have = {families[0].headers for families in found}
    assert have | {"own/"} == {family.headers for family in FAMILIES}


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.headers)
def test_options_that_a_row_fills_in_are_not_seen_by_users(family: Family) -> None:
    entries = [entry for entry in ENTRIES if entry["header"].startswith(family.headers)]
    ids = [one for entry in entries for one in installed_ids(entry["id"], entry["header"])]
    if not ids:
        pytest.skip("its engine is not installed")
    one = ids[0]
    entry = next(entry for entry in entries if entry["id"] == entry_id(one))
    filled = family.load(one, entry["header"])
    assert set(filled) == family.internal <= set(entry["options"])
    assert not family.internal & set(rollouts.env_spec(one).options)


def test_ids_without_an_entry_stand_for_that_of_their_family() -> None:
    assert entry_id("ALE/Pong-v5") == "ALE/*"
    assert entry_id("CartPole-v1") == "CartPole-v1"
    assert {entry["id"] for entry in ENTRIES} >= {family.entry for family in FAMILIES} - {None}


def test_only_families_with_a_scene_name_the_file_of_a_model() -> None:
    assert {family.drawer == "mujoco" for family in FAMILIES if family.model_file} == {True}
    ant = family_of("envs/mujoco/ant.h").model_file
    assert ant is not None
    assert ant({"xml_file": "ant.xml", "assets": "/models"}) == "/models/ant.xml"
    assert ant({"xml_file": "./own.xml", "assets": "/models"}) == "./own.xml"
