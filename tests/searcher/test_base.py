"""What a searcher keeps of the trials that it is told."""

from __future__ import annotations

import math
from dataclasses import replace

from tradewind.plugins import Settings
from tradewind.problem import Proposal
from tradewind.searcher.base import GREATEST_FIGURE, NothingLeft, Searcher, SearchState
from tradewind.testing.problems import evaluate, flat_problem


class _Silent(Searcher):
    Settings = Settings

    def ask(self, state: SearchState, count: int = 1) -> list[Proposal] | NothingLeft:
        return NothingLeft("it asks for nothing")


def test_figures_that_no_model_could_square_are_bounded() -> None:
    problem = flat_problem()
    searcher = _Silent(settings=Settings(), problem=problem)
    trial = evaluate(problem, Proposal(problem.candidates.configuration(0)))
    assert trial.observation is not None
    metrics = {"score": -1e300, "other": math.inf, "usual": 1e99}
    searcher.tell(replace(trial, observation=replace(trial.observation, objective=1e300, metrics=metrics)))
    seen = searcher.history[0].observation
    assert seen is not None
    assert seen.objective == GREATEST_FIGURE
    assert seen.metrics == {"score": -GREATEST_FIGURE, "other": math.inf, "usual": 1e99}
    searcher.tell(replace(trial, number=1))
    assert searcher.history[1] == replace(trial, number=1)
