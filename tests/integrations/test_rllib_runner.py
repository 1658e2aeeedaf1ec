# SPDX-License-Identifier: Apache-2.0
"""RolloutsEnvRunner beside RLlib's own runner on the same environments: equal episodes."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pytest

pytest.importorskip(
    "ray.tune", exc_type=ImportError, reason="RLlib is not installed: pip install 'rollouts[rllib]'"
)

import torch
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from rllib_cases import ByPool, ByTorch, columns, config_of, stitched
from rollouts.integrations import rllib


def both(
    env: str, num_envs: int = 4, runner: Any = rllib.RolloutsEnvRunner, **env_config: Any
) -> tuple[Any, Any]:
    """Our runner, and RLlib's own on our plug-in, with equal weights."""
    ours = runner(config=config_of(env, num_envs, **env_config))
    stock = SingleAgentEnvRunner(config=config_of(rllib.register(env), num_envs, **env_config))
    stock.module.load_state_dict(ours.module.state_dict())
    assert ours.slow_reason == ""
    return ours, stock


def facts(episode: SingleAgentEpisode) -> tuple[Any, ...]:
    """All of an episode that is not an array."""
    return (
        episode.t_started,
        episode.t,
        len(episode),
        episode.is_terminated,
        episode.is_truncated,
        episode.is_numpy,
        episode.observations.lookback,
        episode.actions.lookback,
        episode.rewards.lookback,
        len(episode.infos),
        sorted(episode.extra_model_outputs),
    )


def assert_same(ours: SingleAgentEpisode, stock: SingleAgentEpisode) -> None:
    """Equal to the bit, dtypes included; log-probabilities up to another order of additions."""
    ours.validate()
    assert facts(ours) == facts(stock)
    theirs = columns(stock)
    for name, array in columns(ours).items():
        assert array.dtype == theirs[name].dtype, name
        if name in ("action_logp", "action_dist_inputs"):
            # the batch is the same, its place in memory is not: kernels may round otherwise
            np.testing.assert_allclose(array, theirs[name], rtol=1e-5, atol=1e-6)
        else:
            np.testing.assert_array_equal(array, theirs[name], err_msg=name)


@pytest.mark.parametrize(
    ("env_id", "runner", "options"),
    [
        # actions of one of several are the same on each engine
        ("CartPole-v1", ByPool, {"max_episode_steps": 13}),
        ("Acrobot-v1", ByPool, {"max_episode_steps": 10}),
        ("CartPole-v1", ByTorch, {"max_episode_steps": 13}),
        ("Pendulum-v1", ByTorch, {"max_episode_steps": 9}),
        ("MountainCarContinuous-v0", ByTorch, {"max_episode_steps": 11}),
    ],
)
def test_episodes_are_those_of_rllib_s_own_runner(
    env_id: str, runner: Any, options: dict[str, int]
) -> None:
    ours, stock = both(env_id, runner=runner, **options)
    mine = [e for _ in range(6) for e in ours.sample(num_timesteps=40, explore=False)]
    theirs = [e for _ in range(7) for e in stock.sample(num_timesteps=40, explore=False)]
    mine_whole, theirs_whole = stitched(mine), stitched(theirs)
    ended = {k: v for k, v in mine_whole.items() if any(v["end"])}
    assert len(ended) >= 12
    for key, episode in ended.items():
        other = theirs_whole[key]
        assert episode["end"] == other["end"]
        for name in ("obs", "actions", "rewards"):
            np.testing.assert_array_equal(episode[name], other[name])


def test_chunks_before_the_first_end_are_equal_in_everything() -> None:
    ours, stock = both("CartPole-v1")
    for steps in (4, 8, 4, 12):
        mine = ours.sample(num_timesteps=steps, explore=False)
        theirs = stock.sample(num_timesteps=steps, explore=False)
        if any(e.is_done for e in [*mine, *theirs]):
            pytest.fail("an episode ended within 7 steps; choose another seed")
        for one, other in zip(mine, theirs, strict=True):
            assert_same(one, other)


@pytest.mark.parametrize("lookback", [0, 1, 3])
def test_continued_chunks_look_back_on_what_was_returned_before(lookback: int) -> None:
    config = config_of("CartPole-v1", 3, max_episode_steps=10)
    config.env_runners(episode_lookback_horizon=lookback)
    runner = rllib.RolloutsEnvRunner(config=config)
    before: dict[str, SingleAgentEpisode] = {}
    seen = 0
    for _ in range(12):
        chunks = runner.sample(num_timesteps=3 * 4)
        for chunk in chunks:
            lb = chunk.observations.lookback
            assert lb == min(lookback, chunk.t_started)
            if lb:
                seen += 1
                # a call has 4 steps, more than the lookback
                past = before[chunk.id_]
                for name, array in columns(chunk).items():
                    old = columns(past)[name]
                    count = lb + 1 if name == "obs" else lb
                    np.testing.assert_array_equal(array[:count], old[len(old) - count :])
        before = {chunk.id_: chunk for chunk in chunks}
    assert seen >= 12 if lookback else seen == 0


def test_num_episodes_returns_whole_episodes_from_fresh_resets() -> None:
    ours, stock = both("CartPole-v1")
    ours.sample(num_timesteps=16)
    mine = ours.sample(num_episodes=7, explore=False)
    theirs = stock.sample(num_episodes=7, explore=False)
    assert len(mine) == len(theirs) == 7
    for one in mine:
        assert one.is_done and one.t_started == 0 and one.observations.lookback == 0
    # ours reset without a seed, after its first call: a second runner begins as RLlib's does
    again, _ = both("CartPole-v1")
    again.module.load_state_dict(stock.module.state_dict())
    mine = sorted(again.sample(num_episodes=7, explore=False), key=len)
    for one, other in zip(mine[:4], sorted(theirs, key=len)[:4], strict=True):
        assert_same(one, other)


def test_metrics_are_those_of_rllib_s_own_runner() -> None:
    ours, stock = both("CartPole-v1", max_episode_steps=20)
    results = []
    for runner in (ours, stock):
        runner.sample(num_episodes=9, explore=False)
        reduced = runner.get_metrics()
        results.append({name: getattr(v, "peek", lambda v=v: v)() for name, v in reduced.items()
                        if name.startswith("episode_")})  # fmt: skip
        assert runner.get_metrics() is not None
    mine, theirs = results
    assert set(mine) == set(theirs)
    for name in mine:
        if "duration" not in name:
            assert float(np.mean(mine[name])) == float(np.mean(theirs[name])), name


def test_returns_of_metrics_span_all_chunks_of_an_episode() -> None:
    runner = rllib.RolloutsEnvRunner(config=config_of("Pendulum-v1", 2, max_episode_steps=30))
    chunks = [chunk for _ in range(6) for chunk in runner.sample(num_timesteps=2 * 10)]
    ended = runner._ended
    assert [each.length for each in ended] == [30] * 4
    by_id: dict[str, float] = defaultdict(float)
    for chunk in chunks:
        by_id[chunk.id_] += float(chunk.get_return())
    assert sorted(by_id.values()) == pytest.approx(sorted(e.episode_return for e in ended))
    assert all(each.duration_s > 0 for each in ended)


def test_a_call_without_steps_leaves_episodes_as_they_are() -> None:
    runner = rllib.RolloutsEnvRunner(config=config_of("Pendulum-v1", 2, max_episode_steps=10))
    (before, _) = runner.sample(num_timesteps=8)
    assert runner.sample(num_timesteps=0) == []
    after = next(c for c in runner.sample(num_timesteps=16) if c.id_ == before.id_)
    assert after.t_started == 4 and [each.length for each in runner._ended] == [10, 10]


def test_terminated_and_truncated_may_both_hold() -> None:
    # a pole that falls in exactly as many steps as are allowed
    runner = rllib.RolloutsEnvRunner(config=config_of("CartPole-v1", 64))
    lengths = [len(e) for e in runner.sample(num_episodes=64, explore=False)]
    limit = min(lengths)
    config = config_of("CartPole-v1", 64, max_episode_steps=limit)
    short = rllib.RolloutsEnvRunner(config=config)
    short.module.load_state_dict(runner.module.state_dict())
    episodes = short.sample(num_episodes=64, explore=False)
    assert {len(e) for e in episodes} == {limit}
    assert any(e.is_terminated and e.is_truncated for e in episodes)
    assert any(e.is_truncated and not e.is_terminated for e in episodes)


def test_random_actions_carry_no_outputs_of_the_module() -> None:
    runner = rllib.RolloutsEnvRunner(config=config_of("CartPole-v1"))
    episodes = runner.sample(num_timesteps=40, random_actions=True)
    assert {name for e in episodes for name in e.extra_model_outputs} == {"weights_seq_no"}
    assert {int(a) for e in episodes for a in e.get_actions()} == {0, 1}
    # and the policy may take over in the middle of an episode
    after = runner.sample(num_timesteps=40)
    for episode in after:
        episode.validate()
        assert "action_logp" in episode.extra_model_outputs


def test_actions_follow_the_distribution_that_is_recorded() -> None:
    runner = rllib.RolloutsEnvRunner(config=config_of("CartPole-v1", 256))
    episodes = runner.sample(num_timesteps=256 * 64)
    logits = torch.tensor(
        np.concatenate([e.get_extra_model_outputs("action_dist_inputs") for e in episodes])
    )
    actions = torch.tensor(np.concatenate([e.get_actions() for e in episodes])).long()
    logp = np.concatenate([e.get_extra_model_outputs("action_logp") for e in episodes])
    log_probs = logits.log_softmax(-1)
    expected = log_probs.gather(1, actions[:, None])[:, 0].numpy()
    np.testing.assert_allclose(logp, expected, rtol=1e-5, atol=1e-6)
    # 16 384 draws: the mean is within 5 standard deviations
    p = log_probs.exp()[:, 1].numpy()
    spread = np.sqrt((p * (1 - p)).sum())
    assert abs(actions.numpy().sum() - p.sum()) < 5 * spread


def test_force_reset_starts_new_episodes() -> None:
    runner = rllib.RolloutsEnvRunner(config=config_of("CartPole-v1"))
    first = {e.id_ for e in runner.sample(num_timesteps=8)}
    again = runner.sample(num_timesteps=8)
    assert {e.id_ for e in again} == first
    fresh = runner.sample(num_timesteps=8, force_reset=True)
    assert not {e.id_ for e in fresh} & first
    assert all(e.t_started == 0 for e in fresh)


def test_steps_say_which_weights_they_were_taken_with() -> None:
    runner = rllib.RolloutsEnvRunner(config=config_of("CartPole-v1", max_episode_steps=100))
    state = runner.get_state()
    runner.sample(num_timesteps=8)
    runner.set_state({**state, "weights_seq_no": 5})
    for chunk in runner.sample(num_timesteps=8):
        versions = chunk.extra_model_outputs["weights_seq_no"].data.tolist()
        assert versions == [0, 5, 5]  # one step of lookback


def test_state_goes_from_one_runner_to_another() -> None:
    one = rllib.RolloutsEnvRunner(config=config_of("CartPole-v1"))
    two = rllib.RolloutsEnvRunner(config=config_of("CartPole-v1"))
    with torch.no_grad():
        for parameter in one.module.parameters():
            parameter.add_(0.5)
    two.set_state(one.get_state())
    for a, b in zip(one.sample(num_timesteps=24, explore=False),
                    two.sample(num_timesteps=24, explore=False), strict=True):  # fmt: skip
        np.testing.assert_array_equal(a.get_observations(), b.get_observations())
        np.testing.assert_array_equal(a.get_actions(), b.get_actions())


def test_arrays_of_episodes_are_writable_and_nobody_else_s() -> None:
    runner = rllib.RolloutsEnvRunner(config=config_of("CartPole-v1", max_episode_steps=10))
    chunks = runner.sample(num_timesteps=4 * 25)
    arrays = [(chunk.id_, name, array) for chunk in chunks
              for name, array in columns(chunk).items()]  # fmt: skip
    copies = [array.copy() for *_, array in arrays]
    # what the pool and the runner do next changes nothing that was handed out
    runner.sample(num_timesteps=4 * 25)
    for (*_, array), copy in zip(arrays, copies, strict=True):
        np.testing.assert_array_equal(array, copy)
    # and writing to one chunk changes no other
    for index, (*_, array) in enumerate(arrays):
        assert array.flags.writeable
        array[...] = 99
        for (*_, other), copy in zip(arrays[index + 1 :], copies[index + 1 :], strict=True):
            np.testing.assert_array_equal(other, copy)
