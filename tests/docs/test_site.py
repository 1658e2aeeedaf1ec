# SPDX-License-Identifier: Apache-2.0
"""The site builds without a warning, asks nobody for anything, and its links lead somewhere."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from page_blocks import DOCS

import rollouts
from rollouts.families.table import FAMILIES

pytestmark = pytest.mark.system

ROOT = DOCS.parent
SLUGS = [family.headers.split("/")[1] for family in FAMILIES if family.headers.startswith("envs/")]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs")
    folder = tmp_path_factory.mktemp("site")
    result = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "WARNING" not in result.stderr
    return folder


class Page(HTMLParser):
    """A page's links, the files that it loads, and the places in it that may be linked to."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.feed(file.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.ids |= {given[name] for name in ("id", "name") if name in given}
        if tag in ("script", "img", "iframe", "source") and "src" in given:
            self.loaded.append(given["src"])
        elif tag == "link" and given.get("rel") != "canonical":
            self.loaded.append(given.get("href", ""))
        elif tag == "a" and "href" in given:
            self.links.append(given["href"])


@pytest.fixture(scope="module")
def html(site: Path) -> dict[Path, Page]:
    # 404.html has links from the root of a server
    files = [file for file in site.rglob("*.html") if file.name != "404.html"]
    return {file: Page(file) for file in files}


def test_no_page_loads_anything_from_elsewhere(html: dict[Path, Page], site: Path) -> None:
    loaded = [url for page in html.values() for url in page.loaded]
    assert loaded
    assert [url for url in loaded if re.match(r"(\w+:)?//", url)] == []
    for file in site.rglob("*.css"):
        assert not re.search(r"url\([\"']?(https?:)?//", file.read_text()), file


def broken(html: dict[Path, Page]) -> Iterator[tuple[str, str]]:
    for file, page in html.items():
        for url in [*page.links, *page.loaded]:
            path, _, anchor = url.partition("#")
            if re.match(r"\w+:", url):
                continue
            target = (file.parent / path).resolve() if path else file
            known = html[target].ids if target in html else {anchor}
            if not target.exists() or (anchor and anchor not in known):
                yield file.name, url


def test_links_lead_to_pages_and_headings_that_exist(html: dict[Path, Page]) -> None:
    assert list(broken(html)) == []


@pytest.mark.parametrize("slug", SLUGS)
def test_each_family_has_a_page_with_all_of_its_ids(slug: str, site: Path) -> None:
    text = (site / "environments" / f"{slug}.html").read_text()
    ids = [
        env_id
        for env_id in [*rollouts.env_ids(), *rollouts.multi_agent_ids()]
        if rollouts.env_spec(env_id).header.startswith(f"envs/{slug}/")
    ]
    if not ids:
        assert "Not installed where this page was built" in text
    for env_id in ids:
        assert env_id in text
        for option in rollouts.env_spec(env_id).options:
            assert f"<code>{option}</code>" in text


def test_llms_txt_lists_every_page(site: Path) -> None:
    listed = re.findall(r"\]\((\S+\.html)\): \S", (site / "llms.txt").read_text())
    found = [file.relative_to(site).as_posix() for file in site.rglob("*.html")]
    assert sorted(listed) == sorted(set(found) - {"404.html"})


@pytest.mark.parametrize(
    ("word", "page"),
    [
        ("VecNormalize", "how_to/sb3_normalize.html"),
        ("EvalCallback", "how_to/sb3_normalize.html"),
    ],
)
def test_the_search_finds_pages_by_the_words_that_people_type(
    word: str, page: str, site: Path
) -> None:
    entries = json.loads((site / "search" / "search_index.json").read_text())["docs"]
    found = [each["location"] for each in entries if word in each["title"]]
    assert any(location.startswith(page) for location in found)


def test_nothing_names_a_package_index_or_a_folder_of_the_build(site: Path) -> None:
    for file in site.rglob("*.html"):
        text = file.read_text()
        assert str(ROOT) not in text, file
        assert "simple/" not in re.sub(r"simple_\w+", "", text), file
