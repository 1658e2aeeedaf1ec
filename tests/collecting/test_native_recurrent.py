# SPDX-License-Identifier: Apache-2.0
"""Policies with memory in the pool's threads: whose state an observation meets, and its bits."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from forked import run_forked
from test_recurrent import Counting, Gru, Lstm
from torch import Tensor, nn

import rollouts
from rollouts import _native
from rollouts.batch import RolloutBatch
from rollouts.errors import ProtocolError, SpecError
from rollouts.policies.native import NativePolicy
from rollouts.policy import TorchPolicy
from rollouts.recurrent import RecurrentTorchPolicy, State

FIELDS = ("obs", "action", "log_prob", "value", "reward", "terminated", "truncated",
          "bootstrap_value", "last_value", "last_obs", "episode_return")  # fmt: skip
STEPS = 20


class Layers(nn.Module):
    """Two layers of a GRU or an LSTM over one step, and a state that begins with a parameter."""

    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.cell, self.heads = kind(4, 8, 2, batch_first=True), nn.Linear(8, 3)
        self.start = nn.Parameter(torch.full((2, 8), 0.3))

    def initial_state(self) -> State:
        return (self.start, self.start + 1)[: 2 if isinstance(self.cell, nn.LSTM) else 1]

    def forward(self, obs: Tensor, state: State) -> tuple[Tensor, Tensor, State]:
        given = tuple(each.transpose(0, 1).contiguous() for each in state)
        many = len(given) > 1
        out, new = self.cell(obs[:, None], given if many else given[0])
        heads = self.heads(out[:, 0])
        after = tuple(each.transpose(0, 1) for each in (new if many else (new,)))
        return heads[:, :2], heads[:, 2], after


MODULES: dict[str, Callable[[], nn.Module]] = {
    "gru_cell": Gru,
    "lstm_cell": Lstm,
    "gru": lambda: Layers(nn.GRU),
    "lstm": lambda: Layers(nn.LSTM),
}


def made(name: str) -> nn.Module:
    torch.manual_seed(0)
    return MODULES[name]()


def make(num_envs: int = 21, **options: Any) -> rollouts.VectorEnv:
    options = {"autoreset_mode": "same_step", "max_episode_steps": 15, "seed": 1} | options
    return rollouts.make_vec("CartPole-v1", num_envs, **options)


def collector(env: Any, module: nn.Module, **options: Any) -> rollouts.Collector:
    keep = options.pop("keep_states", False)
    policy = RecurrentTorchPolicy(module, env.single_action_space, seed=3, keep_states=keep)
    return rollouts.Collector(env, policy, STEPS, **({"engine": "native"} | options))


def learn(module: nn.Module) -> None:
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.05)


def assert_equal(found: RolloutBatch, expected: RolloutBatch) -> None:
    for name in FIELDS:
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), name)
    for one, other in zip(found.policy_state, expected.policy_state, strict=True):
        np.testing.assert_array_equal(one, other)


class Replayed:
    """A policy of torch that is shown the same observations, one step after the other."""

    def __init__(self, module: nn.Module, env: Any) -> None:
        self.policy = RecurrentTorchPolicy(module, env.single_action_space)
        self.begins = np.ones(env.num_envs, np.bool_)

    def check(self, batch: RolloutBatch) -> None:
        policy, close = self.policy, {"atol": 1e-5, "rtol": 1e-5}
        assert batch.final_obs is not None
        final_obs = iter(batch.final_obs)
        for t in range(STEPS):
            states = policy.states(None, self.begins)
            for i, state in enumerate(states):
                np.testing.assert_allclose(batch.extras[f"policy_state.{i}"][t], state, **close)
                if t == 0:
                    np.testing.assert_allclose(batch.policy_state[i], state, **close)
            given = tuple(map(torch.from_numpy, states))
            with torch.no_grad():
                *params, value, _ = policy.module(torch.from_numpy(batch.obs[t].copy()), given)
                actions = torch.from_numpy(batch.action[t].copy())
                log_prob, _ = policy.head.evaluate(params, actions)
            np.testing.assert_allclose(batch.value[t], value.numpy(), **close)
            np.testing.assert_allclose(batch.log_prob[t], log_prob.numpy(), **close)
            policy.act_rows(batch.obs[t], None, self.begins)
            bootstrap = np.zeros(len(self.begins), np.float32)
            for row in np.flatnonzero(batch.terminated[t] | batch.truncated[t]):
                final = next(final_obs)[None]
                if not batch.terminated[t, row]:
                    rows = np.array([row])
                    bootstrap[row] = policy.value_rows(final, rows, np.zeros(1, np.bool_))[0]
            np.testing.assert_allclose(batch.bootstrap_value[t], bootstrap, **close)
            self.begins = batch.terminated[t] | batch.truncated[t]
        last_value = policy.value_rows(batch.last_obs, None, self.begins)
        np.testing.assert_allclose(batch.last_value, last_value, **close)


@pytest.mark.parametrize("name", MODULES)
def test_a_rollout_is_what_torch_says_step_by_step(name: str) -> None:
    """States, values, densities and final values; weights change in between."""
    module = made(name)
    with make() as env:
        collect = collector(env, module, keep_states=True, keep_final_obs=True)
        replayed = Replayed(module, env)
        both = np.zeros(2)
        for _ in range(4):
            batch = collect.collect()
            replayed.check(batch)
            both += [batch.terminated.sum(), (batch.bootstrap_value != 0).sum()]
            learn(module)
        assert collect.engine == "native" and both.min() > 3


@pytest.mark.parametrize("name", ["gru", "lstm_cell"])
def test_the_same_bits_for_every_number_of_threads(name: str) -> None:
    def collected(num_threads: int) -> list[RolloutBatch]:
        with make(150, num_threads=num_threads) as env:
            collect = collector(env, made(name))
            return [collect.collect() for _ in range(3)]

    expected = collected(1)
    for num_threads in (2, 4):
        for found, one in zip(collected(num_threads), expected, strict=True):
            assert_equal(found, one)


class Pendulum(Gru):
    """The same for a Box of actions."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(3, 8)
        self.log_std = nn.Parameter(torch.tensor([-0.4]))

    def forward(self, obs: Tensor, state: State) -> tuple[Any, ...]:  # type: ignore[override]
        out, value, after = super().forward(obs, state)
        return out[:, :1], self.log_std, value, after


def test_actions_of_a_box_are_of_what_is_remembered() -> None:
    torch.manual_seed(0)
    module = Pendulum()
    options: dict[str, Any] = {"autoreset_mode": "same_step", "max_episode_steps": 15}
    with rollouts.make_vec("Pendulum-v1", 18, seed=1, **options) as env:
        collect = collector(env, module, keep_states=True, keep_final_obs=True)
        replayed = Replayed(module, env)
        for _ in range(3):
            replayed.check(collect.collect())


def test_an_environments_data_do_not_depend_on_its_pool() -> None:
    with make(40) as env:
        collect = collector(env, made("gru_cell"))
        whole = [collect.collect() for _ in range(3)]
    for first, count in ((0, 7), (7, 33)):
        with make(count, env_id_offset=first) as env:
            part = collector(env, made("gru_cell"))
            for batch in whole:
                found, rows = part.collect(), slice(first, first + count)
                for name in ("obs", "action", "log_prob", "value", "bootstrap_value"):
                    expected = getattr(batch, name)[:, rows]
                    np.testing.assert_array_equal(getattr(found, name), expected, name)
                np.testing.assert_array_equal(found.policy_state[0], batch.policy_state[0][rows])


def digest() -> str:
    """A digest of what is collected with every module."""
    found = hashlib.sha256()
    for name in MODULES:
        with make(21, num_threads=1) as env:
            collect = collector(env, made(name))
            for _ in range(2):
                batch = collect.collect()
                for array in (batch.action, batch.log_prob, batch.value, *batch.policy_state):
                    found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


def test_every_instruction_set_gives_the_same_bits() -> None:
    found = set()
    for name in _native.policy_kernels():
        ended = run_forked(digest, environ={"ROLLOUTS_POLICY_KERNELS": name})
        assert ended.exitcode == 0, ended.stderr
        found.add(ended.returned)
    assert len(found) == 1


def test_after_a_reset_every_episode_begins_with_a_new_state() -> None:
    module = made("gru_cell")
    with make() as env:
        collect = collector(env, module)
        collect.collect()
        after = collect.collect().policy_state[0]
        assert (after != 0.5).any()
        learn(module)
        collect.reset()
        np.testing.assert_array_equal(collect.collect().policy_state[0], np.float32(0.55))


def test_later_rollouts_do_not_change_the_state_of_earlier_ones() -> None:
    with make() as env:
        collect = collector(env, made("lstm_cell"), keep_states=True)
        batches = [collect.collect() for _ in range(2)]
        kept = [[s.copy() for s in (*b.policy_state, *b.extras.values())] for b in batches]
        collect.collect()
        for batch, states in zip(batches, kept, strict=True):
            for state, before in zip(
                (*batch.policy_state, *batch.extras.values()), states, strict=True
            ):
                np.testing.assert_array_equal(state, before)


def test_each_prefetched_rollout_is_of_the_weights_before_the_last_update() -> None:
    modules = made("gru"), made("gru")
    with make() as env, make() as other:
        ahead, behind = collector(env, modules[0], prefetch=1), collector(other, modules[1])
        expected = [behind.collect()]
        for i in range(4):
            assert_equal(ahead.collect(), expected[i])
            learn(modules[0])
            expected.append(behind.collect())
            learn(modules[1])
        ahead.reset()
        behind.reset()
        # what was under way was dropped, and its states with it
        assert (ahead.collect().policy_state[0] == modules[0].start.detach().numpy()).all()
        ahead.close()


def test_a_module_that_gets_hooks_goes_on_with_torch_where_it_was() -> None:
    module = made("gru_cell")
    with make() as env:
        collect = collector(env, module, engine="auto", keep_states=True, keep_final_obs=True)
        replayed = Replayed(module, env)
        replayed.check(collect.collect())
        module.heads.register_forward_hook(lambda *given: None)  # type: ignore[operator, union-attr]
        for _ in range(2):
            replayed.check(collect.collect())
        assert collect.engine == "torch" and "has forward hooks" in collect.why_not_native


def test_auto_is_native_for_what_can_be_read_and_says_why_not() -> None:
    expected = "torch" if _native.policy_kernels_in_use() == "emulated" else "native"
    with make() as env:
        collect = collector(env, made("lstm"), engine="auto")
        assert collect.engine == expected and not collect.collect().extras
        counts = collector(env, Counting(), engine="auto")
        assert counts.engine == "torch" and "int64" in counts.why_not_native
        forgets = TorchPolicy(made("gru"), env.single_action_space)
        with pytest.raises(SpecError, match=r"has memory .*expected a RecurrentTorchPolicy"):
            rollouts.Collector(env, forgets, 5, engine="native")


def test_a_native_policy_with_memory_acts_inside_a_pool_alone() -> None:
    with make() as env:
        policy = NativePolicy.from_torch(made("lstm_cell"), env.single_action_space)
        assert policy.program.obs_size == 4 and policy.state_shapes == ((8,), (8,))
        for call in (policy.act, policy.value):
            with pytest.raises(ProtocolError, match="give it to a Collector over a native pool"):
                call(np.zeros((2, 4), np.float32))
        batch = rollouts.Collector(env, policy, STEPS, engine="native").collect()
        assert [state.shape for state in batch.policy_state] == [(21, 8), (21, 8)]
        rows = np.concatenate([batch.obs[0], *batch.policy_state], 1)
        _, value, _, _ = policy.module_outputs(rows)
        np.testing.assert_array_equal(value[:, 0], batch.value[0])


def test_arrays_of_other_states_are_refused() -> None:
    with make(4) as env:
        env.reset()
        policy = NativePolicy.from_torch(made("gru_cell"), env.single_action_space)
        cells = {"reward": "f4", "value": "f4", "log_prob": "f4", "bootstrap_value": "f4",
                 "terminated": "?", "truncated": "?", "episode_return": "f8",
                 "episode_length": "i4", "action": "i8"}  # fmt: skip
        arrays = {name: np.zeros((5, 4), dtype) for name, dtype in cells.items()}
        arrays |= {"obs": np.zeros((6, 4, 4), "f4"), "last_value": np.zeros(4, "f4")}
        arrays |= {"state": np.zeros((4, 8), "f4"), "begins": np.ones(4, "?")}
        arrays |= {"policy_state": np.zeros((5, 4, 8), "f4")}
        assert env.collect(policy, arrays) is None
        assert (arrays["policy_state"][0] == 0.5).all() and not arrays["begins"].any()
        for name, wrong in {
            "state": np.zeros((4, 7), "f4"),
            "begins": np.ones(5, "?"),
            "policy_state": np.zeros((3, 4, 8), "f4"),
        }.items():
            with pytest.raises(SpecError, match=f"rollout array {name} has shape"):
                env.collect(policy, arrays | {name: wrong})
        with pytest.raises(SpecError, match="rollout array state is missing"):
            env.collect(policy, {name: a for name, a in arrays.items() if name != "state"})


def test_an_initial_state_that_is_not_finite_is_told_of() -> None:
    module = made("gru_cell")
    with make() as env:
        collect = collector(env, module)
        with torch.no_grad():
            module.start.add_(float("inf"))  # type: ignore[operator, union-attr]
        with pytest.raises(SpecError, match=r"initial_state\(\) is not finite|'start'"):
            collect.collect()
