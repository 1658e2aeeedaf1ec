# SPDX-License-Identifier: Apache-2.0
"""MuJoCo's failures stay with the environment, or are named before there is one."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest

import rollouts
from rollouts import _native, mujoco
from rollouts.errors import EngineError, EnvError, SpecError

ROOT = Path(__file__).parents[2]
ASSETS = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets"


def write_model(folder: Path, name: str, pattern: str, replacement: str) -> str:
    """One of Gymnasium's models with a change, in a file of its own."""
    text, count = re.subn(pattern, replacement, (ASSETS / name).read_text())
    assert count > 0
    path = folder / name
    path.write_text(text)
    return str(path)


@pytest.fixture
def unstable(tmp_path: Path) -> str:
    """A cheetah whose time step is far too long for its springs."""
    return write_model(tmp_path, "half_cheetah.xml", r'timestep="0.01"', 'timestep="0.5"')


def test_divergence_is_the_error_of_the_environment_that_diverged(unstable: str) -> None:
    stable = str(ASSETS / "half_cheetah.xml")
    files = [stable, unstable, stable]
    generator = np.random.default_rng(0)
    with (
        rollouts.make_vec("HalfCheetah-v5", 3, seed=1, xml_file=files, on_env_error="reset") as env,
        rollouts.make_vec("HalfCheetah-v5", 3, seed=1) as alone,
    ):
        env.reset()
        alone.reset()
        failures = 0
        for _ in range(50):
            actions = generator.uniform(-1, 1, (3, 6)).astype(np.float32)
            obs, _, terminated, truncated, info = env.step(actions)
            want = alone.step(actions)[0]
            np.testing.assert_array_equal(obs[[0, 2]], want[[0, 2]])
            if "env_error" in info:
                failures += 1
                assert info["_env_error"].tolist() == [False, True, False]
                assert "not finite or huge" in info["env_error"][1]
                assert "unstable" in info["env_error"][1]  # in MuJoCo's own words
                assert truncated.tolist() == [False, True, False] and not terminated.any()
                assert not obs[1].any()
        assert failures > 5


def test_divergence_raises_and_the_pool_goes_on(unstable: str) -> None:
    actions = np.ones((2, 6), np.float32)
    with rollouts.make_vec("HalfCheetah-v5", 2, seed=1, xml_file=unstable) as env:
        env.reset()
        with pytest.raises(EnvError, match=r"env_id 0.*the simulation cannot go on"):
            for _ in range(50):
                env.step(actions)
        # the batch in which it failed
        assert env.recv()[3].any()
        assert np.isfinite(env.reset()[0]).all()


def test_a_fatal_error_of_mujoco_does_not_end_the_process(tmp_path: Path) -> None:
    # memory for an ant in the air, but not for one that touches the ground
    small = write_model(tmp_path, "ant.xml", "<option ", '<size memory="12K"/>\n  <option ')
    actions = np.ones((2, 8), np.float32)
    options = {"seed": 1, "num_threads": 1, "terminate_when_unhealthy": False}
    with rollouts.make_vec("Ant-v5", 2, xml_file=small, **options) as env:
        for _ in range(3):
            env.reset()
            with pytest.raises(EnvError, match=r"env_id \d.*MuJoCo: mj_stackAlloc: out of memory"):
                for _ in range(50):
                    env.step(actions)
            env.recv()
    # what comes after it in the same thread is not harmed
    with rollouts.make_vec("Ant-v5", 2, **options) as env:
        env.reset()
        for _ in range(50):
            env.step(actions)


def test_a_model_with_too_little_memory_for_itself_says_so(tmp_path: Path) -> None:
    tiny = write_model(tmp_path, "ant.xml", "<option ", '<size memory="2K"/>\n  <option ')
    with pytest.raises(EngineError, match=r"cannot use the model .*ant\.xml: .*out of memory"):
        rollouts.make_vec("Ant-v5", 1, xml_file=tiny)


def test_warnings_are_neither_printed_nor_written(unstable: str, tmp_path: Path) -> None:
    code = (
        "import numpy as np, rollouts\n"
        f"env = rollouts.make_vec('HalfCheetah-v5', 2, xml_file={unstable!r}, "
        "on_env_error='reset')\n"
        "env.reset()\n"
        "failed = sum('env_error' in env.step(np.ones((2, 6), 'f4'))[4] for _ in range(50))\n"
        "print(failed > 0)"
    )
    folder = tmp_path / "empty"
    folder.mkdir()
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=folder, timeout=300
    )
    assert (result.stdout, result.stderr) == ("True\n", "")
    assert not list(folder.iterdir())


def test_a_model_that_does_not_exist_is_named() -> None:
    with pytest.raises(EngineError, match=r"/no/such\.xml: there is no such file.*xml_file"):
        rollouts.make_vec("Ant-v5", 1, xml_file="/no/such.xml")
    with pytest.raises(EngineError, match=r"assets/no_such\.xml: there is no such file"):
        rollouts.env_spec("Ant-v5", xml_file="no_such.xml")


def test_a_model_that_mujoco_cannot_read_says_why(tmp_path: Path) -> None:
    path = tmp_path / "broken.xml"
    path.write_text("<mujoco><worldbody><geom size='1' type='cube'/></worldbody></mujoco>")
    with pytest.raises(EngineError, match=r"broken\.xml: .*(cube|type|keyword)"):
        rollouts.make_vec("Ant-v5", 1, xml_file=str(path))


def test_a_model_that_does_not_fit_the_task_says_what_is_missing() -> None:
    with pytest.raises(SpecError, match=r"pendulum\.xml has 2 positions, this task needs 3 or"):
        rollouts.make_vec("Ant-v5", 1, xml_file="inverted_pendulum.xml")
    with pytest.raises(SpecError, match=r"ant\.xml has no body 'fingertip'"):
        rollouts.make_vec("Reacher-v5", 1, xml_file="ant.xml")
    with pytest.raises(SpecError, match=r"'main_body' is 14, .* has the bodies 0 to 13"):
        rollouts.make_vec("Ant-v5", 1, main_body=14)
    with pytest.raises(SpecError, match=r"ant\.xml has no body 'tail'"):
        rollouts.make_vec("Ant-v5", 1, main_body="tail")


def test_models_of_different_spaces_cannot_share_a_pool() -> None:
    with pytest.raises(SpecError, match="environments 0 and 1 make them differ in the obs"):
        rollouts.make_vec("HalfCheetah-v5", 2, xml_file=["half_cheetah.xml", "hopper.xml"])


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    path = write_model(tmp_path, "hopper.xml", "<option ", '<option gravity="0 0 -9.81" ')
    actions = np.zeros((1, 3), np.float32)

    def height_after_a_step() -> float:
        with rollouts.make_vec("Hopper-v5", 1, seed=1, xml_file=path) as env:
            env.reset()
            return float(env.step(actions)[4]["z_distance_from_origin"][0])

    falling = height_after_a_step()
    assert height_after_a_step() == falling
    text = Path(path).read_text()
    Path(path).write_text(text.replace("-9.81", "9.81"))
    assert height_after_a_step() > falling


def in_new_process(code: str) -> str:
    prelude = "from rollouts import _native\nfrom rollouts.errors import EngineError\n"
    command = [sys.executable, "-c", prelude + code]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout


def test_a_library_of_no_supported_release_is_named_with_version_and_remedy() -> None:
    said = in_new_process(
        "import _ctypes\n"
        "try: _native.load_mujoco(_native.__file__, '9.9')\n"
        "except EngineError as error: print(error)"
    )
    assert "mujoco 9.9 is installed" in said
    assert f"supports MuJoCo {', '.join(_native.MUJOCO_RELEASES)}: " in said
    assert f'pip install "{mujoco.requirement()}"' in said


def test_the_requirement_of_the_package_is_the_range_of_supported_releases() -> None:
    assert f'"{mujoco.requirement()}"' in (ROOT / "pyproject.toml").read_text()


def test_library_that_is_not_loaded_is_an_error() -> None:
    said = in_new_process(
        "try: _native.load_mujoco('/no/such/libmujoco.so', '4.0.0')\n"
        "except EngineError as error: print(error)"
    )
    assert "/no/such/libmujoco.so" in said and "import mujoco" in said


def test_environment_without_the_engine_says_what_to_do() -> None:
    said = in_new_process(
        "try: _native.make_spec('Ant-v5', {'assets': '/'})\n"
        "except EngineError as error: print(error)"
    )
    assert "rollouts.make_vec" in said


def test_importing_the_engine_is_left_to_the_first_environment() -> None:
    code = "import sys, rollouts; print(len(rollouts.env_ids()), 'mujoco' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split()[1] == "False"


def test_missing_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mujoco", None)
    mujoco.load_engine.cache_clear()
    with pytest.raises(EngineError, match=re.escape(f'pip install "{mujoco.requirement()}"')):
        rollouts.make_vec("Ant-v5")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"healthy_z_range": 0.5}, r"'healthy_z_range' must be a pair \(low, high\)"),
        ({"healthy_z_range": (0.1, 0.2, 0.3)}, "must be a pair"),
        ({"healthy_z_range": [(0, 1)] * 4}, "one pair for each of the 3 environments"),
        ({"healthy_z_range": (0, 1), "healthy_z_min": 0.1}, "say the same"),
        ({"hat_range": (0, 1)}, "no option 'hat_min'"),
        ({"frame_skip": 0}, "'frame_skip' must be .* above 0"),
        ({"obs_dtype": "float16"}, "'obs_dtype' must be 'float64' or 'float32', got 'float16'"),
        ({"assets": "/tmp"}, "no option 'assets'"),
    ],
)
def test_bad_option_is_named_with_what_is_expected(options: dict, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        rollouts.make_vec("Ant-v5", 3, **options)


def test_ranges_and_bodies_may_differ_by_environment() -> None:
    ranges = np.array([[0.2, 1.0], [0.3, 1.1], [0.4, 1.2]])
    with rollouts.make_vec("Ant-v5", 3, healthy_z_range=ranges, main_body=[1, "torso", 2]) as env:
        np.testing.assert_array_equal(env.env_options["healthy_z_min"], ranges[:, 0])
        np.testing.assert_array_equal(env.env_options["healthy_z_max"], ranges[:, 1])
        assert env.env_options["main_body"].tolist() == ["1", "torso", "2"]
        env.reset(options={"healthy_z_range": (0.1, 2.0)})
        assert env.env_options["healthy_z_max"] == 2.0
    spec = rollouts.env_spec("Ant-v5", healthy_z_range=ranges.tolist())
    assert spec.options["healthy_z_min"] == 0.2


def test_actuators_without_limits_take_any_number(tmp_path: Path) -> None:
    path = write_model(
        tmp_path, "hopper.xml", r'ctrllimited="true" ctrlrange="-1.0 1.0"', 'ctrllimited="false"'
    )
    space = rollouts.env_spec("Hopper-v5", xml_file=path).single_action_space
    assert np.isinf(space.low).all() and np.isinf(space.high).all()
