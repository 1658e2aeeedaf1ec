# SPDX-License-Identifier: Apache-2.0
"""`rollouts.from_env_fns` returns what Gymnasium's SyncVectorEnv returns, and more."""

from __future__ import annotations

import functools
import os
import pickle
import signal
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics
from host_envs import Counter, Sampler, Talker

import rollouts

SPACES = [
    spaces.Discrete(3, start=-1),
    spaces.Box(0, 255, (2, 2, 3), np.uint8),
    spaces.Box(-np.inf, np.inf, (), np.float64),
    spaces.MultiDiscrete([[2, 3], [3, 2]]),
    spaces.MultiBinary([2, 3]),
    spaces.Text(6),
    spaces.Tuple((spaces.Discrete(5), spaces.Tuple((spaces.Box(0, 1, (3,)), spaces.Discrete(2))))),
    spaces.Dict(a=spaces.Box(0, 1, (3, 3)), b=spaces.Dict(c=spaces.Discrete(4), d=spaces.Text(3))),
    spaces.Graph(spaces.Box(-1, 1, (2,)), spaces.Discrete(4)),
    spaces.Dict(g=spaces.Graph(spaces.Discrete(3), None), x=spaces.Box(0, 1, (2,))),
    spaces.Sequence(spaces.Box(0, 1, (1,))),
    spaces.OneOf([spaces.Discrete(3), spaces.Box(0, 1, (1,))]),
]
MODES = list(AutoresetMode)
# in this process, and in two
PROCESSES = pytest.mark.parametrize("num_processes", [0, 2])


def counters(num_envs: int, kind: type = Counter) -> list[Any]:
    return [functools.partial(kind, length=2 + i % 3) for i in range(num_envs)]


def assert_same(ours: Any, theirs: Any) -> None:
    assert data_equivalence(ours, theirs, exact=True), (ours, theirs)


@PROCESSES
@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
@pytest.mark.parametrize("kind", [Counter, Talker])
def test_steps_and_infos_equal_those_of_the_sync_vector_env(
    mode: AutoresetMode, kind, num_processes: int
) -> None:
    functions = counters(5, kind)
    theirs = SyncVectorEnv(functions, autoreset_mode=mode)
    with rollouts.from_env_fns(functions, num_processes=num_processes, autoreset_mode=mode) as ours:
        assert ours.observation_space == theirs.observation_space
        assert ours.action_space == theirs.action_space
        assert ours.metadata["autoreset_mode"] is mode
        assert_same(ours.reset(seed=3), theirs.reset(seed=3))
        for actions in np.random.default_rng(0).integers(0, 9, (12, 5)):
            assert_same(ours.step(actions), theirs.step(actions))


@PROCESSES
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("space", SPACES, ids=str)
def test_every_space_survives_the_way_through_the_processes(
    space, mode: AutoresetMode, num_processes: int
) -> None:
    functions = [functools.partial(Sampler, space)] * 3
    theirs = SyncVectorEnv(functions, autoreset_mode=mode)
    with rollouts.from_env_fns(functions, num_processes=num_processes, autoreset_mode=mode) as ours:
        assert_same(ours.reset(seed=1), theirs.reset(seed=1))
        ours.action_space.seed(0)
        for _ in range(3 if mode is AutoresetMode.DISABLED else 5):
            actions = ours.action_space.sample()
            assert_same(ours.step(actions), theirs.step(actions))


def test_start_methods_that_pickle_work_with_lambdas_and_other_modules() -> None:
    made = rollouts.from_env_fns(
        [lambda: gymnasium.make("CartPole-v1")] * 3, num_processes=2, start_method="spawn"
    )
    with made as envs:
        obs, _ = envs.reset(seed=0)
        again, _ = SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * 3).reset(seed=0)
        np.testing.assert_array_equal(obs, again)


@PROCESSES
def test_masked_reset_leaves_other_rows_and_the_callers_dict_alone(num_processes: int) -> None:
    functions = counters(4)
    theirs = SyncVectorEnv(functions, autoreset_mode=AutoresetMode.DISABLED)
    made = rollouts.from_env_fns(functions, num_processes=num_processes, autoreset_mode="disabled")
    with made as ours:
        for envs in (ours, theirs):
            envs.reset(seed=0)
            envs.step(np.arange(4))
        options = {"reset_mask": np.array([True, False, False, True]), "x": 1}
        got = ours.reset(seed=9, options=options)
        assert "reset_mask" in options
        assert_same(got, theirs.reset(seed=9, options=options))
        assert ours.get_attr("options") == ({"x": 1}, None, None, {"x": 1})


def test_statistics_of_a_wrapper_survive_a_masked_reset() -> None:
    with rollouts.from_env_fns(counters(3), num_processes=1, autoreset_mode="disabled") as envs:
        wrapped = RecordEpisodeStatistics(envs)
        wrapped.reset()
        wrapped.step([1, 1, 1])
        wrapped.reset(options={"reset_mask": np.array([True, False, False])})
        assert wrapped.episode_lengths.tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    "mask",
    [[True, True, False], np.array([True]), np.array([1, 0, 1])],
    ids=str,
)
def test_bad_masks_are_refused_and_change_nothing(mask: Any) -> None:
    with rollouts.from_env_fns(counters(3), num_processes=1, autoreset_mode="disabled") as envs:
        envs.reset()
        with pytest.raises((ValueError, TypeError), match="reset_mask"):
            envs.reset(options={"reset_mask": mask})
        assert envs.step([0, 0, 0])[0][:, 0].tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("actions", "error"),
    [
        ([1, 2], ValueError),
        ([1, 2, 3, 4], ValueError),
        ([[1], [2], [3]], ValueError),
        (5, TypeError),
        ([0.5, 1.0, 1.0], TypeError),
        (["a", "b", "c"], TypeError),
    ],
)
def test_bad_actions_are_refused_before_anything_is_sent(actions: Any, error: type) -> None:
    with rollouts.from_env_fns(counters(3), num_processes=2) as envs:
        envs.reset()
        with pytest.raises(error, match="actions"):
            envs.step(actions)
        assert envs.num_in_flight == 0
        assert envs.step([1, 1, 1])[1].tolist() == [1, 1, 1]


def test_order_of_calls_is_checked() -> None:
    with rollouts.from_env_fns(counters(3), autoreset_mode="disabled") as envs:
        with pytest.raises(rollouts.ProtocolError, match="never reset"):
            envs.step([0, 0, 0])
        with pytest.raises(rollouts.ProtocolError, match="never reset"):
            envs.reset(options={"reset_mask": np.array([True, False, False])})
        envs.reset()
        envs.send([0, 0], [0, 2])
        with pytest.raises(rollouts.ProtocolError, match="env_id 2 is in flight"):
            envs.send([0], [2])
        with pytest.raises(rollouts.ProtocolError, match="in flight"):
            envs.call("steps")
        with pytest.raises(rollouts.SpecError, match="expected 0 to 2"):
            envs.send([0], [3])
        assert envs.recv()[0][:, 0].tolist() == [1, 1]
        with pytest.raises(rollouts.ProtocolError, match="in flight"):
            envs.recv()
        envs.step([0, 0, 0])
        with pytest.raises(rollouts.ProtocolError, match="env_id 0 has ended"):
            envs.step([0, 0, 0])


def test_recv_returns_rows_in_the_order_sent() -> None:
    with rollouts.from_env_fns(counters(4), num_processes=2, env_id_offset=10) as envs:
        envs.reset()
        envs.send([7, 8], [13, 10])
        envs.send([9], [11])
        batch = envs.recv_batch()
        assert batch.env_id.tolist() == [13, 10, 11]
        assert batch.reward.tolist() == [7, 8, 9]
        assert batch.final_obs is None


@PROCESSES
@pytest.mark.parametrize("mode", ["next_step", "same_step"])
@pytest.mark.parametrize("batch_size", [None, 2])
def test_episode_statistics_are_those_of_the_episodes(
    mode: str, batch_size: int | None, num_processes: int
) -> None:
    options = {"autoreset_mode": mode, "episode_statistics": True, "num_processes": num_processes}
    made = rollouts.from_env_fns(counters(5), batch_size=batch_size, **options)
    returns, lengths = np.zeros(5), np.zeros(5, int)
    has_ended, num_ended = np.zeros(5, bool), 0
    with made as envs:
        envs.async_reset()
        info = envs.recv()[4]
        for _ in range(60):
            ids = info["env_id"]
            envs.send(ids + 1, ids)
            _, reward, terminated, truncated, info = envs.recv()
            for row, env in enumerate(info["env_id"]):
                if info["episode_length"][row] == 0:  # began an episode
                    assert reward[row] == 0
                    returns[env] = lengths[env] = 0
                else:
                    if has_ended[env]:
                        returns[env] = lengths[env] = 0
                    returns[env] += env + 1
                    lengths[env] += 1
                has_ended[env] = terminated[row] or truncated[row]
                num_ended += has_ended[env]
                assert info["episode_return"][row] == returns[env]
                assert info["episode_length"][row] == lengths[env]
                if has_ended[env]:
                    assert lengths[env] == 2 + env % 3
                    if mode == "same_step":
                        assert info["final_info"]["episode_return"][row] == returns[env]
                        assert info["final_obs"][row][0] == lengths[env]
    assert num_ended > 20


@PROCESSES
def test_async_batches_hold_the_first_to_finish_and_every_environment_comes(
    num_processes: int,
) -> None:
    with rollouts.from_env_fns(counters(6), num_processes=num_processes, batch_size=2) as envs:
        envs.async_reset()
        seen = []
        for _ in range(3):
            seen += envs.recv()[4]["env_id"].tolist()
        assert sorted(seen) == [0, 1, 2, 3, 4, 5]
        envs.send([0] * 6, range(6))
        info = envs.recv(min_envs=1, max_envs=6)[4]
        rest = envs.drain()[4]
        assert sorted([*info["env_id"], *rest["env_id"]]) == [0, 1, 2, 3, 4, 5]
        with pytest.raises(rollouts.ProtocolError):
            envs.recv()
        with pytest.raises(rollouts.SpecError, match="min_envs"):
            envs.recv(min_envs=7)


def test_out_gets_the_rows() -> None:
    made = rollouts.from_env_fns(counters(4), num_processes=2, autoreset_mode="same_step")
    with made as envs, rollouts.from_env_fns(counters(4), autoreset_mode="same_step") as plain:
        envs.reset()
        plain.reset()
        for _ in range(5):
            plain.send([1, 2, 3, 4])
            expected = plain.recv_batch()
            out = {name: np.full_like(getattr(expected, name), 7) for name in expected._fields[:-1]}
            envs.send([1, 2, 3, 4], out=out)
            batch = envs.recv_batch()
            for name in out:
                assert getattr(batch, name) is out[name]
                rows = expected.terminated if name == "final_obs" else slice(None)
                np.testing.assert_array_equal(out[name][rows], getattr(expected, name)[rows])
        with pytest.raises(rollouts.SpecError, match="expected \\(4, 2\\) and float32"):
            envs.send([0] * 4, out={"obs": np.zeros((4, 2))})
        with pytest.raises(rollouts.SpecError, match="unknown key"):
            envs.send([0] * 4, out={"observation": np.zeros((4, 2))})


def test_returned_arrays_stay_as_they_are_and_views_do_not() -> None:
    with rollouts.from_env_fns(counters(2), copy=True) as envs:
        first, _ = envs.reset()
        kept = first.copy()
        envs.step([0, 0])
        np.testing.assert_array_equal(first, kept)
    with rollouts.from_env_fns(counters(2), copy=False) as envs:
        first, _ = envs.reset()
        envs.step([0, 0])
        assert first[:, 0].tolist() == [1, 1]


def test_seed_of_the_first_reset_and_the_offset() -> None:
    with rollouts.from_env_fns(counters(3), seed=5, env_id_offset=2, num_processes=2) as envs:
        assert envs.reset()[1]["seed"].tolist() == [7, 8, 9]
        assert envs.reset()[1]["seed"].tolist() == [-1, -1, -1]
        assert envs.reset(seed=[4, None, 6])[1]["seed"].tolist() == [4, -1, 6]
        assert envs.np_random_seed == (4, 8, 6)
        with pytest.raises(rollouts.SpecError, match="seed has 2 entries"):
            envs.reset(seed=[1, 2])


def test_attributes_and_calls_reach_every_environment() -> None:
    functions = [lambda: gymnasium.make("CartPole-v1", render_mode="rgb_array")] * 3
    with rollouts.from_env_fns(functions, num_processes=2) as envs:
        assert envs.render_mode == "rgb_array"
        envs.set_attr("gravity", [1.0, 2.0, 3.0])
        assert envs.get_attr("gravity") == (1.0, 2.0, 3.0)
        envs.set_attr("gravity", 4.0)
        assert envs.call("gravity") == (4.0, 4.0, 4.0)
        envs.reset(seed=0)
        pytest.importorskip("pygame", reason="CartPole draws with pygame")
        frames = envs.render()
        assert len(frames) == 3 and frames[0].shape[2] == 3
        with pytest.raises(rollouts.SpecError, match="2 values"):
            envs.set_attr("gravity", [1.0, 2.0])


def test_stats_count_steps_and_time_them() -> None:
    with rollouts.from_env_fns(counters(4), num_processes=2) as envs:
        envs.reset()
        for _ in range(40):
            envs.step([0] * 4)
        stats = envs.stats()
        assert (stats.env_steps, stats.num_recvs, stats.num_env_errors) == (160, 41, 0)
        assert stats.step_time_s.count >= 8 and stats.batch_wait_s.count == 41
        assert 0 < stats.step_time_s.p50 <= stats.step_time_s.max
        assert (stats.env_step_time_s > 0).all()
        envs.reset_stats()
        assert envs.stats().env_steps == 0 and envs.stats().step_time_s.count == 0
    assert envs.stats().num_in_flight == 0


def test_spaces_that_differ_are_refused_or_batched() -> None:
    functions = [functools.partial(Counter, spaces_n=10), functools.partial(Counter, spaces_n=10)]
    boxes = [lambda: Sampler(spaces.Box(0, 1, (2,)), spaces.Discrete(2)),
             lambda: Sampler(spaces.Box(0, 2, (2,)), spaces.Discrete(2))]  # fmt: skip
    with pytest.raises(RuntimeError, match="observation_mode='different'"):
        rollouts.from_env_fns(boxes, num_processes=2)
    with rollouts.from_env_fns(boxes, observation_mode="different") as envs:
        assert envs.observation_space.high.tolist() == [[1, 1], [2, 2]]
        envs.reset()
        envs.step([0, 1])
    with pytest.raises(rollouts.SpecError, match="action spaces"):
        rollouts.from_env_fns([*functions[:1], lambda: Sampler(functions[1]().observation_space)])


def test_pickling_makes_fresh_environments_by_the_same_arguments() -> None:
    with rollouts.from_env_fns([lambda: Counter()] * 2, seed=3, num_processes=1) as envs:
        envs.reset()
        envs.step([1, 1])
        with pickle.loads(pickle.dumps(envs)) as again:
            assert again.num_processes == 1
            assert again.reset()[1]["seed"].tolist() == [3, 4]


def test_recv_that_timed_out_is_made_up_for_later() -> None:
    class Waiting(Counter):
        def act(self, action: int) -> None:
            signal.sigwait({signal.SIGUSR1})

    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})  # for the processes to inherit
    try:
        with rollouts.from_env_fns(
            [Waiting, Counter], num_processes=2, start_method="spawn"
        ) as envs:
            envs.reset()
            pid = envs.call("pid_of")[0]
            envs.send([1, 1])
            for _ in range(2):
                with pytest.raises(TimeoutError, match=r"took longer than 0\.05 s"):
                    envs.recv(timeout_s=0.05)
            assert envs.num_in_flight == 2
            os.kill(pid, signal.SIGUSR1)
            assert envs.recv(timeout_s=120)[1].tolist() == [1, 1]
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})
