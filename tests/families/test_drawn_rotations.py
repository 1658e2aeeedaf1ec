# SPDX-License-Identifier: Apache-2.0
"""Quaternions of a model that every episode draws are rotations."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import rollouts
from rollouts.mujoco import Uniform

MODEL = """<mujoco>
  <worldbody>
    <camera name="eye"/>
    <body name="free" simple="false"><freejoint/><geom type="box" size=".1 .2 .3"/>
      <site name="s"/></body>
    <body name="ball" simple="false" pos="3 0 0"><joint type="ball"/><geom size=".1"/></body>
    <body name="arm" simple="false" pos="6 0 0"><joint name="arm" type="hinge"/>
      <geom size=".1"/></body>
    <body name="held" simple="false" mocap="true" pos="0 4 0"><geom size=".1"/></body>
  </worldbody>
  <equality><connect body1="ball" body2="arm" anchor="0 0 0" active="false"/>
    <weld body1="free" body2="ball" active="false"/></equality>
  <actuator><motor joint="arm"/></actuator>
  <keyframe><key/><key/></keyframe>
</mujoco>"""
# field: where quaternions begin among the values of one environment
QUATERNIONS = {
    "body_quat": [4 * body for body in range(5)],
    "body_iquat": [4 * body for body in range(5)],
    "geom_quat": [4 * geom for geom in range(4)],
    "site_quat": [0],
    "cam_quat": [0],
    "qpos0": [3, 7],
    "qpos_spring": [3, 7],
    "key_qpos": [3, 7, 15, 19],
    "key_mquat": [0, 4],
    "eq_data": [12 + 6],
}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "robot.xml").write_text(MODEL)
    return tmp_path / "robot.xml"


@pytest.mark.parametrize("field", QUATERNIONS)
def test_a_drawn_quaternion_is_a_rotation(model: Path, field: str) -> None:
    with rollouts.make_vec("MuJoCo-v0", 3, xml_file=model, seed=0, num_threads=1) as env:
        env.reset(options={"model": {field: Uniform(-1, 1)}})
        drawn = env.model_field(field).reshape(3, -1)
        turned = np.zeros(drawn.shape[1], np.bool_)
        for first in QUATERNIONS[field]:
            lengths = np.linalg.norm(drawn[:, first : first + 4], axis=1)
            np.testing.assert_allclose(lengths, 1, rtol=1e-12)
            turned[first : first + 4] = True
        if field != "eq_data":  # MuJoCo computes it where it derives constants
            assert len(np.unique(drawn[:, turned])) == drawn[:, turned].size
            assert (np.abs(drawn[:, ~turned]) < 1).all()


def test_what_is_not_drawn_stays_as_it_was_given(model: Path) -> None:
    low = np.zeros((4, 4))
    low[:, 0] = 1
    high = low.copy()
    low[1], high[1] = -1, 1
    given = low[:, :].copy()
    given[2] = [2, 0, 0, 0]
    with rollouts.make_vec("MuJoCo-v0", 1, xml_file=model, seed=0, num_threads=1) as env:
        env.reset(options={"model": {"geom_quat": Uniform(low, high)}})
        (found,) = env.model_field("geom_quat")
        np.testing.assert_array_equal(found[[0, 2, 3]], low[[0, 2, 3]])
        assert abs(np.linalg.norm(found[1]) - 1) < 1e-12
        env.reset(options={"model": {"geom_quat": given}})
        np.testing.assert_array_equal(env.model_field("geom_quat")[0], given)
