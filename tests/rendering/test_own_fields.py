# SPDX-License-Identifier: Apache-2.0
"""Frames show each environment's own model, in all that can be seen of it, as observations do."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

import rollouts

MODEL = """<mujoco>
  <visual><headlight ambient=".3 .3 .3"/></visual>
  <asset>
    <texture name="tiles" type="2d" builtin="checker" width="8" height="8"
      rgb1="1 0 0" rgb2="0 1 0"/>
    <material name="painted" texture="tiles" specular=".5" shininess=".5" reflectance=".2"
      texrepeat="2 2" emission=".1"/>
    <hfield name="hills" file="hills.bin" size="1 1 .5 .1"/>
  </asset>
  <worldbody>
    <light name="lamp" pos="0 -1 3" dir="0 .3 -1" castshadow="false" type="spot" cutoff="60"/>
    <camera name="eye" pos="0 -4 2" xyaxes="1 0 0 0 .5 1" fovy="50"/>
    <geom name="hills" type="hfield" hfield="hills" pos="0 1.5 -.5" rgba=".5 .4 .2 1"/>
    <geom name="floor" type="plane" size="3 3 .1" pos="0 0 -.6" material="painted"/>
    <body name="arm" pos="0 0 1">
      <joint name="turn" type="hinge" axis="0 1 0" damping="1" stiffness="1"/>
      <geom name="long" type="capsule" fromto="0 0 0 .8 0 .2" size=".1" rgba="0 0 1 1"/>
      <geom name="block" type="box" size=".2 .1 .3" pos="-.4 0 .1" euler="10 20 30"/>
      <site name="left" pos=".3 -.3 .3" size=".08" type="box" euler="20 0 10" rgba="1 1 0 1"/>
    </body>
    <site name="right" pos="-1 -.4 .8" size=".05"/>
  </worldbody>
  <tendon><spatial name="cord" width=".03" rgba="1 0 1 1" springlength="1.5">
    <site site="left"/><site site="right"/></spatial></tendon>
  <actuator><motor joint="turn"/></actuator>
</mujoco>"""
# names of other fields go into pictures by the simulation alone, or not at all
SEEN = [
    *("body_pos", "body_quat", "geom_pos", "geom_quat", "geom_size", "geom_rgba", "site_pos"),
    *("site_quat", "site_size", "site_rgba", "mat_rgba", "mat_emission", "mat_specular"),
    *("mat_shininess", "mat_reflectance", "mat_texrepeat", "hfield_data", "hfield_size", "qpos0"),
    *("jnt_pos", "jnt_axis", "cam_pos", "cam_quat", "cam_fovy", "light_pos", "light_dir"),
    *("light_ambient", "light_diffuse", "light_specular", "light_cutoff", "light_exponent"),
    *("light_attenuation", "tendon_rgba", "tendon_width", "geom_group", "tendon_lengthspring"),
]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("seen")
    heights = np.random.default_rng(0).uniform(0, 1, (6, 6)).astype(np.float32)
    (folder / "hills.bin").write_bytes(struct.pack("ii", 6, 6) + heights.tobytes())
    (folder / "robot.xml").write_text(MODEL)
    return folder / "robot.xml"


def other(values: np.ndarray, name: str) -> np.ndarray:
    """A value that is not the file's, for one environment."""
    if values.dtype.kind == "i":
        return np.full_like(values, 4)  # a group that is not drawn
    factor = 0.6 if name != "cam_fovy" else 1.3
    return values * factor + (0.05 if values.dtype.kind == "f" and name != "geom_size" else 0)


def test_frames_are_the_observations_in_every_field_that_is_seen(model: Path) -> None:
    size = {"render_width": 96, "render_height": 72, "render_camera_name": "eye"}
    with rollouts.make_vec(
        *("MuJoCo-v0", 2), xml_file=model, from_pixels=True, seed=0, num_threads=1, **size
    ) as env:
        plain, _ = env.reset()
        plain = plain.copy()
        np.testing.assert_array_equal(env.render()[0], plain[0])
        differ = set()
        for name in set(SEEN) & set(env.model_fields):
            file = env.model_field(name, of_file=True)
            values = file.copy()
            values[1] = other(file[1], name)
            obs, _ = env.reset(options={"model": {name: values}})
            frames = env.render()
            for frame, shown in zip(frames, obs, strict=True):
                np.testing.assert_array_equal(frame, shown, err_msg=name)
            np.testing.assert_array_equal(obs[0], plain[0], err_msg=name)
            if not np.array_equal(obs[1], plain[1]):
                differ.add(name)
            env.reset(options={"model": {name: None}})
            np.testing.assert_array_equal(env.render()[1], plain[1], err_msg=name)
        assert len(differ) > 25, differ


def test_frames_are_of_the_model_that_is_simulated_whatever_its_file_says_now(
    model: Path, tmp_path: Path
) -> None:
    path = tmp_path / "robot.xml"
    path.write_text(model.read_text())
    (tmp_path / "hills.bin").write_bytes((model.parent / "hills.bin").read_bytes())
    with rollouts.make_vec("MuJoCo-v0", 1, xml_file=path, seed=0, num_threads=1) as env:
        env.reset()
        path.write_text("<mujoco><worldbody><geom size='1'/></worldbody></mujoco>")
        (frame,) = env.render()
        (again,) = env.render()
        assert len(np.unique(frame.reshape(-1, 3), axis=0)) > 20
        np.testing.assert_array_equal(frame, again)
