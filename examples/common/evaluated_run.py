# SPDX-License-Identifier: Apache-2.0
"""A run that is interrupted now and then to evaluate the policy without exploration."""

from __future__ import annotations

from typing import Any

from common.evaluation import Evaluation, EvaluationLog, evaluate
from common.plotting import save_training_curves
from common.training import Run


class EvaluatedRun(Run):
    """A run whose learner has `act_greedily` and `updates`; `args.eval_interval` and
    `args.eval_episodes` give the interval and the number of episodes."""

    def __init__(self, args: Any, trained: Any, make_policy: Any, **options: Any) -> None:
        super().__init__(args, trained, make_policy, **options)
        self.evaluations = EvaluationLog(self.dir, until=self.progress.env_steps)

    def evaluate_if_due(self) -> None:
        """Evaluates where a multiple of the interval was passed since the last evaluation."""
        if self.evaluations.is_due(self.progress.env_steps, self.args.eval_interval):
            self.evaluate()

    def evaluate(self) -> None:
        """Measures the policy's returns, and stores them."""
        args, learner = self.args, self.trained
        assert hasattr(learner, "act_greedily") and hasattr(learner, "updates")
        returns = evaluate(
            learner.act_greedily,
            args.env_id,
            env_options=dict(args.option),
            statistics=self.statistics,
            num_episodes=args.eval_episodes,
            seed=args.seed,
        )
        self.evaluations.add(
            Evaluation(
                library="rollouts",
                env_steps=self.progress.env_steps,
                updates=learner.updates,
                seconds=self.progress.seconds,
                mean_return=float(returns.mean()),
                std_return=float(returns.std()),
            )
        )

    def draw(self, title: str) -> None:
        """Writes the PNG of the training."""
        save_training_curves(
            self.dir / "training.png",
            self.progress.history,
            title=title,
            target=self.args.target_return,
            evaluations=[(row.env_steps, row.mean_return) for row in self.evaluations.rows],
        )

    def result(self) -> str:
        """The mean returns that were reached, with and without exploration."""
        last = self.evaluations.rows[-1:]
        return super().result() + "".join(
            f" ({row.mean_return:.1f} without exploration, {row.updates:,} updates)" for row in last
        )
