# SPDX-License-Identifier: Apache-2.0
"""Declarations of an environment with one agent work, in pools and kernels, or are refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from long_forms import slow_beside

import rollouts
from rollouts.errors import SpecError

pytestmark = pytest.mark.system

HEADER = """\
#pragma once
#include "rollouts/core/env.h"

struct Declared {
  struct Config {
    double OPTION = 1;  // what nobody reads
  };
  struct State {
    std::int32_t steps;
  };
  using Action = ACTION_TYPE;
  using Obs = OBS_TYPE;
  static constexpr std::int32_t kCount = 3;
  static constexpr rollouts::EnvSpec kSpec = {
      .observation = {OBSERVATION},
      .action = {ACTION},
      .num_infos = 3,
      .infos = {INFOS},
      .reset_infos = true};

  template <typename V>
  static void VisitConfig(Config& config, V& visit) { visit("OPTION", config.OPTION); }
  ROLLOUTS_HD static void Reset(const Config&, State& state, rollouts::Rng&) { state.steps = 0; }
  ROLLOUTS_HD static rollouts::StepResult Step(const Config&, State& state, const Action* action,
                                               rollouts::Rng&) {
    ++state.steps;
    double sum = 0;
    for (std::int32_t i = 0; i < kSpec.action.size(); ++i) sum += (i + 1) * double(action[i]);
    return rollouts::StepResult::Of(sum, false);
  }
  ROLLOUTS_HD static void Observe(const Config&, const State& state, Obs* obs) {
    constexpr const rollouts::SpaceSpec& kSpace = kSpec.observation;
    for (std::int32_t i = 0; i < kSpace.size(); ++i) {
      const std::int32_t at = kSpace.elementwise ? i : 0;
      if (kSpace.n > 0) {
        obs[i] = static_cast<Obs>(state.steps % kSpace.n);
      } else {
        obs[i] = static_cast<Obs>(state.steps % 2 == 0 ? kSpace.low[at] : kSpace.high[at]);
      }
    }
  }
  ROLLOUTS_HD static void WriteInfo(const Config&, const State& state, double* values) {
    for (std::int32_t i = 0; i < 5; ++i) values[i] = state.steps + i;
  }
};
"""
INFOS = (
    '{.name = "whole", .dtype = rollouts::DType::kInt32}, '
    '{.name = "several", .dtype = rollouts::DType::kInt8, .length = 3}, {.name = "real"}'
)
BOX = ".dtype = rollouts::DType::kFloat32, .ndim = 1, .shape = {2}, .low = {-1}, .high = {1}"
INT32 = "std::int32_t"


def box(dtype: str, shape: str, low: str, high: str, more: str = "") -> str:
    ndim = shape.count(",") + 1
    return (
        f".dtype = rollouts::DType::k{dtype}, .ndim = {ndim}, .shape = {{{shape}}}, {more}"
        f".low = {{{low}}}, .high = {{{high}}}"
    )


MULTI, EACH = ".multi_discrete = true, ", ".elementwise = true, "
# Obs, observation, Action, action
CASES = [
    ("std::uint8_t", box("Uint8", "3, 2", "0", "255"), INT32, ".n = 4"),
    (
        "std::int8_t",
        box("Int8", "2", "-128, 3", "127, 4", EACH),
        "float",
        box("Float32", "2, 2", "-3", "4"),
    ),
    (
        "std::int16_t",
        box("Int16", "2, 1, 2", "-32768", "32767"),
        "float",
        box("Float32", "3", "-1, 0, 2", "1, 1, 3", EACH),
    ),
    (
        INT32,
        box("Int32", "2", "-2147483648", "2147483647"),
        INT32,
        box("Int32", "2, 2", "", "3", MULTI),
    ),
    (
        "std::int64_t",
        ".dtype = rollouts::DType::kInt64, .n = 5",
        INT32,
        box("Int32", "3", "", "3, 1, 2", MULTI + EACH),
    ),
    (
        "std::int64_t",
        box("Int64", "1, 2, 1, 2", "-5", "1e15"),
        "float",
        box("Float32", "1", "-3", "4"),
    ),
    (
        "float",
        box("Float32", "2, 2", "-3.4028234663852886e38", "3.4028234663852886e38"),
        "float",
        box("Float32", "1, 2, 1, 2", "-0.1", "0.1"),
    ),
    (
        "double",
        box("Float64", "2", "-1e300, 0", "1e300, 1", EACH),
        INT32,
        box("Int32", "2", "", "0", MULTI),
    ),
    (
        "std::uint8_t",
        box("Uint8", "2, 2", "", "254", MULTI),
        INT32,
        ".dtype = rollouts::DType::kInt64, .n = 1",
    ),
    (
        INT32,
        box("Int32", "2, 2", "", "3, 4, 5, 6", MULTI + EACH),
        "float",
        box("Float32", "2, 1, 2", "-1", "1"),
    ),
]


def write(folder: Path, **parts: str) -> Path:
    given = {"OBS_TYPE": "float", "OBSERVATION": BOX, "ACTION_TYPE": "float", "ACTION": BOX}
    given |= {"INFOS": INFOS, "OPTION": "unread"} | parts
    text = re.sub(
        r"\b(OBS_TYPE|OBSERVATION|ACTION_TYPE|ACTION|INFOS|OPTION)\b",
        lambda found: given[found[0]],
        HEADER,
    )
    path = folder / "declared.h"
    path.write_text(text)
    return path


OPTIMISED = 9  # as users' compilers do it
# bounds of each element, one number, and floats of both sizes. The others share the code of these,
# and test_declared_spaces.py has each type in each shape; make test-all tries each here, too
SHOWN = (OPTIMISED, 2, 4, 7)


@pytest.mark.parametrize(
    "case",
    slow_beside(SHOWN, range(len(CASES))),
)
def test_every_space_of_one_agent_works_on_the_pool_and_as_a_kernel(
    case: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if case != OPTIMISED:
        request.getfixturevalue("quickly")
    obs_type, observation, action_type, action = CASES[case]
    header = write(tmp_path, OBS_TYPE=obs_type, OBSERVATION=observation, ACTION_TYPE=action_type,
                   ACTION=action)  # fmt: skip
    env_id = rollouts.register_env(f"Declared{case}-v0", header=header, type="Declared")
    for device in (None, "cpu-emulation"):
        check(env_id, device)


def check(env_id: str, device: str | None) -> None:
    if device:
        pytest.importorskip("torch")
    with rollouts.make_vec(env_id, 3, device=device, seed=1) as env:
        env.action_space.seed(1)
        obs, _ = env.reset()
        for step in range(1, 4):
            assert np.asarray(obs) in env.observation_space
            action = env.action_space.sample()
            obs, reward, *_, info = env.step(action)
            given = np.asarray(action, np.float64).reshape(3, -1)
            told = (given * np.arange(1, given.shape[1] + 1)).sum(1)
            np.testing.assert_allclose(np.asarray(reward), told, rtol=1e-6)
            assert np.asarray(info["whole"]).tolist() == [step] * 3
            several = np.asarray(info["several"])
            assert (
                several.dtype == np.int8 and several.tolist() == [[step + i for i in (1, 2, 3)]] * 3
            )
            assert np.asarray(info["real"]).tolist() == [step + 4.0] * 3


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    # the case that was found: a Box of int32, which every binding takes for float32
    (
        {"ACTION_TYPE": INT32, "ACTION": box("Int32", "2", "-3", "4")},
        "kSpec =",
        "the action is a Box, whose actions have .dtype kFloat32",
    ),
    (
        {"ACTION_TYPE": INT32},
        "kSpec =",
        "the action needs `using Action = float`, got std::int32_t",
    ),
    ({"ACTION": ".n = 3"}, "kSpec =", "the action needs `using Action = std::int32_t`, got float"),
    (
        {"OBS_TYPE": INT32},
        "kSpec =",
        "the observation has .dtype kFloat32, which needs `using Obs = float`, got std::int32_t",
    ),
    (
        {"OBSERVATION": box("Float32", "2", "-1, -1", "1, 1")},
        "kSpec =",
        "has more bounds than one: a bound for each element needs .elementwise = true",
    ),
    (
        {"OBS_TYPE": "std::uint8_t", "OBSERVATION": box("Uint8", "2", "-1", "1")},
        "kSpec =",
        "the observation has .low = -1, which no std::uint8_t holds",
    ),
    (
        {"INFOS": INFOS.replace("kInt32", "kInt64")},
        "kSpec =",
        "info 'whole' has .dtype kInt64, expected kFloat64, kInt32 or kInt8",
    ),
    ({"INFOS": INFOS.replace("real", "whole")}, "kSpec =", "infos has the name 'whole' twice"),
    ({"INFOS": INFOS.replace('"real"', "nullptr")}, "kSpec =", r"infos\[2\] has no name"),
    ({"INFOS": INFOS.replace("= 3", "= 0")}, "kSpec =", "info 'several' has .length = 0"),
    (
        {"INFOS": INFOS.replace("whole", "env_id")},
        '"env_id"',
        "the info 'env_id' is the library's own: give yours another name",
    ),
    (
        {"INFOS": INFOS.replace("real", "final_obs")},
        '"final_obs"',
        "the info 'final_obs' is the library's own",
    ),
    ({"INFOS": INFOS.replace("real", "_real")}, '"_real"', "the info '_real' is the library's own"),
    (
        {"OPTION": "width"},
        '"width"',
        "the option 'width' is an option of frames and would not reach it",
    ),
    (
        {"OPTION": "num_threads"},
        '"num_threads"',
        "the option 'num_threads' is an argument of make_vec and",
    ),
    (
        {"OPTION": "frame_stack"},
        '"frame_stack"',
        "the option 'frame_stack' is a wrapper of make_vec and",
    ),
    (
        {"OPTION": "wind_range"},
        '"wind_range"',
        "the option 'wind_range' is read by make_vec itself",
    ),
]
# a compiler runs for each; these have the sentences of others, of other types and names
SAME = (2, 5, 11, 12)


@pytest.mark.parametrize(
    "case",
    slow_beside({*range(len(REFUSED))} - {*SAME}, range(len(REFUSED))),
)
def test_what_it_must_not_declare_is_refused_at_its_line(
    case: int, tmp_path: Path, quickly: None
) -> None:
    parts, place, message = REFUSED[case]
    header = write(tmp_path, **parts)
    with pytest.raises(SpecError, match=message) as refused:
        rollouts.register_env("Declared-v0", header=header, type="Declared")
    lines = header.read_text().splitlines()
    number = next(i for i, line in enumerate(lines, 1) if place in line)
    assert str(refused.value).startswith(f"{header}:{number}: Declared: ")
    assert "Declared-v0" not in rollouts.env_ids()
