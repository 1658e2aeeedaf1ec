# SPDX-License-Identifier: Apache-2.0
"""MPE's scenarios against Farama's mpe2: one sync an episode, then the same actions to its end.

Sums are made in NumPy's order, so that differences come from two places. A contact's exp and log1p
are libm's, as in NumPy's logaddexp, but with us a force below 1e-18 is none: in the long form, with
the libm that NumPy uses, states differ by 7e-20 at most. NumPy's own exp, in the costs of leaving
the screen, may round otherwise: rewards differ by 4e-15. The tolerances leave room for another
libm, whose last bit a contact doubles a few times, and for rounding observations to float32.
"""

from __future__ import annotations

import importlib
from typing import Any

import mpe2
import numpy as np
import pytest
from mpe_worlds import begin_reference, read_world

import rollouts

MAX_CYCLES = 25
# id -> options beside the defaults; None of mpe2 is 0 here
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "simple_v3": [],
    "simple_spread_v3": [
        {"N": 5, "local_ratio": 0.1},
        {"N": 1, "terminate_on_success": True},
        {"N": 4, "num_agent_neighbors": 2, "num_landmark_neighbors": 3},
        {"N": 2, "num_agent_neighbors": 3, "num_landmark_neighbors": 4},
        {"curriculum": True, "curriculum_stage": 0},
        {"curriculum": True, "curriculum_stage": 1},
    ],
    "simple_tag_v3": [
        {"num_good": 2, "num_adversaries": 4, "num_obstacles": 3, "terminate_on_success": True},
        {"num_good": 1, "num_adversaries": 2, "terminate_on_success": True},
        {"num_agent_neighbors": 2, "num_landmark_neighbors": 1},
        {"num_good": 2, "num_agent_neighbors": 7, "num_landmark_neighbors": 3},
        {"curriculum": True, "curriculum_stage": 0},
        {"curriculum": True, "curriculum_stage": 1},
        {"num_good": 0, "num_obstacles": 0},
        {"num_good": 3, "num_adversaries": 0},
    ],
    "simple_adversary_v3": [
        {"N": 1},
        {"N": 4, "num_agent_neighbors": 2, "num_landmark_neighbors": 1},
        {"N": 2, "num_agent_neighbors": 4, "num_landmark_neighbors": 3},
    ],
    "simple_push_v3": [],
    "simple_crypto_v3": [],
    "simple_reference_v3": [{"local_ratio": 0.9}],
    "simple_speaker_listener_v4": [],
    "simple_world_comm_v3": [
        {"num_good": 3, "num_adversaries": 2, "num_obstacles": 2, "num_food": 3, "num_forests": 4},
        {"num_good": 1, "num_adversaries": 1, "num_obstacles": 0, "num_food": 1, "num_forests": 0},
    ],
}
CASES = [
    pytest.param(env_id, {**options, "continuous_actions": continuous}, id=f"{env_id}-{name}")
    for env_id, variants in VARIANTS.items()
    for index, options in enumerate([{}, *variants])
    # an option's effect does not depend on the kind of action, so that variants have one each
    for continuous in ([False, True] if index == 0 else [index % 2 == 0])
    for name in [f"{index}-{'continuous' if continuous else 'discrete'}"]
]
every_case = pytest.mark.parametrize(("env_id", "options"), CASES)


def make_reference(env_id: str, options: dict[str, Any]) -> Any:
    """mpe2's parallel environment with our options."""
    given = {name: value for name, value in options.items() if name != "curriculum_stage"}
    for name in ("num_agent_neighbors", "num_landmark_neighbors"):
        if given.get(name) == 0:
            del given[name]
    module = importlib.import_module(f"{mpe2.__name__}.{env_id}")
    reference = module.parallel_env(max_cycles=MAX_CYCLES, **given)
    if "curriculum_stage" in options:
        # its stage is a property of BaseScenario whose setter does nothing: 1.1.1 stays in stage 0
        scenario = reference.unwrapped.scenario
        stage = {"curriculum_stage": options["curriculum_stage"]}
        scenario.__class__ = type("Staged", (type(scenario),), stage)
    return reference


def of_agents(grouped: Any, groups: list[str], row: int) -> list[Any]:
    """One environment's entries in the order of all agents."""
    if len(groups) == 1:
        return list(grouped[row])
    return [entry for name in groups for entry in grouped[name][row]]


class Comparison:
    """`num_episodes` environments of ours, each compared to its end with one of mpe2's.

    In every other one all things are drawn towards the middle, so that there are contacts.
    """

    def __init__(self, env_id: str, options: dict[str, Any], num_episodes: int) -> None:
        self.env_id, self.options, self.num_episodes = env_id, options, num_episodes
        self.obs_difference = self.reward_difference = self.state_difference = 0.0
        self.steps = self.early_ends = 0

    def run(self, seed: int) -> None:
        with rollouts.make_vec(self.env_id, self.num_episodes, seed=seed, **self.options) as env:
            first, _ = env.reset()
            first_obs = [of_agents(first, [*env.groups], row) for row in range(self.num_episodes)]
            worlds = [self.draw_together(env, row) for row in range(self.num_episodes)]
            env.action_space.seed(seed)
            actions = [env.action_space.sample() for _ in range(MAX_CYCLES)]
            steps, states = [], []
            for action in actions:
                step = env.step(action)
                steps.append([{**part} if isinstance(part, dict) else part for part in step[:4]])
                states.append([self.world_of(env, row) for row in range(self.num_episodes)])
            reference = make_reference(self.env_id, self.options)
            assert reference.possible_agents == env.agents
            for row, world in enumerate(worlds):
                obs = begin_reference(self.env_id, reference, world)
                if row % 2 == 0:
                    self.compare_obs(first_obs[row], obs)
                self.follow(env, reference, row, actions, steps, states)

    def world_of(self, env: rollouts.MultiAgentVectorEnv, row: int) -> Any:
        return read_world(self.env_id, bytearray(env.engine.pool.get_state(row)), len(env.agents))

    def draw_together(self, env: rollouts.MultiAgentVectorEnv, row: int) -> Any:
        state = bytearray(env.engine.pool.get_state(row))
        world = read_world(self.env_id, state, len(env.agents))
        if row % 2 == 1:
            for positions in (world.position, world.landmarks):
                positions *= 0.3
            env.engine.pool.set_state(row, bytes(state))
        return world

    def follow(self, env: Any, reference: Any, row: int, actions: Any, steps: Any, states: Any):
        groups = [*env.groups]
        for action, step, world in zip(actions, steps, states, strict=True):
            ours = [of_agents(part, groups, row) for part in step]
            theirs = reference.step(
                dict(zip(env.agents, of_agents(action, groups, row), strict=True))
            )
            self.compare(env.agents, ours, theirs)
            self.compare_state(world[row], reference)
            self.steps += 1
            if not reference.agents:
                self.early_ends += theirs[2][env.agents[0]]
                return
        raise AssertionError("the episode did not end")

    def compare(self, agents: list[str], ours: list[Any], theirs: Any) -> None:
        obs, reward, terminated, truncated = ours
        assert terminated == [theirs[2][agent] for agent in agents]
        assert truncated == [theirs[3][agent] for agent in agents]
        # those of an episode that ended are the next one's only in same-step mode
        self.compare_obs(obs, theirs[0])
        want = np.array([theirs[1][agent] for agent in agents])
        difference = np.abs(np.array(reward) - want).max()
        self.reward_difference = max(self.reward_difference, difference)
        assert difference < 1e-12

    def compare_obs(self, ours: list[Any], theirs: dict[str, Any]) -> None:
        for one, want in zip(ours, theirs.values(), strict=True):
            assert one.dtype == want.dtype == np.float32
            self.obs_difference = max(self.obs_difference, float(np.abs(one - want).max()))
            np.testing.assert_allclose(one, want, rtol=1.2e-7, atol=1e-12)

    def compare_state(self, world: Any, reference: Any) -> None:
        if self.env_id == "simple_crypto_v3":
            return
        for i, agent in enumerate(reference.unwrapped.world.agents):
            for one, want in (
                (world.position[i], agent.state.p_pos),
                (world.velocity[i], agent.state.p_vel),
            ):
                difference = np.abs(one - want).max()
                self.state_difference = max(self.state_difference, difference)
                assert difference < 1e-12


@every_case
def test_episodes_equal_mpe2s(env_id: str, options: dict[str, Any]) -> None:
    ends_early = options.get("terminate_on_success", False)
    # mpe2 takes milliseconds a step
    num_episodes = 12 if ends_early else 4 if len(options) == 1 else 2
    comparison = Comparison(env_id, options, num_episodes)
    comparison.run(seed=5)
    if ends_early:
        assert 0 < comparison.early_ends < num_episodes, "some end before their time, not all"


@pytest.mark.slow
@pytest.mark.parametrize("env_id", VARIANTS)
def test_a_thousand_episodes_equal_mpe2s(env_id: str) -> None:
    cases = [case.values[1] for case in CASES if case.values[0] == env_id]
    for options in cases:
        comparison = Comparison(env_id, options, -(-1000 // len(cases)))
        comparison.run(seed=6)
        print(
            f"\n{env_id} {options}: {comparison.num_episodes} episodes, {comparison.early_ends} "
            f"ended early, {comparison.steps} steps; largest differences: observation "
            f"{comparison.obs_difference:.2g}, reward {comparison.reward_difference:.2g}, state "
            f"{comparison.state_difference:.2g}",
            end="",
        )


@every_case
def test_agents_and_spaces_are_mpe2s(env_id: str, options: dict[str, Any]) -> None:
    reference = make_reference(env_id, options)
    with rollouts.make_vec(env_id, 1, **options) as env:
        assert env.agents == reference.possible_agents
        for group in env.groups.values():
            for agent in group.agents:
                assert group.single_observation_space == reference.observation_space(agent)
                assert group.single_action_space == reference.action_space(agent)


@pytest.mark.parametrize("env_id", VARIANTS)
def test_time_limit_is_mpe2s(env_id: str) -> None:
    module = importlib.import_module(f"mpe2.{env_id}")
    limit = module.parallel_env().unwrapped.max_cycles
    assert rollouts.env_spec(env_id).max_episode_steps == limit


def test_actions_outside_their_box_are_clipped_as_mpe2_does() -> None:
    env_id, options = "simple_reference_v3", {"continuous_actions": True}
    reference = make_reference(env_id, options)
    with rollouts.make_vec(env_id, 1, seed=1, **options) as env:
        env.reset()
        begin_reference(
            env_id, reference, read_world(env_id, bytearray(env.engine.pool.get_state(0)), 2)
        )
        action = np.linspace(-1, 2, 30, dtype=np.float32).reshape(1, 2, 15)
        for _ in range(3):
            obs, reward, *_ = env.step(action)
            want = reference.step(dict(zip(env.agents, action[0], strict=True)))
            np.testing.assert_array_equal(obs[0], list(want[0].values()))
            np.testing.assert_allclose(reward[0], list(want[1].values()), rtol=1e-15)


def test_reset_moves_a_curriculum_on() -> None:
    env_id = "simple_spread_v3"
    with rollouts.make_vec(env_id, 1, seed=1, N=2, curriculum=True, local_ratio=1.0) as env:
        rewards = []
        for stage in (0, 1):
            env.reset(options={"curriculum_stage": stage})
            state = bytearray(env.engine.pool.get_state(0))
            # the two overlap
            read_world(env_id, state, 2).position[:] = [[0, 0], [0.1, 0]]
            env.engine.pool.set_state(0, bytes(state))
            rewards.append(env.step(np.zeros((1, 2), np.int64))[1].tolist())
        assert rewards == [[[0, 0]], [[-1, -1]]]


@pytest.mark.parametrize(
    ("env_id", "options"),
    [
        ("simple_spread_v3", {"N": 0}),
        ("simple_spread_v3", {"N": 65}),
        ("simple_spread_v3", {"local_ratio": 1.5}),
        ("simple_spread_v3", {"curriculum_stage": 2}),
        ("simple_tag_v3", {"num_good": 0, "num_adversaries": 0}),
        ("simple_tag_v3", {"num_obstacles": -1}),
        ("simple_adversary_v3", {"num_agent_neighbors": -1}),
        ("simple_world_comm_v3", {"num_food": 0}),
        ("simple_world_comm_v3", {"num_adversaries": 0}),
        ("simple_world_comm_v3", {"num_forests": 33}),
    ],
)
def test_options_without_a_world_are_refused(env_id: str, options: dict[str, Any]) -> None:
    with pytest.raises(rollouts.SpecError, match=next(iter(options))):
        rollouts.make_vec(env_id, 1, **options)


# half the side of the squares in which agents and landmarks are drawn
SQUARES = {"simple_tag_v3": (1, 0.9), "simple_world_comm_v3": (1, 0.9)}


@pytest.mark.parametrize("env_id", [name for name in VARIANTS if name != "simple_crypto_v3"])
def test_places_are_drawn_from_the_whole_square(env_id: str) -> None:
    num_envs = 2000
    num_landmarks = len(make_reference(env_id, {}).unwrapped.world.landmarks)
    with rollouts.make_vec(env_id, num_envs, seed=2) as env:
        env.reset()
        states = [bytearray(env.engine.pool.get_state(row)) for row in range(num_envs)]
        worlds = [read_world(env_id, state, len(env.agents)) for state in states]
    agents = np.stack([world.position for world in worlds])
    landmarks = np.stack([world.landmarks[:num_landmarks] for world in worlds])
    for places, side in zip((agents, landmarks), SQUARES.get(env_id, (1, 1)), strict=True):
        assert np.abs(places).max() <= side
        # 2 000 draws: the ends are near, mean and spread are those of a uniform distribution
        assert (places.max(axis=0) > 0.99 * side).all() and (
            places.min(axis=0) < -0.99 * side
        ).all()
        assert np.abs(places.mean(axis=0)).max() < 0.06 * side
        assert np.abs(places.std(axis=0) - side / np.sqrt(3)).max() < 0.03 * side
    assert not any(world.velocity.any() for world in worlds)


@pytest.mark.parametrize(
    ("env_id", "num_goals", "choices"),
    [
        ("simple_adversary_v3", 1, 2),
        ("simple_push_v3", 1, 2),
        ("simple_crypto_v3", 2, 2),
        ("simple_reference_v3", 2, 3),
        ("simple_speaker_listener_v4", 1, 3),
    ],
)
def test_goals_are_drawn_alike(env_id: str, num_goals: int, choices: int) -> None:
    num_envs = 2000
    with rollouts.make_vec(env_id, num_envs, seed=3) as env:
        env.reset()
        states = [bytearray(env.engine.pool.get_state(row)) for row in range(num_envs)]
        goals = np.stack([read_world(env_id, state, len(env.agents)).goals for state in states])
    assert goals.shape == (num_envs, num_goals)
    # every combination as often as the others; five standard deviations
    codes = (goals * choices ** np.arange(num_goals)).sum(axis=1)
    share = 1 / choices**num_goals
    counts = np.bincount(codes, minlength=choices**num_goals)
    assert len(counts) == choices**num_goals
    assert np.abs(counts - num_envs * share).max() < 5 * np.sqrt(num_envs * share * (1 - share))
