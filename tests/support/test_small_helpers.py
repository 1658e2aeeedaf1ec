# SPDX-License-Identifier: Apache-2.0
"""Missing packages, keywords that moved, warnings at the user's line, and the end of a process."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from rollouts.errors import EngineError
from rollouts.support import at_exit
from rollouts.support.at_exit import call_at_exit, silent_at_exit
from rollouts.support.extras import needs
from rollouts.support.include_dir import include_dir
from rollouts.support.user_warnings import warn_user


def test_imports_that_work_say_nothing() -> None:
    with needs("torch", "A policy"):
        import math  # noqa: F401


def test_a_missing_module_names_the_extra_that_brings_it() -> None:
    with pytest.raises(EngineError) as caught, needs("zoo", "Watching"):
        import no_such_module_anywhere  # noqa: F401
    assert str(caught.value) == (
        "Watching needs a library that cannot be imported (No module named "
        "'no_such_module_anywhere'): pip install 'rollouts[zoo]'"
    )
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)


def test_a_module_that_is_there_but_broken_is_told_apart() -> None:
    broken = ImportError("libmissing.so: cannot open", name="zoo.native")
    with pytest.raises(EngineError, match="installed but cannot be") as caught, needs("zoo", "A"):
        raise broken
    assert caught.value.__cause__ is broken
    assert "the extra with what it needs is 'rollouts[zoo]'" in str(caught.value)


@pytest.mark.parametrize("kind", [ImportError, ModuleNotFoundError])
@pytest.mark.parametrize("name", ["rollouts", "rollouts.gone"])
def test_a_mistake_of_ours_is_no_missing_extra(kind: type[ImportError], name: str) -> None:
    with pytest.raises(kind, match="typo") as caught, needs("zoo", "Watching"):
        raise kind("typo", name=name)
    assert not isinstance(caught.value, EngineError)


def test_a_module_whose_name_only_begins_like_ours_is_foreign() -> None:
    with pytest.raises(EngineError), needs("zoo", "Watching"):
        raise ModuleNotFoundError("x", name="rollouts_extra.part")


def test_what_an_inner_module_said_stays_as_it_is() -> None:
    said = EngineError("said already")
    with pytest.raises(EngineError) as caught, needs("zoo", "Watching"):
        raise said
    assert caught.value is said


def test_other_errors_pass() -> None:
    with pytest.raises(ZeroDivisionError), needs("zoo", "Watching"):
        raise ZeroDivisionError


def module_named(name: str, body: str) -> Any:
    """A module of that name, without a file that could be imported."""
    module: Any = ModuleType(name)
    module.warn_user = warn_user
    exec(compile(body, f"<{name}>", "exec"), module.__dict__)
    return module


def caught_warning(call: Any) -> warnings.WarningMessage:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        call()
    (warning,) = seen
    return warning


DEEP = "def inner():\n    warn_user('careful', RuntimeWarning)\n\n\ndef outer():\n    inner()\n"


def test_a_warning_names_the_innermost_line_that_is_not_ours() -> None:
    ours = module_named("rollouts.some.module", DEEP)
    warning = caught_warning(lambda: ours.outer())
    assert warning.category is RuntimeWarning and str(warning.message) == "careful"
    assert warning.filename == __file__


def test_a_user_s_function_between_two_of_ours_is_the_user_s_line() -> None:
    ours = module_named("rollouts.some.module", DEEP)
    theirs = module_named("users", "def call(f):\n    f()\n")
    back = module_named("rollouts.other", "def run(call, f):\n    call(f)\n")
    warning = caught_warning(lambda: back.run(theirs.call, ours.outer))
    assert (warning.filename, warning.lineno) == ("<users>", 2)


def test_a_package_whose_name_only_begins_like_ours_is_the_user_s() -> None:
    other = module_named("rollouts_extra", DEEP)
    warning = caught_warning(lambda: other.outer())
    assert (warning.filename, warning.lineno) == ("<rollouts_extra>", 2)


@pytest.fixture
def exits() -> Iterator[None]:
    """Nothing of others is called, and nothing is left for the end of this process."""
    kept, at_exit._pending[:] = list(at_exit._pending), []
    yield
    at_exit._pending[:] = kept
    at_exit._exiting.clear()


class Part:
    """Something with a method that is called at exit."""

    def __init__(self, name: str, log: list[str], error: Exception | None = None) -> None:
        self.name, self._log, self._error = name, log, error

    def close(self) -> None:
        self._log.append(self.name)
        if self._error is not None:
            raise self._error


def test_the_newest_is_called_first_and_each_once(exits: None) -> None:
    log: list[str] = []
    parts = [Part(name, log) for name in "abc"]
    for part in parts:
        call_at_exit(part.close)
    at_exit._call_all()
    at_exit._call_all()
    assert log == ["c", "b", "a"]


def test_what_is_gone_is_not_called_and_not_kept(exits: None) -> None:
    log: list[str] = []
    gone, kept = Part("gone", log), Part("kept", log)
    call_at_exit(gone.close)
    del gone
    call_at_exit(kept.close)
    assert len(at_exit._pending) == 1
    at_exit._call_all()
    assert log == ["kept"]


def test_one_that_fails_keeps_no_other_from_its_end(
    exits: None, caplog: pytest.LogCaptureFixture
) -> None:
    log: list[str] = []
    parts = [Part("a", log), Part("b", log, ValueError("stuck")), Part("c", log)]
    for part in parts:
        call_at_exit(part.close)
    with caplog.at_level(logging.WARNING):
        at_exit._call_all()
    assert log == ["c", "b", "a"]
    (record,) = caplog.records
    assert record.getMessage() == "Part.close failed at exit" and record.exc_info is not None


def test_the_call_is_registered_last_and_once(exits: None, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, object]] = []
    registry = SimpleNamespace(
        register=lambda function: calls.append(("register", function)),
        unregister=lambda function: calls.append(("unregister", function)),
    )
    monkeypatch.setattr(at_exit, "atexit", registry)
    parts = [Part("a", []), Part("b", [])]
    for part in parts:
        call_at_exit(part.close)
    # what was registered last is called first: again for the newest
    expected = [("unregister", at_exit._call_all), ("register", at_exit._call_all)]
    assert calls == 2 * expected


def test_while_it_is_called_the_process_ends(exits: None) -> None:
    seen: list[bool] = []

    class Looks:
        def close(self) -> None:
            seen.append(at_exit._exiting.is_set())

    looks = Looks()
    call_at_exit(looks.close)
    at_exit._call_all()
    assert seen == [True]
    at_exit._forget()
    assert not at_exit._exiting.is_set()


def test_a_method_may_register_another_while_it_is_called(exits: None) -> None:
    log: list[str] = []
    late = Part("late", log)

    class Registers:
        def close(self) -> None:
            call_at_exit(late.close)

    first = Registers()
    call_at_exit(first.close)
    at_exit._call_all()
    assert log == []
    at_exit._call_all()
    assert log == ["late"]


def test_a_child_forgets_its_parent_s(exits: None) -> None:
    log: list[str] = []
    part = Part("parent", log)
    call_at_exit(part.close)
    at_exit._exiting.set()
    at_exit._forget()
    at_exit._call_all()
    assert log == []


def test_errors_pass_while_the_process_goes_on(exits: None) -> None:
    with pytest.raises(KeyError), silent_at_exit():
        raise KeyError("x")


def test_a_thread_that_is_no_daemon_has_its_error_even_at_exit(exits: None) -> None:
    at_exit._exiting.set()
    with pytest.raises(KeyError), silent_at_exit():
        raise KeyError("x")


def test_a_daemon_thread_s_error_at_exit_waits_for_the_end(
    exits: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    class End(Exception):
        """The end of the process, which a test cannot wait for."""

    def end() -> None:
        raise End

    seen = SimpleNamespace(
        current_thread=lambda: SimpleNamespace(daemon=True),
        Event=lambda: SimpleNamespace(wait=end),
    )
    monkeypatch.setattr(at_exit, "threading", seen)
    # while the process goes on a daemon's error is an error, too
    with pytest.raises(KeyError), silent_at_exit():
        raise KeyError("x")
    at_exit._exiting.set()
    with pytest.raises(End), silent_at_exit():
        raise KeyError("x")


def test_the_folder_of_headers_is_the_packages_or_the_checkouts() -> None:
    folder = include_dir()
    assert (folder / "rollouts" / "plugin" / "abi.h").is_file()
    assert folder.name == "include"
