# SPDX-License-Identifier: Apache-2.0
"""The ids that stand for all in tests of the contract: one of each kind of environment."""

from __future__ import annotations

import pytest
from contract_envs import ALL_IDS, HEAVY_IDS, KINDS, SUITE_IDS

import rollouts

USERS_OWN = "Vault-v0"  # it keeps the contract too, whatever its kind


def kind_of(env_id: str) -> tuple[object, ...]:
    spec = rollouts.env_spec(env_id)
    both = (spec.single_observation_space, spec.single_action_space)
    family = (env_id in HEAVY_IDS, env_id in SUITE_IDS)
    return (*family, *((type(space), space.dtype, len(space.shape)) for space in both))


@pytest.mark.skipif(not {*KINDS} <= {*ALL_IDS}, reason="needs ale-py, vizdoom and dm-control")
def test_the_first_id_of_each_kind_stands_for_it() -> None:
    first: dict[tuple[object, ...], str] = {}
    for env_id in ALL_IDS:
        first.setdefault(kind_of(env_id), env_id)
    assert {*KINDS} | {USERS_OWN} == {*first.values()} | {USERS_OWN}
