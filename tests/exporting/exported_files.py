# SPDX-License-Identifier: Apache-2.0
"""Exported policies that act by what reads their files, without this library."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import torch


def run_file(path: Path, rows: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Runs a file by its own runtime alone."""
    if path.suffix == ".onnx":
        import onnxruntime

        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        assert json.loads(session.get_modelmeta().custom_metadata_map["rollouts"])["inputs"]
        found: list[np.ndarray] = session.run(None, rows)
        return found
    module: Any
    module = torch.export.load(path).module() if path.suffix == ".pt2" else torch.jit.load(path)
    with torch.no_grad():
        return [each.numpy() for each in module(*map(torch.from_numpy, rows.values()))]


PROGRAM = """
#include "policy.h"
#include <stdio.h>
#include <stdlib.h>
int main(void) {{
  float obs[POLICY_OBS_SIZE];
  {declared}
  for (;;) {{
    {read}
    policy_act({arguments});
    fwrite(action, sizeof(action), 1, stdout);
  }}
}}
"""


def run_header(folder: Path, rows: dict[str, np.ndarray], expected: np.ndarray) -> np.ndarray:
    """Compiles folder/policy.h, and acts by it for each row; `expected` has the form of actions."""
    count = len(expected)
    discrete = expected.dtype.kind != "f"
    declared = [f"{'int' if discrete else 'float'} action[POLICY_ACTION_SIZE];"]
    parts, arguments = [("obs", rows["obs"].reshape(count, -1).astype(np.float32))], ["obs"]
    if "state_0" in rows:
        declared.append("float state[POLICY_STATE_SIZE];")
        parts.append(("state", rows["state_0"]))
    if "action_mask" in rows:
        declared.append(f"unsigned char mask[{rows['action_mask'].shape[1]}];")
        parts.append(("mask", rows["action_mask"].astype(np.uint8)))
    arguments = [*(name for name, _ in parts), "action"]
    read = "\n    ".join(
        f"if (fread({name}, sizeof({name}), 1, stdin) != 1) return 0;" for name, _ in parts
    )
    source = PROGRAM.format(declared=" ".join(declared), read=read, arguments=", ".join(arguments))
    (folder / "main.c").write_text(source)
    compiler = ["cc", "-std=c99", "-O1", "-Wall", "-Werror", "main.c", "-o", "main", "-lm"]
    subprocess.run(compiler, cwd=folder, check=True)
    given = b"".join(b"".join(array[i].tobytes() for _, array in parts) for i in range(count))
    said = subprocess.run(folder / "main", input=given, capture_output=True, check=True).stdout
    found: np.ndarray = np.frombuffer(said, np.int32 if discrete else np.float32).reshape(
        expected.shape
    )
    return found
