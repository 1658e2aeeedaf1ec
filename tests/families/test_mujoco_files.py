# SPDX-License-Identifier: Apache-2.0
"""A pool simulates what its model's files say when it is made, also if an older model is held."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import rollouts
from rollouts import _native

MODEL = """<mujoco model="it's one">
  <!-- an apostrophe isn't a quote -->
  <compiler meshdir="assets" texturedir="assets"/>
  <include file="parts/legs.xml"/>
  <asset>
    <mesh name="block" file="block.obj"/>
    <hfield name="hills" file="hills.bin" size="1 1 .2 .1"/>
    <model name="other" file='more/other.xml'/>
  </asset>
  <worldbody>
    <geom type="hfield" hfield="hills" pos="0 0 -1"/>
    <body pos="0 0 2"><freejoint/><geom name="mesh" type="mesh" mesh="block"/></body>
    <body pos="3 0 0"><attach model="other" body="arm" prefix="a"/></body>
  </worldbody>
  <actuator><motor joint="leg"/></actuator>
</mujoco>"""
LEGS = """<mujocoinclude><worldbody><body name="leg" pos="0 3 0">
  <joint name="leg" type="hinge"/><geom type="box" size=".1 .1 .1" mass="{}"/>
</body></worldbody></mujocoinclude>"""
OTHER = """<mujoco><worldbody><body name="arm"><joint name="j" type="hinge"/>
  <geom type="box" size=".1 .1 .1" mass="{}"/></body></worldbody></mujoco>"""


def write_legs(folder: Path, value: float) -> None:
    (folder / "parts" / "legs.xml").write_text(LEGS.format(value))


def write_mesh(folder: Path, value: float) -> None:
    corners = [(x, y, z) for x in (0, value) for y in (0, 1) for z in (0, 1)]
    faces = "f 1 2 4 3\nf 5 7 8 6\nf 1 5 6 2\nf 3 4 8 7\nf 1 3 7 5\nf 2 6 8 4\n"
    text = "".join(f"v {x} {y} {z}\n" for x, y, z in corners) + faces
    (folder / "assets" / "block.obj").write_text(text)


def write_hills(folder: Path, value: float) -> None:
    heights = np.full((4, 4), 1.0, np.float32)
    heights[0, 0], heights[1, 1] = 0.0, value
    data = struct.pack("ii", 4, 4) + heights.tobytes()
    (folder / "assets" / "hills.bin").write_bytes(data)


def write_other(folder: Path, value: float) -> None:
    (folder / "more" / "other.xml").write_text(OTHER.format(value))


WRITERS: dict[str, tuple[Callable[[Path, float], None], str]] = {
    "include": (write_legs, "body_mass"),
    "mesh": (write_mesh, "body_mass"),
    "height field": (write_hills, "hfield_data"),
    "attached model": (write_other, "body_mass"),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("parts", "assets", "more"):
        (tmp_path / name).mkdir()
    (tmp_path / "robot.xml").write_text(MODEL)
    for write, _ in WRITERS.values():
        write(tmp_path, 0.5)
    return tmp_path


def make(folder: Path) -> rollouts.VectorEnv:
    return rollouts.make_vec("MuJoCo-v0", 1, xml_file=folder / "robot.xml", num_threads=1)


@pytest.mark.parametrize("what", WRITERS)
def test_a_file_that_changed_is_read_while_another_pool_is_open(folder: Path, what: str) -> None:
    write, field = WRITERS[what]
    with make(folder) as first:
        before = first.model_field(field)
        write(folder, 0.25)
        with make(folder) as second:
            assert not np.array_equal(second.model_field(field), before)
        np.testing.assert_array_equal(first.model_field(field), before)


def test_a_file_that_took_anothers_place_is_read_whatever_its_time(folder: Path) -> None:
    legs = folder / "parts" / "legs.xml"
    with make(folder) as first:
        found = legs.stat()
        other = folder / "other-legs.xml"
        other.write_text(LEGS.format(0.7))
        assert other.stat().st_size == found.st_size
        os.utime(other, ns=(found.st_atime_ns, found.st_mtime_ns))
        other.rename(legs)
        with make(folder) as second:
            assert second.model_field("body_mass").sum() > first.model_field("body_mass").sum()


def test_pools_share_a_model_whose_files_are_as_they_were(folder: Path) -> None:
    path = str(folder / "robot.xml")
    with make(folder), make(folder):
        held = _native.physics_model(path)
        (folder / "parts" / "notes.txt").write_text("no part of it")
        assert _native.physics_model(path) is held
        write_legs(folder, 0.7)
        assert _native.physics_model(path) is not held


def test_an_environment_with_new_options_has_the_files_as_they_are_then(folder: Path) -> None:
    with make(folder) as env:
        before = env.model_field("body_mass")
        write_legs(folder, 0.7)
        env.reset(options={"frame_skip": 2})
        assert not np.array_equal(env.model_field("body_mass"), before)
