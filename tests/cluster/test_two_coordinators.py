# SPDX-License-Identifier: Apache-2.0
"""Several users of Ray in one process: the last one leaves it, and who has no CPU says so."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_own_ray import run_script

pytest.importorskip("ray")

pytestmark = pytest.mark.system

BEGIN = """
import contextlib, logging, sys
import ray
from rollouts.workers import Placement
from rollouts.errors import SpecError
from rollouts.replay import ShardOptions
from replay_world import make_coordinator, make_service
from small_cluster import started

logging.basicConfig(format="%(message)s", stream=sys.stdout)

def start(num_workers=1, **kwargs):
    return RolloutCoordinator("Counter", make_policy, num_workers=num_workers,
                              num_envs_per_worker=2, rollout_length=4,
                              collect=CollectOptions(make_collector=CounterCollector), **kwargs)

def use(*coordinators):
    for one in coordinators:
        one.publish_weights(weights())
        one.get_fragments(1, 300)

def init():
    started(lambda: ray.init("local", num_cpus=1, include_dashboard=False, log_to_driver=False,
                             logging_level=logging.ERROR))
"""

CLOSED_IN_ANY_ORDER = (
    BEGIN
    + """
from rollouts.workers.on_ray import room

# on a busy machine Ray may need longer than a user would wait to free what a coordinator had
room._FREED_S = 300.0
half = Placement(num_cpus=0.5)
training = start(placement=half)
evaluation = start(placement=half)
use(training, evaluation)
training.close()
use(evaluation)
training = start(placement=half)
use(training)
evaluation.close()
assert ray.is_initialized()
use(training)
training.close()
training.close()
assert not ray.is_initialized()
"""
)

SAYS_SO = (
    BEGIN
    + """
with start(2) as training:
    try:
        start()
    except SpecError as error:
        print("refused:", error)
    with contextlib.ExitStack() as stack:
        service = stack.enter_context(make_coordinator(num_workers=0))
        try:
            make_service(service, shards=ShardOptions(num_cpus=1), num_shards=1)
        except SpecError as error:
            print("refused:", error)
    use(training)
# what it had is free again, in a Ray of its own size
with start(3) as training:
    use(training)
"""
)

IN_THE_USERS_RAY = (
    BEGIN
    + """
init()
with start() as training:
    use(training)
    # the user's own work may give a CPU back
    evaluation = start()
use(evaluation)
evaluation.close()
assert ray.is_initialized()
"""
)

SHUT_DOWN_BETWEEN = (
    BEGIN
    + """
first = start()
ray.shutdown()
init()
first.close()
assert ray.is_initialized()
with start() as second:
    use(second)
assert ray.is_initialized()
"""
)


def test_the_last_coordinator_leaves_ray(tmp_path: Path) -> None:
    run_script(CLOSED_IN_ANY_ORDER, tmp_path)


def test_who_would_never_get_a_cpu_is_refused(tmp_path: Path) -> None:
    said = [line for line in run_script(SAYS_SO, tmp_path).splitlines() if "refused" in line]
    assert len(said) == 2
    for line in said:
        assert "need 1 CPUs, and of the 2 that Ray has 0 are free" in line, line
        assert "ray.init(num_cpus=3)" in line, line


def test_in_a_users_ray_a_lack_is_a_warning(tmp_path: Path) -> None:
    said = run_script(IN_THE_USERS_RAY, tmp_path)
    assert "need 1 CPUs, and of the 1 that Ray has 0 are free" in said
    assert "those without a CPU wait for one" in said


def test_a_ray_of_the_users_is_not_shut_down(tmp_path: Path) -> None:
    run_script(SHUT_DOWN_BETWEEN, tmp_path)
