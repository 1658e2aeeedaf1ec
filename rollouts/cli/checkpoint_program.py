# SPDX-License-Identifier: Apache-2.0
"""The program and options that a checkpoint names.

A stranger's checkpoint can use only files that the user trusts.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any

from rollouts.checkpoint import Checkpoint
from rollouts.errors import EngineError, SpecError
from rollouts.exporting.deployment import Deployment
from rollouts.run_log.log_header import LogHeader

# options that name files, or that an engine reads as its command line
_OUTSIDE = frozenset({"cfg_file", "game_args", "iwad_file", "wad_file"})
# text that is a path or has command-line arguments, in any option
_LOOKS_OUTSIDE = re.compile(r"[/\\\0]|^~|(^|\s)[+-]+[A-Za-z]")


@dataclass(frozen=True, slots=True)
class PolicyFile:
    """A Python file that was imported, with the function that makes a policy.

    Attributes:
      path: Path of the file.
      make_policy: Its function.
      options: Arguments of the function besides the spec.
    """

    path: Path
    make_policy: Callable[..., Any]
    options: Mapping[str, Any]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the path: another process imports the file again, if it is the same one."""
        return _import_again, (self.path.resolve(), dict(self.options))


def _import_again(path: Path, options: Mapping[str, Any]) -> PolicyFile:
    return PolicyFile(path, _make_policy_of(path), options)


def add_trust(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that choose the program that makes a policy."""
    parser.add_argument("--network", type=Path, metavar="FILE",
        help="Python file that is run and whose make_policy(spec) makes the policy")  # fmt: skip
    parser.add_argument("--trust", action="store_true",
        help="run the program that the checkpoint names, below the working directory, with the "
        "options that it has for it")  # fmt: skip


def load_program(
    checkpoint: Checkpoint, path: Path, *, network: Path | None, trust: bool
) -> PolicyFile:
    """Imports the program that makes a policy: the user's choice, or that of a trusted checkpoint.

    Args:
      checkpoint: The checkpoint that was read.
      path: Its path, for messages.
      network: The user's choice; None: the program that the checkpoint names.
      trust: Whether the named program may run, with the checkpoint's options for it.

    Raises:
      SpecError: There is no such program, it is not trusted, or it cannot be imported.
      EngineError: The program needs a package that is missing.
    """
    if network is not None:
        return PolicyFile(network, _make_policy_of(network), {})
    program = _named(checkpoint, path)
    if not trust:
        options = dict(checkpoint.program_options)
        given = f" with {options}" if options else ""
        raise SpecError(
            f"{path} would run {program} ({program.resolve()}){given}, which makes its policy: if "
            "you trust the checkpoint and the program, repeat the command with --trust; else name "
            "a program of your own with --network FILE"
        )
    return PolicyFile(program, _make_policy_of(program), checkpoint.program_options)


def options_of(
    checkpoint: Checkpoint | Deployment | LogHeader, path: Path, given: Mapping[str, Any]
) -> dict[str, Any]:
    """The environment's options: the checkpoint's, replaced by those that the user gives.

    Args:
      checkpoint: A checkpoint, or the description of an exported policy or of a log.

    Raises:
      SpecError: An option of the checkpoint names a file or is a command line, and the user did not
        give it.
    """
    for name, value in checkpoint.env_options.items():
        if name not in given and (name in _OUTSIDE or _names_files(value)):
            raise SpecError(
                f"{path} has the option {name}={value!r}, which names a file or is a command line: "
                f"if you trust it, repeat it with --option {name}=...; else give another value"
            )
    return {**checkpoint.env_options, **given}


def _names_files(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(_names_files(one) for one in value.values())
    if isinstance(value, list | tuple):
        return any(_names_files(one) for one in value)
    return isinstance(value, str) and _LOOKS_OUTSIDE.search(value) is not None


def _named(checkpoint: Checkpoint, path: Path) -> Path:
    """The file that a checkpoint names; it must be below the working directory."""
    name = PurePosixPath(checkpoint.program)
    here = checkpoint.program and not name.is_absolute() and ".." not in name.parts
    if not here or not os.path.isfile(name):
        found = f"{checkpoint.program!r}, which is no file in this directory" if name.parts else ""
        raise SpecError(
            f"{path} names {found or 'no program'}: run this where that program is, or say with "
            "--network which Python file has the make_policy(spec) of its network"
        )
    return Path(name)


def _make_policy_of(program: Path) -> Callable[..., Any]:
    make: Callable[..., Any] | None = getattr(
        import_program(program, "--network", "a function make_policy(spec)"), "make_policy", None
    )
    if not callable(make):
        raise SpecError(
            f"{program} has no function make_policy(spec), expected one that returns the policy: "
            "write it, or name another file with --network"
        )
    return make


def import_program(program: Path, flag: str, expected: str) -> ModuleType:
    """Imports a Python file that the user named.

    Args:
      program: The file.
      flag: The argument of the command that names it.
      expected: Its contents, for messages.

    Raises:
      SpecError: It is not a Python file, or code in it fails. EngineError: It needs a package
        that is missing.
    """
    spec, name = None, f"rollouts_network_{program.stem}"
    if os.path.isfile(program):
        spec = importlib.util.spec_from_file_location(name, program.resolve())
    if spec is None or spec.loader is None:
        raise SpecError(
            f"{flag} is {program}, which is no Python file: expected one with {expected}"
        )
    module = importlib.util.module_from_spec(spec)
    # as for `python FILE`: modules in its folder can be imported
    sys.path.insert(0, str(program.resolve().parent))
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except ModuleNotFoundError as error:
        raise EngineError(
            f"{program} needs the package {error.name!r}, which is not installed: install it, or "
            f"name another program with {flag}"
        ) from error
    except SyntaxError as error:
        raise SpecError(
            f"{program} is no Python that can be compiled ({error}): mend that line, or name "
            f"another program with {flag}"
        ) from error
    except (Exception, SystemExit) as error:  # the program is not ours and may raise anything
        raise SpecError(
            f"{program} cannot be imported ({type(error).__name__}: {error}), expected a Python "
            "file that runs nothing at once: put what it runs below if __name__ == '__main__'"
        ) from error
    return module
