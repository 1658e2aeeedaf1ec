# SPDX-License-Identifier: Apache-2.0
"""Models of the DeepMind Control Suite, from the dm-control package.

dm-control's own functions write the XML. Here it is compiled and passed to the native core as a
binary file, in this user's folder below the system's temporary folder. A model takes 12 MB, mostly
for the sky's texture; a dog takes 69 MB. Files are named after their contents, so that all
processes share them, and a new version of a package makes new ones. dm_control is imported only
when one of its tasks is used.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import os
import stat
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from rollouts import _native
from rollouts.errors import EngineError
from rollouts.families import mujoco_engine
from rollouts.families.family import Family
from rollouts.support.whole_file import replace_whole

_INSTALL = "pip install 'rollouts[dm-control]'"
_MODULES = {"humanoid_cmu": "humanoid_CMU"}  # modules whose names differ from those of our headers


def task_ids() -> list[str]:
    """Ids of all tasks, in the registry's order, whether dm-control is installed or not."""
    found = _native.registry()
    return [entry["id"] for entry in found if entry["header"].startswith(FAMILY.headers)]


def installed() -> bool:
    """Tells if dm_control can be imported; it is not imported."""
    return importlib.util.find_spec("dm_control") is not None


def model_file(id: str, header: str) -> Path:
    """The compiled model of a task.

    Args:
      id: Such as "CheetahRun-v1".
      header: Header of its native code, which is named after the domain.

    Returns:
      A .mjb file, compiled at the first call and reused afterwards.

    Raises:
      EngineError: dm-control is missing or cannot write this model, or no file can be made.
    """
    stem = Path(header).stem
    function, arguments = _native.dm_control_models()[id]
    return _compile(_MODULES.get(stem, stem), function, json.loads(arguments))


def control_timestep(header: str) -> float | None:
    """Seconds of a step of a task; None: one substep of its model."""
    stem = Path(header).stem
    return getattr(_domain(_MODULES.get(stem, stem)), "_CONTROL_TIMESTEP", None)


def _compile(domain: str, function: str, arguments: Mapping[str, Any]) -> Path:
    """Finds or makes the file of a model."""
    module = _domain(domain)
    mujoco = importlib.import_module("mujoco")
    given = dict(arguments)
    if "random" in given:
        numpy_random = importlib.import_module("numpy.random")
        given["random"] = numpy_random.RandomState(given["random"])
    name = "-".join([domain, *(f"{key}={value}" for key, value in arguments.items())])
    try:
        made = getattr(module, function)(**given)
        # quadruped's function returns only the XML, so the assets are added here
        xml, assets = made if isinstance(made, tuple) else (made, module.common.ASSETS)
        text = xml.decode() if isinstance(xml, bytes) else xml
        path = _folder() / f"{name}-{_digest(mujoco.__version__, text, assets)}.mjb"
        if path.is_file():
            return path
        model = mujoco.MjModel.from_xml_string(text, assets)
    except (AttributeError, TypeError, ValueError) as error:
        raise EngineError(
            f"dm-control's model {name} cannot be compiled: {error}; rollouts needs dm-control "
            f"1.0.30 or later: {_INSTALL} --upgrade"
        ) from error
    # MuJoCo does not report a full disk, so the file is written in Python
    content = np.empty(mujoco.mj_sizeModel(model), np.uint8)
    mujoco.mj_saveModel(model, None, content)
    _write(path, content)
    return path


def _digest(version: str, xml: str, assets: Mapping[str, bytes | str]) -> str:
    """A digest that differs where the compiled model may differ."""
    found = hashlib.sha256(f"{version}\0{xml}".encode())
    for name in sorted(assets):
        asset = assets[name]
        content = asset.encode() if isinstance(asset, str) else asset
        found.update(f"\0{name}\0{len(content)}\0".encode() + content)
    return found.hexdigest()[:20]


def _write(path: Path, content: npt.NDArray[np.uint8]) -> None:
    """Writes a file that other processes see complete or not at all."""
    try:
        with replace_whole(path) as file:
            file.write(content.data)
    except OSError as error:
        raise EngineError(
            f"the model {path} cannot be written: {error.__cause__ or error}; set TMPDIR to a "
            "folder with room"
        ) from error


def _domain(name: str) -> ModuleType:
    try:
        with warnings.catch_warnings():
            # GLFW warns that it finds no display
            warnings.simplefilter("ignore")
            return importlib.import_module(f"dm_control.suite.{name}")
    except ImportError as error:
        raise EngineError(
            "the tasks of the DeepMind Control Suite need the dm-control package, which cannot "
            f"be imported ({error}): {_INSTALL}"
        ) from error


def _folder() -> Path:
    """The folder of this user's models, whose files are loaded without checks."""
    user = os.getuid()
    folder = Path(tempfile.gettempdir()) / f"rollouts-models-{user}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise EngineError(
            f"the folder for models cannot be made: {error}; set TMPDIR to a folder of yours"
        ) from error
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != user or found.st_mode & 0o022:
        raise EngineError(
            f"{folder} must be a directory that you own and that no one else can write to, as "
            "models are kept there: remove it, or set TMPDIR to another folder"
        )
    return folder


def _load(id: str, header: str) -> dict[str, str | int]:
    mujoco_engine.load_engine()
    mujoco_engine.do_without_timer()
    return {
        "suite_model": str(model_file(id, header)),
        "suite_task": id,
        **mujoco_engine.COMMON_OPTIONS,
    }


FAMILY = Family(
    headers="envs/dm_control/",
    drawer="mujoco",
    ids=lambda task: [task] if installed() else [],
    load=_load,
    internal=frozenset({"suite_model", "suite_task", *mujoco_engine.COMMON_OPTIONS}),
    parts_option=mujoco_engine.ALL_PARTS,
    model_file=lambda options: str(options["suite_model"]),
)
