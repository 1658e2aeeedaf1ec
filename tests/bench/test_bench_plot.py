# SPDX-License-Identifier: Apache-2.0
"""`rollouts.bench.plot`: which panels, lines and labels a set of measurements gives."""

from __future__ import annotations

import dataclasses
import itertools
import struct
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("matplotlib", reason="matplotlib is missing")

from rollouts.bench import Comparison, Measurement, Settings, plot
from rollouts.errors import SpecError

TITLE = "rollouts 0.1.0, envpool 1.2.5, Some CPU, 2 usable CPUs"


def comparison(
    num_envs: int, batch_size: int = 0, num_threads: int = 2, env_id: str = "CartPole-v1"
) -> Comparison:
    """Ours, a peer that takes every setting, and one that only has `step` and one thread."""
    settings = Settings(env_id, num_envs, batch_size or num_envs, num_threads, repeats=3)
    rows, api = settings.batch_size, "recv/send" if settings.is_async else "step"
    return Comparison(
        settings,
        {},
        (
            Measurement("rollouts", "1", rows, num_threads, api, 100_000, (1.0, 2.0, 4.0)),
            Measurement("envpool", "1", rows, num_threads, api, 2_000, (1.0, 1.0, 2.0)),
            Measurement("gymnasium", "1", num_envs, 1, "step", 1_000, (1.0, 2.0, 2.0)),
        ),
    )


def sweep(
    num_envs: list[int], batch_size: list[int], num_threads: list[int], *env_ids: str
) -> list[Comparison]:
    return [
        comparison(n, b, t, env_id)
        for env_id, n, b, t in itertools.product(
            env_ids or ["CartPole-v1"], num_envs, batch_size, num_threads
        )
    ]


def lines(axes: Any) -> dict[str, list[tuple[list[int], list[float]]]]:
    """The x and y of every line, by label."""
    found: dict[str, list[tuple[list[int], list[float]]]] = {}
    for bars in axes.containers:
        x, y = bars[0].get_data()
        found.setdefault(bars.get_label(), []).append((list(x), list(y)))
    return found


def legend(figure: Any) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def titles(figure: Any) -> list[str]:
    return [axes.get_title() for axes in figure.axes]


def test_a_library_that_was_not_measured_everywhere_has_a_shorter_line() -> None:
    first, second = sweep([8, 64], [0], [2])
    ours, _, gymnasium = first.measurements
    lacking = dataclasses.replace(first, measurements=(ours, gymnasium))
    (axes,) = plot.draw([lacking, second], title=TITLE).axes
    found = lines(axes)
    assert found["envpool"] == [([64], [128e3])]
    assert found["gymnasium (1 thread)"] == [([8, 64], [4e3, 32e3])]


def test_each_library_is_a_line_of_medians_over_num_envs() -> None:
    figure = plot.draw(sweep([64, 8], [0], [2]), title=TITLE)
    (axes,) = figure.axes
    assert lines(axes) == {
        "rollouts": [([8, 64], [4e5, 3.2e6])],
        "envpool": [([8, 64], [16e3, 128e3])],
        "gymnasium (1 thread)": [([8, 64], [4e3, 32e3])],
    }
    assert legend(figure) == list(lines(axes))
    assert (axes.get_xlabel(), axes.get_ylabel()) == (
        "num_envs [environments]",
        "throughput [env-steps/s]",
    )
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert [text.get_text() for text in axes.get_xticklabels()] == ["8", "64"]
    assert titles(figure) == ["CartPole-v1, sync (step)\nnum_threads 2"]


def test_error_bars_go_from_the_slowest_to_the_fastest_repeat() -> None:
    (axes,) = plot.draw(sweep([1, 2], [0], [1]), title=TITLE).axes
    _, _, (bars,) = axes.containers[0]
    # rows: environments stepped in each of 100 000 calls, in 4, 2 and 1 seconds
    found = [segment[:, 1].tolist() for segment in bars.get_segments()]
    assert found == [[25e3, 100e3], [50e3, 200e3]]


def test_the_title_has_versions_and_what_a_point_is() -> None:
    figure = plot.draw([comparison(8)], title=f"{TITLE}, {'x' * 100}")
    text = figure.get_suptitle()
    assert TITLE in text
    assert "median, minimum and maximum of 3 repeats" in text
    assert max(len(line) for line in text.splitlines()) <= 120


def test_threads_are_the_x_axis_where_num_envs_is_one_value() -> None:
    (axes,) = plot.draw(sweep([64], [0], [1, 2, 3]), title=TITLE).axes
    assert axes.get_xlabel() == "num_threads [threads]"
    assert lines(axes)["gymnasium (1 thread)"][0][0] == [1, 2, 3]
    assert axes.get_xscale() == "linear"


def test_batch_size_is_the_x_axis_where_nothing_else_has_several_values() -> None:
    figure = plot.draw(sweep([64], [8, 16], [2]), title=TITLE)
    (axes,) = figure.axes
    assert axes.get_xlabel() == "batch_size [rows per call]"
    assert lines(axes)["envpool"][0][0] == [8, 16]
    assert "gymnasium (1 thread, always step)" in legend(figure)


def test_every_id_and_mode_has_its_panel() -> None:
    found = [
        comparison(n, b, env_id=env_id)
        for env_id in ("CartPole-v1", "Pendulum-v1")
        for n in (8, 64)
        for b in (n // 2, n)
    ]
    assert titles(plot.draw(found, title=TITLE)) == [
        "CartPole-v1, sync (step)\nnum_threads 2",
        "CartPole-v1, async (recv/send)\nbatch_size N/2, num_threads 2",
        "Pendulum-v1, sync (step)\nnum_threads 2",
        "Pendulum-v1, async (recv/send)\nbatch_size N/2, num_threads 2",
    ]


def test_an_odd_number_of_panels_leaves_no_empty_axes() -> None:
    figure = plot.draw(sweep([8, 16], [0], [2], "A-v0", "B-v0", "C-v0"), title=TITLE)
    assert len(figure.axes) == 3


def test_threads_beside_num_envs_are_lines_of_their_own() -> None:
    figure = plot.draw(sweep([8, 64], [0], [1, 2]), title=TITLE)
    assert legend(figure) == [
        "rollouts, 1 thread",
        "rollouts, 2 threads",
        "envpool, 1 thread",
        "envpool, 2 threads",
        "gymnasium (1 thread)",
    ]
    (axes,) = figure.axes
    # measured beside each of the two, and never joined across them
    assert [x for x, _ in lines(axes)["gymnasium (1 thread)"]] == [[8, 64], [8, 64]]
    styles = {
        bars.get_label(): (bars[0].get_color(), bars[0].get_linestyle()) for bars in axes.containers
    }
    assert len(set(styles.values())) == len(styles)
    assert styles["rollouts, 1 thread"][1] == styles["gymnasium (1 thread)"][1] == "-"


def test_threads_that_follow_from_num_envs_are_one_line() -> None:
    figure = plot.draw([comparison(1, num_threads=1), comparison(8, num_threads=2)], title=TITLE)
    assert legend(figure) == ["rollouts", "envpool", "gymnasium (1 thread)"]
    assert titles(figure) == ["CartPole-v1, sync (step)\nnum_threads 1 to 2"]


def test_batch_sizes_beside_num_envs_are_named_by_share_where_those_are_fewer() -> None:
    found = [comparison(n, n // share) for n in (8, 64) for share in (2, 4)]
    assert legend(plot.draw(found, title=TITLE))[:2] == [
        "rollouts, batch N/2",
        "rollouts, batch N/4",
    ]
    found = sweep([64, 256], [16, 32], [2])
    assert legend(plot.draw(found, title=TITLE))[:2] == [
        "rollouts, batch 16",
        "rollouts, batch 32",
    ]


def test_bars_where_nothing_is_swept() -> None:
    figure = plot.draw([comparison(64), comparison(64, 32)], title=TITLE)
    assert titles(figure) == [
        "CartPole-v1, sync (step)\nnum_envs 64, num_threads 2",
        "CartPole-v1, async (recv/send)\nnum_envs 64, batch_size 32, num_threads 2",
    ]
    for axes, ours in zip(figure.axes, (3.2e6, 1.6e6), strict=True):
        heights = [bar.get_height() for bar in axes.patches]
        assert heights[0] == ours
        assert len(heights) == 3
        assert axes.get_yscale() == "log"
        assert axes.get_ylim()[0] < min(heights)
    names = [text.get_text() for text in figure.axes[0].get_xticklabels()]
    assert names == ["rollouts", "envpool", "gymnasium\n(1 thread, always step)"]
    assert "3.20 M" in [text.get_text() for text in figure.axes[0].texts]


def test_ticks_are_thinned_where_they_would_overlap() -> None:
    (axes,) = plot.draw(sweep([1000, 1024, 65536], [0], [2]), title=TITLE).axes
    assert [text.get_text() for text in axes.get_xticklabels()] == ["1000", "65536"]


@pytest.mark.parametrize("suffix", plot.SUFFIXES)
def test_a_plot_is_written_in_the_format_of_its_suffix(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"out{suffix}"
    plot.save(plot.draw(sweep([8, 64], [0], [2]), title=TITLE), path)
    head = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}[suffix]
    assert path.read_bytes().startswith(head)


def test_a_png_is_1000_pixels_wide(tmp_path: Path) -> None:
    path = tmp_path / "out.png"
    plot.save(plot.draw([comparison(8)], title=TITLE), path)
    data = path.read_bytes()
    assert len(data) > 10_000
    assert struct.unpack(">I", data[16:20]) == (1000,)


def test_checking_a_path_leaves_it_as_it_was(tmp_path: Path) -> None:
    missing, existing = tmp_path / "missing.PNG", tmp_path / "existing.png"
    existing.write_bytes(b"before")
    plot.check(missing)
    plot.check(existing)
    assert not missing.exists()
    assert existing.read_bytes() == b"before"


def test_a_path_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder.png").mkdir()
    for path in (tmp_path / "folder.png", tmp_path / "no" / "out.png"):
        with pytest.raises(SpecError, match=r"cannot be written to .*give a path in a folder"):
            plot.check(path)
    figure = plot.draw([comparison(8)], title=TITLE)
    with pytest.raises(SpecError, match="No such file or directory"):
        plot.save(figure, tmp_path / "no" / "out.png")
