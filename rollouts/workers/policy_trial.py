# SPDX-License-Identifier: Apache-2.0
"""Tries the policy once in the driver, so that mistakes show before any worker starts."""

from __future__ import annotations

import contextlib
import logging
import os
import random
import re
import sys
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np

from rollouts.collecting.policy_calls import make_policy_calls
from rollouts.errors import EngineError, SpecError
from rollouts.policies.output_checks import check_action
from rollouts.workers.agent_policies import groups_of, policy_specs
from rollouts.workers.weight_transport import ONLY, Shapes
from rollouts.workers.worker_config import MakePolicy, PolicySpec, WorkerConfig

_log = logging.getLogger(__name__)

# words in torch's errors where inputs do not fit a network
_ABOUT_SHAPES = re.compile(r"shape|size|dimension|channel|dtype|scalar type", re.IGNORECASE)

_GPU_FILES = (
    "/dev/nvidiactl",
    "/dev/kfd",
    "/dev/dxg",
)  # device files of NVIDIA, AMD, and either under WSL


def try_policy(make_policy: MakePolicy, config: WorkerConfig) -> dict[str, Shapes]:
    """Makes worker 0's policy in this process; acts on and values one batch of empty observations.

    The random numbers that this process draws later do not change. Only a clear mistake is refused;
    any other error is a warning in the log, as it may not occur in the workers, which have the
    first weights before they act. Nothing is tried where the environment's engine is missing
    here, or where the policy could open a GPU that this process has not used yet: the GPU's context
    would take memory that this process never gives back.

    Args:
      make_policy: See `RolloutCoordinator`.
      config: The config of worker 0, whose environments are those of `make_vec`.
    Returns:
      policy -> the shapes of its weights, see `WeightStore.shapes`, for the policies that were
      tried and have a method `weight_shapes`.
    Raises:
      SpecError: the policy's network does not fit the observations, or it returned a wrong shape or
        an action outside of the action space.
    """
    import rollouts

    # the engine may be missing here and present where the workers are
    try:
        env = rollouts.env_spec(config.id, **config.env_options)
    except EngineError:
        return {}
    if _may_open_a_gpu():
        _log.info("the policy is not tried before workers start: it could open a GPU here")
        return {}
    groups = groups_of(env)
    found = {}
    for name, spec in policy_specs(config, groups).items():
        # all rows at once, except in asynchronous pools, whose environments have one agent
        num_envs = config.num_envs * getattr(groups[spec.group or ONLY], "num_agents", 1)
        found[name] = _try_on(make_policy, spec, num_envs, config.collect.batch_size or num_envs)
    return {name: shapes for name, shapes in found.items() if shapes is not None}


def _try_on(
    make_policy: MakePolicy, spec: PolicySpec, num_envs: int, num_rows: int
) -> Shapes | None:
    what = "the policy" if spec.policy is None else f"policy {spec.policy!r}"
    tried = f"{what} failed when it was tried on {spec.single_observation_space} in this process"
    try:
        with _same_random_numbers_later():
            policy = make_policy(spec)
            _act_and_value(policy, spec, num_envs, num_rows)
            return _weight_shapes(policy)
    except SpecError:
        raise
    except Exception as error:
        if isinstance(error, RuntimeError) and _ABOUT_SHAPES.search(str(error)):
            raise SpecError(
                f"{tried}, before any worker was started: {type(error).__name__}: {error}"
            ) from error
        _log.warning("%s; workers are started all the same", tried, exc_info=error)
    return None


def _act_and_value(policy: Any, spec: PolicySpec, num_envs: int, num_rows: int) -> None:
    """Calls the policy as a Collector does."""
    if not hasattr(policy, "act") and not hasattr(policy, "act_rows"):
        raise SpecError(
            f"make_policy returned {policy!r}, expected a policy: an object with the methods of "
            "rollouts.policy.Policy"
        )
    obs = _empty_observations(spec.single_observation_space, num_rows)
    calls = make_policy_calls(policy, num_envs=num_envs, rollout_length=1)
    rows = np.arange(num_rows, dtype=np.intp)
    takes_all = num_rows == num_envs
    if takes_all:
        output = calls.act(obs, None, 0)
    else:
        output = calls.act(obs, rows, np.zeros(num_rows, np.intp))
    check_action(np.asarray(output.action), spec.single_action_space)
    if takes_all:
        calls.last_value(obs, None, None)
    else:
        calls.final_value(obs, rows)


def _weight_shapes(policy: Any) -> Shapes | None:
    """Returns the shapes of the policy's weights; None if it has no `weight_shapes` for what its
    `load_weights` takes."""
    for each in type(policy).__mro__:
        # a subclass that only inherits the method may have a load_weights that takes other arrays
        if "weight_shapes" in vars(each):
            shapes: Shapes = policy.weight_shapes()
            return shapes
        if "load_weights" in vars(each):
            return None
    return None


def _empty_observations(space: gymnasium.Space[Any], num_rows: int) -> np.ndarray[Any, Any]:
    """Returns (B, ...) zeros, or the lowest values of a space with a `start`; read-only."""
    obs = np.zeros((num_rows, *(space.shape or ())), space.dtype)
    obs += getattr(space, "start", 0)
    obs.flags.writeable = False
    return obs


def _may_open_a_gpu() -> bool:
    """Tells whether there is a GPU that this process does not use yet; opens none."""
    torch = sys.modules.get("torch")
    if torch is not None:
        # torch counts without CUDA's runtime if it can: a process with the runtime cannot fork
        return not torch.cuda.is_initialized() and torch.cuda.device_count() > 0
    is_hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    return not is_hidden and any(os.path.exists(path) for path in _GPU_FILES)


@contextlib.contextmanager
def _same_random_numbers_later() -> Iterator[None]:
    """Puts the generators of this process back to where they were."""
    torch = sys.modules.get("torch")
    python_state, numpy_state = random.getstate(), np.random.get_state()  # noqa: NPY002
    torch_state = None if torch is None else torch.get_rng_state()
    has_cuda = torch is not None and torch.cuda.is_initialized()
    cuda_states = torch.cuda.get_rng_state_all() if torch is not None and has_cuda else []
    try:
        yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)  # noqa: NPY002
        if torch is not None:
            torch.set_rng_state(torch_state)
            if has_cuda:
                torch.cuda.set_rng_state_all(cuda_states)
        elif (imported := sys.modules.get("torch")) is not None:
            # the policy imported torch, so there is no state to put back: it gets a new seed
            imported.default_generator.seed()
