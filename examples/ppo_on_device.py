# SPDX-License-Identifier: Apache-2.0
"""PPO whose environments, policy and learner stay on one GPU.

    python examples/ppo_on_device.py                                  on the GPU that is there
    python examples/ppo_on_device.py --device cpu-emulation           its kernels as loops, slowly
    python examples/ppo_on_device.py --env-id Pendulum-v1 --gamma 0.9 continuous actions

Kernels step the environments, compute the policy and estimate advantages; torch learns. Nothing is
copied to the host and nothing waits for the device but after each update, when the returns of
episodes are read. The network is that of ppo.py, whose environments the CPU's threads step.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import torch
from gymnasium import spaces
from ppo import Agent
from torch import Tensor, nn
from tqdm.auto import tqdm

import rollouts
from rollouts.checkpoint import Checkpoint, save_checkpoint
from rollouts.policy import make_action_head
from rollouts.returns import Gae

TARGETS = {"CartPole-v1": 475.0}


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--env-id", default="CartPole-v1", help="one that runs on a GPU: see `rollouts envs`")
    add("--device", default="cuda", help="cuda, cuda:1 or cpu-emulation")
    add("--num-envs", type=int, default=1024, help="environments")
    add("--rollout-length", type=int, default=32, help="steps per environment and update")
    add("--total-steps", type=int, default=3_000_000, help="env-steps to train for at most")
    add("--target-return", type=float, help="stop at this mean return; default: 475 for CartPole")
    add("--learning-rate", type=float, default=3e-3, help="falls linearly to 0")
    add("--num-epochs", type=int, default=4, help="passes over each batch")
    add("--num-minibatches", type=int, default=4, help="gradient steps per pass")
    add("--gamma", type=float, default=0.99, help="discount per step")
    add("--gae-lambda", type=float, default=0.95, help="see rollouts.returns.gae")
    add("--clip", type=float, default=0.2, help="how far the probability ratio counts")
    add("--entropy-coef", type=float, default=0.0, help="weight of the entropy bonus")
    add("--max-grad-norm", type=float, default=0.5, help="gradients are scaled down to this")
    add("--seed", type=int, default=1, help="of environments, weights and actions")
    add("--run-dir", type=Path, help="where a checkpoint for `rollouts eval` goes")
    args = parser.parse_args(argv)
    if args.target_return is None:
        args.target_return = TARGETS.get(args.env_id)
    return args


class Trainer:
    """Environments, a policy and its optimiser on one device."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        env: Any = rollouts.make_vec(
            args.env_id,
            args.num_envs,
            device=args.device,
            seed=args.seed,
            autoreset_mode="same_step",
        )
        self.env, self.device = env, env.device
        if not isinstance(env.single_observation_space, spaces.Box):
            raise rollouts.SpecError(f"{args.env_id} shows no numbers that a network could read")
        torch.manual_seed(args.seed)
        agent = Agent(env.single_observation_space, env.single_action_space)
        self.model = agent.to(self.device)
        self.head = make_action_head(env.single_action_space)
        self.collector = rollouts.DeviceCollector(
            env,
            rollouts.TorchPolicy(
                self.model, env.single_action_space, seed=args.seed, device=self.device
            ),
            args.rollout_length,
            returns=Gae(gamma=args.gamma, gae_lambda=args.gae_lambda),
        )
        self.generator = torch.Generator(self.device).manual_seed(args.seed)
        self.optimizer = torch.optim.Adam(
            self.model.parameters(), lr=args.learning_rate, eps=1e-5, fused=True
        )
        self._episodes, self._returns = 0, 0.0
        self._mean_return = float("nan")

    def update(self, rollout: rollouts.DeviceRollout, learning_rate: float) -> None:
        """Takes the gradient steps of one PPO update (Schulman et al. 2017)."""
        args = self.args
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        advantage, target = rollout.extras["advantage"], rollout.extras["target"]
        time_major = (rollout.obs, rollout.action, rollout.log_prob, advantage, target)
        steps = [one.flatten(0, 1) for one in time_major]
        num_steps = len(steps[0])
        for _ in range(args.num_epochs):
            order = torch.randperm(num_steps, generator=self.generator, device=self.device)
            for index in order.split(-(-num_steps // args.num_minibatches)):
                loss = self.loss(*(one[index] for one in steps))
                self.optimizer.zero_grad()
                torch.autograd.backward(loss)
                nn.utils.clip_grad_norm_(self.model.parameters(), args.max_grad_norm)
                self.optimizer.step()

    def loss(
        self, obs: Tensor, action: Tensor, old_log_prob: Tensor, advantage: Tensor, target: Tensor
    ) -> Tensor:
        """The clipped objective on one minibatch."""
        *params, value = self.model(obs)
        log_prob, entropy = self.head.evaluate(params, action)
        ratio = (log_prob - old_log_prob).exp()
        advantage = (advantage - advantage.mean()) / (advantage.std(correction=0) + 1e-8)
        clipped = ratio.clamp(1 - self.args.clip, 1 + self.args.clip)
        policy_loss = -torch.minimum(ratio * advantage, clipped * advantage).mean()
        value_loss = 0.25 * (value - target).square().mean()
        return policy_loss + value_loss - self.args.entropy_coef * entropy.mean()

    def save(self, env_steps: int) -> None:
        """Writes the checkpoint; the network is that of ppo.py, whose make_policy makes it."""
        self.args.run_dir.mkdir(parents=True, exist_ok=True)
        checkpoint = Checkpoint(
            env_id=self.args.env_id,
            program="examples/ppo.py",
            weights=self.model.state_dict(),
            policy_version=2,
            env_steps=env_steps,
            seed=self.args.seed,
        )
        save_checkpoint(self.args.run_dir, checkpoint)

    def mean_return(self) -> float:
        """Of the last hundred episodes or some more; NaN before there were so many. Waits."""
        self.env.synchronize()
        stats = self.env.stats()
        episodes = int(stats.num_episodes)
        if episodes - self._episodes >= 100:
            returns = float(stats.episode_return) * episodes
            self._mean_return = (returns - self._returns) / (episodes - self._episodes)
            self._episodes, self._returns = episodes, returns
        return self._mean_return


def main() -> int:
    """Trains; returns 0, 1 where a target was missed, or 2 where it could not begin."""
    args = parse_args()
    try:
        trainer = Trainer(args)
    except rollouts.RolloutsError as error:
        print(f"ppo_on_device: {error}", file=sys.stderr)
        return 2
    mean_return = float("nan")
    with tqdm(total=args.total_steps, unit=" env-steps", unit_scale=True) as bar:
        while bar.n < args.total_steps:
            rollout = trainer.collector.collect()
            trainer.update(rollout, args.learning_rate * (1 - bar.n / args.total_steps))
            mean_return = trainer.mean_return()
            bar.set_postfix_str(f"return {mean_return:.1f}", refresh=False)
            bar.update(args.num_envs * args.rollout_length)
            if args.target_return is not None and mean_return >= args.target_return:
                break
        env_steps = bar.n
    if args.run_dir is not None:
        trainer.save(env_steps)
    print(f"mean return {mean_return:.1f} after {env_steps} env-steps on {trainer.device}")
    if args.target_return is None or mean_return >= args.target_return:
        return 0
    print(
        f"the target was missed: no 100 episodes had a mean return of {args.target_return:g}",
        file=sys.stderr,
    )
    return 1


if __name__ == "__main__":
    sys.exit(main())
