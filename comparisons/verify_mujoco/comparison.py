# SPDX-License-Identifier: Apache-2.0
"""Errors of evaluations and steps, with both engines given the same state before each substep."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from comparisons.verify_mujoco.array_errors import BOUND, Difference, Errors, relative
from comparisons.verify_mujoco.driver import Array, Driver
from comparisons.verify_mujoco.rounding import beside_itself, is_of_rounding, moved_states
from rollouts import _native

STAGES = (
    "qM", "qfrc_bias", "qfrc_passive", "qfrc_actuator", "qacc_smooth", "qfrc_constraint", "qacc",
)  # fmt: skip
NEXT = ("qpos", "qvel", "act")
# bound of a step's other outputs; accelerations at rest are differences of large numbers
OUTPUT_BOUND = 1e-8
_OUTPUT_FLOOR = 1e-3  # share of an output's scale
MOST_ITERATION_DIFFERENCES = 1e-6  # share of constrained evaluations
# share of steps whose next state may be beyond its bound by rounding; HumanoidStandup: 38 in 1e6
MOST_BEYOND = 4e-5
LEFT = ("left ", "up-to-date ")  # prefixes of names: errors of outputs after a step
_MOST_TRIED = 1000  # number of differing rows for which rounding is tried as the cause
_OUTPUTS_EVERY = 16  # all outputs of a step are compared in one of this many batches


@dataclass(slots=True)
class StepComparison:
    """The result of a comparison.

    Attributes:
      steps: Substeps compared, including those handed back.
      constrained: Evaluations with constraints, in which iterations were counted.
      other_iterations: Evaluations in which the numbers of iterations differ.
      other_rows: Evaluations in which the numbers of constraint rows differ.
      handed_back: Substeps that lanes left to MuJoCo.
      outputs_beyond: Rows of outputs that differ by more than their bound.
      overwritten: Rows of outputs in which lanes wrote where they had handed back the substep, or
        wrote numbers of sensors that they do not cover.
      unseen_warnings: Substeps in which MuJoCo warned and lanes stepped.
      beyond: Substeps whose next state differs by more than the bound.
      of_rounding: Substeps of the kinds above in which MuJoCo differs from itself as much when the
        state's last digits change.
      unexplained: The other substeps of these kinds.
      errors: Errors by name: of stages, of next states ("next qpos" and so on), and of outputs.
      first, first_of_rounding: The first unexplained substep, and the first due to rounding.
      itself: Counts and errors of MuJoCo in place of lanes, from states whose last digits are
        changed. None where that was not asked for.
    """

    steps: int = 0
    constrained: int = 0
    other_iterations: int = 0
    other_rows: int = 0
    handed_back: int = 0
    outputs_beyond: int = 0
    overwritten: int = 0
    unseen_warnings: int = 0
    beyond: int = 0
    of_rounding: int = 0
    unexplained: int = 0
    errors: dict[str, Errors] = field(default_factory=dict)
    by_kind: dict[str, list[int]] = field(default_factory=dict)  # steps, handed back
    first: Difference | None = None
    first_of_rounding: Difference | None = None
    itself: StepComparison | None = None

    @property
    def is_equal(self) -> bool:
        """Tells if all counts and errors are within their bounds."""
        return self.is_explained and self.beyond <= _most(MOST_BEYOND, self.steps)

    @property
    def is_explained(self) -> bool:
        """Tells if everything but the next states, which rounding may change, is within bounds."""
        wrong = self.unexplained + self.unseen_warnings + self.outputs_beyond + self.overwritten
        most = _most(MOST_ITERATION_DIFFERENCES, self.constrained)
        return not wrong and self.other_iterations <= most

    def add(self, name: str, errors: Array) -> None:
        """Adds errors under a name."""
        self.errors.setdefault(name, Errors()).add(errors)


def _most(part: float, of: int) -> float:
    """The largest plausible count: `part` of `of` and three standard deviations, one at least."""
    mean = part * of
    return 1 + mean + 3 * math.sqrt(mean)


def compare(
    comparer: _native.LanesComparer,
    model: Any,
    driver: Driver,
    steps: int,
    *,
    width: int = 0,
    outputs: bool = True,
    against_itself: bool = False,
    before: Callable[[Driver], None] | None = None,
    progress: Callable[[int], None] | None = None,
) -> StepComparison:
    """Compares about `steps` substeps.

    Args:
      comparer: Comparer of the model.
      model: The mujoco package's model.
      driver: Makes the states; the comparison advances it.
      steps: Substeps of all rows together.
      width: Number of lanes; 0 chooses it.
      outputs: Whether to compare all outputs of a step in some batches.
      against_itself: Whether to compare MuJoCo also with itself, from changed states.
      before: Called before each batch.
      progress: Called at times with the number of substeps so far.
    """
    found = StepComparison(itself=StepComparison() if against_itself else None)
    rng = np.random.default_rng(0)
    kinds = np.array(driver.kinds)
    names = comparer.outputs if outputs else []
    for batch in range(-(-steps // len(kinds))):
        if before is not None:
            before(driver)
        arrays = driver.states.arrays()
        evaluation = comparer.forward(*arrays, width=width)
        looks = batch % _OUTPUTS_EVERY == 0
        after = comparer.step(*arrays, width=width, outputs=names if looks else [])
        rows, errors = _count(found, kinds, evaluation, after, driver, model.opt.timestep)
        if len(rows):
            take = partial(_difference, found.steps, errors, evaluation, after, driver)
            _explain(found, comparer, rows, errors, take)
        if found.itself is not None:
            moved = moved_states(driver.states, rng).arrays()
            evaluations = beside_itself(comparer.forward(*moved, width=width), evaluation)
            steps_of_both = beside_itself(comparer.step(*moved, width=width), after)
            _count(found.itself, kinds, evaluations, steps_of_both, driver, model.opt.timestep)
        found.steps += len(kinds)
        if looks and names:
            sensed = np.array(comparer.sensed, bool)
            smooth = np.abs(evaluation["qacc_smooth"][1]).max(1, initial=0)
            _compare_outputs(found, after, names, sensed, smooth)
            both = comparer.step(*arrays, width=width, outputs=names, up_to_date=True)
            left = [name for name in names if name != "cfrc_ext"]
            _compare_outputs(found, both, left, sensed, smooth, LEFT[1])
        driver.advance(after)
        if progress is not None and looks:
            progress(found.steps)
    if progress is not None:
        progress(found.steps)
    return found


def next_errors(evaluation: Mapping[str, Any], after: Mapping[str, Any], timestep: float) -> Any:
    """Errors (N,) of the next state, by name; for velocities relative to at least their change."""
    smooth = evaluation["qacc_smooth"][1]
    added = timestep * np.abs(smooth).max(1, initial=0)
    floors = {"qvel": added}
    return {name: relative(after[name][0], after[name][1], floors.get(name)) for name in NEXT}


def _count(
    found: StepComparison,
    kinds: npt.NDArray[np.str_],
    evaluation: dict[str, Any],
    after: dict[str, Any],
    driver: Driver,
    timestep: float,
) -> tuple[npt.NDArray[np.intp], Array]:
    """Adds a batch; returns the rows that differ, and the largest errors of all rows."""
    back = evaluation["handed_back"] | after["handed_back"]
    ours = ~back & ~after["warned"]
    for kind in driver.kinds[: len(set(driver.kinds))]:
        counts = found.by_kind.setdefault(kind, [0, 0])
        counts[0] += int((kinds == kind).sum())
        counts[1] += int((back & (kinds == kind)).sum())
    # lanes have to leave to MuJoCo the states of which it warns
    found.unseen_warnings += int((after["warned"] & ~after["handed_back"]).sum())
    constrained = ours & (evaluation["nefc"][1][:, 0] > 0)
    smooth = np.abs(evaluation["qacc_smooth"][1]).max(1, initial=0)
    for name in STAGES:
        rows = constrained if name in ("qfrc_constraint", "qacc") else ours
        one, other = (array[rows] for array in evaluation[name])
        # at rest, forces that balance gravity leave rounding errors
        floor = smooth[rows] if name == "qacc" else None
        found.add(name, relative(one, other, floor))
    errors = next_errors(evaluation, after, timestep)
    for name, each in errors.items():
        found.add(f"next {name}", each[ours])
    iterations = ours & (evaluation["solver_niter"][0] != evaluation["solver_niter"][1])[:, 0]
    other_rows = ours & (evaluation["nefc"][0] != evaluation["nefc"][1])[:, 0]
    largest = np.nan_to_num(np.max(list(errors.values()), axis=0), nan=np.inf)
    beyond = ours & (largest > BOUND)
    found.constrained += int(constrained.sum())
    found.other_iterations += int(iterations.sum())
    found.other_rows += int(other_rows.sum())
    found.handed_back += int(back.sum())
    found.beyond += int(beyond.sum())
    return np.flatnonzero(iterations | other_rows | beyond), largest


def _explain(
    found: StepComparison,
    comparer: _native.LanesComparer,
    rows: npt.NDArray[np.intp],
    errors: Array,
    difference_of: Callable[[int, str], Difference],
) -> None:
    """Divides differing rows into those that rounding explains and others."""
    for row in rows:
        what = "the next state differs" if errors[row] > BOUND else "the counts differ"
        difference = difference_of(int(row), what)
        tried = found.of_rounding + found.unexplained
        if tried < _MOST_TRIED and is_of_rounding(comparer, difference):
            found.of_rounding += 1
            found.first_of_rounding = found.first_of_rounding or difference
        else:
            found.unexplained += 1
            found.first = found.first or difference


def _difference(
    steps: int,
    errors: Array,
    evaluation: dict[str, Any],
    after: dict[str, Any],
    driver: Driver,
    row: int,
    what: str,
) -> Difference:
    def of_row(all_rows: Mapping[str, Any]) -> dict[str, Any]:
        pairs = {name: each for name, each in all_rows.items() if isinstance(each, tuple)}
        return {name: (one[row].copy(), other[row].copy()) for name, (one, other) in pairs.items()}

    return Difference(
        driver.kinds[row],
        steps + row,
        what,
        float(errors[row]),
        driver.states.rows([row]),
        of_row(evaluation),
        of_row(after),
    )


def _compare_outputs(
    found: StepComparison,
    after: dict[str, Any],
    names: list[str],
    sensed: npt.NDArray[np.bool_],
    smooth: Array,
    prefix: str = LEFT[0],
) -> None:
    ours = ~after["handed_back"] & ~after["warned"]
    for name in names:
        one, other = (array[ours] for array in after[name])
        if name == "sensordata":
            # numbers that were not written are still NaN
            found.overwritten += int((~np.isnan(one[:, ~sensed])).any(1).sum())
            one, other = one[:, sensed], other[:, sensed]
        floor = smooth[ours] if name == "qacc" else np.full(len(one), _OUTPUT_FLOOR)
        errors = relative(one, other, floor)
        found.add(f"{prefix}{name}", errors)
        found.outputs_beyond += int((~(errors <= OUTPUT_BOUND)).sum())
    # rows that were handed back are unchanged
    back = after["handed_back"]
    found.overwritten += sum(int((~np.isnan(after[name][0][back])).any(1).sum()) for name in names)
