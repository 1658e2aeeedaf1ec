# SPDX-License-Identifier: Apache-2.0
"""argparse's parser, with errors that suggest what was meant."""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from rollouts.envs.unknown_option import did_you_mean


class CommandParser(argparse.ArgumentParser):
    """A parser of a command; its subcommands have parsers of this class, too."""

    def error(self, message: str) -> NoReturn:
        """Prints usage and message, with names similar to a wrong one; exits with status 2."""
        chosen = re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)", message)
        if chosen is not None:
            message += "." + _close(chosen[1], re.findall(r"[\w./*-]+", chosen[2]))
        super().error(message.removesuffix("."))

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parses like argparse, but the subcommand that got an unknown argument reports it."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(self._unknown(unknown))
        return found, unknown

    def _unknown(self, arguments: Sequence[str]) -> str:
        options = [one for one in arguments if one.startswith("-")]
        names = [name for name in self._option_string_actions if name.startswith("--")]
        hints = [_close(one.partition("=")[0], names) for one in options]
        return f"unrecognized arguments: {' '.join(arguments)}." + "".join(hints)


def _close(name: str, names: Iterable[str]) -> str:
    """A sentence with similar names, after a space; empty if there are none."""
    known = {one.lower().lstrip("-"): one for one in names}
    found = difflib.get_close_matches(name.lower().lstrip("-"), known, n=2, cutoff=0.6)
    return did_you_mean([known[one] for one in found])
