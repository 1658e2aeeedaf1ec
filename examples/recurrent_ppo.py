# SPDX-License-Identifier: Apache-2.0
"""PPO with memory: CartPole without its velocities, which a GRU works out from what it saw.

    python examples/recurrent_ppo.py                    positions only, two Ray workers
    python examples/recurrent_ppo.py --no-memory        the same network, forgetting every step
    python examples/recurrent_ppo.py --visible 0 1 2 3 --scale 1 1 1 1  nothing hidden
    python examples/recurrent_ppo.py --num-workers 0    in this process, without Ray

Each worker keeps one state per environment and starts it anew with each episode; a rollout contains
the states before its first row. The learner runs whole columns of a rollout through the network
again, from these states on and with new ones where episodes begin (`rollouts.recurrent.unroll`), so
that gradients flow through time. Native code does the same, several times faster; `--learner-engine
torch` runs the loop below. Everything else is the PPO of ppo.py.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import torch
from common.checkpoint import Checkpointed
from common.native_learning import LOGGED, add_learner_engine, logs_of, read_learner
from common.training import run, run_parser, spec_of
from numpy.typing import NDArray
from ppo import layer
from torch import Tensor, nn

import rollouts
from rollouts.learner.native_learner import NativeLearner, PpoLoss
from rollouts.policy import as_tensor
from rollouts.recurrent import RecurrentTorchPolicy, State, unroll
from rollouts.returns import batch_gae
from rollouts.workers import PolicySpec, QueueLimits

CHECKPOINT_KIND = "rollouts examples/recurrent_ppo.py, version 1"


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    """Reads the command line."""
    parser = run_parser(__doc__)
    add = parser.add_argument
    add("--visible", type=int, nargs="+", default=[0, 2], help="observed numbers that are shown")
    # positions change by hundredths from step to step, so that they are scaled up
    add("--scale", type=float, nargs="+", default=[2.0, 20.0], help="factor of each of them")
    add("--no-memory", action="store_true", help="forget everything after each step")
    add("--num-envs", type=int, default=8, help="environments per worker")
    add("--rollout-length", type=int, default=32, help="steps per environment and fragment")
    add("--total-steps", type=int, default=1_000_000, help="env-steps to train for at most")
    add("--target-return", type=float, default=400.0, help="stop at this mean of 100 episodes")
    add("--learning-rate", type=float, default=2e-3, help="falls linearly to 0")
    add("--num-epochs", type=int, default=10, help="passes over each batch")
    add("--num-minibatches", type=int, default=2, help="gradient steps per pass")
    add("--gamma", type=float, default=0.98, help="discount per step")
    add("--gae-lambda", type=float, default=0.8, help="see rollouts.returns.gae")
    add("--clip", type=float, default=0.2, help="how far the probability ratio counts")
    add("--entropy-coef", type=float, default=0.0, help="weight of the entropy bonus")
    add("--value-coef", type=float, default=0.5, help="weight of the value loss")
    add("--max-grad-norm", type=float, default=0.5, help="gradients are scaled down to this")
    add_learner_engine(parser)
    return parser.parse_args(argv)


class Agent(nn.Module):
    """An encoder, a GRU cell, and two heads, for small observations and Discrete actions."""

    scale: Tensor

    def __init__(
        self,
        action_space: gymnasium.Space[Any],
        *,
        visible: list[int],
        scale: list[float],
        has_memory: bool,
        size: int = 64,
    ) -> None:
        super().__init__()
        if not isinstance(action_space, gymnasium.spaces.Discrete):
            raise ValueError(f"this example needs Discrete actions, the env has {action_space}")
        if len(visible) != len(scale):
            raise ValueError(f"--scale has {len(scale)} factors, expected {len(visible)}")
        self.visible, self.has_memory, self.size = visible, has_memory, size
        self.register_buffer("scale", torch.tensor(scale), persistent=False)
        self.encoder = nn.Sequential(layer(len(visible), size), nn.Tanh())
        self.cell = nn.GRUCell(size, size)
        self.actor, self.critic = layer(size, int(action_space.n), 0.01), layer(size, 1, 1.0)

    def initial_state(self) -> State:
        """The state with which an episode begins."""
        return (self.cell.weight_hh.new_zeros(self.size),)

    def forward(self, obs: Tensor, state: State) -> tuple[Tensor, Tensor, State]:
        """Maps obs (B, ...) and state to (logits, value, state): one step of a worker."""
        hidden, state = self.step(self.encode(obs), state)
        return *self.heads(hidden), state

    def sequence(self, obs: Tensor, state: State, ended: Tensor) -> tuple[Tensor, Tensor]:
        """Maps obs (T, B, ...) to logits (T, B, A) and value (T, B); the cell runs step by step."""
        features = self.encode(obs)
        initial = self.initial_state()
        hidden, _ = unroll(self.step, features, state, ended=ended, initial_state=initial)
        return self.heads(hidden)

    def encode(self, obs: Tensor) -> Tensor:
        """Maps (..., D) to (..., size); uses the visible numbers only."""
        features: Tensor = self.encoder(obs[..., self.visible] * self.scale)
        return features

    def step(self, features: Tensor, state: State) -> tuple[Tensor, State]:
        """One step of the cell for (B, size)."""
        before = state[0] if self.has_memory else torch.zeros_like(state[0])
        hidden = self.cell(features, before)
        return hidden, (hidden,)

    def heads(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Logits (..., A) and value (...)."""
        return self.actor(hidden), self.critic(hidden)[..., 0]


def agent_options(args: argparse.Namespace) -> dict[str, Any]:
    """Options of an Agent from the command line."""
    return {"visible": args.visible, "scale": args.scale, "has_memory": not args.no_memory}


def make_policy(spec: PolicySpec | rollouts.EnvSpec, **options: Any) -> RecurrentTorchPolicy:
    """Makes a policy for a worker or for the learner."""
    agent = Agent(spec.single_action_space, **options)
    return RecurrentTorchPolicy(agent, spec.single_action_space)


class Learner(Checkpointed):
    """The policy that is trained, its optimiser and its random numbers."""

    saved = ("model", "optimizer", "rng")

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        spec = spec_of(args)
        torch.manual_seed(args.seed)
        self.policy = make_policy(spec, **agent_options(args))
        self.model: Agent = self.policy.module.to(args.device)  # type: ignore[assignment]
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=args.learning_rate, eps=1e-5)
        self.rng = torch.Generator().manual_seed(args.seed)
        self.native = read_learner(self.model, self.optimizer, args)

    def update(self, batch: rollouts.RolloutBatch, *, learning_rate: float) -> dict[str, float]:
        """Takes the gradient steps of one PPO update; returns means of the values to log."""
        args = self.args
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate

        # a minibatch has some of the environments, and all of their steps in order
        advantage, target = batch_gae(batch, gamma=args.gamma, gae_lambda=args.gae_lambda)
        ended = batch.terminated | batch.truncated
        if self.native is not None:
            return self._update_natively(self.native, batch, ended, advantage, target)
        arrays = (batch.obs, ended, batch.action, batch.log_prob, advantage, target)
        time_major = [as_tensor(array).to(args.device) for array in arrays]
        state = tuple(as_tensor(array).to(args.device) for array in batch.policy_state)
        envs = batch.reward.shape[1]
        size = -(-envs // args.num_minibatches)

        logs: list[Tensor] = []
        for _ in range(args.num_epochs):
            order = torch.randperm(envs, generator=self.rng).to(args.device)
            for columns in torch.split(order, size):
                start = tuple(s[columns] for s in state)
                loss, log = self.ppo_loss(start, *(x[:, columns] for x in time_major))
                self.optimizer.zero_grad()
                torch.autograd.backward(loss)
                nn.utils.clip_grad_norm_(self.model.parameters(), args.max_grad_norm)
                self.optimizer.step()
                logs.append(log)
        return dict(zip(LOGGED, torch.stack(logs).mean(0).tolist(), strict=True))

    def _update_natively(
        self,
        learner: NativeLearner,
        batch: rollouts.RolloutBatch,
        ended: NDArray[np.bool_],
        advantage: NDArray[Any],
        target: NDArray[Any],
    ) -> dict[str, float]:
        """Takes the gradient steps of `ppo_loss` below in native code."""
        args, envs = self.args, batch.reward.shape[1]
        rows = {
            "obs": batch.obs,
            "action": batch.action,
            "log_prob": batch.log_prob,
            "advantage": advantage,
            "target": target,
            "ended": ended,
        }
        loss = PpoLoss(
            clip_range=args.clip,
            value_weight=0.5 * args.value_coef,
            entropy_weight=args.entropy_coef,
        )
        orders = (torch.randperm(envs, generator=self.rng).numpy() for _ in range(args.num_epochs))
        return logs_of(
            [
                learner.update(
                    rows,
                    order,
                    minibatch=-(-envs // args.num_minibatches),
                    loss=loss,
                    max_grad_norm=args.max_grad_norm,
                    state=batch.policy_state,
                )
                for order in orders
            ]
        )

    def ppo_loss(
        self,
        state: State,
        obs: Tensor,
        ended: Tensor,
        action: Tensor,
        old_log_prob: Tensor,
        advantage: Tensor,
        target: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """The clipped objective on the columns of one minibatch (T, B), and values to log."""
        args = self.args
        logits, value = self.model.sequence(obs, state, ended)
        log_prob, entropy = self.policy.head.evaluate([logits.flatten(0, 1)], action.flatten())
        log_ratio = log_prob - old_log_prob.flatten()
        ratio = log_ratio.exp()
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        advantage = advantage.flatten()

        clipped = ratio.clamp(1 - args.clip, 1 + args.clip)
        policy_loss = -torch.minimum(ratio * advantage, clipped * advantage).mean()
        value_loss = 0.5 * (value - target).square().mean()
        bonus = entropy.mean()
        loss = policy_loss + args.value_coef * value_loss - args.entropy_coef * bonus

        kl = (ratio - 1 - log_ratio).mean()
        clip_fraction = ((ratio - 1).abs() > args.clip).float().mean()
        return loss, torch.stack([policy_loss, value_loss, bonus, kl, clip_fraction]).detach()


def main() -> int:
    """Trains; returns 0, 1 where the target was missed, or 130 after Ctrl-C."""
    args = parse_args()
    memory = "without memory" if args.no_memory else "with a GRU"
    return run(
        args,
        Learner,
        partial(make_policy, **agent_options(args)),
        kind=CHECKPOINT_KIND,
        title=f"PPO {memory} on {args.env_id}, numbers {args.visible} visible",
        fragments_per_update=max(1, args.num_workers),
        queue=QueueLimits(credits_per_worker=1),
    )


if __name__ == "__main__":
    sys.exit(main())
