# SPDX-License-Identifier: Apache-2.0
"""Rewards and ends from Python through autoreset modes, batches, states, and pickling."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from own_robot_world import LIMIT, draw_actions, make, reward, terminated

import rollouts
from rollouts.errors import ProtocolError, SpecError
from rollouts.own_model import ModelStep

# what a pool returns, for the same actions of each environment, whatever the batches are
Row = tuple[float, bool, bool, float, int]


def rows_of(env: rollouts.VectorEnv, steps: int) -> list[list[Row]]:
    """Steps every environment `steps` times with actions of its own; rows by environment."""
    generators = [np.random.default_rng(i) for i in range(env.num_envs)]
    rows: list[list[Row]] = [[] for _ in range(env.num_envs)]
    env.async_reset()
    while min(len(each) for each in rows) < steps + 1:
        _, value, ended, limited, info = env.recv()
        ids = info["env_id"]
        for i, row in enumerate(ids.tolist()):
            length = int(info["episode_length"][i])
            returns = float(info["episode_return"][i])
            rows[row].append((float(value[i]), bool(ended[i]), bool(limited[i]), returns, length))
        actions = np.concatenate([draw_actions(generators[row], 1) for row in ids])
        env.send(actions, ids)
    return [each[: steps + 1] for each in rows]


def test_asynchronous_batches_have_the_rows_of_synchronous_ones() -> None:
    with make(6, num_threads=2) as sync, make(6, num_threads=2, batch_size=2) as out_of_order:
        assert rows_of(out_of_order, 150) == rows_of(sync, 150)


def test_functions_see_each_row_with_its_env_id_action_and_past() -> None:
    seen: list[ModelStep] = []

    def remember(step: ModelStep) -> Any:
        seen.append(step)
        return step.env_ids * 1.0

    options = {"observation": ["qpos", "qvel"], "reward": remember, "terminated": None}
    with make(5, batch_size=2, env_id_offset=100, **options) as env:
        last, sent = {}, {}
        obs, info = env.reset()
        generator = np.random.default_rng(0)
        for _ in range(60):
            for i, row in enumerate(info["env_id"].tolist()):
                last[row], sent[row] = obs[i].copy(), draw_actions(generator, 1)[0]
            env.send(np.stack([sent[row] for row in info["env_id"].tolist()]))
            obs, value, _, _, info = env.recv()
            if not (info["episode_length"] > 0).any():
                continue  # first observations only: no function is called
            step = seen[-1]
            np.testing.assert_array_equal(step.env_ids, info["env_id"])
            np.testing.assert_array_equal(step.dt, [0.02, 0.02])
            np.testing.assert_array_equal(value, np.where(step.stepped, info["env_id"], 0))
            now = np.concatenate([step["qpos"], step["qvel"]], axis=1)
            before = np.concatenate([step.previous["qpos"], step.previous["qvel"]], axis=1)
            np.testing.assert_array_equal(now, obs)
            for i in np.flatnonzero(step.stepped):
                row = int(info["env_id"][i])
                np.testing.assert_array_equal(before[i], last[row])
                np.testing.assert_array_equal(step.actions[i], sent[row])
            np.testing.assert_array_equal(before[~step.stepped], now[~step.stepped])


def test_same_step_autoreset_keeps_the_last_observation_aside() -> None:
    generator = np.random.default_rng(3)
    actions = draw_actions(generator, 4 * 300).reshape(300, 4, 2)
    with make(4, autoreset_mode="same_step") as env, make(4, autoreset_mode="disabled") as plain:
        env.reset()
        plain.reset()
        kinds = set()
        for action in actions:
            obs, value, ended, limited, info = env.step(action)
            want = plain.step(action)
            for ours, theirs in zip((value, ended, limited), want[1:4], strict=True):
                np.testing.assert_array_equal(ours, theirs)
            over = ended | limited
            for name in ("episode_return", "episode_length", "site_xpos:tip", "time"):
                # those of the step that ended an episode lie beside the next one's first ones
                own = over.any() and name in info["final_info"]
                last = info[name].copy()
                last[over] = info["final_info"][name][over] if own else last[over]
                np.testing.assert_array_equal(last, want[4][name])
            kinds |= {*zip(ended[over].tolist(), limited[over].tolist(), strict=True)}
            if not over.any():
                np.testing.assert_array_equal(obs, want[0])
                continue
            for row in np.flatnonzero(over):
                np.testing.assert_array_equal(info["final_obs"][row], want[0][row])
            np.testing.assert_array_equal(obs, plain.reset(options={"reset_mask": over})[0])
        assert kinds >= {(True, False), (False, True)}


def test_disabled_autoreset_refuses_to_step_what_a_function_has_ended() -> None:
    with make(2, autoreset_mode="disabled", terminated=lambda s: s.env_ids == 1) as env:
        env.reset()
        actions = np.zeros((2, 2), np.float32)
        assert env.step(actions)[2].tolist() == [False, True]
        with pytest.raises(ProtocolError, match=r"env_id 1 .*has ended its episode"):
            env.step(actions)
        _, info = env.reset(options={"reset_mask": np.array([False, True])})
        assert info["episode_length"].tolist() == [1, 0]
        assert env.step(actions)[4]["episode_length"].tolist() == [2, 1]


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_out_arrays_are_filled_and_do_not_disturb_the_past(mode: str) -> None:
    generator = np.random.default_rng(1)
    with make(3, autoreset_mode=mode) as own, make(3, autoreset_mode=mode) as given:
        size = own.single_observation_space.shape[0]
        out = {
            "obs": np.zeros((3, size)),
            "reward": np.zeros(3),
            "terminated": np.zeros(3, np.bool_),
            "episode_return": np.zeros(3),
        }
        own.reset()
        given.reset()
        for _ in range(2 * LIMIT):
            action = draw_actions(generator, 3)
            want = own.step(action)
            found = given.step(action, out=out)
            assert found[0] is out["obs"] or np.shares_memory(found[0], out["obs"])
            np.testing.assert_array_equal(out["obs"], want[0])
            np.testing.assert_array_equal(out["reward"], want[1])
            np.testing.assert_array_equal(out["terminated"], want[2])
            np.testing.assert_array_equal(out["episode_return"], want[4]["episode_return"])
            out["obs"][:] = np.nan  # it is the caller's now


def test_states_keep_return_end_and_past() -> None:
    generator = np.random.default_rng(2)
    warmup, later = draw_actions(generator, 60).reshape(30, 2, 2), draw_actions(generator, 200)
    with make(2) as env, make(2, seed=99) as other:
        env.reset()
        for action in warmup:
            env.step(action)
        states = env.get_state()
        other.set_state(None, states)
        for action in later.reshape(100, 2, 2):
            want, found = env.step(action), other.step(action)
            for ours, theirs in zip(found[:4], want[:4], strict=True):
                np.testing.assert_array_equal(ours, theirs)
            np.testing.assert_array_equal(found[4]["episode_return"], want[4]["episode_return"])


def test_it_pickles_with_functions_that_have_no_module() -> None:
    weight = 3.0
    with make(2, reward=lambda step: weight * step["qvel"][:, 0]) as env:
        copy = pickle.loads(pickle.dumps(env))
        actions = np.ones((2, 2), np.float32)
        with copy:
            env.reset()
            copy.reset()
            for _ in range(5):
                np.testing.assert_array_equal(env.step(actions)[1], copy.step(actions)[1])


def test_a_functions_exception_is_the_users_and_a_reset_mends_it() -> None:
    fails = []

    def fail_on_request(step: ModelStep) -> Any:
        if fails:
            raise ZeroDivisionError(fails.pop())
        return reward(step)

    actions = np.zeros((2, 2), np.float32)
    with make(2, reward=fail_on_request) as env:
        env.reset()
        env.step(actions)
        fails.append("mine")
        with pytest.raises(ZeroDivisionError, match="mine"):
            env.step(actions)
        with pytest.raises(ProtocolError, match=r"reward raised .* call reset\(\) first"):
            env.step(actions)
        env.reset()
        assert env.step(actions)[4]["episode_length"].tolist() == [1, 1]


def test_a_simulation_that_fails_is_no_row_of_the_functions(tmp_path: Any) -> None:
    from own_robot_world import XML

    unstable = tmp_path / "unstable.xml"
    with open(XML) as file:
        unstable.write_text(file.read().replace('gear="6"', 'gear="1e9"'))

    def finite(step: ModelStep) -> Any:
        assert (step.dt == 0.02).all() and step["qpos[1:]"].any(axis=1).all()
        return reward(step)

    options = {"xml_file": [XML, str(unstable)], "on_env_error": "reset", "reward": finite}
    for mode in ("next_step", "same_step"):
        with make(2, autoreset_mode=mode, terminated=None, **options) as env:
            env.reset()
            failures = 0
            for _ in range(80):
                _, value, ended, limited, info = env.step(np.ones((2, 2), np.float32))
                if "env_error" in info:
                    failures += 1
                    assert info["_env_error"].tolist() == [False, True]
                    assert value[1] == 0 and limited[1] and not ended[1]
            assert failures > 5


def test_torch_functions_run_on_the_same_arrays() -> None:
    torch = pytest.importorskip("torch")

    def torch_reward(step: ModelStep) -> Any:
        speed = torch.tensor(step["site_xpos:tip"] - step.previous["site_xpos:tip"]).norm(dim=1)
        return speed / torch.tensor(step.dt) - 0.1 * torch.tensor(step.actions).square().sum(1)

    actions = np.ones((3, 2), np.float32)
    with make(3) as numpy_env, make(3, reward=torch_reward) as torch_env:
        numpy_env.reset()
        torch_env.reset()
        for _ in range(20):
            want, found = numpy_env.step(actions), torch_env.step(actions)
            np.testing.assert_allclose(found[1], want[1], rtol=1e-6, atol=1e-6)  # float32 sums


def test_compiled_steps_are_refused() -> None:
    pytest.importorskip("jax")
    with make(2) as env, pytest.raises(SpecError, match="reward and terminated are Python"):
        env.xla()


def test_gymnasium_makes_it_by_id() -> None:
    import gymnasium
    from own_robot_world import XML

    options = {
        "xml_file": XML,
        "reward": reward,
        "terminated": terminated,
        "info": ["site_xpos:tip", "qpos:shoulder"],
    }
    single = gymnasium.make("rollouts/MuJoCo-v0", disable_env_checker=True, seed=1, **options)
    single.reset(seed=1)
    assert single.step(np.ones(2, np.float32))[1] != 0
    single.close()
