# SPDX-License-Identifier: Apache-2.0
"""An episode of several agents as an animation."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import rollouts
from rollouts.policy import TorchPolicy
from rollouts.rendering.video import VideoWriter


def film(
    path: Path,
    env_id: str,
    policies: Mapping[str, TorchPolicy],
    *,
    options: Mapping[str, Any],
    seed: int,
) -> int:
    """Plays one episode with the policies' exploration in training, and writes each frame.

    Args:
      path: Ends in .gif or .mp4.
      env_id, options: Id and options of the environment.
      policies: group -> the policy that its agents share.
      seed: Seed of the environment.

    Returns:
      Number of frames written: the first one, and one for each step.

    Raises:
      EngineError: pygame or imageio is missing (extra `render`).
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # without autoreset the last frame still belongs to the episode
    env = rollouts.make_multi_agent_vec(
        env_id, 1, num_threads=1, seed=seed, autoreset_mode="disabled", **options
    )
    with env, VideoWriter(path, 10) as video:
        obs, _ = env.reset()
        ended = False
        while not ended:
            video.write(env.render()[0])
            seen = obs if isinstance(obs, Mapping) else {next(iter(env.groups)): obs}
            actions = {name: policies[name].act(seen[name][0]).action[None] for name in seen}
            obs, _, _, _, info = env.step(actions)
            ended = bool(info["ended"][0])
        video.write(env.render()[0])
        return video.num_frames
