# SPDX-License-Identifier: Apache-2.0
"""Environments of Box2D, which the native core contains if its build had Box2D's sources."""

from __future__ import annotations

from rollouts import _native
from rollouts.errors import EngineError
from rollouts.families.family import Family


def _ids(native_id: str) -> list[str]:
    return [native_id] if _native.has_box2d() else []


def _load(id: str, header: str) -> dict[str, str]:
    if not _native.has_box2d():
        raise EngineError(
            f"{id} needs Box2D, and this build of rollouts has none: its sources could not be "
            "downloaded, or ROLLOUTS_BOX2D was OFF. Build it again where pip reaches a package "
            "index: pip install -C cmake.define.ROLLOUTS_BOX2D=ON --no-binary rollouts rollouts"
        )
    return {}


FAMILY = Family(headers="envs/box2d/", drawer="box2d", ids=_ids, load=_load)
