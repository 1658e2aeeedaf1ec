# SPDX-License-Identifier: Apache-2.0
"""The table of `rollouts bench coordinator`, from costs that were given."""

from __future__ import annotations

import pytest

pytest.importorskip("ray")

from rollouts.bench.driver_cost import DriverCost, DriverTask, to_table


def test_the_table_says_what_a_core_can_take_beside_bare_ray() -> None:
    ours = DriverCost(
        "RolloutCoordinator", cpu_us=[90.0, 100.0, 500.0], per_s=[5e3, 4e3, 4e2], nbytes=2000
    )
    bare = DriverCost("bare Ray", cpu_us=[200.0, 250.0, 260.0], per_s=[4e3] * 3, nbytes=2000)
    header, first, second = to_table(
        [(DriverTask(num_workers=8, publish_every=128), [ours, bare])]
    ).splitlines()
    assert len(header) == len(first) == len(second)
    # 100 us: ten thousand in a second, of 2 kB each; the median pair is 90 to 200
    assert first.split()[:4] == ["8", "2000", "128", "RolloutCoordinator"]
    assert first.split()[4:] == ["100", "0.45", "10000", "20.0", "0.40"]
    assert second.split()[-5:] == ["250", "1.00", "4000", "8.0", "1.00"]
