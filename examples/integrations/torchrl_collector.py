# SPDX-License-Identifier: Apache-2.0
"""PPO with TorchRL's collector and losses on CartPole-v1, stepped by the native pool.

Run it: `python examples/integrations/torchrl_collector.py`

What differs from a script with TorchRL's own environments:

    -    env = ParallelEnv(
    -        num_envs, lambda: GymEnv("CartPole-v1", categorical_action_encoding=True)
    -    )
    +    env = RolloutsEnv("CartPole-v1", num_envs=num_envs, categorical_action_encoding=True)

    -    collector = Collector(env, actor, ...)
    +    collector = RolloutsCollector(env, actor, ...)
"""

from __future__ import annotations

import argparse
import sys

from rollouts.support.extras import needs

with needs("torchrl", "this example"):
    import torch
    from rollouts.integrations.torchrl import RolloutsCollector, RolloutsEnv
    from tensordict.nn import TensorDictModule
    from torch import nn
    from torchrl.envs import RewardSum, TransformedEnv
    from torchrl.modules import ProbabilisticActor, ValueOperator
    from torchrl.objectives import ClipPPOLoss
    from torchrl.objectives.value import GAE


def network(outputs: int) -> nn.Module:
    """Two layers of 64."""
    return nn.Sequential(
        nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, outputs)
    )


def train(*, num_envs: int = 16, total_frames: int = 102_400, seed: int = 0) -> float:
    """Trains on `total_frames` steps; returns the mean return of the last batch's episodes."""
    torch.manual_seed(seed)
    # a network of 2x64 gains nothing from threads, which would take the cores from the pool's
    torch.set_num_threads(1)
    env = RolloutsEnv("CartPole-v1", num_envs=num_envs, categorical_action_encoding=True)
    env = TransformedEnv(env, RewardSum())
    env.set_seed(seed)
    actor = ProbabilisticActor(
        TensorDictModule(network(2), in_keys=["observation"], out_keys=["logits"]),
        in_keys=["logits"],
        distribution_class=torch.distributions.Categorical,
        return_log_prob=True,
    )
    critic = ValueOperator(network(1), in_keys=["observation"])
    advantage = GAE(gamma=0.99, lmbda=0.95, value_network=critic, average_gae=True)
    loss_module = ClipPPOLoss(actor, critic, entropy_coeff=0.01)
    optimizer = torch.optim.Adam(loss_module.parameters(), lr=1e-3)

    collector = RolloutsCollector(
        env, actor, frames_per_batch=num_envs * 64, total_frames=total_frames
    )
    mean_return = float("nan")
    for batch in collector:
        for _ in range(6):
            with torch.no_grad():
                advantage(batch)
            steps = batch.reshape(-1)
            for rows in torch.randperm(len(steps)).split(256):
                losses = loss_module(steps[rows])
                loss = losses["loss_objective"] + losses["loss_critic"] + losses["loss_entropy"]
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(loss_module.parameters(), 0.5)
                optimizer.step()
        returns = batch["next", "episode_reward"][batch["next", "done"]]
        if len(returns):
            mean_return = float(returns.mean())
            print(f"mean return {mean_return:6.1f}")
    collector.shutdown()
    return mean_return


def main() -> None:
    """Reads the command line and trains."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--total-frames", type=int, default=102_400)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    train(total_frames=args.total_frames, seed=args.seed)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)  # the status that shells report after Ctrl-C
