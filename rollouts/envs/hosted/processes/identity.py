# SPDX-License-Identifier: Apache-2.0
"""Messages whose classes and functions are the receiver's own objects, not copies of them.

cloudpickle sends by value what cannot be imported from a module: all of the main script, and what a
function defines. The receiver then has another object of the same name as its class, so that `mode
is Mode.HARD` is false. Here every such object has a key that travels with it, and a process that
has an object of that key uses its own. A forked process has the objects of its host from the
beginning, because they get their keys before the fork. Another process has those that its
environments' functions need.
"""

from __future__ import annotations

import io
import os
import pickle
import sys
import threading
import types
import uuid
import weakref
from collections.abc import Callable, Iterator, Set
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

_lock = threading.RLock()
# the forking thread holds the lock during a fork, so that it is free in the new process
os.register_at_fork(
    before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release
)
_objects: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
_keys: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
_unfinished: set[str] = set()  # made here, and not filled yet
_of_host: dict[str, Any] = {}  # the objects that both this process and its host have


def dumps(value: Any, known: Set[str] | None) -> bytes:
    """Pickles a message to another process of this host; `pickle.loads` reads it.

    Args:
      value: Anything that cloudpickle can pickle.
      known: Keys of the objects that the receiver has; the rest is sent by value. None: the
        receiver is this process.
    """
    # plain pickle is ten times as fast, and does the same for values that refer to nothing in the
    # main script
    if not cloudpickle.list_registry_pickle_by_value():
        try:
            data = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
        except Exception:
            data = b"__main__"
        if b"__main__" not in data:
            return data
    file = io.BytesIO()
    _Pickler(file, known).dump(value)
    return file.getvalue()


def dumps_for_host(value: Any) -> bytes:
    """Pickles a message to the host of this process."""
    return dumps(value, _of_host.keys())


def share_with_forks() -> Set[str]:
    """Gives keys to the objects that forks of this process will have; returns all keys.

    These are functions and classes of the main script, and classes that a function defines.
    """
    for value in list(vars(sys.modules["__main__"]).values()):
        if isinstance(value, types.FunctionType) and value.__module__ == "__main__":
            _key_of(value)
    for kind in _subclasses(object):
        # a class may lack __module__, or have something else there
        if getattr(kind, "__module__", None) == "__main__" or "<locals>" in kind.__qualname__:
            _key_of(kind)
    with _lock:
        return frozenset(_objects)


def keep_those_of_host() -> None:
    """Marks all objects with a key as known to the host, until the process ends."""
    with _lock:
        _of_host.clear()
        # `items` holds its objects meanwhile; an object that is freed already is left out
        _of_host.update(_objects.items())


def _subclasses(root: type) -> Iterator[type]:
    found: set[type] = {root}
    left: list[type] = [root]
    while left:
        one: type
        for one in type.__subclasses__(left.pop()):
            if one not in found:
                found.add(one)
                left.append(one)
                yield one


def _key_of(one: Any) -> str:
    with _lock:
        key = _keys.get(one)
        if key is None:
            key = _keys[one] = uuid.uuid4().hex
            _objects[key] = one
        return key


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    def __init__(self, file: io.BytesIO, known: Set[str] | None) -> None:
        super().__init__(file)
        self._known = known

    def reducer_override(self, one: Any) -> Any:
        """Sends by key what cloudpickle would send by value, if the receiver has it."""
        if not isinstance(one, (type, types.FunctionType)):
            return NotImplemented
        key = _keys.get(one)
        if key is None or (self._known is not None and key not in self._known):
            reduced = super().reducer_override(one)
            # only types of Python's own have a reduction of two parts; they need no key
            if reduced is NotImplemented or len(reduced) == 2:
                return reduced
            key = _key_of(one)
            if self._known is not None:
                make, args, state, _, _, fill = reduced
                return _take, (key, make, args), (key, fill, state), None, None, _fill
        return _find, (key, one.__qualname__)


def _find(key: str, name: str) -> Any:
    """Returns the object that has a key in this process."""
    with _lock:
        one = _objects.get(key)
    if one is None:
        raise pickle.UnpicklingError(f"{name} is no longer there")
    return one


def _take(key: str, make: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Returns the object that has a key here, or makes an empty one and gives it the key."""
    with _lock:
        one = _objects.get(key)
        if one is None:
            one = make(*args)
            _keys[one], _objects[key] = key, one
            _unfinished.add(key)
        return one


def _fill(one: Any, filling: tuple[str, Callable[..., Any], Any]) -> None:
    """Fills an object that `_take` has made; an object that existed before stays as it is."""
    key, fill, state = filling
    with _lock:
        if key in _unfinished:
            _unfinished.discard(key)
            fill(one, state)
