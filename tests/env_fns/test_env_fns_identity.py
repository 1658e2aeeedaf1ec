# SPDX-License-Identifier: Apache-2.0
"""Classes of the main script and of functions are the same objects in every process of a host."""

from __future__ import annotations

import enum
import gc
import pickle
import subprocess
import sys
import textwrap
import weakref
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from host_envs import Counter

import rollouts
from rollouts.envs.hosted.processes import identity

pytestmark = pytest.mark.system

METHODS = ["fork", "forkserver", "spawn"]

SCRIPT = """
import enum, sys
import gymnasium
import numpy as np
import rollouts

class Mode(enum.Enum):
    EASY = 1
    HARD = 2

class Oops(Exception):
    pass

class Level:
    def __init__(self, number):
        self.number = number

class Wrapper(gymnasium.Wrapper):
    pass

class Space(gymnasium.spaces.Text):
    # no array: values travel as objects
    def sample(self, *args, **kwargs):
        return Mode.EASY
    def contains(self, x):
        return isinstance(x, Mode)

CALLS = []

def count():
    CALLS.append(1)
    return len(CALLS)

class Env(gymnasium.Env):
    made = 0
    observation_space = Space(5)
    action_space = Space(5)
    metadata = {"level": Level(7)}
    mode = Mode.EASY
    function = None

    def __init__(self):
        type(self).made += 1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.mode = (options or {}).get("mode", self.mode)
        return self.mode, {"is_hard": self.mode is Mode.HARD, "level": Level(3)}

    def step(self, action):
        if action is Mode.EASY:
            raise Oops("as asked")
        return self.mode, 10.0 * (self.mode is Mode.HARD), False, False, {"mode": self.mode}

    def ask(self, thing):
        self.made_before = type(self).made
        return thing is Mode.HARD or thing is Wrapper or isinstance(thing, Level), Level(4), Oops

    def is_wrapped(self, kind):
        return kind is Wrapper

    def count(self):
        CALLS.append(1)
        return (self.function or count)()

def main(method):
    make = lambda: Wrapper(Env())
    with rollouts.from_env_fns([make] * 2, num_processes=2, start_method=method) as envs:
        assert type(envs.metadata["level"]) is Level, "metadata"
        obs, info = envs.reset(options={"mode": Mode.HARD})
        assert info["is_hard"].tolist() == [True, True], "options"
        assert obs == (Mode.HARD, Mode.HARD) and obs[0] is Mode.HARD, "observations"
        assert type(info["level"][0]) is Level, "infos"
        _, reward, _, _, info = envs.step([Mode.HARD] * 2)
        assert reward.tolist() == [10, 10] and info["mode"][0] is Mode.HARD, "actions"
        envs.set_attr("mode", Mode.EASY)
        assert envs.reset()[1]["is_hard"].tolist() == [False, False]
        envs.set_attr("mode", Mode.HARD)
        assert envs.reset()[1]["is_hard"].tolist() == [True, True], "set_attr"
        for thing in (Mode.HARD, Wrapper, Level(1)):
            for answer, level, oops in envs.call("ask", thing):
                assert answer and type(level) is Level and oops is Oops, "call"
        assert envs.call("is_wrapped", Wrapper) == (True, True), "env_is_wrapped"
        assert envs.get_attr("mode") == (Mode.HARD,) * 2, "get_attr"
        envs.set_attr("function", count)
        assert envs.call("count") == (2, 2), "the globals of a function"
        # what a class keeps is neither taken from the other side nor given to it
        assert envs.call("made") == (1, 1) and Env.made == 0, "class attributes"
        try:
            envs.step([Mode.EASY] * 2)
        except rollouts.EnvError as error:
            assert type(error.__cause__) is Oops, "exceptions"
    print("same")

if __name__ == "__main__":
    main(sys.argv[1])
"""


# a process that imports the script finds its classes, and one that is forked has them
@pytest.mark.parametrize(
    ("kind", "method"),
    [
        *(("script", method) for method in METHODS),
        pytest.param("classes under the guard", "fork", marks=pytest.mark.slow),
        pytest.param("classes under the guard", "forkserver", marks=pytest.mark.slow),
        ("classes under the guard", "spawn"),
    ],
)
def test_classes_of_the_main_script_are_the_same_objects_on_both_sides(
    method: str, kind: str, tmp_path: Path
) -> None:
    text = SCRIPT
    if kind != "script":
        # no other process that imports the script finds them
        text = 'if __name__ == "__main__":\n' + textwrap.indent(SCRIPT, "    ")
    script = tmp_path / "script.py"
    script.write_text(text)
    done = subprocess.run(
        [sys.executable, str(script), method], capture_output=True, text=True, timeout=120
    )
    assert (done.stdout, done.stderr[-2000:]) == ("same\n", "")


@pytest.mark.parametrize("method", METHODS)
def test_classes_of_a_function_are_the_same_objects_on_both_sides(method: str) -> None:
    class Mode(enum.Enum):
        EASY = 1
        HARD = 2

    class Env(Counter):
        def reset(self, *, seed: Any = None, options: Any = None) -> Any:
            obs, _ = super().reset(seed=seed)
            return obs, {"is_hard": options["mode"] is Mode.HARD, "mode": options["mode"]}

    with rollouts.from_env_fns([Env] * 2, num_processes=1, start_method=method) as envs:
        info = envs.reset(options={"mode": Mode.HARD})[1]
    assert info["is_hard"].tolist() == [True, True]
    assert info["mode"][1] is Mode.HARD


@pytest.mark.parametrize("method", METHODS)
def test_a_process_that_replaces_another_has_the_same_classes(method: str) -> None:
    class Mode(enum.Enum):
        EASY = 1

    class Env(Counter):
        def ask(self, mode: Any) -> Any:
            return mode is Mode.EASY, mode

        def act(self, action: int) -> None:
            import os

            os._exit(1)

    with rollouts.from_env_fns([Env], start_method=method) as envs:
        envs.reset()
        with pytest.raises(rollouts.EnvError, match="started again"):
            envs.step([1])
        envs.recv()
        answer, mode = envs.call("ask", Mode.EASY)[0]
    assert answer and mode is Mode.EASY


def test_options_in_this_process_leave_its_classes_as_they_are() -> None:
    class Mode(enum.Enum):
        EASY = 1

        def name_of(self) -> str:
            return self.name

    class Env(Counter):
        def reset(self, *, seed: Any = None, options: Any = None) -> Any:
            obs, _ = super().reset(seed=seed)
            return obs, {"is_easy": options["mode"] is Mode.EASY}

    method = Mode.name_of
    with rollouts.from_env_fns([Env], num_processes=0) as envs:
        assert envs.reset(options={"mode": Mode.EASY})[1]["is_easy"].tolist() == [True]
    assert Mode.name_of is method


def test_a_class_that_only_a_process_has_comes_as_one_class_each_time() -> None:
    class Env(Counter):
        def ask(self) -> Any:
            if not hasattr(self, "kind"):
                self.kind = type("Made", (), {"number": 5})
            return self.kind()

    with rollouts.from_env_fns([Env], start_method="fork") as envs:
        one, other = envs.call("ask")[0], envs.call("ask")[0]
    assert type(one) is type(other) and one.number == 5


def test_a_class_defined_after_the_fork_is_sent_as_it_is_then() -> None:
    class Env(Counter):
        def keep(self, kind: Any) -> None:
            self.kind = kind

        def ask(self, kind: Any) -> Any:
            return kind is self.kind, kind().number

    with rollouts.from_env_fns([Env], start_method="fork") as envs:

        class Late:
            number = 3

        envs.call("keep", Late)
        assert envs.call("ask", Late) == ((True, 3),)


def test_what_is_gone_is_named_when_it_is_asked_for() -> None:
    def function() -> None:
        pass

    data = identity.dumps(function, None)
    assert pickle.loads(data) is function
    del function
    with pytest.raises(pickle.UnpicklingError, match="function is no longer there"):
        pickle.loads(data)


def test_objects_that_garbage_collection_frees_meanwhile_are_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Collecting(str):
        """A key that collects garbage whenever it is looked up."""

        def __eq__(self, other: object) -> bool:
            return super().__eq__(other)

        def __hash__(self) -> int:
            gc.collect()
            return super().__hash__()

    monkeypatch.setattr(identity, "_objects", weakref.WeakValueDictionary())
    monkeypatch.setattr(identity, "_of_host", {})
    kept, freed = (type(name, (), {}) for name in ("Kept", "Freed"))
    identity._objects[Collecting("kept")] = kept
    identity._objects["freed"] = freed
    gc.disable()
    try:
        del freed  # a class refers to itself, so it lives until garbage is collected
        identity.keep_those_of_host()
    finally:
        gc.enable()
    assert identity._of_host == {"kept": kept}


def test_spaces_of_the_main_script_can_be_hosted_by_spawned_processes(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
        import gymnasium, rollouts
        from gymnasium import spaces

        class Shy(spaces.Box):
            pass

        class Env(gymnasium.Env):
            observation_space = action_space = Shy(0, 1, (2,))
            def reset(self, *, seed=None, options=None):
                return self.observation_space.sample(), {}
            def step(self, action):
                return action, 0.0, False, False, {}

        if __name__ == "__main__":
            with rollouts.from_env_fns([Env], start_method="spawn") as envs:
                print(type(envs.single_observation_space) is Shy)
        """)
    )
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=120
    )
    assert (done.stdout, done.stderr[-2000:]) == ("True\n", "")


def test_wrappers_of_a_test_are_found_by_their_class() -> None:
    class Mine(gymnasium.Wrapper[Any, Any, Any, Any]):
        def is_mine(self, kind: Any) -> bool:
            return isinstance(self, kind)

    with rollouts.from_env_fns([lambda: Mine(Counter())], start_method="spawn") as envs:
        assert envs.call("is_mine", Mine) == (True,)
