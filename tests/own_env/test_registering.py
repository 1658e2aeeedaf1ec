# SPDX-License-Identifier: Apache-2.0
"""An environment of one's own is an id like any other, and says what is wrong with it."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from own_envs import HEADERS, register_herd, register_vault

import rollouts
from rollouts.errors import DTypeError, EnvError, SpecError
from rollouts.own_env.registrations import OwnEnvId, env_source

pytestmark = pytest.mark.system

TEMPLATE = Path(rollouts.__file__).parent / "own_env" / "templates" / "one_agent.h"


@pytest.fixture
def header(tmp_path: Path, quickly: None) -> Path:
    path = tmp_path / "my_env.h"
    path.write_text(TEMPLATE.read_text())
    return path


def test_it_is_listed_and_described() -> None:
    assert register_vault() in rollouts.env_ids()
    assert register_herd() in rollouts.multi_agent_ids()
    assert "Herd-v0" not in rollouts.env_ids()
    spec = rollouts.env_spec("Vault-v0")
    assert spec.single_action_space == gymnasium.spaces.MultiDiscrete([4, 3, 5], dtype=np.int32)
    assert (spec.max_episode_steps, spec.reward_threshold, spec.cpu_only) == (40, None, False)
    assert spec.options == {"fog": 0.1, "most_tries": 20, "shown": False}
    assert spec.option_help["fog"] == "probability that a dial's answer is a lie"


def test_options_out_of_range_are_refused_with_their_help() -> None:
    with pytest.raises(SpecError, match=r"'fog' must be between 0 and 1, got 2; fog is: probab"):
        rollouts.make_vec(register_vault(), 2, fog=2)
    with pytest.raises(SpecError, match="options of row 1: option 'most_tries' must be"):
        rollouts.make_vec("Vault-v0", 2, most_tries=[3, 0])
    with pytest.raises(SpecError, match="these options change the number of agents of group dog"):
        rollouts.make_vec(register_herd(), 2, num_dogs=[1, 2])


def test_each_element_of_a_multi_discrete_action_is_taken_and_checked() -> None:
    with rollouts.make_vec(register_vault(), 3, shown=True, fog=0.0, seed=1) as env:
        obs, _ = env.reset()
        code = obs[:, 3:6].astype(np.int64)
        wrong = code.copy()
        wrong[1, 2] = (code[1, 2] + 1) % 5
        obs, reward, terminated, _, _ = env.step(wrong.astype(np.uint8))
        assert obs[:, :3].tolist() == [[1, 1, 1], [1, 1, 0], [1, 1, 1]]
        assert terminated.tolist() == [True, False, True]
        assert reward.tolist() == [10.0, pytest.approx(-0.1), 10.0]
        wrong[2, 1] = 3
        with pytest.raises(SpecError, match="row 2, element 1 is 3, expected 0 to 2"):
            env.step(wrong)
        with pytest.raises(rollouts.DTypeError, match="the action space is MultiDiscrete"):
            env.step(code.astype(np.float32))


def test_options_may_differ_by_environment_and_change_at_a_reset() -> None:
    with rollouts.make_vec(register_vault(), 3, shown=[False, True, False], seed=1) as env:
        obs, _ = env.reset()
        assert ((obs[:, 3:6] >= 0).all(1) == [False, True, False]).all()
        obs, _ = env.reset(options={"shown": True, "reset_mask": np.array([True, False, False])})
        assert ((obs[:, 3:6] >= 0).all(1) == [True, True, False]).all()
        assert list(env.env_options["shown"]) == [True, True, False]


def test_asynchronous_batches_hold_what_a_step_returns() -> None:
    actions = np.random.default_rng(3).integers([4, 3, 5], size=(50, 12, 3)).astype(np.int32)

    def rewards(batch_size: int) -> np.ndarray:
        seen = np.zeros((50, 12))
        count = np.zeros(12, int)
        with rollouts.make_vec(
            register_vault(), 12, batch_size=batch_size, seed=4, num_threads=2
        ) as env:
            env.async_reset()
            begun = np.zeros(12, bool)
            while (count < 50).any():
                _, reward, *_, info = env.recv()
                ids = info["env_id"]
                for row, one in enumerate(ids):
                    if begun[one] and count[one] < 50:
                        seen[count[one], one] = reward[row]
                        count[one] += 1
                    begun[one] = True
                env.send(np.stack([actions[min(count[one], 49), one] for one in ids]), ids)
        return seen

    np.testing.assert_array_equal(rewards(12), rewards(5))


def test_states_go_on_as_they_would_have_and_are_for_this_text_alone(header: Path) -> None:
    with rollouts.make_vec(register_vault(), 2, seed=1) as env:
        env.reset()
        saved = env.get_state()
        action = np.zeros((2, 3), np.int32)
        first = [env.step(action)[:4] for _ in range(5)]
        env.set_state(None, saved)
        again = [env.step(action)[:4] for _ in range(5)]
        for one, other in zip(first, again, strict=True):
            for array, same in zip(one, other, strict=True):
                np.testing.assert_array_equal(array, same)
    rollouts.register_env("States-v0", header=header, type="MyEnv")
    header.write_text(header.read_text().replace("0.01;", "0.02;"))
    rollouts.register_env("States-v1", header=header, type="MyEnv")
    with rollouts.make_vec("States-v0") as one, rollouts.make_vec("States-v1") as other:
        one.reset()
        other.reset()
        with pytest.raises(
            SpecError, match=r"is of a MyEnv of own/.* environment, expected one of MyEnv of own/"
        ):
            other.set_state(None, one.get_state())


@pytest.mark.parametrize("engine", ["native", "torch"])
def test_a_collector_has_native_code_compute_its_policy(engine: str) -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = torch.nn.Linear(7, 13)

        def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            out = self.body(obs)
            return out[:, :12], out[:, 12]

    torch.manual_seed(0)
    env = rollouts.make_vec(register_vault(), 6, seed=2, autoreset_mode="same_step")
    policy = rollouts.TorchPolicy(Net(), env.single_action_space, seed=1)
    with env:
        batch = rollouts.Collector(env, policy, 9, engine=engine).collect()
    assert batch.obs.shape[1:] == (6, 7)
    assert batch.action.shape == (9, 6, 3)


def test_it_may_be_mixed_with_one_of_equal_spaces(header: Path) -> None:
    rollouts.register_env("Mixed-v0", header=header, type="MyEnv", max_episode_steps=3)
    rollouts.register_env("Mixed-v1", header=header, type="MyEnv", max_episode_steps=5)
    with rollouts.make_vec(["Mixed-v0", "Mixed-v1", "Mixed-v0"], slip=1.0) as env:
        env.reset()
        ends = [env.step(np.ones(3, int))[3].tolist() for _ in range(5)]
    assert ends[2] == [True, False, True]
    assert ends[4] == [False, True, False]


def test_gymnasium_makes_it() -> None:
    register_vault()
    env = gymnasium.make("rollouts/Vault-v0", most_tries=3)
    obs, _ = env.reset(seed=1)
    assert obs in env.observation_space
    assert env.step(env.action_space.sample())[0] in env.observation_space
    assert gymnasium.make_vec("rollouts/Vault-v0", num_envs=3).num_envs == 3


def test_the_same_once_more_does_nothing_and_another_text_is_refused(header: Path) -> None:
    def register(**arguments: object) -> str:
        return rollouts.register_env("Twice-v0", header=header, type="MyEnv", **arguments)

    register(max_episode_steps=7)
    assert register(max_episode_steps=7) == "Twice-v0"
    with pytest.raises(
        SpecError, match=r"registered already, as type='MyEnv', max_episode_steps=7"
    ):
        register(max_episode_steps=8)
    header.write_text(header.read_text() + "// changed\n")
    with pytest.raises(SpecError, match="with another text of its header: take another id"):
        register(max_episode_steps=7)
    with pytest.raises(SpecError, match="'CartPole-v1' is one of our own ids"):
        rollouts.register_env("CartPole-v1", header=header, type="MyEnv")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"id": "My Env"}, "id must be letters"),
        ({"id": ""}, "id must be letters"),
        ({"type": "MyEnv; int x"}, "type must name a struct"),
        ({"max_episode_steps": 0}, "max_episode_steps must be a positive int or None, got 0"),
        ({"max_episode_steps": 2.5}, "max_episode_steps must be"),
        ({"header": "nowhere.h"}, "the header .*nowhere.h cannot be read"),
        ({"header": TEMPLATE.read_text()}, "header is text that begins with '// MyEnv: walk along"),
        ({"header": ""}, "header is '', expected the path of a file"),
        ({"header": None}, "header must be a path, as 'my_env.h' or a pathlib.Path, got None"),
        ({"header": b"my_env.h"}, "header must be a path, .*, got b'my_env.h'"),
        ({"max_episode_steps": True}, "max_episode_steps must be a positive int or None, got True"),
        ({"reward_threshold": "much"}, "reward_threshold must be a number or None, got 'much'"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict, message: str, header: Path) -> None:
    given = {"id": "Wrong-v0", "header": header, "type": "MyEnv"} | arguments
    with pytest.raises((SpecError, DTypeError), match=message):
        rollouts.register_env(given.pop("id"), **given)


def test_an_exception_and_a_number_that_is_not_finite_fail_their_environment_alone(
    header: Path,
) -> None:
    text = header.read_text().replace("#pragma once", "#pragma once\n#include <stdexcept>")
    text = text.replace(
        "const bool slips",
        'if (config.step_cost > 5) throw std::runtime_error("too dear");\n    const bool slips',
    )
    header.write_text(text)
    env_id = rollouts.register_env("Throws-v0", header=header, type="MyEnv")
    with rollouts.make_vec(env_id, 3, step_cost=[0.0, 6.0, 0.0], slip=1.0) as env:
        env.reset()
        with pytest.raises(EnvError, match=r"env_id 1.*too dear"):
            env.step(np.ones(3, int))
        _, reward, _, truncated, _ = env.recv()
    assert reward.tolist() == [0, 0, 0]
    assert truncated.tolist() == [False, True, False]


def test_an_id_brings_its_environment_to_another_process(header: Path, tmp_path: Path) -> None:
    env_id = rollouts.register_env("Travels-v0", header=header, type="MyEnv", max_episode_steps=9)
    assert isinstance(env_id, OwnEnvId)
    with rollouts.make_vec(str(env_id), 3, seed=1, slip=0.5) as env:
        (tmp_path / "pool").write_bytes(pickle.dumps([env_id, env]))
        expected = env.reset()[0].tolist()
    # the text is in the pickle: the file is gone
    header.unlink()
    code = (
        "import pickle, pathlib, rollouts\n"
        "assert 'Travels-v0' not in rollouts.env_ids()\n"
        f"env_id, env = pickle.loads(pathlib.Path({str(tmp_path / 'pool')!r}).read_bytes())\n"
        "assert env_id in rollouts.env_ids() and env.env_spec.max_episode_steps == 9\n"
        "print(env.reset()[0].tolist())"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.strip() == str(expected), result.stderr


def test_threads_may_register_at_once(header: Path) -> None:
    ids = [f"Thread-v{i % 3}" for i in range(12)]
    failures = []

    def register(env_id: str) -> None:
        try:
            rollouts.register_env(env_id, header=header, type="MyEnv")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=register, args=[one]) for one in ids]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert {*ids} <= {*rollouts.env_ids()}


def test_one_function_tells_other_compilers_where_the_text_is() -> None:
    source = env_source(register_vault())
    assert (source.header, source.type, source.multi_agent) == ("vault.h", "games::Vault", False)
    assert (source.include_dirs[0] / "parts/dials.h").is_file()
    assert source.include_dirs[1] == rollouts.include_dir()
    assert source.files is not None
    assert {*source.files.files} == {"vault.h", "parts/dials.h"}
    assert source.files.files["vault.h"] == (HEADERS / "vault.h").read_text()
    ours = env_source("TagGridWorld-v0")
    assert (ours.include_dirs[0] / ours.header).is_file()
    assert (ours.type, ours.multi_agent, ours.files) == ("TagGridWorld", True, None)


def test_what_rllib_registers_brings_the_text_to_its_workers(header: Path, tmp_path: Path) -> None:
    rllib = pytest.importorskip("rollouts.integrations.rllib")
    from ray.tune.registry import ENV_CREATOR, _global_registry

    rollouts.register_env("RLlib-v0", header=header, type="MyEnv")
    name = rllib.register("RLlib-v0", slip=1.0)
    creator = _global_registry.get(ENV_CREATOR, name)
    (tmp_path / "creator").write_bytes(pickle.dumps(creator))
    header.unlink()
    code = (
        "import pickle, pathlib\n"
        f"make = pickle.loads(pathlib.Path({str(tmp_path / 'creator')!r}).read_bytes())\n"
        "print(make({'num_envs': 3}).env_spec.options['slip'])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.strip() == "1.0", result.stderr
