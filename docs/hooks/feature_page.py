# SPDX-License-Identifier: Apache-2.0
"""The page of supported keywords, written from `rollouts.features` when the site is built."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import rollouts
from rollouts.features import CELLS, PLACES, REFUSED, Cell, why_not
from rollouts.replay import ReplayService

_OWNERS: dict[str, Callable[..., Any]] = {
    "make_vec": rollouts.make_vec,
    "Collector": rollouts.Collector,
    "RolloutCoordinator": rollouts.RolloutCoordinator,
    "Recorder": rollouts.Recorder,
    "ReplayService": ReplayService,
}
_ABOUT = {
    "make_vec": "Keywords of `make_vec`, and wrappers. `from_env_fns` and `from_parallel_env_fns`, "
    "which host environments in Python, have keywords of their own.",
    "Collector": "Keywords of `Collector`, and the `batch_size` of the environments it steps.",
    "RolloutCoordinator": "Keywords of `RolloutCoordinator`. Environments in Python are those of "
    "`collect.make_env`.",
    "Recorder": "Keywords of `Recorder`, whose environments a collector or workers step; `reset "
    "and step` are its own methods, for environments that a program steps itself.",
    "ReplayService": "Keywords of `ReplayService`.",
}


def feature_page() -> str:
    """The page's Markdown."""
    parts = [
        "# What works where",
        "A keyword works in each column with a `+`. In the others it is refused by one sentence, "
        "which the number stands for. `rollouts.features` has the table that both are made of.",
    ]
    for owner, about in _ABOUT.items():
        sentences: dict[str, int] = {}
        rows = [_row(owner, keyword, sentences) for keyword in keywords(owner)]
        parts += [f"## {owner}", about, "\n".join([*_head(), *rows])]
        parts.append("\n".join(f"{number}. {text}" for text, number in sentences.items()))
    return "\n\n".join(parts) + "\n"


def keywords(owner: str) -> list[str]:
    """All keywords in the table of an owner, in the order of the signature."""
    named = list(_signature(owner))
    return named + [name for name in REFUSED[owner] if name not in named]


def _signature(owner: str) -> Iterator[str]:
    for one in inspect.signature(_OWNERS[owner]).parameters.values():
        if one.kind is one.KEYWORD_ONLY and one.name not in ("device", "collect"):
            yield one.name
    if owner == "RolloutCoordinator":
        for name in inspect.signature(rollouts.CollectOptions).parameters:
            yield f"collect.{name}"


def _head() -> list[str]:
    return ["| keyword | " + " | ".join(map(title, CELLS)) + " |", "|---" * (1 + len(CELLS)) + "|"]


def title(cell: Cell) -> str:
    """The heading of a cell's column."""
    place = PLACES[cell.engine].removeprefix("a ").removesuffix(" on a device")
    return f"{place}, agents" if cell.has_agents else place


def _row(owner: str, keyword: str, sentences: dict[str, int]) -> str:
    found = [why_not(owner, keyword, cell) for cell in CELLS]
    for sentence in filter(None, found):
        sentences.setdefault(sentence, len(sentences) + 1)
    marks = [str(sentences[one]) if one else "+" for one in found]
    if owner == "make_vec":  # environments in Python are made by other functions
        marks = [
            "" if cell.engine == "hosted" else mark for cell, mark in zip(CELLS, marks, strict=True)
        ]
    return f"| `{keyword}` | " + " | ".join(marks) + " |"
