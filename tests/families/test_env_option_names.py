# SPDX-License-Identifier: Apache-2.0
"""Type checkers know every environment's options, and no others."""

from __future__ import annotations

import rollouts
from rollouts.envs.option_types import EnvOptions
from rollouts.envs.wrappers import NAMES as WRAPPERS
from rollouts.rendering.frame_options import NAMES, PREFIX


def test_type_checkers_know_the_options_that_environments_have() -> None:
    atari = "ALE/Pong-v5"  # one game for all
    ids = [one for one in rollouts.env_ids() if one == atari or not one.startswith("ALE/")]
    specs = [rollouts.env_spec(one) for one in ids]
    # tests of users' own may have run in this process
    ours = [spec for spec in specs if not spec.header.startswith("own/")]
    names = {name for spec in ours for name in spec.options}
    names |= {
        name.removesuffix("_min") + "_range"
        for name in names
        if name.endswith("_min") and name.removesuffix("_min") + "_max" in names
    }
    # a model of one's own is no id of the registry's
    names |= set(rollouts.env_spec("MuJoCo-v0", xml_file="hopper.xml").options)
    names |= {"model", "reward", "terminated"}
    names |= {prefix + name for prefix in ("", PREFIX) for name in NAMES}
    names |= set(WRAPPERS)
    assert EnvOptions.__annotations__.keys() == names
