# SPDX-License-Identifier: Apache-2.0
"""Folders and files stay small enough that the right one is found by its name."""

from __future__ import annotations

from report import MOST_FILES, report


def test_no_file_and_no_folder_is_too_large() -> None:
    sizes = report()
    assert sizes["files of more than 400 lines"] == {}
    assert sizes[f"folders of more than {MOST_FILES} files"] == {}


def test_what_is_called_most_takes_few_arguments() -> None:
    sizes = report()
    assert sizes["modules at the root of rollouts/"] == 14
    assert sizes["arguments of RolloutCoordinator"] == 16
    assert sizes["arguments of ReplayService"] == 11
    assert sizes["arguments of ReplayBuffer.add_step"] == 3
