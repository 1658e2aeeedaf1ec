# SPDX-License-Identifier: Apache-2.0
"""`NativeLearner`: PPO's gradient steps, beside the same ones in torch, in float64 and float32."""

from __future__ import annotations

import copy
import hashlib
from typing import Any

import numpy as np
import pytest
import torch
from forked import run_forked_each
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from ppo_reference import ActorCritic, acted_rows, as_tensors, gradients, torch_step
from torch import nn

from rollouts import _native
from rollouts.errors import SpecError
from rollouts.learner.native_learner import Losses, NativeLearner, PpoLoss
from rollouts.policies.native import NativePolicy

pytestmark = pytest.mark.usefixtures("one_torch_thread")

SPACES = {
    "categorical": spaces.Discrete(4),
    "multi_categorical": spaces.MultiDiscrete([3, 2, 5]),
    "gaussian": spaces.Box(-np.inf, np.inf, (3,)),
}


def learner_of(module: nn.Module, space: Any, num_threads: int = 1, **adam: Any) -> Any:
    optimizer = torch.optim.Adam(module.parameters(), **{"lr": 3e-4, "eps": 1e-5, **adam})
    policy = NativePolicy.from_torch(module, space)
    return NativeLearner(policy, optimizer, num_threads), optimizer


def largest_difference(module: nn.Module, other: nn.Module) -> float:
    pairs = zip(module.parameters(), other.parameters(), strict=True)
    return max((a.double() - b.double()).abs().max().item() for a, b in pairs)


@settings(max_examples=30, deadline=None)
@given(
    head=st.sampled_from(sorted(SPACES)),
    num_rows=st.integers(2, 150),
    hidden=st.integers(1, 40),
    shares=st.booleans(),
    normal=st.booleans(),
    normalizes=st.booleans(),
    value_clip=st.sampled_from([None, 0.1]),
    value_loss=st.sampled_from(["clipped", "worse"]),
    entropy_weight=st.sampled_from([0.0, 0.03]),
    seed=st.integers(0, 1000),
)
def test_gradients_are_those_of_autograd_in_float64(
    head: str,
    num_rows: int,
    hidden: int,
    shares: bool,
    normal: bool,
    seed: int,
    **how: Any,
) -> None:
    """Adam's mean after its first step is the gradient times 1 - beta1."""
    torch.manual_seed(seed)
    how = {"normalize_advantage": how.pop("normalizes"), **how}
    how["value_clip_range"] = how.pop("value_clip")
    loss = PpoLoss(clip_range=0.2, **how)
    module = ActorCritic(SPACES[head], hidden, shares=shares, normal=normal)
    rows = acted_rows(module, num_rows, seed)
    expected = gradients(copy.deepcopy(module).double(), as_tensors(rows, torch.float64), loss)
    learner, optimizer = learner_of(module, SPACES[head], betas=(0.5, 0.999))
    learner.update(rows, np.arange(num_rows), minibatch=num_rows, loss=loss)
    largest = max(each.abs().max().item() for each in expected.values())
    for name, each in module.named_parameters():
        if each not in optimizer.state:
            assert not expected[name].any(), name
            continue
        found = optimizer.state[each]["exp_avg"].double() / 0.5
        # a row whose ratio is within rounding of the limit counts on one side alone; `acted_rows`
        # has none
        torch.testing.assert_close(found, expected[name], rtol=0, atol=1e-5 * largest, msg=name)


# the other head's gradients are compared by the tests around; make test-all walks its way as well
@pytest.mark.parametrize("head", [pytest.param("categorical", marks=pytest.mark.slow), "gaussian"])
def test_a_thousand_steps_end_where_those_of_torch_end(head: str) -> None:
    """No limit of the ratio: there the loss is continuous. See the next test for limits."""
    torch.manual_seed(1)
    module = ActorCritic(SPACES[head], 64)
    rows = acted_rows(module, 1024, 1)
    loss = PpoLoss(clip_range=100.0, entropy_weight=0.01)
    plain, exact = copy.deepcopy(module), copy.deepcopy(module).double()
    learner, _ = learner_of(module, SPACES[head])
    adam = {"lr": 3e-4, "eps": 1e-5}
    others = [
        (each, torch.optim.Adam(each.parameters(), **adam), as_tensors(rows, dtype))
        for each, dtype in ((plain, torch.float32), (exact, torch.float64))
    ]
    random = np.random.default_rng(1)
    for _ in range(63):
        order = random.permutation(1024)
        learner.update(rows, order, minibatch=64, loss=loss, max_grad_norm=0.5)
        for first in range(0, 1024, 64):
            for each, optimizer, tensors in others:
                torch_step(each, optimizer, tensors, order[first : first + 64], loss, 0.5)
    assert largest_difference(module, plain) < 1e-5
    # as near to the exact weights as torch's float32, give or take
    assert largest_difference(module, exact) < 2 * largest_difference(plain, exact) + 1e-6


@pytest.mark.parametrize("head", sorted(SPACES))
def test_each_of_many_steps_with_limits_is_that_of_float64(head: str) -> None:
    """Beyond a limit of the ratio a row's gradient is 0: a ratio within rounding of it counts for
    the one and not for the other, in torch's float32 as here. Such minibatches are left out."""
    torch.manual_seed(2)
    module = ActorCritic(SPACES[head], 32)
    rows = acted_rows(module, 512, 2)
    loss = PpoLoss(clip_range=0.2, value_clip_range=0.2, value_loss="clipped", entropy_weight=0.01)
    exact = copy.deepcopy(module).double()
    adam = {"lr": 1e-3, "eps": 1e-5}
    exact_optimizer = torch.optim.Adam(exact.parameters(), **adam)
    learner, optimizer = learner_of(module, SPACES[head], **adam)
    tensors = as_tensors(rows, torch.float64)
    random = np.random.default_rng(2)
    num_compared = 0
    for _ in range(10):
        order = random.permutation(512)
        for first in range(0, 512, 32):
            batch = order[first : first + 32]
            # the exact step begins where native code's begins
            exact.load_state_dict(module.state_dict())
            if first:
                exact_optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
            learner.update(rows, batch, minibatch=32, loss=loss, max_grad_norm=0.5)
            nearest = torch_step(exact, exact_optimizer, tensors, batch, loss, 0.5)
            if nearest < 1e-5:
                continue
            num_compared += 1
            # Adam divides by the gradient's own size, so a gradient near 0 may go either way
            assert largest_difference(module, exact) < 2e-5
    assert num_compared > 140


@pytest.mark.parametrize("num_rows", [64, 300, 2048])
def test_the_number_of_threads_does_not_change_a_bit(num_rows: int) -> None:
    found = []
    for num_threads in (1, 2, 4):
        torch.manual_seed(3)
        module = ActorCritic(SPACES["gaussian"], 40, normal=True)
        rows = acted_rows(module, 2048, 3)
        learner, _ = learner_of(module, SPACES["gaussian"], num_threads)
        order = np.random.default_rng(3).permutation(2048)
        for _ in range(3):
            learner.update(rows, order, minibatch=num_rows, loss=PpoLoss(entropy_weight=0.01))
        found.append(torch.cat([each.detach().ravel() for each in module.parameters()]))
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])


def digest_of_steps() -> str:
    """Hash of weights and losses after some steps of each head."""
    torch.set_num_threads(1)
    digest = hashlib.sha256()
    for space in SPACES.values():
        # with and without inputs behind whole vectors, few and many
        for hidden in (3, 5, 19, 40):
            # torch draws alone: its sums depend on the machine
            torch.manual_seed(3)
            module = ActorCritic(space, hidden, normal=True)
            rows = acted_rows(None, 300, 3, space=space)
            learner, _ = learner_of(module, space)
            size = sum(each.shape[1] for each in module(torch.zeros(1, 6))[:-1])
            random = np.random.default_rng(4)
            rows |= {"inputs": random.normal(size=(300, size)), "counts": random.random(300) < 0.9}
            loss = PpoLoss(entropy_weight=0.01, value_clip_range=0.1, kl_weight=0.5)
            for clip_by in ("all", "each", "element"):
                found = learner.update(
                    rows,
                    np.arange(300),
                    minibatch=77,
                    loss=loss,
                    max_grad_norm=0.5,
                    clip_by=clip_by,
                )
            digest.update(found.kl.tobytes())
            for each in module.parameters():
                digest.update(each.detach().numpy().tobytes())
            digest.update(found.approx_kl.tobytes() + found.grad_norm.tobytes())
    return digest.hexdigest()


def test_every_instruction_set_makes_the_same_steps() -> None:
    environs = [{"ROLLOUTS_POLICY_KERNELS": name} for name in _native.policy_kernels()]
    found = set()
    for ended in run_forked_each(digest_of_steps, environs):
        assert ended.exitcode == 0, ended.stderr
        found.add(ended.returned)
    assert len(found) == 1


PLAIN = PpoLoss(normalize_advantage=False)


def small(head: str = "categorical", count: int = 40) -> Any:
    torch.manual_seed(4)
    module = ActorCritic(SPACES[head], 8)
    return module, acted_rows(module, count, 4), *learner_of(module, SPACES[head])


def update(learner: Any, rows: Any, minibatch: int = 20) -> Losses:
    found: Losses = learner.update(
        rows, np.arange(len(rows["obs"])), minibatch=minibatch, loss=PpoLoss(clip_range=0.2)
    )
    return found


def weights(module: nn.Module) -> dict[str, Any]:
    return {name: each.detach().clone() for name, each in module.named_parameters()}


@pytest.mark.parametrize(
    ("name", "value", "match"),
    [
        ("advantage", np.nan, "minibatch 1 gives a policy loss that is nan or infinite"),
        ("advantage", np.inf, "minibatch 1 gives a policy loss"),
        ("log_prob", np.nan, "minibatch 1 gives a policy loss"),
        ("target", np.nan, "minibatch 1 gives a value loss"),
        ("target", 3e38, "minibatch 1 gives a value loss"),
        ("obs", np.nan, "minibatch 1 gives a policy loss"),
    ],
)
def test_what_is_not_finite_is_named_and_changes_nothing(
    name: str, value: float, match: str
) -> None:
    module, rows, learner, optimizer = small()
    other, good, other_learner, _ = small()
    update(other_learner, {key: each[:20] for key, each in good.items()})
    rows[name][25] = value
    with pytest.raises(SpecError, match=match):
        update(learner, rows)
    # the minibatch before it was made and counted
    assert largest_difference(module, other) == 0
    assert {each["step"].item() for each in optimizer.state.values()} == {1.0}


def test_a_weight_that_is_not_finite_is_named() -> None:
    module, rows, learner, _ = small()
    with torch.no_grad():
        module.critic.weight[0, 3] = np.nan
    before = weights(module)
    with pytest.raises(SpecError, match=r"critic\.weight"):
        update(learner, rows)
    assert all(
        torch.equal(each, before[name])
        for name, each in module.named_parameters()
        if name != "critic.weight"
    )


# sizes of whole vectors, and of less than one
@pytest.mark.parametrize("name", ["actor.weight", "critic.bias"])
def test_a_weight_that_a_step_leaves_infinite_is_named_before_the_next_step(name: str) -> None:
    module, rows, *_ = small()
    others = dict(module.named_parameters())
    groups = [{"params": [others.pop(name)], "lr": 1e30, "weight_decay": 1e30}]
    optimizer = torch.optim.SGD([*groups, {"params": list(others.values())}], lr=1e-3)
    learner = NativeLearner(NativePolicy.from_torch(module, SPACES["categorical"]), optimizer)
    # the second update reads the weights anew
    for _ in range(2):
        with pytest.raises(SpecError, match=f"parameter '{name}' has a value that is nan or inf"):
            update(learner, rows)
        assert learner.num_steps == 1


def test_a_gradient_that_is_not_finite_is_named_by_its_layer() -> None:
    module, rows, learner, _ = small("gaussian")
    with torch.no_grad():
        # densities of 0: the ratio is 0, and its slope is infinite
        module.log_std.fill_(-60.0)
    with pytest.raises(SpecError, match=r"minibatch 0 gives a gradient of log_std"):
        update(learner, rows)


def test_frozen_parameters_stay_and_may_be_trained_again() -> None:
    module, rows, learner, optimizer = small()
    module.actor.weight.requires_grad_(False)
    before = weights(module)
    update(learner, rows)
    after = weights(module)
    same = {name for name in before if torch.equal(before[name], after[name])}
    assert same == {"actor.weight"} and module.actor.weight not in optimizer.state
    # as torch counts steps: each parameter's own
    module.actor.weight.requires_grad_(True)
    update(learner, rows)
    assert not torch.equal(module.actor.weight, before["actor.weight"])
    assert optimizer.state[module.actor.weight]["step"] == 2
    assert optimizer.state[module.actor.bias]["step"] == 4


def test_parameters_that_the_optimiser_has_not_stay() -> None:
    torch.manual_seed(4)
    module = ActorCritic(SPACES["categorical"], 8, shares=True)
    rows = acted_rows(module, 40, 4)
    optimizer = torch.optim.AdamW(module.critic.parameters(), weight_decay=0.1)
    learner = NativeLearner(NativePolicy.from_torch(module, SPACES["categorical"]), optimizer)
    before = weights(module)
    update(learner, rows)
    changed = {
        name for name, each in weights(module).items() if not torch.equal(each, before[name])
    }
    assert changed == {"critic.weight", "critic.bias"}


def double(module: Any) -> None:
    module.actor.double()


def half(module: Any) -> None:
    module.critic.half()


def bfloat16(module: Any) -> None:
    module.critic.bfloat16()  # numpy has no such type


def turn(module: Any) -> None:
    weight = module.actor_layers[2].weight
    weight.data = weight.data.clone().T


def grow(module: Any) -> None:
    module.critic.weight.data = torch.zeros(1, 9)


def replace(module: Any) -> None:
    module.actor = nn.Linear(8, 4)


def rebind(module: Any) -> None:
    module.actor.weight = nn.Parameter(module.actor.weight.detach().clone())


def share(module: Any) -> None:
    module.critic_layers = module.actor_layers


@pytest.mark.parametrize("change", [double, half, bfloat16, turn, grow, replace, rebind, share])
def test_a_module_that_has_changed_is_refused(change: Any) -> None:
    module, rows, learner, _ = small()
    update(learner, rows)
    change(module)
    before = weights(module)
    with pytest.raises(SpecError, match=r"float32 on the CPU|contiguous|changed|another"):
        update(learner, rows)
    assert all(torch.equal(each, before[name]) for name, each in module.named_parameters())
    assert not learner.is_as_read()


def test_a_layer_that_was_replaced_is_named() -> None:
    module, rows, learner, _ = small()
    update(learner, rows)
    module.actor_layers[2] = nn.Linear(8, 8)
    with pytest.raises(SpecError, match=r"actor_layers\.2\.(weight|bias) is another tensor"):
        update(learner, rows)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_module_on_a_gpu_is_refused() -> None:
    module = ActorCritic(SPACES["categorical"], 8).cuda()
    with pytest.raises(SpecError, match="float32 on the CPU"):
        learner_of(module, SPACES["categorical"])


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda each: torch.optim.Adagrad(each), "Adagrad, expected torch.optim.Adam"),
        (lambda each: torch.optim.SGD(each, momentum=0.9, dampening=0.5), "dampening"),
        (lambda each: torch.optim.Adam(each, amsgrad=True), "amsgrad"),
        (lambda each: torch.optim.Adam(each, maximize=True), "maximize"),
        (lambda each: torch.optim.Adam([nn.Parameter(torch.zeros(2))]), "no parameter"),
    ],
)
def test_optimisers_that_native_code_has_not_are_refused(make: Any, match: str) -> None:
    module = ActorCritic(SPACES["categorical"], 8)
    policy = NativePolicy.from_torch(module, SPACES["categorical"])
    with pytest.raises(SpecError, match=match):
        NativeLearner(policy, make(module.parameters()))


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"obs": np.zeros((40, 5), np.float32)}, "'obs': 5"),
        ({"log_prob": np.zeros(39, np.float32)}, "all of 40"),
        ({"action": np.full(40, 4)}, "not of Discrete"),
        ({"action": np.full(40, -1)}, "not of Discrete"),
        ({"reward": np.zeros(40, np.float32)}, "rows are"),
    ],
)
def test_rows_that_do_not_fit_are_refused(change: dict[str, Any], match: str) -> None:
    module, rows, learner, _ = small()
    before = weights(module)
    with pytest.raises(SpecError, match=match):
        update(learner, rows | change)
    assert all(torch.equal(each, before[name]) for name, each in module.named_parameters())


def test_why_not_native_says_what_an_update_would_raise() -> None:
    module, rows, learner, optimizer = small()
    assert learner.why_not_native == ""
    changes: list[tuple[Any, Any]] = [
        (
            lambda: optimizer.param_groups[0].update(amsgrad=True),
            "amsgrad=True, which is not native",
        ),
        (lambda: module.requires_grad_(False), "no parameter of the module that requires"),
        (lambda: module.double(), "is torch.float64 on cpu, expected float32"),
    ]
    for change, expected in changes:
        change()
        assert expected in learner.why_not_native
        with pytest.raises(SpecError) as raised:
            update(learner, rows)
        assert str(raised.value) == learner.why_not_native
        optimizer.param_groups[0].update(amsgrad=False)
        module.float().requires_grad_(True)
        assert learner.why_not_native == ""
    update(learner, rows)


@pytest.mark.parametrize("order", [[0, 40], [-1, 3]])
def test_an_order_of_other_rows_is_refused(order: list[int]) -> None:
    _, rows, learner, _ = small()
    with pytest.raises(SpecError, match=r"order names rows .* expected 0 to 39"):
        learner.update(rows, np.array(order), minibatch=2, loss=PpoLoss())


def test_rows_of_any_memory_order_and_type_are_the_same() -> None:
    module, rows, learner, _ = small("gaussian")
    other, _, other_learner, _ = small("gaussian")
    update(learner, rows)
    turned = {name: np.asfortranarray(each.astype(np.float64)) for name, each in rows.items()}
    update(other_learner, turned)
    assert largest_difference(module, other) == 0


def test_groups_of_parameters_have_their_own_settings() -> None:
    torch.manual_seed(4)
    module = ActorCritic(SPACES["categorical"], 8)
    other = copy.deepcopy(module)
    rows = acted_rows(module, 40, 4)
    loss = PpoLoss(clip_range=0.2)

    def groups(each: Any) -> Any:
        return [
            {"params": each.actor.parameters(), "lr": 1e-2, "betas": (0.5, 0.9)},
            {"params": each.critic.parameters(), "weight_decay": 0.1},
        ]

    optimizer = torch.optim.Adam(groups(module))
    learner = NativeLearner(NativePolicy.from_torch(module, SPACES["categorical"]), optimizer)
    plain = torch.optim.Adam(groups(other))
    for _ in range(4):
        learner.update(rows, np.arange(40), minibatch=40, loss=loss, max_grad_norm=100.0)
        torch_step(other, plain, as_tensors(rows, torch.float32), np.arange(40), loss, 100.0)
    assert largest_difference(module, other) < 1e-6


def test_actions_are_numbers_as_environments_take_them() -> None:
    module, rows, learner, _ = small()
    other, _, _, _ = small()
    space = spaces.Discrete(4, start=2)
    shifted, _ = learner_of(other, space)
    update(learner, rows)
    update(shifted, rows | {"action": rows["action"] + 2})
    assert largest_difference(module, other) == 0


def test_a_limit_of_the_value_needs_the_value() -> None:
    module, rows, learner, _ = small()
    other, _, other_learner, _ = small()
    update(learner, rows)
    del rows["value"]
    update(other_learner, rows)
    assert largest_difference(module, other) == 0
    with pytest.raises(SpecError, match="rows have no value"):
        loss = PpoLoss(value_clip_range=0.1)
        learner.update(rows, np.arange(40), minibatch=20, loss=loss)


def test_a_divergence_needs_the_distributions_that_drew_the_actions() -> None:
    _, rows, learner, _ = small()
    with pytest.raises(SpecError, match="rows have no inputs"):
        learner.update(rows, np.arange(40), minibatch=20, loss=PpoLoss(kl_weight=0.2))
    rows["inputs"] = np.zeros((40, 3), np.float32)
    with pytest.raises(SpecError, match="'inputs': 4"):
        learner.update(rows, np.arange(40), minibatch=20, loss=PpoLoss(kl_weight=0.2))


def test_another_way_to_limit_gradients_is_refused() -> None:
    _, rows, learner, _ = small()
    with pytest.raises(SpecError, match="clip_by is 'norm', expected all, each or element"):
        learner.update(rows, np.arange(40), minibatch=20, loss=PpoLoss(), clip_by="norm")


def test_rows_that_do_not_count_change_nothing() -> None:
    """The mean of a minibatch is over the rows that count."""
    module, rows, learner, _ = small()
    other = copy.deepcopy(module)
    counts = np.arange(40) % 3 > 0
    # one without them: the same rows in another place of the sums
    learner.update(rows | {"counts": counts}, np.arange(40), minibatch=40, loss=PLAIN)
    kept = {name: array[counts] for name, array in rows.items()}
    learner_of(other, SPACES["categorical"])[0].update(
        kept, np.arange(counts.sum()), minibatch=40, loss=PLAIN
    )
    assert largest_difference(module, other) < 1e-6


def test_a_minibatch_in_which_no_row_counts_is_refused() -> None:
    module, rows, learner, _ = small()
    before = copy.deepcopy(module)
    rows["counts"] = np.arange(40) < 20
    with pytest.raises(SpecError, match="minibatch 1 has no row that counts"):
        learner.update(rows, np.arange(40), minibatch=20, loss=PLAIN)
    # the minibatch before has been made
    assert learner.num_steps == 1 and largest_difference(module, before) > 0


def test_steps_are_counted_on_when_other_weights_are_trained() -> None:
    module, rows, learner, _ = small()
    for trains in (True, False, True):
        next(module.parameters()).requires_grad_(trains)
        learner.update(rows, np.arange(40), minibatch=20, loss=PLAIN)
    assert learner.num_steps == 6
