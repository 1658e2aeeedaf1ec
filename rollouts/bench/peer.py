# SPDX-License-Identifier: Apache-2.0
"""Peer: a contestant by its name, with all that it can be measured by and all that it needs."""

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
# policies of `bench collect`: tanh layers, a network for images, actions drawn before
POLICIES = frozenset({"layers", "cnn", "random"})
NETWORKS = POLICIES - {"random"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A contestant that is measured next to ours.

    The fields named as a measure open the contestant for it, and import its library only then;
    None: it does not take part. One with an interpreter of its own gets its path as `python`.

    Attributes:
      name: As `--peer` takes it.
      step: Makes what steps environments.
      collect: Takes a `Task` and a number of environments; makes a stream of rollouts.
      replay: Takes a `Workload`; makes a buffer of rollouts.
      add_step: Takes a number of environments; makes a buffer of single steps.
      hindsight: The same of episodes with goals, whose samples get other goals.
      agents: Whether it steps environments with one agent, with several, or with either.
      policies: The kinds of policy that it collects with, of `POLICIES`.
      needs_ray: Whether its collecting needs a Ray that this process is connected to.
      module: Module that it imports, or path of its own interpreter; "" where it needs none.
      install: What to type where that is missing.
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
        """Tells if the peer takes part in a measure."""
        return getattr(self, measure) is not None

    def has_own_interpreter(self) -> bool:
        """True for a peer that runs in another Python, since its pins clash with ours."""
        return "/" in self.module

    def is_installed(self) -> bool:
        """Tells if the peer's module, or its interpreter, is installed; imports nothing of it."""
        if self.has_own_interpreter():
            return os.access(self.module, os.X_OK)
        try:
            return not self.module or importlib.util.find_spec(self.module) is not None
        except ModuleNotFoundError:  # the package that holds it is missing
            return False

    def interpreter(self, given: Path | None) -> Path:
        """The Python that has its library.

        Args:
          given: The one that the user named; None: that of `make peers`.

        Raises:
          EngineError: It is not there.
        """
        # not resolved: the link in a virtual environment is what finds its packages
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
          SpecError: It cannot be measured so.
          EngineError: Something that it needs is not installed.
        """
        own = {"python": self.interpreter(python)} if self.has_own_interpreter() else {}
        return getattr(self, measure)(*given, **own)

    def check_agents(self, spec: EnvSpec) -> None:
        """Raises SpecError where it does not step environments with as many agents."""
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
