# SPDX-License-Identifier: Apache-2.0
"""Gymnasium's Python environments in `from_env_fns`, as a contestant of `rollouts bench`."""

from __future__ import annotations

from comparisons.stepping.vector_libraries import gymnasium_maker
from rollouts.bench.measurement import Settings
from rollouts.bench.own_pools import OpenEnv, Rollouts
from rollouts.envs.hosted import from_env_fns
from rollouts.specs import EnvSpec


class Hosted(Rollouts):
    """`from_env_fns` over Gymnasium's Python environments, as another way to vectorise them."""

    name = "rollouts-hosted"

    def make(self, settings: Settings, spec: EnvSpec) -> OpenEnv:
        """Makes them in at most num_threads processes; for one thread in this process.

        Raises:
          SpecError: Gymnasium does not have the environment, or not with these options.
          EngineError: A library it needs is missing.
        """
        make_one, options, differs = gymnasium_maker(settings, spec)
        num_processes = min(settings.num_threads, settings.num_envs)
        if num_processes == 1 and not settings.is_async:
            num_processes = 0
        where = f"in {num_processes} of our processes" if num_processes else "in this process"
        env = from_env_fns(
            [make_one] * settings.num_envs,
            num_processes=num_processes,
            batch_size=settings.batch_size,
            seed=settings.seed,
            copy=False,
        )
        return OpenEnv(
            self.name,
            self.version(),
            env,
            num_envs=settings.num_envs,
            batch_size=settings.batch_size,
            num_threads=max(1, num_processes),
            start=env.async_reset if settings.is_async else env.reset,
            close=env.close,
            options=options,
            notes=(
                f"Gymnasium's Python environments {where}.",
                *differs,
            ),
        )
