# SPDX-License-Identifier: Apache-2.0
"""Links between pages lead somewhere, and every page is in the navigation."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from page_blocks import DOCS, pages

from rollouts.families.table import FAMILIES

sys.path.insert(0, str(DOCS / "hooks"))
from adapter_pages import migration_pages

ROOT = DOCS.parent
DESIGN = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("native/**/DESIGN.md"))
READMES = [
    *("README.md", "CONTRIBUTING.md", "rollouts/README.md", "native/README.md"),
    *("comparisons/README.md", "examples/cluster/README.md", *DESIGN),
]
LINK = re.compile(r"\]\(([^)\s]+)\)")
# written when the site is built
GENERATED = {f"environments/{family.headers.split('/')[1]}.md" for family in FAMILIES} | {
    "llms.txt"
}


def headings(page: Path) -> set[str]:
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def broken(page: Path) -> Iterator[str]:
    text = re.sub(r"^ *```.*?^ *```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for link in LINK.findall(text):
        if link.startswith(("http://", "https://", "#")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve()
        if target.is_relative_to(DOCS) and target.relative_to(DOCS).as_posix() in GENERATED:
            continue
        if not target.exists() or (anchor and anchor not in headings(target)):
            yield f"{page.relative_to(ROOT)}: {link}"


@pytest.mark.parametrize(
    "page",
    [*pages(), *(ROOT / name for name in READMES)],
    ids=lambda page: page.relative_to(ROOT).as_posix(),
)
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    assert list(broken(page)) == []


def test_every_page_is_in_the_navigation() -> None:
    nav = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    listed = re.findall(r": (\S+\.md)$", nav, flags=re.MULTILINE)
    listed += [page for one in migration_pages() for page in one.values()]
    written = {page.relative_to(DOCS).as_posix() for page in pages()}
    assert sorted(listed) == sorted(written)


def test_the_pool_s_decisions_list_every_other_page_of_decisions() -> None:
    listed = set(LINK.findall((ROOT / "native/DESIGN.md").read_text()))
    assert {path.removeprefix("native/") for path in DESIGN} - {"DESIGN.md"} == listed
