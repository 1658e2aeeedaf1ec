# SPDX-License-Identifier: Apache-2.0
"""The one table of what works where, and the sentences that refuse the rest.

REFUSED has keywords by kind and number of agents of the environments. A keyword that is not in it
works for all kinds. The documentation's page "What works where" is made from REFUSED. FEATURES has
the features that each engine declares by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any

from rollouts.errors import SpecError

# What steps environments: an engine, or "device" and "host" for all engines there. "alone" and
# "agents" are for environments with one agent or several, with any engine.
PLACES: Mapping[str, str] = {
    "native": "a pool of threads",
    "kernel": "a pool of kernels on a device",
    "physics": "a pool of physics on a device",
    "device": "a pool on a device",
    "hosted": "environments in Python",
    "rows": "agents as rows",
    "host": "environments on the host",
    "alone": "environments with one agent",
    "agents": "environments with several agents",
}


@dataclass(frozen=True, slots=True)
class Cell:
    """A kind of environments: a key of PLACES, and whether they have several agents.

    None stands for an unknown value.
    """

    engine: str
    has_agents: bool | None = False

    @property
    def places(self) -> tuple[str, ...]:
        """The keys of PLACES that apply to this kind."""
        where = "device" if self.engine in ("kernel", "physics") else "host"
        agents = () if self.has_agents is None else ("agents" if self.has_agents else "alone",)
        return (self.engine, where, *agents)


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


# what a Collector cannot do with some environments
_OF_COLLECTORS: Mapping[str, Mapping[str, str]] = {
    "batch_size": {
        "agents": "agents are collected synchronously; leave batch_size out of make_vec"
    },
    "engine='native'": {
        "hosted": "they run in Python, and native pools alone compute policies by their own "
        "threads; leave engine out",
        "rows": "Python makes rows of each step; leave engine out, or collect the environments "
        "by group",
    },
    "prefetch": {
        "hosted": "their policy acts in Python, step by step, and nothing goes on between two "
        "calls; leave prefetch out",
        "rows": "Python makes rows of each step, and nothing goes on between two calls; leave "
        "prefetch out, or collect the environments by group",
    },
    "mask_actions": {
        "agents": "they report no info['action_mask']; leave mask_actions out",
        "device": "its kernels choose among all actions; leave mask_actions out",
    },
    "record": {
        "device": "its states and actions stay on the device; leave record out, or collect on "
        "a pool of threads",
        "rows": "Python makes rows of each step; leave record out, or collect the environments "
        "by group",
    },
    "record with batch_size": {
        "host": "states are saved while all environments rest, and those of an asynchronous "
        "pool never do; leave batch_size or record out",
    },
    "cuda_graph": {
        "host": "there is no launch to record; leave cuda_graph out",
        "physics": "each of its steps is a graph already; leave cuda_graph out",
    },
    "policy_dtype": {
        "host": "its policies are computed in float32; leave policy_dtype out",
    },
}
# Keywords of a Collector that workers do not have, or that the worker's Collector refuses itself.
_OF_COLLECTORS_ALONE = (
    "batch_size",
    "engine='native'",
    "prefetch",
    "record",
    "record with batch_size",
)

# Owner -> keyword, or keyword=value -> place -> why it does not work there, and what to do.
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
    "Collector": _OF_COLLECTORS,
    "RolloutCoordinator": {
        "num_workers=0": {
            "device": "expected at least 1 worker; in this process use a rollouts.Collector"
        },
        "inference": {
            "agents": "the inference actor has one policy; leave inference out",
            "hosted": "the inference actor takes the spaces from an id; leave inference or "
            "collect.make_env out",
            "device": "the policies lie on the workers' devices; leave inference out",
        },
        "collect.batch_size": {
            "agents": "agents are collected synchronously; leave collect.batch_size out",
            "device": "one launch steps all environments; leave collect.batch_size out",
        },
        **{
            f"collect.{name}": {
                place: why.replace(f"leave {name}", f"leave collect.{name}")
                for place, why in refused.items()
            }
            for name, refused in _OF_COLLECTORS.items()
            if name not in _OF_COLLECTORS_ALONE
        },
        "collect.pack_frame_stacks": {
            "agents": "no such environment stacks frames; leave collect.pack_frame_stacks out",
            "device": "its tensors travel as they are; leave collect.pack_frame_stacks out",
        },
        "record": {
            "device": "its states and actions stay on the device; leave record out, or collect on "
            "pools of threads",
        },
        "collect.policies": {
            "alone": "the one agent has one policy; leave collect.policies out",
        },
        "collect.make_env": {
            "device": "its environments are those of an id; give collect.device and leave "
            "collect.make_env out"
        },
        "collect.make_collector": {
            "device": "workers make their own there; leave collect.make_collector or .device out"
        },
        **{
            f"collect.tensor_transport={way!r}": {
                "host": "their fragments are arrays, which travel through the object store; leave "
                "collect.tensor_transport out"
            }
            for way in ("cuda_ipc", "nixl")
        },
    },
    "Recorder": {
        "states": {
            "device": "a pool of threads begins episodes again, and does not know what a device "
            "drew; leave states out",
            "hosted": "a pool of threads begins episodes again, and Python makes these; leave "
            "states out",
        },
        "reset and step": {
            "agents": "single steps of several agents are not recorded; give Recorder a Collector "
            "of the environments",
            "device": "its steps stay on the device; give Recorder a Collector of the environments",
        },
    },
    "ReplayService": {
        "keep_final_obs=False": {
            "host": "an episode that was cut cannot be valued without what it ended with; make the "
            "coordinator with collect=CollectOptions(keep_final_obs=True)"
        },
        "coordinator": {
            "agents": "a service keeps the rollouts of one group; add those of each group to a "
            "rollouts.replay.ReplayBuffer of its own",
            "device": "a service keeps arrays of the host; use a DeviceReplay in the learner",
        },
    },
}


# Features that an engine may lack whatever the keywords, with the end of the sentence that refuses
# each: members of a `PoolFace`, and ways to call them.
FEATURES: Mapping[str, str] = {
    "async": "step some environments while others are waited for: leave out batch_size, env_id, "
    "min_envs and max_envs",
    "out": "write into arrays of the caller's: leave out out",
    "collect": "compute a policy: collect with engine='torch'",
    "states": "save environments: get_state and set_state need a pool that make_vec makes",
    "options": "tell options: make_vec makes pools that do",
    "model": "change models of MuJoCo's: make_vec makes pools that do, of ids that are on MuJoCo",
    "masks": "return masks of actions outside of infos: read info['action_mask']",
    "statistics": "normalise: give make_vec normalize_observation or normalize_reward",
    "render": "draw: make one without device, which takes a kernel's states by set_state",
    "rollout": "step many times in one launch: call step, or collect with a policy",
    "graph": "have its steps recorded in a graph: leave cuda_graph out",
    "agent_rows": "show agents as rows: leave device out, or collect them by group",
    "python": "call environments by name: those of from_env_fns and from_parallel_env_fns can",
    "joins": "have agents that come while an episode runs",
    "recipe": "be made again from ids: make_vec makes pools that can",
    "xla": "be stepped by functions that JAX compiles: make_vec makes pools that are",
}


def cannot(engine: str, feature: str) -> str:
    """Returns the sentence that refuses a key of FEATURES; `engine` is the engine's name."""
    return f"{engine} cannot {FEATURES[feature]}"


def why_not(what: str, keyword: str, cell: Cell) -> str:
    """Returns the sentence that refuses a keyword in a cell; "" where it works.

    Args:
      what: A key of REFUSED.
      keyword: Its keyword, such as "prefetch", or "engine='native'" if only a value is refused.
      cell: The kind of environments.
    """
    reasons = REFUSED[what].get(keyword, {})
    for place in cell.places:
        if place in reasons:
            return f"{keyword} cannot be had of {PLACES[place]}: {reasons[place]}"
    return ""


def check(what: str, asked: Iterable[str], cell: Cell) -> None:
    """Raises SpecError where a requested keyword is refused for a kind of environments."""
    for keyword in asked:
        if sentence := why_not(what, keyword, cell):
            raise SpecError(sentence)


def asked_of(options: Any, prefix: str = "") -> list[str]:
    """Returns the fields of a dataclass that differ from their defaults, as keys of REFUSED.

    Args:
      options: The dataclass.
      prefix: Prefix of the keys, such as "collect.".
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
