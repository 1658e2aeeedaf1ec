# SPDX-License-Identifier: Apache-2.0
"""Every space that the contract can express works, on pools and as kernels, or is refused."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from long_forms import slow_beside
from own_envs import HEADERS

import rollouts
from rollouts.errors import SpecError

pytestmark = pytest.mark.system

# the DTypes in their order: name -> type in C++
TYPES = {
    "uint8": "std::uint8_t",
    "int32": "std::int32_t",
    "int64": "std::int64_t",
    "float32": "float",
    "float64": "double",
    "int8": "std::int8_t",
    "int16": "std::int16_t",
}
NUMBERS = {name: number for number, name in enumerate(TYPES)}
SHAPES = [2, 23, 212, 2121]
EACH = [False, True]
ACTIONS: list[dict[str, Any]] = [
    {"act_n": 4, "act_type": NUMBERS["int64"], "act_shape": 0, "act_low": 0, "act_high": 0},
    *(
        {"act_shape": shape, "act_each": each, "act_low": -3.0, "act_high": 4.0}
        for shape, each in itertools.product(SHAPES, EACH)
    ),
    {"act_shape": 3, "act_low": -np.inf, "act_high": np.inf},
    *(
        {
            **{"act_multi": True, "act_type": NUMBERS["int32"], "act_shape": shape},
            **{"act_each": each, "act_low": 0.0, "act_high": 4.0},
        }
        for shape, each in itertools.product(SHAPES, EACH)
    ),
]
OPTIMISED = "float32"  # as users' compilers do it
# floats and whole numbers have spaces of their own, and of int64 alone there is one number. The
# others share the code of these; make test-all tries each
SHOWN = ("float32", "int16", "int64")
EACH_TYPE = slow_beside(SHOWN, TYPES)


def register(dtype: str, folder: Path) -> str:
    text = (HEADERS / "spaces.h").read_text()
    text = text.replace("OBS_TYPE", TYPES[dtype]).replace("OBS_DTYPE", str(NUMBERS[dtype]))
    header = folder / f"spaces_{dtype}.h"
    header.write_text(text)
    return rollouts.register_env(f"Spaces-{dtype}", header=header, type="Spaces")


def observations(dtype: str) -> list[dict[str, Any]]:
    """Options of each kind of observation space with these elements."""
    is_float = dtype.startswith("float")
    limits = np.finfo(dtype) if is_float else np.iinfo(dtype)  # type: ignore[arg-type]
    # a double has no number right below 2**63
    most = float(limits.max) if dtype != "int64" else 2.0**62
    found = [
        {"obs_shape": shape, "obs_each": each, "obs_low": float(limits.min), "obs_high": most}
        for shape, each in itertools.product(SHAPES, EACH)
        if not (each and (is_float or dtype == "int64"))
    ]
    found += [
        {"obs_shape": shape, "obs_each": True, "obs_low": 0.0, "obs_high": 5.0} for shape in SHAPES
    ]
    if is_float:
        return [*found, {"obs_shape": 3, "obs_low": -np.inf, "obs_high": np.inf}]
    found += [
        {"obs_multi": True, "obs_shape": shape, "obs_each": each, "obs_high": min(most - 1, 1e9)}
        for shape, each in itertools.product(SHAPES, EACH)
    ]
    if dtype == "int64":
        found.append({"obs_n": 5, "obs_shape": 0, "obs_high": 0.0})
    return found


@pytest.mark.parametrize("dtype", EACH_TYPE)
@pytest.mark.parametrize("device", [None, "cpu-emulation"])
def test_agents_of_every_space_observe_what_is_in_it_and_get_what_is_sampled(
    dtype: str, device: str | None, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if dtype != OPTIMISED:
        request.getfixturevalue("quickly")
    if device:
        pytest.importorskip("torch")
    env_id = register(dtype, tmp_path)
    given = observations(dtype)
    for observed, acted in zip(given, itertools.cycle(ACTIONS), strict=False):
        check_agents(env_id, device, {**observed, **acted})
    # the other ones
    for acted in ACTIONS[len(given) :]:
        check_agents(env_id, device, {**given[0], **acted})


def check_agents(env_id: str, device: str | None, options: dict[str, Any]) -> None:
    with rollouts.make_vec(env_id, 3, device=device, seed=1, **options) as env:
        spaces = rollouts.env_spec(env_id, **options).groups[0]
        env.action_space.seed(1)
        obs, _ = env.reset()
        for _ in range(4):
            for one in np.asarray(obs).reshape(6, *np.shape(obs)[2:]):
                assert one in spaces.single_observation_space, options
            action = env.action_space.sample()
            obs, reward, *_ = env.step(action)
            given = np.asarray(action, np.float64).reshape(3, 2, -1)
            told = (given * np.arange(1, given.shape[2] + 1)).sum(2)
            np.testing.assert_allclose(np.asarray(reward), told, rtol=1e-6, err_msg=str(options))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"act_type": NUMBERS["int32"]},
            "the action of group 'a' is a Box, whose actions have .dtype kFloat32 and the type "
            "float, got kInt32; whole numbers are .n or .multi_discrete",
        ),
        (
            {"act_type": NUMBERS["float64"]},
            "whose actions have .dtype kFloat32 and the type float, got kFloat64",
        ),
        (
            {"act_type": NUMBERS["uint8"], "act_multi": True, "act_low": 0},
            "whose actions have .dtype kInt32 and the type std::int32_t, got kUint8",
        ),
        ({"act_type": 9}, "the action of group 'a' has a .dtype that there is not"),
        (
            {"act_n": 4, "act_shape": 0, "act_low": 2, "act_high": 0},
            "has .n, whose values are 0 to n - 1, and .low or .high",
        ),
        (
            {"act_n": 4, "act_low": 0, "act_high": 0},
            "has .n, a Discrete space of one number, and .ndim",
        ),
        ({"act_n": -1}, "has .n = -1, expected 1 or more values"),
        ({"act_shape": 0}, "has no elements: .n, or .ndim and .shape"),
        ({"act_shape": 20}, r"has no elements: .shape\[1\] is 0"),
        ({"act_shape": 11111}, "has .ndim = 5, expected 1 to 4"),
        (
            {"act_shape": 99, "act_each": True},
            "has 81 elements and .elementwise, which is for 64 at most",
        ),
        ({"act_low": 2, "act_high": 1}, "has .low = 2 above .high = 1"),
        ({"act_low": float("nan")}, "has .low = nan, which no float holds"),
        ({"act_high": 1e300}, "has .high = .*, which no float holds"),
        (
            {"act_multi": True, "act_type": NUMBERS["int32"], "act_low": 1, "act_high": 3},
            "whose elements begin at 0, and .low = 1",
        ),
        (
            {"act_multi": True, "act_type": NUMBERS["int32"], "act_low": 0, "act_high": 2**31 - 1},
            "expected 2147483646 at most for kInt32",
        ),
        (
            {"act_multi": True, "act_type": NUMBERS["int32"], "act_low": 0, "act_high": 2.5},
            "has .high = 2.500000, expected a whole number for kInt32",
        ),
        (
            {"obs_type": NUMBERS["float32"]},
            "the observation of group 'a' has .dtype kFloat32, which needs `using Obs = float`, "
            "got std::int16_t",
        ),
        (
            {"obs_type": NUMBERS["uint8"]},
            "has .dtype kUint8, which needs `using Obs = std::uint8_t`",
        ),
        (
            {"obs_n": 3, "obs_shape": 0, "obs_high": 0},
            "has .n, a Discrete space, whose .dtype is kInt64 as Gymnasium's, got kInt16",
        ),
        ({"obs_high": 32768}, "has .high = 32768, which no std::int16_t holds"),
        ({"obs_low": -np.inf}, "has .low = -inf, which no std::int16_t holds"),
        (
            {"obs_multi": True, "obs_high": 32767},
            "has .multi_discrete and .high = 32767, expected 32766 at most for kInt16",
        ),
        ({"num_groups": 9}, "the number of groups is 9, expected 8 at most"),
        ({"num_groups": 0}, "MakeSpec has no group of agents: use AddGroup"),
        ({"num_groups": 2, "same_name": True}, "groups has the name 'a' twice"),
        ({"is_named": False}, r"groups\[0\] has no name"),
        ({"num_agents": 0}, "group 'a' has 0 agents, expected 1 or more"),
        ({"num_agents": 2**30}, "actions or observations of more than 2 GiB"),
    ],
)
def test_a_space_that_cannot_be_is_refused_in_one_sentence(
    options: dict[str, Any], message: str, tmp_path: Path, quickly: None
) -> None:
    env_id = register("int16", tmp_path)
    with pytest.raises(SpecError, match=message):
        rollouts.env_spec(env_id, **options)
    with pytest.raises(SpecError, match=message):
        rollouts.make_vec(env_id, 2, **options)
