# SPDX-License-Identifier: Apache-2.0
"""Other libraries' code for EnvPool runs on our module; and the two modules compared."""

from __future__ import annotations

import importlib
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import rollouts.integrations.envpool as ours

pytestmark = pytest.mark.system

LIMIT_S = 300


def run(code: str) -> str:
    """Runs code in a process of its own, since `install` changes the process."""
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_install_answers_imports_of_envpool_by_any_name() -> None:
    out = run(
        "import rollouts.integrations.envpool as ours; ours.install()\n"
        "import envpool, importlib.util\n"
        "from envpool.python.envpool import EnvPoolMixin\n"
        "from envpool.registration import make_gym\n"
        "assert envpool is ours and importlib.util.find_spec('envpool') is not None\n"
        "env = envpool.make('CartPole-v1', env_type='gym', num_envs=2)\n"
        "assert isinstance(env, EnvPoolMixin)\n"
        "assert isinstance(env, envpool.python.envpool.EnvPoolMixin)\n"
        "print(len(env.step(env.reset()[:, 0].astype(int) * 0)))\n"
        "ours.install(gym_api='new')\n"
        "print(len(make_gym('CartPole-v1').reset()))\n"
    )
    assert out.split() == ["4", "2"]


def test_install_refuses_to_hide_an_envpool_that_is_in_use() -> None:
    out = run(
        "import sys, types; sys.modules['envpool'] = types.ModuleType('envpool')\n"
        "import rollouts.integrations.envpool as ours\n"
        "try: ours.install()\n"
        "except RuntimeError as error: print(error)\n"
    )
    assert "imported already" in out


def test_rl_games_own_envpool_class_runs_on_it() -> None:
    pytest.importorskip("rl_games", reason="rl_games is not installed")
    out = run(
        "import numpy as np\n"
        "import rollouts.integrations.envpool as ours; ours.install()\n"
        "from rl_games.envs.envpool import Envpool\n"
        "env = Envpool('', 4, env_name='CartPole-v1', seed=1)\n"
        "assert env.reset().shape == (4, 4)\n"
        "ended = []\n"
        "for _ in range(60):\n"
        "    obs, reward, done, info = env.step(np.zeros(4, int))\n"
        "    ended += info['scores'][done].tolist()\n"
        "assert 'lives' not in info and info['time_outs'].shape == (4,)\n"
        "print(min(ended), max(ended))\n"
    )
    low, high = (float(word) for word in out.split())
    assert 7 <= low <= high <= 11


def test_torchrls_wrapper_runs_on_it() -> None:
    pytest.importorskip("torchrl", reason="TorchRL is not installed")
    pytest.importorskip("treevalue", reason="TorchRL's wrapper needs treevalue")
    out = run(
        "import sys, gymnasium, rollouts.integrations.envpool as ours; ours.install()\n"
        "sys.modules['gym'] = gymnasium  # the wrapper imports that name\n"
        "import envpool\n"
        "from torchrl.envs import MultiThreadedEnvWrapper\n"
        "env = MultiThreadedEnvWrapper(envpool.make('CartPole-v1', env_type='gym', num_envs=4,\n"
        "                              gym_reset_return_info=True))\n"
        "print(tuple(env.rollout(20, break_when_any_done=False)['next', 'observation'].shape))\n"
    )
    assert out.split("\n")[-2] == "(4, 20, 4)"


def test_tianshous_factory_makes_it() -> None:
    pytest.importorskip("tianshou", reason="Tianshou is not installed")
    out = run(
        "import rollouts.integrations.envpool as ours; ours.install()\n"
        "from tianshou.highlevel.env import EnvPoolFactory, EnvMode\n"
        "env = EnvPoolFactory().create_venv('CartPole-v1', 4, EnvMode.TRAINING, 1, {})\n"
        "print(env.reset()[0].shape, len(env), env.spec.reward_threshold)\n"
    )
    assert "(4, 4) 4 475.0" in out


def shapes(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: shapes(item) for name, item in value.items()}
    return value.dtype, value.shape


@pytest.mark.parametrize("task", ["CartPole-v1", "Pong-v5"])
@pytest.mark.parametrize("batch_size", [4, 2])
def test_shapes_and_dtypes_are_those_of_envpool_itself(task: str, batch_size: int) -> None:
    pytest.importorskip("envpool", reason="EnvPool itself is not installed")
    theirs = importlib.import_module("envpool")
    batches = []
    for module in (ours, theirs):
        env = (
            module.make(
                task, env_type="gymnasium", num_envs=4, batch_size=batch_size, noop_max=1, seed=1
            )
            if task == "Pong-v5"
            else module.make_gymnasium(task, num_envs=4, batch_size=batch_size)
        )
        env.async_reset()
        first = env.recv()
        env.send(np.zeros(batch_size, np.int32), first[-1]["env_id"])
        batches.append((first, env.recv()))
        assert env.spec.config.num_envs == len(env) == 4
        env.close()
    for mine, their in zip(*batches, strict=True):
        for one, other in zip(mine[:4], their[:4], strict=True):
            assert shapes(one) == shapes(other)
        # ram is ALE's memory, which we do not report
        wanted = {name: shapes(item) for name, item in their[4].items() if name != "ram"}
        assert wanted.items() <= {name: shapes(mine[4][name]) for name in mine[4]}.items()
