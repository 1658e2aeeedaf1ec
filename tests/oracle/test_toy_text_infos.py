# SPDX-License-Identifier: Apache-2.0
"""Toy text's infos against Gymnasium's: `prob`, and Taxi's `action_mask`."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import gymnasium
import numpy as np
import pytest
from lockstep import set_states

import rollouts

IDS = [
    ("FrozenLake-v1", {}),
    ("FrozenLake-v1", {"is_slippery": False}),
    ("FrozenLake-v1", {"success_rate": 0.7}),
    ("FrozenLake8x8-v1", {}),
    ("CliffWalking-v1", {}),
    ("CliffWalkingSlippery-v1", {}),
    ("Taxi-v3", {}),
    ("Taxi-v4", {"is_rainy": True, "rainy_probability": 0.6}),
]
MODES = ["next_step", "same_step"]


def reference_of(env_id: str, options: dict[str, Any]) -> Any:
    known = gymnasium.registry
    name = env_id if env_id in known else {"Taxi-v4": "Taxi-v3", "Taxi-v3": "Taxi-v4"}[env_id]
    if options.get("is_rainy") and "Taxi-v4" not in known:
        pytest.skip("needs Gymnasium 1.3 or later: before, the rain pushed the taxi through walls")
    try:
        return gymnasium.make(name, **options).unwrapped
    except TypeError as error:
        pytest.skip(f"this Gymnasium has no such option: {error}")


def probs_of(reference: Any, before: int, action: int, outcome: tuple[int, float, bool]) -> set:
    """The probabilities of transitions with this outcome."""
    return {
        float(p)
        for p, after, reward, end in reference.P[before][action]
        if (int(after), float(reward), bool(end)) == outcome
    }


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("num_envs", [3, 150])
@pytest.mark.parametrize(("env_id", "options"), IDS, ids=str)
def test_infos_of_every_step_are_gymnasiums(
    env_id: str, options: dict[str, Any], num_envs: int, mode: str
) -> None:
    reference = reference_of(env_id, options)
    rng = np.random.default_rng(0)
    seen = {1.0}  # probabilities of resets
    with rollouts.make_vec(
        env_id, num_envs, seed=3, autoreset_mode=mode, max_episode_steps=30, **options
    ) as env:
        obs, info = env.reset()
        obs = obs.copy()
        assert info["prob"].dtype == np.float64
        assert info["prob"].tolist() == [1.0] * num_envs
        ended = np.zeros(num_envs, np.bool_)
        for _ in range(100):
            actions = rng.integers(env.single_action_space.n, size=num_envs)
            after, reward, terminated, truncated, info = env.step(actions)
            over = terminated | truncated
            # infos of the step, and of the reset where there was one
            stepped = [dict(prob=info["prob"][i], mask=mask_of(info, i)) for i in range(num_envs)]
            reached = after.copy()
            for i in np.flatnonzero(over) if mode == "same_step" else ():
                assert info["prob"][i] == 1.0
                check_mask(reference, int(after[i]), mask_of(info, i))
                final = info["final_info"]
                stepped[i] = dict(prob=final["prob"][i], mask=mask_of(final, i))
                reached[i] = info["final_obs"][i]
            for i in range(num_envs):
                check_mask(reference, int(reached[i]), stepped[i]["mask"])
                if ended[i] and mode == "next_step":
                    assert stepped[i]["prob"] == 1.0
                    continue
                outcome = int(reached[i]), float(reward[i]), bool(terminated[i])
                allowed = probs_of(reference, int(obs[i]), int(actions[i]), outcome)
                assert float(stepped[i]["prob"]) in allowed
                seen.add(float(stepped[i]["prob"]))
            obs, ended = after.copy(), over
    # every probability of the tables was met
    assert seen == {1.0} | {
        float(p) for one in reference.P.values() for ts in one.values() for p, *_ in ts
    }


def mask_of(info: dict[str, Any], row: int) -> Any:
    return info["action_mask"][row].copy() if "action_mask" in info else None


def check_mask(reference: Any, state: int, mask: Any) -> None:
    assert (mask is not None) == hasattr(reference, "action_mask")
    if mask is not None:
        want = reference.action_mask(state)
        assert mask.dtype == want.dtype == np.int8
        np.testing.assert_array_equal(mask, want)


def test_action_mask_of_every_state_of_taxi_is_gymnasiums() -> None:
    reference = reference_of("Taxi-v3", {})
    states = [(s // 100, s // 20 % 5, s // 4 % 5, s % 4, 0, 0) for s in range(500)]
    with rollouts.make_vec("Taxi-v3", 500, seed=1, autoreset_mode="disabled") as env:
        env.reset()
        set_states(env, np.array(states, np.int32))
        # nothing moves where no passenger can be dropped; the others are shown again
        obs, info = env.reset(options={"reset_mask": np.arange(500) >= 500})
        assert obs.tolist() == list(range(500))
        for state in range(500):
            check_mask(reference, state, info["action_mask"][state])


@pytest.mark.parametrize("mode", MODES)
def test_infos_do_not_depend_on_threads_or_batch_size(mode: str) -> None:
    def told(env_id: str, **how: Any) -> dict[int, list[float]]:
        found: dict[int, list[float]] = {i: [] for i in range(96)}
        with rollouts.make_vec(env_id, 96, seed=5, autoreset_mode=mode, **how) as env:
            env.async_reset()
            while min(map(len, found.values())) < 60:
                obs, *_, info = env.recv()
                for env_of, prob in zip(info["env_id"], info["prob"], strict=True):
                    found[int(env_of)].append(float(prob))
                env.send(np.asarray(obs) % 4, info["env_id"])
        return {env: probs[:60] for env, probs in found.items()}

    for env_id in ("FrozenLake-v1", "CliffWalkingSlippery-v1", "Taxi-v3"):
        one = told(env_id, num_threads=1)
        assert one == told(env_id, num_threads=2, batch_size=16)
        assert one == told(env_id, num_threads=1, batch_size=1)


@pytest.mark.parametrize("env_id", ["FrozenLake-v1", "CliffWalkingSlippery-v1"])
def test_a_saved_state_keeps_the_last_prob(env_id: str) -> None:
    with rollouts.make_vec(env_id, 70, seed=2) as env, rollouts.make_vec(env_id, 70) as other:
        env.reset()
        info = env.step(np.ones(70, np.int64))[4]
        probs = info["prob"].copy()
        assert len(set(probs.tolist()) | {1.0}) > 1
        other.reset()
        other.set_state(np.arange(70), env.get_state(np.arange(70)))
        _, shown = other.reset(options={"reset_mask": np.zeros(70, np.bool_)})
        np.testing.assert_array_equal(shown["prob"], probs)


def test_environments_with_their_own_options_tell_their_own_prob() -> None:
    rates = np.linspace(0.2, 0.9, 80)
    with rollouts.make_vec("FrozenLake-v1", 80, seed=4, success_rate=rates) as env:
        env.reset()
        prob = env.step(np.ones(80, np.int64))[4]["prob"]
        assert ((prob == rates) | (prob == (1.0 - rates) / 2.0)).all()
        assert (prob == rates).any() and (prob != rates).any()


@pytest.mark.parametrize("env_id", ["FrozenLake-v1", "CliffWalking-v1", "Taxi-v3"])
def test_keys_and_dtypes_are_those_of_gymnasiums_vector_env(env_id: str) -> None:
    theirs = gymnasium.make_vec(env_id, 4, vectorization_mode="sync")
    with closing(theirs), rollouts.make_vec(env_id, 4) as ours:
        theirs.reset()
        ours.reset()
        actions = np.zeros(4, np.int64)
        want, got = theirs.step(actions)[4], ours.step(actions)[4]
        for name in ("prob", "action_mask"):
            assert (name in want) == (name in got)
            if name in want:
                assert got[name].dtype == want[name].dtype
                assert got[name].shape == want[name].shape
