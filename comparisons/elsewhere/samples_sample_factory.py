# SPDX-License-Identifier: Apache-2.0
"""Sample Factory's sampler over Gymnasium's environments; run by `serve` in its interpreter.

`SyncSamplingAPI` is Sample Factory's interface for samples without its learner.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import time
from typing import Any

import gymnasium
import numpy as np
import torch
from sample_factory.algo.sampling.simplified_sampling_api import SyncSamplingAPI
from sample_factory.algo.utils.env_info import obtain_env_info_in_a_separate_process
from sample_factory.algo.utils.rl_utils import samples_per_trajectory
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args, preprocess_cfg
from sample_factory.envs.env_utils import register_env
from sf_examples.train_gym_env import make_gym_env_func


class Samples:
    """A sampler that has begun."""

    def __init__(self, sampler: Any, told: dict[str, Any]) -> None:
        self._sampler, self.told = sampler, told

    def run(self, calls: int) -> tuple[float, int]:
        """Takes `calls` env-steps at least.

        All environments end their trajectories at about the same time: if whole rounds are taken,
        steps that were begun before the call make up for those that are unfinished after it.
        """
        taken = 0
        started = time.perf_counter()
        while taken < calls:
            taken += samples_per_trajectory(self._sampler.get_trajectories_sync())
        return time.perf_counter() - started, taken

    def close(self) -> None:
        """Ends workers and threads."""
        self._sampler.stop()


def make(
    id: str, num_envs: int, num_workers: int, rollout_length: int, hidden: list[int], seed: int
) -> Samples:
    """Starts the sampler, with an untrained policy of tanh layers."""
    each = num_envs // num_workers
    splits = 2 if each % 2 == 0 else 1
    register_env(id, make_gym_env_func)
    arguments = {
        "env": id,
        "experiment": "samples",
        "train_dir": os.getcwd(),
        "device": "cpu",
        "seed": seed,
        "num_workers": num_workers,
        "num_envs_per_worker": each,
        "worker_num_splits": splits,
        "policy_workers_per_policy": 1,
        "rollout": rollout_length,
        "recurrence": 1,
        "batch_size": num_envs * rollout_length,
        "use_rnn": False,
        "normalize_input": False,
        "nonlinearity": "tanh",
        "decorrelate_experience_max_seconds": 0,
    }
    argv = [f"--{name}={value}" for name, value in arguments.items()]
    argv += ["--encoder_mlp_layers", *map(str, hidden)]
    parser, _ = parse_sf_args(argv)
    cfg = parse_full_cfg(parser, argv)
    env_info = obtain_env_info_in_a_separate_process(cfg)
    if not preprocess_cfg(cfg, env_info):
        raise ValueError("Sample Factory refuses this configuration")
    sampler = SyncSamplingAPI(cfg, env_info)
    sampler.start()
    return Samples(
        sampler,
        {
            "version": importlib.metadata.version("sample-factory"),
            "notes": [
                f"{num_workers} rollout workers of {each} environments in {splits} splits, a "
                f"policy worker and this process, in Python {platform.python_version()} with "
                f"Gymnasium {gymnasium.__version__}, NumPy {np.__version__} and torch "
                f"{torch.__version__}; stopped while others are measured.",
            ],
        },
    )
