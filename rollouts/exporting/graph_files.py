# SPDX-License-Identifier: Apache-2.0
"""Files of graphs as bytes: for each kind a writer, and a reader that runs them."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rollouts.errors import SpecError
from rollouts.exporting.deployed_module import DeployedModule
from rollouts.exporting.deployment import KEY, Deployment
from rollouts.support.extras import needs
from rollouts.support.plain_values import first_sentence

Array = NDArray[Any]
# takes the arrays of all inputs, returns those of all outputs
Run = Callable[[Sequence[Array]], list[Array]]


def to_onnx(module: DeployedModule, example: tuple[Tensor, ...], about: Deployment) -> bytes:
    """An ONNX model, with the description in its metadata_props.

    Raises:
      SpecError: torch cannot export the network.
    """
    with needs("export", "export to .onnx"):
        import onnxscript  # noqa: F401
    inputs = [one.name for one in about.inputs]
    with _explaining(".onnx"), _quietly():
        made = torch.onnx.export(
            module,
            example,
            dynamo=True,
            verbose=False,
            input_names=inputs,
            output_names=[one.name for one in about.outputs],
            dynamic_shapes=_dynamic(example),
        )
    assert made is not None
    model = made.model_proto
    for port in (*model.graph.input, *model.graph.output):
        port.type.tensor_type.shape.dim[0].dim_param = "batch"
    for name, value in (("rollouts", about.to_json()), ("id", about.id)):
        entry = model.metadata_props.add()
        entry.key, entry.value = name, value
    data: bytes = model.SerializeToString()
    return data


def from_onnx(data: bytes, path: object) -> tuple[Deployment, Run]:
    """The description, and a function that runs the model in onnxruntime.

    Raises:
      SpecError: It was not written by `to_onnx`.
    """
    with needs("export", "reading .onnx"):
        import onnxruntime
    try:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise _foreign(path, "an ONNX model", error) from error
    about = Deployment.from_json(
        session.get_modelmeta().custom_metadata_map.get("rollouts", ""), path
    )
    names = [one.name for one in about.inputs]

    def run(arrays: Sequence[Array]) -> list[Array]:
        found: list[Array] = session.run(None, dict(zip(names, arrays, strict=True)))
        return found

    return about, run


def to_pt2(module: DeployedModule, example: tuple[Tensor, ...], about: Deployment) -> bytes:
    """A program of torch.export, with the description as an extra file.

    Raises:
      SpecError: torch cannot export the network.
    """
    file = io.BytesIO()
    with _explaining(".pt2"), _quietly():
        made = torch.export.export(module, example, dynamic_shapes=_dynamic(example))
        torch.export.save(made, file, extra_files={KEY: about.to_json()})
    return file.getvalue()


def from_pt2(data: bytes, path: object) -> tuple[Deployment, Run]:
    """The description, and a function that runs the program in torch.

    Raises:
      SpecError: It was not written by `to_pt2`.
    """
    extra = {KEY: ""}
    try:
        with _quietly():
            module = torch.export.load(io.BytesIO(data), extra_files=extra).module()
    except Exception as error:
        raise _foreign(path, "a program of torch.export", error) from error
    return Deployment.from_json(extra[KEY], path), _by_torch(module)


def to_torchscript(module: DeployedModule, example: tuple[Tensor, ...], about: Deployment) -> bytes:
    """A traced TorchScript module, which C++ loads by torch::jit::load.

    Raises:
      SpecError: torch cannot trace the network.
    """
    file = io.BytesIO()
    # TorchScript is deprecated in torch, but robots still run it
    with _explaining(".pt"), _quietly():
        jit: Any = torch.jit
        made = jit.trace(module, example, check_trace=False)
        jit.save(made, file, _extra_files={KEY: about.to_json()})
    return file.getvalue()


def from_torchscript(data: bytes, path: object) -> tuple[Deployment, Run]:
    """The description, and a function that runs the module in torch.

    Raises:
      SpecError: It was not written by `to_torchscript`.
    """
    extra: dict[str, Any] = {KEY: ""}
    try:
        with _quietly():
            jit: Any = torch.jit
            module = jit.load(io.BytesIO(data), _extra_files=extra)
    except Exception as error:
        raise _foreign(path, "a TorchScript module", error) from error
    return Deployment.from_json(extra[KEY], path), _by_torch(module)


def _by_torch(module: Callable[..., Any]) -> Run:
    @torch.inference_mode()
    def run(arrays: Sequence[Array]) -> list[Array]:
        found = module(*(torch.from_numpy(np.array(each)) for each in arrays))
        return [each.numpy() for each in found]

    return run


def _dynamic(example: tuple[Tensor, ...]) -> Any:
    rows = torch.export.Dim("batch")
    # `forward` takes the first as obs, and the others as its tuple *others
    first, *others = ({0: rows} for _ in example)
    return (first, *others) if not others else {"obs": first, "others": tuple(others)}


@contextmanager
def _quietly() -> Iterator[None]:
    """Suppresses torch's messages about its own internals."""
    # torch.export warns about files that it cannot read, before it raises the error
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "torch.export")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@contextmanager
def _explaining(kind: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        where = next((line for line in lines if "in forward" in line), "")
        raise SpecError(
            f"torch cannot export the network to {kind}: {' '.join([*lines[:2], where])[:500]}. "
            "Make its forward one graph, without Python that depends on numbers of the input"
        ) from error


def _foreign(path: object, expected: str, error: Exception) -> SpecError:
    return SpecError(
        f"{path} is not {expected} ({first_sentence(error)}), expected a file of rollouts.export: "
        "export the policy again"
    )
