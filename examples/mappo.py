# SPDX-License-Identifier: Apache-2.0
"""MAPPO: PPO for environments with several agents, one policy per group, in this process.

    python examples/mappo.py                  simple_spread_v3
    python examples/mappo.py --critic own     each agent's critic sees what the agent sees
    python examples/mappo.py --env-id TagContinuous-v0 --critic own
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
not agents. Steps in which an agent is not there any more are left out of the loss.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections import deque
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import torch
from common.filming import film
from common.plotting import save_group_curves
from common.spread import score_spread
from common.tag import OPTIONS
from common.training import stop_on_interrupt
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor, nn
from tqdm import tqdm

import rollouts
from rollouts.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from rollouts.distributed import PolicySpec
from rollouts.policy import TorchPolicy
from rollouts.returns import gae


class Actor(nn.Module):
    """Logits of an agent's actions. The value is the critic's affair, and 0 here."""

    def __init__(self, obs_size: int, num_logits: int, hidden: int) -> None:
        super().__init__()
        self.net = mlp(obs_size, num_logits, hidden, gain=0.01)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Maps obs (rows, size) to logits (rows, n) and zeros (rows,)."""
        return self.net(obs), torch.zeros(len(obs))


def mlp(inputs: int, outputs: int, hidden: int, *, gain: float) -> nn.Sequential:
    """Two hidden layers, orthogonal to begin with."""
    layers: list[nn.Module] = []
    for size_in, size_out in ((inputs, hidden), (hidden, hidden)):
        layers += [_orthogonal(nn.Linear(size_in, size_out), 2**0.5), nn.Tanh()]
    return nn.Sequential(*layers, _orthogonal(nn.Linear(hidden, outputs), gain))


def _orthogonal(layer: nn.Linear, gain: float) -> nn.Linear:
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


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


class Group:
    """What is learned for one group: a policy that its agents share, and their critic."""

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
        # what the critic says is a number of standard deviations from the mean of returns
        self.mean, self.std = 0.0, 1.0

    def critic_input(self, obs: Tensor, joint: Tensor) -> Tensor:
        """(steps, rows, size) of what the critic sees, from (steps, B, ...) of all agents."""
        if not self.is_central:
            return obs
        steps, envs = joint.shape[:2]
        who = torch.eye(self.num_agents).expand(steps, envs, -1, -1)
        seen = joint.unsqueeze(2).expand(-1, -1, self.num_agents, -1)
        return torch.cat([seen, who], dim=-1).flatten(1, 2)

    def update(self, batch: rollouts.RolloutBatch, joint: Tensor) -> float:
        """Takes the gradient steps of one PPO update; returns the policy's entropy."""
        args = self.args
        obs = torch.from_numpy(np.concatenate([batch.obs, batch.last_obs[None]]))
        seen = self.critic_input(obs, joint)
        with torch.no_grad():
            value = (self.critic(seen)[..., 0] * self.std + self.mean).numpy()
        # episodes end at their time limit, of which agents know nothing: no value stands in for
        # what would follow, as in the authors' program
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
        entropies = []
        for _ in range(args.num_epochs):
            order = torch.randperm(len(steps[0]))
            for index in order.tensor_split(args.num_minibatches):
                loss, entropy = self.loss(*(each[index] for each in steps))
                self.optimizer.zero_grad()
                torch.autograd.backward(loss)
                nn.utils.clip_grad_norm_(self.parameters, args.max_grad_norm)
                self.optimizer.step()
                entropies.append(float(entropy))
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
        advantage = (advantage - advantage.mean()) / (advantage.std(correction=0) + 1e-8)
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
    add("--num-envs", type=int, default=64, help="environments stepped together")
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
    add("--num-threads", type=int, default=None, help="threads that step")
    add("--seed", type=int, default=0)
    add("--weights", type=Path, help="a run, or its checkpoint, to begin with")
    add("--checkpoint-interval-s", type=float, default=60.0, help="seconds between checkpoints")
    add("--eval-episodes", type=int, default=0, help="of simple_spread_v3, scored at the end")
    add("--gif", action="store_true", help="film an episode at the end; needs the extra render")
    add("--run-dir", type=Path, default=Path("runs/mappo"), help="where pictures and weights go")
    args = parser.parse_args(argv)
    if args.eval_episodes and args.env_id != "simple_spread_v3":
        parser.error("--eval-episodes knows the units of simple_spread_v3 alone")
    return args


def joint_observation(batches: dict[str, rollouts.RolloutBatch], num_envs: int) -> Tensor:
    """(T + 1, B, size): what all agents of an environment see, one after the other."""
    parts = []
    for batch in batches.values():
        obs = np.concatenate([batch.obs, batch.last_obs[None]])
        parts.append(torch.from_numpy(obs).reshape(len(obs), num_envs, -1))
    return torch.cat(parts, dim=-1)


def save(args: argparse.Namespace, groups: dict[str, Group], env_steps: int) -> None:
    """Writes the checkpoint of the groups' policies."""
    checkpoint = Checkpoint(
        env_id=args.env_id,
        env_options=OPTIONS.get(args.env_id, {}),
        program="examples/mappo.py",
        program_options={"hidden": args.hidden},
        weights={
            f"{name}/{key}": value
            for name, group in groups.items()
            for key, value in group.actor.state_dict().items()
        },
        policy_version=1 + max(group.policy.policy_version for group in groups.values()),
        env_steps=env_steps,
        seed=args.seed,
    )
    save_checkpoint(args.run_dir, checkpoint)


def main() -> int:
    """Trains to the end or until Ctrl-C, and saves what was learnt; returns the exit status."""
    args = parse_args()
    with stop_on_interrupt() as stop:
        return train(args, stop)


def train(args: argparse.Namespace, stop: Event) -> int:
    """Returns the exit status: 0, or 130 where `stop` was set."""
    torch.manual_seed(args.seed)
    env = rollouts.make_vec(
        args.env_id,
        args.num_envs,
        num_threads=args.num_threads,
        seed=args.seed,
        autoreset_mode="same_step",
        **OPTIONS.get(args.env_id, {}),
    )
    assert isinstance(env, rollouts.MultiAgentVectorEnv)
    joint_size = sum(
        group.num_agents * int(np.prod(group.single_observation_space.shape or ()))
        for group in env.groups.values()
    )
    groups = {name: Group(group, joint_size, args) for name, group in env.groups.items()}
    if args.weights:
        saved = load_checkpoint(args.weights).weights
        for name, group in groups.items():
            own = {key: value for key, value in saved.items() if key.startswith(f"{name}/")}
            group.actor.load_state_dict({k.removeprefix(f"{name}/"): v for k, v in own.items()})
    collector = rollouts.MultiAgentCollector(
        env, {name: group.policy for name, group in groups.items()}, args.rollout_length
    )
    history: dict[str, list[tuple[int, float]]] = {name: [] for name in groups}
    per_update = args.num_envs * args.rollout_length
    # of whole episodes at least: those who leave early come in other updates than those who stay
    whole = math.ceil((env.env_spec.max_episode_steps or 1) / args.rollout_length)
    recent: dict[str, deque[NDArray[Any]]] = {name: deque(maxlen=max(20, whole)) for name in groups}
    num_updates = math.ceil(args.total_steps / per_update)
    collecting, begin, done = 0.0, time.perf_counter(), 0
    saved_at = begin
    bar = tqdm(total=num_updates * per_update, unit="step", unit_scale=True, file=sys.stderr)
    for update in range(num_updates):
        if stop.is_set():
            break
        before = time.perf_counter()
        batches = collector.collect()
        collecting += time.perf_counter() - before
        joint = joint_observation(batches, args.num_envs)
        env_steps = (update + 1) * per_update
        told = []
        for name, group in groups.items():
            for settings in group.optimizer.param_groups:
                settings["lr"] = args.learning_rate * (1 - update / num_updates)
            entropy = group.update(batches[name], joint)
            group.policy.policy_version += 1
            recent[name].append(batches[name].episode_return)
            returns = np.concatenate(recent[name])
            shown = float(returns.mean()) if len(returns) else math.nan
            if len(returns) and len(recent[name]) >= whole:
                history[name].append((env_steps, shown))
            told.append(f"{name}: return {shown:.2f}, entropy {entropy:.2f}")
        if (update + 1) % max(1, num_updates // 20) == 0:
            rate = env_steps / (time.perf_counter() - begin)
            with bar.external_write_mode():
                print(f"{env_steps:>10,} env-steps, {rate:,.0f}/s, {'; '.join(told)}", flush=True)
        done = update + 1
        bar.set_postfix_str("; ".join(told), refresh=False)
        bar.update(per_update)
        if time.perf_counter() - saved_at >= args.checkpoint_interval_s:
            save(args, groups, env_steps)
            saved_at = time.perf_counter()
    seconds = time.perf_counter() - begin
    bar.close()
    env.close()
    if done:
        title = f"MAPPO on {args.env_id}, {args.num_envs} environments, {args.critic} critic"
        save_group_curves(args.run_dir / "training.png", history, title=title)
        save(args, groups, done * per_update)
        print(
            f"{seconds:.1f} s, {100 * collecting / seconds:.0f} % of it to collect; picture and "
            f"weights in {args.run_dir}"
        )
    if stop.is_set():
        return 130
    if args.eval_episodes:
        policies = {name: group.policy for name, group in groups.items()}
        for kind, likeliest in (("drawn", False), ("likeliest", True)):
            score = score_spread(
                policies,
                num_episodes=args.eval_episodes,
                seed=args.seed + 1,
                likeliest=likeliest,
            )
            print(
                f"{kind} actions, {score.num_episodes} episodes: return {score.mean_return:.2f}; "
                f"in the units of MAPPO's authors {score.authors_return:.1f} +- "
                f"{score.authors_error:.1f}, over {score.authors_episodes} with landmarks as theirs"
            )
    if args.gif:
        options = OPTIONS.get(args.env_id, {})
        policies = {name: group.policy for name, group in groups.items()}
        path = args.run_dir / "episode.gif"
        frames = film(path, args.env_id, policies, options=options, seed=args.seed)
        print(f"{frames} frames of an episode in {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
