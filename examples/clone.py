# SPDX-License-Identifier: Apache-2.0
"""Behaviour cloning: a policy learns the actions of a data set.

    rollouts collect --policy runs/teacher --trust --steps 300000 --to teacher.hdf5
    python examples/clone.py --data teacher.hdf5 --run-dir runs/clone
    rollouts eval runs/clone --trust

The data may also come from Minari (minari:NAME-v0) or from a folder of Parquet. After each epoch
the clone plays some episodes in the environment that the data set names.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common.checkpoint import program_of
from numpy.typing import NDArray
from ppo import make_policy

import rollouts
from rollouts.checkpoint import Checkpoint, save_checkpoint
from rollouts.collecting.evaluation import evaluate
from rollouts.datasets import open_set
from rollouts.learner.native_learner import CloningLoss, NativeLearner
from rollouts.workers import PolicySpec


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--data", required=True, help="minari:NAME-v0, FILE.hdf5 or FOLDER.parquet")
    add("--run-dir", type=Path, default=Path("runs/clone"), help="where the checkpoint goes")
    add("--epochs", type=int, default=5, help="passes over the data")
    add("--minibatch", type=int, default=256, help="rows of a gradient step")
    add("--learning-rate", type=float, default=1e-3, help="falls linearly to 0")
    add("--hidden", type=int, nargs="+", default=(64, 64), help="layers of the network")
    add("--eval-episodes", type=int, default=16, help="after each epoch")
    add("--seed", type=int, default=1)
    return parser.parse_args(argv)


def read(data: Any) -> tuple[NDArray[Any], NDArray[Any], float]:
    """Returns observations (N, *obs_shape), actions (N, *action_shape) and the mean return."""
    episodes = list(data)
    obs = np.concatenate([each.observation[:-1] for each in episodes])
    action = np.concatenate([each.action for each in episodes])
    wide = obs.dtype == np.float64  # the network computes in float32
    taught = float(np.mean([each.reward.sum() for each in episodes]))
    return obs.astype(np.float32) if wide else obs, action, taught


def clone(args: argparse.Namespace, data: Any) -> None:
    """Learns the actions of a data set, and saves the network that plays best."""
    about = data.about
    obs, action, taught = read(data)
    print(f"{data.num_episodes} episodes, {len(obs):,} steps, mean return {taught:.1f}")
    rng = np.random.default_rng(args.seed)
    torch.manual_seed(args.seed)
    limit = (
        {} if about.max_episode_steps is None else {"max_episode_steps": about.max_episode_steps}
    )
    options = {**about.env_options, **limit}
    with rollouts.make_vec(
        about.id, 16, seed=args.seed, autoreset_mode="same_step", **options
    ) as env:
        spec = env.env_spec
        make = partial(make_policy, hidden=tuple(args.hidden))
        policy = make(PolicySpec.here(about.id, spec, num_envs=env.num_envs, seed=args.seed))
        optimizer = torch.optim.Adam(policy.module.parameters(), lr=args.learning_rate)
        native = rollouts.NativePolicy.from_torch(policy.module, spec.single_action_space)
        learner = NativeLearner(native, optimizer)
        best = -np.inf
        args.run_dir.mkdir(parents=True, exist_ok=True)
        for epoch in range(args.epochs):
            optimizer.param_groups[0]["lr"] = args.learning_rate * (1 - epoch / args.epochs)
            order = rng.permutation(len(obs)).astype(np.int64)
            said = learner.update(
                {"obs": obs, "action": action}, order, minibatch=args.minibatch, loss=CloningLoss()
            )
            played = float(evaluate(env, policy, args.eval_episodes).returns.mean())
            loss = float(said.policy_loss[-100:].mean())
            print(f"epoch {epoch + 1}: loss {loss:.3f}, return {played:.1f}", flush=True)
            if played > best:
                best = played
                made = Checkpoint(
                    id=about.id,
                    env_options=options,
                    weights=policy.module.state_dict(),
                    policy_version=epoch + 1,
                    seed=args.seed,
                    **program_of(make),
                )
                save_checkpoint(args.run_dir, made)
    print(f"the clone's best return is {best:.1f}, the teacher's {taught:.1f}; {args.run_dir}")


def main() -> int:
    """Clones; returns 0."""
    args = parse_args()
    try:
        data = open_set(args.data)
        if not data.about.id:
            raise rollouts.SpecError(f"{args.data} does not say which environment it is of")
        clone(args, data)
    except rollouts.RolloutsError as error:
        raise SystemExit(f"error: {error}") from error
    return 0


if __name__ == "__main__":
    sys.exit(main())
