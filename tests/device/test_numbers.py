# SPDX-License-Identifier: Apache-2.0
"""Narrow numbers of native/include/rollouts/device/numbers.h against torch's."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

from rollouts.own_env.compiler import find_compiler
from rollouts.support.include_dir import include_dir

SOURCE = """
#include "rollouts/device/numbers.h"
extern "C" void convert(const float* from, std::uint16_t* to, long count, int brain) {
  using namespace rollouts;
  for (long i = 0; i < count; ++i) {
    to[i] = brain ? NumberAs<BFloat16>::Of(from[i]).bits : NumberAs<Float16>::Of(from[i]).bits;
  }
}
"""


@pytest.mark.parametrize("dtype", (torch.float16, torch.bfloat16))
def test_numbers_are_rounded_as_torch_does(dtype: torch.dtype, tmp_path: Path) -> None:
    library = tmp_path / "numbers.so"
    command = [
        *find_compiler().command,
        "-std=c++20",
        "-O2",
        "-shared",
        "-fPIC",
        f"-I{include_dir()}",
    ]
    command += ["-x", "c++", "-", "-o", str(library)]
    subprocess.run(command, input=SOURCE, text=True, check=True)
    rng = np.random.default_rng(0)
    # every pattern of the upper half, with lower halves that round up, down and to even
    upper = np.arange(2**16, dtype=np.uint32) << 16
    lower = [0, 1, 0x7FFF, 0x8000, 0x8001, 0x1000, 0x0FFF, 0x3000, 0xFFFF]
    bits = np.concatenate([upper | low for low in lower])
    bits = np.concatenate([bits, rng.integers(0, 2**32, 10**6, dtype=np.uint32)])
    numbers = bits.view(np.float32)
    mine = np.empty(len(numbers), np.uint16)
    ctypes.CDLL(str(library)).convert(
        numbers.ctypes.data_as(ctypes.c_void_p),
        mine.ctypes.data_as(ctypes.c_void_p),
        ctypes.c_long(len(numbers)),
        int(dtype == torch.bfloat16),
    )
    theirs = torch.from_numpy(numbers.copy()).to(dtype)
    got = torch.from_numpy(mine.view(np.int16)).view(dtype)
    nan = theirs.isnan()
    assert torch.equal(got.isnan(), nan)
    assert torch.equal(got.view(torch.int16)[~nan], theirs.view(torch.int16)[~nan])
