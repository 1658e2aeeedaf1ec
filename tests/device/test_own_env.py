# SPDX-License-Identifier: Apache-2.0
"""Environments of one's own, from a header, as kernels."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from own_envs import HEADERS, keep_between_runs, quick_compiler, register_herd, register_vault

import rollouts
from rollouts import SpecError, VectorEnv
from rollouts.cli import check_env
from rollouts.cli import main as cli

pytestmark = pytest.mark.system

keep_between_runs()
EMULATION = "cpu-emulation"

CONTRACT = """
#include "rollouts/core/env.h"
struct Drift {{
  struct Config {{ double speed = 0.1; }};
  struct State {{ {state} }};
  using Action = std::int32_t;
  using Obs = float;
  static constexpr rollouts::EnvSpec kSpec = {{
      .observation = {{.dtype = rollouts::DType::kFloat32, .ndim = 1, .shape = {{1}},
                      .low = {{-10}}, .high = {{100}}}},
      .action = {{.dtype = rollouts::DType::kInt64, .n = 2}},
      .step_cost_ns = 10}};
  {names}
  template <class V> static void VisitConfig(Config& config, V& visit) {{
    visit("speed", config.speed);
  }}
  ROLLOUTS_HD static void Reset(const Config&, State& state, rollouts::Rng& rng) {{
    state = {{}};
    state.x = static_cast<rollouts::Real>(rng.Uniform());
  }}
  ROLLOUTS_HD static rollouts::StepResult Step(const Config& config, State& state,
                                               const Action* action, rollouts::Rng&) {{
    state.x += static_cast<rollouts::Real>(*action == 1 ? config.speed : -config.speed);
    return rollouts::StepResult::Of(static_cast<double>(state.x), state.x < 0);
  }}
  ROLLOUTS_HD static void Observe(const Config&, const State& state, Obs* obs) {{
    obs[0] = static_cast<float>(state.x){wrong};
  }}
}};
"""
NAMES = 'static constexpr const char* kStateNames[] = {"x"};'


def write(
    folder: Path, *, state: str = "rollouts::Real x;", names: str = NAMES, wrong: str = ""
) -> Path:
    path = folder / "drift.h"
    path.write_text(CONTRACT.format(state=state, names=names, wrong=wrong))
    return path


@pytest.mark.parametrize("mode", ("next_step", "same_step"))
def test_a_header_s_kernel_is_its_pool(mode: str) -> None:
    arguments: dict[str, Any] = {"seed": 3, "autoreset_mode": mode, "fog": np.linspace(0, 1, 20)}
    env_id = register_vault()
    pool = rollouts.make_vec(env_id, 20, **arguments)
    kernel = rollouts.make_vec(env_id, 20, device=EMULATION, **arguments)
    assert isinstance(kernel, VectorEnv)
    np.testing.assert_array_equal(kernel.reset()[0].numpy(), pool.reset()[0])
    pool.action_space.seed(0)
    ends = 0
    for _ in range(200):
        actions = pool.action_space.sample()
        theirs, mine = pool.step(actions), kernel.step(actions)
        for one, other in zip(mine[:4], theirs[:4], strict=True):
            # a Real is 32 bits in the kernel, and so are rewards
            np.testing.assert_allclose(one.numpy(), other, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(mine[4]["tries"].numpy(), theirs[4]["tries"])
        ends += int((theirs[2] | theirs[3]).sum())
    assert ends > 50
    taken = kernel.rollout(50, record=True)[4]["action"]
    assert (taken >= 0).all()
    assert (taken < torch.tensor([4, 3, 5])).all()
    assert (taken.flatten(0, 1).max(dim=0).values == torch.tensor([3, 2, 4])).all()
    kernel.synchronize()


def test_a_wrong_element_of_an_action_is_told() -> None:
    kernel = rollouts.make_vec(register_vault(), 2, device=EMULATION)
    assert isinstance(kernel, VectorEnv)
    kernel.reset()
    kernel.step(torch.tensor([[3, 2, 4], [3, 3, 4]]))
    with pytest.raises(rollouts.EnvError, match="environment 1 got an action"):
        kernel.synchronize()


def test_real_numbers_need_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", quick_compiler())
    env_id = rollouts.register_env("Nameless-v0", header=write(tmp_path, names=""), type="Drift")
    with pytest.raises(SpecError, match="a State that has Reals needs kStateNames, one for each"):
        rollouts.make_vec(env_id, 2, device=EMULATION)
    half = write(tmp_path, state="rollouts::Real x; std::int32_t n;", names="")
    env_id = rollouts.register_env("HalfNamed-v0", header=half, type="Drift")
    with pytest.raises(SpecError, match="needs kStateNames"):
        rollouts.make_vec(env_id, 2, device=EMULATION)


def test_a_pickle_brings_the_header_along() -> None:
    kernel = rollouts.make_vec(register_vault(), 2, device=EMULATION, seed=1)
    text = pickle.dumps(kernel)
    code = f"import pickle; env = pickle.loads({text!r}); print(env.reset()[0].tolist())"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == str(kernel.reset()[0].tolist())


def test_several_agents_step_on_a_kernel_too() -> None:
    # test_agents.py compares them with the pool
    assert rollouts.env_spec(register_herd()).runs_on_gpu
    kernel = rollouts.make_vec("Herd-v0", 2, device=EMULATION, seed=3)
    again = pickle.loads(pickle.dumps(kernel))
    obs, other = kernel.reset()[0], again.reset()[0]
    assert torch.equal(obs["sheep"], other["sheep"])
    kernel.rollout(100)
    assert int(kernel.stats().num_episodes) > 4


def test_check_env_compares_a_kernel_of_agents(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check_env, "ENV_ID", "checked-herd-v0")
    assert cli.main(["check-env", str(HEADERS / "herd.h"), "--steps", "60"]) == 0
    assert "ok    kernel: as loops, the pool's to the bit" in capsys.readouterr().out


def test_check_env_compares_the_kernel(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", quick_compiler())
    assert cli.main(["check-env", str(write(tmp_path)), "--steps", "60"]) == 0
    assert "ok    kernel: as loops, within" in capsys.readouterr().out
