# SPDX-License-Identifier: Apache-2.0
"""The command: its arguments, the comparisons that they ask for, and the printed results."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

from comparisons.verify_mujoco import differing_step, golden_states, models, runs
from comparisons.verify_mujoco.array_errors import BOUND
from comparisons.verify_mujoco.comparison import LEFT, StepComparison, compare
from comparisons.verify_mujoco.driver import KINDS, Driver, ModelStates
from comparisons.verify_mujoco.models import Subject, starts_of, subject_of
from comparisons.verify_mujoco.policy_states import Trained
from rollouts import _native
from rollouts.cli.checkpoint_program import add_trust
from rollouts.errors import SpecError
from rollouts.families.mujoco_engine import do_without_timer, load_engine

_NUM_ENVS = 512
_POLICY = "policy"


def add_arguments(parser: argparse.ArgumentParser, *, positive_int: Callable[[str], int]) -> None:
    """Adds the arguments of the command; `positive_int` parses numbers."""
    add = parser.add_argument
    add("--env-id", nargs="+", metavar="ID",
        help="such as HalfCheetah-v5 or CheetahRun-v1; default: Gymnasium's tasks, and one of each "
        "of the suite's domains that lanes are to step")  # fmt: skip
    add("--steps", type=positive_int, default=100_000, metavar="N",
        help="substeps of each; default: 100000")  # fmt: skip
    add("--kinds", type=_kinds, default=list(KINDS), metavar="K,K",
        help=f"of states: {', '.join(KINDS)}, or policy, with --checkpoint; default: the first "
        f"{len(KINDS)}")  # fmt: skip
    add("--width", type=int, default=0, metavar="W", help="lanes; default: what suits the machine")
    add("--seed", type=int, default=0, help="of all that is drawn; default: 0")
    add("--against-itself", action="store_true",
        help="count what MuJoCo differs in from itself, too, when the states' last digits are "
        "moved")  # fmt: skip
    add("--episodes", type=positive_int, metavar="E",
        help="compare returns and lengths of E episodes of random actions, too; "
        "default: none")  # fmt: skip
    add("--checkpoint", type=Path, nargs="+", metavar="RUN",
        help="runs whose policies make states of the kind policy, and E further episodes, in what "
        "they were trained in")  # fmt: skip
    add_trust(parser)
    add("--save", type=Path, metavar="FILE.npz", help="write the first step that differs")
    add("--record", type=Path, metavar="FILE.npz",
        help="write some states and what MuJoCo's step makes of them")  # fmt: skip
    add("--golden", type=Path, metavar="FILE.npz",
        help="compare both with such a file, and nothing else; its ids are used")  # fmt: skip


def verify(args: argparse.Namespace) -> bool:
    """Compares environments, and prints the results.

    Returns:
      Whether all are equal.

    Raises:
      SpecError: An unknown id, kind or width, or policy without a checkpoint.
      EngineError: MuJoCo is not installed, or cannot step a model.
    """
    load_engine()
    do_without_timer()
    if args.golden is not None:
        return _verify_golden(args.golden, args.env_id)
    if args.record is not None:
        ids = args.env_id or models.verified_ids()
        golden_states.record(args.record, ids, args.seed)
        _print(f"states of {len(ids)} models by MuJoCo {golden_states.release()}: {args.record}")
        return True
    if _POLICY in args.kinds and args.checkpoint is None:
        raise SpecError("--kinds policy needs a policy: add --checkpoint RUN")
    if args.width and args.width not in _native.lanes_widths():
        known = ", ".join(str(width) for width in _native.lanes_widths())
        raise SpecError(f"--width is {args.width}, this machine has lanes of {known}")
    chosen: list[tuple[str, Trained | None]]
    if args.checkpoint is not None:
        chosen = [(trained.id, trained) for trained in _policies(args)]
    else:
        chosen = [(env_id, None) for env_id in args.env_id or models.verified_ids()]
    # a list, because `all` would stop a generator at the first comparison that fails
    return all([_verify_one(subject_of(env_id), args, trained) for env_id, trained in chosen])


def _policies(args: argparse.Namespace) -> list[Trained]:
    """The policies of the checkpoints."""
    policies = [Trained(run, args) for run in args.checkpoint]
    for run, trained in zip(args.checkpoint, policies, strict=True):
        if args.env_id not in (None, [trained.id]):
            raise SpecError(
                f"--checkpoint {run} was trained in {trained.id}, --env-id is "
                f"{' '.join(args.env_id)}: leave --env-id out"
            )
    return policies


def _verify_golden(path: Path, chosen: list[str] | None) -> bool:
    kept = golden_states.read(path)
    equal = True
    for env_id in chosen or kept.states:
        if env_id not in kept.states:
            raise SpecError(f"--golden {path} has no states of {env_id!r}")
        found = golden_states.compare_with_golden(subject_of(env_id), kept)
        _print(f"{env_id:28} " + (f"differs in {found}" if found else "equal"))
        equal &= found is None
    return equal


def _verify_one(subject: Subject, args: argparse.Namespace, trained: Trained | None) -> bool:
    if subject.comparer.why_not:
        _print(f"{subject.id:28} MuJoCo steps it alone: {subject.comparer.why_not}")
        return True
    starts = starts_of(subject, args.seed)
    started = time.perf_counter()
    found = _compare(subject, starts, args, trained)
    _report(subject, found, time.perf_counter() - started)
    equal = found.is_equal
    for why, difference in (("", found.first), (", by rounding", found.first_of_rounding)):
        if difference is None:
            continue
        for line in differing_step.describe(difference, subject.model, why):
            _print(f"  {line}")
        if args.save is not None and not args.save.exists():
            differing_step.save(args.save, subject.id, difference)
    apart = runs.divergence(subject, starts, width=args.width, seed=args.seed)
    curve = ", ".join(f"{distance:.0e} after {steps}" for steps, distance in apart.items())
    _print(f"  free runs, median distance: {curve} env-steps")
    if args.episodes is not None:
        equal &= _compare_episodes(subject, args, trained)
    return equal


def _compare(
    subject: Subject, starts: ModelStates, args: argparse.Namespace, trained: Trained | None
) -> StepComparison:
    # a seed other than that of the starts
    driver = Driver(
        subject.model, starts, args.kinds, min(_NUM_ENVS, args.steps), subject.frame_skip,
        args.seed + 1,
    )  # fmt: skip
    player = trained.player(driver) if trained is not None and _POLICY in args.kinds else None
    try:
        return compare(
            subject.comparer, subject.model, driver, args.steps, width=args.width, before=player,
            against_itself=args.against_itself, progress=_progress(subject.id, args.steps),
        )  # fmt: skip
    finally:
        if player is not None:
            player.close()


def _compare_episodes(subject: Subject, args: argparse.Namespace, trained: Trained | None) -> bool:
    equal = True
    for actor in ("random", _POLICY):
        if actor == _POLICY and trained is None:
            continue
        means = []
        for engine in ("lanes", "mujoco"):
            if actor == _POLICY and trained is not None:
                means.append(trained.episodes(engine, args.episodes))
            else:
                means.append(runs.random_episodes(subject.id, engine, args.episodes, args.seed))
        for what in ("returns", "lengths"):
            ours, theirs = (getattr(one, what) for one in means)
            apart = runs.errors_apart(ours, theirs)
            equal &= apart <= runs.MOST_ERRORS
            _print(
                f"  {actor} {what} of {len(ours)} episodes: {ours.mean():.2f} +- {ours.std():.2f}, "
                f"MuJoCo {theirs.mean():.2f} +- {theirs.std():.2f}; {apart:.1f} standard errors "
                "apart"
            )
    return equal


def _report(subject: Subject, found: StepComparison, seconds: float) -> None:
    back = found.handed_back / found.steps
    _print(
        f"{subject.id:28} {'equal' if found.is_equal else 'differs'}: {found.steps} substeps, "
        f"{found.handed_back} ({back:.2%}) left to MuJoCo, {found.beyond} beyond {BOUND:.0e}; "
        f"{found.constrained} evaluations with constraints, {found.other_iterations} with other "
        f"iterations, {found.other_rows} with other rows; {found.unexplained} not explained by "
        f"rounding; {seconds:.0f} s"
    )
    if (itself := found.itself) is not None:
        _print(
            f"  MuJoCo beside itself: {itself.beyond} beyond {BOUND:.0e}, "
            f"{itself.other_iterations} with other iterations, {itself.other_rows} with other rows"
        )
    if found.unseen_warnings or found.overwritten or found.outputs_beyond:
        _print(
            f"  {found.unseen_warnings} steps of which MuJoCo warns were not left to it, "
            f"{found.overwritten} arrays were overwritten, {found.outputs_beyond} rows of outputs "
            "differ"
        )
    _print("  error              99.9 %      max")
    left = {}
    for name, errors in found.errors.items():
        if name.startswith(LEFT):
            left[name] = errors.max
        elif errors.max:
            _print(f"  {name:16} {errors.quantile(0.999):7.1e}  {errors.max:7.1e}")
    if left:
        largest = max(left, key=lambda name: left[name])
        _print(
            f"  of {len(left)} arrays that steps leave, {largest} differs most: {left[largest]:.1e}"
        )


def _progress(id: str, steps: int) -> Callable[[int], None] | None:
    if not sys.stderr.isatty():
        return None

    def show(done: int) -> None:
        end = "\r" if done < steps else "\r\x1b[K"
        print(f"{id:28} {done} of {steps}", end=end, file=sys.stderr, flush=True)

    return show


def _kinds(text: str) -> list[str]:
    kinds = text.split(",")
    for kind in kinds:
        if kind not in (*KINDS, _POLICY):
            known = ", ".join((*KINDS, _POLICY))
            raise argparse.ArgumentTypeError(f"expected some of {known}, got {kind!r}")
    return kinds


def _print(line: str) -> None:
    # flushed, so that a reader of a pipe gets each line at once
    print(line, flush=True)
