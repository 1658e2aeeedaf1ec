# SPDX-License-Identifier: Apache-2.0
"""Physics on a GPU, whose step is one CUDA graph, beside Warp's CPU device. Have not run yet."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import rollouts
from rollouts import Collector, TorchPolicy
from rollouts.mujoco import Scaled

pytest.importorskip("mujoco_warp")

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]

NUM_ENVS = 64


def make_both(env_id: str, **options: Any) -> tuple[Any, Any]:
    arguments = {"seed": 1, "autoreset_mode": "same_step", **options}
    return (
        rollouts.make_vec(env_id, NUM_ENVS, device="cuda", **arguments),
        rollouts.make_vec(env_id, NUM_ENVS, device="cpu-emulation", **arguments),
    )


def draw(env: Any, generator: torch.Generator) -> torch.Tensor:
    size = env.single_action_space.shape[0]
    return 2 * torch.rand(NUM_ENVS, size, generator=generator) - 1


@pytest.mark.parametrize(
    "env_id",
    (
        *("InvertedPendulum-v5", "Hopper-v5", "Humanoid-v5", "WalkerWalk-v1"),
        # loops in the graph: draws until nothing touches, and 200 substeps of rest
        *("CheetahRun-v1", "FingerTurnHard-v1", "HumanoidRun-v1"),
    ),
)
def test_a_graphs_steps_are_those_of_the_cpu(env_id: str) -> None:
    env, cpu = make_both(env_id, max_episode_steps=3)
    error = 5e-5 if env_id == "CheetahRun-v1" else 1e-6
    torch.testing.assert_close(env.reset()[0].cpu(), cpu.reset()[0], atol=error, rtol=error)
    generator = torch.Generator().manual_seed(0)
    for _ in range(8):
        actions = draw(env, generator)
        found, expected = env.step(actions.to(env.device)), cpu.step(actions)
        # contacts are added up in any order, through up to three steps of up to five substeps
        for ours, theirs in zip(found[:2], expected[:2], strict=True):
            torch.testing.assert_close(ours.cpu(), theirs, atol=5e-3, rtol=5e-3)
        assert torch.equal(found[3].cpu(), expected[3])
    env.synchronize()
    assert env.stats().num_launches == 9


def test_a_step_goes_on_torchs_current_stream() -> None:
    env, cpu = make_both("InvertedPendulum-v5")
    env.reset(), cpu.reset()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        actions = torch.ones(NUM_ENVS, 1, device=env.device)
        found = env.step(actions)[0] + 0.0
    stream.synchronize()
    torch.testing.assert_close(
        found.cpu(), cpu.step(torch.ones(NUM_ENVS, 1))[0], atol=1e-5, rtol=1e-5
    )


def test_states_and_models_go_between_devices() -> None:
    model = {"dof_damping": Scaled(0.5, 2.0)}
    env, cpu = make_both("InvertedPendulum-v5", model=model)
    env.reset(), cpu.reset()
    cpu.set_state(None, env.get_state())
    assert (env.model_field("dof_damping") == cpu.model_field("dof_damping")).all()


@pytest.mark.parametrize("engine", ("native", "torch"))
def test_a_collector_runs_beside_it(engine: Any) -> None:
    env, _ = make_both("InvertedPendulum-v5")

    class Agent(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.actor, self.critic = torch.nn.Linear(4, 1), torch.nn.Linear(4, 1)
            self.log_std = torch.nn.Parameter(torch.zeros(1))

        def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return self.actor(obs), self.log_std, self.critic(obs)

    policy = TorchPolicy(Agent().cuda(), env.single_action_space, seed=1, device=env.device)
    collector = Collector(env, policy, 16, engine=engine)
    rollout = collector.collect()
    collector.synchronize()
    assert rollout.obs.isfinite().all()
    assert rollout.episode_length.max() > 1
