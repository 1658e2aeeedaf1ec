# SPDX-License-Identifier: Apache-2.0
"""Atari environments against ale-py's vector environment and against a slow oracle."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ale_py.vector_env import AtariVectorEnv
from atari_oracle import SlowAtari, load_emulator
from own_numbers import Rng

import rollouts

pytestmark = pytest.mark.system

NO_CHANCE: dict[str, Any] = {"noop_max": 0, "repeat_action_probability": 0.0}
RAW: dict[str, Any] = {"img_height": 210, "img_width": 160}
GAMES = {"pong": "ALE/Pong-v5", "breakout": "ALE/Breakout-v5", "seaquest": "ALE/Seaquest-v5"}


def assert_equal_step(ours: tuple[Any, ...], reference: tuple[Any, ...], where: str) -> None:
    names = ("obs", "reward", "terminated", "truncated")
    for name, a, b in zip(names, ours, reference, strict=False):
        np.testing.assert_array_equal(a, b, err_msg=f"{name} {where}")
    np.testing.assert_array_equal(ours[4]["lives"], reference[4]["lives"], err_msg=where)


def compare_next_step(rom: str, num_steps: int, *, reseed: bool = False, **options: Any) -> int:
    """Steps both with the same random actions; returns the number of episodes that ended."""
    reference = AtariVectorEnv(rom, 1, **NO_CHANCE, **options)
    rng = np.random.default_rng(7)
    ended = 0
    with rollouts.make_vec(GAMES[rom], 1, seed=1, **NO_CHANCE, **options) as env:
        n = env.single_action_space.n
        assert n == reference.single_action_space.n
        assert env.single_observation_space == reference.single_observation_space
        np.testing.assert_array_equal(env.reset()[0], reference.reset(seed=3)[0])
        over = False
        for step in range(num_steps):
            action = rng.integers(n, size=1)
            ours = env.step(action)
            if over and reseed:
                obs, info = reference.reset(seed=3)
                theirs = (obs, [0], [False], [False], info)
            else:
                theirs = reference.step(action)
            assert_equal_step(ours, theirs, f"{rom} step {step} {options}")
            over = bool(ours[2][0] or ours[3][0])
            ended += over
    return ended


# a game of Pong is long
@pytest.mark.parametrize(
    ("rom", "steps", "least"),
    [pytest.param("pong", 1500, 1, marks=pytest.mark.slow), ("breakout", 1000, 2)],
)
def test_whole_episodes_equal_ale_py_vector_env(rom: str, steps: int, least: int) -> None:
    assert compare_next_step(rom, steps) >= least


def test_whole_episodes_of_seaquest_equal_freshly_seeded_ale_py() -> None:
    # reset(seed=) makes ale-py load the ROM again, see the next test
    assert compare_next_step("seaquest", 1200, reseed=True) >= 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rom", "steps", "least", "reseed"),
    [("pong", 5000, 3, False), ("breakout", 3000, 3, False), ("seaquest", 3500, 5, True)],
)
def test_many_whole_episodes_equal_ale_py(rom: str, steps: int, least: int, reseed: bool) -> None:
    assert compare_next_step(rom, steps, reseed=reseed) >= least


@pytest.mark.slow  # it is about ale-py; that ours is the fresh game is compared above
def test_seaquest_differs_from_ale_py_only_by_what_its_reset_leaves_behind() -> None:
    """ALE's reset_game keeps the console's RAM and random generator from the game before.

    In later episodes of Seaquest, ale-py's vector environment therefore draws some sprites that
    a freshly loaded game does not have. Ours always is the fresh game.
    """
    options: dict[str, Any] = {**RAW, "stack_num": 1, "maxpool": False}
    reference = AtariVectorEnv("seaquest", 1, **NO_CHANCE, **options)
    kept, fresh = load_emulator("seaquest"), load_emulator("seaquest")
    actions = kept.getMinimalActionSet()
    rng = np.random.default_rng(1)
    differing = []
    with rollouts.make_vec(GAMES["seaquest"], 1, **NO_CHANCE, **options) as env:
        env.reset()
        reference.reset(seed=3)
        over = False
        for emulator in (kept, fresh):
            emulator.act(1)
        for _ in range(1400):
            action = rng.integers(len(actions), size=1)
            ours, theirs = env.step(action), reference.step(action)
            if over:
                kept.reset_game()
                fresh = load_emulator("seaquest")
            for emulator in (kept, fresh):
                for _ in range(1 if over else 4):
                    emulator.act(actions[1 if over else action[0]])
            over = bool(ours[2][0])
            # in a game's last step the frame skip ends early and shows an older frame
            if not over:
                np.testing.assert_array_equal(theirs[0][0, 0], kept.getScreenGrayscale())
                np.testing.assert_array_equal(ours[0][0, 0], fresh.getScreenGrayscale())
            differing.append(int((ours[0] != theirs[0]).sum()))
            np.testing.assert_array_equal(ours[1], theirs[1])
            np.testing.assert_array_equal(ours[2], theirs[2])
    assert 0 < max(differing) < 0.02 * 210 * 160


OPTIONS: list[dict[str, Any]] = [
    {"grayscale": False},
    {"img_height": 96, "img_width": 80, "stack_num": 3},
    {"frameskip": 1},
    {"frameskip": 3, "maxpool": False},
    {"use_fire_reset": False, "reward_clipping": False},
    {"full_action_space": True},
    RAW,
    {"img_height": 105, "img_width": 80, "frameskip": 2, "stack_num": 1},
    {"img_height": 42, "img_width": 42, "grayscale": False},
]


# some hundred steps of Breakout have an end among them, a game of Pong takes a thousand: it has the
# other actions, and its pictures are made as those of Breakout
@pytest.mark.parametrize(
    ("rom", "steps", "options"),
    [
        pytest.param(
            rom,
            steps,
            options,
            id=f"{rom}-{steps}-{options}",
            marks=[pytest.mark.slow] * (rom == "pong" and "full_action_space" not in options),
        )
        for rom, steps in (("pong", 150), ("breakout", 350))
        for options in OPTIONS
    ],
)
def test_options_mean_what_they_mean_in_ale_py(
    rom: str, steps: int, options: dict[str, Any]
) -> None:
    compare_next_step(rom, steps, **options)


@pytest.mark.parametrize(
    ("life_loss_info", "rom"),
    [
        (False, "breakout"),
        (True, "breakout"),
        pytest.param(False, "seaquest", marks=pytest.mark.slow),  # a long game
        pytest.param(True, "seaquest", marks=pytest.mark.slow),
    ],
)
def test_same_step_mode_equals_ale_py(rom: str, life_loss_info: bool) -> None:
    options: dict[str, Any] = {**NO_CHANCE, "life_loss_info": life_loss_info}
    reference = AtariVectorEnv(rom, 2, autoreset_mode="SameStep", **options)
    rng = np.random.default_rng(5)
    games = lost_lives = 0
    with rollouts.make_vec(GAMES[rom], 2, autoreset_mode="same_step", **options) as env:
        np.testing.assert_array_equal(env.reset()[0], reference.reset(seed=3)[0])
        while games == 0:
            action = rng.integers(env.single_action_space.n, size=2)
            obs, reward, terminated, truncated, info = env.step(action)
            theirs = reference.step(action)
            np.testing.assert_array_equal(reward, theirs[1])
            np.testing.assert_array_equal(terminated, theirs[2])
            np.testing.assert_array_equal(truncated, theirs[3])
            # one game each: later ones start from leftovers in ale-py
            np.testing.assert_array_equal(obs, theirs[0])
            # the lives at the end: info has those of the next game
            over = terminated & (info.get("final_info", info)["lives"] == 0)
            games += over.sum()
            lost_lives += (terminated & ~over).sum()
            if over.any():
                final = np.asarray(theirs[4]["final_obs"])[over]
                np.testing.assert_array_equal(np.stack(info["final_obs"][over]), final)
    assert (lost_lives > 0) == life_loss_info


def test_time_limit_shows_the_last_frame_where_ale_py_does_not() -> None:
    """ale-py stops taking frames in the very frame that reaches the limit.

    Its last observation then ends in the maximum of the pooled frame before and the last frame
    but one; ours ends in the maximum of the last two frames, like any other step's.
    """
    limit, rng = 25, np.random.default_rng(2)
    reference = AtariVectorEnv("pong", 1, max_num_frames_per_episode=4 * limit, **NO_CHANCE, **RAW)
    slow = SlowAtari("pong", noop_max=0, repeat_action_probability=0.0)
    unused = Rng(0, 0, 0)
    with rollouts.make_vec(GAMES["pong"], 1, max_episode_steps=limit, **NO_CHANCE, **RAW) as env:
        env.reset()
        reference.reset(seed=3)
        slow.reset(unused)
        for _ in range(limit - 1):
            action = rng.integers(6, size=1)
            assert_equal_step(env.step(action), reference.step(action), "before the limit")
            before = slow.step(int(action[0]), unused)[0][-1]
        action = rng.integers(6, size=1)
        ours, theirs = env.step(action), reference.step(action)
        assert ours[3][0] and theirs[3][0]
        np.testing.assert_array_equal(ours[0][0], slow.step(int(action[0]), unused)[0])
        np.testing.assert_array_equal(ours[0][0, :-1], theirs[0][0, :-1])
        np.testing.assert_array_equal(theirs[0][0, -1], np.maximum(before, slow.earlier))


@pytest.mark.parametrize(
    ("rom", "options"),
    [
        ("pong", {}),
        ("breakout", {"repeat_action_probability": 0.5, "noop_max": 50}),
        ("seaquest", {"frameskip": 2, "stack_num": 2}),
        ("breakout", {"episodic_life": True}),
        pytest.param("seaquest", {"episodic_life": True, "noop_max": 5}, marks=pytest.mark.slow),
    ],
)
def test_chance_equals_a_slow_replay_of_the_same_draws(rom: str, options: dict[str, Any]) -> None:
    seed, env_id = 2**40 + 12, 3
    slow = SlowAtari(rom, **options)
    actions = np.random.default_rng(11)
    height = load_emulator(rom).getScreenGrayscale().shape[0]
    size = {"img_height": height, "img_width": 160}
    with rollouts.make_vec(
        GAMES[rom], 1, seed=seed, env_id_offset=env_id, autoreset_mode="next_step",
        max_episode_steps=130, **options, **size,
    ) as env:  # fmt: skip
        obs = env.reset()[0]
        for episode in range(3):
            rng = Rng(seed, env_id, episode)
            np.testing.assert_array_equal(obs[0], slow.reset(rng), err_msg=f"reset {episode}")
            over = False
            while not over:
                action = actions.integers(env.single_action_space.n, size=1)
                obs, reward, terminated, truncated, info = env.step(action)
                want, want_reward, want_terminated, want_info = slow.step(int(action[0]), rng)
                np.testing.assert_array_equal(obs[0], want)
                assert reward[0] == want_reward and terminated[0] == want_terminated
                assert {key: info[key][0] for key in want_info} == want_info
                over = bool(terminated[0] or truncated[0])
            obs = env.step(action)[0]


def test_no_op_counts_and_sticky_frames_have_the_distribution_of_ale_py() -> None:
    # the test above shows that the environment uses these draws in this way
    counts = np.bincount([Rng(5, e, 0).below(30) for e in range(6000)], minlength=30)
    assert len(counts) == 30
    assert ((counts - 200) ** 2 / 200).sum() < 60  # chi-square, 29 dof: p < 1e-3 beyond 58
    rng = Rng(5, 0, 1)
    sticky = np.mean([rng.uniform() < 0.25 for _ in range(8000)])
    assert abs(sticky - 0.25) < 4 * (0.25 * 0.75 / 8000) ** 0.5


def test_episode_does_not_depend_on_what_was_played_before() -> None:
    for game in ("ALE/Berzerk-v5", "ALE/Solaris-v5", "ALE/Qbert-v5", "ALE/Atlantis2-v5"):
        with rollouts.make_vec(game, 2, seed=3) as env:
            n = env.single_action_space.n

            def play(seed: int, steps: int, env: rollouts.VectorEnv = env, n: int = n) -> Any:
                rng = np.random.default_rng(seed)
                frames = [env.reset(seed=seed)[0].copy()]
                frames += [env.step(rng.integers(n, size=2))[0].copy() for _ in range(steps)]
                return np.stack(frames)

            first = play(1, 60)
            play(2, 120)
            np.testing.assert_array_equal(play(1, 60), first, err_msg=game)


def test_lost_life_goes_on_in_the_same_game_until_the_user_resets() -> None:
    with rollouts.make_vec(GAMES["breakout"], 1, seed=4, episodic_life=True) as env:
        env.reset()
        rng = np.random.default_rng(0)
        seen = []
        while len(seen) < 6:
            *_, terminated, _, info = env.step(rng.integers(4, size=1))
            if terminated[0]:
                seen.append(int(info["lives"][0]))
                *_, info = env.step(np.array([0]))
        assert seen == [4, 3, 2, 1, 0, 4]
        assert info["lives"][0] == 4
        assert env.reset()[1]["lives"][0] == 5


# each eighth game here, all in make test-all
@pytest.mark.parametrize("every", [8, pytest.param(1, marks=pytest.mark.slow)])
def test_every_game_makes_resets_and_steps(every: int) -> None:
    ids = [env_id for env_id in rollouts.env_ids() if env_id.startswith("ALE/")]
    assert len(ids) == 104
    rng = np.random.default_rng(0)
    for env_id in ids[::every]:
        with rollouts.make_vec(env_id, 1, seed=0) as env:
            obs, _ = env.reset()
            assert obs.shape == (1, 4, 84, 84) and not obs[0, :3].any()
            for _ in range(12):
                obs, reward, *_ = env.step(rng.integers(env.single_action_space.n, size=1))
                assert abs(reward[0]) <= 1
            # Video Cube begins with the screen switched off; all others show something
            assert obs[0, -1].std() > 0 or env_id == "ALE/VideoCube-v5", env_id


def test_data_do_not_depend_on_threads_or_batch_size() -> None:
    def collect(num_threads: int, batch_size: int) -> dict[int, list[bytes]]:
        data: dict[int, list[bytes]] = {env: [] for env in range(4)}
        with rollouts.make_vec(
            GAMES["breakout"], 4, seed=9, num_threads=num_threads, batch_size=batch_size,
            max_episode_steps=30,
        ) as env:  # fmt: skip
            env.async_reset()
            while min(len(rows) for rows in data.values()) < 70:
                batch = env.recv_batch()
                actions = []
                for row, index in enumerate(batch.env_id):
                    rows = data[int(index)]
                    rows.append(batch.obs[row].tobytes() + batch.reward[row].tobytes())
                    actions.append((len(rows) * 7 + int(index)) % 4)
                env.send(np.array(actions), batch.env_id)
        return {index: rows[:70] for index, rows in data.items()}

    want = collect(1, 4)
    assert collect(2, 4) == want
    assert collect(2, 1) == want
    assert collect(4, 3) == want
