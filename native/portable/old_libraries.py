# SPDX-License-Identifier: Apache-2.0
"""Lists what an extension may take from the system's libraries to run on older systems.

`write` makes, for each library of the compiler, a stand-in of the same name that has the symbols
of the old release alone, each with the newest version that the release had. A linker that finds
those first cannot bind to anything newer: it takes the rest from the compiler's static libraries
or from `stand_ins.cpp`. `check` finds what was left over.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

# the newest versions of manylinux_2_28: glibc 2.28 and the libstdc++ of GCC 8
NEWEST = {"GLIBC": (2, 28), "GLIBCXX": (3, 4, 24), "CXXABI": (1, 3, 11)}
SECTIONS = {"TLS": '.section .tbss,"awT",@nobits', "OBJECT": ".bss"}
ASM_TYPES = {"TLS": "@tls_object", "OBJECT": "@object"}


class Symbol(NamedTuple):
    """One line of a dynamic symbol table."""

    name: str
    version: str  # empty: none
    kind: str  # FUNC, OBJECT, TLS, ...
    binding: str  # GLOBAL, WEAK, ...
    defined: bool


def symbols(readelf: str, library: Path) -> Iterator[Symbol]:
    """The dynamic symbols of `library`, those of its local scope left out."""
    table = subprocess.run(
        [readelf, "--dyn-syms", "--wide", library], check=True, capture_output=True, text=True
    ).stdout
    for line in table.splitlines():
        fields = line.split()
        if len(fields) < 8 or not fields[0].rstrip(":").isdigit() or fields[4] == "LOCAL":
            continue
        name, _, version = fields[7].partition("@")
        version = version.lstrip("@")
        yield Symbol(name, version, fields[3], fields[4], fields[6] != "UND")


def old_enough(version: str) -> tuple[int, ...] | None:
    """The number in a version such as GLIBC_2.17, None where the old release lacks it."""
    match = re.fullmatch(r"([A-Z]+)_([0-9.]+)", version)
    if match is None or match[1] not in NEWEST:
        return None
    number = tuple(int(part) for part in match[2].split("."))
    return number if number <= NEWEST[match[1]] else None


def newest_of_old(table: Iterator[Symbol]) -> dict[str, Symbol]:
    """Each name's symbol with the newest version that is old enough."""
    chosen: dict[str, tuple[tuple[int, ...], Symbol]] = {}
    for symbol in table:
        number = old_enough(symbol.version)
        if symbol.defined and number is not None:
            chosen[symbol.name] = max(chosen.get(symbol.name, (number, symbol)), (number, symbol))
    return {name: symbol for name, (_, symbol) in chosen.items()}


def write(folder: Path, library: Path, compiler: str, readelf: str) -> None:
    """Makes `folder/library.name`, with nothing in it but the old release's names."""
    folder.mkdir(parents=True, exist_ok=True)
    nodes: dict[str, list[str]] = defaultdict(list)
    assembler = []
    for name, symbol in sorted(newest_of_old(symbols(readelf, library)).items()):
        nodes[symbol.version].append(name)
        section = SECTIONS.get(symbol.kind, ".text")
        kind = ASM_TYPES.get(symbol.kind, "@function")
        assembler.append(f"{section}\n.globl {name}\n.type {name}, {kind}\n{name}: .skip 8\n")
    source, script = folder / f"{library.name}.s", folder / f"{library.name}.map"
    source.write_text("".join(assembler) + '.section .note.GNU-stack,"",@progbits\n')
    script.write_text(
        "".join(f"{node} {{ {'; '.join(names)}; }};\n" for node, names in nodes.items())
    )
    options = ["-shared", "-nostdlib", f"-Wl,-soname,{library.name}"]
    if nodes:
        options.append(f"-Wl,--version-script,{script}")
    subprocess.run([compiler, *options, "-o", folder / library.name, source], check=True)


def check(module: Path, readelf: str) -> None:
    """Exits with a message if `module` needs a symbol beyond the old release and Python."""
    for symbol in symbols(readelf, module):
        ours = symbol.defined or symbol.binding == "WEAK" or re.match("_?Py", symbol.name)
        known = symbol.version.startswith("GCC_") or old_enough(symbol.version) is not None
        if not ours and not known:
            sys.exit(
                f"{module.name} needs {symbol.name} {symbol.version}, which glibc 2.28 and GCC 8 "
                f"lack: write a stand-in in native/portable/stand_ins.cpp, or do without it"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--readelf", required=True)
    parser.add_argument("--check", type=Path, help="the module to look through")
    parser.add_argument("--compiler", help="the compiler whose libraries have newer symbols")
    parser.add_argument("--folder", type=Path, help="where the old libraries go")
    parser.add_argument("names", nargs="*", help="file names of libraries, such as libm.so.6")
    arguments = parser.parse_args()
    if arguments.check is not None:
        check(arguments.check, arguments.readelf)
    for name in arguments.names:
        where = subprocess.run(
            [arguments.compiler, f"-print-file-name={name}"],
            check=True, capture_output=True, text=True,
        ).stdout.strip()  # fmt: skip
        write(arguments.folder, Path(where), arguments.compiler, arguments.readelf)


if __name__ == "__main__":
    main()
