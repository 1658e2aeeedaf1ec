# SPDX-License-Identifier: Apache-2.0
"""Each of MuJoCo's features is stepped as MuJoCo does it, or the model is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from comparing import compare_scene, explained, left_to_mujoco, scene_in
from covered_scenes import COVERED
from mujoco_scenes import sensing
from other_scenes import OTHERS
from sensor_scenes import MORE_SENSORS, SENSORS

pytestmark = pytest.mark.system

_STEPS = 64 * 24
_MOST_LEFT = 0.05  # share of usual substeps
# it comes to stand within 5 mrad of upright: the way to its lowest point is a small difference then
_ILL_CONDITIONED = {"a cylinder on a floor"}


@pytest.mark.parametrize("name", COVERED)
def test_lanes_step_a_feature_as_mujoco_does(name: str, tmp_path: Path) -> None:
    comparer, model = scene_in(tmp_path, COVERED[name])
    assert comparer.why_not == ""
    found = compare_scene(comparer, model, _STEPS)
    equal = found.is_explained if name in _ILL_CONDITIONED else found.is_equal
    assert equal, explained(found)
    assert left_to_mujoco(found) <= _MOST_LEFT


@pytest.mark.parametrize("name", OTHERS)
def test_a_feature_is_refused_or_stepped_as_mujoco_does(name: str, tmp_path: Path) -> None:
    comparer, model = scene_in(tmp_path, OTHERS[name])
    if comparer.why_not:
        # one clause, which messages go on with
        assert comparer.why_not == comparer.why_not.strip(" .")
        return
    found = compare_scene(comparer, model, _STEPS)
    assert found.is_equal, explained(found)


@pytest.mark.parametrize(
    "sensor", [*SENSORS, *(pytest.param(one, marks=pytest.mark.slow) for one in MORE_SENSORS)]
)
def test_sensors_are_mujocos_or_left_alone(sensor: str, tmp_path: Path) -> None:
    comparer, model = scene_in(tmp_path, sensing(sensor))
    assert comparer.why_not == ""
    found = compare_scene(comparer, model, 64 * 17)
    assert found.is_equal, explained(found)
