# SPDX-License-Identifier: Apache-2.0
"""The native core's sine and cosine for Python, and Gymnasium made to use them.

Unstable and chaotic systems turn a difference in the last bit of a cosine into another
episode. With the same sine and cosine, references can be compared for equality.
"""

from __future__ import annotations

import ctypes
import importlib
import inspect
import math
import re
import shutil
import subprocess
import textwrap
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from gymnasium.envs.classic_control import acrobot

import rollouts

SOURCE = """
#include "rollouts/core/math.h"
extern "C" double NativeSin(double x) { return rollouts::Sin(x); }
extern "C" double NativeCos(double x) { return rollouts::Cos(x); }
"""


def compile_sin_and_cos(folder: Path) -> tuple[Callable[[float], float], ...]:
    """Compiles core/math.h and returns its Sin and Cos of doubles."""
    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("needs a C++ compiler")
    installed = Path(rollouts.__file__).parent / "include"
    checkout = Path(__file__).parents[2] / "native" / "include"
    include = installed if installed.is_dir() else checkout
    source, library = folder / "math.cpp", folder / "math.so"
    source.write_text(SOURCE)
    command = [compiler, "-std=c++20", "-O2", "-ffp-contract=off", "-shared", "-fPIC"]
    subprocess.run([*command, f"-I{include}", str(source), "-o", str(library)], check=True)
    functions = ctypes.CDLL(str(library))
    result = []
    for name in ("NativeSin", "NativeCos"):
        function = getattr(functions, name)
        function.argtypes, function.restype = [ctypes.c_double], ctypes.c_double
        result.append(function)
    return tuple(result)


class _With:
    """A module with another sin and cos."""

    def __init__(self, module: Any, sin: Any, cos: Any) -> None:
        self.module, self.sin, self.cos = module, sin, cos

    def __getattr__(self, name: str) -> Any:
        return getattr(self.module, name)


@contextmanager
def gymnasium_with(sin: Callable[[float], float], cos: Callable[[float], float]) -> Iterator[None]:
    """Gymnasium's classic control computes with these; float64 in and out, as NumPy's."""

    def numpy_like(function: Callable[[float], float]) -> Callable[[Any], Any]:
        return lambda x: np.float64(function(x))

    numpy_with = _With(np, numpy_like(sin), numpy_like(cos))
    math_with = _With(math, sin, cos)
    with ExitStack() as stack:
        for name in ("cartpole", "continuous_mountain_car", "mountain_car", "pendulum"):
            module = importlib.import_module(f"gymnasium.envs.classic_control.{name}")
            for attribute, value in (("np", numpy_with), ("math", math_with)):
                if hasattr(module, attribute):
                    stack.enter_context(mock.patch.object(module, attribute, value))
        for attribute in ("sin", "cos"):
            value = getattr(numpy_with, attribute)
            stack.enter_context(mock.patch.object(acrobot, attribute, value))
        rate = _with_exact_squares(acrobot.AcrobotEnv._dsdt, vars(acrobot))
        stack.enter_context(mock.patch.object(acrobot.AcrobotEnv, "_dsdt", rate))
        yield


def _with_exact_squares(function: Any, names: dict[str, Any]) -> Any:
    """The function's own text with x**2 read as x * x, which libm's pow rounds wrongly at times."""
    text = re.sub(r"\b(\w+)\*\*2\b", r"(\1 * \1)", textwrap.dedent(inspect.getsource(function)))
    found: dict[str, Any] = {}
    exec(text, dict(names), found)
    return found[function.__name__]
