# SPDX-License-Identifier: Apache-2.0
"""PPO, from network to loss, fed by Ray workers that each host a native batch of environments.

The loop around it, its checkpoints and plots are in common/, as for the other programs.

    python examples/ppo.py                              CartPole-v1, two Ray workers
    python examples/ppo.py --env-id ALE/Pong-v5         Atari, the same path with a CNN
    python examples/ppo.py --env-id Pendulum-v1         continuous actions
    python examples/ppo.py --num-workers 0              in this process, without Ray
    python examples/ppo.py --resume runs/<run>          goes on where a run stopped

The workers sample while the learner learns, so a batch is usually one update old. PPO's probability
ratio corrects for that: `log_prob` in the batch is that of the policy that acted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any

import gymnasium
import numpy as np
import torch
from common.checkpoint import Checkpointed
from common.native_learning import LOGGED, add_learner_engine, logs_of, read_learner
from common.plotting import save_frames
from common.training import Training, chosen_env_id, run, run_parser, spec_of
from torch import Tensor, nn

import rollouts
from rollouts.learner.native_learner import NativeLearner, PpoLoss
from rollouts.policy import TorchPolicy, as_tensor
from rollouts.returns import batch_gae
from rollouts.workers import PolicySpec, QueueLimits

CHECKPOINT_KIND = "rollouts examples/ppo.py, version 1"

# options that differ between kinds of environments; the command line overrides each
PRESETS: dict[str, dict[str, Any]] = {
    # gradient steps in native code cost little, so rollouts are short and minibatches small
    "CartPole-v1": {
        "target_return": 475.0,
        "num_envs": 16,
        "rollout_length": 64,
        "learning_rate": 3e-3,
        "num_epochs": 2,
        "num_minibatches": 16,
    },
    "Acrobot-v1": {
        "num_envs": 32,
        "learning_rate": 2e-3,
        "num_epochs": 4,
        "total_steps": 500_000,
    },
    "Pendulum-v1": {
        "num_envs": 16,
        "total_steps": 300_000,
        "num_epochs": 10,
        "num_minibatches": 32,
        "gamma": 0.9,
    },
    "LunarLander-v3": {
        "num_envs": 16,
        "rollout_length": 256,
        "num_epochs": 4,
        "num_minibatches": 64,
        "gamma": 0.999,
        "gae_lambda": 0.98,
        "entropy_coef": 0.01,
    },
    "BipedalWalker-v3": {
        "num_envs": 32,
        "total_steps": 2_000_000,
        "num_epochs": 8,
        "num_minibatches": 32,
        "gamma": 0.999,
        "option": [("normalize_reward", True)],
    },
    # actions have a deviation below 1 at first: Ant's would otherwise cost more than they bring
    "HalfCheetah-v5": {
        "num_envs": 32,
        "rollout_length": 64,
        "num_epochs": 8,
        "num_minibatches": 16,
        "log_std": -1.0,
        "option": [("normalize_observation", True), ("normalize_reward", True)],
    },
    # rollouts, epochs, discount and constant KL divergence are as in rl_games' Ant on EnvPool
    "Ant-v5": {
        "num_envs": 64,
        "rollout_length": 64,
        "total_steps": 20_000_000,
        "hidden": (128, 64),
        "learning_rate": 3e-4,
        "steady_kl": 0.008,
        "num_epochs": 4,
        "num_minibatches": 8,
        "value_coef": 1.0,
        "max_grad_norm": 1.0,
        "log_std": -1.0,
        # observed contact forces are rare and large; actions beyond the bounds would cost more
        "option": [
            ("clip_action", True),
            ("normalize_observation", {"clip": 10.0}),
            ("normalize_reward", True),
        ],
    },
    "ALE/": {
        "total_steps": 10_000_000,
        "learning_rate": 2.5e-4,
        "num_epochs": 4,
        "num_minibatches": 4,
        "clip": 0.1,
        "entropy_coef": 0.01,
    },
}


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    """Reads the command line; other values come from the environment's preset."""
    parser = run_parser(__doc__)
    add = parser.add_argument
    add("--num-envs", type=int, default=8, help="environments per worker")
    add("--rollout-length", type=int, default=128, help="steps per environment and fragment")
    add("--total-steps", type=int, default=1_000_000, help="env-steps to train for at most")
    add("--target-return", type=float, help="stop at this mean return of 100 episodes")
    add("--hidden", type=int, nargs="+", default=(64, 64), help="layers of actor and critic")
    add("--learning-rate", type=float, default=1e-3, help="falls linearly to 0")
    add("--steady-kl", type=float, metavar="KL",
        help="KL of an update that the learning rate holds, in place of falling")  # fmt: skip
    add("--num-epochs", type=int, default=6, help="passes over each batch")
    add("--num-minibatches", type=int, default=8, help="gradient steps per pass")
    add("--gamma", type=float, default=0.99, help="discount per step")
    add("--gae-lambda", type=float, default=0.95, help="see rollouts.returns.gae")
    add("--clip", type=float, default=0.2, help="how far the probability ratio counts")
    add("--entropy-coef", type=float, default=0.0, help="weight of the entropy bonus")
    add("--log-std", type=float, default=0.0, help="of Box actions, to begin with")
    add("--value-coef", type=float, default=0.5, help="weight of the value loss")
    add("--max-grad-norm", type=float, default=0.5, help="gradients are scaled down to this")
    add_learner_engine(parser)
    add("--save-frames", type=int, default=0, metavar="N", help="PNG of the last N observations")
    env_id = chosen_env_id(argv, parser.get_default("env_id"))
    for prefix, preset in PRESETS.items():
        if env_id.startswith(prefix):
            parser.set_defaults(**preset)
    return parser.parse_args(argv)


class Agent(nn.Module):
    """Actor and critic: separate for small observations, with a common Nature CNN for pixels."""

    def __init__(
        self,
        obs_space: gymnasium.Space[Any],
        action_space: gymnasium.Space[Any],
        hidden: Sequence[int] = (64, 64),
    ) -> None:
        super().__init__()
        assert obs_space.shape is not None
        discrete = (gymnasium.spaces.Discrete, gymnasium.spaces.MultiDiscrete)
        self.is_discrete = isinstance(action_space, discrete)
        outputs = int(gymnasium.spaces.flatdim(action_space))
        self.is_pixels = obs_space.dtype == np.uint8 and len(obs_space.shape) == 3
        head: Callable[[int, int, float], nn.Module]
        if self.is_pixels:
            trunk, head, size = nature_cnn(obs_space.shape), layer, 512
        else:
            trunk, head, size = nn.Flatten(), partial(mlp, hidden=hidden), prod(obs_space.shape)
        self.trunk, self.actor, self.critic = trunk, head(size, outputs, 0.01), head(size, 1, 1.0)
        if not self.is_discrete:
            self.log_std = nn.Parameter(torch.zeros(outputs))

    def forward(self, obs: Tensor) -> tuple[Tensor, ...]:
        """Maps obs (B, ...) to (logits, value), or to (mean, log_std, value) for Box actions."""
        features = self.trunk(obs / 255.0 if self.is_pixels else obs.float())
        action, value = self.actor(features), self.critic(features)[:, 0]
        return (action, value) if self.is_discrete else (action, self.log_std, value)


def layer(inputs: int, outputs: int, gain: float = 2**0.5) -> nn.Module:
    """A linear layer with orthogonal weights and zero bias."""
    return orthogonal(nn.Linear(inputs, outputs), gain)


def orthogonal(module: nn.Linear | nn.Conv2d, gain: float = 2**0.5) -> nn.Module:
    """Initialises the weights as Andrychowicz et al. 2021 recommend for PPO."""
    nn.init.orthogonal_(module.weight, gain)
    nn.init.constant_(module.get_parameter("bias"), 0.0)
    return module


def mlp(inputs: int, outputs: int, gain: float, *, hidden: Sequence[int]) -> nn.Module:
    """Hidden layers of these sizes."""
    layers: list[nn.Module] = []
    for size in hidden:
        layers += [layer(inputs, size), nn.Tanh()]
        inputs = size
    return nn.Sequential(*layers, layer(inputs, outputs, gain))


def nature_cnn(obs_shape: tuple[int, ...]) -> nn.Module:
    """The network of Mnih et al. 2015 up to its 512 features."""
    convolutions = nn.Sequential(
        *(orthogonal(nn.Conv2d(obs_shape[0], 32, 8, stride=4)), nn.ReLU()),
        *(orthogonal(nn.Conv2d(32, 64, 4, stride=2)), nn.ReLU()),
        *(orthogonal(nn.Conv2d(64, 64, 3, stride=1)), nn.ReLU(), nn.Flatten()),
    )
    size = convolutions(torch.zeros(1, *obs_shape)).shape[1]
    return nn.Sequential(convolutions, layer(size, 512), nn.ReLU())


def make_policy(spec: PolicySpec, *, hidden: Sequence[int] = (64, 64)) -> TorchPolicy:
    """Makes a policy in the process that samples with it; its weights arrive before it acts."""
    agent = Agent(spec.single_observation_space, spec.single_action_space, hidden)
    return TorchPolicy(agent, spec.single_action_space, seed=spec.seed)


class Learner(Checkpointed):
    """The policy that is trained, its optimiser and its random numbers."""

    saved = ("model", "optimizer", "rng")

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        spec = spec_of(args)
        torch.manual_seed(args.seed)
        self.model = Agent(spec.single_observation_space, spec.single_action_space, args.hidden)
        if not self.model.is_discrete:
            nn.init.constant_(self.model.log_std, args.log_std)
        self.policy = TorchPolicy(self.model, spec.single_action_space, device=args.device)
        # fused: one call for all parameters saves a third of a gradient step of a small network
        self.optimizer = torch.optim.Adam(
            self.model.parameters(), lr=args.learning_rate, eps=1e-5, fused=True
        )
        self.rng = torch.Generator().manual_seed(args.seed)
        self.native = read_learner(self.model, self.optimizer, args)
        if args.save_frames and not self.model.is_pixels:
            raise ValueError(
                f"--save-frames needs an env that shows pixels, {args.env_id} does not"
            )

    def update(self, batch: rollouts.RolloutBatch, *, learning_rate: float) -> dict[str, float]:
        """Takes the gradient steps of one PPO update; returns means of the values to log."""
        if self.args.steady_kl is None:
            self.set_rate(learning_rate)
            return self.take_steps(batch)
        logs = self.take_steps(batch)
        self.set_rate(self.steadied(logs["kl"]))
        return logs

    def set_rate(self, learning_rate: float) -> None:
        """Sets the learning rate of the next steps; the optimiser's state contains it."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate

    def steadied(self, kl: float) -> float:
        """The learning rate after an update of this KL divergence, as rl_games adapts it."""
        rate: float = self.optimizer.param_groups[0]["lr"]
        if kl > 2.0 * self.args.steady_kl:
            rate /= 1.5
        elif kl < 0.5 * self.args.steady_kl:
            rate *= 1.5
        return min(max(rate, 1e-6), 1e-2)

    def take_steps(self, batch: rollouts.RolloutBatch) -> dict[str, float]:
        """Takes the gradient steps of `update`."""
        args = self.args
        # (T, B, ...) becomes (T * B, ...): the order of steps is not needed any more
        advantage, target = batch_gae(batch, gamma=args.gamma, gae_lambda=args.gae_lambda)
        time_major = (batch.obs, batch.action, batch.log_prob, advantage, target)
        steps = [as_tensor(x).flatten(0, 1).to(args.device) for x in time_major]
        size = -(-batch.num_steps // args.num_minibatches)
        if self.native is not None:
            return self._update_natively(self.native, steps, size)

        logs: list[Tensor] = []
        for _ in range(args.num_epochs):
            order = torch.randperm(batch.num_steps, generator=self.rng).to(args.device)
            for index in torch.split(order, size):
                loss, log = self.ppo_loss(*(x[index] for x in steps))
                self.optimizer.zero_grad()
                torch.autograd.backward(loss)
                nn.utils.clip_grad_norm_(self.model.parameters(), args.max_grad_norm)
                self.optimizer.step()
                logs.append(log)
        return dict(zip(LOGGED, torch.stack(logs).mean(0).tolist(), strict=True))

    def _update_natively(
        self, learner: NativeLearner, steps: list[Tensor], size: int
    ) -> dict[str, float]:
        """Gradient steps of `ppo_loss` below in native code."""
        args = self.args
        names = ("obs", "action", "log_prob", "advantage", "target")
        rows = {name: x.numpy() for name, x in zip(names, steps, strict=True)}
        loss = PpoLoss(
            clip_range=args.clip,
            value_weight=0.5 * args.value_coef,
            entropy_weight=args.entropy_coef,
        )
        orders = (
            torch.randperm(len(rows["obs"]), generator=self.rng).numpy()
            for _ in range(args.num_epochs)
        )
        return logs_of(
            [
                learner.update(
                    rows, order, minibatch=size, loss=loss, max_grad_norm=args.max_grad_norm
                )
                for order in orders
            ]
        )

    def ppo_loss(
        self, obs: Tensor, action: Tensor, old_log_prob: Tensor, advantage: Tensor, target: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The clipped objective of Schulman et al. 2017 on one minibatch, and values to log."""
        args = self.args
        *params, value = self.model(obs)
        log_prob, entropy = self.policy.head.evaluate(params, action)
        log_ratio = log_prob - old_log_prob
        ratio = log_ratio.exp()
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)

        clipped = ratio.clamp(1 - args.clip, 1 + args.clip)
        policy_loss = -torch.minimum(ratio * advantage, clipped * advantage).mean()
        value_loss = 0.5 * (value - target).square().mean()
        bonus = entropy.mean()
        loss = policy_loss + args.value_coef * value_loss - args.entropy_coef * bonus

        kl = (ratio - 1 - log_ratio).mean()
        clip_fraction = ((ratio - 1).abs() > args.clip).float().mean()
        return loss, torch.stack([policy_loss, value_loss, bonus, kl, clip_fraction]).detach()


class PpoTraining(Training):
    """A training run that also keeps the last observations, for an image."""

    def draw(self, title: str) -> None:
        """Writes the PNG of the training and, if it is asked for, that of the last observations."""
        super().draw(title)
        if self.args.save_frames and self.last_batch is not None:
            stacks = self.last_batch.obs[-self.args.save_frames :, 0]
            first = self.last_batch.obs.shape[0] - len(stacks)
            labels = [f"t = {first + row}" for row in range(len(stacks))]
            save_frames(self.dir / "frames.png", stacks, labels)


def main() -> int:
    """Trains; returns 0, 1 where the target was missed, or 130 after Ctrl-C."""
    args = parse_args()
    return run(
        args,
        Learner,
        partial(make_policy, hidden=args.hidden),
        kind=CHECKPOINT_KIND,
        title=f"PPO on {args.env_id}, {max(1, args.num_workers)} x {args.num_envs} environments",
        fragments_per_update=max(1, args.num_workers),
        # one fragment ahead of the learner is enough: further ones would only be older
        queue=QueueLimits(credits_per_worker=1),
        training_type=PpoTraining,
    )


if __name__ == "__main__":
    sys.exit(main())
