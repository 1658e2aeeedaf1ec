# SPDX-License-Identifier: Apache-2.0
"""Options are read once: the same words mean the same in make_vec, env_spec and reset."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rollouts
from rollouts.envs.options import first_options, read_options
from rollouts.errors import SpecError

# as users write them -> as the native core has them, for two environments
READ: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "one value": ({"gravity": 9.0}, {"gravity": 9.0}),
    "a value each": ({"gravity": (9.0, 8.0)}, {"gravity": [9.0, 8.0]}),
    "an array": ({"gravity": np.array([9.0, 8.0])}, {"gravity": [9.0, 8.0]}),
    "NumPy's bool": ({"sab": np.True_}, {"sab": True}),
    "a range": ({"healthy_z_range": (0.2, 1.0)}, {"healthy_z_min": 0.2, "healthy_z_max": 1.0}),
    "a range each": (
        {"healthy_z_range": [(0.2, 1.0), (0.3, 2.0)]},
        {"healthy_z_min": [0.2, 0.3], "healthy_z_max": [1.0, 2.0]},
    ),
    "a body's number": ({"main_body": 1}, {"main_body": "1"}),
}


@pytest.mark.parametrize("case", READ)
def test_words_of_users_become_words_of_the_core(case: str) -> None:
    given, native = READ[case]
    assert read_options(given, 2, own_model=False).native == native
    first = {name: v[0] if isinstance(v, list) else v for name, v in native.items()}
    assert first_options(given, own_model=False) == (first, {})


def test_each_option_goes_to_its_reader() -> None:
    read = read_options(
        {"gravity": 9.0, "render_width": 64, "camera_id": 0, "model": {"body_mass": 1.0}},
        1,
        own_model=False,
    )
    assert read.native == {"gravity": 9.0}
    assert read.frames == {"width": 64, "camera_id": 0}
    assert read.model == {"body_mass": 1.0}
    assert read.functions == {}


def test_options_that_were_read_are_read_to_the_same_again() -> None:
    given = {"healthy_z_range": (0.2, 1.0), "width": 64, "model": {"body_mass": 1.0}}
    once = read_options(given, 3, own_model=False)
    assert read_options(once.as_given(), 3, own_model=False) == once


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"gravity": [9.0, 8.0, 7.0]}, "'gravity' has 3 values, expected a single value or one"),
        ({"healthy_z_range": 1.0}, "must be a pair"),
        ({"healthy_z_range": (0, 1), "healthy_z_min": 0.5}, "say the same: leave out one"),
        ({"width": 64, "render_width": 64}, "say the same: leave out one"),
    ],
)
def test_what_says_too_much_or_too_little_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        read_options(given, 2, own_model=False)


def test_reset_takes_the_words_of_make_vec() -> None:
    pytest.importorskip("mujoco")
    with rollouts.make_vec("Ant-v5", 2, healthy_z_range=(0.3, 1.1)) as env:
        assert env.env_options["healthy_z_min"] == 0.3
        env.reset(seed=1, options={"healthy_z_range": [(0.1, 2.0), (0.2, 3.0)]})
        assert env.env_options["healthy_z_min"].tolist() == [0.1, 0.2]
        with pytest.raises(SpecError, match="unknown reset options \\['width'\\]"):
            env.reset(options={"width": 64})
