# SPDX-License-Identifier: Apache-2.0
"""Peer: a contestant with its name, the measures that it takes part in, and what it needs."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rollouts.errors import EngineError, SpecError
from rollouts.specs import EnvSpec

if TYPE_CHECKING:
    from rollouts.bench.collect_task import Stream
    from rollouts.bench.own_pools import Stepper
    from rollouts.bench.replay_own import Candidate, StepBuffer

# `rollouts bench`, `bench collect`, `bench replay`, and its workloads add_step and hindsight
Measure = Literal["step", "collect", "replay", "add_step", "hindsight"]
# policies of `bench collect`: tanh layers, a network for images, actions that were drawn before
POLICIES = frozenset({"layers", "cnn", "random"})
NETWORKS = POLICIES - {"random"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A contestant that is measured beside ours.

    A field with the name of a measure opens the contestant for that measure, and only then imports
    its library; None: it does not take part. A contestant with an interpreter of its own gets the
    interpreter's path as `python`.

    Attributes:
      name: Its name in `--peer`.
      step: Makes a `Stepper`.
      collect: Takes a `Task` and a number of environments; makes a stream of rollouts.
      replay: Takes a `Workload`; makes a buffer of rollouts.
      add_step: Takes a number of environments; makes a buffer of single steps.
      hindsight: As add_step, for episodes with goals, whose samples get other goals.
      agents: Whether it steps environments with one agent, with several, or with either.
      policies: The kinds of policy that it can collect with, of `POLICIES`.
      needs_ray: Whether it collects in a Ray that this process is connected to.
      module: Module that it imports, or path of its own interpreter; "": it needs none.
      install: The command that installs what is missing.
      distribution: Package whose version the tables of replay show.
    """

    name: str
    step: Callable[..., Stepper] | None = None
    collect: Callable[..., Stream] | None = None
    replay: Callable[..., Candidate] | None = None
    add_step: Callable[..., StepBuffer] | None = None
    hindsight: Callable[..., StepBuffer] | None = None
    agents: Literal["one", "several", "either"] = "one"
    policies: frozenset[str] = POLICIES
    needs_ray: bool = False
    module: str = ""
    install: str = ""
    distribution: str = "rollouts"

    def measures(self, measure: Measure) -> bool:
        """Returns whether the peer takes part in a measure."""
        return getattr(self, measure) is not None

    def has_own_interpreter(self) -> bool:
        """Tells if the peer runs in another Python, because its pinned packages clash with ours."""
        return "/" in self.module

    def is_installed(self) -> bool:
        """Returns whether the peer's module or interpreter is installed, without importing it."""
        if self.has_own_interpreter():
            return os.access(self.module, os.X_OK)
        try:
            return not self.module or importlib.util.find_spec(self.module) is not None
        except ModuleNotFoundError:  # the package that holds it is missing
            return False

    def interpreter(self, given: Path | None) -> Path:
        """The Python in which its library is installed.

        Args:
          given: The path that the user named; None: the one that `make peers` makes.

        Raises:
          EngineError: It does not exist.
        """
        # not resolved, because a virtual environment finds its packages by the link
        path = (given or Path(self.module)).absolute()
        if not (path.is_file() and os.access(path, os.X_OK)):
            raise EngineError(
                f"peer {self.name!r} runs in an interpreter of its own, and {path} is not one: run "
                "`make peers`, or name the python of an environment that has it by --peer-python"
            )
        return path

    def open(self, measure: Measure, *given: Any, python: Path | None = None) -> Any:
        """Opens it for a measure that it takes part in.

        Raises:
          SpecError: It cannot be measured with these arguments.
          EngineError: A package or program that it needs is not installed.
        """
        own = {"python": self.interpreter(python)} if self.has_own_interpreter() else {}
        return getattr(self, measure)(*given, **own)

    def check_agents(self, spec: EnvSpec) -> None:
        """Raises SpecError where the peer does not step environments with this number of agents."""
        needed = "several" if spec.groups else "one"
        if self.agents not in (needed, "either"):
            raise SpecError(
                f"peer {self.name!r} steps environments with {self.agents} agent"
                f"{'s' if self.agents == 'several' else ''} only, and {spec.id!r} has "
                f"{needed}: leave this peer out"
            )


def later(module: str, name: str) -> Callable[..., Any]:
    """A callable of a module that is imported when it is first called."""
    return functools.partial(_call, module, name)


def _call(module: str, name: str, *given: Any, **named: Any) -> Any:
    return getattr(importlib.import_module(module), name)(*given, **named)
