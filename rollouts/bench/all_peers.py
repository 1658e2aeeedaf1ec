# SPDX-License-Identifier: Apache-2.0
"""All peers by name; nothing of their libraries is imported before they are opened."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path

from rollouts.bench.checkout import WHERE_TO_GET_IT, from_checkout
from rollouts.bench.own_pools import OneEngine, PlainLoop, SameStep, Stepper
from rollouts.bench.peer import Measure, Peer, later
from rollouts.errors import SpecError


def _with_engine(engine: str, module: str = "", extra: str = "") -> Peer:
    """Our own pool with another engine, which may need a module that an extra installs."""
    return Peer(
        name=f"rollouts-{engine}",
        step=functools.partial(OneEngine, engine),
        collect=functools.partial(
            later("rollouts.bench.collect_streams", "WithEngine"), engine=engine
        ),
        module=module,
        install=f"pip install 'rollouts[{extra}]'" if extra else "",
    )


OWN = (
    Peer(name="rollouts-same-step", step=SameStep, agents="either"),
    Peer(name="loop", step=PlainLoop),
    _with_engine("native"),
    _with_engine("ale", "ale_py", "atari"),
    _with_engine("lanes", "mujoco", "mujoco"),
    _with_engine("mujoco", "mujoco", "mujoco"),
)


def peers() -> Mapping[str, Peer]:
    """Every peer by its name: our own, and in a checkout those of other libraries."""
    others = from_checkout("others")
    return {peer.name: peer for peer in (*OWN, *(others.OTHERS if others else ()))}


def names(measure: Measure) -> list[str]:
    """Names of the peers that take part in a measure."""
    return [peer.name for peer in peers().values() if peer.measures(measure)]


def find(name: str, measure: Measure) -> Peer:
    """The peer of that name. Raises SpecError where it does not take part in the measure."""
    peer = peers().get(name)
    if peer is None or not peer.measures(measure):
        hint = "" if from_checkout("others") else f"; {WHERE_TO_GET_IT}"
        known = f"peer is {name!r}" if peer is None else f"peer {name!r} has no measure {measure!r}"
        raise SpecError(f"{known}, expected one of {names(measure)}{hint}")
    return peer


def stepper(name: str, python: Path | None = None) -> Stepper:
    """The maker of that peer's environments.

    Args:
      name: One of `names("step")`.
      python: The interpreter of a peer that has its own; None: the one that
        `make peers` makes.

    Raises:
      SpecError: There is no such peer.
      EngineError: It has no interpreter.
    """
    made: Stepper = find(name, "step").open("step", python=python)
    return made
