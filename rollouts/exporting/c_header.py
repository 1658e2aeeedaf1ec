# SPDX-License-Identifier: Apache-2.0
"""A policy as a C header: weights as arrays and a function that acts, with only <math.h>."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from rollouts.errors import SpecError
from rollouts.exporting.deployment import Deployment
from rollouts.policies.program import Op, Program

_MOST_WEIGHTS = 4_000_000  # a compiler needs minutes for larger headers

# formulas of each feature x
_OF_EACH = {
    "tanh": "tanhf(x)",
    "relu": "x > 0.0f ? x : 0.0f",
    "sigmoid": "1.0f / (1.0f + expf(-x))",
    "silu": "x / (1.0f + expf(-x))",
    "gelu": "0.5f * x * (1.0f + erff(x * 0.70710678f))",
    "gelu_tanh": "0.5f * x * (1.0f + tanhf(0.79788456f * (x + 0.044715f * x * x * x)))",
    "softplus": "(x > 0.0f ? x : 0.0f) + log1pf(expf(-fabsf(x)))",
    "exp": "expf(x)",
    "log": "logf(x)",
    "sqrt": "sqrtf(x)",
    "square": "x * x",
    "elu": "x > 0.0f ? x : {0} * expm1f(x)",
    "leaky_relu": "x > 0.0f ? x : {0} * x",
    "scale": "{0} * x + {1}",
}
# formulas of two features, x and y, or of three features
_OF_SEVERAL = {
    "add": "x + y",
    "sub": "x - y",
    "mul": "x * y",
    "div": "x / y",
    "minimum": "x < y ? x : y",
    "maximum": "x > y ? x : y",
    "greater": "x > y ? 1.0f : 0.0f",
    "greater_equal": "x >= y ? 1.0f : 0.0f",
    "equal": "x == y ? 1.0f : 0.0f",
    "where": "x != 0.0f ? y : z",
}


def c_header(
    program: Program, arrays: Sequence[NDArray[np.float32]], about: Deployment, name: str
) -> str:
    """The text of a header that compiles as C99 and C++.

    Args:
      program: Computes (scores, *new states) from an observation and states; scores are logits, or
        the action.
      arrays: The program's parameters.
      about: The text of the comment at the top.
      name: Name of the file, from which the function's name is made.

    Raises:
      SpecError: There are too many weights, or an operation that has no formula in C.
    """
    count = sum(array.size for array in arrays)
    if count > _MOST_WEIGHTS:
        raise SpecError(
            f"the network has {count:,} weights, expected {_MOST_WEIGHTS:,} at most in a C header: "
            "export it to .onnx, which onnxruntime runs from C, too"
        )
    # C99 reserves names that begin with an underscore, and compilers differ in other letters
    prefix = re.sub(r"\W", "_", name, flags=re.ASCII).strip("_")
    if not prefix or prefix[0].isdigit():
        prefix = f"policy_{prefix}".rstrip("_")
    return "\n".join(
        [
            *_comment(about),
            f"#ifndef {prefix.upper()}_H",
            f"#define {prefix.upper()}_H",
            "#include <math.h>",
            "#include <string.h>",
            "",
            f"#define {prefix.upper()}_OBS_SIZE {program.obs_size}",
            f"#define {prefix.upper()}_ACTION_SIZE {_action_size(program, about)}",
            f"#define {prefix.upper()}_STATE_SIZE {sum(program.state_sizes)}",
            "",
            *(_array(f"{prefix}_w{i}", array) for i, array in enumerate(arrays)),
            *_initial(prefix, about),
            "",
            *_function(prefix, program, about),
            "#endif",
            "",
        ]
    )


def _comment(about: Deployment) -> list[str]:
    # the description must not end the comment
    lines = about.to_json().replace("*/", "* /").splitlines()
    return ["/*", *(f" * {line}" for line in lines), " */"]


def _action_size(program: Program, about: Deployment) -> int:
    if about.nvec:
        return len(about.nvec)
    return 1 if _is_discrete(about) else program.sizes[program.outputs[0]]


def _is_discrete(about: Deployment) -> bool:
    return any(one.name == "logits" for one in about.outputs)


def _number(value: float) -> str:
    if math.isinf(value):
        return "INFINITY" if value > 0 else "-INFINITY"
    # nine digits represent a float32 exactly
    text = f"{np.float32(value):.9g}"
    return f"{text}f" if "." in text or "e" in text else f"{text}.0f"


def _array(name: str, array: NDArray[np.float32]) -> str:
    numbers = [_number(float(each)) for each in array.ravel()]
    rows = [", ".join(numbers[i : i + 8]) for i in range(0, len(numbers), 8)]
    body = ",\n  ".join(rows)
    return f"static const float {name}[{len(numbers)}] = {{\n  {body}}};"


def _initial(prefix: str, about: Deployment) -> list[str]:
    if not about.initial_states:
        return []
    numbers = [number for one in about.initial_states for number in one]
    start = np.asarray(numbers, np.float32)
    return [
        "/* the state in which an episode begins */",
        _array(f"{prefix}_initial_state", start),
    ]


def _function(prefix: str, program: Program, about: Deployment) -> list[str]:
    masked = any(one.name == "action_mask" for one in about.inputs)
    discrete = _is_discrete(about)
    arguments = [
        "const float *obs",
        *(["float *state"] if program.state_sizes else []),
        *(["const unsigned char *action_mask"] if masked else []),
        "int *action" if discrete else "float *action",
    ]
    body: list[str] = []
    total = program.sizes[0]
    body += [f"float r0[{total}];", f"memcpy(r0, obs, sizeof(float) * {program.obs_size});"]
    if program.state_sizes:
        body.append(
            f"memcpy(r0 + {program.obs_size}, state, sizeof(float) * {sum(program.state_sizes)});"
        )
    for i, op in enumerate(program.ops, 1):
        body += [f"float r{i}[{op.size}];", *_operation(prefix, program, op, f"r{i}")]
    scores, *states = program.outputs
    body += (
        _choice(about, f"r{scores}", masked=masked)
        if discrete
        else [f"memcpy(action, r{scores}, sizeof(float) * {program.sizes[scores]});"]
    )
    place = 0
    for register in states:
        size = program.sizes[register]
        body.append(f"memcpy(state + {place}, r{register}, sizeof(float) * {size});")
        place += size
    return [
        *_how(program, masked=masked, discrete=discrete),
        f"static inline void {prefix}_act({', '.join(arguments)}) {{",
        *(f"  {line}" for line in body),
        "}",
    ]


def _how(program: Program, *, masked: bool, discrete: bool) -> list[str]:
    lines = [f"Acts for one observation of {program.obs_size} numbers"]
    if program.state_sizes:
        lines.append("; state is read and written, and begins as initial_state")
    if masked:
        lines.append("; action_mask has 0 for each action that is not allowed")
    lines.append("; action gets the most likely " + ("numbers." if discrete else "action."))
    return [f"/* {''.join(lines)} */"]


def _choice(about: Deployment, scores: str, *, masked: bool) -> list[str]:
    lines: list[str] = []
    place = 0
    sizes = about.nvec or (next(one.shape[-1] for one in about.outputs if one.name == "logits"),)
    for element, size in enumerate(sizes):
        allowed = f"action_mask[{place} + i] && " if masked else ""
        lines += [
            "{",
            "  int best = -1;",
            f"  for (int i = 0; i < {size}; ++i) {{",
            f"    const float *x = {scores} + {place};",
            f"    if ({allowed}(best < 0 || x[i] > x[best])) best = i;",
            "  }",
            f"  action[{element}] = (best < 0 ? 0 : best) + {about.first};",
            "}",
        ]
        place += size
    return lines


def _operation(prefix: str, program: Program, op: Op, out: str) -> list[str]:
    inputs = [f"r{i}" for i in op.inputs]
    sizes = [program.sizes[i] for i in op.inputs]
    weights = [f"{prefix}_w{i}" for i in op.params]
    numbers = [_number(value) for value in op.numbers]
    whole = _WHOLE.get(op.kind)
    if whole is not None:
        return whole(op, out, inputs, sizes, weights, numbers)
    if op.kind == "clamp":
        low, high = numbers
        text = f"x < {low} ? {low} : x > {high} ? {high} : x"
    elif op.kind in _OF_EACH:
        text = _OF_EACH[op.kind].format(*numbers)
    elif op.kind in _OF_SEVERAL:
        text = _OF_SEVERAL[op.kind]
    else:
        raise SpecError(f"C has no text for the operation {op.kind}: export to .onnx")
    read = [
        f"const float {name} = {register}[{'i' if size > 1 else 0}];"
        for name, register, size in zip("xyz", inputs, sizes, strict=False)
    ]
    return _loop(op.size, [*read, f"{out}[i] = {text};"])


def _loop(count: int, lines: Sequence[str], index: str = "i") -> list[str]:
    return [
        f"for (int {index} = 0; {index} < {count}; ++{index}) {{",
        *(f"  {x}" for x in lines),
        "}",
    ]


Writer = Callable[[Op, str, list[str], list[int], list[str], list[str]], list[str]]


def _linear(
    op: Op, out: str, x: list[str], sizes: list[int], w: list[str], _: list[str]
) -> list[str]:
    first = f"{w[1]}[i]" if len(w) == 2 else "0.0f"
    inner = _loop(sizes[0], [f"sum += {w[0]}[i * {sizes[0]} + k] * {x[0]}[k];"], "k")
    return _loop(op.size, [f"float sum = {first};", *inner, f"{out}[i] = sum;"])


def _embedding(
    op: Op, out: str, x: list[str], _: list[int], w: list[str], __: list[str]
) -> list[str]:
    return [f"memcpy({out}, {w[0]} + (int){x[0]}[0] * {op.size}, sizeof(float) * {op.size});"]


def _constant(
    op: Op, out: str, _: list[str], __: list[int], w: list[str], ___: list[str]
) -> list[str]:
    return [f"memcpy({out}, {w[0]}, sizeof(float) * {op.size});"]


def _literal(
    op: Op, out: str, _: list[str], __: list[int], ___: list[str], numbers: list[str]
) -> list[str]:
    return [f"{out}[{i}] = {number};" for i, number in enumerate(numbers)]


def _concat(
    op: Op, out: str, x: list[str], sizes: list[int], _: list[str], __: list[str]
) -> list[str]:
    places = np.cumsum([0, *sizes]).tolist()
    return [
        f"memcpy({out} + {place}, {register}, sizeof(float) * {size});"
        for place, register, size in zip(places, x, sizes, strict=False)
    ]


def _slice(
    op: Op, out: str, x: list[str], _: list[int], __: list[str], ___: list[str]
) -> list[str]:
    return [f"memcpy({out}, {x[0]} + {int(op.numbers[0])}, sizeof(float) * {op.size});"]


def _layer_norm(
    op: Op, out: str, x: list[str], _: list[int], w: list[str], numbers: list[str]
) -> list[str]:
    normal = f"({x[0]}[i] - mean) * scale"
    value = f"{normal} * {w[0]}[i] + {w[1]}[i]" if w else normal
    return [
        "{",
        "  float mean = 0.0f, square = 0.0f, scale;",
        *(f"  {line}" for line in _loop(op.size, [f"mean += {x[0]}[i];"])),
        f"  mean /= {op.size}.0f;",
        *(
            f"  {line}"
            for line in _loop(op.size, [f"square += ({x[0]}[i] - mean) * ({x[0]}[i] - mean);"])
        ),
        f"  scale = 1.0f / sqrtf(square / {op.size}.0f + {numbers[0]});",
        *(f"  {line}" for line in _loop(op.size, [f"{out}[i] = {value};"])),
        "}",
    ]


_WHOLE: dict[str, Writer] = {
    "linear": _linear,
    "embedding": _embedding,
    "constant": _constant,
    "literal": _literal,
    "concat": _concat,
    "slice": _slice,
    "layer_norm": _layer_norm,
}
