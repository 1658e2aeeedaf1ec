# SPDX-License-Identifier: Apache-2.0
"""PPO in the manner of CleanRL: one file, one loop, environments from a native pool.

    python examples/integrations/cleanrl_ppo.py --num-envs 8

The difference to a script on Gymnasium 0.29's SyncVectorEnv is one line:

    -envs = gym.vector.SyncVectorEnv([make_env(args.env_id) for _ in range(args.num_envs)])
    +envs = make_vec(args.env_id, args.num_envs, seed=args.seed)

CleanRL's own ppo.py takes the same change.

The gradient steps are one more line: `NativeLearner.update` in place of the loop over minibatches,
with the same loss and the same optimiser, in native code.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import deque
from typing import Any

import numpy as np

from rollouts import NativePolicy
from rollouts.support.extras import needs

with needs("torch", "this example"):
    import torch
    from rollouts.integrations.cleanrl import make_vec
    from torch import Tensor, nn
    from torch.distributions import Categorical

    from rollouts.learner.native_learner import NativeLearner, PpoLoss


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

    def get_value(self, obs: Tensor) -> Tensor:
        """Maps obs (B, D) to values (B, 1)."""
        value: Tensor = self.critic(obs)
        return value

    def get_action_and_value(
        self, obs: Tensor, action: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Maps obs (B, D) to actions, their log-densities and entropies (B,), and values (B, 1)."""
        probs: Any = Categorical(logits=self.actor(obs))
        if action is None:
            action = probs.sample()
        return action, probs.log_prob(action), probs.entropy(), self.critic(obs)


def main(argv: list[str] | None = None) -> int:
    """Trains; returns 0 if the target return was reached, else 1."""
    args = parse_args(argv)
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    envs = make_vec(args.env_id, args.num_envs, seed=args.seed)
    agent = Agent(int(np.prod(envs.single_observation_space.shape)), envs.single_action_space.n)
    optimizer = torch.optim.Adam(agent.parameters(), lr=args.learning_rate, eps=1e-5)
    policy = NativePolicy.from_torch(agent, envs.single_action_space, envs.single_observation_space)
    learner = NativeLearner(policy, optimizer)
    loss = PpoLoss(
        clip_range=args.clip_coef,
        value_weight=0.5 * args.vf_coef,
        entropy_weight=args.ent_coef,
    )

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
                actions[t], log_probs[t], _, value = agent.get_action_and_value(next_obs)
            values[t] = value.flatten()
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
                        cut[t, row] = agent.get_value(last).item()

        # advantages, from the last step to the first
        with torch.no_grad():
            following = agent.get_value(next_obs).flatten()
        advantages, ahead, goes_on = torch.zeros(shape), torch.zeros(args.num_envs), 1 - next_done
        for t in reversed(range(args.num_steps)):
            delta = rewards[t] + args.gamma * (following * goes_on + cut[t]) - values[t]
            ahead = delta + args.gamma * args.gae_lambda * goes_on * ahead
            advantages[t], following, goes_on = ahead, values[t], 1 - dones[t]
        targets = advantages + values

        # learn from it
        names = ("obs", "action", "log_prob", "value", "advantage", "target")
        parts = (obs, actions, log_probs, values, advantages, targets)
        rows = {name: x.flatten(0, 1).numpy() for name, x in zip(names, parts, strict=True)}
        size = args.num_steps * args.num_envs
        for _ in range(args.update_epochs):
            learner.update(
                rows,
                torch.randperm(size).numpy(),
                minibatch=-(-size // args.num_minibatches),
                loss=loss,
                max_grad_norm=args.max_grad_norm,
            )

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
