# SPDX-License-Identifier: Apache-2.0
"""Refuses to unpickle objects that another release of this package pickled.

Frozen dataclasses with slots pickle their fields by position: a release with one field more or less
would silently read each later value as another field. Version numbers do not distinguish two
commits of a checkout, so the source texts of the package are compared, of Python and of the native
headers. A wheel and a checkout of the same commit are equal.
"""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable
from typing import Any

from rollouts.errors import WorkerError

# a function that returns None, or a sentence on how this process's package differs
Check = Callable[[], str | None]


@functools.cache
def make_check() -> Check:
    """Makes a function that compares the package of its calling process with ours.

    It is a local function, so that cloudpickle sends its code: another release may not have it. The
    driver's source texts are read once, at the first call in this process.
    """
    describe = _make_describe()
    ours, ours_is = release()

    def check() -> str | None:
        theirs, theirs_is = describe()
        if theirs == ours:
            return None
        return (
            f"this process has {theirs_is}, and the one that started or feeds it {ours_is}: "
            "install the same release of rollouts on all machines, and start the driver again "
            "where its files changed meanwhile"
        )

    return check


def sealed(function: Callable[..., Any], *arguments: Any) -> tuple[Any, ...]:
    """Returns the `__reduce__` value of an object that only this release may read."""
    digest, _ = release()
    return _opened, (digest, pickle.dumps((function, arguments)))


def _opened(digest: str, data: bytes) -> Any:
    own, own_is = release()
    if own != digest:
        raise WorkerError(
            f"an object of another release of rollouts (digest {digest[:12]}) was sent to a "
            f"process that has {own_is}: install the same release on all machines, and start "
            "both processes again where its files changed meanwhile"
        )
    function, arguments = pickle.loads(data)
    return function(*arguments)


@functools.cache
def release() -> tuple[str, str]:
    """Returns the digest of this process's package at the first call, and a description."""
    return _make_describe()()


def _make_describe() -> Callable[[], tuple[str, str]]:
    def describe() -> tuple[str, str]:
        """Returns the digest of this process's package, and a description of the package."""
        import hashlib
        import importlib.util
        from pathlib import Path

        import rollouts

        package = Path(rollouts.__file__).resolve().parent
        adapters = importlib.util.find_spec("rollouts.integrations")
        found = adapters.submodule_search_locations if adapters is not None else None
        # name -> folder; in a wheel the adapters and headers lie in the package's own folder
        folders = {"rollouts": package, "integrations": Path((found or ["/nowhere"])[0])}
        includes = (package / "include", package.parent / "native" / "include")
        folders["include"] = next((one for one in includes if one.is_dir()), Path("/nowhere"))
        digest = hashlib.sha256()
        for name, folder in folders.items():
            for path in sorted(folder.rglob("*.h" if name == "include" else "*.py")):
                inner = path.relative_to(folder)
                if name == "rollouts" and inner.parts[0] in ("integrations", "include"):
                    continue
                digest.update(f"\0{name}/{inner.as_posix()}\0".encode())
                digest.update(path.read_bytes())
        text = digest.hexdigest()
        return text, f"rollouts {rollouts.__version__} in {package} (digest {text[:12]})"

    return describe
