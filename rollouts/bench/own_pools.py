# SPDX-License-Identifier: Apache-2.0
"""Pools of this library as contestants of `rollouts bench`, and the contestants' interface."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from rollouts import _native
from rollouts.bench.measurement import Settings
from rollouts.envs.make import make_vec
from rollouts.envs.registry import env_spec
from rollouts.errors import SpecError
from rollouts.specs import EnvSpec


@dataclass(frozen=True, slots=True)
class OpenEnv:
    """An environment of some library, ready to be driven.

    Attributes:
      library, version: The library that steps, and its version.
      env: Has `step(actions)` or, where batch_size < num_envs, `recv()` and
        `send(actions, env_id)`, with the results of `rollouts.VectorEnv`.
      num_envs, batch_size, num_threads: The values in use, which may differ from those asked for.
      start: Begins episodes; in asynchronous mode it leaves all of them in flight.
      close: Frees it.
      options: Options of the environment, by the library's names.
      notes: Differences from ours, one sentence each.
      translate: Turns a batch of our actions into one of its own; None: they are the same.
      run: Makes a number of calls by itself, with its own actions, and returns the seconds they
        took; None: `env` is called. Raises NotMeasured where it fails.
    """

    library: str
    version: str
    env: Any
    num_envs: int
    batch_size: int
    num_threads: int
    start: Callable[[], object]
    close: Callable[[], object]
    options: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    translate: Callable[[Any], Any] | None = None
    run: Callable[[int], float] | None = None

    @property
    def is_async(self) -> bool:
        """Tells if recv and send drive the contestant."""
        return self.batch_size < self.num_envs

    def check_is_called(self, what: str) -> None:
        """Raises SpecError for a contestant that makes its own calls, if `what` times calls."""
        if self.run is not None:
            raise SpecError(
                f"peer {self.library!r} steps by itself, and {what} is measured around each call "
                "in this process: leave this peer out"
            )


class Stepper(Protocol):
    """A kind of contestant, which makes its environments."""

    name: str

    def version(self) -> str:
        """The installed version. Raises EngineError, saying what to install, if missing."""
        ...

    def make(self, settings: Settings, spec: EnvSpec) -> OpenEnv:
        """Makes the environment that `spec` describes, with next-step autoreset.

        Raises:
          SpecError: The library does not have it, or not with these options.
          EngineError: The library is missing.
        """
        ...


class Rollouts:
    """This library, through its public Python API, with next-step autoreset."""

    name = "rollouts"
    autoreset_mode = "next_step"

    def version(self) -> str:
        import rollouts

        return rollouts.__version__

    def make(self, settings: Settings, spec: EnvSpec) -> OpenEnv:
        options: dict[str, Any] = {**settings.env_options}
        env = make_vec(
            spec.id,
            settings.num_envs,
            batch_size=settings.batch_size,
            num_threads=settings.num_threads,
            seed=settings.seed,
            autoreset_mode=self.autoreset_mode,
            max_episode_steps=settings.max_episode_steps,
            **options,
        )
        return OpenEnv(
            self.name,
            self.version(),
            env,
            num_envs=env.num_envs,
            batch_size=env.batch_size,
            num_threads=env.num_threads,
            start=env.async_reset if settings.is_async else env.reset,
            close=env.close,
            options=spec.options,
        )


class SameStep(Rollouts):
    """This library again, with same-step autoreset: the cost of final_obs and final_info."""

    name = "rollouts-same-step"
    autoreset_mode = "same_step"


class PlainLoop:
    """A C++ loop over our own light environments, one thread and no pool: the cost of steps."""

    name = "loop"

    def version(self) -> str:
        return Rollouts().version()

    def make(self, settings: Settings, spec: EnvSpec) -> OpenEnv:
        notes = ["One thread."]
        notes += notes_without_recv(settings)
        limit, seed = spec.max_episode_steps or 0, settings.seed % 2**64
        env = _native.PlainLoop(spec.id, spec.options, settings.num_envs, limit, seed)
        return OpenEnv(
            self.name,
            self.version(),
            env,
            num_envs=settings.num_envs,
            batch_size=settings.num_envs,
            num_threads=1,
            start=env.reset,
            close=lambda: None,
            options=spec.options,
            notes=tuple(notes),
        )


class OtherId(Rollouts):
    """Environments of another id of ours whose spaces equal those of the measured id."""

    def __init__(self, id: str) -> None:
        """`id`: any id of `make_vec`."""
        self.name = id

    def make(self, settings: Settings, spec: EnvSpec) -> OpenEnv:
        """Makes them with the same settings. Raises SpecError where the spaces differ."""
        own = env_spec(
            self.name, max_episode_steps=settings.max_episode_steps, **dict(settings.env_options)
        )
        for space in ("single_observation_space", "single_action_space"):
            ours, theirs = getattr(own, space), getattr(spec, space)
            if ours != theirs:
                raise SpecError(
                    f"{self.name} cannot be measured beside {spec.id}: its {space} is {ours}, not "
                    f"{theirs}"
                )
        return super().make(settings, dataclasses.replace(own, id=self.name))


class OneEngine(Rollouts):
    """This library again, with the option `engine` set, for ids that have several engines."""

    def __init__(self, engine: str) -> None:
        """Takes the engine: for Atari "native" or "ale", for MuJoCo "lanes" or "mujoco"."""
        self.name = f"rollouts-{engine}"
        self._engine = engine

    def make(self, settings: Settings, spec: EnvSpec) -> OpenEnv:
        """Makes it with the same settings. Raises SpecError for ids without this engine."""
        return super().make(*self.instead(settings, spec))

    def instead(self, settings: Settings, spec: EnvSpec) -> tuple[Settings, EnvSpec]:
        """Returns the settings and the spec with this engine; SpecError where there is none."""
        if "engine" not in spec.options:
            raise SpecError(
                f"peer {self.name!r} has ids with several engines only, and {spec.id!r} has one: "
                "measure an 'ALE/...-v5' id, say, or leave this peer out"
            )
        options = {**settings.env_options, "engine": self._engine}
        try:
            own = env_spec(spec.id, max_episode_steps=settings.max_episode_steps, **options)
        except SpecError as error:
            raise SpecError(
                f"peer {self.name!r} cannot make {spec.id!r}: {error}. Leave this peer out"
            ) from error
        return dataclasses.replace(settings, env_options=options), own


def notes_without_recv(settings: Settings) -> list[str]:
    """Notes on a library that always steps all its environments."""
    if not settings.is_async:
        return []
    return ["It has no recv and send: `step` of all environments was measured."]
