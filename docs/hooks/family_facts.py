# SPDX-License-Identifier: Apache-2.0
"""Facts of a family that are not in the registry: its title, and a sentence or two.

A family without a row still has a page: its title is its folder's name, and its oracle tests are
those with the folder's name in theirs.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Facts:
    """The part of a family's page that is not generated.

    Attributes:
      title: Title of the page.
      about: The kind of environments.
      reference: The implementation that they are compared with.
      equal: How equal both are, in a sentence.
      oracles: Files of tests/oracle that compare them; if empty, those with the folder's name.
      extra: The extra that installs the engine.
      drawn: Id of the environment that the frame shows; "": the family's first.
    """

    title: str
    about: str = ""
    reference: str = ""
    equal: str = ""
    oracles: tuple[str, ...] = ()
    extra: str = ""
    drawn: str = ""


# header -> name of its environments, where it is no plain word
CALLED = {"minigrid": "MiniGrid", "babyai": "BabyAI", "vizdoom": "ViZDoom"}

FACTS = {
    "classic": Facts(
        "Classic control",
        "Small mechanical systems with a few numbers as observation. They need no engine, run on a "
        "GPU too, and are where to begin.",
        "Gymnasium's `classic_control`",
        "States, observations and rewards are equal to the bit, given the same sine and cosine.",
        ("test_classic_control.py", "test_stock_gymnasium.py"),
    ),
    "toy_text": Facts(
        "Toy text",
        "Games of a few discrete states, and Catch and NChain as bsuite and classic Gym had them. "
        "They need no engine and run on a GPU too.",
        "Gymnasium's `toy_text`; bsuite's Catch; classic Gym's NChain",
        "Transition tables are equal; outcomes of chance have the same distribution.",
        ("test_toy_text.py", "test_toy_text_infos.py"),
    ),
    "multi_agent": Facts(
        "Tag",
        "WarpDrive's two games of tag: taggers chase runners. Many agents, one team of GPU threads "
        "per environment.",
        "WarpDrive's `TagContinuous` and `TagGridWorld`",
        "Equal to the bit to references written from their rules.",
        ("test_tag.py",),
    ),
    "mpe": Facts(
        "MPE2",
        "The nine scenarios of the Multi-Agent Particle Environments.",
        "Farama's `mpe2`",
        "",
        ("test_mpe.py", "test_mpe_frames.py"),
        drawn="simple_tag_v3",
    ),
    "atari": Facts(
        "Atari",
        "The single-player games of the ale-py wheel, with ale-py's preprocessing inside the "
        "pool's threads. [Atari options](../how_to/atari.md) says which option does what.",
        "ale-py's own `AtariVectorEnv`",
        "Observations, rewards, ends and lives are equal to the bit with the same options.",
        ("test_atari.py", "test_atari_continuous.py", "test_atari_lives.py", "test_frames.py"),
        "atari",
        "ALE/Breakout-v5",
    ),
    "box2d": Facts(
        "Box2D",
        "LunarLander, BipedalWalker and CarRacing. The engine is part of released wheels: nothing "
        "to install. CarRacing's pictures are drawn by the core; `info` has its `lap_finished` in "
        "every step, and Gymnasium's reset option `randomize` is an [option that stays]"
        "(../how_to/domain_randomisation.md).",
        "Gymnasium's `box2d`",
        "Equal to the bit with the same draws and actions, and CarRacing's pictures pixel by pixel "
        "but for the shape of the score's digits, 6 x 12 of 96 x 96 pixels.",
        ("test_box2d.py", "racing/test_car_racing.py"),
    ),
    "mujoco": Facts(
        "MuJoCo",
        "Gymnasium's eleven tasks in versions 5 and 4, with every option and XML files of your "
        "own. `MuJoCo-v0` is any model of yours: see [domain randomisation]"
        "(../how_to/domain_randomisation.md).",
        "Gymnasium's `mujoco`, on the MuJoCo that is installed (3.14 to 4.0)",
        "",
        ("test_mujoco.py", "test_mujoco_v4.py", "test_mujoco_releases.py", "test_model_fields.py"),
        "mujoco",
    ),
    "minigrid": Facts(
        "MiniGrid and BabyAI",
        "Grid worlds of rooms, doors and keys, as plain data: they need no engine and run on a GPU "
        "too. Missions are numbers, which `rollouts.decode_mission` reads; "
        "`flatten_observation=False` gives minigrid's dict.\n\n"
        "`observation=` is what minigrid's wrappers show: `partial` (no wrapper), `full` "
        "(`FullyObsWrapper`), `one_hot` (`OneHotPartialObsWrapper`), `symbolic` "
        "(`SymbolicObsWrapper`), `flat` (`FlatObsWrapper`), and in pixels, by `tile_size=`, `rgb` "
        "(`RGBImgObsWrapper`) and `rgb_partial` (`RGBImgPartialObsWrapper`). Pictures are drawn by "
        "the pool's threads. A GPU's pool has `partial` alone.",
        "Farama's `minigrid` 3.2",
        "Every step is equal to minigrid's on a grid of ours, and pictures pixel by pixel; grids "
        "come from other random numbers.",
    ),
    "vizdoom": Facts(
        "ViZDoom",
        "Scenarios of Doom, a process of the game for each environment, stepped from the pool's "
        "threads; Linux only. `flatten_observation=False` gives the dict of screen, buffers and "
        "game variables.",
        "Farama's `vizdoom` 1.3 and its Gymnasium environments",
        "Screens, variables, rewards and ends are equal to the bit with the same seed and actions.",
        extra="vizdoom",
    ),
    "dm_control": Facts(
        "DeepMind Control Suite",
        "The suite's tasks, stepped by the pool's threads. A model is compiled once and kept in "
        "the folder for temporary files, 12 MB each. `flatten_observation=False` gives "
        "observations as dicts by dm_control's names.",
        "`dm_control.suite`",
        "",
        ("test_dm_control.py", "test_suite_model_fields.py"),
        "dm-control",
        "CheetahRun-v1",
    ),
}
