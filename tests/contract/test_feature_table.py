# SPDX-License-Identifier: Apache-2.0
"""The table of what works where: each cell is made and tried, or raises the table's sentence."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

import rollouts
from rollouts import (
    CollectOptions,
    Collector,
    Inference,
    RolloutCoordinator,
    SpecError,
    TorchPolicy,
)
from rollouts.features import CELLS, REFUSED, WRAPPERS, Cell, why_not
from rollouts.replay import ReplayService
from rollouts.returns import Gae
from rollouts.workers.worker import build_collector
from rollouts.workers.worker_config import WorkerConfig

pytestmark = pytest.mark.system

NUM_ENVS, STEPS = 4, 12
LIMIT: dict[str, Any] = {"max_episode_steps": 5}
SAME_STEP: dict[str, Any] = {"seed": 1, "autoreset_mode": "same_step"}
# an id of each cell of `make_vec`, and what makes it one of that cell
IDS: dict[Cell, tuple[str, dict[str, Any]]] = {
    Cell("native"): ("Pendulum-v1", {}),
    Cell("native", True): ("simple_tag_v3", {}),
    Cell("kernel"): ("Pendulum-v1", {"device": "cpu-emulation"}),
    Cell("kernel", True): ("simple_tag_v3", {"device": "cpu-emulation"}),
    Cell("physics"): ("InvertedPendulum-v5", {"device": "cpu-emulation"}),
}
# a value for each keyword of `make_vec` that is not its default
ARGUMENTS: dict[str, Any] = {
    "batch_size": 2,
    "num_threads": 2,
    "seed": 3,
    "autoreset_mode": "disabled",
    "env_id_offset": 5,
    "max_episode_steps": 3,
    "on_env_error": "reset",
    "pin_threads": True,
    "render_mode": "rgb_array",
    "flatten_observation": False,
    "several ids": None,
    "from_pixels": True,
    "clip_action": True,
    "clip_reward": 1.0,
    "frame_stack": 2,
    "normalize_observation": True,
    "normalize_reward": True,
    "rescale_action": True,
    "time_aware": True,
}
# ids that have what a keyword is about
OTHER_IDS = {"flatten_observation": "MiniGrid-Empty-5x5-v0", "from_pixels": "InvertedPendulum-v5"}


class Walk:
    """Two walkers of PettingZoo's interface, who stay to the end."""

    possible_agents = ("walker_0", "walker_1")
    metadata: dict[str, Any] = {}  # noqa: RUF012 (PettingZoo declares it so)

    def __init__(self) -> None:
        self.agents = [*self.possible_agents]

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Box(-9, 9, (2,), np.float32)

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(3)

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        self.t, self.agents = 0, [*self.possible_agents]
        return self.seen(), {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, Any]:
        self.t += 1
        here, is_over = self.agents, self.t == 5
        reward = {agent: float(actions[agent]) for agent in here}
        obs = self.seen()
        self.agents = [] if is_over else here
        ends = dict.fromkeys(here, is_over)
        return obs, reward, dict.fromkeys(here, False), ends, {agent: {} for agent in here}

    def seen(self) -> dict[str, Any]:
        return {agent: np.full(2, self.t, np.float32) for agent in self.agents}

    def close(self) -> None:
        pass


class Net(nn.Module):
    """Actor and critic of any observation of numbers, or of a count."""

    def __init__(self, obs: spaces.Space[Any], actions: spaces.Space[Any]) -> None:
        super().__init__()
        is_count = isinstance(obs, spaces.Discrete)
        size = 7 if is_count else int(np.prod(obs.shape or ()))
        self.first = nn.Embedding(int(obs.n), 7) if is_count else nn.Flatten()  # type: ignore[attr-defined]
        self.is_box = isinstance(actions, spaces.Box)
        count = int(getattr(actions, "n", np.prod(actions.shape or ())))
        self.actor, self.critic = nn.Linear(size, count), nn.Linear(size, 1)
        self.log_std = nn.Parameter(torch.zeros(1))

    def forward(self, obs: Tensor) -> tuple[Tensor, ...]:
        hidden = self.first(obs)
        log_std = (self.log_std,) if self.is_box else ()
        return (self.actor(hidden), *log_std, self.critic(hidden))


def needs(cell: Cell) -> None:
    if cell.engine == "physics":
        pytest.importorskip("mujoco_warp")


def tried(cell: Cell, sentence: str, make: Callable[[], Any]) -> Any:
    """Returns what `make` does, or None where it raises the sentence that it should."""
    if not sentence:
        return make()
    with pytest.raises(SpecError, match=f"^{re.escape(sentence)}$"):
        make()
    return None


def test_every_keyword_is_tried() -> None:
    given = inspect.signature(rollouts.make_vec).parameters.values()
    named = {one.name for one in given if one.kind is one.KEYWORD_ONLY} - {"device"}
    assert {*ARGUMENTS} == named | {"several ids", "from_pixels", *WRAPPERS}
    given = inspect.signature(Collector).parameters.values()
    assert {one.name for one in given if one.kind is one.KEYWORD_ONLY} <= {*COLLECTOR}
    # two keywords together: tests/run_log/test_run_log_faults.py tries them
    pairs = {"record with batch_size"}
    assert {*REFUSED["Collector"]} <= {*COLLECTOR} | {*ENGINES} | pairs
    assert {*REFUSED["make_vec"]} <= {*ARGUMENTS}


@pytest.mark.parametrize("keyword", ARGUMENTS)
@pytest.mark.parametrize("cell", IDS, ids=str)
def test_make_vec_takes_each_keyword_or_says_why_not(cell: Cell, keyword: str) -> None:
    needs(cell)
    env_id, place = IDS[cell]
    sentence = why_not("make_vec", keyword, cell)
    if not sentence:
        env_id = OTHER_IDS.get(keyword, env_id)
    ids: Any = env_id
    arguments = {**place, keyword: ARGUMENTS[keyword]}
    if keyword == "several ids":
        ids = ["simple_speaker_listener_v4" if cell.has_agents else "CartPole-v1"]
        ids = [env_id] * (NUM_ENVS - 1) + (ids if sentence else [env_id])
        del arguments[keyword]

    def make() -> Any:
        try:
            return rollouts.make_vec(ids, NUM_ENVS, **arguments)
        except rollouts.EngineError as error:
            pytest.skip(str(error))

    env = tried(cell, sentence, make)
    if env is not None:
        env.reset()
        if keyword != "batch_size":
            env.step(env.action_space.sample())
        env.close()


def make_env(cell: Cell, keyword: str) -> Any:
    """Environments of a cell that have what a keyword of Collector is about, where it works."""
    asynchronous: dict[str, Any] = {"batch_size": 2} if keyword == "batch_size" else {}
    if cell == Cell("hosted"):
        env_id = "Taxi-v3" if keyword == "mask_actions" else "Pendulum-v1"
        make = lambda: gymnasium.make(env_id, **LIMIT)  # noqa: E731
        here: dict[str, Any] = {"num_processes": 2 if asynchronous else 0} | asynchronous
        return rollouts.from_env_fns([make] * NUM_ENVS, **here, **SAME_STEP)
    if cell == Cell("hosted", True):
        hosted: Any = [Walk] * NUM_ENVS
        here = {"num_processes": 2 if asynchronous else 0} | asynchronous
        return rollouts.from_parallel_env_fns(hosted, **here, **SAME_STEP)
    env_id, place = IDS[cell]
    if keyword == "mask_actions" and cell == Cell("native"):
        env_id = "Taxi-v3"
    make_vec: Any = rollouts.make_vec
    return make_vec(env_id, NUM_ENVS, **place, **asynchronous, **SAME_STEP, **LIMIT)


def policies_of(env: Any) -> Any:
    groups = getattr(env, "groups", None) or {"": env}
    torch.manual_seed(0)
    made = {
        name: TorchPolicy(
            Net(one.single_observation_space, one.single_action_space), one.single_action_space
        )
        for name, one in groups.items()
    }
    return made.get("", made)


def has_extras(*names: str) -> Callable[[Collector, Any], bool]:
    return lambda collector, batch: all(name in batch.extras for name in names)


# a value for each keyword of Collector, and what shows that it works
COLLECTOR: dict[str, tuple[Any, Callable[[Collector, Any], bool]]] = {
    "keep_final_obs": (True, lambda _, batch: len(batch.episodes().final_obs) > 0),
    "num_torch_threads": (1, lambda _, batch: True),
    "engine": ("torch", lambda collector, _: collector.engine == "torch"),
    "prefetch": (1, lambda collector, _: collector.engine == "native"),
    "outputs": (("entropy",), has_extras("entropy")),
    "returns": (Gae(gamma=0.9, gae_lambda=0.9), has_extras("advantage", "target")),
    "mask_actions": (True, has_extras("action_mask")),
    "cuda_graph": (True, lambda collector, _: True),
    "policy_dtype": ("bfloat16", lambda collector, _: collector.engine == "native"),
    "batch_size": (None, lambda collector, _: collector.env.batch_size == 2),
    "record": (None, lambda _, batch: True),
}
# values of which only one is refused
ENGINES = {"engine='native'": ("native", lambda collector, _: collector.engine == "native")}


@pytest.mark.parametrize("keyword", [*COLLECTOR, *ENGINES])
@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_a_collector_takes_each_keyword_or_says_why_not(
    cell: Cell, keyword: str, tmp_path: Path
) -> None:
    needs(cell)
    if keyword == "batch_size" and cell.engine in ("kernel", "physics"):
        pytest.skip("make_vec refuses it")
    value, works = {**COLLECTOR, **ENGINES}[keyword]
    value = tmp_path if keyword == "record" else value
    name = keyword.partition("=")[0]
    options = {} if keyword == "batch_size" else {name: value}
    with make_env(cell, keyword) as env:
        policy = policies_of(env)
        sentence = why_not("Collector", keyword, cell)
        collector = tried(cell, sentence, lambda: Collector(env, policy, STEPS, **options))
        if collector is None:
            return
        for _ in range(2):
            rollout = collector.collect()
            for batch in rollout.values() if cell.has_agents else [rollout]:
                assert batch.batch_shape[0] == STEPS
                assert works(collector, batch)
        collector.close()
    assert keyword != "record" or list(tmp_path.iterdir())


def hosted(config: Any) -> Any:
    make = lambda: gymnasium.make("Pendulum-v1")  # noqa: E731
    return rollouts.from_env_fns(
        [make] * config.num_envs, num_processes=0, autoreset_mode="same_step"
    )


def hosted_agents(config: Any) -> Any:
    walks: Any = [Walk] * config.num_envs
    return rollouts.from_parallel_env_fns(walks, num_processes=0, autoreset_mode="same_step")


def make_policy(spec: Any) -> TorchPolicy:
    space = spec.single_action_space
    return TorchPolicy(Net(spec.single_observation_space, space), space)


# environments of each cell, for a coordinator
COORDINATED: dict[Cell, tuple[str, dict[str, Any]]] = {
    Cell("native"): ("Pendulum-v1", {}),
    Cell("native", True): ("simple_tag_v3", {}),
    Cell("kernel"): ("Pendulum-v1", {"device": "cpu-emulation"}),
    Cell("kernel", True): ("simple_tag_v3", {"device": "cpu-emulation"}),
    Cell("physics"): ("InvertedPendulum-v5", {"device": "cpu-emulation"}),
    Cell("hosted"): ("mine", {"make_env": hosted}),
    Cell("hosted", True): ("mine", {"make_env": hosted_agents}),
}


def coordinator(cell: Cell, options: dict[str, Any], **arguments: Any) -> RolloutCoordinator:
    env_id, place = COORDINATED[cell]
    return RolloutCoordinator(
        env_id,
        make_policy,
        num_envs_per_worker=2,
        rollout_length=6,
        collect=CollectOptions(**{**place, **options}),
        **{"num_workers": 0, **arguments},
    )


# refused values, and whether a coordinator needs workers for them
REFUSED_OPTIONS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "num_workers=0": ({}, {}),
    "inference": ({}, {"inference": Inference(), "num_workers": 1}),
    "collect.batch_size": ({"batch_size": 1}, {}),
    "collect.mask_actions": ({"mask_actions": True}, {}),
    "collect.cuda_graph": ({"cuda_graph": True}, {}),
    "collect.policy_dtype": ({"policy_dtype": "bfloat16"}, {}),
    "collect.pack_frame_stacks": ({"pack_frame_stacks": True}, {}),
    "collect.policies": ({"policies": {"agent": "one"}}, {}),
    "record": ({}, {"record": "log", "num_workers": 1}),
    "collect.make_env": ({"make_env": hosted}, {"num_workers": 1}),
    "collect.make_collector": ({"make_collector": hosted}, {"num_workers": 1}),
    "collect.tensor_transport='cuda_ipc'": ({"tensor_transport": "cuda_ipc"}, {"num_workers": 1}),
    "collect.tensor_transport='nixl'": ({"tensor_transport": "nixl"}, {"num_workers": 1}),
}


def test_every_refusal_of_a_coordinator_is_tried() -> None:
    assert {*REFUSED_OPTIONS} == {*REFUSED["RolloutCoordinator"]}


@pytest.mark.parametrize("keyword", REFUSED_OPTIONS)
@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_a_coordinator_says_what_its_environments_do_not_have(cell: Cell, keyword: str) -> None:
    needs(cell)
    options, arguments = REFUSED_OPTIONS[keyword]
    if cell.engine in ("kernel", "physics") and keyword != "num_workers=0":
        arguments = {"num_workers": 1, **arguments}
    sentence = why_not("RolloutCoordinator", keyword, cell)
    if not sentence:
        return  # the keyword has tests of its own, which show that it works
    if keyword == "collect.pack_frame_stacks" and cell == Cell("hosted", True):
        pytest.skip("in this process nothing travels; a worker refuses it, see below")
    with pytest.raises(SpecError, match=f"^{re.escape(sentence)}$"):
        coordinator(cell, options, **arguments)


def test_a_service_refuses_what_a_shard_cannot_take() -> None:
    space = spaces.Box(-1, 1, (3,), np.float32)
    for cell, options in (
        (Cell("native"), {}),
        (Cell("hosted"), {}),
        (Cell("native", True), {"keep_final_obs": True}),
    ):
        keyword = "coordinator" if cell.has_agents else "keep_final_obs=False"
        sentence = why_not("ReplayService", keyword, cell)
        with (
            coordinator(cell, options) as collecting,
            pytest.raises(SpecError, match=f"^{re.escape(sentence)}$"),
        ):
            ReplayService(collecting, space, space)


def agents(config: Any) -> Any:
    return rollouts.make_vec(
        "simple_tag_v3",
        config.num_envs,
        env_id_offset=config.env_id_offset,
        autoreset_mode="same_step",
    )


def device(config: Any) -> Any:
    return rollouts.make_vec(
        "Pendulum-v1",
        config.num_envs,
        device="cpu-emulation",
        env_id_offset=config.env_id_offset,
        autoreset_mode="same_step",
    )


@pytest.mark.parametrize(
    ("make", "options", "what"),
    [
        (hosted, {"policies": {"agent": "one"}}, "policies cannot be had of .* with one agent"),
        (agents, {"mask_actions": True}, "mask_actions cannot be had of .* with several agents"),
        (agents, {"batch_size": 2}, "batch_size cannot be had of .* with several agents"),
        (agents, {"pack_frame_stacks": True}, "stacks cannot be had of .* with several agents"),
        (device, {}, "make_env cannot be had of a pool on a device"),
    ],
)
def test_what_a_workers_own_environments_do_not_have_is_refused(
    make: Any, options: dict[str, Any], what: str
) -> None:
    config = WorkerConfig(
        id="mine",
        num_envs=4,
        rollout_length=5,
        num_threads=1,
        seed=0,
        env_options={},
        collect=CollectOptions(make_env=make, **options),
    )
    with pytest.raises(rollouts.SpecError, match=what):
        build_collector(config, make_policy)
