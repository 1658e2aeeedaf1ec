# SPDX-License-Identifier: Apache-2.0
"""One environment's failure is one environment's failure, and a dead process is its own."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from host_envs import EXIT, KILL, NO_PICKLE, RAISE, BadReset, Counter, Moody

import rollouts

MODES = ["next_step", "same_step", "disabled"]
LENGTH = 6


def moody(num_envs: int = 4, **options: Any) -> Any:
    functions = [functools.partial(Moody, length=LENGTH)] * num_envs
    options = {"num_processes": 2, "seed": 0, "episode_statistics": True, **options}
    return rollouts.from_env_fns(functions, **options)


def go_on(envs: Any, mode: str, mask: np.ndarray, row: Any) -> Any:
    """The row in which the environments of `mask` show their new episodes."""
    if mode == "same_step":
        return row
    if mode == "next_step":
        return envs.step([1, 1, 1, 1])
    obs, info = envs.reset(options={"reset_mask": mask})
    nothing = np.zeros(4)
    return obs, nothing, nothing, nothing, info


@pytest.mark.parametrize("mode", MODES)
def test_exception_cuts_one_row_and_the_others_step(mode: str) -> None:
    with moody(autoreset_mode=mode, on_env_error="reset") as envs:
        envs.reset()
        envs.step([1, 1, 1, 1])
        row = envs.step([1, RAISE, 1, 1])
        obs, reward, terminated, truncated, info = row
        assert truncated.tolist() == [False, True, False, False] and not terminated.any()
        assert reward.tolist() == [1, 0, 1, 1]
        assert obs[[0, 2, 3], 0].tolist() == [2, 2, 2]
        assert info["_env_error"].tolist() == [False, True, False, False]
        assert "moody at step 1" in info["env_error"][1]
        obs, _, _, truncated, info = go_on(envs, mode, truncated, row)
        assert obs[1].tolist() == [0, 1]
        obs, _, _, truncated, info = envs.step([1, 1, 1, 1])
        assert obs[1].tolist() == [1, 1] and not truncated.any()
        assert "env_error" not in info
        assert envs.stats().num_env_errors == 1


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("action", "end"), [(EXIT, "exited with code 7"), (KILL, "SIGKILL")])
def test_dead_process_cuts_its_rows_and_the_others_step(mode: str, action: int, end: str) -> None:
    with moody(autoreset_mode=mode, on_env_error="reset") as envs:
        envs.reset()
        envs.step([1, 1, 1, 1])
        row = envs.step([1, 1, 1, action])
        obs, reward, _, truncated, info = row
        assert truncated.tolist() == [False, False, True, True]
        assert reward.tolist() == [1, 1, 0, 0]
        assert obs[:2, 0].tolist() == [2, 2]
        assert end in info["env_error"][3] and "env_id 2 to 3" in info["env_error"][2]
        if mode == "same_step":
            assert info["final_obs"][3].tolist() == [1, 0]  # the observation before it failed
        obs = go_on(envs, mode, truncated, row)[0]
        assert obs[2:].tolist() == [[0, 0], [0, 0]]  # in new environments
        for _ in range(3):
            _, reward, _, truncated, info = envs.step([1, 1, 1, 1])
            assert reward.tolist() == [1, 1, 1, 1]
            assert not truncated.any() and "env_error" not in info


@pytest.mark.parametrize("mode", MODES)
def test_environments_that_were_at_rest_when_their_process_died_say_so_later(mode: str) -> None:
    with moody(autoreset_mode=mode, on_env_error="reset") as envs:
        envs.reset()
        envs.step([1, 1, 1, 1])
        envs.send([KILL], [3])
        assert envs.recv()[3].tolist() == [True]
        envs.send([1, 1, 1], [2, 0, 1])
        obs, reward, _, truncated, info = envs.recv()
        assert truncated.tolist() == [True, False, False]
        assert reward.tolist() == [0, 1, 1]
        assert "SIGKILL" in info["env_error"][0]
        mask = np.array([False, False, True, True])
        if mode == "disabled":
            envs.reset(options={"reset_mask": mask})
        elif mode == "next_step":
            envs.send([1, 1], [2, 3])
            assert not envs.recv()[3].any()
        else:
            assert obs[0].tolist() == [0, 0]
        assert envs.step([1, 1, 1, 1])[1].tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize("action", [RAISE, EXIT])
def test_raise_tells_first_and_gives_the_batch_then(action: int) -> None:
    with moody(autoreset_mode="same_step") as envs:
        envs.reset()
        with pytest.raises(rollouts.EnvError, match=r"env_id [23]") as caught:
            envs.step([1, 1, 1, action])
        if action == RAISE:
            assert "in act" in str(caught.value)  # the traceback of its process
            assert isinstance(caught.value.__cause__, ValueError)
        _, reward, _, truncated, info = envs.recv()
        assert reward[:2].tolist() == [1, 1] and truncated[3]
        assert "env_error" not in info
        assert envs.step([1, 1, 1, 1])[1].tolist() == [1, 1, 1, 1]


def test_dead_process_in_asynchronous_mode() -> None:
    with moody(batch_size=1, on_env_error="reset", autoreset_mode="same_step") as envs:
        envs.async_reset()
        envs.drain()
        envs.send([1, 1, KILL, 1], [0, 1, 2, 3])
        _, _, _, truncated, info = envs.drain()
        failed = truncated[info["env_id"].argsort()]
        assert failed[:3].tolist() == [False, False, True]
        for _ in range(8):
            envs.send([1, 1, 1, 1], [0, 1, 2, 3])
            _, _, _, truncated, info = envs.drain()
            assert sorted(info["env_id"]) == [0, 1, 2, 3]
        assert not truncated.any()


def test_seeds_of_a_new_process_are_reproducible_and_new() -> None:
    def seeds() -> Any:
        with moody(on_env_error="reset", autoreset_mode="same_step") as envs:
            envs.reset()
            envs.step([1, 1, 1, EXIT])
            return envs.np_random_seed

    first = seeds()
    assert first == seeds()
    assert first[:2] == (0, 1) and len(set(first)) == 4


def test_environment_whose_reset_fails_is_made_again() -> None:
    made = rollouts.from_env_fns([BadReset], autoreset_mode="same_step", on_env_error="reset")
    with made as envs:
        envs.reset(seed=1)
        envs.step([1])
        obs, _, _, truncated, info = envs.step([1])
        assert truncated[0] and "reset is broken" in info["env_error"][0]
        assert obs[0].tolist() == [0, 0]
        assert envs.get_attr("serial") == (2,)
        assert envs.step([1])[0][0].tolist() == [1, 0]


@pytest.mark.parametrize("on_env_error", ["raise", "reset"])
def test_failed_reset_is_reported(on_env_error: str) -> None:
    made = rollouts.from_env_fns(
        [BadReset, Counter], num_processes=1, autoreset_mode="disabled", on_env_error=on_env_error
    )
    with made as envs:
        envs.reset()
        if on_env_error == "raise":
            with pytest.raises(rollouts.EnvError, match="reset is broken"):
                envs.reset()
        else:
            assert "reset is broken" in envs.reset()[1]["env_error"][0]
        obs, info = envs.reset()
        assert obs.tolist() == [[0, 0], [0, 2]] and "env_error" not in info


def test_info_that_cannot_be_pickled_is_a_failure_of_its_environment_only() -> None:
    with moody(on_env_error="reset") as envs:
        envs.reset()
        info = envs.step([1, NO_PICKLE, 1, 1])[4]
        assert info["_env_error"].tolist() == [False, True, False, False]
        assert "its info or observation cannot be pickled" in info["env_error"][1]
        assert info["steps"].tolist() == [1, 0, 1, 1]


def test_environment_that_cannot_be_made_is_named_with_its_traceback() -> None:
    def broken() -> Any:
        raise FileNotFoundError("no such scene")

    with pytest.raises(rollouts.EnvError, match="no such scene") as caught:
        rollouts.from_env_fns([Counter, broken], num_processes=2)
    assert "in broken" in str(caught.value) and "env_id 1 to 1" in str(caught.value)


def test_process_that_dies_while_making_environments_is_an_error() -> None:
    def deadly() -> Any:
        import os

        os._exit(3)

    with pytest.raises(rollouts.WorkerError, match="exited with code 3"):
        rollouts.from_env_fns([Counter, deadly], num_processes=2)


def test_process_that_cannot_be_started_again_is_an_error_and_no_hang(tmp_path) -> None:
    marker = tmp_path / "made"

    def once() -> Any:
        import os

        if marker.exists():
            os._exit(3)
        marker.touch()
        return Moody()

    with rollouts.from_env_fns([once], on_env_error="reset", autoreset_mode="same_step") as envs:
        envs.reset()
        for _ in range(2):
            with pytest.raises(rollouts.WorkerError, match="exited with code 3"):
                envs.step([KILL])


def test_failing_calls_raise_and_leave_everything_working() -> None:
    with moody() as envs:
        envs.reset()
        with pytest.raises(rollouts.EnvError, match="no_such_thing"):
            envs.call("no_such_thing")
        with pytest.raises(rollouts.EnvError, match="past the host"):
            envs.call("step", 1)
        with pytest.raises(rollouts.EnvError, match="exited with code 7"):
            envs.call("act", EXIT)
        with pytest.raises(rollouts.EnvError):
            envs.step([1, 1, 1, 1])  # all episodes are lost
        envs.recv()
        envs.reset()
        assert envs.step([1, 1, 1, 1])[1].tolist() == [1, 1, 1, 1]


def test_observation_of_another_shape_is_a_failure() -> None:
    class Shrinking(Counter):
        def _obs(self) -> Any:
            # one number would fill the array if nobody looked
            return np.zeros(2 if self.steps == 0 else 1, np.float32)

    with rollouts.from_env_fns([Shrinking], on_env_error="reset") as envs:
        envs.reset()
        info = envs.step([0])[4]
        assert "has shape (1,), expected (2,)" in info["env_error"][0]


@pytest.mark.parametrize(
    ("arguments", "error", "what"),
    [
        ({"env_fns": []}, rollouts.SpecError, "env_fns is empty"),
        ({"env_fns": 3}, rollouts.DTypeError, "sequence of functions"),
        ({"env_fns": [Counter, Counter()]}, rollouts.DTypeError, r"env_fns\[1\]"),
        (
            {"num_processes": 4},
            rollouts.SpecError,
            "num_processes is 4, .*number from 0 to 3",
        ),
        ({"batch_size": 0}, rollouts.SpecError, "batch_size"),
        ({"autoreset_mode": "never"}, rollouts.SpecError, "autoreset_mode"),
        ({"on_env_error": "ignore"}, rollouts.SpecError, "on_env_error"),
        ({"start_method": "thread"}, rollouts.SpecError, "start_method"),
        ({"start_method": "fork", "num_processes": 0}, rollouts.SpecError, "leave one of them out"),
        ({"observation_mode": "alike"}, rollouts.SpecError, "observation_mode"),
        ({"seed": -1}, rollouts.SpecError, "seed"),
    ],
)
def test_bad_arguments_are_refused(arguments: Any, error: type, what: str) -> None:
    with pytest.raises(error, match=what):
        rollouts.from_env_fns(**{"env_fns": [Counter] * 3, **arguments})


@pytest.mark.parametrize("mode", MODES)
def test_environment_that_ends_its_process_at_every_reset_is_an_error_and_no_loop(
    mode: str,
) -> None:
    class Deadly(Counter):
        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            if options is None:
                import os

                os._exit(5)
            return super().reset(seed=seed)

    made = rollouts.from_env_fns([Deadly], autoreset_mode=mode, on_env_error="reset")
    with made as envs, pytest.raises(rollouts.WorkerError, match="exited with code 5 once more"):
        envs.reset(options={"live": True})
        envs.reset()
        for _ in range(3):
            if mode == "disabled":
                envs.reset()
            else:
                envs.step([1])
