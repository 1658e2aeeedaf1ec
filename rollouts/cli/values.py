# SPDX-License-Identifier: Apache-2.0
"""Values of the command's arguments, read from their texts."""

from __future__ import annotations

import argparse
import math
from fractions import Fraction

from rollouts.specs import OptionValue


def positive_int(text: str) -> int:
    """A whole number above 0."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number above 0, got {text!r}")
    return number


def whole_number(text: str) -> int:
    """A whole number that is not below 0."""
    try:
        return 0 if text == "0" else positive_int(text)
    except argparse.ArgumentTypeError:
        expected = "a whole number that is not below 0"
        raise argparse.ArgumentTypeError(f"expected {expected}, got {text!r}") from None


def positive_float(text: str) -> float:
    """A finite number above 0."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {text!r}")
    return number


def batch_size(text: str) -> int | Fraction:
    """Rows; or a share of num_envs, written N or N/2."""
    if text == "N":
        return Fraction(1)
    try:
        if text.startswith("N/"):
            return Fraction(1, positive_int(text[2:]))
        return positive_int(text)
    except argparse.ArgumentTypeError:
        expected = "a whole number above 0, or a share of num_envs such as N or N/2"
        raise argparse.ArgumentTypeError(f"expected {expected}, got {text!r}") from None


def option(text: str) -> tuple[str, OptionValue]:
    """`KEY=VALUE`, the value being a bool, an int, a float or else text."""
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"expected KEY=VALUE, got {text!r}")
    if value.lower() in ("true", "false"):
        return key, value.lower() == "true"
    for number in (int, float):
        try:
            return key, number(value)
        except ValueError:
            continue
    return key, value
