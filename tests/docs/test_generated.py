# SPDX-License-Identifier: Apache-2.0
"""Pages that the hooks make of docstrings, and of families that nobody wrote about."""

from __future__ import annotations

import sys

import pytest
from page_blocks import DOCS

from rollouts.families.family import Family
from rollouts.features import CELLS, REFUSED, why_not

sys.path.insert(0, str(DOCS / "hooks"))
from adapter_pages import adapter_modules, adapters_reference, migration_pages
from family_facts import FACTS
from family_pages import _of_header, _page, facts_of
from feature_page import feature_page, keywords, title
from figure_plots import _rows, figure_plots


def test_family_without_facts_or_engine_has_a_page_that_says_so() -> None:
    family = Family(headers="envs/new_games/")
    name, text, frame = _page(family, [], 3, "new games need the package new-games")
    assert (name, frame) == ("new_games", None)
    assert text.startswith("# New games\n")
    assert "3 entries" in text
    assert "new games need the package new-games" in text


def test_the_page_of_features_says_of_each_keyword_where_it_works() -> None:
    page = feature_page()
    for owner in REFUSED:
        part = page.split(f"\n## {owner}\n")[1].split("\n## ")[0]
        head, _, *rows = (line.split(" | ") for line in part.splitlines() if line.startswith("|"))
        assert head[1:] == [*map(title, CELLS[:-1]), f"{title(CELLS[-1])} |"]
        assert len(rows) == len(keywords(owner))
        for keyword, row in zip(keywords(owner), rows, strict=True):
            assert row[0] == f"| `{keyword}`"
            for cell, mark in zip(CELLS, row[1:], strict=True):
                sentence = why_not(owner, keyword, cell)
                number = mark.removesuffix("|").strip()
                if number not in ("", "+"):
                    assert f"\n{number}. {sentence}\n" in f"{part}\n"
                assert (number == "+") <= (not sentence)
    assert "| `prefetch` | + | + | + | + | + | 1 | 1 |" in page


def test_every_adapter_and_page_of_a_library_is_listed_by_its_file_alone() -> None:
    root = DOCS.parent / "integrations"
    assert {"dm_env", "envpool", "sb3", "tianshou"} < {*adapter_modules()}
    assert all((root / f"{one}.py").is_file() != (root / one).is_dir() for one in adapter_modules())
    assert adapters_reference().count("::: integrations.") == len(adapter_modules())
    listed = {page for one in migration_pages() for page in one.values()}
    assert listed == {f"migration/{page.name}" for page in (DOCS / "migration").glob("[!i]*.md")}
    assert {"RLlib": "migration/rllib.md"} in migration_pages()


def test_facts_name_oracle_tests_that_exist() -> None:
    for facts in FACTS.values():
        for name in facts.oracles:
            assert (DOCS.parent / "tests" / "oracle" / name).is_file(), name


def test_facts_of_a_family_are_found_by_its_folder() -> None:
    assert facts_of(Family(headers="envs/atari/")).title == "Atari"


def test_docstring_sections_become_lists_columns_and_code() -> None:
    pytest.importorskip("griffe")
    from docstrings import markdown_of

    text = markdown_of(
        "Waits.\n\nArgs:\n  first, second: Ids; None:\n    all.\n  third: A number.\n"
        "Returns:\n  obs     (B,)   float32\n  reward  (B,)   float64\n"
        "Raises:\n  SpecError: It is wrong.\nExample:\n  wait(1)\n"
    )
    assert "- `first, second`: Ids; None: all.\n- `third`: A number." in text
    assert "```plain\nobs     (B,)   float32\nreward  (B,)   float64\n```" in text
    assert "**Raises**\n\nSpecError: It is wrong." in text
    assert "```python\nwait(1)\n```" in text


def test_figures_are_drawn_as_the_page_says_them() -> None:
    table = (
        "| environment | calls | rollouts | EnvPool | Gymnasium |\n|---|---|---:|---:|---:|\n"
        "| A-v1 | `step` | 84.9 M | 1.02 M (83.6x) | 112 k (1,070x) |\n"
        "| B-v1 | `step` | 3 k | | |\n"
    )
    ours, *peers = _rows(table)
    assert (ours.case, ours.library) == ("A-v1, step", "rollouts")
    assert ours.median == pytest.approx(84.9e6, rel=0.01)
    assert {one.library: ours.median / one.median for one in peers} == {
        "EnvPool": pytest.approx(83.6),
        "Gymnasium": pytest.approx(1070),
    }
    (plot,) = figure_plots(f"Text.\n\n{table}\nMore.\n\n| a | b |\n|---|---|\n| 1 | 2 |\n")
    assert plot.png.startswith(b"\x89PNG")
    assert plot.shown == f"{table}\n![The table's ratios as bars]({plot.name})\n"


def test_the_figures_page_has_a_plot_of_environments_alone() -> None:
    (plot, *_) = figure_plots((DOCS / "benchmarks.md").read_text())
    assert "| CartPole-v1 |" in plot.table and "| ALE/Pong-v5 |" in plot.table


@pytest.mark.parametrize("called", ["MiniGrid", "BabyAI", "ViZDoom"])
def test_environments_have_the_names_that_people_give_them(called: str) -> None:
    from rollouts import env_ids, env_spec

    prefix = {"ViZDoom": "Vizdoom"}.get(called, called)
    specs = [env_spec(one) for one in env_ids() if one.startswith(prefix)][:3]
    if len(specs) < 3:
        pytest.skip("its engine is not installed")
    header = f"rollouts/envs/{called.lower()}/{called.lower()}.h"
    assert next(_of_header(header, specs)) == f"### {called}"
