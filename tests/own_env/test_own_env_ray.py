# SPDX-License-Identifier: Apache-2.0
"""An environment of one's own in a Ray worker, where its header's text travels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from own_envs import HEADERS

import rollouts
from rollouts.own_env.header_files import read_header

HANG_S = 300.0


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Linear(7, 13)

    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        out = self.body(obs)
        return out[:, :12], out[:, 12]


def make_policy(spec: Any) -> rollouts.TorchPolicy:
    torch.manual_seed(0)
    return rollouts.TorchPolicy(Net(), spec.single_action_space, seed=3)


def fragment(num_workers: int) -> rollouts.RolloutBatch:
    with rollouts.RolloutCoordinator(
        "Vault-ray-v0",
        make_policy,
        num_workers=num_workers,
        num_envs_per_worker=5,
        rollout_length=16,
        env_options={"fog": 0.2},
        seed=11,
    ) as coordinator:
        coordinator.publish_weights(make_policy(rollouts.env_spec("Vault-ray-v0")).weights())
        return coordinator.get(timeout_s=HANG_S)


def test_a_worker_steps_it_and_gives_the_data_of_this_process(
    ray_session: Any, tmp_path: Path
) -> None:
    for name, text in read_header(HEADERS / "vault.h").files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    rollouts.register_env(
        "Vault-ray-v0", header=tmp_path / "vault.h", type="games::Vault", max_episode_steps=10
    )
    # no worker could read the file
    (tmp_path / "vault.h").unlink()
    there, here = fragment(1), fragment(0)
    for name in ("obs", "action", "reward", "terminated", "truncated"):
        np.testing.assert_array_equal(getattr(there, name), getattr(here, name), err_msg=name)
    assert there.truncated.any()
