# SPDX-License-Identifier: Apache-2.0
"""`NativeLearner`'s native part: its threads, forks, limits, and the sizes of what it is given."""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from forked import run_forked
from gymnasium import spaces
from ppo_reference import ActorCritic, acted_rows, as_tensors, gradients, torch_step
from processes import plain_threads

from rollouts import _native
from rollouts.errors import SpecError
from rollouts.learner.native_learner import NativeLearner, PpoLoss
from rollouts.policies.native import NativePolicy
from rollouts.policies.native_heads import nvec_of

SPACES = {
    "categorical": spaces.Discrete(4),
    "multi_categorical": spaces.MultiDiscrete([3, 2, 5]),
    "gaussian": spaces.Box(-np.inf, np.inf, (3,)),
}
ADAM = {"kind": "adam", "lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-5, "weight_decay": 0.0}
SETTINGS = {
    "clip": 0.2,
    "is_plain": False,
    "refuses_overflow": False,
    "value_clip": 0.1,
    "value_worse": True,
    "value_weight": 0.5,
    "error_cap": None,
    "kl_weight": None,
    "value_huber": None,
    "entropy_weight": 0.01,
    "max_norm": None,
    "clip_by": "all",
    "normalizes": True,
    "target_kl": None,
}


class Learner:
    """`_native.PpoLearner` of a module, and rows that fit it."""

    def __init__(self, head: str, count: int, num_threads: int = 1) -> None:
        torch.manual_seed(5)
        space = SPACES[head]
        module = ActorCritic(space, 16)
        program = NativePolicy.from_torch(module, space).program
        # each parameter is an array of its own
        strides = [[int(np.prod(each.shape[i + 1 :])) for i in range(len(each.shape))]
                   for each in program.params]  # fmt: skip
        self.native = _native.PpoLearner(
            program.obs_size,
            *program.described(),
            list(program.outputs),
            [],
            [(i, 0, list(each.shape), strides[i]) for i, each in enumerate(program.params)],
            [True] * len(program.params),
            head,
            nvec_of(space),
            num_threads,
        )
        random = np.random.default_rng(5)
        self.weights = [
            random.normal(scale=0.1, size=param.shape).astype(np.float32)
            for param in program.params
        ]
        self.sources: list[Any] = [
            (each, (np.zeros_like(each), np.zeros_like(each), 0, ADAM)) for each in self.weights
        ]
        self.rows: dict[str, Any] = acted_rows(None, count, 5, space)
        action = self.rows.pop("action").reshape(count, -1)
        if head == "gaussian":
            self.rows["box"] = action
        else:
            self.rows["index"] = action.astype(np.int64)
        self.order = np.arange(count)

    def update(self, minibatch: int = 512, **settings: Any) -> Any:
        return self.native.update(
            self.sources, self.rows, self.order, minibatch, SETTINGS | settings
        )


@pytest.mark.parametrize("value_loss", ["clipped", "worse"])
def test_a_value_limit_below_zero_is_one_as_in_torch(value_loss: str) -> None:
    """torch.clamp gives the upper limit where it is below the lower one."""
    torch.manual_seed(6)
    module = ActorCritic(SPACES["categorical"], 16)
    rows = acted_rows(module, 100, 6)
    loss = PpoLoss(value_clip_range=-0.1, value_loss=value_loss)
    expected = gradients(copy.deepcopy(module).double(), as_tensors(rows, torch.float64), loss)
    optimizer = torch.optim.Adam(module.parameters(), betas=(0.5, 0.999))
    learner = NativeLearner(NativePolicy.from_torch(module, SPACES["categorical"]), optimizer)
    learner.update(rows, np.arange(100), minibatch=100, loss=loss)
    largest = max(each.abs().max().item() for each in expected.values())
    for name, each in module.named_parameters():
        found = optimizer.state[each]["exp_avg"].double() / 0.5
        torch.testing.assert_close(found, expected[name], rtol=0, atol=1e-5 * largest, msg=name)


def test_a_norm_below_zero_is_a_limit_as_in_torch() -> None:
    torch.manual_seed(6)
    module = ActorCritic(SPACES["categorical"], 16)
    rows, loss = acted_rows(module, 100, 6), PpoLoss()
    exact = copy.deepcopy(module).double()
    torch_step(
        exact,
        torch.optim.Adam(exact.parameters(), eps=1.0),
        as_tensors(rows, torch.float64),
        np.arange(100),
        loss,
        -0.5,
    )
    optimizer = torch.optim.Adam(module.parameters(), eps=1.0)
    learner = NativeLearner(NativePolicy.from_torch(module, SPACES["categorical"]), optimizer)
    before = [each.detach().clone() for each in module.parameters()]
    learner.update(rows, np.arange(100), minibatch=100, loss=loss, max_grad_norm=-0.5)
    for each, was, wanted in zip(module.parameters(), before, exact.parameters(), strict=True):
        torch.testing.assert_close((each - was).double(), wanted - was, rtol=0, atol=1e-7)


def test_a_divergence_below_zero_ends_the_update_at_once() -> None:
    torch.manual_seed(6)
    module = ActorCritic(SPACES["categorical"], 16)
    rows = acted_rows(module, 100, 6)
    optimizer = torch.optim.Adam(module.parameters())
    learner = NativeLearner(NativePolicy.from_torch(module, SPACES["categorical"]), optimizer)
    found = learner.update(rows, np.arange(100), minibatch=20, loss=PpoLoss(target_kl=-1.0))
    assert found.num_steps == 0 and len(found.approx_kl) == 1


@pytest.mark.parametrize(
    ("head", "name", "shape", "match"),
    [
        ("gaussian", "box", (40, 2), r"box has shape \(40, 2\), expected \(40, 3\)"),
        ("gaussian", "box", (39, 3), r"box has shape \(39, 3\), expected \(40, 3\)"),
        ("gaussian", "index", (40, 3), "rows have no box"),
        ("categorical", "index", (40, 2), r"index has shape \(40, 2\), expected \(40, 1\)"),
        ("categorical", "box", (40, 4), "rows have no index"),
        ("multi_categorical", "index", (40, 1), r"index has .* \(40, 1\), expected \(40, 3\)"),
        ("categorical", "obs", (40, 5), r"obs has shape \(40, 5\), expected \(B, 6\)"),
        ("categorical", "obs", (240,), r"obs has shape \(240,\), expected \(B, 6\)"),
        ("categorical", "log_prob", (39,), r"log_prob has 39 numbers, expected 40"),
        ("categorical", "advantage", (39, 1), "advantage has 39 numbers, expected 40"),
        ("categorical", "target", (41,), "target has 41 numbers, expected 40"),
        ("categorical", "value", (0,), "value has 0 numbers, expected 40"),
        ("categorical", "inputs", (40, 3), r"inputs has shape \(40, 3\), expected \(40, 4\)"),
        ("gaussian", "inputs", (40, 3), r"inputs has shape \(40, 3\), expected \(40, 6\)"),
        ("categorical", "counts", (39, 1), r"counts has shape \(39, 1\), expected \(40, 1\)"),
    ],
)
def test_rows_of_another_size_are_refused(
    head: str, name: str, shape: tuple[int, ...], match: str
) -> None:
    learner = Learner(head, 40)
    if name in ("box", "index"):
        learner.rows.pop("box", None)
        learner.rows.pop("index", None)
    learner.rows[name] = np.zeros(shape, np.int64 if name == "index" else np.float32)
    with pytest.raises(SpecError, match=match):
        learner.update()


@pytest.mark.parametrize("name", ["obs", "index", "log_prob", "advantage", "target", "value"])
def test_rows_that_are_missing_are_named(name: str) -> None:
    learner = Learner("categorical", 40)
    del learner.rows[name]
    with pytest.raises(SpecError, match=f"rows have no {name}"):
        learner.update()


@pytest.mark.parametrize("row", [-1, 40])
def test_an_order_beyond_the_rows_is_refused(row: int) -> None:
    learner = Learner("categorical", 40)
    learner.order[7] = row
    with pytest.raises(SpecError, match=f"order names row {row}, expected 0 to 39"):
        learner.update()


@pytest.mark.parametrize("minibatch", [0, -1])
def test_a_minibatch_without_rows_is_refused(minibatch: int) -> None:
    with pytest.raises(SpecError, match=f"minibatch is {minibatch}, expected 1 or more"):
        Learner("categorical", 40).update(minibatch)


def test_weights_of_another_size_are_refused() -> None:
    learner = Learner("categorical", 40)
    whole = list(learner.sources)
    learner.sources[0] = (np.zeros(3, np.float32), None)
    with pytest.raises(SpecError, match=r"'.*' ends at number 95 of source 0, which has 3 numbers"):
        learner.update()
    learner.sources = whole[:1]
    with pytest.raises(SpecError, match="there are 1 sources, expected one with the number 1"):
        learner.update()


def test_a_call_in_another_thread_waits_for_the_one_before() -> None:
    """All calls are alike, so their order does not matter."""
    alone, shared = Learner("gaussian", 1024, 2), Learner("gaussian", 1024, 2)
    for _ in range(40):
        alone.update()
    with ThreadPoolExecutor(4) as threads:
        calls = [threads.submit(shared.update) for _ in range(40)]
        for call in calls:
            call.result()
    for one, other in zip(alone.weights, shared.weights, strict=True):
        np.testing.assert_array_equal(one, other)


def count_threads() -> None:
    learner = Learner("gaussian", 4096, 64)
    # torch may have started its own
    before = plain_threads()
    learner.update(4096)
    # a minibatch is cut into 8 parts at most, and the caller does one
    assert len(plain_threads() - before) == 7


def test_no_more_threads_start_than_a_minibatch_has_parts() -> None:
    ended = run_forked(count_threads)
    assert ended.exitcode == 0, ended.stderr


FORK = """
import gc, os, threading, warnings
import numpy as np
from test_native_learner_threads import Learner
from rollouts.errors import ProtocolError
warnings.simplefilter("ignore", DeprecationWarning)
{before}
child = os.fork()
if child == 0:
    # what hangs is killed by it
    import signal
    signal.alarm(60)
    try:
        {inside}
    except BaseException as error:
        print(repr(error), flush=True)
        os._exit(1)
    os._exit(0)
_, status = os.waitpid(child, 0)
print("child", os.waitstatus_to_exitcode(status), flush=True)
{after}
os._exit(0)
"""
TRAINED = "learner, other = Learner('gaussian', 1024, 4), Learner('gaussian', 1024, 4)\n"
TRAINED += "learner.update(); other.update()"
SAME = (
    "learner.update(); other.update(); "
    "assert all(map(np.array_equal, learner.weights, other.weights))"
)


def forked(before: str, inside: str, after: str = "") -> str:
    """The output of a process that forks, `before` and `after` being its own."""
    program = FORK.format(before=before, inside=inside, after=after)
    ended = run_forked(run_program, program)
    assert ended.exitcode == 0, ended.stderr
    return ended.stdout


def run_program(program: str) -> None:
    """Runs a text of Python as a process of its own would, by names of its own."""
    exec(program, {"__name__": "__main__"})


def test_a_forked_child_trains_as_its_parent_does() -> None:
    digest = "sum(float(np.float64(each).sum()) for each in learner.weights)"
    shown = f"{SAME}; print({digest}, flush=True)"
    said = forked(TRAINED, shown, shown).split()
    assert said[1:3] == ["child", "0"] and said[0] == said[3]


def test_a_forked_child_may_drop_the_learner() -> None:
    assert forked(TRAINED, "del learner; gc.collect()", SAME) == "child 0\n"


def test_a_learner_that_has_not_trained_has_threads_in_a_forked_child() -> None:
    before = "from processes import plain_threads\nlearner = Learner('gaussian', 4096, 3)"
    inside = "learner.update(4096); assert len(plain_threads()) == 3; del learner"
    assert forked(before, inside, "learner.update(4096)") == "child 0\n"


def test_a_child_forked_within_an_update_is_told() -> None:
    before = """
learner = Learner('gaussian', 64, 2)
# so long that the process ends before it
learner.order = np.zeros(4_000_000, np.int64)
threading.Thread(target=learner.update, args=(64,), daemon=True).start()
while learner.native.num_steps == 0:
    pass
"""
    said = forked(before, "learner.update()")
    assert "ProtocolError" in said and "was training when this process was forked" in said
    assert said.endswith("child 1\n")
