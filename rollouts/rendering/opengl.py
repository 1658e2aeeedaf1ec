# SPDX-License-Identifier: Apache-2.0
"""OpenGL without a window: the choice of a back-end, and one thread for all its calls.

MuJoCo's own `Renderer` has the back-end that MUJOCO_GL named when mujoco was imported, long before
the first frame. Here it is chosen with the first frame.
"""

from __future__ import annotations

import atexit
import ctypes
import importlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any, TypeVar

from rollouts.errors import EngineError
from rollouts.support.no_room import named_if_no_room, start_thread

Result = TypeVar("Result")

VARIABLE = "MUJOCO_GL"
_OFF = ("disable", "disabled", "off", "false", "0")
_ANY = ("", "enable", "enabled", "on", "true", "1")
_SAME = {"glx": "glfw", "wgl": "glfw"}
_BACKENDS = ("egl", "osmesa", "glfw", "cgl")

# shared libraries behind the back-ends that need no display
_LIBRARIES = {
    "egl": ("libEGL.so.1", "libEGL.so"),
    "osmesa": ("libOSMesa.so.8", "libOSMesa.so.6", "libOSMesa.so"),
}
HELP = (
    "Drawing without a display needs MUJOCO_GL=egl (Debian: apt-get install libegl1 "
    "libgl1-mesa-dri, or the driver of an NVIDIA GPU) or MUJOCO_GL=osmesa (Debian: apt-get "
    "install libosmesa6), set before the process starts"
)


def choose_backend() -> tuple[str, str]:
    """Chooses the back-end to draw with.

    Returns:
      "egl", "osmesa", "glfw" or "cgl"; and the reason for the choice.

    Raises:
      EngineError: MUJOCO_GL turns rendering off or names no back-end, or no library is installed.
    """
    given = os.environ.get(VARIABLE, "")
    wanted = given.strip().lower()
    if wanted in _OFF:
        raise EngineError(
            f"nothing can be rendered: {VARIABLE} is {given!r}, which turns OpenGL off. Unset it. "
            f"{HELP}"
        )
    wanted = _SAME.get(wanted, wanted)
    names = _LIBRARIES.get(wanted, ())
    if names and not any(_loads(name) for name in names):
        # checked before PyOpenGL is imported, which cannot change its back-end later
        raise EngineError(
            f"nothing can be rendered: {VARIABLE} is {given!r}, whose library is not installed: "
            f"{' or '.join(names)}. {HELP}"
        )
    if wanted in _BACKENDS:
        return wanted, f"{VARIABLE} is {given!r}"
    if wanted not in _ANY:
        raise EngineError(
            f"nothing can be rendered: {VARIABLE} is {given!r}, expected egl, osmesa or glfw. "
            f"{HELP}"
        )
    if sys.platform == "darwin":
        return "cgl", "the one of macOS"
    for backend, names in _LIBRARIES.items():
        if any(_loads(name) for name in names):
            return backend, f"{VARIABLE} is not set and its library is installed"
    if os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        return "glfw", "there is a display, and neither EGL nor OSMesa"
    raise EngineError(f"nothing can be rendered: neither EGL nor OSMesa is installed. {HELP}")


def new_context(width: int, height: int) -> Any:
    """Makes an OpenGL context and makes it current in this thread.

    Raises:
      EngineError: As `choose_backend`, or the back-end does not work.
      SpecError: No further file can be opened.
    """
    # checked first, because a library that cannot be opened looks as if it was not installed
    with named_if_no_room("OpenGL", "close some"):
        os.close(os.open(os.devnull, os.O_RDONLY))
    backend, reason = choose_backend()
    with explained(backend, reason):
        context = importlib.import_module(f"mujoco.{backend}").GLContext(width, height)
        context.make_current()
    return context


@contextmanager
def explained(backend: str, reason: str) -> Iterator[None]:
    """Turns any error of OpenGL into an EngineError that says what to do."""
    platform = os.environ.get("PYOPENGL_PLATFORM")
    try:
        yield
    except Exception as error:  # PyOpenGL without a library raises AttributeError
        # mujoco sets the variable for PyOpenGL; child processes must choose for themselves
        if platform is None:
            os.environ.pop("PYOPENGL_PLATFORM", None)
        raise EngineError(
            f"nothing can be rendered: OpenGL's back-end {backend!r} ({reason}) failed with "
            f"{type(error).__name__}: {error}. {HELP}"
        ) from error


class GlThread:
    """The thread of this process in which OpenGL is used, since contexts belong to threads.

    It starts with the first call and is a daemon. Any thread may call.
    """

    def __init__(self) -> None:
        self._start_lock = threading.Lock()
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]]] | None = None
        self._pid = 0

    def run(self, function: Callable[[], Result]) -> Result:
        """Calls `function` in this thread, waits, and returns its result or raises its error.

        Raises:
          EngineError: This process was forked from one that has used OpenGL.
        """
        with self._start_lock:
            if self._calls is None:
                calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = SimpleQueue()
                name = "rollouts-opengl"
                start_thread(threading.Thread(target=_serve, args=(calls,), name=name, daemon=True))
                self._calls, self._pid = calls, os.getpid()
        self.refuse_forked()
        future: Future[Result] = Future()
        self._calls.put((future, function))
        return future.result()

    def refuse_forked(self) -> None:
        """Raises EngineError where this process was forked from one that has used OpenGL."""
        if self._calls is not None and not self.is_here():
            raise EngineError(
                "nothing can be rendered: this process was forked from one that has rendered "
                "already, and OpenGL does not survive that. Start it with multiprocessing's "
                "'spawn' or 'forkserver', or render first after the fork"
            )

    def is_here(self) -> bool:
        """Tells if the thread runs in this process, not in one from which this was forked."""
        return self._pid == os.getpid()

    def post(self, function: Callable[[], None]) -> None:
        """Calls `function` in this thread later, if OpenGL was used; safe in a finaliser."""
        if self._calls is not None and self.is_here():
            self._calls.put((Future(), function))


def _serve(calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]]]) -> None:
    while True:
        future, function = calls.get()
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)
        # objects of the call must be freed now, not at the next call
        del future, function


gl_thread = GlThread()


def run_at_exit(function: Callable[[], None]) -> None:
    """Calls `function` in OpenGL's thread when the process ends; to be called in that thread.

    Functions that were registered before, as mujoco's with a first context, are called after it.
    """
    pid = os.getpid()

    def finish() -> None:
        if os.getpid() == pid:
            gl_thread.run(function)

    atexit.register(finish)


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True
