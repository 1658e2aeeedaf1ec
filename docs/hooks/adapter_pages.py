# SPDX-License-Identifier: Apache-2.0
"""Pages of adapters: their place in the navigation and in the reference, read from the folders.

A new adapter is a module in integrations/ and a page in docs/migration/; it is listed nowhere else.
"""

from __future__ import annotations

from pathlib import Path

_DOCS = Path(__file__).parents[1]
_MIGRATION = _DOCS / "migration"
_INTEGRATIONS = _DOCS.parent / "integrations"


def migration_pages() -> list[dict[str, str]]:
    """Title -> page for each library that users may come from, by title."""
    titles = {
        _title(page): f"migration/{page.name}"
        for page in _MIGRATION.glob("*.md")
        if page.name != "index.md"
    }
    return [{title: titles[title]} for title in sorted(titles, key=str.lower)]


def adapter_modules() -> list[str]:
    """Names of the adapters: modules and packages of integrations/ except the shared parts."""
    modules = {path.stem for path in _INTEGRATIONS.glob("[!_]*.py")}
    packages = {path.parent.name for path in _INTEGRATIONS.glob("*/__init__.py")}
    return sorted(modules | packages - {"shared"})


def adapters_reference() -> str:
    """The part of the reference that has each adapter's docstring."""
    shown = "::: integrations.{}\n    options: {{members: false}}\n"
    return "\n".join(shown.format(name) for name in adapter_modules())


def _title(page: Path) -> str:
    return page.read_text().partition("\n")[0].removeprefix("# ").removeprefix("From ")
