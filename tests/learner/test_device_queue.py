# SPDX-License-Identifier: Apache-2.0
"""Fetching ahead onto the learner's device: order, bounds, errors, and the copy itself."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import rollouts
from rollouts import TorchPolicy, returns
from rollouts.batch import MultiAgentRollout, RolloutBatch
from rollouts.device_queue import BufferLayout, DeviceQueue
from rollouts.errors import ClosedError, DTypeError, SpecError
from rollouts.learner_shards import LearnerShards, split_columns
from rollouts.replay import DeviceReplay

TIMEOUT_S = 120
NOT_MOVED = ("final_obs", "counted")
CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")


def make_batch(number: int, steps: int = 4, envs: int = 3) -> RolloutBatch:
    rng = np.random.default_rng(number)
    shape = (steps, envs)
    return RolloutBatch(
        obs=rng.integers(0, 255, (*shape, 5), np.uint8),
        action=rng.integers(0, 4, shape),
        reward=np.full(shape, number, np.float32),
        terminated=rng.random(shape) < 0.5,
        truncated=rng.random(shape) < 0.5,
        bootstrap_value=rng.random(shape, np.float32),
        log_prob=rng.random(shape, np.float32),
        value=rng.random(shape, np.float32),
        last_obs=rng.integers(0, 255, (envs, 5), np.uint8),
        last_value=rng.random(envs, np.float32),
        policy_version=np.full(shape, number),
        env_id=np.arange(envs, dtype=np.int32),
        episode_return=rng.random(shape),
        episode_length=rng.integers(1, 9, shape, np.int32),
        extras={"hidden": rng.random((*shape, 2))},
        policy_state=(rng.random((envs, 3), np.float32), rng.random((envs, 1))),
    )


def number_of(batch: RolloutBatch[torch.Tensor]) -> int:
    return int(batch.reward[0, 0])


def assert_same(batch: RolloutBatch[torch.Tensor], expected: RolloutBatch) -> None:
    assert batch.final_obs is None
    for name in {f.name for f in fields(RolloutBatch)} - {"extras", "policy_state", *NOT_MOVED}:
        tensor, array = getattr(batch, name), getattr(expected, name)
        assert tensor.dtype == torch.from_numpy(array).dtype, name
        np.testing.assert_array_equal(tensor.cpu().numpy(), array, err_msg=name)
    # what people read does not wait for the device
    for mine, theirs in zip(batch.episodes()[:3], expected.episodes()[:3], strict=True):
        assert isinstance(mine, np.ndarray)
        np.testing.assert_array_equal(mine, theirs)
    assert batch.extras.keys() == expected.extras.keys()
    for name, array in expected.extras.items():
        np.testing.assert_array_equal(batch.extras[name].cpu().numpy(), array)
    for state, array in zip(batch.policy_state, expected.policy_state, strict=True):
        np.testing.assert_array_equal(state.cpu().numpy(), array)
    assert batch.num_steps == expected.num_steps


class Source:
    """Hands numbered batches out, each when the test allows it; `asked` counts the calls."""

    def __init__(self) -> None:
        self.allowed = threading.Semaphore(0)
        self.changed = threading.Condition()
        self.given = 0
        self.errors: dict[int, BaseException] = {}

    def __call__(self, timeout_s: float) -> RolloutBatch:
        if not self.allowed.acquire(timeout=timeout_s):
            raise TimeoutError
        if self.given in self.errors:
            raise self.errors[self.given]
        with self.changed:
            self.given += 1
            self.changed.notify_all()
        return make_batch(self.given - 1)

    def wait_until_given(self, number: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.given >= number, TIMEOUT_S)


Open = Callable[..., DeviceQueue]


@pytest.fixture
def start() -> Iterator[Open]:
    opened = []

    def start(source: Any, **kwargs: Any) -> DeviceQueue:
        opened.append(DeviceQueue(source, **kwargs))
        return opened[-1]

    yield start
    for queue in opened:
        queue.close()


def test_batches_come_in_the_order_of_the_source(start: Open) -> None:
    batches = [make_batch(number) for number in range(20)]
    left = iter(batches)
    for batch, expected in zip(start(lambda timeout_s: next(left)), batches, strict=True):
        assert_same(batch, expected)


def test_cpu_tensors_share_the_memory_of_the_batch(start: Open) -> None:
    batch = make_batch(0)
    moved = start(lambda timeout_s: batch).get(TIMEOUT_S)
    assert np.shares_memory(moved.obs.numpy(), batch.obs)
    assert np.shares_memory(moved.extras["hidden"].numpy(), batch.extras["hidden"])


@pytest.mark.filterwarnings("error")
def test_read_only_batches_of_ray_are_taken_without_a_warning(start: Open) -> None:
    batch = make_batch(0)
    batch.obs.flags.writeable = False
    assert_same(start(lambda timeout_s: batch).get(TIMEOUT_S), batch)


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_never_holds_more_than_depth(start: Open, depth: int) -> None:
    source = Source()
    held_too_many = []
    taken = 0

    def watched(timeout_s: float) -> RolloutBatch:
        # this call is for one batch beyond those given
        if source.given - taken >= depth:
            held_too_many.append(source.given)
        return source(timeout_s)

    queue = start(watched, depth=depth)
    source.allowed.release(50)
    for number in range(40):
        source.wait_until_given(min(number + depth, 50))
        # counted before, as the thread goes on inside get()
        taken += 1
        assert number_of(queue.get(TIMEOUT_S)) == number
    assert not held_too_many


def test_slow_source_only_lets_get_time_out(start: Open) -> None:
    source = Source()
    queue = start(source)
    with pytest.raises(TimeoutError, match=r"0\.01 s"):
        queue.get(0.01)
    source.allowed.release()
    assert number_of(queue.get(TIMEOUT_S)) == 0


@pytest.mark.parametrize("error", [ValueError("broken"), ClosedError("coordinator closed")])
def test_source_s_exception_comes_after_the_batches_before_it(
    start: Open, error: Exception
) -> None:
    source = Source()
    source.errors[2] = error
    queue = start(source, depth=4)
    source.allowed.release(3)
    got = []
    with pytest.raises(type(error), match=str(error)):
        for batch in queue:
            got.append(number_of(batch))
    assert got == [0, 1]
    with pytest.raises(type(error), match=str(error)):
        queue.get(TIMEOUT_S)


def test_end_of_the_source_ends_iteration(start: Open) -> None:
    left = iter([make_batch(0)])
    queue = start(lambda timeout_s: next(left))
    assert [number_of(batch) for batch in queue] == [0]
    with pytest.raises(ClosedError, match="no more batches"):
        queue.get(TIMEOUT_S)


def test_close_wakes_a_waiting_learner_and_ends_iteration(start: Open) -> None:
    queue = start(Source())
    outcome: list[Any] = []
    waiting = threading.Event()

    def learn() -> None:
        waiting.set()
        outcome.append(list(queue))

    learner = threading.Thread(target=learn)
    learner.start()
    assert waiting.wait(TIMEOUT_S)
    queue.close()
    learner.join(TIMEOUT_S)
    assert outcome == [[]]
    with pytest.raises(ClosedError, match="closed"):
        queue.get()


def test_close_counts_what_it_drops_and_ends_the_thread(start: Open) -> None:
    source = Source()
    queue = start(source, depth=3)
    source.allowed.release(9)
    source.wait_until_given(3)
    queue.get(TIMEOUT_S)
    source.wait_until_given(4)
    queue.close()
    queue.close()
    assert queue.stats() == {"delivered": 1, "held": 0, "discarded": source.given - 1}
    assert not queue._thread.is_alive()


def test_several_takers_share_the_batches(start: Open) -> None:
    left = iter(range(200))
    lists: list[list[int]] = [[] for _ in range(4)]
    queue = start(lambda timeout_s: make_batch(next(left)))

    def take(into: list[int]) -> None:
        into.extend(number_of(batch) for batch in queue)

    threads = [threading.Thread(target=take, args=(each,)) for each in lists]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT_S)
    assert sorted(itertools.chain(*lists)) == list(range(200))
    assert all(each == sorted(each) for each in lists)


@pytest.mark.parametrize(
    ("arguments", "message"), [({"depth": 0}, "depth is 0"), ({"device": "meta"}, "device is meta")]
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        DeviceQueue(Source(), **arguments)


shapes = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
dtypes = st.sampled_from([np.uint8, np.bool_, np.int32, np.int64, np.float32, np.float64])


@given(st.lists(dtypes.flatmap(lambda d: hnp.arrays(d, shapes)), min_size=1, max_size=8))
def test_arrays_come_whole_out_of_the_transfer_buffer(given_arrays: list[np.ndarray]) -> None:
    arrays = {f"{i}": array for i, array in enumerate(given_arrays)}
    layout = BufferLayout(arrays)
    buffer = torch.full((layout.nbytes + 100,), 0xAB, dtype=torch.uint8)
    layout.write(buffer)
    for name, tensor in layout.views(buffer).items():
        assert tensor.dtype == torch.from_numpy(arrays[name]).dtype
        assert tuple(tensor.shape) == arrays[name].shape
        assert tensor.numpy().tobytes() == arrays[name].tobytes()


def test_columns_of_a_larger_batch_fit_the_transfer_buffer() -> None:
    array = np.arange(24.0).reshape(4, 6)[:, 2:4]
    layout = BufferLayout({"part": array})
    buffer = torch.empty(layout.nbytes, dtype=torch.uint8)
    layout.write(buffer)
    np.testing.assert_array_equal(layout.views(buffer)["part"].numpy(), array)


@pytest.mark.cuda
@CUDA
def test_batches_reach_the_gpu_unchanged(start: Open) -> None:
    # batches of changing size, so that buffers are reused and replaced
    batches = [make_batch(n, steps=1 + n % 5 * 50, envs=64) for n in range(40)]
    left = iter(batches)
    moved = []
    for batch in start(lambda timeout_s: next(left), device="cuda"):
        assert batch.obs.device.type == "cuda"
        moved.append(replace(batch, reward=batch.reward + 1))
    for batch, expected in zip(moved, batches, strict=True):
        assert_same(batch, replace(expected, reward=expected.reward + 1))


@pytest.mark.cuda
@CUDA
def test_memory_of_a_batch_is_not_reused_while_the_learner_s_stream_works(start: Open) -> None:
    batches = [make_batch(n, steps=64, envs=256) for n in range(30)]
    left = iter(batches)
    sums = []
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for batch in start(lambda timeout_s: next(left), device="cuda"):
            torch.cuda._sleep(2_000_000)  # GPU cycles: the batch is dropped before it is read
            sums.append(batch.reward.sum())
            del batch
    stream.synchronize()
    assert [float(each) for each in sums] == [float(each.reward.sum()) for each in batches]


class Chooser(torch.nn.Module):
    """Logits and a value of observations of any shape."""

    def __init__(self, obs_space: Any, action_space: Any) -> None:
        super().__init__()
        size = int(np.prod(obs_space.shape))
        self.logits = torch.nn.Linear(size, int(action_space.n))
        self.value = torch.nn.Linear(size, 1)

    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        flat = obs.float().flatten(1)
        return self.logits(flat), self.value(flat)


def policy_of(one: Any) -> TorchPolicy:
    return TorchPolicy(
        Chooser(one.single_observation_space, one.single_action_space), one.single_action_space
    )


def device_batch() -> RolloutBatch[Any]:
    env: Any = rollouts.make_vec(
        "CartPole-v1", 2, autoreset_mode="same_step", device="cpu-emulation"
    )
    with env:
        return rollouts.Collector(env, policy_of(env), 3).collect()


def agents_rollout() -> MultiAgentRollout:
    with rollouts.make_vec("TagGridWorld-v0", 2, autoreset_mode="same_step") as env:
        policies = {name: policy_of(group) for name, group in env.groups.items()}
        return rollouts.Collector(env, policies, 3).collect()


REFUSED = {
    "tensors": (device_batch, "a device's tensors.*on_host"),
    "groups": (agents_rollout, r"MultiAgentRollout of .*rollout\['"),
    "tuple": (lambda: (1, 2), "a tuple, expected a RolloutBatch"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_rollout_of_arrays_is_refused_by_name(start: Open, name: str) -> None:
    make, sentence = REFUSED[name]
    batch = make()
    with pytest.raises(DTypeError, match=f"a DeviceQueue was given .*{sentence}"):
        start(lambda timeout_s: batch).get(TIMEOUT_S)


def test_one_group_s_batches_of_several_agents_are_taken(start: Open) -> None:
    rollout = agents_rollout()
    for batch in rollout.values():
        assert_same(start(lambda timeout_s, batch=batch: batch).get(TIMEOUT_S), batch)


@pytest.mark.parametrize("source", [None, "CartPole-v1", make_batch(0)])
def test_a_source_that_cannot_be_called_is_refused_at_once(start: Open, source: Any) -> None:
    with pytest.raises(DTypeError, match="expected a function of timeout_s"):
        start(source)
    with pytest.raises(DTypeError, match="expected a function of timeout_s"):
        LearnerShards(source, 2)


def test_columns_of_several_groups_are_not_split() -> None:
    with pytest.raises(DTypeError, match="split_columns was given a MultiAgentRollout"):
        split_columns(agents_rollout(), 2)  # type: ignore[arg-type]


def test_a_replay_and_returns_refuse_several_groups_by_name() -> None:
    rollout: Any = agents_rollout()
    with pytest.raises(DTypeError, match="a DeviceReplay was given a MultiAgentRollout"):
        DeviceReplay(64, device="cpu").add(rollout)
    with pytest.raises(DTypeError, match="batch_gae was given a MultiAgentRollout"):
        returns.batch_gae(rollout, gamma=0.9, gae_lambda=0.9)
    with pytest.raises(DTypeError, match="batch_nstep was given a MultiAgentRollout"):
        returns.batch_nstep(rollout, gamma=0.9, n=2)
