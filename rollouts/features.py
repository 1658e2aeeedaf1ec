# SPDX-License-Identifier: Apache-2.0
"""The one table of what works where: keywords by what steps environments and how many agents act.

A keyword that is not in the table works in every cell. `docs/reference/features.md` is made of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any

from rollouts.errors import SpecError

# What steps environments: an engine, or "device" for both that do so there. "alone" and "agents"
# say how many agents they have, whatever steps them.
PLACES: Mapping[str, str] = {
    "native": "a pool of threads",
    "kernel": "a pool of kernels on a device",
    "physics": "a pool of physics on a device",
    "device": "a pool on a device",
    "hosted": "environments in Python",
    "alone": "environments with one agent",
    "agents": "environments with several agents",
}


@dataclass(frozen=True, slots=True)
class Cell:
    """One kind of environments: a key of PLACES, and whether they have several agents."""

    engine: str
    has_agents: bool = False

    @property
    def places(self) -> tuple[str, ...]:
        """The keys of PLACES that hold for it."""
        on_device = ("device",) if self.engine in ("kernel", "physics") else ()
        return (self.engine, *on_device, "agents" if self.has_agents else "alone")


# No environment on MuJoCo has several agents.
CELLS = (
    *(Cell("native"), Cell("native", True), Cell("kernel"), Cell("kernel", True)),
    *(Cell("physics"), Cell("hosted"), Cell("hosted", True)),
)

# what `make_vec` puts around environments
WRAPPERS = (
    "clip_action",
    "clip_reward",
    "frame_stack",
    "normalize_observation",
    "normalize_reward",
    "rescale_action",
    "time_aware",
)


def _at(places: Iterable[str], why: str) -> dict[str, str]:
    return dict.fromkeys(places, why)


# Owner -> keyword, or keyword=value -> place -> why it cannot be had there, and what to do.
REFUSED: Mapping[str, Mapping[str, Mapping[str, str]]] = {
    "make_vec": {
        "several ids": {"device": "its environments are of one id; leave device out to mix"},
        "batch_size": {"device": "one launch steps all environments; leave batch_size out"},
        "num_threads": {"device": "no threads step it; leave num_threads out"},
        "on_env_error": {
            "device": "synchronize raises what went wrong there; leave on_env_error out"
        },
        "pin_threads": {"device": "no threads step it; leave pin_threads out"},
        "render_mode": {
            "device": "nothing draws there; give its states to a pool of threads, and render those"
        },
        "flatten_observation": {
            "agents": "their observations have no named parts; leave flatten_observation out",
            "device": "its observations are one tensor; leave flatten_observation out",
        },
        "from_pixels": {
            "agents": "they do not observe pictures; leave from_pixels out",
            "device": "threads of a pool draw pictures; leave device out",
        },
        **{
            name: {
                "agents": f"rows of agents are not wrapped; leave {name} out, or wrap the "
                "environment that an adapter makes, such as rollouts.integrations.pettingzoo's",
                "device": "threads of a pool wrap; leave device out, or scale in torch",
            }
            for name in WRAPPERS
        },
    },
    "Collector": {
        "batch_size": {
            "agents": "agents are collected synchronously; leave batch_size out of make_vec"
        },
        "engine='native'": {
            "hosted": "they run in Python, and native pools alone compute policies by their own "
            "threads; leave engine out"
        },
        "prefetch": {
            "hosted": "their policy acts in Python, step by step, and nothing goes on between two "
            "calls; leave prefetch out"
        },
        "mask_actions": {
            "agents": "they report no info['action_mask']; leave mask_actions out",
            "device": "its kernels choose among all actions; leave mask_actions out",
        },
        "cuda_graph": {
            **_at(("native", "hosted"), "there is no launch to record; leave cuda_graph out"),
            "physics": "each of its steps is a graph already; leave cuda_graph out",
        },
    },
}


def why_not(what: str, keyword: str, cell: Cell) -> str:
    """Returns the sentence that refuses a keyword in a cell; "" where it works.

    Args:
      what: A key of REFUSED.
      keyword: Its keyword, such as "prefetch", or "engine='native'" where only a value is refused.
      cell: Where it is asked for.
    """
    reasons = REFUSED[what].get(keyword, {})
    for place in cell.places:
        if place in reasons:
            return f"{keyword} cannot be had of {PLACES[place]}: {reasons[place]}"
    return ""


def check(what: str, asked: Iterable[str], cell: Cell) -> None:
    """Raises SpecError where one of the keywords that were asked for is refused in a cell."""
    for keyword in asked:
        if sentence := why_not(what, keyword, cell):
            raise SpecError(sentence)


def asked_of(options: Any, prefix: str = "") -> list[str]:
    """Returns the fields of a dataclass that have not their default, as keys of REFUSED.

    Args:
      options: The dataclass.
      prefix: What the keys begin with, such as "collect.".
    """
    found = []
    for one in fields(options):
        value = getattr(options, one.name)
        default = one.default_factory() if one.default_factory is not MISSING else one.default
        if value is not default and (type(value) is not type(default) or value != default):
            found.append(prefix + one.name)
            if isinstance(value, str):
                found.append(f"{prefix}{one.name}={value!r}")
    return found
