# SPDX-License-Identifier: Apache-2.0
"""Messages to newcomers who have mistaken a name: each leads on."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rollouts.integrations import envpool
from torch import nn

import rollouts
from rollouts.device_queue import DeviceQueue
from rollouts.errors import SpecError, WorkerError
from rollouts.support.option_help import option_help


def test_every_option_of_every_id_has_help() -> None:
    atari = "ALE/Pong-v5"  # one game for all
    ids = [one for one in rollouts.env_ids() if one == atari or not one.startswith("ALE/")]
    bare = {}
    for one in ids:
        spec = rollouts.env_spec(one)
        if spec.header.startswith("own/"):
            continue  # from a test of users' own that ran in this process
        known = option_help(spec.header)
        # a unit alone says nothing
        if less := [name for name in spec.options if " " not in known.get(name, "")]:
            bare[one] = less
    assert bare == {}


def test_help_is_the_comment_at_the_field() -> None:
    assert rollouts.env_spec("CartPole-v1").option_help["force_mag"] == (
        "N; how hard an action pushes the cart"
    )
    # an own line counts before that of what is included
    assert "fingertip" in rollouts.env_spec("Reacher-v5").option_help["reward_dist_weight"]
    assert "object" in rollouts.env_spec("Pusher-v5").option_help["reward_dist_weight"]


@pytest.mark.parametrize(
    ("env_id", "options", "said"),
    [
        ("CartPole-v1", {"num_thread": 2}, r"Did you mean num_threads\?"),
        ("simple_v3", {"max_cycles": 25}, r"Did you mean max_episode_steps\?"),
        ("CartPole-v1", {"num_thread": 2}, "make_vec itself takes id, num_envs, batch_size"),
        ("CartPole-v1", {"normalise_observation": True}, r"Did you mean normalize_observation\?"),
        ("CheetahRun-v1", {"frame_stak": 3}, r"Did you mean frame_stack\?"),
        ("CartPole-v1", {"num_thread": 2}, "device, and the wrappers clip_action, .*, time_aware;"),
        (
            "MiniGrid-Empty-8x8-v0",
            {"frame_stack": 3, "flatten_observation": False},
            "with frame_stack an observation is one array, and flatten_observation=False asks",
        ),
        ("CartPole-v1", {"gravty": 2.0}, r"Did you mean gravity \(m/s\^2; downwards\)\?"),
        ("CartPole-v1", {"gravty": 2.0}, "`rollouts envs CartPole-v1` says what each"),
        (
            "ALE/Pong-v5",
            {"device": "cuda"},
            r"DeviceQueue moves batches of the C\+\+ pool to a GPU",
        ),
        ("CartPole-v1", {"mass_cart": -1.0}, r"above 0, got -1; mass_cart is: kg; of the cart"),
        ("CartPole-v1", {"mass_cart": [1.0, -1.0]}, "mass_cart is: kg; of the cart"),
        ("PongNoFrameskip-v4", {}, r"Did you mean ALE/Pong-v5\?"),
        ("MsPacman-ramDeterministic-v0", {}, r"Did you mean ALE/MsPacman-v5\?"),
    ],
)
def test_a_wrong_name_is_answered_with_the_right_one(
    env_id: str, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(SpecError, match=said):
        rollouts.make_vec(env_id, 2, **options)


@pytest.mark.parametrize("device", [None, "cpu-emulation"])
@pytest.mark.parametrize(
    ("env_id", "options"),
    [
        ("CartPole-v1", {"low": -0.1, "high": 0.1}),
        ("Pendulum-v1", {"x_init": 1.0}),
        ("Acrobot-v1", {"low": -0.2}),
        ("MountainCar-v0", {"high": -0.4}),
    ],
)
def test_gymnasium_s_options_of_starts_are_answered_with_what_takes_them(
    env_id: str, options: dict[str, float], device: str | None
) -> None:
    said = rf"unknown reset options .*gymnasium.make\('{env_id}"
    with rollouts.make_vec(env_id, 2, device=device) as env, pytest.raises(SpecError, match=said):
        env.reset(options=options)


def test_options_of_a_reset_are_explained_too() -> None:
    with rollouts.make_vec("CartPole-v1", 2) as env:
        with pytest.raises(SpecError, match=r"Did you mean gravity\?"):
            env.reset(options={"gravty": 1.0})
        with pytest.raises(SpecError, match="mass_cart is: kg; of the cart"):
            env.reset(options={"mass_cart": -1.0})


def test_make_is_answered_with_make_vec() -> None:
    with pytest.raises(AttributeError, match=r"did you mean rollouts\.make_vec\?"):
        rollouts.make("CartPole-v1")  # type: ignore[operator]


@pytest.mark.parametrize("task_id", ["Foo-v0", "CartPole-v7"])
def test_the_envpool_module_names_its_own_list(task_id: str) -> None:
    with pytest.raises(SpecError, match=r"task_id '.*list_all_envs\(\)") as refused:
        envpool.make_gym(task_id)
    assert ("Did you mean CartPole-v1" in str(refused.value)) == (task_id == "CartPole-v7")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
@pytest.mark.parametrize(
    "make",
    [
        lambda device: DeviceQueue(lambda timeout_s: pytest.fail(), device),
        lambda device: rollouts.TorchPolicy(
            nn.Linear(4, 2), rollouts.env_spec("CartPole-v1").single_action_space, device=device
        ),
    ],
)
def test_a_missing_gpu_is_named(make: Callable[[str], Any]) -> None:
    with pytest.raises(SpecError, match="finds no CUDA device here"):
        make("cuda")
    with pytest.raises(SpecError, match="device is 'gpu', expected one of torch"):
        make("gpu")


def test_a_missing_file_of_a_model_forbids_nothing_that_works() -> None:
    with pytest.raises(
        rollouts.EngineError, match=r"absolute, \./\.\.\. or ~/\.\.\.; of MuJoCo-v0"
    ):
        rollouts.make_vec("Hopper-v5", xml_file="robot.xml")


def test_a_script_without_a_guard_is_told_so(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import functools, gymnasium, rollouts\n"
        "make = functools.partial(gymnasium.make, 'CartPole-v1')\n"
        "try:\n"
        "    rollouts.from_env_fns([make] * 2, num_processes=1, start_method='spawn')\n"
        "except rollouts.WorkerError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=300, check=False
    )
    assert WorkerError.__name__ not in done.stderr
    assert 'if __name__ == "__main__":' in done.stdout, done.stderr
    assert "start_method is 'spawn'" in done.stdout
