# SPDX-License-Identifier: Apache-2.0
"""Ape-X DQN: workers that explore differently fill a sharded replay, a learner samples from it.

    python examples/dqn.py                              CartPole-v1, two Ray workers, two shards
    python examples/dqn.py --env-id ALE/Pong-v5         Atari, each frame stored once
    python examples/dqn.py --num-workers 0 --num-shards 0   all in this process, without Ray
    python examples/dqn.py --resume runs/<run>          goes on, with what the replay held

Double Q-learning on n-step returns, with dueling values. Items with larger errors are sampled more
often, and their losses weigh less to make up for it. Rollouts go from the workers into the shards
without passing the learner; the shards' rate limiter keeps the number of times that an item is
learned from near --samples-per-insert.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from typing import Any

import gymnasium
import torch
from common.checkpoint import Checkpointed
from common.native_learning import add_learner_engine, read_or_none
from common.replay_training import (
    add_greedy_arguments,
    add_replay_arguments,
    explore,
    explores_little,
    make_table,
    run,
)
from common.training import chosen_env_id, run_parser, spec_of
from numpy.typing import NDArray
from ppo import Agent
from torch import Tensor, nn

import rollouts
from rollouts.learner.loss_learner import LossLearner
from rollouts.learner.row_losses import DqnLoss
from rollouts.replay import NStep, TransitionBatch
from rollouts.replay.sampling import ReplayBatch
from rollouts.workers import PolicySpec

CHECKPOINT_KIND = "rollouts examples/dqn.py, version 1"

# options that differ between kinds of environments; the command line overrides each
PRESETS: dict[str, dict[str, Any]] = {
    "CartPole-v1": {"target_return": 475.0},
    "ALE/": {
        "total_steps": 10_000_000,
        "learning_rate": 1e-4,
        "batch_size": 32,
        "samples_per_insert": 1.0,
        "min_size": 5_000,
        "n_step": 3,
        "target_interval": 500,
    },
}


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    """Reads the command line; other values come from the environment's preset."""
    parser = run_parser(__doc__)
    add_replay_arguments(parser)
    add_greedy_arguments(parser)
    add_learner_engine(parser)
    env_id = chosen_env_id(argv, parser.get_default("env_id"))
    for prefix, preset in PRESETS.items():
        if env_id.startswith(prefix):
            parser.set_defaults(**preset)
    return parser.parse_args(argv)


class QNetwork(nn.Module):
    """Values of all actions: the observation's value plus the advantage of each action."""

    def __init__(self, obs_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]) -> None:
        super().__init__()
        if not isinstance(action_space, gymnasium.spaces.Discrete):
            raise ValueError(f"this example needs Discrete actions, the env has {action_space}")
        self.agent = Agent(obs_space, action_space)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Maps obs (B, ...) to values (B, A), and their maximum (B,)."""
        values = self.values(obs)
        return values, values.max(-1).values

    def values(self, obs: Tensor) -> Tensor:
        """Maps obs (B, ...) to values (B, A)."""
        advantage, value = self.agent(obs)
        values: Tensor = value[:, None] + advantage - advantage.mean(-1, keepdim=True)
        return values


def make_policy(spec: PolicySpec, *, total_envs: int) -> rollouts.TorchPolicy:
    """Makes a policy in the process that samples with it; its weights arrive before it acts."""
    network = QNetwork(spec.single_observation_space, spec.single_action_space)
    policy = rollouts.TorchPolicy(network, spec.single_action_space, seed=spec.seed)
    explore(policy, spec, total_envs)
    return policy


class Learner(Checkpointed):
    """The network that is trained, the older one that its targets come from, and the optimiser."""

    saved = ("online", "target", "optimizer", "updates")
    policy_state: tuple[NDArray[Any], ...] = ()

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        spec = spec_of(args)
        torch.manual_seed(args.seed)
        spaces = spec.single_observation_space, spec.single_action_space
        self.online, self.target = QNetwork(*spaces), QNetwork(*spaces).to(args.device)
        self.policy = rollouts.TorchPolicy(self.online, spaces[1], device=args.device)
        self.target.load_state_dict(self.online.state_dict())
        # fused, because otherwise the optimiser takes a fifth of an update of such small networks
        parameters = self.online.parameters()
        self.optimizer = torch.optim.Adam(parameters, lr=args.learning_rate, fused=True)
        space: Any = spec.single_action_space
        self.start, self.num_actions = int(space.start), int(space.n)
        self.updates = 0
        self.native = read_or_none(lambda: self._read(spaces[0].shape or ()), args.learner_engine)

    def _read(self, obs_shape: tuple[int, ...]) -> LossLearner:
        """Makes the native learner. Raises SpecError where that is impossible, as with a CNN."""
        loss = DqnLoss(
            Values(self.online),
            Values(self.target),
            obs_shape,
            self.num_actions,
            double=True,
            weighted=True,
        )
        return LossLearner(loss, self.optimizer, self.args.torch_threads)

    def learn(self, batch: ReplayBatch, *, learning_rate: float) -> tuple[Tensor, dict[str, Any]]:
        """Takes one gradient step; returns the errors as priorities (B,), and logs."""
        assert isinstance(batch, TransitionBatch)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate

        loss, value, error = (self.descend if self.native is None else self.descend_natively)(batch)
        self.updates += 1
        if self.updates % self.args.target_interval == 0:
            self.target.load_state_dict(self.online.state_dict())
        # 1e-6 is added, so that an item without error is still sampled sometimes
        return error + 1e-6, {"loss": loss, "value": value.mean(), "error": error.mean()}

    def descend(self, batch: TransitionBatch) -> tuple[Tensor, Tensor, Tensor]:
        """Takes the step by torch; returns the loss, the values (B,) and sizes of errors (B,)."""
        # the online network chooses the action, the target network values it; batch.discount is 0
        # where the episode terminated, and next_obs is the true final one where it was truncated
        with torch.no_grad():
            best = self.online.values(batch.next_obs).argmax(-1, keepdim=True)
            following = self.target.values(batch.next_obs).gather(-1, best)[:, 0]
            goal = batch.reward + batch.discount * following

        index = batch.action.long()[:, None] - self.start
        value = self.online.values(batch.obs).gather(-1, index)[:, 0]
        losses = nn.functional.smooth_l1_loss(value, goal, reduction="none")
        loss = (batch.weight * losses).mean()
        self.optimizer.zero_grad()
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(self.online.parameters(), self.args.max_grad_norm)
        self.optimizer.step()

        return loss.detach(), value.detach(), (value - goal).detach().abs()

    def descend_natively(self, batch: TransitionBatch) -> tuple[Tensor, Tensor, Tensor]:
        """Takes the same step of the same loss in native code."""
        assert self.native is not None
        names = "obs", "reward", "discount", "next_obs", "weight"
        parts = {name: getattr(batch, name).numpy() for name in names}
        index = batch.action.long() - self.start
        parts["action"] = nn.functional.one_hot(index, self.num_actions).numpy()
        found = self.native.step(parts, max_grad_norm=self.args.max_grad_norm)
        _, off, value = torch.from_numpy(found.outputs).unbind(1)
        return torch.tensor(found.loss), value, off.abs()


class Values(nn.Module):
    """Gives a network's values of all actions, not only the largest of them."""

    def __init__(self, network: QNetwork) -> None:
        super().__init__()
        self.network = network

    def forward(self, obs: Tensor) -> Tensor:
        """Maps obs (B, ...) to values (B, A)."""
        return self.network.values(obs)


def main() -> int:
    """Trains; returns 0, 1 where the target was missed, or 130 after Ctrl-C."""
    args = parse_args()
    total_envs = max(1, args.num_workers) * args.num_envs
    return run(
        args,
        Learner,
        partial(make_policy, total_envs=total_envs),
        make_table(args, NStep(args.n_step, args.gamma)),
        kind=CHECKPOINT_KIND,
        title=f"DQN on {args.env_id}, {total_envs} environments, {args.num_shards} shards",
        counts=explores_little(args),
    )


if __name__ == "__main__":
    sys.exit(main())
