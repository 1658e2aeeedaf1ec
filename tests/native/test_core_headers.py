# SPDX-License-Identifier: Apache-2.0
"""Headers of core/: the compiler names the member that an environment lacks; costs of steps."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

INCLUDE = Path(__file__).parents[2] / "native" / "include"
COMPILER = shutil.which("c++") or shutil.which("g++")

pytestmark = [
    pytest.mark.skipif(COMPILER is None, reason="needs a C++ compiler"),
    pytest.mark.system,
]

LIGHT = {
    "Config": "struct Config {};",
    "State": "struct State { int steps; };",
    "Action": "using Action = std::int32_t;",
    "Obs": "using Obs = float;",
    "kSpec": "static constexpr EnvSpec kSpec = {};",
    "Reset": "static void Reset(const Config&, State& state, Rng&) { state.steps = 0; }",
    "Step": "static StepResult Step(const Config&, State&, const Action*, Rng&) { return {}; }",
    "Observe": "static void Observe(const Config&, const State&, Obs* obs) { obs[0] = 0; }",
}
HEAVY = {
    "Config": "struct Config {};",
    "Action": "using Action = float;",
    "Obs": "using Obs = float;",
    "Env(config)": "explicit One(const Config&) {}",
    "MakeSpec": "static EnvSpec MakeSpec(const Config&) { return EnvSpec(); }",
    "Reset": "void Reset(Rng&, bool) {}",
    "Step": "StepResult Step(const Action*, Rng&) { return {}; }",
    "Observe": "void Observe(Obs*) const {}",
    "WriteInfo": "void WriteInfo(double*) const {}",
}
MEMBERS = {"LightEnvironment": LIGHT, "HeavyEnvironment": HEAVY}


def compiled(source: str) -> subprocess.CompletedProcess[str]:
    head = '#include <cstdint>\n#include "rollouts/core/env.h"\nnamespace rollouts {\n'
    assert COMPILER is not None
    command = [COMPILER, "-std=c++20", "-fsyntax-only", f"-I{INCLUDE}", "-x", "c++", "-"]
    return subprocess.run(
        command, input=f"{head}{source}\n}}\n", capture_output=True, text=True, check=False
    )


def checked(concept: str, members: dict[str, str]) -> subprocess.CompletedProcess[str]:
    struct = f"struct One {{ {' '.join(members.values())} }};"
    return compiled(f"{struct}\nstatic_assert({concept}<One>);")


@pytest.mark.parametrize("concept", MEMBERS)
def test_an_environment_with_all_members_is_taken(concept: str) -> None:
    result = checked(concept, MEMBERS[concept])
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    ("concept", "member"),
    [
        (concept, member)
        for concept, members in MEMBERS.items()
        for member in members
        # others are written with these
        if member not in ("Config", "State", "Action", "Obs")
    ],
)
def test_a_missing_member_is_named(concept: str, member: str) -> None:
    members = {name: text for name, text in MEMBERS[concept].items() if name != member}
    result = checked(concept, members)
    assert result.returncode != 0
    assert f"concept rollouts::{concept}" in result.stderr
    assert member in result.stderr


@pytest.mark.parametrize(
    ("member", "text"),
    [
        ("Step", "static float Step(const Config&, State&, const Action*, Rng&) { return 0; }"),
        ("Observe", "static void Observe(const Config&, State&, Obs* obs) { obs[0] = 0; }"),
        ("kSpec", "static constexpr int kSpec = 0;"),
    ],
)
def test_a_member_of_another_type_is_refused(member: str, text: str) -> None:
    result = checked("LightEnvironment", {**LIGHT, member: text})
    assert result.returncode != 0
    assert member in result.stderr


def test_the_cost_of_very_long_steps_does_not_overflow() -> None:
    # an Atari step of 50 000 frames was cheaper than nothing
    source = "static_assert(EnvSpec::CostNs(46'000, 50'000) == 1'000'000'000);"
    short = "static_assert(EnvSpec::CostNs(46'000, 4) == 184'000);"
    result = compiled(f"{source}\n{short}")
    assert result.returncode == 0, result.stderr
