# SPDX-License-Identifier: Apache-2.0
# Every target sets up what it needs: a virtual environment in .venv, the
# dependencies of pyproject.toml at the versions of constraints.txt, and the
# native module. The second run finds all of that done. `demo` installs the
# library and what its examples need, every other target what the tests need.

PYTHON ?= python3
VENV := .venv
NEWEST := .venv-newest
WHEELS := .venv-wheels
PEERS := .venv-peers
RUN_DIR ?= runs/demo
# processes that share the test files; those of one file stay together. Two cores compute all the time
# with three of them, so a fourth would only take memory
TEST_PROCESSES ?= 3
CHECK = -m pytest -q -n 2 --dist loadfile -m "not system and not slow and not wheels" $(CHECK_WITHOUT) $(CHECK_TESTS)
PYTEST = -m pytest -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder
# to import all files takes each process 22 s: only these have tests for `make test-system`, and
# those whose `pytestmark` is of the system have none for `make test`
SYSTEM_TESTS = $(shell grep -rlE 'mark\.system' tests --include='test_*.py')
QUICK_TESTS = $(shell grep -rLE '^(pytestmark = .*|    )pytest\.mark\.system,?' tests --include='test_*.py')
# the tests of what changes with Gymnasium: contract, wrappers, oracles, hosted environments
NEWEST_TESTS := $(addprefix tests/contract/test_,autoreset.py contract.py failures.py limits.py wrappers.py) \
  $(addprefix tests/oracle/test_,box2d.py classic_control.py mujoco.py mujoco_v4.py stock_gymnasium.py toy_text.py) \
  $(addprefix tests/env_fns/test_env_fns_,failures.py processes.py steps.py) \
  tests/pool/test_gymnasium_ids.py tests/examples/test_host_examples.py
# what `make check` runs: many tests for each second of pools, steps, collectors and policies. Files that
# draw, host processes, import RLlib or go through every id are left to `make test`, and so are single
# tests that train for long, start Ray or an interpreter for each instruction set
CHECK_TESTS := $(addprefix tests/,structure support pool wrappers collecting policies learner) \
  $(addprefix tests/oracle/test_,classic_control.py toy_text.py) \
  $(addprefix tests/env_fns/test_,env_fns_steps.py info_merging.py leaves.py wire.py) \
  $(addprefix tests/replay/test_,replay_buffer.py replay_items.py replay_tables.py)
CHECK_WITHOUT := $(addprefix --ignore=tests/,policies/test_foreign.py policies/test_native_properties.py \
  policies/test_policy_elementary.py learner/test_native_learner_threads.py \
  $(addprefix pool/test_,env_errors.py gymnasium_ids.py memory.py protocol_properties.py rendering.py)) \
  $(addprefix --deselect=tests/,learner/test_native_learner.py::test_every_instruction_set_makes_the_same_steps \
  learner/test_native_learner.py::test_a_thousand_steps_end_where_those_of_torch_end \
  policies/test_native_policy.py::test_every_instruction_set_gives_the_same_bits \
  policies/test_trace_refusals.py::test_compiled_modules_are_refused \
  support/test_time_limit.py::test_a_call_of_ray_that_never_returns_ends_the_test)
PY := $(VENV)/bin/python
# runs a step of a target and keeps how long it took: `python tests/durations.py` prints the table
TIMED := $(PY) tests/durations.py step
EXTRA_REQUIREMENTS := tests/packaging/extra_requirements.py
# pip compiles no bytecode: of all files that takes longer than the downloads, and Python does it for
# those that are imported, when they first are.
INSTALL := $(PY) -m pip --disable-pip-version-check install -q --no-compile -c constraints.txt
PEER_INSTALL = $(@D)/bin/python -m pip --disable-pip-version-check install -q --no-compile -c tests/peers/pins.txt
unexport PYTHONDONTWRITEBYTECODE
# the native core is compiled while the dependencies are downloaded
MAKEFLAGS += -j2
NATIVE := $(shell find native -type f)

# what `make bench` measures of MuJoCo: Gymnasium's tasks, and of the DeepMind suite a task of each
# domain whose bodies are planes, spheres and capsules
MUJOCO_TASKS := $(addsuffix -v5,Ant HalfCheetah Hopper Humanoid HumanoidStandup InvertedDoublePendulum \
  InvertedPendulum Pusher Reacher Swimmer Walker2d)
SUITE_TASKS := $(addsuffix -v1,AcrobotSwingup CartpoleSwingup CheetahRun HopperHop HumanoidCMURun HumanoidRun \
  LqrLqr62 PendulumSwingup PointMassEasy ReacherEasy SwimmerSwimmer6 WalkerRun)
MUJOCO_PEERS := --peer envpool --peer mujoco-batch

.PHONY: demo check check-code check-style check-tests test test-types test-tests test-system test-all test-newest-gymnasium lint docs bench bench-mujoco report peers soak wheel wheels test-wheels card-pack clean setup

# Trains CartPole-v1 through two Ray workers and leaves $(RUN_DIR)/*.png.
demo: $(VENV)/.dependencies $(VENV)/.native
	$(PY) examples/ppo.py --run-dir $(RUN_DIR)

# A check while writing: types, style, structure and a core of tests, both at once. It starts no Ray
# and compiles nothing but the module.
check: check-code check-tests

check-code: check-style
	$(TIMED) check mypy $(PY) -m mypy

check-tests: setup
	$(TIMED) check tests $(PY) $(CHECK)

check-style: setup
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

# The native core, the Python layers, the adapters and workers in a Ray of this machine. mypy, which
# has one thread, goes on beside the tests.
test: test-types test-tests

test-types: check-style
	$(TIMED) test mypy $(PY) -m mypy

test-tests: check-style
	$(TIMED) test tests $(PY) $(PYTEST) -m "not system and not slow and not wheels" $(QUICK_TESTS)

# Tests of files that take more than seconds: the core built again for sanitizers and as a wheel,
# requirements resolved against the public index, some 300 processes of Ray whose workers, shards and
# nodes die, scripts that end in each way a process can, environments of the user's own compiled, families
# beside their references for whole episodes, examples from end to end, and with the newest Gymnasium
# what changes with it.
test-system: setup $(NEWEST)/.gymnasium
	$(TIMED) test-system tests $(PY) $(PYTEST) -m "system and not slow and not wheels" $(SYSTEM_TESTS)
	$(TIMED) test-system newest-gymnasium $(NEWEST)/bin/python $(PYTEST) -n 2 $(NEWEST_TESTS)

# All of these, those that learn for minutes, and the long forms of others: every id's contract with
# the newest Gymnasium is one.
test-all: test
	$(MAKE) test-system
	$(MAKE) test-newest-gymnasium
	$(PY) -m pytest -m slow

test-newest-gymnasium: setup $(NEWEST)/.gymnasium
	$(NEWEST)/bin/python $(PYTEST) -m "not wheels" $(NEWEST_TESTS)

# RLlib pins an older Gymnasium: here is the newest one over everything else of .venv.
$(NEWEST)/.gymnasium: pyproject.toml constraints.txt | setup
	$(PY) tests/overlay.py $(NEWEST) 'gymnasium>=1.4,<2'
	@touch $@

# The README's benchmark table: ours and EnvPool in one run.
bench: $(VENV)/.native $(VENV)/.bench
	$(VENV)/bin/rollouts bench --env-id CartPole-v1 --env-id Pendulum-v1 --num-envs 1024 --peer envpool --peer gymnasium --markdown
	$(VENV)/bin/rollouts bench --env-id ALE/Pong-v5 --env-id ALE/Breakout-v5 --num-envs 16 --peer envpool --peer ale --markdown
	$(VENV)/bin/rollouts bench --env-id ALE/Pong-v5 --num-envs 16 --batch-size 8 --peer envpool --peer ale --markdown
	$(VENV)/bin/rollouts bench --env-id $(MUJOCO_TASKS) --num-envs 16 --batch-size N N/2 $(MUJOCO_PEERS) --markdown
	$(VENV)/bin/rollouts bench --env-id $(SUITE_TASKS) --num-envs 16 --batch-size N N/2 $(MUJOCO_PEERS) --markdown

# MuJoCo's tasks in the sizes that people train with: medians of 7 beside EnvPool and mujoco.batch, and
# their geometric means. make bench-mujoco OPTIONS="--option engine=mujoco" or OPTIONS=--json
bench-mujoco: $(VENV)/.native $(VENV)/.bench
	$(VENV)/bin/rollouts bench --env-id $(MUJOCO_TASKS) $(SUITE_TASKS) --num-envs 16 64 --num-threads 2 \
	  --batch-size N N/2 --repeats 7 --duration-s 0.5 $(MUJOCO_PEERS) $(OPTIONS)

# Every comparison beside every peer that installs, as a page in runs/report: make report QUICK=--quick
report: setup $(VENV)/.bench
	$(VENV)/bin/rollouts report $(QUICK)

# Peers whose pins clash with ours: rollouts bench --peer pufferlib, bench collect --peer sample-factory
peers: $(PEERS)/pufferlib/.installed $(PEERS)/sample-factory/.installed

# PufferLib's setup.py builds games, for which it fetches libraries. Told not to, it reads a name that
# it has not defined; the line that Python runs as it starts defines it, for the build alone. What it
# would build is of its games and its learner: the vectoriser is Python.
$(PEERS)/pufferlib/.installed: tests/peers/pins.txt
	$(PYTHON) -m venv --clear $(@D)
	$(PEER_INSTALL) setuptools wheel torch numpy gymnasium gym pettingzoo psutil
	echo 'import builtins; builtins.c_extension_paths = []' > $(@D)/lib/$$(ls $(@D)/lib)/site-packages/its_setup.pth
	NO_OCEAN=1 NO_TRAIN=1 $(PEER_INSTALL) --no-deps --no-build-isolation pufferlib
	rm $(@D)/lib/*/site-packages/its_setup.pth
	@touch $@

$(PEERS)/sample-factory/.installed: tests/peers/pins.txt
	$(PYTHON) -m venv --clear $(@D)
	$(PEER_INSTALL) sample-factory torch
	@touch $@

# An hour of everything at once; `rollouts report --soak runs/soak.json` draws it.
soak: setup
	$(VENV)/bin/rollouts soak --out runs/soak.json

lint: setup
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .
	$(PY) -m mypy

# The documentation, in build/site; nothing is fetched meanwhile, and a warning is an error.
docs: setup
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict

wheel: setup
	$(PY) -m build --wheel

# Portable wheels in dist/, for CPython 3.11 to 3.14 as found: make wheels PYTHONS=/a/python3.12 ARCHS=x86_64
wheels: $(WHEELS)/.tools
	$(WHEELS)/bin/python native/portable/build_wheels.py --python $(PYTHONS) --arch $(ARCHS)

# These, without a compiler and under emulation: Debian's arm64 interpreter goes to build/aarch64.
test-wheels: setup wheels
	$(PY) -m pytest -m wheels tests/packaging

# What a machine with a card and without a package index needs to run tests/device/card/card_check.py,
# in .card: make card-pack CARD_WITH=ray CARD_PYTHON=/a/python3.12
card-pack:
	bash tests/device/card/pack.sh

$(WHEELS)/.tools: native/portable/build_wheels.py pyproject.toml
	$(PYTHON) -m venv $(WHEELS)
	$(PYTHON) native/portable/build_wheels.py --print-requires > $(WHEELS)/requires.txt
	$(WHEELS)/bin/python -m pip --disable-pip-version-check install -q -r $(WHEELS)/requires.txt
	@touch $@

setup: $(VENV)/.native $(VENV)/.tools

# pip of Python's ensurepip does for everything below
$(VENV)/.venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "rollouts needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1). Name another: make PYTHON=python3.12"; exit 1; }
	@command -v c++ >/dev/null || command -v g++ >/dev/null || command -v clang++ >/dev/null || \
	  { echo "rollouts compiles its native core and found no C++20 compiler. Install one, such as g++ 12 (Debian, Ubuntu: apt-get install g++)."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

# What the build needs, beside everything else: with no environment of its own, a later build, and
# that of the wheel, finds the objects of the first.
$(VENV)/.build: $(VENV)/.venv pyproject.toml
	$(PY) $(EXTRA_REQUIREMENTS) build-system > $(VENV)/requirements-build.txt
	$(INSTALL) -r $(VENV)/requirements-build.txt
	@touch $@

# What the library and its examples need: the lines of the extra, without the package, which pip
# would build. torch goes first and alone: its pinned version decides which build the others see.
$(VENV)/.dependencies: $(VENV)/.build pyproject.toml constraints.txt
	$(INSTALL) torch
	$(PY) $(EXTRA_REQUIREMENTS) dependencies examples > $(VENV)/requirements.txt
	$(INSTALL) -r $(VENV)/requirements.txt
	@touch $@

# compiles while those are downloaded
$(VENV)/.native: $(VENV)/.build $(NATIVE)
	$(INSTALL) --no-build-isolation --no-deps --config-settings=cmake.define.ROLLOUTS_BOX2D=ON -e .
	@touch $@

# What the tests need beside that.
$(VENV)/.tools: $(VENV)/.dependencies
	$(PY) $(EXTRA_REQUIREMENTS) dev > $(VENV)/requirements-dev.txt
	$(INSTALL) -r $(VENV)/requirements-dev.txt
	@touch $@

$(VENV)/.bench: $(VENV)/.dependencies
	$(PY) $(EXTRA_REQUIREMENTS) bench > $(VENV)/requirements-bench.txt
	$(INSTALL) -r $(VENV)/requirements-bench.txt
	# its Python step alone; what it depends on is for its CUDA kernels
	$(INSTALL) --no-deps rl-warp-drive
	@touch $@

clean:
	rm -rf .card $(VENV) $(NEWEST) $(WHEELS) $(PEERS) .venv-mujoco build dist .pytest_cache .mypy_cache .ruff_cache
