# SPDX-License-Identifier: Apache-2.0
"""The error for an option that does not exist: it names the most similar one and all others."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from rollouts.envs.option_types import EnvOptions, PoolOptions
from rollouts.envs.wrappers import NAMES as WRAPPERS
from rollouts.errors import SpecError
from rollouts.support.option_help import option_help

# names that other libraries use for arguments of make_vec
_OTHER_NAMES = {"max_cycles": "max_episode_steps", "episode_length": "max_episode_steps"}
# Gymnasium's reset options of classic control
_STARTS = frozenset(("low", "high", "x_init", "y_init"))


def unknown_option(id: str, header: str, name: str, known: Iterable[str]) -> SpecError:
    """Returns the error for an option that an id does not have.

    Args:
      id: The id.
      header: `EnvSpec.header`.
      name: The option.
      known: The options that exist.
    """
    options = sorted(known)
    text = f"{id} has no option {name!r}; it takes: {', '.join(options) or 'none'}."
    arguments = arguments_of_make_vec()
    close = difflib.get_close_matches(name, [*options, *arguments, *WRAPPERS], n=1)
    if name in _OTHER_NAMES:
        close = [_OTHER_NAMES[name]]
    if name in arguments:
        close = []  # the message's next sentence lists the arguments
    meaning = option_help(header).get(close[0]) if close else None
    hint = did_you_mean(close, meaning)
    return SpecError(
        f"{text}{hint} make_vec itself takes {', '.join(arguments)}, and the wrappers "
        f"{', '.join(WRAPPERS)}; "
        f"`rollouts envs {id}` says what each option means."
    )


def did_you_mean(close: Sequence[str], meaning: str | None = None) -> str:
    """The question that ends an error, with a space before it; "" where nothing is close."""
    said = f" ({meaning})" if meaning else ""
    return f" Did you mean {' or '.join(close)}{said}?" if close else ""


def start_hint(unknown: Iterable[str], id: str) -> str:
    """Returns advice, after a space, for Gymnasium's reset options for starts; else ""."""
    if not _STARTS.intersection(unknown):
        return ""
    return (
        " Gymnasium's low, high, x_init and y_init are not options here: where episodes start is "
        f"the environment's own. rollouts.from_env_fns([lambda: gymnasium.make({id!r})] * N) "
        "steps Gymnasium's environments, which take them."
    )


def arguments_of_make_vec() -> list[str]:
    """Names of the arguments of `make_vec`, without environments' options."""
    own = [name for name in PoolOptions.__annotations__ if name not in EnvOptions.__annotations__]
    return ["id", "num_envs", *own, "device"]
