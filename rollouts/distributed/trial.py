# SPDX-License-Identifier: Apache-2.0
"""Tries the policy once in the driver, which tells what is wrong before any worker starts."""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np

from rollouts.distributed.worker import MakePolicy, PolicySpec, WorkerConfig
from rollouts.errors import EngineError, RolloutsError, SpecError
from rollouts.policy_calls import make_policy_calls
from rollouts.policy_checks import check_action


def try_policy(make_policy: MakePolicy, config: WorkerConfig) -> None:
    """Makes worker 0's policy in this process; acts on and values one batch of empty observations.

    The random numbers that this process draws later are the same as without. Nothing is tried where
    the environment's engine is missing here, or a library that the policy imports: the workers may
    have it.

    Args:
      make_policy: See `RolloutCoordinator`.
      config: Of worker 0, whose environments are those of `make_vec`.
    Raises:
      SpecError: the policy raised, or returned a wrong shape or an action that there is not.
    """
    import rollouts

    with contextlib.suppress(EngineError, ImportError), _same_random_numbers_later():
        env = rollouts.env_spec(config.env_id, **config.env_options)
        spec = PolicySpec(
            env_id=config.env_id,
            single_observation_space=env.single_observation_space,
            single_action_space=env.single_action_space,
            num_envs=config.num_envs,
            env_id_offset=0,
            worker_id=0,
            incarnation=0,
            seed=config.policy_seed,
        )
        try:
            _act_and_value(make_policy(spec), spec, config.batch_size or config.num_envs)
        except (ImportError, RolloutsError):
            raise
        except Exception as error:
            raise SpecError(
                f"the policy failed when it was tried on {env.single_observation_space} in this "
                f"process, before any worker was started: {type(error).__name__}: {error}"
            ) from error


def _act_and_value(policy: Any, spec: PolicySpec, num_rows: int) -> None:
    """Calls the policy as a Collector does."""
    obs = _empty_observations(spec.single_observation_space, num_rows)
    calls = make_policy_calls(policy, num_envs=spec.num_envs, rollout_length=1)
    rows = np.arange(num_rows, dtype=np.intp)
    takes_all = num_rows == spec.num_envs
    if takes_all:
        output = calls.act(obs, None, 0)
    else:
        output = calls.act(obs, rows, np.zeros(num_rows, np.intp))
    check_action(np.asarray(output.action), spec.single_action_space)
    if takes_all:
        calls.last_value(obs, None, None)
    else:
        calls.final_value(obs, rows)


def _empty_observations(space: gymnasium.Space[Any], num_rows: int) -> np.ndarray[Any, Any]:
    """Returns (B, ...) zeros, or the lowest of a space that counts from elsewhere; read-only."""
    obs = np.zeros((num_rows, *(space.shape or ())), space.dtype)
    obs += getattr(space, "start", 0)
    obs.flags.writeable = False
    return obs


@contextlib.contextmanager
def _same_random_numbers_later() -> Iterator[None]:
    """Puts the generators of this process back to where they were."""
    torch = sys.modules.get("torch")
    python_state, numpy_state = random.getstate(), np.random.get_state()  # noqa: NPY002
    torch_state = None if torch is None else torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)  # noqa: NPY002
        if torch is not None:
            torch.set_rng_state(torch_state)
