# SPDX-License-Identifier: Apache-2.0
"""Records CartPole until it is killed: `python record_until_killed.py TO SEED`."""

from __future__ import annotations

import sys

from recorded_sets import Uniform

import rollouts


def main(to: str, seed: int) -> None:
    env = rollouts.make_vec("CartPole-v1", 16, seed=seed, autoreset_mode="same_step", num_threads=1)
    policy = Uniform(env.single_action_space, seed)
    collector = rollouts.Collector(env, policy, 16, keep_final_obs=True)
    with rollouts.Recorder(collector, to, part_bytes=1 << 13) as recorder:
        print("begun", flush=True)
        recorder.record(num_steps=10**9)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
