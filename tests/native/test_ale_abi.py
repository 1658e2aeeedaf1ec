# SPDX-License-Identifier: Apache-2.0
"""The emulator reached through ALE's C++ symbols against ale-py's own Python interface."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import ale_py
import numpy as np
import pytest

from rollouts import _native
from rollouts.errors import EngineError
from rollouts.families import atari

pytestmark = pytest.mark.system

ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)


def rom(env_id: str) -> str:
    return str(atari.rom_path(env_id))


def same_emulators(env_id: str) -> tuple[_native.AleEmulator, ale_py.ALEInterface]:
    reference = ale_py.ALEInterface()
    reference.setInt("random_seed", 0)
    reference.setFloat("repeat_action_probability", 0.0)
    reference.loadROM(rom(env_id))
    return _native.AleEmulator(rom(env_id)), reference


@pytest.mark.parametrize(
    "env_id",
    ["ALE/Pong-v5", "ALE/Breakout-v5", "ALE/Seaquest-v5", "ALE/Pitfall2-v5", "ALE/AirRaid-v5"],
)
def test_ram_screen_reward_and_lives_equal_ale_py_frame_by_frame(env_id: str) -> None:
    ours, reference = same_emulators(env_id)
    assert ours.minimal_actions() == [action.value for action in reference.getMinimalActionSet()]
    assert ours.legal_actions() == [action.value for action in reference.getLegalActionSet()]
    actions = ours.minimal_actions()
    gray = ours.palette_gray()
    rng = np.random.default_rng(0)
    for frame in range(3000):
        action = actions[rng.integers(len(actions))]
        assert ours.act(action) == reference.act(ale_py.Action(action))
        assert ours.lives() == reference.lives()
        assert ours.game_over() == reference.game_over()
        np.testing.assert_array_equal(ours.ram(), reference.getRAM())
        if frame % 10 == 0:
            np.testing.assert_array_equal(ours.screen(), reference.getScreen())
            np.testing.assert_array_equal(gray[ours.screen()], reference.getScreenGrayscale())
        if ours.game_over():
            ours.reset_game()
            reference.reset_game()


def test_paddles_turn_as_far_as_in_ale_py() -> None:
    ours, reference = same_emulators("ALE/Breakout-v5")
    rng = np.random.default_rng(1)
    for _ in range(600):
        action, strength = int(rng.integers(18)), float(rng.uniform(-1.5, 1.5))
        assert ours.act(action, strength) == reference.act(ale_py.Action(action), strength)
        np.testing.assert_array_equal(ours.ram(), reference.getRAM())


def test_restored_state_goes_on_as_before_in_any_emulator() -> None:
    first, second = _native.AleEmulator(rom("ALE/Pong-v5")), _native.AleEmulator(rom("ALE/Pong-v5"))
    for _ in range(100):
        first.act(3)
    state = first.clone_state()
    want = [(first.act(2), first.ram().tobytes()) for _ in range(200)]
    second.restore_state(state)
    assert [(second.act(2), second.ram().tobytes()) for _ in range(200)] == want
    first.restore_state(state)
    assert [(first.act(2), first.ram().tobytes()) for _ in range(200)] == want


def test_emulators_load_and_run_in_several_threads_at_once() -> None:
    games = ["ALE/Pong-v5", "ALE/Breakout-v5", "ALE/Seaquest-v5", "ALE/Amidar-v5"]
    paths = [rom(game) for game in games]

    def play(path: str) -> bytes:
        emulator = _native.AleEmulator(path)
        for frame in range(200):
            emulator.act(emulator.minimal_actions()[frame // 9 % 4])
        return emulator.ram().tobytes() + emulator.screen().tobytes()

    alone = [play(path) for path in paths]
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(play, paths * 2)) == alone * 2


@pytest.mark.parametrize("content", [None, b"", b"not a cartridge" * 300])
def test_bad_rom_is_an_error_and_not_an_exit(tmp_path, content: bytes | None) -> None:
    atari.load_engine()
    path = tmp_path / "unknown_game.bin"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(EngineError, match="unknown_game"):
        _native.AleEmulator(str(path))


def in_new_process(code: str) -> str:
    prelude = "from rollouts import _native\nfrom rollouts.errors import EngineError\n"
    command = [sys.executable, "-c", prelude + code]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout


def test_library_without_the_symbols_is_named_with_version_and_remedy() -> None:
    said = in_new_process(
        "import _ctypes\n"
        "try: _native.load_ale(_native.__file__, '9.9')\n"
        "except EngineError as error: print(error)"
    )
    assert "_ZN3ale12ALEInterfaceC1Ev" in said
    assert "ale-py 9.9 is installed" in said
    assert 'pip install "ale-py>=0.12,<0.13"' in said


def test_library_that_is_not_loaded_is_an_error() -> None:
    said = in_new_process(
        "try: _native.load_ale('/no/such/_ale_py.so', '0.12.1')\n"
        "except EngineError as error: print(error)"
    )
    assert "/no/such/_ale_py.so" in said and "import ale_py" in said


def test_environment_without_the_engine_says_what_to_do() -> None:
    said = in_new_process(
        "try: _native.AleEmulator('pong.bin')\nexcept EngineError as error: print(error)"
    )
    assert "rollouts.make_vec" in said
