# SPDX-License-Identifier: Apache-2.0
"""Our Atari options, translated for other libraries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rollouts.errors import SpecError
from rollouts.specs import OptionValue

# options of Gymnasium's emulator; all other options belong to its wrappers
_EMULATOR = (
    "repeat_action_probability",
    "full_action_space",
    "continuous",
    "continuous_action_threshold",
    "mode",
    "difficulty",
)


def envpool_atari_options(options: Mapping[str, OptionValue]) -> dict[str, OptionValue]:
    """Our Atari options as EnvPool's.

    Raises:
      SpecError: A value that EnvPool does not have.
    """
    refuse("envpool", options, "maxpool", unless=True)
    refuse("envpool", options, "life_loss_info", unless=False)
    refuse("envpool", options, "continuous", unless=False)
    if options["episodic_life"] == "restart":
        refuse("envpool", options, "episodic_life", unless="continue")
    renamed = {
        "frameskip": "frame_skip",
        "grayscale": "gray_scale",
        "reward_clipping": "reward_clip",
    }
    refuse("envpool", options, "obs_type", unless="screen")
    left_out = {"maxpool", "life_loss_info", "ram_info", "engine", "obs_type"}
    left_out |= {"continuous", "continuous_action_threshold"}
    result = {
        renamed.get(name, name): value for name, value in options.items() if name not in left_out
    }
    result["episodic_life"] = bool(options["episodic_life"])
    return result


def ale_atari_options(options: Mapping[str, OptionValue]) -> dict[str, OptionValue]:
    """Our Atari options as those of ale-py's vector environment.

    Raises:
      SpecError: A value that ale-py does not have.
    """
    for name in ("mode", "difficulty"):
        refuse("ale", options, name, unless=-1)
    refuse("ale", options, "obs_type", unless="screen")
    refuse("ale", options, "use_inter_area_resize", unless=True)
    if options["episodic_life"] is not False:
        refuse("ale", options, "episodic_life", unless="restart")
    left_out = ("mode", "difficulty", "ram_info", "engine", "obs_type", "use_inter_area_resize")
    result = {name: value for name, value in options.items() if name not in left_out}
    return {**result, "episodic_life": bool(options["episodic_life"])}


def gymnasium_atari_options(options: Mapping[str, OptionValue]) -> dict[str, Any]:
    """Our Atari options as arguments of Gymnasium's emulator and wrappers, by their names.

    Raises:
      SpecError: A value that Gymnasium does not have.
    """
    refuse("gymnasium", options, "maxpool", unless=True)
    refuse("gymnasium", options, "life_loss_info", unless=False)
    refuse("gymnasium", options, "obs_type", unless="screen")
    refuse("gymnasium", options, "use_inter_area_resize", unless=True)
    if options["continuous"]:
        # the wrapper's no-op is a Discrete action, which a continuous environment does not take
        refuse("gymnasium", options, "noop_max", unless=0)
    emulator: dict[str, OptionValue] = {"frameskip": 1}
    for name in _EMULATOR:
        # Gymnasium uses the game's own mode where none is named
        if options[name] != -1:
            emulator[name] = options[name]
    preprocessing = {
        "noop_max": options["noop_max"],
        "frame_skip": options["frameskip"],
        "screen_size": (options["img_width"], options["img_height"]),
        "terminal_on_life_loss": bool(options["episodic_life"]),
        "grayscale_obs": options["grayscale"],
    }
    return {
        "make": emulator,
        "AtariPreprocessing": preprocessing,
        "ClipReward": (-1.0, 1.0) if options["reward_clipping"] else None,
        "FrameStackObservation": options["stack_num"],
    }


def refuse(
    peer: str, options: Mapping[str, OptionValue], name: str, *, unless: OptionValue
) -> None:
    """Raises SpecError where an option is not the one value that the peer has."""
    if options[name] != unless:
        raise SpecError(
            f"peer {peer!r} has no equal of {name}={options[name]!r}: it always has "
            f"{name}={unless!r}. Leave out the option, or this peer"
        )
