# SPDX-License-Identifier: Apache-2.0
"""`check_episode`: checks that an episode fits the set's spaces."""

from __future__ import annotations

from rollouts.datasets.about import About
from rollouts.datasets.episodes import Episode
from rollouts.errors import SpecError


def check_episode(episode: Episode, about: About, where: str) -> Episode:
    """Returns the episode, if it is valid.

    Raises:
      SpecError: Lengths, shapes or dtypes are not those of an episode of these spaces.
    """
    steps = episode.num_steps
    expected = {
        "actions": (episode.action, (steps, *(about.action_space.shape or ())), about.action_space),
        "observations": (
            episode.observation,
            (steps + 1, *(about.observation_space.shape or ())),
            about.observation_space,
        ),
    }
    for name, (array, shape, space) in expected.items():
        if array.shape != shape or array.dtype != space.dtype:
            raise SpecError(
                f"{where}: {name} have shape {array.shape} and dtype {array.dtype}, expected "
                f"{shape} and {space.dtype}: the data are of another space, or cut off"
            )
    for name in ("terminated", "truncated"):
        if getattr(episode, name).shape != (steps,):
            raise SpecError(f"{where}: {name} has another length than the {steps} rewards")
    if not steps:
        raise SpecError(f"{where} has no steps")
    return episode
