# SPDX-License-Identifier: Apache-2.0
"""PPO whose environments, policies and learners stay on one GPU: one agent, or groups of them.

    python examples/ppo_on_device.py                                  on the GPU that is there
    python examples/ppo_on_device.py --device cpu-emulation           its kernels as loops, slowly
    python examples/ppo_on_device.py --env-id Pendulum-v1 --gamma 0.9 continuous actions
    python examples/ppo_on_device.py --env-id InvertedPendulum-v5     physics of mujoco_warp
    python examples/ppo_on_device.py --env-id TagContinuous-v0 --gif  5 taggers, 100 runners
    python examples/ppo_on_device.py --num-epochs 1 --num-minibatches 1    is A2C

Kernels step the environments, compute the policies and estimate advantages; torch learns. Nothing
is copied to the host and nothing waits for the device but after each update, when the returns of
episodes are read. Each group of agents has a policy that they share; its network is that of ppo.py,
whose environments the CPU's threads step. With one epoch of one minibatch the probability ratio is
1 when its gradient is taken, which makes the gradient that of A2C.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import deque
from pathlib import Path
from typing import Any

import gymnasium
import torch
from common.filming import film
from common.plotting import save_group_curves
from common.tag import OPTIONS
from gymnasium import spaces
from ppo import Agent
from torch import Tensor, nn
from torch.utils.tensorboard import SummaryWriter
from tqdm.auto import tqdm

import rollouts
from rollouts.checkpoint import Checkpoint, save_checkpoint
from rollouts.policy import make_action_head
from rollouts.returns import Gae

TARGETS = {"CartPole-v1": 475.0}
ALONE = ""  # the group of environments with one agent


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--env-id", default="CartPole-v1", help="one that runs on a GPU: see `rollouts envs`")
    add("--device", default="cuda", help="cuda, cuda:1 or cpu-emulation")
    add("--engine", default="auto", help="auto, native (a kernel is the policy) or torch")
    add("--num-envs", type=int, default=1024, help="environments")
    add("--rollout-length", type=int, default=32, help="steps per environment and update")
    add("--total-steps", type=int, default=3_000_000, help="env-steps to train for at most")
    add("--target-return", type=float, help="stop at this mean return; default: 475 for CartPole")
    add("--train", nargs="+", metavar="GROUP", help="groups that learn; the others stay as begun")
    add("--learning-rate", type=float, default=3e-3, help="falls linearly to 0")
    add("--num-epochs", type=int, default=4, help="passes over each batch")
    add("--num-minibatches", type=int, default=4, help="gradient steps per pass")
    add("--max-rows", type=int, help="agent-steps of a group that an update learns from; all")
    add("--gamma", type=float, default=0.99, help="discount per step")
    add("--gae-lambda", type=float, default=0.95, help="see rollouts.returns.gae")
    add("--clip", type=float, default=0.2, help="how far the probability ratio counts")
    add("--entropy-coef", type=float, default=0.0, help="weight of the entropy bonus")
    add("--max-grad-norm", type=float, default=0.5, help="gradients are scaled down to this")
    add("--seed", type=int, default=1, help="of environments, weights and actions")
    add("--run-dir", type=Path, help="where checkpoint, curves and TensorBoard's file go")
    add("--gif", action="store_true", help="film an episode of several agents; needs --run-dir")
    args = parser.parse_args(argv)
    if args.target_return is None:
        args.target_return = TARGETS.get(args.env_id)
    is_alone = args.env_id not in rollouts.multi_agent_ids()
    if is_alone and args.gif:
        parser.error("--gif films several agents: `rollouts record --policy` films one")
    if not is_alone and args.target_return is not None:
        parser.error("--target-return is of one agent's episodes")
    if args.gif and args.run_dir is None:
        parser.error("--gif needs --run-dir, where the film goes")
    return args


class Learner:
    """A policy, its optimiser and its episodes: of one agent, or of the agents of a group."""

    def __init__(
        self,
        obs_space: gymnasium.Space[Any],
        action_space: gymnasium.Space[Any],
        device: torch.device,
        args: argparse.Namespace,
    ) -> None:
        self.args, self.action_space = args, action_space
        self.model = Agent(obs_space, action_space).to(device)
        self.policy = rollouts.TorchPolicy(self.model, action_space, seed=args.seed, device=device)
        self.head = make_action_head(action_space)
        self.generator = torch.Generator(device).manual_seed(args.seed)
        self.optimizer = torch.optim.Adam(
            self.model.parameters(), lr=args.learning_rate, eps=1e-5, fused=True
        )
        # of each rollout: how many episodes of agents ended there, and the sum of their returns
        self._ended: deque[Tensor] = deque()

    def update(self, rollout: rollouts.DeviceRollout, learning_rate: float) -> None:
        """Takes the gradient steps of one PPO update (Schulman et al. 2017)."""
        args = self.args
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        advantage, target = rollout.extras["advantage"], rollout.extras["target"]
        time_major = (rollout.obs, rollout.action, rollout.log_prob, advantage, target)
        steps = [one.flatten(0, 1) for one in time_major]
        # those in which the agent was still there; all of one agent's
        there = torch.arange(len(steps[0]), device=advantage.device)
        if "active" in rollout.extras:
            there = there[rollout.extras["active"].flatten()]
        if args.max_rows is not None:
            there = there[self._permutation(there)[: args.max_rows]]
        for _ in range(args.num_epochs):
            order = there[self._permutation(there)]
            for index in order.split(max(1, -(-len(order) // args.num_minibatches))):
                loss = self.loss(*(one[index] for one in steps))
                self.optimizer.zero_grad()
                torch.autograd.backward(loss)
                nn.utils.clip_grad_norm_(self.model.parameters(), args.max_grad_norm)
                self.optimizer.step()

    def _permutation(self, rows: Tensor) -> Tensor:
        return torch.randperm(len(rows), generator=self.generator, device=rows.device)

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

    def count(self, rollout: rollouts.DeviceRollout) -> None:
        """Notes the episodes that ended in a rollout; does not wait for the device."""
        ended = rollout.terminated | rollout.truncated
        if "active" in rollout.extras:
            ended &= rollout.extras["active"]
        returns = torch.where(ended, rollout.episode_return, 0.0)
        self._ended.append(torch.stack([ended.sum().double(), returns.sum()]))

    def mean_return(self, num_rollouts: int, num_episodes: int = 100) -> float:
        """Of the last episodes; NaN before there are so many. Waits for the device.

        Args:
          num_rollouts: Whose episodes count together at least: those of agents who leave early end
            in other rollouts than those of agents who stay.
          num_episodes: That there must be.
        """
        sums = torch.stack([*self._ended]).cpu()
        counted, total = sums.sum(0).tolist()
        # the oldest go as soon as the others are enough
        for count, returns in sums.tolist():
            if counted - count < num_episodes or len(self._ended) <= num_rollouts:
                break
            counted, total = counted - count, total - returns
            self._ended.popleft()
        enough = counted >= num_episodes and len(self._ended) >= num_rollouts
        return total / counted if enough else math.nan


class Trainer:
    """Environments, and a learner for each group of agents, on one device."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.options = OPTIONS.get(args.env_id, {})
        env: Any = rollouts.make_vec(
            args.env_id,
            args.num_envs,
            device=args.device,
            seed=args.seed,
            autoreset_mode="same_step",
            **self.options,
        )
        self.env, self.device = env, env.device
        torch.manual_seed(args.seed)
        self.learners = {}
        for name, group in (getattr(env, "groups", None) or {ALONE: env}).items():
            obs_space, action_space = group.single_observation_space, group.single_action_space
            if not isinstance(obs_space, spaces.Box):
                raise rollouts.SpecError(f"{args.env_id} shows no numbers a network could read")
            self.learners[name] = Learner(obs_space, action_space, self.device, args)
        self.trained = {*(args.train or self.learners)}
        if not self.trained <= {*self.learners}:
            known = ", ".join(filter(None, self.learners)) or "none: leave --train out"
            raise rollouts.SpecError(
                f"--train {' '.join(args.train)}: groups of {args.env_id} are {known}"
            )
        policies = {name: learner.policy for name, learner in self.learners.items()}
        self.collector = rollouts.DeviceCollector(
            env,
            policies.get(ALONE, policies),
            args.rollout_length,
            returns=Gae(gamma=args.gamma, gae_lambda=args.gae_lambda),
            engine=args.engine,
        )
        # rollouts of a whole episode, where agents may leave before the others
        longest = env.env_spec.max_episode_steps or 1
        self.num_rollouts = 1 if ALONE in self.learners else -(-longest // args.rollout_length)

    def update(self, learning_rate: float) -> dict[str, float]:
        """Collects a rollout and learns from it; the groups' mean returns of episodes."""
        found = self.collector.collect()
        for name, rollout in ({ALONE: found} if ALONE in self.learners else found).items():
            learner = self.learners[name]
            if name in self.trained:
                learner.update(rollout, learning_rate)
                learner.policy.policy_version += 1
            learner.count(rollout)
        # what went wrong on the device is raised here
        self.env.synchronize()
        return {
            name: learner.mean_return(self.num_rollouts) for name, learner in self.learners.items()
        }

    def save(self, env_steps: int) -> None:
        """Writes the checkpoint; the networks are those of ppo.py, whose make_policy makes them."""
        weights = {
            f"{name}/{key}" if name else key: value
            for name, learner in self.learners.items()
            for key, value in learner.model.state_dict().items()
        }
        checkpoint = Checkpoint(
            env_id=self.args.env_id,
            env_options=self.options,
            program="examples/ppo.py",
            weights=weights,
            policy_version=1 + max(one.policy.policy_version for one in self.learners.values()),
            env_steps=env_steps,
            seed=self.args.seed,
        )
        save_checkpoint(self.args.run_dir, checkpoint)

    def film(self) -> int:
        """Films an episode as the policies act in training, in a C++ pool; returns its frames."""
        policies = {
            name: rollouts.TorchPolicy(one.model.cpu(), one.action_space, seed=self.args.seed)
            for name, one in self.learners.items()
        }
        return film(
            self.args.run_dir / "episode.gif",
            self.args.env_id,
            policies,
            options=self.options,
            seed=self.args.seed,
        )


def main() -> int:
    """Trains; returns 0, 1 where a target was missed, or 2 where it could not begin."""
    args = parse_args()
    try:
        trainer = Trainer(args)
    except rollouts.RolloutsError as error:
        print(f"ppo_on_device: {error}", file=sys.stderr)
        return 2
    writer = None if args.run_dir is None else SummaryWriter(args.run_dir)
    history: dict[str, list[tuple[int, float]]] = {name: [] for name in trainer.learners}
    means = dict.fromkeys(trainer.learners, math.nan)
    with tqdm(total=args.total_steps, unit=" env-steps", unit_scale=True) as bar:
        while bar.n < args.total_steps:
            means = trainer.update(args.learning_rate * (1 - bar.n / args.total_steps))
            bar.set_postfix_str(told(means), refresh=False)
            bar.update(args.num_envs * args.rollout_length)
            for name, mean in means.items():
                if not math.isnan(mean):
                    history[name].append((bar.n, mean))
                    if writer is not None:
                        writer.add_scalar(f"return/{name or 'agent'}", mean, bar.n)
            if args.target_return is not None and means.get(ALONE, -math.inf) >= args.target_return:
                break
        env_steps = bar.n
    print(f"mean {told(means)} after {env_steps} env-steps on {trainer.device}")
    if writer is not None:
        writer.close()
        trainer.save(env_steps)
        title = f"PPO on {args.env_id}, {args.num_envs} environments on {args.device}"
        save_group_curves(args.run_dir / "training.png", history, title=title)
    if args.gif:
        print(f"{trainer.film()} frames of an episode in {args.run_dir / 'episode.gif'}")
    if args.target_return is None or means.get(ALONE, -math.inf) >= args.target_return:
        return 0
    print(
        f"the target was missed: no 100 episodes had a mean return of {args.target_return:g}",
        file=sys.stderr,
    )
    return 1


def told(means: dict[str, float]) -> str:
    """The groups' mean returns in words."""
    return ", ".join(f"return {name} {mean:.1f}".replace("  ", " ") for name, mean in means.items())


if __name__ == "__main__":
    sys.exit(main())
