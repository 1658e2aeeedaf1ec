# SPDX-License-Identifier: Apache-2.0
"""Wrong options and fields: each is refused by an error of the library that names what was given,
what is expected or what to do; none ends in an exception of something inside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the extra torch")

import torch
from torch import nn

import rollouts
from rollouts import Collector, RolloutsError, TorchPolicy
from rollouts.mujoco import Scaled, Uniform
from rollouts.policies.native import Head, NativePolicy
from rollouts.replay import ReplayBuffer, TableConfig
from rollouts.replay.config import (
    Episodes,
    MinSize,
    NStep,
    Queue,
    SampleToInsertRatio,
    Sequences,
    Stack,
)
from rollouts.returns import Gae, Nstep, gae, nstep
from rollouts.workers import (
    CollectOptions,
    FaultPolicy,
    Inference,
    Placement,
    QueueLimits,
    WeightTransport,
)
from rollouts.workers.on_ray.coordinator import RolloutCoordinator

BOX = gymnasium.spaces.Box(-1, 1, (4,), np.float32)
TWO = gymnasium.spaces.Discrete(2)
ROW = np.zeros((3, 2), np.float32)
ENDS = np.zeros((3, 2), np.bool_)
LAST = np.zeros(2, np.float32)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.actor, self.critic = nn.Linear(4, 2), nn.Linear(4, 1)

    def forward(self, obs: Any) -> Any:
        return self.actor(obs), self.critic(obs)


def make_policy(spec: Any) -> TorchPolicy:
    return TorchPolicy(Net(), spec.single_action_space)


def make(env_id: Any = "CartPole-v1", num_envs: Any = 2, **options: Any) -> Any:
    return rollouts.make_vec(env_id, num_envs, **options)


def with_env(call: Callable[[Any], Any], env_id: str = "CartPole-v1", **options: Any) -> Any:
    with make(env_id, autoreset_mode="same_step", **options) as env:
        env.reset()
        return call(env)


def on_device(call: Callable[[Any], Any]) -> Any:
    return with_env(call, device="cpu-emulation")


def policy() -> TorchPolicy:
    return TorchPolicy(Net(), TWO)


def collector(**options: Any) -> Any:
    given: dict[str, Any] = {"rollout_length": 4, "policy": policy(), **options}
    return with_env(lambda env: Collector(env, **given).collect())


def coordinator(call: Any = lambda coordinator: None, **options: Any) -> Any:
    given: dict[str, Any] = {
        "num_workers": 0,
        "num_envs_per_worker": 2,
        "rollout_length": 4,
        **options,
    }
    with RolloutCoordinator("CartPole-v1", make_policy, **given) as made:
        return call(made)


def buffer(*args: Any, **options: Any) -> Any:
    return ReplayBuffer(BOX, TWO, *args, **options)


def advantages(function: Any = gae, **options: Any) -> Any:
    given: dict[str, Any] = {
        "reward": ROW,
        "value": ROW,
        "terminated": ENDS,
        "truncated": ENDS,
        "bootstrap_value": ROW,
        "last_value": LAST,
        "gamma": 0.9,
        **({"gae_lambda": 0.9} if function is gae else {"n": 2}),
        **options,
    }
    return function(given.pop("reward"), given.pop("value"), **given)


# what is called -> what the message has to say
Case = tuple[str, Callable[[], Any], str]
MAKE: list[Case] = [
    ("id that is a number", lambda: make(5), "id must be a str"),
    ("id with a typing error", lambda: make("CartPol-v1"), "Did you mean CartPole-v1"),
    ("no ids", lambda: make([]), "env_id"),
    ("num_envs 0", lambda: make(num_envs=0), "num_envs is 0"),
    ("num_envs 2.0", lambda: make(num_envs=2.0), "num_envs is 2.0"),
    ("num_envs as text", lambda: make(num_envs="2"), "num_envs is '2'"),
    ("batch_size above num_envs", lambda: make(batch_size=3), "batch_size is 3"),
    ("batch_size 1.5", lambda: make(batch_size=1.5), "batch_size is 1.5"),
    ("num_threads 0", lambda: make(num_threads=0), "num_threads is 0"),
    ("num_threads as text", lambda: make(num_threads="x"), "num_threads is 'x'"),
    ("seed below 0", lambda: make(seed=-1), "seed is -1"),
    ("seed as text", lambda: make(seed="x"), "seed is 'x'"),
    ("autoreset mode unknown", lambda: make(autoreset_mode="x"), "same_step"),
    ("autoreset mode a number", lambda: make(autoreset_mode=5), "same_step"),
    ("offset below 0", lambda: make(env_id_offset=-1), "env_id_offset is -1"),
    ("time limit below 0", lambda: make(max_episode_steps=-1), "max_episode_steps"),
    ("time limit as text", lambda: make(max_episode_steps="x"), "max_episode_steps"),
    ("on_env_error unknown", lambda: make(on_env_error="x"), "on_env_error"),
    ("on_env_error a number", lambda: make(on_env_error=5), "on_env_error"),
    ("pin_threads as text", lambda: make(pin_threads="x"), "pin_threads"),
    ("pin_threads without end", lambda: make(pin_threads=[10**9]), "pin_threads"),
    ("render_mode unknown", lambda: make(render_mode="x"), "render_mode"),
    ("flatten_observation as text", lambda: make(flatten_observation="x"), "flatten_observation"),
    ("device unknown", lambda: make(device="x"), "device"),
    ("device a number", lambda: make(device=5), "device"),
    ("option unknown", lambda: make(gravitation=1), "gravitation"),
    ("option with a typing error", lambda: make(gravty=1), "gravity"),
    ("option as text", lambda: make(gravity="x"), "gravity"),
    ("option None", lambda: make(gravity=None), "gravity"),
    ("option a dict", lambda: make(gravity={}), "gravity"),
    ("option NaN", lambda: make(gravity=float("nan")), "gravity"),
    ("option of three for two", lambda: make(gravity=[1.0, 2.0, 3.0]), "gravity"),
    ("option empty", lambda: make(gravity=[]), "gravity"),
    ("option a matrix", lambda: make(gravity=np.ones((2, 2))), "gravity"),
    ("choice unknown", lambda: make("FrozenLake-v1", map_name="x"), "map_name"),
    ("range turned round", lambda: make("Ant-v5", healthy_z_range=(2.0, 1.0)), "healthy_z"),
    ("range of one", lambda: make("Ant-v5", healthy_z_range=(2.0,)), "healthy_z_range"),
    ("range as text", lambda: make("Ant-v5", healthy_z_range="x"), "healthy_z_range"),
    ("angles turned round", lambda: make("Hopper-v5", healthy_angle_range=(1, 0)), "healthy_angle"),
    ("states turned round", lambda: make("Hopper-v5", healthy_state_range=(1, 0)), "healthy_state"),
    ("model a number", lambda: make("Ant-v5", model=5), "model"),
    ("model field unknown", lambda: make("Ant-v5", model={"mass": 1.0}), "body_mass"),
    ("model of none", lambda: make(model={"mass": 1.0}), "model"),
    ("rescale_action turned round", lambda: make("Ant-v5", rescale_action=(1, -1)), "rescale"),
    ("rescale_action a number", lambda: make("Ant-v5", rescale_action=5), "rescale_action"),
    ("rescale_action of discrete", lambda: make(rescale_action=True), "rescale_action"),
    ("time_aware unknown", lambda: make(time_aware="x"), "time_aware"),
    ("time_aware a number", lambda: make(time_aware=2), "time_aware"),
    ("frame_stack 0", lambda: make(frame_stack=0), "frame_stack"),
    ("frame_stack as text", lambda: make(frame_stack="x"), "frame_stack"),
    ("frame_stack 2.5", lambda: make(frame_stack=2.5), "frame_stack"),
    ("normalize_observation as text", lambda: make(normalize_observation="x"), "normalize_obs"),
    ("normalize key", lambda: make(normalize_observation={"eps": 1}), "epsilon"),
    ("normalize epsilon", lambda: make(normalize_observation={"epsilon": -1}), "epsilon"),
    ("normalize clip", lambda: make(normalize_observation={"clip": 0}), "clip"),
    ("normalize_reward gamma", lambda: make(normalize_reward={"gamma": 2}), "gamma"),
    ("normalize_reward a number", lambda: make(normalize_reward=5), "normalize_reward"),
    ("clip_reward turned round", lambda: make(clip_reward=(1, -1)), "clip_reward"),
    ("clip_reward below 0", lambda: make(clip_reward=-1), "clip_reward"),
    ("clip_reward as text", lambda: make(clip_reward="x"), "clip_reward"),
    ("reset options a number", lambda: with_env(lambda env: env.reset(options=5)), "options"),
    ("reset option unknown", lambda: with_env(lambda env: env.reset(options={"x": 1})), "'x'"),
    ("reset mask", lambda: with_env(lambda env: env.reset(options={"reset_mask": 5})), "mask"),
    ("reset seed", lambda: with_env(lambda env: env.reset(seed=[1])), "seed has 1 entries"),
]
COLLECT: list[Case] = [
    ("length 0", lambda: collector(rollout_length=0), "rollout_length is 0"),
    ("length 8.0", lambda: collector(rollout_length=8.0), "rollout_length is 8.0"),
    ("length as text", lambda: collector(rollout_length="8"), "rollout_length is '8'"),
    ("a class", lambda: collector(policy=TorchPolicy), "make one of it"),
    ("a module", lambda: collector(policy=Net()), "TorchPolicy"),
    ("None", lambda: collector(policy=None), "rollouts.policy.Policy"),
    ("a function", lambda: collector(policy=lambda obs: obs), "act"),
    ("engine unknown", lambda: collector(engine="jax"), "'auto', 'native' or 'torch'"),
    ("engine a number", lambda: collector(engine=5), "engine is 5"),
    ("prefetch 2", lambda: collector(prefetch=2), "prefetch is 2"),
    ("threads 0", lambda: collector(num_torch_threads=0), "num_torch_threads is 0"),
    ("threads as text", lambda: collector(num_torch_threads="x"), "num_torch_threads is 'x'"),
    ("threads 1.5", lambda: collector(num_torch_threads=1.5), "num_torch_threads is 1.5"),
    ("keep_final_obs as text", lambda: collector(keep_final_obs="yes"), "True or False"),
    ("outputs a number", lambda: collector(outputs=5), "outputs is 5"),
    ("outputs unknown", lambda: collector(outputs=("mean",)), "logits"),
    ("outputs twice", lambda: collector(outputs=("logits", "logits")), "each once"),
    ("returns a number", lambda: collector(returns=0.9), "Gae"),
    ("returns a class", lambda: collector(returns=Gae), "Gae"),
    ("masks of none", lambda: collector(mask_actions=True), "action_mask"),
    ("an id", lambda: Collector("CartPole-v1", policy(), 4), "make_vec"),  # type: ignore[arg-type]
    ("timeout as text", lambda: with_env(lambda e: Collector(e, policy(), 4).collect("x")), "time"),  # type: ignore[arg-type]
    (
        "masks of agents",
        lambda: with_env(
            lambda e: Collector(e, policy(), 4, mask_actions=True), "simple_spread_v3"
        ),
        "agents: they report no info",
    ),
    ("one agent", lambda: with_env(lambda e: Collector(e, {"x": policy()}, 4)), "one policy"),
    (
        "an unknown group",
        lambda: with_env(lambda e: Collector(e, {"x": policy()}, 4), "simple_spread_v3"),
        "'x'",
    ),
    ("a class on a device", lambda: on_device(lambda e: Collector(e, Net, 4)), "make one of"),  # type: ignore[arg-type]
    ("length on a device", lambda: on_device(lambda e: Collector(e, policy(), 4.0)), "4.0"),  # type: ignore[arg-type]
    ("collect of None", lambda: with_env(lambda e: e.collect(None)), "policy is None"),
    (
        "collect without arrays",
        lambda: with_env(lambda e: e.collect(NativePolicy.from_torch(Net(), TWO, 4))),
        "arrays lack 'obs'",
    ),
    ("step of None", lambda: with_env(lambda e: e.step(None)), "actions"),
    ("out a number", lambda: with_env(lambda e: e.send(np.zeros(2, np.int64), out=5)), "out must"),
    (
        "out a number of agents",
        lambda: with_env(lambda e: e.send(np.zeros((2, 3), np.int64), out=5), "simple_spread_v3"),
        "out must",
    ),
    ("device step of None", lambda: on_device(lambda e: e.step(None)), "actions is None"),
    ("device step of text", lambda: on_device(lambda e: e.step("x")), "actions is 'x'"),
    ("device state of text", lambda: on_device(lambda e: e.get_state("x")), "env_id"),
    ("device state of a number", lambda: on_device(lambda e: e.get_state(5)), "env_id"),
    ("device state of a half", lambda: on_device(lambda e: e.get_state([0.5])), "env_id"),
    ("device rollout of text", lambda: on_device(lambda e: e.rollout(3, "rando")), "rando"),
    ("module None", lambda: TorchPolicy(None, TWO), "torch.nn.Module"),  # type: ignore[arg-type]
    ("module a class", lambda: TorchPolicy(Net, TWO), "make one of it: Net"),  # type: ignore[arg-type]
    ("module a function", lambda: TorchPolicy(lambda x: x, TWO), "torch.nn.Module"),  # type: ignore[arg-type]
    ("space a number", lambda: TorchPolicy(Net(), 2), "single_action_space"),  # type: ignore[arg-type]
    ("seed of a policy", lambda: TorchPolicy(Net(), TWO, seed=-1), "seed is -1"),
    ("seed as text", lambda: TorchPolicy(Net(), TWO, seed="x"), "seed is 'x'"),
    ("device of a policy", lambda: TorchPolicy(Net(), TWO, device="x"), "'x'"),
    ("native of None", lambda: NativePolicy.from_torch(None, TWO, 4), "torch.nn.Module"),  # type: ignore[arg-type]
    ("weights a module", lambda: policy().load_weights(Net(), 1), r"state_dict\(\)"),  # type: ignore[arg-type]
    ("weights of others", lambda: policy().load_weights({"x": ROW}, 1), "lack 'actor.weight'"),
    (
        "weights of another shape",
        lambda: policy().load_weights(nn.ModuleDict(_other()).state_dict(), 1),
        "of shape",
    ),
]


def _other() -> dict[str, nn.Module]:
    return {"actor": nn.Linear(5, 2), "critic": nn.Linear(4, 1)}


FIELDS: list[Case] = [
    ("Gae lam", lambda: Gae(gamma=0.9, lam=0.9), "did you mean gae_lambda=0.9"),  # type: ignore[call-arg]
    ("Gae without lambda", lambda: Gae(gamma=0.9), "gae_lambda"),  # type: ignore[call-arg]
    ("Gae by place", lambda: Gae(0.9, 0.9), "by name"),  # type: ignore[misc]
    ("Gae gamma 2", lambda: Gae(gamma=2, gae_lambda=0.9), "gamma is 2"),
    ("Gae gamma as text", lambda: Gae(gamma="x", gae_lambda=0.9), "gamma is 'x'"),  # type: ignore[arg-type]
    ("Gae lambda NaN", lambda: Gae(gamma=0.9, gae_lambda=float("nan")), "gae_lambda is nan"),
    ("Nstep n 0", lambda: Nstep(gamma=0.9, n=0), "n is 0"),
    ("Nstep n 2.0", lambda: Nstep(gamma=0.9, n=2.0), "n is 2.0"),  # type: ignore[arg-type]
    ("Nstep gamma", lambda: Nstep(gamma=-1, n=2), "gamma is -1"),
    ("gae of a list", lambda: advantages(reward=[[0.0]]), "reward is a list"),
    ("gae of a tensor", lambda: advantages(value=torch.zeros(3, 2)), "returns_torch"),
    ("gae of a vector", lambda: advantages(reward=LAST), r"expected \(T, B\)"),
    ("gae of another shape", lambda: advantages(value=ROW[:2]), "value has shape"),
    ("gae of text", lambda: advantages(value=np.full((3, 2), "x")), "value"),
    ("gae gamma", lambda: advantages(gamma=1.5), "gamma is 1.5"),
    ("gae last_value", lambda: advantages(last_value=ROW), "last_value has shape"),
    ("nstep n", lambda: advantages(nstep, n=0), "n is 0"),
    ("Placement num_cpu", lambda: Placement(num_cpu=1), "did you mean num_cpus=1"),  # type: ignore[call-arg]
    ("Placement cpus", lambda: Placement(num_cpus=-1), "num_cpus"),
    ("Placement gpus", lambda: Placement(num_gpus=1.5), "num_gpus"),
    ("Placement strategy", lambda: Placement(strategy="x"), "STRICT_PACK"),  # type: ignore[arg-type]
    ("Placement labels", lambda: Placement(node_labels=5), "node_labels"),  # type: ignore[arg-type]
    ("Placement nodes", lambda: Placement(numa_nodes=0), "numa_nodes"),
    ("Faults max_restart", lambda: FaultPolicy(max_restart=1), "max_restarts=1"),  # type: ignore[call-arg]
    ("Faults restarts", lambda: FaultPolicy(max_restarts=-1), "max_restarts is -1"),
    ("Faults seconds", lambda: FaultPolicy(hang_timeout_s="x"), "hang_timeout_s"),  # type: ignore[arg-type]
    ("Queue max_size", lambda: QueueLimits(max_size=3), "max_queued_fragments"),  # type: ignore[call-arg]
    ("Queue credits", lambda: QueueLimits(credits_per_worker=0), "credits_per_worker is 0"),
    ("Queue merge", lambda: QueueLimits(merge="x"), "ordered"),  # type: ignore[arg-type]
    ("Collect keep_final", lambda: CollectOptions(keep_final=True), "keep_final_obs=True"),  # type: ignore[call-arg]
    ("Collect engine", lambda: CollectOptions(engine="x"), "native"),  # type: ignore[arg-type]
    ("Collect returns", lambda: CollectOptions(returns=0.9), "Gae"),  # type: ignore[arg-type]
    ("Collect outputs", lambda: CollectOptions(outputs=5), "outputs is 5"),  # type: ignore[arg-type]
    ("Collect make_env", lambda: CollectOptions(make_env=5), "make_env"),  # type: ignore[arg-type]
    ("Collect device", lambda: CollectOptions(device="x"), "device"),  # type: ignore[arg-type]
    ("Collect policies", lambda: CollectOptions(policies=["x"]), "policies"),  # type: ignore[arg-type]
    ("Collect masks", lambda: CollectOptions(mask_actions="x"), "True or False"),  # type: ignore[arg-type]
    ("Inference rule", lambda: Inference(rule=5), "BatchRule"),  # type: ignore[arg-type]
    ("Inference cpus", lambda: Inference(num_cpus="x"), "num_cpus"),  # type: ignore[arg-type]
    ("Weights dtype", lambda: WeightTransport(dtype="x"), "dtype"),  # type: ignore[arg-type]
    ("Weights type", lambda: WeightTransport(type="float16"), "dtype"),  # type: ignore[call-arg]
    ("coordinator num_envs", lambda: coordinator(num_envs=4), "num_envs_per_worker=4"),
    ("coordinator num_cpus", lambda: coordinator(num_cpus=4), "placement"),
    ("coordinator placement", lambda: coordinator(placement={"num_cpus": 1}), "Placement"),
    ("coordinator length", lambda: coordinator(rollout_length=4.0), "rollout_length is 4.0"),
    ("coordinator mode", lambda: coordinator(sync_mode="x"), "free_running"),
    ("coordinator option", lambda: coordinator(env_options={"gravty": 1}), "gravity"),
    ("coordinator options", lambda: coordinator(env_options=5), "env_options"),
    ("published module", lambda: coordinator(lambda c: c.publish_weights(Net())), "state_dict"),
    ("published None", lambda: coordinator(lambda c: c.publish_weights(None)), "expected a dict"),
    ("Scaled turned round", lambda: Scaled(2, 0.5), r"Scaled\(0.5, 2\)\?"),
    ("Uniform turned round", lambda: Uniform(1, 0), r"Uniform\(0, 1\)\?"),
    ("Uniform of arrays", lambda: Uniform([1, 2], [2, 1]), "low above high"),
    ("Uniform of shapes", lambda: Uniform([1, 2], [1, 2, 3]), "shape"),
    ("Uniform of text", lambda: Uniform("a", 1), "low is 'a'"),
    ("Uniform of None", lambda: Uniform(0, None), "high is None"),  # type: ignore[arg-type]
    ("Scaled of NaN", lambda: Scaled(float("nan"), 1), "low is nan"),
    ("Scaled of one", lambda: Scaled(1), "'high'"),  # type: ignore[call-arg]
    ("Head kind", lambda: Head("x"), "categorical"),  # type: ignore[arg-type]
    ("Head epsilon", lambda: Head("epsilon_greedy", epsilon=2), "epsilon is 2"),
    ("Head epsilon as text", lambda: Head("epsilon_greedy", epsilon="x"), "epsilon is 'x'"),  # type: ignore[arg-type]
    ("Head eps", lambda: Head("epsilon_greedy", eps=0.1), "epsilon=0.1"),  # type: ignore[call-arg]
    ("Head damping", lambda: Head("gaussian", damping=0), "damping is 0"),
    ("table a dict", lambda: buffer({"x": 1}), "TableConfig"),
    ("table a number", lambda: buffer(5), "TableConfig"),
    ("tables none", lambda: buffer([]), "at least one"),
    ("table max_sizes", lambda: TableConfig(max_sizes=5), "max_size=5"),  # type: ignore[call-arg]
    ("table size 0", lambda: buffer(TableConfig(max_size=0)), "max_size"),
    ("table size 1.5", lambda: buffer(TableConfig(max_size=1.5)), "max_size"),  # type: ignore[arg-type]
    ("table sampler", lambda: buffer(TableConfig(sampler="x")), "sampler"),  # type: ignore[arg-type]
    ("table items", lambda: buffer(TableConfig(items=5)), "items"),  # type: ignore[arg-type]
    ("table limiter", lambda: buffer(TableConfig(limiter=5)), "limiter"),  # type: ignore[arg-type]
    ("NStep 0", lambda: buffer(TableConfig(items=NStep(0, 0.9))), "n"),
    ("NStep gamma", lambda: buffer(TableConfig(items=NStep(2, 2.0))), "gamma|discount"),
    ("NStep as text", lambda: buffer(TableConfig(items=NStep("x", 0.9))), "'x'"),  # type: ignore[arg-type]
    ("Sequences 0", lambda: buffer(TableConfig(items=Sequences(0))), "length"),
    ("Episodes", lambda: Episodes(length=3), "Episodes has no 'length'"),  # type: ignore[call-arg]
    ("MinSize 0", lambda: buffer(TableConfig(limiter=MinSize(0))), "size is 0"),
    ("Queue 0", lambda: buffer(TableConfig(limiter=Queue(0))), "size"),
    ("Stack 0", lambda: buffer(TableConfig(limiter=Stack(0))), "size"),
    ("ratio of one", lambda: SampleToInsertRatio(), "missing"),  # type: ignore[call-arg]
    ("buffer stack 0", lambda: buffer(stack_num=0), "stack_num"),
    ("buffer threads 0", lambda: buffer(num_threads=0), "num_threads"),
    ("buffer threads as text", lambda: buffer(num_threads="x"), "num_threads"),
    ("buffer seed", lambda: buffer(seed=-1), "seed"),
    ("buffer bytes", lambda: buffer(max_bytes=-1), "max_bytes"),
    ("buffer length", lambda: buffer(max_batch_length=0), "max_batch_length"),
    ("buffer mode", lambda: buffer(autoreset_mode="x"), "autoreset_mode"),
    ("buffer path", lambda: buffer(path=5), "path"),
    ("buffer extras", lambda: buffer(extras=5), "extras"),
    ("buffer states", lambda: buffer(policy_state=5), "policy_state"),
    ("buffer spaces", lambda: ReplayBuffer(4, TWO), "space"),  # type: ignore[arg-type]
    ("sample 0", lambda: buffer().sample(0), "0"),
    ("sample of text", lambda: buffer().sample("x"), "'x'"),
    ("batch a number", lambda: buffer().add_batch(5), "RolloutBatch"),
]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        pytest.param(call, says, id=f"{kind}: {name}")
        for kind, cases in (("make_vec", MAKE), ("collect", COLLECT), ("fields", FIELDS))
        for name, call, says in cases
    ],
)
def test_what_is_wrong_is_said_by_an_error_of_the_library(
    call: Callable[[], Any], says: str
) -> None:
    with pytest.raises(RolloutsError, match=says) as caught:
        call()
    assert isinstance(caught.value, ValueError | TypeError | ImportError | RuntimeError)
