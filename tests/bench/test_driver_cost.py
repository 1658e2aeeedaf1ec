# SPDX-License-Identifier: Apache-2.0
"""The table of `rollouts bench coordinator`, from costs that were given."""

from __future__ import annotations

import pytest

pytest.importorskip("ray")

from rollouts.bench.driver_cost import DriverCost, DriverTask, simulated_limits, to_table


def cost_of(
    name: str, us: float, per_call: float, nbytes: int = 2000, fragment_s: float = 1e-6
) -> DriverCost:
    """Costs without noise: a fifth each for calls and arrays, the rest for taking."""
    stages = {"submit": [us / 5], "resolve": [us / 5], "weights": [0.0], "queue": [us * 3 / 5]}
    return DriverCost(name, [us], [5e5 / us], stages, [per_call], nbytes, [fragment_s])


def test_the_table_says_what_a_core_can_take_beside_bare_ray_and_the_simulator() -> None:
    ours, alone = cost_of("RolloutCoordinator", 100.0, 8.0), cost_of("one fragment a call", 400, 1)
    ours.cpu_us, ours.per_s = [90.0, 100.0, 500.0], [5e3, 4e3, 4e2]
    bare = DriverCost("bare Ray", cpu_us=[200.0, 250.0, 260.0], per_s=[4e3] * 3, nbytes=2000)
    alone.cpu_us, alone.per_s = [400.0] * 3, [2500.0] * 3
    header, *lines = to_table(
        [(DriverTask(num_workers=8, publish_every=128), [ours, alone, bare])]
    ).splitlines()
    assert {len(line) for line in lines} == {len(header)}
    # 100 us: ten thousand in a second, of 2 kB each; the median pair is 90 to 200
    assert lines[0].split()[:4] == ["8", "2000", "128", "RolloutCoordinator"]
    assert lines[0].split()[4:7] == ["100", "0.45", "10000"]
    assert lines[0].split()[8:] == ["20.0", "0.40"]
    assert lines[2].split()[-5:] == ["250", "1.00", "4000", "8.0", "1.00"]
    # a driver that is always busy takes what its costs allow
    assert float(lines[1].split()[-3]) == pytest.approx(2500, rel=0.05)


def test_the_simulator_shares_calls_by_the_rule_of_a_real_run() -> None:
    costs = [cost_of("RolloutCoordinator", 150.0, 8.0), cost_of("one fragment a call", 400.0, 1.0)]
    # both sizes of calls cost in the simulation what they cost when they were measured
    with_8, alone = 150.0, 400.0
    of_a_call = (alone - with_8) * 8 / 7
    for publish_every, size in ((128, 16), (16, 4), (8, 2), (4, 1)):
        limits = simulated_limits(DriverTask(num_workers=8, publish_every=publish_every), costs)
        per_fragment_us = alone - of_a_call + of_a_call / size
        assert limits["RolloutCoordinator"] == pytest.approx(1e6 / per_fragment_us, rel=0.02)


def test_slow_workers_are_asked_for_fewer_fragments_at_a_time() -> None:
    task = DriverTask(num_workers=16, publish_every=128)
    limits = []
    for fragment_s in (1e-6, 2e-3, 2e-2):
        costs = [
            cost_of("RolloutCoordinator", 150.0, 8.0, fragment_s=fragment_s),
            cost_of("one fragment a call", 400.0, 1.0, fragment_s=fragment_s),
        ]
        limits.append(simulated_limits(task, costs)["RolloutCoordinator"])
        # the driver waits for such workers; what its CPU time pays for is not less by that
        assert limits[-1] > 2400
    assert limits[0] > limits[1] > limits[2]
