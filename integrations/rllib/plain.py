# SPDX-License-Identifier: Apache-2.0
"""Finds out whether a part of the config has to process every single step of every episode."""

from __future__ import annotations

from typing import Any

from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.connectors.env_to_module import (
    AddObservationsFromEpisodesToBatch,
    AddStatesFromEpisodesToBatch,
    AddTimeDimToBatchAndZeroPad,
    AgentToModuleMapping,
    BatchIndividualItems,
    NumpyToTensor,
)
from ray.rllib.connectors.module_to_env import (
    GetActions,
    ListifyDataForVectorEnv,
    ModuleToAgentUnmapping,
    NormalizeAndClipActions,
    RemoveSingleTsTimeRankFromBatch,
    TensorToNumpy,
    UnBatchToIndividualItems,
)
from ray.rllib.utils import force_list

from rollouts.errors import SpecError

_PER_STEP = ("on_episode_created", "on_episode_start", "on_episode_step", "on_episode_end")

# connectors whose work the bulk loop does in whole batches; any other connector has to be called
_ENV_TO_MODULE = [
    AddObservationsFromEpisodesToBatch,
    AddTimeDimToBatchAndZeroPad,
    AddStatesFromEpisodesToBatch,
    AgentToModuleMapping,
    BatchIndividualItems,
    NumpyToTensor,
]
_MODULE_TO_ENV = [
    GetActions,
    TensorToNumpy,
    UnBatchToIndividualItems,
    ModuleToAgentUnmapping,
    RemoveSingleTsTimeRankFromBatch,
    NormalizeAndClipActions,
    ListifyDataForVectorEnv,
]
# connectors that RLlib adds where the config is multi-agent
_OF_SEVERAL_AGENTS = (AgentToModuleMapping, ModuleToAgentUnmapping)


def config_reason(runner: Any) -> str:
    """The part of a runner's config or callbacks that needs single steps; "" for none."""
    config = runner.config
    for name in _PER_STEP:
        if force_list(getattr(config, f"callbacks_{name}")):
            return f"the config has the callback {name}"
        for each in runner._callbacks:
            if getattr(type(each), name) is not getattr(RLlibCallback, name):
                return f"{type(each).__name__} has the callback {name}"
    if _has_action_masks(runner):
        return "observations have action masks"
    if not config.episodes_to_numpy:
        return "episodes_to_numpy is False"
    if config._env_to_module_connector is not None:
        return "the config has an env_to_module_connector"
    if config._module_to_env_connector is not None:
        return "the config has a module_to_env_connector"
    return ""


def refuse_output(config: Any) -> None:
    """Raises SpecError where a runner that cannot write samples is asked to record them."""
    if not config.output:
        return
    given = f"config.offline_data(output={config.output!r})"
    if config.is_multi_agent:
        raise SpecError(f"{given} with several agents, which RLlib cannot record: leave output out")
    raise SpecError(
        f"{given} with a runner that writes nothing: use "
        "env_runner_cls=rllib.RolloutsOfflineEnvRunner"
    )


def changes_obs(runner: Any) -> bool:
    """Tells if connectors or masks change the observations between the pool and the module."""
    return runner.config._env_to_module_connector is not None or _has_action_masks(runner)


def _has_action_masks(runner: Any) -> bool:
    creator = runner._creator
    return creator is not None and creator.has_action_masks(runner.config.env_config)


def connector_reason(runner: Any) -> str:
    """The part of a runner's pipelines that is not RLlib's default; "" for none."""
    has_agents = runner.config.is_multi_agent
    for name, pieces_of_all in (
        ("_env_to_module", _ENV_TO_MODULE),
        ("_module_to_env", _MODULE_TO_ENV),
    ):
        default = [each for each in pieces_of_all if has_agents or each not in _OF_SEVERAL_AGENTS]
        pipeline = getattr(runner, name, None)
        if pipeline is None:
            continue
        pieces = [type(piece) for piece in pipeline.connectors]
        if pieces != default:
            names = ", ".join(piece.__name__ for piece in pieces)
            return f"the pipeline {name.removeprefix('_')} is [{names}], not RLlib's default"
    return ""
