# SPDX-License-Identifier: Apache-2.0
"""The models of environments are stepped as MuJoCo does it, in lanes of every width."""

from __future__ import annotations

import numpy as np
import pytest
from comparing import compare_subject, explained, left_to_mujoco, loaded, states_after

from comparisons.verify_mujoco.driver import STATE
from comparisons.verify_mujoco.models import verified_ids
from rollouts import _native

pytestmark = pytest.mark.system

_MOST_LEFT = 0.05  # share of usual substeps
_SOME = ["HalfCheetah-v5", "Humanoid-v5", "Reacher-v5", "HopperHop-v1"]


def _is_like_another(env_id: str) -> bool:
    # these of version 4 have files of their own, the others those of version 5; the one that stands
    # up has the bodies of Humanoid
    own = ("Walker2d-v4", "Pusher-v4")
    return (env_id.endswith("-v4") and env_id not in own) or env_id == "HumanoidStandup-v5"


def _slow_if(is_slow: bool, *values: object) -> object:
    return pytest.param(*values, marks=[pytest.mark.slow] * is_slow)


@pytest.mark.parametrize("env_id", [_slow_if(_is_like_another(i), i) for i in verified_ids()])
def test_lanes_step_an_environment_as_mujoco_does(env_id: str) -> None:
    subject = loaded(env_id)
    assert subject.comparer.why_not == ""
    found = compare_subject(subject, 64 * 60)
    assert found.is_equal, explained(found)
    assert left_to_mujoco(found) <= _MOST_LEFT


# a humanoid takes as long as the others together: one narrow width stands for all of its
@pytest.mark.parametrize(
    ("env_id", "width"),
    [
        _slow_if(env_id == "Humanoid-v5" and width != 2, env_id, width)
        for env_id in _SOME
        for width in _native.lanes_widths()
    ],
)
def test_each_width_steps_as_mujoco_does(env_id: str, width: int) -> None:
    found = compare_subject(loaded(env_id), 64 * 30, width=width)
    assert found.is_equal, explained(found)


@pytest.mark.parametrize("env_id", _SOME)
def test_widths_agree(env_id: str) -> None:
    subject = loaded(env_id)
    arrays = states_after(env_id, 60).arrays()
    found = [subject.comparer.step(*arrays, width=w) for w in _native.lanes_widths()]
    for other in found[1:]:
        both = ~(found[0]["handed_back"] | other["handed_back"])
        assert both.mean() > 0.9
        for name in STATE:
            one, two = found[0][name][0][both], other[name][0][both]
            # fused multiply-adds are in some of them and not in others
            np.testing.assert_allclose(two, one, rtol=0, atol=1e-11 * np.abs(one).max(initial=1))


@pytest.mark.parametrize("env_id", _SOME)
@pytest.mark.parametrize("count", [1, 2, 3, 5, 7, 9, 13, 64, 65])
def test_rows_that_fill_no_vector_are_stepped_alike(env_id: str, count: int) -> None:
    subject = loaded(env_id)
    states = states_after(env_id, 30, 65)
    whole = subject.comparer.step(*states.arrays())
    some = subject.comparer.step(*states.rows(slice(count)).arrays())
    both = ~(whole["handed_back"][:count] | some["handed_back"])
    assert both.mean() > 0.9
    for name in STATE:
        one, two = whole[name][0][:count][both], some[name][0][both]
        np.testing.assert_allclose(two, one, rtol=0, atol=1e-11 * np.abs(one).max(initial=1))


@pytest.mark.parametrize("env_id", _SOME)
def test_neighbours_make_no_difference(env_id: str) -> None:
    subject = loaded(env_id)
    states = states_after(env_id, 60)
    order = np.random.default_rng(0).permutation(64)
    straight = subject.comparer.step(*states.arrays(), width=_native.lanes_widths()[0])
    mixed = subject.comparer.step(*states.rows(order).arrays(), width=_native.lanes_widths()[0])
    both = ~(straight["handed_back"][order] | mixed["handed_back"])
    for name in STATE:
        one, two = straight[name][0][order][both], mixed[name][0][both]
        np.testing.assert_allclose(two, one, rtol=0, atol=1e-11 * np.abs(one).max(initial=1))


@pytest.mark.parametrize("env_id", _SOME)
@pytest.mark.parametrize("up_to_date", [False, True])
def test_substeps_of_one_call_are_those_of_several(env_id: str, up_to_date: bool) -> None:
    subject = loaded(env_id)
    comparer = subject.comparer
    states = states_after(env_id, 60)
    at_once = comparer.step(*states.arrays(), substeps=4, up_to_date=up_to_date)
    back = at_once["handed_back"].copy()
    for _ in range(4):
        found = comparer.step(*states.arrays(), up_to_date=up_to_date)
        back |= found["handed_back"]
        for name in STATE:
            getattr(states, name)[:] = found[name][0]
    assert back.mean() < 0.1
    for name in STATE:
        one, two = at_once[name][0][~back], getattr(states, name)[~back]
        np.testing.assert_array_equal(two, one)
    np.testing.assert_allclose(at_once["time"][0][~back, 0], 4 * subject.model.opt.timestep)
