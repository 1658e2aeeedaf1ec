# SPDX-License-Identifier: Apache-2.0
"""`RolloutsCollector` of TorchRL: what the pool's threads collect is what TorchRL's Collector has
of the same actions and the same policy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

pytest.importorskip("torchrl", reason="needs TorchRL: pip install 'rollouts[torchrl]'")

from rollouts.integrations.torchrl import RolloutsCollector, RolloutsEnv
from tensordict.nn import NormalParamExtractor, TensorDictModule, TensorDictSequential
from torch import nn
from torch.distributions import Categorical
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, ReplayBuffer
from torchrl.envs import (
    Compose,
    DoubleToFloat,
    ExplorationType,
    RewardScaling,
    RewardSum,
    StepCounter,
    TransformedEnv,
)
from torchrl.modules import (
    MLP,
    ActorValueOperator,
    IndependentNormal,
    LSTMModule,
    OneHotCategorical,
    ProbabilisticActor,
    TanhNormal,
    ValueOperator,
)

import rollouts
from rollouts.errors import SpecError

NUM_ENVS, STEPS = 5, 40


def cartpole(**options: Any) -> RolloutsEnv:
    return RolloutsEnv("CartPole-v1", num_envs=NUM_ENVS, seed=3, **options)


def cheetah() -> TransformedEnv:
    env = RolloutsEnv("HalfCheetah-v5", num_envs=NUM_ENVS, seed=3, max_episode_steps=15)
    return TransformedEnv(env, DoubleToFloat(in_keys=["observation"]))


def counted() -> TransformedEnv:
    return TransformedEnv(cartpole(), Compose(RewardSum(), StepCounter()))


def net(inputs: int, outputs: int) -> MLP:
    torch.manual_seed(0)
    return MLP(in_features=inputs, out_features=outputs, num_cells=[16, 16])


def categorical(kind: Any = OneHotCategorical, **kwargs: Any) -> ProbabilisticActor:
    kwargs.setdefault("return_log_prob", True)
    return ProbabilisticActor(
        TensorDictModule(net(4, 2), in_keys=["observation"], out_keys=["logits"]),
        in_keys=["logits"],
        distribution_class=kind,
        **kwargs,
    )


def gaussian(kind: Any = TanhNormal, inputs: int = 17, **kwargs: Any) -> ProbabilisticActor:
    layers = nn.Sequential(net(inputs, 12), NormalParamExtractor())
    return ProbabilisticActor(
        TensorDictModule(layers, in_keys=["observation"], out_keys=["loc", "scale"]),
        in_keys=["loc", "scale"],
        distribution_class=kind,
        return_log_prob=True,
        **kwargs,
    )


def actor_value() -> ActorValueOperator:
    """A common trunk, whose output is in the batch, too."""
    common = TensorDictModule(net(4, 8), in_keys=["observation"], out_keys=["hidden"])
    head = TensorDictModule(net(8, 2), in_keys=["hidden"], out_keys=["logits"])
    actor = ProbabilisticActor(
        head, in_keys=["logits"], distribution_class=OneHotCategorical, return_log_prob=True
    )
    return ActorValueOperator(common, actor, ValueOperator(net(8, 1), in_keys=["hidden"]))


class Replayed(nn.Module):
    """Says the actions (N, T, ...) one step after the other."""

    def __init__(self, actions: torch.Tensor) -> None:
        super().__init__()
        self._actions, self.next = actions, 0

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        """The next step's."""
        self.next += 1
        return self._actions[:, self.next - 1]


def batches(
    kind: Any, env: Any, policy: Any, count: int = 3, *, steps: int = STEPS, **kwargs: Any
) -> list[Any]:
    """The first batches of a collector; ours are native."""
    torch.manual_seed(1)
    collector = kind(env, policy, frames_per_batch=NUM_ENVS * steps, total_frames=-1, **kwargs)
    if isinstance(getattr(policy, "module", None), Replayed):
        # the collector has asked it once, to see its keys
        policy.module.next = 0
    if kind is RolloutsCollector:
        collector.rollout_engine = "native"
    found = [batch for _, batch in zip(range(count), collector, strict=False)]
    if kind is RolloutsCollector:
        assert (collector.engine, collector.why_not_native) == ("native", "")
    collector.shutdown()
    return found


def replayed(actions: torch.Tensor) -> TensorDictModule:
    return TensorDictModule(Replayed(actions), in_keys=["observation"], out_keys=["action"])


def leaves(batch: Any) -> dict[Any, tuple[Any, ...]]:
    """Dtype, shape and contiguity of each tensor by its key."""
    return {
        key: (value.dtype, value.shape, value.is_contiguous())
        for key, value in batch.items(include_nested=True, leaves_only=True)
    }


CASES: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "one-hot": (cartpole, categorical),
    "indices": (
        lambda: cartpole(categorical_action_encoding=True),
        lambda: categorical(Categorical),
    ),
    "no log_prob": (cartpole, lambda: categorical(return_log_prob=False)),
    "actor and value": (cartpole, actor_value),
    "RewardSum and StepCounter": (counted, categorical),
    "TanhNormal, float64": (cheetah, gaussian),
}


@pytest.mark.parametrize("case", CASES)
def test_batches_are_those_of_torchrls_collector(case: str) -> None:
    make_env, make_policy = CASES[case]
    policy = make_policy()
    ours = batches(RolloutsCollector, make_env(), policy)
    stock = batches(Collector, make_env(), policy)
    for mine, other in zip(ours, stock, strict=True):
        assert leaves(mine) == leaves(other)
        assert (mine.batch_size, mine.names) == (other.batch_size, other.names)
        assert (mine.device, mine["next"].device) == (other.device, other["next"].device)
        assert set(mine.keys()) == set(other.keys())
    # the environments answer as they do to the same actions
    actions = torch.cat([mine["action"] for mine in ours], 1)
    theirs = batches(Collector, make_env(), replayed(actions))
    assert torch.cat([other["next", "done"] for other in theirs], 1).any()
    for mine, other in zip(ours, theirs, strict=True):
        for key in other.keys(include_nested=True, leaves_only=True):
            if other[key].dtype.is_floating_point:
                torch.testing.assert_close(mine[key], other[key], rtol=1e-5, atol=1e-5)
            else:
                assert torch.equal(mine[key], other[key]), key
    # the policy says of these observations what is written
    is_both = isinstance(policy, ActorValueOperator)
    actor = policy.get_policy_operator() if is_both else policy
    for mine in ours:
        with torch.no_grad():
            said = policy(mine.select("observation"))
            dist = actor.get_dist(mine.select("observation"))
        for key in set(said.keys()) - {"action", "action_log_prob"}:
            torch.testing.assert_close(mine[key], said[key], rtol=1e-5, atol=1e-5)
        if "action_log_prob" in mine:
            density = dist.log_prob(mine["action"])
            # beyond, the inverse of tanh is no longer exact
            counts = torch.ones_like(density, dtype=torch.bool)
            if mine["action"].dtype.is_floating_point:
                counts = (mine["action"].abs() < 0.99).all(-1)
                assert counts.float().mean() > 0.1
            torch.testing.assert_close(
                mine["action_log_prob"][counts], density[counts], rtol=1e-4, atol=1e-3
            )


def test_actions_are_drawn_from_what_the_policy_says() -> None:
    for make_env, policy in ((cartpole, categorical()), (cheetah, gaussian())):
        (batch,) = batches(RolloutsCollector, make_env(), policy, 1, steps=400)
        if "logits" in batch:
            share = batch["logits"].softmax(-1)[..., 1]
            drawn = (batch["action"][..., 1] - share) / (share * (1 - share)).sqrt()
        else:
            sample = batch["action"].double().clamp(-0.9999, 0.9999).atanh()
            drawn = ((sample - batch["loc"]) / batch["scale"])[..., 0]
        # mean 0 and variance 1; four standard errors
        count = drawn.numel()
        assert abs(drawn.mean()) < 4 / count**0.5
        assert abs(drawn.var() - 1) < 4 * (2 / count) ** 0.5


def test_deterministic_exploration_takes_the_likeliest() -> None:
    kwargs = {"exploration_type": ExplorationType.DETERMINISTIC}
    (batch,) = batches(RolloutsCollector, cartpole(), categorical(), 1, **kwargs)
    assert torch.equal(batch["action"].argmax(-1), batch["logits"].argmax(-1))
    (batch,) = batches(RolloutsCollector, cheetah(), gaussian(), 1, **kwargs)
    torch.testing.assert_close(batch["action"], batch["loc"].tanh(), rtol=1e-5, atol=1e-5)


def test_weights_that_changed_in_place_hold_from_the_next_batch_on() -> None:
    policy, env = categorical(), cartpole()
    collector = RolloutsCollector(env, policy, frames_per_batch=NUM_ENVS * 20, total_frames=-1)
    found = iter(collector)
    next(found)
    last = policy.module[0].module[-1]
    for favourite in (0, 1):
        with torch.no_grad():
            last.weight.zero_()
            last.bias.copy_(torch.tensor([30.0, -30.0]).roll(favourite))
        batch = next(found)
        assert collector.engine == "native"
        assert (batch["action"].argmax(-1) == favourite).all()
    collector.shutdown()


def test_engines_take_turns_without_a_break_in_the_data() -> None:
    env = counted()
    collector = RolloutsCollector(
        env, categorical(), frames_per_batch=NUM_ENVS * 30, total_frames=-1
    )
    found = iter(collector)
    parts = []
    for engine in ("native", "torch", "native", "torch"):
        collector.rollout_engine = engine
        parts.append(next(found))
        assert collector.engine == engine
    data = torch.cat(
        [part.select("observation", "collector", "next", "step_count") for part in parts], 1
    )
    goes_on = ~data["next", "done"][:, :-1, 0]
    after, before = data["next", "observation"][:, :-1], data["observation"][:, 1:]
    assert torch.equal(after[goes_on], before[goes_on])
    counts = data["next", "step_count"][:, :-1], data["step_count"][:, 1:]
    assert torch.equal(counts[0][goes_on], counts[1][goes_on])
    assert (data["step_count"][:, 1:][~goes_on] == 0).all()
    ids = data["collector", "traj_ids"]
    assert torch.equal(ids[:, :-1] == ids[:, 1:], goes_on)
    assert len(ids.unique()) == NUM_ENVS + int((~goes_on).sum())
    collector.shutdown()


def test_replay_buffers_and_whole_trajectories_are_torchrls_own() -> None:
    buffer = ReplayBuffer(storage=LazyTensorStorage(1000), batch_size=10)
    collector = RolloutsCollector(
        cartpole(), categorical(), frames_per_batch=100, total_frames=200, replay_buffer=buffer
    )
    for _ in collector:
        assert collector.engine == "native"
    # rows of T steps
    assert len(buffer) == 2 * NUM_ENVS
    collector.shutdown()
    (split,) = batches(RolloutsCollector, cartpole(), categorical(), 1, split_trajs=True)
    rows = split[split["collector", "mask"]]
    assert len(rows) == NUM_ENVS * STEPS
    (split,) = batches(
        RolloutsCollector, cartpole(), categorical(), 1, reset_at_each_iter=True, set_truncated=True
    )
    assert split["next", "truncated"][:, -1].all()


class OwnForward(ProbabilisticActor):
    """Acts otherwise than its parts say."""

    def forward(self, tensordict: Any, **kwargs: Any) -> Any:
        """Half of what it sees."""
        tensordict["observation"] = tensordict["observation"] / 2
        return super().forward(tensordict, **kwargs)


def _own() -> ProbabilisticActor:
    like = categorical()
    return OwnForward(like.module[0], in_keys=["logits"], distribution_class=OneHotCategorical)


def _recurrent() -> Any:
    lstm = LSTMModule(
        input_size=4, hidden_size=8, in_key="observation", out_key="features", device="cpu"
    )
    head = TensorDictModule(net(8, 2), in_keys=["features"], out_keys=["logits"])
    actor = ProbabilisticActor(head, in_keys=["logits"], distribution_class=OneHotCategorical)
    return TensorDictSequential(lstm, actor)


def _bounded() -> RolloutsEnv:
    return RolloutsEnv("HalfCheetah-v5", num_envs=NUM_ENVS, seed=0)


@pytest.mark.parametrize(
    ("make_env", "make_policy", "why_not"),
    [
        (cartpole, _own, "OwnForward, expected"),
        (lambda: TransformedEnv(cartpole(), RewardScaling(0, 2)), categorical, "a RewardScaling"),
        (cheetah, lambda: gaussian(IndependentNormal), "use a TanhNormal"),
        (
            cheetah,
            lambda: gaussian(distribution_kwargs={"low": -0.5, "high": 0.5}),
            "distribution_kwargs",
        ),
        (cheetah, lambda: gaussian(distribution_kwargs={"tanh_loc": True}), "distribution_kwargs"),
    ],
)
def test_what_is_not_known_stays_with_torch(make_env: Any, make_policy: Any, why_not: str) -> None:
    collector = RolloutsCollector(
        make_env(), make_policy(), frames_per_batch=NUM_ENVS * 4, total_frames=-1
    )
    found = iter(collector)
    assert next(found).batch_size == (NUM_ENVS, 4)
    assert collector.engine == "torch"
    assert why_not in collector.why_not_native
    collector.rollout_engine = "native"
    with pytest.raises(SpecError, match=why_not.replace("(", ".")):
        next(found)
    collector.shutdown()


def test_a_policy_with_memory_is_named() -> None:
    from rollouts.integrations.torchrl.native import NativeActor

    with pytest.raises(SpecError, match="LSTMModule"):
        NativeActor(_recurrent(), cartpole().pool, one_hot=True, casts=False, deterministic=False)


def test_an_error_in_the_rollout_begins_new_episodes() -> None:
    policy = categorical()
    collector = RolloutsCollector(
        cartpole(), policy, frames_per_batch=NUM_ENVS * 20, total_frames=-1
    )
    collector.rollout()
    last = policy.module[0].module[-1]
    kept = last.weight.detach().clone()
    with torch.no_grad():
        last.weight.fill_(3e38)
    with pytest.raises(SpecError, match="expected a finite number"):
        collector.rollout()
    with torch.no_grad():
        last.weight.copy_(kept)
    batch = collector.rollout()
    assert collector.engine == "native"
    assert (batch["observation"][:, 0].abs() <= 0.05).all()
    collector.shutdown()


def test_random_policies_and_layers_with_hooks_stay_with_torch() -> None:
    collector = RolloutsCollector(cartpole(), None, frames_per_batch=50, total_frames=50)
    assert [batch.batch_size for batch in collector] == [(NUM_ENVS, 10)]
    assert "RandomPolicy" in collector.why_not_native
    policy = categorical()
    heard: list[int] = []
    policy.module[0].module[0].register_forward_hook(lambda *_: heard.append(1))
    collector = RolloutsCollector(cartpole(), policy, frames_per_batch=50, total_frames=50)
    heard.clear()
    assert len(list(collector)) == 1
    assert "hooks" in collector.why_not_native
    assert len(heard) == 10


def test_random_frames_and_other_pools_stay_with_torch() -> None:
    collector = RolloutsCollector(
        cartpole(), categorical(), frames_per_batch=50, total_frames=-1, init_random_frames=50
    )
    found = iter(collector)
    next(found)
    assert "init_random_frames" in collector.why_not_native
    next(found)
    assert collector.engine == "native"
    collector.shutdown()
    env = RolloutsEnv(rollouts.make_vec("FrozenLake-v1", 2, autoreset_mode="same_step"))
    policy = ProbabilisticActor(
        TensorDictModule(
            lambda obs: torch.zeros(len(obs), 4), in_keys=["observation"], out_keys=["logits"]
        ),
        in_keys=["logits"],
        distribution_class=OneHotCategorical,
    )
    collector = RolloutsCollector(env, policy, frames_per_batch=10, total_frames=10)
    for _ in collector:
        assert "expected a Box" in collector.why_not_native
    collector.shutdown()
