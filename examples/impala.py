# SPDX-License-Identifier: Apache-2.0
"""IMPALA: a learner that takes rollouts as they come, from workers that never wait for it.

    python examples/impala.py                              CartPole-v1, two Ray workers
    python examples/impala.py --credits-per-worker 1       newer data, workers that wait
    python examples/impala.py --num-workers 0              in this process, lag 0
    python examples/impala.py --resume runs/<run>          goes on where a run stopped

Every rollout is one update. While it waits for its turn, other rollouts update the policy, so it is
some versions old when it is learned from. V-trace (`rollouts.returns`) weighs its steps by how
likely the learner's policy would have taken them. The last lines show how old the data was.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import numpy as np
import torch
from common.checkpoint import Checkpointed
from common.native_learning import add_learner_engine, read_learner
from common.training import chosen_env_id, run, run_parser, spec_of
from numpy.typing import NDArray
from ppo import Agent
from torch import Tensor, nn

import rollouts
from rollouts import returns
from rollouts.learner.native_learner import NativeLearner, PolicyGradientLoss
from rollouts.policy import TorchPolicy, as_tensor
from rollouts.returns_torch import vtrace
from rollouts.workers import PolicySpec, QueueLimits

LOGGED = ("policy_loss", "value_loss", "entropy", "clipped_ratios")
CHECKPOINT_KIND = "rollouts examples/impala.py, version 1"


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    """Reads the command line."""
    parser = run_parser(__doc__)
    add = parser.add_argument
    add("--num-envs", type=int, default=16, help="environments per worker")
    add("--rollout-length", type=int, default=32, help="steps per environment and update")
    add("--credits-per-worker", type=int, default=4, help="rollouts under way or waiting")
    add("--max-policy-lag", type=int, default=8, help="most versions that a rollout may be old")
    add("--lag-policy", choices=["drop", "block", "pass"], default="drop", help="above that")
    add("--total-steps", type=int, default=5_000_000, help="env-steps to train for at most")
    add("--target-return", type=float, help="stop at this mean return of 100 episodes")
    add("--learning-rate", type=float, default=1e-3, help="falls linearly to 0")
    add("--gamma", type=float, default=0.99, help="discount per step")
    add("--rho-bar", type=float, default=1.0, help="see rollouts.returns.vtrace")
    add("--c-bar", type=float, default=1.0, help="see rollouts.returns.vtrace")
    add("--entropy-coef", type=float, default=0.01, help="weight of the entropy bonus")
    add("--value-coef", type=float, default=0.5, help="weight of the value loss")
    add("--max-grad-norm", type=float, default=0.5, help="gradients are scaled down to this")
    add_learner_engine(parser)
    if chosen_env_id(argv, parser.get_default("env_id")) == "CartPole-v1":
        parser.set_defaults(target_return=475.0)
    return parser.parse_args(argv)


def make_policy(spec: PolicySpec) -> TorchPolicy:
    """Makes a policy in the process that samples with it; its weights arrive before it acts."""
    agent = Agent(spec.single_observation_space, spec.single_action_space)
    return TorchPolicy(agent, spec.single_action_space, seed=spec.seed)


class Learner(Checkpointed):
    """The policy that is trained and its optimiser."""

    saved = ("model", "optimizer")

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        spec = spec_of(args)
        torch.manual_seed(args.seed)
        self.model = Agent(spec.single_observation_space, spec.single_action_space)
        self.policy = TorchPolicy(self.model, spec.single_action_space, device=args.device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=args.learning_rate, eps=1e-5)
        self.native = read_learner(self.model, self.optimizer, args)

    def update(self, batch: rollouts.RolloutBatch, *, learning_rate: float) -> dict[str, float]:
        """Takes the single gradient step of a rollout; returns the values to log."""
        args = self.args
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate

        if self.native is not None:
            return dict(zip(LOGGED, self._step_natively(self.native, batch), strict=True))

        def on_device(array: NDArray[Any]) -> Tensor:
            return as_tensor(array).to(args.device)

        # outputs of the present policy for these steps; of last_obs only the value counts
        obs = torch.cat([on_device(batch.obs), on_device(batch.last_obs)[None]])
        action, behaviour_log_prob = on_device(batch.action), on_device(batch.log_prob)
        steps, envs = batch.reward.shape
        *params, value = self.model(obs.flatten(0, 1))
        params = [p[: steps * envs] if len(p) == len(value) else p for p in params]
        log_prob, entropy = self.policy.head.evaluate(params, action.flatten(0, 1))
        value, last_value = value.view(steps + 1, envs).split([steps, 1])
        log_prob = log_prob.view(steps, envs)

        advantage, target = vtrace(
            on_device(batch.reward),
            value,
            terminated=on_device(batch.terminated),
            truncated=on_device(batch.truncated),
            bootstrap_value=on_device(batch.bootstrap_value),
            last_value=last_value[0],
            behaviour_log_prob=behaviour_log_prob,
            target_log_prob=log_prob,
            gamma=args.gamma,
            rho_bar=args.rho_bar,
            c_bar=args.c_bar,
        )
        policy_loss = -(advantage * log_prob).mean()
        value_loss = 0.5 * (value - target).square().mean()
        bonus = entropy.mean()
        loss = policy_loss + args.value_coef * value_loss - args.entropy_coef * bonus

        self.optimizer.zero_grad()
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(self.model.parameters(), args.max_grad_norm)
        self.optimizer.step()
        clipped = (log_prob - behaviour_log_prob).exp() > args.rho_bar
        logs = torch.stack([policy_loss, value_loss, bonus, clipped.float().mean()]).detach()
        return dict(zip(LOGGED, logs.tolist(), strict=True))

    def _step_natively(
        self, learner: NativeLearner, batch: rollouts.RolloutBatch
    ) -> tuple[float, ...]:
        """The same gradient step in native code."""
        args, (steps, envs) = self.args, batch.reward.shape

        def flat(array: NDArray[Any]) -> NDArray[Any]:
            return array.reshape(-1, *array.shape[2:])

        # only the value of last_obs counts, whatever its action
        obs = np.concatenate([batch.obs, batch.last_obs[None]])
        action = np.concatenate([batch.action, batch.action[-1:]])
        now = learner.evaluate({"obs": flat(obs), "action": flat(action)})
        value = now.value.reshape(steps + 1, envs)
        log_prob = now.log_prob.reshape(steps + 1, envs)[:-1]
        advantage, target = returns.vtrace(
            batch.reward,
            value[:-1],
            terminated=batch.terminated,
            truncated=batch.truncated,
            bootstrap_value=batch.bootstrap_value,
            last_value=value[-1],
            behaviour_log_prob=batch.log_prob,
            target_log_prob=log_prob,
            gamma=args.gamma,
            rho_bar=args.rho_bar,
            c_bar=args.c_bar,
        )
        rows = {
            "obs": batch.obs,
            "action": batch.action,
            "log_prob": batch.log_prob,
            "advantage": advantage,
            "target": target,
        }
        found = learner.update(
            {name: flat(array) for name, array in rows.items()},
            np.arange(steps * envs),
            minibatch=steps * envs,
            loss=PolicyGradientLoss(
                value_weight=0.5 * args.value_coef, entropy_weight=args.entropy_coef
            ),
            max_grad_norm=args.max_grad_norm,
        )
        clipped = np.exp(log_prob - batch.log_prob) > args.rho_bar
        parts = (found.policy_loss, 0.5 * found.value_loss, found.entropy, clipped)
        return tuple(float(np.mean(each)) for each in parts)


def main() -> int:
    """Trains; returns 0, 1 where the target was missed, or 130 after Ctrl-C."""
    args = parse_args()
    return run(
        args,
        Learner,
        make_policy,
        kind=CHECKPOINT_KIND,
        title=f"IMPALA on {args.env_id}, {max(1, args.num_workers)} x {args.num_envs} environments",
        fragments_per_update=1,
        queue=QueueLimits(
            credits_per_worker=args.credits_per_worker,
            max_policy_lag=args.max_policy_lag,
            lag_policy=args.lag_policy,
        ),
    )


if __name__ == "__main__":
    sys.exit(main())
