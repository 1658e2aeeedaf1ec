# SPDX-License-Identifier: Apache-2.0
"""Hooks of mkdocs: pages that are generated, their place in the navigation, and llms.txt."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parent))
from adapter_pages import adapters_reference, migration_pages
from family_pages import facts_of, family_pages
from feature_page import feature_page
from figure_plots import FigurePlot, figure_plots

from rollouts.families.table import FAMILIES

_SECTION, _REFERENCE, _COMING = "Environments", "Reference", "Coming from"
_ADAPTERS = "reference/adapters.md"
_FEATURES = "reference/features.md"
_FIGURES = "benchmarks.md"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Adds the pages of families, of libraries and of features to the navigation."""
    pages = [
        {facts_of(family).title: f"environments/{family.headers.split('/')[1]}.md"}
        for family in FAMILIES
        if family.headers.startswith("envs/")
    ]
    for section in config.nav or []:
        if _SECTION in section:
            section[_SECTION] = [*section[_SECTION], *pages]
        if _COMING in section:
            section[_COMING] = [*section[_COMING], *migration_pages()]
        if _REFERENCE in section:
            section[_REFERENCE] = [{"What works where": _FEATURES}, *section[_REFERENCE]]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the families' pages and frames, and the page of features."""
    files.append(File.generated(config, _FEATURES, content=feature_page()))
    for name, text, frame in family_pages():
        files.append(File.generated(config, f"environments/{name}.md", content=text))
        if frame is not None:
            files.append(File.generated(config, f"environments/{name}.gif", content=frame))
    figures = files.get_file_from_path(_FIGURES)
    assert figures is not None
    _plots[:] = figure_plots(figures.content_string)
    for plot in _plots:
        files.append(File.generated(config, plot.name, content=plot.png))
    # added here so that pages may link to it; on_post_build writes its contents
    files.append(File.generated(config, "llms.txt", content=""))
    return files


_first_sentences: dict[str, str] = {}
_plots: list[FigurePlot] = []


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Remembers how each page begins; adds the adapters to their page, and charts to tables."""
    paragraphs = (part.strip() for part in markdown.split("\n\n"))
    texts = (part for part in paragraphs if re.match(r"[A-Z`*\[]", part))
    _first_sentences[page.file.src_uri] = " ".join(next(texts, "").split())
    if page.file.src_uri == _ADAPTERS:
        markdown += f"\n{adapters_reference()}"
    if page.file.src_uri == _FIGURES:
        for plot in _plots:
            markdown = markdown.replace(plot.table, plot.shown)
    return markdown


def on_post_build(config: MkDocsConfig) -> None:
    """Writes llms.txt, for language models: every page with its first paragraph."""
    lines = [f"# {config.site_name}", "", f"> {config.site_description}", ""]
    for section in config.nav or []:
        for title, entry in section.items():
            lines += [f"## {title}", ""]
            for name, uri in _pages(title, entry):
                about = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", _first_sentences.get(uri, ""))
                lines.append(f"- [{name}]({uri.removesuffix('.md')}.html): {about}")
            lines.append("")
    (Path(config.site_dir) / "llms.txt").write_text("\n".join(lines))


def _pages(title: str, entry: Any) -> Iterator[tuple[str, str]]:
    if isinstance(entry, str):
        yield title, entry
        return
    for one in entry:
        ((name, below),) = one.items()
        yield from _pages(name, below)
