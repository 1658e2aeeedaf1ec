# SPDX-License-Identifier: Apache-2.0
"""The report's page in Markdown and in HTML, made from the same parts."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from comparisons.report.plan import Section
from comparisons.report.report_rows import Row, times
from comparisons.report.running import Outcome
from rollouts.bench.report import digits, si

_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse;font-size:.85rem;display:block;overflow-x:auto}"
    "td,th{border:1px solid #ccc;padding:.2rem .5rem;text-align:left}"
    "td.n{text-align:right;white-space:nowrap}img{max-width:100%}"
    "pre{background:#f4f4f4;padding:.6rem;overflow-x:auto}"
)
_HEAD = ("case", "library", "version", "median", "min", "max", "unit", "rollouts is", "note")
_NUMBERS = frozenset({"median", "min", "max", "rollouts is"})


@dataclass(frozen=True, slots=True)
class MeasuredSection:
    """A section with its results.

    Attributes:
      section: A section of the plan.
      outcomes: Outcomes of its measures.
      plots: File names of its plots, relative to the page.
    """

    section: Section
    outcomes: Sequence[Outcome]
    plots: Sequence[str]

    @property
    def rows(self) -> list[Row]:
        """The rows of all its measures."""
        return [row for one in self.outcomes for row in one.rows]

    @property
    def problems(self) -> list[str]:
        """The sentences about measures that failed, without duplicates."""
        return list(dict.fromkeys(text for one in self.outcomes for text in one.problems))


# paragraphs are (kind, text) with the kinds "h1", "h2", "p", "li", "img", "code" and "table"
Block = tuple[str, str | list[Row]]


def blocks(
    title: str, facts: Mapping[str, str], parts: Sequence[MeasuredSection]
) -> Iterator[Block]:
    """The page from top to bottom."""
    yield "h1", title
    for name, value in facts.items():
        yield "li", f"{name}: {value}"
    yield (
        "p",
        "Medians of several turns, the libraries taking turns in one process where the command "
        "says nothing else; min and max are the slowest and the fastest turn. `rollouts is` says "
        "how many times as good the first row of a case is: as fast, or as small where less is "
        "better.",
    )
    for part in parts:
        yield "h2", part.section.title
        yield "p", part.section.question
        yield "p", f"Fair: {part.section.fair}"
        yield "p", f"Not equal: {part.section.unfair}"
        for name in part.plots:
            yield "img", name
        if part.rows:
            yield "table", part.rows
        for text in part.problems:
            yield "li", text
        yield "code", "\n".join(one.command for one in part.outcomes)


def to_markdown(page: Sequence[Block]) -> str:
    """Returns the page as Markdown."""
    lines: list[str] = []
    before = ""
    for kind, content in page:
        if lines and not (kind == before == "li"):
            lines.append("")
        lines.append(_as_markdown(kind, content))
        before = kind
    return "\n".join(lines) + "\n"


def to_html(page: Sequence[Block]) -> str:
    """Returns the page as one HTML file; the files of the plots lie beside it."""
    title = next(str(content) for kind, content in page if kind == "h1")
    body, in_list = [], False
    for kind, content in page:
        if (kind == "li") != in_list:
            body.append("<ul>" if kind == "li" else "</ul>")
            in_list = kind == "li"
        body.append(_as_html(kind, content))
    body += ["</ul>"] * in_list
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style></head>\n<body>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def _as_markdown(kind: str, content: str | list[Row]) -> str:
    if isinstance(content, list):
        cells = [_HEAD, tuple("---:" if name in _NUMBERS else "---" for name in _HEAD)]
        cells += [tuple(one.replace("|", "\\|") for one in line) for line in _cells(content)]
        return "\n".join(f"| {' | '.join(line)} |" for line in cells)
    forms = {
        "h1": f"# {content}",
        "h2": f"## {content}",
        "li": f"- {content}",
        "img": f"![{content}]({content})",
        "code": f"```bash\n{content}\n```",
    }
    return forms.get(kind, content)


def _as_html(kind: str, content: str | list[Row]) -> str:
    if isinstance(content, list):
        head = "".join(f"<th>{name}</th>" for name in _HEAD)
        lines = "\n".join(
            "<tr>"
            + "".join(
                f"<td{' class=n' if name in _NUMBERS else ''}>{_with_code(html.escape(cell))}</td>"
                for name, cell in zip(_HEAD, line, strict=True)
            )
            + "</tr>"
            for line in _cells(content)
        )
        return f"<table><tr>{head}</tr>\n{lines}</table>"
    text = html.escape(content)
    if kind == "img":
        return f'<p><img src="{text}" alt="{text}"></p>'
    if kind == "code":
        return f"<pre>{text}</pre>"
    return f"<{kind}>{_with_code(text)}</{kind}>"


def _with_code(text: str) -> str:
    """Words between backticks, which Markdown shows as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", text)


def _cells(rows: Sequence[Row]) -> Iterator[tuple[str, ...]]:
    for row in rows:
        ratio = times(row, rows)
        yield (
            row.case,
            row.library,
            row.version,
            *(si(number) for number in (row.median, row.low, row.high)),
            row.unit,
            "" if ratio is None else f"{digits(ratio)}x",
            row.note,
        )
