# SPDX-License-Identifier: Apache-2.0
"""Runs that are recorded, and what `rollouts replay-run` makes of them in another process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import nn

import rollouts
from rollouts.bench.policies import make_policy
from rollouts.bench.policy_kinds import read_policy
from rollouts.policy import TorchPolicy
from rollouts.workers.agent_policies import policy_specs
from rollouts.workers.worker_config import PolicySpec, WorkerConfig

SHOWN = ("obs", "action", "reward", "terminated", "truncated", "episode_return", "episode_length")


def policies_of(env: Any) -> Any:
    """A small policy for each group of the environments, or the one of one agent.

    Tanh layers of vectors, one layer of pictures with Discrete actions, random actions otherwise.
    """
    config = WorkerConfig(
        id="any", num_envs=env.num_envs, rollout_length=1, num_threads=1, seed=5, env_options={}
    )
    groups = getattr(env, "groups", None) or {"": env}
    made = {name: small_policy(spec) for name, spec in policy_specs(config, groups).items()}
    return made.get("", made)


def small_policy(spec: PolicySpec) -> Any:
    """The policy of `policies_of`, for workers."""
    space = spec.single_observation_space
    axes = len(space.shape or ()) if isinstance(space, gymnasium.spaces.Box) else 0
    if axes > 1 and isinstance(spec.single_action_space, gymnasium.spaces.Discrete):
        torch.manual_seed(spec.seed)
        return TorchPolicy(Linear(space, spec.single_action_space), spec.single_action_space)
    return make_policy(spec, kind=read_policy("16" if axes == 1 else "random"))


class Linear(nn.Module):
    """One layer of pictures, for Discrete actions."""

    def __init__(self, space: Any, actions: Any) -> None:
        super().__init__()
        size = int(np.prod(space.shape))
        self.actor, self.critic = nn.Linear(size, int(actions.n)), nn.Linear(size, 1)

    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        flat = obs.flatten(1) / 255
        return self.actor(flat), self.critic(flat)


def by_group(batch: Any) -> Mapping[str, rollouts.RolloutBatch]:
    """The batches of a rollout by group, "" of one agent."""
    return batch if isinstance(batch, rollouts.MultiAgentRollout) else {"": batch}


def assert_same(made: rollouts.ReplayedFragment, batch: Any) -> None:
    """Compares what was made again with the rollout, bit for bit."""
    assert made.is_verified
    for name, own in by_group(batch).items():
        for field in (*SHOWN, "last_obs", "env_id", "final_obs"):
            again, first = getattr(made.batches[name], field), getattr(own, field)
            assert again is None or again.dtype == first.dtype, field
            np.testing.assert_array_equal(again, first, err_msg=field)


def replay_elsewhere(
    log: Path, env_id: int, step: int, dump: Path, *more: str
) -> dict[str, np.ndarray]:
    """Makes a fragment again by the command, in a process of its own; returns what it dumped."""
    command = [sys.executable, "-m", "rollouts", "replay-run", str(log), "--env", str(env_id)]
    command += ["--step", str(step), "--dump", str(dump), *more]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "bit for bit" in done.stdout, done.stdout
    return dict(np.load(dump))


_REPLAYS = """
import json, sys
import numpy as np
import rollouts
for one in json.load(sys.stdin):
    dump = one.pop("dump")
    made = rollouts.replay_run(**one)
    assert made.is_verified
    np.savez(dump, **made.of_env())
"""


def replay_all_elsewhere(wanted: list[dict[str, Any]]) -> None:
    """Makes fragments again in one other process.

    Args:
      wanted: Arguments of `replay_run`, and "dump", the file of each.
    """
    given = json.dumps(wanted)
    run = [sys.executable, "-c", _REPLAYS]
    done = subprocess.run(run, input=given, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
