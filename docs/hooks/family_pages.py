# SPDX-License-Identifier: Apache-2.0
"""One page per family of environments, written from the registry when the site is built."""

from __future__ import annotations

import io
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from family_facts import CALLED, FACTS, Facts

import rollouts
from rollouts import _native
from rollouts.cli.envs import space_text as space_text
from rollouts.envs.physics.supported import PHYSICS_IDS
from rollouts.families.family import Family
from rollouts.families.table import FAMILIES, entry_id, family_of
from rollouts.specs import EnvSpec

ROOT = Path(__file__).resolve().parents[2]
HEADERS = ROOT / "native" / "include" / "rollouts"
# size of a family's GIF: the GIFs of all families together take some hundred KB
NUM_FRAMES, WIDTH, NUM_COLOURS = 24, 200, 32


def family_pages() -> Iterator[tuple[str, str, bytes | None]]:
    """(name of the page, its Markdown, GIF or None) of each family but users' own."""
    entries = {entry["id"]: entry["header"] for entry in _native.registry()}
    count = Counter(family_of(header).headers for header in entries.values())
    specs: dict[str, list[EnvSpec]] = defaultdict(list)
    problems: dict[str, str] = {}
    for env_id in [*rollouts.env_ids(), *rollouts.multi_agent_ids()]:
        family = family_of(entries[entry_id(env_id)]).headers
        try:
            specs[family].append(rollouts.env_spec(env_id))
        except rollouts.EngineError as error:
            problems[family] = str(error)
    for one in FAMILIES:
        if one.headers.startswith("envs/"):
            missing = problems.get(one.headers, "its engine is not installed")
            yield _page(one, specs[one.headers], count[one.headers], missing)


def facts_of(family: Family) -> Facts:
    """Facts that were written by hand; a new family has its folder's name."""
    name = family.headers.split("/")[1]
    return FACTS.get(name) or Facts(name.replace("_", " ").capitalize())


def _page(
    family: Family, specs: Sequence[EnvSpec], num_entries: int, missing: str
) -> tuple[str, str, bytes | None]:
    name = family.headers.split("/")[1]
    facts = facts_of(family)
    parts = [f"# {facts.title}", facts.about]
    if facts.extra:
        parts.append(f"Install: `pip install 'rollouts[{facts.extra}]'`.")
    parts.append(f"Reference: {facts.reference}." if facts.reference else "")
    if not specs:
        parts.append(
            '!!! warning "Not installed where this page was built"\n\n'
            f"    The core has {num_entries} entries of this family. {missing}. Build the site "
            "where it is installed to see ids, options and infos."
        )
        return name, _joined(parts), None
    drawn = facts.drawn or specs[0].id
    nobody = None, "Nothing draws these environments."
    frame, about_frame = nobody if family.drawer is None else _frame(drawn)
    parts.append(f"![{drawn} by random actions]({name}.gif)" if frame else about_frame)
    parts += ["## Ids", _id_table(specs)]
    parts += ["## Options and infos", "Options are keywords of `rollouts.make_vec`."]
    for header, group in _by_header(specs).items():
        parts += _of_header(header, group)
    parts += ["## How equal", *_oracles(name, facts)]
    return name, _joined(parts), frame


def _joined(parts: Iterable[str]) -> str:
    return "\n\n".join(part for part in parts if part) + "\n"


def _id_table(specs: Sequence[EnvSpec]) -> str:
    rows = [
        "| id | observation | action | time limit | solved at | GPU |",
        "|---|---|---|---|---|---|",
    ]
    for spec in specs:
        groups = [
            (
                f"{group.num_agents} {group.name}: ",
                group.single_observation_space,
                group.single_action_space,
            )
            for group in spec.groups
        ] or [("", spec.single_observation_space, spec.single_action_space)]
        observations = "<br>".join(f"{name}{_plain(space_text(obs))}" for name, obs, _ in groups)
        actions = "<br>".join(f"{name}{_plain(space_text(action))}" for name, _, action in groups)
        limit = "none" if spec.max_episode_steps is None else f"{spec.max_episode_steps}"
        solved = "" if spec.reward_threshold is None else f"{spec.reward_threshold:g}"
        gpu = "yes" if spec.runs_on_gpu or spec.id in PHYSICS_IDS else "no"
        rows.append(f"| `{spec.id}` | {observations} | {actions} | {limit} | {solved} | {gpu} |")
    return "\n".join(rows)


def _by_header(specs: Sequence[EnvSpec]) -> dict[str, list[EnvSpec]]:
    groups: dict[str, list[EnvSpec]] = defaultdict(list)
    for spec in specs:
        groups[spec.header].append(spec)
    return groups


def _of_header(header: str, specs: Sequence[EnvSpec]) -> Iterator[str]:
    ids = [spec.id for spec in specs]
    shown = ", ".join(f"`{one}`" for one in ids[:6])
    stem = Path(header).stem
    called = CALLED.get(stem) or stem.replace("_", " ").capitalize()
    title = ", ".join(ids) if len(ids) <= 2 else called
    yield f"### {title}"
    if len(ids) > 2:
        yield f"Of {shown}{f' and {len(ids) - 6} more' if len(ids) > 6 else ''}."
    yield _rules(header)
    options = {name: help for spec in specs for name, help in spec.option_help.items()}
    if options:
        rows = ["| option | default | meaning |", "|---|---|---|"]
        for name, meaning in options.items():
            defaults = {str(spec.options[name]): spec.id for spec in specs if name in spec.options}
            default = (
                f"`{next(iter(defaults))}`"
                if len(defaults) == 1
                else "<br>".join(f"`{value}` ({of})" for value, of in defaults.items())
            )
            rows.append(f"| `{name}` | {default} | {_plain(meaning)} |")
        yield "\n".join(rows)
    else:
        yield "There are no options."
    yield _infos(ids[0])


def _rules(header: str) -> str:
    """The comment at the head of the header: the environment and its origin."""
    lines = (HEADERS / header).read_text().splitlines()[1:]
    said = []
    for line in lines:
        if not line.startswith("//"):
            break
        said.append(line.removeprefix("//").strip())
    text = _plain(" ".join(said))
    return f"{text}\n\nRules: `rollouts/include/rollouts/{header}`." if text else ""


def _infos(env_id: str) -> str:
    """Names in `info` after a step, besides those that every pool has."""
    try:
        with rollouts.make_vec(env_id, 1, seed=1) as env:
            env.reset()
            info = env.step(_sampled(env))[4]
    except rollouts.RolloutsError as error:
        return f"Infos: not known where this page was built ({_plain(str(error))})."
    own = [
        f"`{name}` {np.asarray(value).dtype}{list(np.shape(value)[1:]) or ''}"
        for name, value in info.items()
        if name not in ("env_id", "episode_return", "episode_length")
        and not name.startswith("_")
        and not isinstance(value, dict)
    ]
    return f"Infos of each step: {', '.join(own)}." if own else "Infos: those of every pool."


def _sampled(env: Any) -> Any:
    env.action_space.seed(1)
    return env.action_space.sample()


def _frame(env_id: str) -> tuple[bytes | None, str]:
    """A GIF of random actions, or the reason why there is none."""
    try:
        from PIL import Image

        with rollouts.make_vec(env_id, 1, seed=2) as env:
            env.reset()
            env.action_space.seed(1)
            frames = []
            for _ in range(NUM_FRAMES):
                env.step(env.action_space.sample())
                frames.append(Image.fromarray(np.asarray(env.render()[0])))
    except (rollouts.RolloutsError, ImportError) as error:
        return None, f"No frame: {_plain(str(error))}."
    for frame in frames:
        frame.thumbnail((WIDTH, WIDTH))
    small = [frame.quantize(NUM_COLOURS, dither=Image.Dither.NONE) for frame in frames]
    file = io.BytesIO()
    small[0].save(file, "GIF", save_all=True, append_images=small[1:], duration=80, loop=0)
    return file.getvalue(), ""


def _oracles(name: str, facts: Facts) -> Iterator[str]:
    """Sentences of the tests that compare the family with its reference."""
    yield facts.equal
    folder = ROOT / "tests" / "oracle"
    files = [folder / file for file in facts.oracles] or sorted(folder.glob(f"test_{name}*.py"))
    rows = []
    for file in files:
        match = re.search(r'^"""(.*?)"""', file.read_text(), flags=re.MULTILINE | re.DOTALL)
        if match:
            name = file.relative_to(folder).as_posix()
            rows.append(f"- `tests/oracle/{name}`: {_plain(' '.join(match[1].split()))}")
    if rows:
        yield "The tests that compare them say:\n\n" + "\n".join(rows)


def _plain(text: str) -> str:
    """Text that Markdown leaves unchanged, even in a table."""
    return re.sub(r"([|*<>_\[\]\\])", r"\\\1", " ".join(text.split())).replace("\\<br\\>", "<br>")
