# SPDX-License-Identifier: Apache-2.0
"""PPO in the manner of CleanRL: one file, one loop, environments from a native pool.

    python examples/integrations/cleanrl_ppo.py --num-envs 8

The difference to a script on Gymnasium 0.29's SyncVectorEnv is one line:

    -envs = gym.vector.SyncVectorEnv([make_env(args.env_id) for _ in range(args.num_envs)])
    +envs = make_vec(args.env_id, args.num_envs, seed=args.seed)

CleanRL's own ppo.py takes the same change.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import deque

import numpy as np

from rollouts.support.extras import needs

with needs("torch", "this example"):
    import torch
    from rollouts.integrations.cleanrl import make_vec
    from torch import Tensor, nn
    from torch.distributions import Categorical


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    add = parser.add_argument
    add("--env-id", default="CartPole-v1", help="an environment with Discrete actions")
    add("--num-envs", type=int, default=8)
    add("--num-steps", type=int, default=128, help="steps per environment and update")
    add("--total-timesteps", type=int, default=500_000)
    add("--target-return", type=float, default=475.0, help="stop at this mean of 50 episodes")
    add("--learning-rate", type=float, default=1e-3, help="falls linearly to 0")
    add("--gamma", type=float, default=0.99)
    add("--gae-lambda", type=float, default=0.95)
    add("--num-minibatches", type=int, default=4)
    add("--update-epochs", type=int, default=4)
    add("--clip-coef", type=float, default=0.2)
    add("--ent-coef", type=float, default=0.01)
    add("--vf-coef", type=float, default=0.5)
    add("--max-grad-norm", type=float, default=0.5)
    add("--seed", type=int, default=1)
    return parser.parse_args(argv)


def layer(inputs: int, outputs: int, gain: float = 2**0.5) -> nn.Linear:
    """A linear layer with orthogonal weights."""
    linear = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(linear.weight, gain)
    nn.init.zeros_(linear.bias)
    return linear


class Agent(nn.Module):
    """An actor and a critic, two hidden layers of 64 each."""

    def __init__(self, num_inputs: int, num_actions: int) -> None:
        super().__init__()

        def mlp(outputs: int, gain: float) -> nn.Module:
            hidden = layer(num_inputs, 64), nn.Tanh(), layer(64, 64), nn.Tanh()
            return nn.Sequential(*hidden, layer(64, outputs, gain))

        self.actor, self.critic = mlp(num_actions, 0.01), mlp(1, 1.0)

    def forward(self, obs: Tensor) -> tuple[Categorical, Tensor]:
        """Maps obs (B, D) to the distribution of actions and values (B,)."""
        return Categorical(logits=self.actor(obs)), self.critic(obs)[:, 0]


def main(argv: list[str] | None = None) -> int:
    """Trains; returns 0 if the target return was reached, else 1."""
    args = parse_args(argv)
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    envs = make_vec(args.env_id, args.num_envs, seed=args.seed)
    agent = Agent(int(np.prod(envs.single_observation_space.shape)), envs.single_action_space.n)
    optimizer = torch.optim.Adam(agent.parameters(), lr=args.learning_rate, eps=1e-5)

    shape = (args.num_steps, args.num_envs)
    obs = torch.zeros((*shape, *envs.single_observation_space.shape))
    actions = torch.zeros(shape, dtype=torch.int64)
    log_probs, rewards, dones, values, cut = (torch.zeros(shape) for _ in range(5))

    start_s, returns = time.time(), deque[float](maxlen=50)
    next_obs = torch.as_tensor(envs.reset(seed=args.seed)[0])
    next_done = torch.zeros(args.num_envs)
    num_updates = args.total_timesteps // (args.num_steps * args.num_envs)
    for update in range(num_updates):
        optimizer.param_groups[0]["lr"] = args.learning_rate * (1 - update / num_updates)

        # collect num_steps of every environment
        for t in range(args.num_steps):
            obs[t], dones[t] = next_obs, next_done
            with torch.no_grad():
                distribution, values[t] = agent(next_obs)
            actions[t] = distribution.sample()
            log_probs[t] = distribution.log_prob(actions[t])
            step_obs, reward, terminated, truncated, infos = envs.step(actions[t].numpy())
            rewards[t], cut[t] = torch.as_tensor(reward), 0.0
            next_obs = torch.as_tensor(step_obs)
            next_done = torch.as_tensor(terminated | truncated).float()
            if "final_info" in infos:
                for info in infos["final_info"]:
                    if info and "episode" in info:
                        returns.append(info["episode"]["r"].item())
                # an episode that a time limit cut would have gone on from its last observation
                for row in np.flatnonzero(truncated & ~terminated):
                    last = torch.as_tensor(infos["final_observation"][row])[None]
                    with torch.no_grad():
                        cut[t, row] = agent(last)[1][0]

        # advantages, from the last step to the first
        with torch.no_grad():
            following = agent(next_obs)[1]
        advantages, ahead, goes_on = torch.zeros(shape), torch.zeros(args.num_envs), 1 - next_done
        for t in reversed(range(args.num_steps)):
            delta = rewards[t] + args.gamma * (following * goes_on + cut[t]) - values[t]
            ahead = delta + args.gamma * args.gae_lambda * goes_on * ahead
            advantages[t], following, goes_on = ahead, values[t], 1 - dones[t]
        targets = advantages + values

        # learn from it
        flat = [x.flatten(0, 1) for x in (obs, actions, log_probs, advantages, targets)]
        size = args.num_steps * args.num_envs
        for _ in range(args.update_epochs):
            for index in torch.randperm(size).chunk(args.num_minibatches):
                b_obs, b_actions, b_log_probs, b_advantages, b_targets = (x[index] for x in flat)
                distribution, value = agent(b_obs)
                ratio = (distribution.log_prob(b_actions) - b_log_probs).exp()
                b_advantages = (b_advantages - b_advantages.mean()) / (b_advantages.std() + 1e-8)
                clipped = ratio.clamp(1 - args.clip_coef, 1 + args.clip_coef)
                loss = -torch.minimum(ratio * b_advantages, clipped * b_advantages).mean()
                loss += args.vf_coef * 0.5 * (value - b_targets).square().mean()
                loss -= args.ent_coef * distribution.entropy().mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), args.max_grad_norm)
                optimizer.step()

        global_step = (update + 1) * size
        mean_return = np.mean(returns) if returns else float("nan")
        if update % 10 == 0 or update + 1 == num_updates:
            rate = global_step / (time.time() - start_s)
            print(f"global_step={global_step} return={mean_return:.1f} steps/s={rate:,.0f}")
        if len(returns) == returns.maxlen and mean_return >= args.target_return:
            print(f"reached {mean_return:.1f} after {global_step} steps")
            return 0
    return 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)  # as shells say that Ctrl-C ended it
