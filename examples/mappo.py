# SPDX-License-Identifier: Apache-2.0
"""MAPPO: PPO for environments with several agents, one policy per group, in this process.

    python examples/mappo.py                  simple_spread_v3
    python examples/mappo.py --critic own     each agent's critic sees what the agent sees
    python examples/mappo.py --env-id TagContinuous-v0 --critic own
    python examples/mappo.py --env mpe2.simple_tag_v3:parallel_env
                                              a PettingZoo ParallelEnv, of any module
    python examples/mappo.py --num-workers 2  two Ray workers sample while this process learns
    python examples/mappo.py --resume runs/mappo
                                              goes on where a run stopped
    python examples/mappo.py --gif            films an episode at the end
    python examples/mappo.py --total-steps 0 --weights runs/mappo --gif
    rollouts eval runs/mappo --trust          returns of the agents of each group

With --num-envs 128 --num-minibatches 1 --total-steps 14000000 --seed 1 --eval-episodes 20000 the
return of an agent in simple_spread_v3 goes from -27 to -10 (-9.3 by the likeliest actions): -130
(-126) in the units of MAPPO's authors, who have -120 after 20 M. That is 28 minutes on one core;
seed 0 stays at -13 with 20 M.

Agents of a group share a policy, which acts on what an agent sees. The critic is centralised: it
sees what all agents of the environment see, and which agent it is asked about (Yu et al., "The
surprising effectiveness of PPO in cooperative multi-agent games", 2022). Steps count environments,
not agents. Steps in which an agent is not there any more are left out of the loss. The loop around
it is in common/agent_training.py.
"""

from __future__ import annotations

import argparse
import math
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common.agent_training import AgentTraining, flat
from common.agents import AgentEnvs, own_env
from common.checkpoint import Checkpointed, add_resume_arguments
from common.filming import film
from common.native_learning import add_learner_engine, read_module
from common.spread import score_spread
from common.tag import OPTIONS
from common.training import env_option
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor, nn

import rollouts
from rollouts.checkpoint import load_checkpoint
from rollouts.learner.native_learner import NativeLearner, PpoLoss
from rollouts.policy import TorchPolicy
from rollouts.returns import gae
from rollouts.workers import PolicySpec

CHECKPOINT_KIND = "rollouts examples/mappo.py, version 1"


class Actor(nn.Module):
    """Logits of an agent's actions. Its value is 0, since the critic computes values."""

    def __init__(self, obs_size: int, num_logits: int, hidden: int) -> None:
        super().__init__()
        self.net = mlp(obs_size, num_logits, hidden, gain=0.01)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Maps obs (rows, ...) to logits (rows, n) and zeros (rows,)."""
        return self.net(obs.flatten(1).float()), torch.zeros(len(obs))


class ActorCritic(nn.Module):
    """Actor and critic as one module for native code, on rows (obs, critic's input)."""

    def __init__(self, actor: Actor, critic: nn.Module, obs_size: int) -> None:
        super().__init__()
        self.actor, self.critic, self.obs_size = actor, critic, obs_size

    def forward(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Maps rows (B, obs_size + seen_size) to logits (B, n) and values (B,)."""
        logits, _ = self.actor(rows[:, : self.obs_size])
        return logits, self.critic(rows[:, self.obs_size :])[:, 0]


def mlp(inputs: int, outputs: int, hidden: int, *, gain: float) -> nn.Sequential:
    """Two hidden layers, with orthogonal weights at first."""
    layers: list[nn.Module] = []
    for size_in, size_out in ((inputs, hidden), (hidden, hidden)):
        layers += [_orthogonal(nn.Linear(size_in, size_out), 2**0.5), nn.Tanh()]
    return nn.Sequential(*layers, _orthogonal(nn.Linear(hidden, outputs), gain))


def _orthogonal(layer: nn.Linear, gain: float) -> nn.Linear:
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


def minibatches(count: int, most: int) -> tuple[Tensor, ...]:
    """Shuffled rows in at most `most` parts of two or more, so that advantages have a deviation."""
    return torch.randperm(count).tensor_split(max(1, min(most, count // 2)))


def num_logits(space: spaces.Space[Any]) -> int:
    """Logits for a Discrete or MultiDiscrete space."""
    if isinstance(space, spaces.MultiDiscrete):
        return int(space.nvec.sum())
    if isinstance(space, spaces.Discrete):
        return int(space.n)
    raise SystemExit(f"mappo.py has no head for {space}: leave continuous_actions out")


def make_policy(spec: PolicySpec, *, hidden: int) -> TorchPolicy:
    """Makes the policy of a group; `rollouts eval` calls it."""
    obs_size = int(np.prod(spec.single_observation_space.shape or ()))
    space = spec.single_action_space
    return TorchPolicy(Actor(obs_size, num_logits(space), hidden), space, seed=spec.seed)


class Group(Checkpointed):
    """The learner of one group: a policy that its agents share, and their critic."""

    saved = ("actor", "critic", "optimizer", "mean", "std")

    def __init__(
        self, group: rollouts.AgentGroup, joint_size: int, args: argparse.Namespace
    ) -> None:
        obs_size = int(np.prod(group.single_observation_space.shape or ()))
        self.args, self.num_agents = args, group.num_agents
        self.is_central = args.critic == "central"
        space = group.single_action_space
        self.actor = Actor(obs_size, num_logits(space), args.hidden)
        self.policy = TorchPolicy(self.actor, space, seed=args.seed)
        size = joint_size + group.num_agents if self.is_central else obs_size
        self.critic = mlp(size, 1, args.hidden, gain=1.0)
        self.parameters = [*self.actor.parameters(), *self.critic.parameters()]
        self.optimizer = torch.optim.Adam(
            self.parameters, lr=args.learning_rate, eps=1e-5, fused=True
        )
        self.native = read_module(
            ActorCritic(self.actor, self.critic, obs_size),
            space,
            obs_size + size,
            self.optimizer,
            engine=args.learner_engine,
            num_threads=torch.get_num_threads(),
        )
        # the critic predicts returns in standard deviations from their mean
        self.mean, self.std = 0.0, 1.0

    def critic_input(self, obs: Tensor, joint: Tensor) -> Tensor:
        """The critic's input (steps, rows, size), from (steps, B, ...) of all agents."""
        if not self.is_central:
            return obs
        steps, envs = joint.shape[:2]
        who = torch.eye(self.num_agents).expand(steps, envs, -1, -1)
        seen = joint.unsqueeze(2).expand(-1, -1, self.num_agents, -1)
        return torch.cat([seen, who], dim=-1).flatten(1, 2)

    def update(self, batch: rollouts.RolloutBatch, joint: Tensor) -> float:
        """Takes the gradient steps of one PPO update; returns the policy's entropy."""
        args = self.args
        obs = flat(batch)
        seen = self.critic_input(obs, joint)
        with torch.no_grad():
            value = (self.critic(seen)[..., 0] * self.std + self.mean).numpy()
        # a time limit counts as an end without a value of the next state, as in the authors'
        # program, since agents do not observe the time
        ended = batch.terminated | batch.truncated
        advantage, target = gae(
            batch.reward,
            value[:-1],
            terminated=ended,
            truncated=np.zeros_like(ended),
            bootstrap_value=np.zeros_like(batch.reward),
            last_value=value[-1],
            gamma=args.gamma,
            gae_lambda=args.gae_lambda,
        )
        there = torch.from_numpy(batch.extras["active"]).flatten()
        if there.sum() < 2:
            # the advantages of so few rows have no deviation
            return math.nan
        self.mean += 0.1 * (float(target[batch.extras["active"]].mean()) - self.mean)
        self.std += 0.1 * (float(target[batch.extras["active"]].std()) + 1e-4 - self.std)

        def rows(array: NDArray[Any] | Tensor) -> Tensor:
            tensor = array if isinstance(array, Tensor) else torch.from_numpy(array)
            return tensor.flatten(0, 1)[there]

        given = [obs[:-1], seen[:-1], batch.action, batch.log_prob, advantage, target]
        steps = [rows(each) for each in given]
        if args.max_rows and len(steps[0]) > args.max_rows:
            kept = torch.randperm(len(steps[0]))[: args.max_rows]
            steps = [each[kept] for each in steps]
        if self.native is not None:
            return self._update_natively(self.native, steps)
        entropies = []
        for _ in range(args.num_epochs):
            for index in minibatches(len(steps[0]), args.num_minibatches):
                loss, entropy = self.loss(*(each[index] for each in steps))
                self.optimizer.zero_grad()
                torch.autograd.backward(loss)
                nn.utils.clip_grad_norm_(self.parameters, args.max_grad_norm)
                self.optimizer.step()
                entropies.append(float(entropy))
        return float(np.mean(entropies))

    def _update_natively(self, learner: NativeLearner, steps: list[Tensor]) -> float:
        """Takes the gradient steps of `loss` below in native code."""
        args = self.args
        obs, seen, action, log_prob, advantage, target = steps
        rows = {
            "obs": torch.cat([obs.flatten(1), seen], 1).numpy(),
            "action": action.numpy(),
            "log_prob": log_prob.numpy(),
            "advantage": advantage.numpy(),
            "target": ((target - self.mean) / self.std).numpy(),
        }
        loss = PpoLoss(
            clip_range=args.clip,
            value_weight=0.5,
            value_huber=1.0,
            entropy_weight=args.entropy_coef,
        )
        entropies = []
        for _ in range(args.num_epochs):
            for index in minibatches(len(obs), args.num_minibatches):
                found = learner.update(
                    rows,
                    index.numpy(),
                    minibatch=len(index),
                    loss=loss,
                    max_grad_norm=args.max_grad_norm,
                )
                entropies.append(float(found.entropy[0]))
        return float(np.mean(entropies))

    def loss(
        self,
        obs: Tensor,
        seen: Tensor,
        action: Tensor,
        old_log_prob: Tensor,
        advantage: Tensor,
        target: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """The clipped objective on one minibatch, and the policy's entropy."""
        args = self.args
        logits, _ = self.actor(obs)
        log_prob, entropy = self.policy.head.evaluate([logits], action)
        ratio = (log_prob - old_log_prob).exp()
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        clipped = ratio.clamp(1 - args.clip, 1 + args.clip)
        policy_loss = -torch.minimum(ratio * advantage, clipped * advantage).mean()
        error = self.critic(seen)[:, 0] - (target - self.mean) / self.std
        value_loss = nn.functional.huber_loss(error, torch.zeros_like(error))
        bonus = entropy.mean()
        return policy_loss + value_loss - args.entropy_coef * bonus, bonus.detach()


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--env-id", default="simple_spread_v3", choices=rollouts.multi_agent_ids())
    add("--env", type=own_env, metavar="MODULE:FUNCTION",
        help="makes a PettingZoo ParallelEnv, in place of --env-id")  # fmt: skip
    add("--option", action="append", default=[], type=env_option, metavar="KEY=VALUE",
        help="of the environment, or an argument of the function")  # fmt: skip
    add("--num-workers", type=int, default=0, help="Ray workers; 0 samples in this process")
    add("--ray-address", help="cluster to join; by default Ray is started here")
    add("--num-envs", type=int, default=64, help="environments stepped together, per worker")
    add("--rollout-length", type=int, default=25, help="steps per environment and update")
    add("--total-steps", type=int, default=1_000_000, help="env-steps to train for")
    add("--critic", choices=("central", "own"), default="central", help="what critics see")
    add("--hidden", type=int, default=64, help="units of a hidden layer")
    add("--learning-rate", type=float, default=7e-4, help="falls linearly to 0")
    add("--num-epochs", type=int, default=10, help="passes over each batch")
    add("--num-minibatches", type=int, default=4, help="gradient steps per pass")
    add("--max-rows", type=int, help="agent-steps of a group that an update learns from; all")
    add("--gamma", type=float, default=0.99, help="discount per step")
    add("--gae-lambda", type=float, default=0.95, help="see rollouts.returns.gae")
    add("--clip", type=float, default=0.2, help="how far the probability ratio counts")
    add("--entropy-coef", type=float, default=0.01, help="weight of the entropy bonus")
    add("--max-grad-norm", type=float, default=10.0, help="gradients are scaled down to this")
    add_learner_engine(parser)
    add("--num-threads", type=int, help="threads that step, per worker; of --env, processes")
    add("--seed", type=int, default=0)
    add("--weights", type=Path, help="a run, or its checkpoint, whose policies to begin with")
    add_resume_arguments(parser)
    add("--checkpoint-interval-s", type=float, default=60.0, help="seconds between checkpoints")
    add("--eval-episodes", type=int, default=0, help="of simple_spread_v3, scored at the end")
    add("--gif", action="store_true", help="film an episode at the end; needs the extra render")
    add("--run-dir", type=Path, help="outputs; by default the resumed run's, or runs/mappo")
    args = parser.parse_args(argv)
    if args.eval_episodes and (args.env or args.env_id != "simple_spread_v3"):
        parser.error("--eval-episodes knows the units of simple_spread_v3 alone")
    if args.gif and args.env:
        parser.error("--gif films ids of this library: leave it out with --env")
    if args.weights and (args.resume or args.auto_resume):
        parser.error("a resumed run brings its weights: leave --weights out")
    if args.run_dir is None:
        resumed = args.resume and (args.resume if args.resume.is_dir() else args.resume.parent)
        args.run_dir = resumed or Path("runs/mappo")
    return args


def make_training(args: argparse.Namespace) -> AgentTraining:
    """Makes the environments' groups and the run that trains them."""
    name, function = args.env or (args.env_id, None)
    envs = AgentEnvs(name, {**OPTIONS.get(name, {}), **dict(args.option)}, function)
    torch.manual_seed(args.seed)
    found = envs.groups()
    joint_size = sum(
        group.num_agents * int(np.prod(group.single_observation_space.shape or ()))
        for group in found.values()
    )
    groups = {name: Group(group, joint_size, args) for name, group in found.items()}
    if args.weights:
        saved = load_checkpoint(args.weights).weights
        for name, group in groups.items():
            own = {key: value for key, value in saved.items() if key.startswith(f"{name}/")}
            group.actor.load_state_dict({k.removeprefix(f"{name}/"): v for k, v in own.items()})
    make = partial(make_policy, hidden=args.hidden)
    return AgentTraining(args, envs, groups, make, kind=CHECKPOINT_KIND)


def main() -> int:
    """Trains to the end or until Ctrl-C, and saves the results; returns the exit status."""
    args = parse_args()
    try:
        training = make_training(args)
    except (ValueError, FileNotFoundError) as error:
        sys.exit(f"error: {error}")
    envs = training.envs
    title = f"MAPPO on {envs.name}, {args.num_envs} environments, {args.critic} critic"
    if training.run(title):
        return 130
    policies = {name: group.policy for name, group in training.groups.items()}
    if args.eval_episodes:
        show_score(policies, args.eval_episodes, seed=args.seed + 1)
    if args.gif:
        path = args.run_dir / "episode.gif"
        frames = film(path, envs.name, policies, options=envs.options, seed=args.seed)
        print(f"{frames} frames of an episode in {path}")
    return 0


def show_score(policies: dict[str, TorchPolicy], num_episodes: int, *, seed: int) -> None:
    """Prints the returns in simple_spread_v3, in the units of MAPPO's authors too."""
    for kind, likeliest in (("drawn", False), ("likeliest", True)):
        score = score_spread(policies, num_episodes=num_episodes, seed=seed, likeliest=likeliest)
        print(
            f"{kind} actions, {score.num_episodes} episodes: return {score.mean_return:.2f}; "
            f"in the units of MAPPO's authors {score.authors_return:.1f} +- "
            f"{score.authors_error:.1f}, over {score.authors_episodes} with landmarks as theirs"
        )


if __name__ == "__main__":
    sys.exit(main())
