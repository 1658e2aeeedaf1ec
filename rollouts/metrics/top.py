# SPDX-License-Identifier: Apache-2.0
"""`rollouts top`: shows a run's status file in the terminal, as it changes."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rollouts.errors import EngineError
from rollouts.metrics.status import Status, find_status

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

_BAR_WIDTH = 40
_UNKNOWN = "-"


def show(directory: Path, *, once: bool, interval_s: float) -> int:
    """Shows the run until it ends or until Ctrl-C, or shows one frame.

    Args:
      directory: See `find_status`.
      once: Print one frame.
      interval_s: Seconds between frames.
    Returns:
      Exit status: 0, or 1 where the run's process is gone without having finished.
    Raises:
      SpecError: there is no run.
      EngineError: rich is not installed.
    """
    console_class, live_class = _rich()
    console = console_class(highlight=False)
    status = find_status(directory, time.time())
    # from now on only this run is shown, even if a newer one starts
    directory = status.path.parent
    if once:
        now_s = time.time()
        console.print(render(status, now_s))
        return _exit_status(status, now_s)
    with live_class(console=console, auto_refresh=False, screen=False) as live:
        while True:
            now_s = time.time()
            status = find_status(directory, now_s)
            live.update(render(status, now_s), refresh=True)
            if status.state(now_s) in ("finished", "gone"):
                return _exit_status(status, now_s)
            time.sleep(interval_s)


def render(status: Status, now_s: float) -> RenderableType:
    """Returns one frame.

    Args:
      status: Status of the run.
      now_s: Seconds since the epoch.
    """
    from rich.console import Group

    parts = [_headline(status, now_s), _totals(status), _workers(status)]
    lag = status.labels("rollouts_policy_lag_env_steps_total")
    if lag:
        parts.append(_bars("policy lag", lag, "delivered env-steps by versions behind"))
    for name, title in (
        ("rollouts_env_steps_discarded_total", "discarded env-steps"),
        ("rollouts_fragments_interrupted_total", "interrupted fragments"),
    ):
        if any(status.labels(name).values()):
            parts.append(_bars(title, status.labels(name), "by reason"))
    return Group(*parts)


def _headline(status: Status, now_s: float) -> RenderableType:
    from rich.text import Text

    age_s = max(0.0, now_s - status.time_s)
    states = {
        "running": ("running", "bold green"),
        "finished": (f"finished {_duration(age_s)} ago", "bold blue"),
        "gone": (
            f"process {status.pid} is gone without finishing; last news {_duration(age_s)} ago",
            "bold red",
        ),
        "silent": (f"no news for {_duration(age_s)}: is it stuck?", "bold yellow"),
    }
    text, style = states[status.state(now_s)]
    up_s = status.time_s - status.start_s
    head = f"{_clean(str(status.path.parent))}  pid {status.pid} on {_clean(status.host)}"
    return Text.assemble(f"{head}, up {_duration(up_s)}: ", (text, style))


def _totals(status: Status) -> RenderableType:
    steps = "rollouts_env_steps"
    mean_lag = status.value("rollouts_policy_lag", "mean")
    weights = status.per_s("rollouts_weights_bytes_total")
    rows = [
        ("env-steps/s", _number(status.per_s(f"{steps}_total"))),
        ("env-steps", _number(status.value(f"{steps}_total"))),
        ("delivered", _number(status.value(f"{steps}_delivered_total"))),
        ("discarded", _number(sum(status.labels(f"{steps}_discarded_total").values()))),
        ("queue depth", _number(status.value("rollouts_queue_depth"))),
        ("in flight", _number(status.value("rollouts_fragments_in_flight"))),
        ("learner waits", _share(status.per_s("rollouts_learner_wait_seconds_total"))),
        ("workers wait", _share(status.per_s("rollouts_workers_wait_seconds_total"))),
        ("policy version", _number(status.value("rollouts_policy_version"))),
        ("policy lag", _UNKNOWN if mean_lag is None else f"{mean_lag:.2f}"),
        ("restarts", _number(status.value("rollouts_restarts_total"))),
        ("object store", _bytes(status.value("rollouts_object_store_bytes"))),
        ("weights", _UNKNOWN if weights is None else f"{_bytes(weights)}/s"),
    ]
    table = _grid(("left", "right") * 3)
    columns = -(-len(rows) // 3)
    for row in range(columns):
        cells = [cell for pair in rows[row::columns] for cell in pair]
        table.add_row(*cells)
    return table


def _workers(status: Status) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    if not status.workers:
        return Text("no Ray workers: the run collects in its own process")
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("worker", "incarnation", "env-steps/s", "in flight"):
        table.add_column(name, justify="right")
    for name in ("state", "node", "pid"):
        table.add_column(name)
    table.add_column("last error", no_wrap=True, overflow="ellipsis")
    for worker in status.workers:
        table.add_row(*_worker_cells(status, worker))
    return table


def _worker_cells(status: Status, worker: Mapping[str, Any]) -> list[Any]:
    from rich.text import Text

    worker_id, state = str(worker["worker_id"]), str(worker["state"])
    # the last line of a traceback has the message
    error = str(worker["last_error"] or "").strip().splitlines()[-1:]
    cells = [
        worker_id,
        _cell(worker["incarnation"]),
        _number(status.per_s("rollouts_worker_env_steps_total", worker_id)),
        _number(status.value("rollouts_worker_in_flight", worker_id)),
        state,
        _cell(worker["node"] or worker["host"]),
        _cell(worker["pid"]),
        "".join(error),
    ]
    style = {"running": "green", "benched": "red"}.get(state, "yellow")
    return [Text(_clean(cell), style=style if cell is state else "") for cell in cells]


def _bars(title: str, values: Mapping[str, float], unit: str) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    def order(key: str) -> tuple[int, float, str]:
        """Numbers by size, then texts."""
        try:
            return 0, float(key), ""
        except ValueError:
            return 1, 0.0, key

    mark = "█" if _is_printable("█") else "#"
    largest, total = max(values.values()), sum(values.values())
    table = _grid(("right", "left", "right", "right"))
    for label in sorted(values, key=order):
        value = values[label]
        bar = mark * round(_BAR_WIDTH * (value / largest)) if largest else ""
        share = f"{value / total:.1%}" if total else _UNKNOWN
        table.add_row(Text(_clean(label)), bar, _number(value), share)
    return Group(Text.assemble((title, "bold"), f"  {unit}"), table)


def _grid(aligned: tuple[str, ...]) -> Table:
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    for justify in aligned:
        table.add_column(justify=justify)  # type: ignore[arg-type]
    return table


def _exit_status(status: Status, now_s: float) -> int:
    return 1 if status.state(now_s) == "gone" else 0


def _rich() -> tuple[Any, Any]:
    try:
        from rich.console import Console
        from rich.live import Live
    except ImportError as error:
        raise EngineError(f"it needs rich ({error}): pip install 'rollouts[top]'") from error
    return Console, Live


def _is_printable(text: str) -> bool:
    """Tells if the terminal's encoding has these characters."""
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True


def _clean(text: str) -> str:
    """Removes control characters: a worker's error must not control the reader's terminal."""
    return "".join(c if c.isprintable() else "?" for c in text)


def _cell(value: object) -> str:
    return _UNKNOWN if value is None else str(value)


def _number(value: float | None) -> str:
    if value is None or not math.isfinite(value):  # a sum of huge numbers may be infinite
        return _UNKNOWN
    return f"{value:,.0f}" if value == int(value) or value >= 100 else f"{value:,.2f}"


def _share(wait_s_per_s: float | None) -> str:
    """Seconds waited per second, as a share; of several workers it may be above 100 %."""
    return _UNKNOWN if wait_s_per_s is None else f"{wait_s_per_s:.0%} of the time"


def _bytes(value: float | None) -> str:
    if value is None:
        return _UNKNOWN
    for unit in ("B", "kB", "MB", "GB"):
        if value < 999.5:  # above, three digits round to the next unit
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.3g} TB"


def _duration(seconds: float) -> str:
    if not math.isfinite(seconds):
        return _UNKNOWN
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
