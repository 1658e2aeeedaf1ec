# SPDX-License-Identifier: Apache-2.0
"""Records are read as they were written, in as few bits as their numbers need."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rollouts.run_log.log_format import read_records, to_bytes

Record = tuple[str, dict[str, Any], dict[str, np.ndarray[Any, Any]]]


def drawn(low: int, high: int, count: int) -> list[Record]:
    """Fragments with integers in [low, high), and states between them."""
    rng = np.random.default_rng(0)
    records: list[Record] = []
    for seq in range(count):
        if seq % 4 == 0:
            states = rng.integers(0, 9, 50 + seq).astype(np.uint8)
            records.append(("state", {"seq": seq}, {"states": states}))
        # another number of agents from the middle on
        shape = (7, 5 if seq < count // 2 else 3)
        arrays = {
            "action.": rng.integers(low, high, shape),
            "mean.obs": rng.normal(size=3),
            "counts": np.arange(seq % 2, dtype=np.int32),
        }
        records.append(("fragment", {"seq": seq, "sum": (1 << 64) - 1, "failed": '"\n'}, arrays))
    return records


# numbers of 1, 2, 4, 8, 16, 32 and 64 bits, with and without others than 0 as the smallest
@pytest.mark.parametrize("low", [0, -3])
@pytest.mark.parametrize("size", [2, 4, 16, 200, 60_000, 1 << 31, 1 << 62])
def test_records_are_read_as_they_were(low: int, size: int, tmp_path: Path) -> None:
    records = drawn(low, low + size, 14)
    (tmp_path / "part").write_bytes(b"".join(to_bytes(*one) for one in records))
    read = [record for record, _ in read_records(tmp_path / "part")]
    assert [(one.kind, one.facts) for one in read] == [one[:2] for one in records]
    for one, (_, _, arrays) in zip(read, records, strict=True):
        assert list(one.arrays) == list(arrays)
        for name, array in arrays.items():
            assert one.arrays[name].dtype == array.dtype
            np.testing.assert_array_equal(one.arrays[name], array)


def test_a_record_alone_takes_as_few_bits_as_its_own_numbers_need() -> None:
    def size(*actions: int) -> int:
        return len(to_bytes("fragment", {}, {"action.": np.array(actions * 400, np.int64)}))

    assert size(0, 1) < size(0, 3) < size(0, 9) < size(0, 99)
