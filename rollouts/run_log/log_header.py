# SPDX-License-Identifier: Apache-2.0
"""`LogHeader`: the facts about a run at the beginning of its log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from rollouts.errors import SpecError
from rollouts.run_log.record_options import RunLog
from rollouts.support.plain_values import plain_option
from rollouts.support.same_release import release

FORMAT = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class LogHeader:
    """Facts that each part of a log begins with.

    Attributes:
      format: Version of the files.
      library, digest: Release of this package, and a digest of its source texts.
      worker_id, incarnation: Worker that wrote the log, and its incarnation: see `FragmentInfo`.
      ids: Ids of the environments, one for all or one for each; empty: Python functions made them.
      env_options: Options of the environments, as they were given.
      max_episode_steps: Time limit in place of the ids' own.
      time_limit: Time limit of the first id; None: there is none, or it is not known.
      why_not_made: Why the environments cannot be made from the header alone; "": they can.
      num_envs, env_id_offset, rollout_length, keep_final_obs: See `Collector`.
      groups: group -> agents in it; empty: one agent.
      has_states: Whether the environments' states are saved.
      seed: Seed of environments in Python, which are made again from their first reset.
    """

    format: int
    library: str
    digest: str
    worker_id: int
    incarnation: int
    ids: list[str]
    env_options: dict[str, Any]
    max_episode_steps: int | None
    time_limit: int | None
    why_not_made: str
    num_envs: int
    env_id_offset: int
    rollout_length: int
    keep_final_obs: bool
    groups: dict[str, int] = field(default_factory=dict)
    has_states: bool = True
    seed: int | None = None

    @classmethod
    def of(cls, env: Any, log: RunLog, rollout_length: int, *, keep_final_obs: bool) -> LogHeader:
        """Describes environments that are recorded."""
        digest, words = release()
        made = _recipe(env)
        groups = getattr(env, "groups", None) or {}
        return cls(
            format=FORMAT,
            library=words,
            digest=digest,
            worker_id=log.worker_id,
            incarnation=log.incarnation,
            **made,
            num_envs=int(env.num_envs),
            env_id_offset=int(env.env_id_offset),
            rollout_length=rollout_length,
            keep_final_obs=keep_final_obs,
            groups={name: group.num_agents for name, group in groups.items()},
            has_states="states" in _can(env),
            seed=_seed(env),
        )

    @classmethod
    def read(cls, facts: Mapping[str, Any], where: str) -> LogHeader:
        """Returns the header from the facts of a part.

        Raises:
          SpecError: They are of another format.
        """
        if facts.get("format") != FORMAT:
            raise SpecError(
                f"{where} is a log of format {facts.get('format')!r}, expected {FORMAT}: read it "
                "with the release of rollouts that wrote it"
            )
        missing = [one.name for one in fields(cls) if one.name not in facts]
        if missing:
            raise SpecError(f"{where} says nothing of {missing[0]}: it is no log of rollouts")
        return cls(**{one.name: facts[one.name] for one in fields(cls)})

    def as_facts(self) -> dict[str, Any]:
        """Returns plain values, from which `read` makes the header again."""
        return asdict(self)

    @property
    def other_release(self) -> str:
        """The sentence about another release's log; "" where this release wrote it."""
        digest, words = release()
        if digest == self.digest:
            return ""
        return (
            f"this log was written by {self.library}, and this is {words}: another release may "
            "step environments differently"
        )


def _can(env: Any) -> frozenset[str]:
    return getattr(getattr(env, "engine", None), "can", frozenset())


def _seed(env: Any) -> int | None:
    """Returns the seed of environments in Python.

    Raises:
      SpecError: They have none, so that nothing could make them again.
    """
    engine: Any = getattr(env, "engine", None)
    if "states" in _can(env) or not hasattr(engine, "seed"):
        return None
    seed: int | None = engine.seed
    if seed is None:
        raise SpecError(
            f"record of {engine.name} without a seed, from whose first reset they are made again: "
            "give from_env_fns(..., seed=0), or leave record out"
        )
    return seed


def _recipe(env: Any) -> dict[str, Any]:
    """Returns ids and options of environments, or why they cannot be recorded."""
    nothing: dict[str, Any] = {
        "ids": [],
        "env_options": {},
        "max_episode_steps": None,
        "time_limit": None,
    }
    if "recipe" not in _can(env):
        return {**nothing, "why_not_made": "Python functions made the environments"}
    ids, _, arguments = env.engine.recipe
    ids = [ids] if isinstance(ids, str) else list(ids)
    try:
        ids = [str.__str__(one) for one in plain_option("ids", ids)]
        options = plain_option("env_options", arguments["env_options"])
    except (SpecError, TypeError) as error:
        return {**nothing, "why_not_made": f"options are no plain values ({error})"}
    return {
        "ids": ids,
        "env_options": options,
        "max_episode_steps": arguments["max_episode_steps"],
        "time_limit": env.engine.env_spec.max_episode_steps,
        "why_not_made": "",
    }
