# SPDX-License-Identifier: Apache-2.0
"""R2D2: Q-learning with memory from a replay of sequences, on CartPole without its velocities.

    python examples/r2d2.py                             positions only, two Ray workers, two shards
    python examples/r2d2.py --no-memory                 the same network, forgetting every step
    python examples/r2d2.py --visible 0 1 2 3 --scale 1 1 1 1  nothing hidden
    python examples/r2d2.py --num-workers 0 --num-shards 0  in this process, without Ray
    python examples/r2d2.py --resume runs/<run>         goes on, with what the replay held

The workers store the GRU's state before each step. A sampled sequence is run again from its first
state, which older weights computed. The first --burn-in rows only bring that state up to date with
the present weights. The rows after them are learned from by n-step double Q-learning, and their
largest and mean errors decide how often the sequence is sampled again (Kapturowski et al. 2019).
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
from common.native_learning import add_learner_engine, read_or_none
from common.replay_training import (
    add_greedy_arguments,
    add_replay_arguments,
    explore,
    explores_little,
    make_table,
    run,
)
from common.training import run_parser, spec_of
from numpy.typing import NDArray
from ppo import layer
from torch import Tensor, nn

from rollouts.learner.loss_learner import LossLearner
from rollouts.learner.sequence_losses import SequenceDqnLoss, inverse_root, root
from rollouts.recurrent import RecurrentTorchPolicy, State
from rollouts.replay import SequenceBatch, Sequences
from rollouts.replay.sampling import ReplayBatch
from rollouts.workers import PolicySpec

CHECKPOINT_KIND = "rollouts examples/r2d2.py, version 1"


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    """Reads the command line."""
    parser = run_parser(__doc__)
    add_replay_arguments(parser)
    add_greedy_arguments(parser)
    add_learner_engine(parser)
    add = parser.add_argument
    add("--visible", type=int, nargs="+", default=[0, 2], help="observed numbers that are shown")
    # positions change by hundredths from step to step, so that they are scaled up
    add("--scale", type=float, nargs="+", default=[2.0, 20.0], help="factor of each of them")
    add("--no-memory", action="store_true", help="forget everything after each step")
    add("--burn-in", type=int, default=10, help="steps of a sequence before those learnt from")
    add("--learn-steps", type=int, default=20, help="steps of a sequence that are learnt from")
    add("--eta", type=float, default=0.9, help="of a priority: share of the largest error")
    add("--rescale", action=argparse.BooleanOptionalAction, default=True, help="learn roots")
    parser.set_defaults(
        target_return=475.0,
        batch_size=32,
        replay_size=10_000,
        min_size=200,
    )
    return parser.parse_args(argv)


class QNetwork(nn.Module):
    """An encoder, a GRU, and dueling heads, for small observations and Discrete actions."""

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
        self.gru = nn.GRU(size, size)
        self.advantage, self.value = layer(size, int(action_space.n), 0.01), layer(size, 1, 1.0)

    def initial_state(self) -> State:
        """The state with which an episode begins."""
        return (self.scale.new_zeros(self.size),)

    def forward(self, obs: Tensor, state: State) -> tuple[Tensor, Tensor, State]:
        """Maps obs (B, ...) and state to (values (B, A), their maximum, state)."""
        values, state = self.sequence(obs[None], state)
        return values[0], values[0].max(-1).values, state

    def sequence(self, obs: Tensor, state: State) -> tuple[Tensor, State]:
        """Maps obs (T, B, ...) of one episode per column to values (T, B, A), and state."""
        features = self.encoder(obs[..., self.visible] * self.scale)
        if self.has_memory:
            hidden, last = self.gru(features, state[0][None])
        else:
            hidden, _ = self.gru(features.flatten(0, 1)[None])
            hidden, last = hidden.view(features.shape), torch.zeros_like(state[0][None])
        advantage = self.advantage(hidden)
        values = self.value(hidden) + advantage - advantage.mean(-1, keepdim=True)
        return values, (last[0],)


def network_options(args: argparse.Namespace) -> dict[str, Any]:
    """Options of a QNetwork from the command line."""
    return {"visible": args.visible, "scale": args.scale, "has_memory": not args.no_memory}


def make_policy(spec: PolicySpec, *, total_envs: int, **options: Any) -> RecurrentTorchPolicy:
    """Makes a policy in the process that samples with it; its weights arrive before it acts."""
    network = QNetwork(spec.single_action_space, **options)
    space, seed = spec.single_action_space, spec.seed
    policy = RecurrentTorchPolicy(network, space, seed=seed, keep_states=True)
    explore(policy, spec, total_envs)
    return policy


class Learner(Checkpointed):
    """The network that is trained, the older one that its targets come from, and the optimiser."""

    saved = ("online", "target", "optimizer", "updates")

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        space: Any = spec_of(args).single_action_space
        torch.manual_seed(args.seed)
        options = network_options(args)
        self.online, self.target = QNetwork(space, **options), QNetwork(space, **options)
        self.policy = RecurrentTorchPolicy(self.online, space, device=args.device)
        self.target.to(args.device).load_state_dict(self.online.state_dict())
        # fused, because otherwise the optimiser takes a fifth of an update of such small networks
        parameters = self.online.parameters()
        self.optimizer = torch.optim.Adam(parameters, lr=args.learning_rate, fused=True)
        self.start, self.num_actions = int(space.start), int(space.n)
        self.updates = 0
        obs_shape = spec_of(args).single_observation_space.shape or ()
        self.loss = SequenceDqnLoss(
            Unrolled(self.online),
            Unrolled(self.target),
            obs_shape,
            self.num_actions,
            tuple(each.shape for each in self.online.initial_state()),
            num_steps=args.burn_in + args.learn_steps,
            burn_in=args.burn_in,
            n=args.n_step,
            discount=args.gamma,
            rescale=args.rescale,
        )
        self.native = read_or_none(
            lambda: LossLearner(self.loss, self.optimizer, args.torch_threads), args.learner_engine
        )

    @property
    def policy_state(self) -> tuple[NDArray[Any], ...]:
        """Examples of one environment's state."""
        return tuple(state.cpu().numpy() for state in self.online.initial_state())

    def learn(self, batch: ReplayBatch, *, learning_rate: float) -> tuple[Tensor, dict[str, Any]]:
        """Takes one gradient step; returns the sequences' priorities (B,), and logs."""
        assert isinstance(batch, SequenceBatch)
        args = self.args
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate

        descend = self.descend if self.native is None else self.descend_natively
        loss, value, priority, error = descend(batch)
        self.updates += 1
        if self.updates % args.target_interval == 0:
            self.target.load_state_dict(self.online.state_dict())
        return priority, {"loss": loss, "value": value.mean(), "error": error}

    def descend(self, batch: SequenceBatch) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Takes the step by torch; returns loss, values (T, B), priorities (B,), mean error."""
        args = self.args
        values = self.unroll(self.online, batch)
        with torch.no_grad():
            following = self.unroll(self.target, batch)
            following = following.gather(-1, values.argmax(-1, keepdim=True))[..., 0]
            goal = self.goal(batch, following)
        index = batch.action.long()[..., None] - self.start
        # rows after a sequence's end have no action
        value = values[:-1].gather(-1, index.clamp(min=0))[..., 0]

        # the state at the beginning of an episode is never outdated, and needs no burn-in
        row = torch.arange(len(value), device=value.device)[:, None]
        learnt = batch.valid & ((row >= batch.burn_in) | batch.first[0])
        losses = nn.functional.smooth_l1_loss(value, goal, reduction="none")
        loss = (batch.weight * losses * learnt).sum() / learnt.sum().clamp(min=1)
        self.optimizer.zero_grad()
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(self.online.parameters(), args.max_grad_norm)
        self.optimizer.step()

        error = (value - goal).detach().abs() * learnt
        mean = error.sum(0) / learnt.sum(0).clamp(min=1)
        priority = args.eta * error.max(0).values + (1 - args.eta) * mean
        return loss.detach(), value.detach(), priority, mean.mean()

    def descend_natively(self, batch: SequenceBatch) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Takes the same step of the same loss in native code."""
        assert self.native is not None
        parts = self.loss.sequences(batch, start=self.start)
        found = self.native.step(parts, max_grad_norm=self.args.max_grad_norm)
        _, off, value = np.split(found.outputs, [1, 1 + self.loss.num_steps], axis=1)
        priority, mean = (self.loss.priorities(parts, off, eta) for eta in (self.args.eta, 0.0))
        tensors = map(torch.as_tensor, (found.loss, value.T, priority, mean.mean()))
        loss, values, priorities, error = tensors
        return loss, values, priorities, error

    def unroll(self, network: QNetwork, batch: SequenceBatch) -> Tensor:
        """Values (T + 1, B, A) from the stored states on; the burn-in gets no gradient."""
        warm, state = network.sequence(batch.obs[: batch.burn_in], batch.policy_state)
        state = tuple(s.detach() for s in state)
        return torch.cat([warm, network.sequence(batch.obs[batch.burn_in :], state)[0]])

    def goal(self, batch: SequenceBatch, following: Tensor) -> Tensor:
        """n-step targets (T, B), with fewer steps at the end of a sequence.

        Args:
          batch: (T, B); all rewards after a column's last step are 0.
          following: (T + 1, B), the target network's value of each observation.
        """
        args, steps = self.args, len(batch.reward)
        row = torch.arange(steps, device=following.device)[:, None]
        end = torch.minimum(row + args.n_step, batch.num_steps)
        is_over = batch.terminated.any(0) & (end == batch.num_steps)
        rest = inverse_root(following) if args.rescale else following
        rest = rest.gather(0, end) * ~is_over

        padded = nn.functional.pad(batch.reward, (0, 0, 0, args.n_step - 1))
        total = args.gamma ** (end - row) * rest
        for i in range(args.n_step):
            total = total + args.gamma**i * padded[i : i + steps]
        return root(total) if args.rescale else total


class Unrolled(nn.Module):
    """Gives a network's values of all steps of sequences."""

    def __init__(self, network: QNetwork) -> None:
        super().__init__()
        self.network = network

    def forward(self, obs: Tensor, state: State) -> tuple[Tensor, State]:
        """Maps obs (T, B, ...) and state to values (T, B, A), and state."""
        return self.network.sequence(obs, state)


def main() -> int:
    """Trains; returns 0, 1 where the target was missed, or 130 after Ctrl-C."""
    args = parse_args()
    total_envs = max(1, args.num_workers) * args.num_envs
    memory = "without memory" if args.no_memory else "with a GRU"
    items = Sequences(
        length=args.burn_in + args.learn_steps,
        period=args.learn_steps,
        burn_in=args.burn_in,
        end_of_episode="pad",
    )
    return run(
        args,
        Learner,
        partial(make_policy, total_envs=total_envs, **network_options(args)),
        make_table(args, items),
        kind=CHECKPOINT_KIND,
        title=f"R2D2 {memory} on {args.env_id}, numbers {args.visible} visible",
        counts=explores_little(args),
    )


if __name__ == "__main__":
    sys.exit(main())
