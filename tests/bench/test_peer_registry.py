# SPDX-License-Identifier: Apache-2.0
"""The registry of peers: names, what each takes part in, and what it needs."""

from __future__ import annotations

import functools
import importlib
import subprocess
import sys

import pytest

import rollouts
from rollouts.bench import peers, stepper
from rollouts.bench.all_peers import find, names
from rollouts.bench.peer import Peer

MEASURES = ("step", "collect", "replay", "add_step", "hindsight")
OPENERS = [
    (name, measure, opener)
    for name, peer in peers().items()
    for measure in MEASURES
    if isinstance(opener := getattr(peer, measure), functools.partial)
]


def test_every_peer_takes_part_in_a_measure() -> None:
    assert len(peers()) > 25
    for peer in peers().values():
        assert any(peer.measures(measure) for measure in MEASURES), peer.name
        # what may be missing has a way to get it
        assert bool(peer.install) == bool(peer.module), peer.name


@pytest.mark.parametrize(("name", "measure", "opener"), OPENERS)
def test_what_opens_a_peer_exists(
    name: str, measure: str, opener: functools.partial[object]
) -> None:
    if len(opener.args) != 2:
        return  # it opens a class that is imported already
    module, attribute = map(str, opener.args)
    try:
        found = importlib.import_module(module)
    except rollouts.EngineError as error:
        pytest.skip(f"its library is not installed: {error}")
    assert callable(getattr(found, attribute))


def test_naming_peers_imports_none_of_their_libraries() -> None:
    heavy = ["envpool", "ale_py", "cv2", "torch", "ray", "torchrl", "tianshou", "mujoco"]
    code = (
        "import sys; from rollouts.bench import peers; peers(); "
        f"print([m for m in {heavy!r} if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_an_unknown_peer_is_refused_with_those_that_take_part() -> None:
    with pytest.raises(rollouts.SpecError, match=r"peer is 'envpol', expected one of .*'envpool'"):
        stepper("envpol")
    with pytest.raises(
        rollouts.SpecError, match=r"'envpool' has no measure 'replay', expected one of .*'reverb'"
    ):
        find("envpool", "replay")
    assert set(names("add_step")) == set(names("hindsight")) == {"sb3"}


@pytest.mark.parametrize(
    ("name", "env_id", "said"),
    [
        ("warpdrive", "CartPole-v1", "with several agents only, and 'CartPole-v1' has one"),
        ("envpool", "TagGridWorld-v0", "with one agent only, and 'TagGridWorld-v0' has several"),
    ],
)
def test_a_peer_of_other_environments_is_refused_before_anything_is_made(
    name: str, env_id: str, said: str
) -> None:
    with pytest.raises(rollouts.SpecError, match=said):
        find(name, "step").check_agents(rollouts.env_spec(env_id))
    find("rollouts-same-step", "step").check_agents(rollouts.env_spec(env_id))


def test_a_peer_whose_package_is_missing_is_not_installed() -> None:
    assert not Peer(name="absent", module="no_such_package.inside", install="x").is_installed()
    assert Peer(name="here", module="json.decoder", install="x").is_installed()
    assert Peer(name="ours").is_installed()
