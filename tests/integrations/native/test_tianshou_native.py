# SPDX-License-Identifier: Apache-2.0
"""`RolloutsCollector` with the policy in the pool's threads: what it stores is what Tianshou's
Collector stores of the same actions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("tianshou", reason="needs Tianshou: pip install 'rollouts[tianshou]'")

from rollouts.integrations.tianshou import RolloutsCollector, RolloutsVectorEnv
from tianshou.algorithm.algorithm_base import Policy
from tianshou.algorithm.modelfree.reinforce import DiscreteActorPolicy, ProbabilisticActorPolicy
from tianshou.data import (
    Batch,
    Collector,
    PrioritizedVectorReplayBuffer,
    ReplayBufferManager,
    VectorReplayBuffer,
)
from tianshou.data import ReplayBuffer as SingleBuffer
from tianshou.data.collector import EpisodeRolloutHookMCReturn, get_stddev_from_dist
from tianshou.utils.net.common import Net, Recurrent
from tianshou.utils.net.continuous import ContinuousActorProbabilistic
from tianshou.utils.net.discrete import DiscreteActor
from tianshou_cases import columns, make_actor, make_q
from torch.distributions import Categorical, Independent, Normal

from rollouts.errors import EnvError, SpecError

pytestmark = pytest.mark.system

NUM_ENVS = 5
# the buffer wraps around within the last ones
STEPS = (5, 200, 203, 900, 2000)


def cartpole() -> RolloutsVectorEnv:
    return RolloutsVectorEnv("CartPole-v1", num_envs=NUM_ENVS, seed=3)


def pendulum(**options: Any) -> RolloutsVectorEnv:
    return RolloutsVectorEnv("Pendulum-v1", num_envs=NUM_ENVS, seed=3, **options)


def gaussian(env: Any, **kwargs: Any) -> Policy:
    """Tianshou's own actor of a Gaussian, with random weights."""
    torch.manual_seed(0)
    net = Net(state_shape=env.observation_space[0].shape, hidden_sizes=[16])
    of_actor = {name: kwargs.pop(name, False) for name in ("unbounded", "conditioned_sigma")}
    space = env.action_space[0]
    actor = ContinuousActorProbabilistic(preprocess_net=net, action_shape=space.shape, **of_actor)
    dist_fn = kwargs.pop("dist_fn", lambda parts: Independent(Normal(*parts), 1))
    return ProbabilisticActorPolicy(actor=actor, dist_fn=dist_fn, action_space=space, **kwargs)


def categorical(env: Any, actor: Any = None, **kwargs: Any) -> Policy:
    """Tianshou's own actor of a Categorical of probabilities, with random weights."""
    torch.manual_seed(0)
    if actor is None:
        net = Net(state_shape=env.observation_space[0].shape, hidden_sizes=[16])
        actor = DiscreteActor(preprocess_net=net, action_shape=2)
    kwargs.setdefault("dist_fn", Categorical)
    return DiscreteActorPolicy(actor=actor, action_space=env.action_space[0], **kwargs)


class Replayed(Policy):
    """Says the actions (T, N, ...) one step after the other, mapped as another policy maps them."""

    def __init__(self, like: Any, acts: np.ndarray) -> None:
        super().__init__(
            action_space=like.action_space,
            action_scaling=like.action_scaling,
            action_bound_method=like.action_bound_method,
        )
        self._acts, self._next = acts, 0

    def forward(self, batch: Any, state: Any = None, **kwargs: Any) -> Batch:
        """The next step's."""
        self._next += 1
        return Batch(act=torch.from_numpy(self._acts[self._next - 1]), state=None)


def collect(
    kind: Callable[..., Any], env: Any, policy: Any, buffer: Any, steps: tuple[int, ...] = STEPS
) -> tuple[Any, list[Any]]:
    """The collector and the statistics of some collects; ours are native."""
    collector = kind(policy, env, buffer)
    if kind is RolloutsCollector:
        collector.rollout_engine = "native"
    torch.manual_seed(1)
    collector.reset()
    stats = [collector.collect(n_step=count) for count in steps]
    if kind is RolloutsCollector:
        assert (collector.engine, collector.why_not_native) == ("native", "")
    env.close()
    return collector, stats


def acts_of(make_env: Callable[[], Any], policy: Any, steps: tuple[int, ...] = STEPS) -> Any:
    """The actions (T, N, ...) of these collects, and the observations that they answer."""
    per_env = sum(-(-count // NUM_ENVS) for count in steps)
    buffer = VectorReplayBuffer(per_env * NUM_ENVS, NUM_ENVS)
    collect(RolloutsCollector, make_env(), policy, buffer, steps)
    act, obs = (
        array.reshape(NUM_ENVS, per_env, *array.shape[1:]).swapaxes(0, 1)
        for array in (buffer.act, buffer.obs)
    )
    return act.copy(), obs.copy()


def assert_close_buffers(ours: Any, theirs: Any) -> None:
    """The same columns, dtypes and counters; numbers within 1e-5."""
    mine, others = columns(ours._meta), columns(theirs._meta)
    assert mine.keys() == others.keys()
    for path, column in others.items():
        assert (mine[path].dtype, mine[path].shape) == (column.dtype, column.shape), path
        np.testing.assert_allclose(mine[path], column, rtol=1e-5, atol=1e-5, err_msg=str(path))
    assert np.array_equal(ours._lengths, theirs._lengths)
    assert np.array_equal(ours.last_index, theirs.last_index)
    for one, other in zip(ours.buffers, theirs.buffers, strict=True):
        for name in ("_insertion_idx", "_size", "_ep_len", "_ep_start_idx", "last_index"):
            assert one.__dict__[name] == other.__dict__[name], name
        np.testing.assert_allclose(one._ep_return, other._ep_return, rtol=1e-5)


def assert_close_stats(ours: Any, theirs: Any) -> None:
    """All but times and the spread, which a replay does not know."""
    assert ours.n_collected_steps == theirs.n_collected_steps
    assert ours.n_collected_episodes == theirs.n_collected_episodes
    np.testing.assert_allclose(ours.returns, theirs.returns, rtol=1e-5)
    assert np.array_equal(ours.lens, theirs.lens)
    assert ours.lens.dtype == theirs.lens.dtype
    assert ours.returns.dtype == theirs.returns.dtype


def assert_as_replayed(
    make_env: Callable[[], Any], policy: Any, make_buffer: Callable[[], Any]
) -> Any:
    """Native collects store what Tianshou's Collector does of the same actions."""
    acts, _ = acts_of(make_env, policy)
    ours, our_stats = collect(RolloutsCollector, make_env(), policy, make_buffer())
    theirs, their_stats = collect(Collector, make_env(), Replayed(policy, acts), make_buffer())
    assert_close_buffers(ours.buffer, theirs.buffer)
    for mine, other in zip(our_stats, their_stats, strict=True):
        assert_close_stats(mine, other)
    assert ours.collect_step == theirs.collect_step
    assert ours.collect_episode == theirs.collect_episode
    np.testing.assert_allclose(
        ours._pre_collect_obs_RO, theirs._pre_collect_obs_RO, rtol=1e-5, atol=1e-5
    )
    assert [set(info) for info in ours._pre_collect_info_R] == [{"env_id"}] * NUM_ENVS
    return ours


@pytest.mark.parametrize(
    "make_buffer",
    [
        lambda: VectorReplayBuffer(1000, NUM_ENVS),
        lambda: VectorReplayBuffer(1000, NUM_ENVS, ignore_obs_next=True),
        lambda: VectorReplayBuffer(1000, NUM_ENVS, stack_num=4, sample_avail=True),
        lambda: VectorReplayBuffer(1500, NUM_ENVS + 2),
        lambda: PrioritizedVectorReplayBuffer(1000, NUM_ENVS, alpha=0.6, beta=0.4),
        # sub-buffers of different lengths
        lambda: ReplayBufferManager([SingleBuffer(90 + 7 * i) for i in range(NUM_ENVS)]),
    ],
    ids=["plain", "ignore_obs_next", "stack_num", "more_buffers", "prioritized", "unequal"],
)
def test_buffers_are_those_of_the_same_actions(make_buffer: Callable[[], Any]) -> None:
    collector = assert_as_replayed(cartpole, categorical(cartpole()), make_buffer)
    assert collector.buffer.terminated.any()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"conditioned_sigma": True, "unbounded": True},
        {"dist_fn": lambda parts: Normal(*parts)},
    ],
)
def test_scaled_continuous_actions_and_truncation(options: dict[str, Any]) -> None:
    policy = gaussian(pendulum(), **options)
    collector = assert_as_replayed(pendulum, policy, lambda: VectorReplayBuffer(1000, NUM_ENVS))
    assert collector.buffer.truncated.any()
    # within -1 and 1, which the environment has as -2 and 2
    assert collector.buffer.act.dtype == np.float32
    assert (np.abs(collector.buffer.act) > 1).any()


@pytest.mark.parametrize(
    ("make_env", "make_policy"),
    [
        (cartpole, categorical),
        (cartpole, make_actor),
        (pendulum, gaussian),
        (pendulum, lambda env: gaussian(env, conditioned_sigma=True)),
    ],
)
def test_actions_are_drawn_from_what_the_policy_says(make_env: Any, make_policy: Any) -> None:
    policy = make_policy(make_env())
    steps = (20 * NUM_ENVS, 400 * NUM_ENVS)
    acts, obs = acts_of(make_env, policy, steps)
    _, stats = collect(
        RolloutsCollector, make_env(), policy, VectorReplayBuffer(4000, NUM_ENVS), steps
    )
    obs = obs.reshape(-1, *obs.shape[2:])
    with torch.no_grad():
        dist = policy(Batch(obs=obs, info=Batch())).dist
    spread = np.concatenate([one.pred_dist_std_array for one in stats])
    expected = np.atleast_2d(get_stddev_from_dist(dist).numpy())
    assert spread.dtype == expected.dtype
    np.testing.assert_allclose(spread, expected, rtol=1e-4, atol=1e-5)
    # standardised, they have mean 0 and variance 1; four standard errors
    if isinstance(dist, Categorical):
        mean, std = dist.probs[:, 1].numpy(), expected[:, 0]
    else:
        mean, std = dist.mean[:, 0].numpy(), expected[:, 0]
    drawn = (acts.reshape(len(obs), -1)[:, 0] - mean) / std
    assert abs(drawn.mean()) < 4 / np.sqrt(len(drawn))
    assert abs(drawn.var() - 1) < 4 * np.sqrt(2 / len(drawn))


def test_deterministic_evaluation_takes_the_mode_outside_of_training() -> None:
    env = pendulum()
    policy = gaussian(env, deterministic_eval=True)
    collector = RolloutsCollector(policy, env, VectorReplayBuffer(1000, NUM_ENVS))
    collector.reset()
    for trains in (False, True, False):
        policy.is_within_training_step = trains
        collector.reset_buffer()
        collector.collect(n_step=100)
        assert collector.engine == "native"
        rows = collector.buffer[:]
        with torch.no_grad():
            mean = policy(Batch(obs=rows.obs, info=Batch())).dist.mean.numpy()
        assert np.allclose(rows.act, mean, atol=1e-5) != trains
    env.close()


def test_weights_that_changed_in_place_hold_from_the_next_collect_on() -> None:
    env = cartpole()
    policy = categorical(env)
    collector = RolloutsCollector(policy, env, VectorReplayBuffer(1000, NUM_ENVS))
    collector.reset()
    collector.collect(n_step=100)
    read = collector._policy_reader._read
    for favourite in (0, 1):
        with torch.no_grad():
            policy.actor.last.model[-1].weight.zero_()
            policy.actor.last.model[-1].bias.copy_(torch.tensor([30.0, -30.0]).roll(favourite))
        collector.reset_buffer()
        collector.collect(n_step=100)
        assert (collector.buffer[:].act == favourite).all()
    assert collector._policy_reader._read is read
    env.close()


class OwnForward(DiscreteActorPolicy):
    """Acts otherwise than its distribution says."""

    def forward(self, batch: Any, state: Any = None, **kwargs: Any) -> Any:
        """The same side always."""
        result = super().forward(batch, state, **kwargs)
        result.act = torch.zeros_like(result.act)
        return result


def _own_forward(env: Any) -> Policy:
    like: Any = categorical(env)
    return OwnForward(actor=like.actor, dist_fn=Categorical, action_space=env.action_space[0])


def _recurrent(env: Any) -> Policy:
    return categorical(env, Recurrent(layer_num=1, state_shape=4, action_shape=2), dist_fn=_doubled)


def _doubled(logits: Any) -> Categorical:
    return Categorical(logits=2 * logits)


@pytest.mark.parametrize(
    ("make_policy", "why_not"),
    [
        (make_q, "DiscreteQLearningPolicy, expected a ProbabilisticActorPolicy"),
        (_own_forward, "OwnForward has its own forward"),
        (_recurrent, "recurrent"),
        (lambda env: categorical(env, dist_fn=_doubled), "of something else than the logits"),
    ],
)
def test_other_policies_stay_with_torch(make_policy: Any, why_not: str) -> None:
    env = cartpole()
    collector = RolloutsCollector(make_policy(env), env, VectorReplayBuffer(1000, NUM_ENVS))
    collector.reset()
    assert collector.collect(n_step=100).n_collected_steps == 100
    assert collector.engine == "torch"
    assert why_not in collector.why_not_native
    collector.rollout_engine = "native"
    with pytest.raises(SpecError, match=why_not):
        collector.collect(n_step=100)
    env.close()


@pytest.mark.parametrize(
    "options", [{"action_bound_method": "tanh"}, {"action_scaling": False}], ids=str
)
def test_other_mappings_of_actions_stay_with_torch(options: dict[str, Any]) -> None:
    env = pendulum()
    collector = RolloutsCollector(gaussian(env, **options), env, VectorReplayBuffer(1000, NUM_ENVS))
    collector.reset()
    collector.collect(n_step=20)
    assert "in another way than clipping and scaling" in collector.why_not_native
    env.close()


def test_infos_hooks_and_the_wish_keep_it_with_torch() -> None:
    def run(env: Any, engine: Any = "auto", **kwargs: Any) -> Any:
        collector = RolloutsCollector(
            make_actor(env), env, VectorReplayBuffer(1000, NUM_ENVS), **kwargs
        )
        collector.rollout_engine = engine
        collector.reset()
        collector.collect(n_step=20)
        env.close()
        return collector

    assert "asked for" in run(cartpole(), "torch").why_not_native
    assert "own loop" in run(cartpole(), on_step_hook=lambda *_: None).why_not_native
    cheetah = RolloutsVectorEnv("HalfCheetah-v5", num_envs=2, seed=0)
    collector = run(cheetah)
    assert "the buffer keeps infos, which have x_position" in collector.why_not_native
    assert "x_position" in collector.buffer.info.get_keys()
    collector = run(RolloutsVectorEnv("HalfCheetah-v5", num_envs=2, seed=0), "native")
    assert collector.buffer.info.get_keys() == {"env_id"}
    env = cartpole()
    hook = EpisodeRolloutHookMCReturn()
    collector = RolloutsCollector(make_actor(env), env, None, on_episode_done_hook=hook)
    collector.reset()
    collector.collect(n_step=5)
    assert "on_episode_done_hook" in collector.why_not_native
    with pytest.raises(SpecError, match="rollout_engine must be one of"):
        run(cartpole(), "numpy")


def test_torch_and_native_take_turns_on_one_collector() -> None:
    env = cartpole()
    collector = RolloutsCollector(make_actor(env), env, VectorReplayBuffer(5000, NUM_ENVS))
    collector.reset()
    for engine in ("native", "torch", "native"):
        collector.rollout_engine = engine
        collector.collect(n_step=300)
        assert collector.engine == engine
        collector.collect(n_episode=7)
    collector.collect(n_step=50, random=True)
    for one in collector.buffer.buffers:
        rows = slice(0, len(one))
        goes_on = ~one.done[rows][:-1]
        kept = one.obs_next[rows][:-1][goes_on], one.obs[rows][1:][goes_on]
        # n_episode begins new episodes everywhere
        broken = (kept[0] != kept[1]).any(1).sum()
        assert broken <= 3
    env.close()


def test_an_error_in_the_rollout_leaves_the_buffer_as_it_was() -> None:
    env = cartpole()
    policy = make_actor(env)
    collector = RolloutsCollector(policy, env, VectorReplayBuffer(1000, NUM_ENVS))
    collector.reset()
    collector.collect(n_step=100)
    with torch.no_grad():
        # overflows once observations are large
        policy.actor.last.model[-1].weight.fill_(3e38)
    with pytest.raises((SpecError, EnvError), match="expected a finite number"):
        collector.collect(n_step=100)
    assert len(collector.buffer) == 100
    with pytest.raises(ValueError, match="call reset"):
        collector.collect(n_step=100)
    with torch.no_grad():
        policy.actor.last.model[-1].weight.zero_()
    collector.reset()
    collector.collect(n_step=100)
    assert collector.engine == "native"
    env.close()


def test_layers_with_hooks_are_not_asked_in_silence() -> None:
    env = cartpole()
    policy: Any = categorical(env)
    heard: list[int] = []
    policy.actor.register_forward_hook(lambda layer, args, output: heard.append(len(args[0])))
    collector = RolloutsCollector(policy, env, VectorReplayBuffer(1000, NUM_ENVS))
    collector.reset()
    collector.collect(n_step=10)
    assert "hooks" in collector.why_not_native
    assert heard == [NUM_ENVS, NUM_ENVS]
    env.close()
