"""The common frame of searchers that predict all configurations and then try the best of them."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tradewind.errors import SpecError
from tradewind.problem import COST, RUNTIME, Candidates, Configuration, Problem, Proposal, Trial, TrialState
from tradewind.searcher.base import MapPoint, NothingLeft, Searcher, SearchState
from tradewind.searcher.outcomes import best_loss, has_time_bounds, runtime_window
from tradewind.searcher.surrogate.gp import Array
from tradewind.utils.units import format_bill, format_duration, format_money

_CODED = 1 << 62


def require_time_objective(problem: Problem, name: str) -> None:
    """Refuse an objective that does not follow from the run time.

    Raises:
        SpecError: The objective is neither the least cost nor the least run time.
    """
    if not problem.objective.grows_with_time:
        wanted = f"{problem.objective.goal} {problem.objective.metric}"
        raise SpecError(
            f"the {name} searcher predicts run times: it looks for the least cost or runtime, not for {wanted}",
            hint="take the searcher gp for other objectives",
        )


def application_settings(problem: Problem, configuration: Configuration) -> Configuration:
    """The part of a configuration that chooses no machines."""
    machine = problem.resolver.machine_parameters
    return Configuration({name: value for name, value in configuration.items() if name not in machine})


def require_few_settings_combinations(problem: Problem, most: int, name: str, each: str) -> None:
    """Refuse a space whose application settings have more combinations than a searcher has models for.

    Args:
        problem: The tuning problem: its space is counted.
        most: Combinations that are allowed.
        name: Name of the searcher.
        each: Runs or models that each combination takes, in words.

    Raises:
        SpecError: There are more combinations, or the space cannot be listed.
    """
    space, machine = problem.space, problem.resolver.machine_parameters
    own = [i for i, parameter in enumerate(space.parameters) if parameter.name not in machine]
    if not space.enumerable:
        raise SpecError(
            f"the {name} searcher predicts the whole table, and the space has {space.size_text}",
            hint="give fewer values as lists, or take the searcher gp",
        )
    if not own:
        return
    radix = math.prod(len(listed) + 1 for i in own if (listed := space.levels[i]) is not None)
    numbers: np.ndarray[tuple[int], np.dtype[np.int64]] = np.zeros(len(space.codes), dtype=np.int64)
    if radix < _CODED:
        for i in own:
            listed = space.levels[i]
            assert listed is not None
            numbers = numbers * (len(listed) + 1) + space.codes[:, i] + 1
        count = len(np.unique(numbers))
    else:
        count = len(np.unique(space.codes[:, own], axis=0))
    if count > most:
        names = ", ".join(space.names[i] for i in own)
        raise SpecError(
            f"the {name} searcher needs {each} for each of the {count:,} combinations of {names}, {most} are allowed",
            hint="fix these settings, raise most_settings, or take the searcher gp",
        )


@dataclass(frozen=True)
class TableForecast:
    """Predicted times and costs of some candidates.

    Attributes:
        problem: The tuning problem: objective, constraints and prices.
        rows: Numbers of the candidates, shape (n,).
        time: Seconds expected of a whole run, shape (n,).
        late: Seconds that one in ten runs is expected to exceed, shape (n,); None where the model does not say.
        cautious: True to ask of ``late`` and not of ``time`` that it meets deadline and bounds.
    """

    problem: Problem
    rows: NDArray[np.intp]
    time: Array
    late: Array | None = None
    cautious: bool = False

    @cached_property
    def hourly(self) -> Array:
        """USD per hour of each candidate, shape (n,)."""
        hourly: Array = self.problem.candidates.hourly[self.rows]
        return hourly

    def bill(self, seconds: Array) -> Array:
        """USD of runs of so many seconds, shape (n,)."""
        return np.array(self.problem.terms.billing.costs(seconds, self.hourly))

    @cached_property
    def cost(self) -> Array:
        """USD expected of a whole run, shape (n,)."""
        return self.bill(self.time)

    @cached_property
    def judged(self) -> Array:
        """The seconds that deadline and bounds are compared with, shape (n,)."""
        return self.late if self.cautious and self.late is not None else self.time

    @cached_property
    def in_time(self) -> NDArray[np.bool_]:
        """Mask of the candidates that are expected to meet the deadline and all bounds on cost and run time."""
        low, high = self._window
        mask: NDArray[np.bool_] = (self.judged <= high) & (self.judged >= low)
        return mask

    @cached_property
    def _window(self) -> tuple[Array, Array]:
        return runtime_window(self.problem, self.hourly)

    @property
    def _missed(self) -> Array:
        """Distance of each from deadline and bounds: seconds where there is the deadline alone, else a factor."""
        if not has_time_bounds(self.problem):
            return self.judged
        low, high = self._window
        with np.errstate(divide="ignore"):
            return np.maximum(self.judged / high, low / np.maximum(self.judged, 1e-9))

    @cached_property
    def order(self) -> list[int]:
        """Places from the best to the worst: those in time by the objective, then the others by how far off."""
        value = self.time if self.problem.objective.metric == RUNTIME else self.cost
        ranked = [
            # Rounded, so that equal predictions are taken in order whatever the last bit says.
            (not ok, float(f"{v if ok else late:.9g}"), int(row), place)
            for place, (ok, v, late, row) in enumerate(zip(self.in_time, value, self._missed, self.rows, strict=True))
        ]
        return [place for *_, place in sorted(ranked)]

    def words(self, place: int) -> str:
        """The prediction of one candidate in words."""
        configuration = self.problem.candidates.configuration(int(self.rows[place]))
        cost, time = format_bill(float(self.cost[place])), format_duration(float(self.time[place]))
        return f"{_words(configuration)} (predicted {cost}, {time})"

    def expected(self, place: int) -> dict[str, float | str]:
        """The predictions of one candidate, by the names of `Proposal.why`."""
        known: dict[str, float | str] = {
            "expected_cost": float(self.cost[place]),
            "expected_time": float(self.time[place]),
        }
        if self.late is not None:
            known["time_p90"] = float(self.late[place])
        return known

    def points(self, measured: Mapping[int, Trial]) -> list[MapPoint]:
        """The map of all candidates, the best first."""
        late = self.late
        dear = None if late is None else self.bill(late)
        return [
            MapPoint(
                configuration=self.problem.candidates.configuration(int(self.rows[place])),
                cost=float(self.cost[place]),
                cost_p90=None if dear is None else float(dear[place]),
                time=float(self.time[place]),
                time_p90=None if late is None else float(late[place]),
                in_time=bool(self.in_time[place]),
                trial=measured[int(self.rows[place])].number if int(self.rows[place]) in measured else None,
            )
            for place in self.order
        ]


def _words(configuration: Configuration) -> str:
    return ", ".join(f"{name}={value}" for name, value in configuration.items())


def full_input_runs(candidates: Candidates, trials: Sequence[Trial]) -> dict[int, Trial]:
    """The trials on the whole input, by candidate; of several the latest."""
    found = {}
    for trial in trials:
        if trial.proposal.fidelity == 1.0 and (index := candidates.index(trial.configuration)) is not None:
            found[index] = trial
    return found


def successful_seconds(trial: Trial) -> float | None:
    """Seconds of a run that succeeded, or None where it did not or its time is no positive number."""
    return _time(trial, TrialState.SUCCEEDED)


def aborted_seconds(trial: Trial) -> float | None:
    """Seconds after which a run was cut short; None where it was not, or they are no positive number."""
    return _time(trial, TrialState.ABORTED)


def _time(trial: Trial, state: TrialState) -> float | None:
    seen = trial.observation
    if trial.state != state or seen is None or not math.isfinite(seen.runtime):
        return None
    return seen.runtime if seen.runtime > 0 else None


@dataclass(frozen=True, slots=True)
class ForecastVerifier:
    """Proposes the best of a forecast on the whole input, then a few more, then stops.

    Attributes:
        searcher: The searcher that asks; its history has the measured runs.
        forecast: Predictions of the candidates.
        verify: Number of further runs after the first.
        apart: Candidates whose runs made the forecast: they are not run again and not counted.
    """

    searcher: Searcher
    forecast: TableForecast
    verify: int
    apart: Collection[int] = ()

    def ask(self, state: SearchState, count: int) -> list[Proposal] | NothingLeft:
        """Propose the next ones; beyond ``verify`` where none was feasible yet and another is expected to be."""
        candidates = self.forecast.problem.candidates
        measured = full_input_runs(candidates, self.searcher.history)
        running = full_input_runs(candidates, state.pending)
        tried = {*measured, *running} - set(self.apart)
        feasible = any(t.observation is not None and t.observation.feasible for t in measured.values())
        left = self._left(state, {*measured, *running, *self.apart})
        room = 1 + self.verify - len(tried)
        if room < 1 and not feasible and not running and left and self.forecast.in_time[left[0]]:
            room = 1
        best = int(self.forecast.rows[self.forecast.order[0]]) if self.forecast.order else None
        checks = len(tried - {best})
        money, seconds = self._caps(measured)
        chosen: list[Proposal] = []
        money_left = math.inf if state.money_left is None else state.money_left
        for place in left:
            cost = float(self.forecast.cost[place])
            if len(chosen) >= min(room, count) or cost > money_left:
                break
            money_left -= cost
            stage = "the predicted best"
            if int(self.forecast.rows[place]) != best:
                checks += 1
                stage = f"check {checks} of the prediction"
            configuration = candidates.configuration(int(self.forecast.rows[place]))
            spend = cost if money is None else min(cost, money)
            if seconds is not None:
                billing = self.forecast.problem.terms.billing
                spend = min(spend, billing.cost(seconds, float(self.forecast.hourly[place])))
            why = {"stage": stage, **self.forecast.expected(place), "expected_spend": spend}
            chosen.append(Proposal(configuration, abort_cost=money, abort_time=seconds, why=why))
        return chosen or NothingLeft(self.summary(measured, left, room, state), final=not state.pending)

    def _caps(self, measured: Mapping[int, Trial]) -> tuple[float | None, float | None]:
        """The cost or time at which a run can no longer win, for a searcher that says so itself."""
        best = best_loss(self.forecast.problem, measured.values())
        if best is None or best <= 0 or not self.searcher.aborts:
            return None, None
        return (best, None) if self.forecast.problem.objective.metric == COST else (None, best)

    def _left(self, state: SearchState, taken: Collection[int]) -> list[int]:
        """Places of the untried candidates that the money left is expected to pay, the best first."""
        forecast = self.forecast
        payable = self.searcher.affordable(state, forecast.hourly)
        if state.money_left is not None:
            payable &= forecast.cost <= state.money_left
            open_ones = np.array([int(row) not in taken for row in forecast.rows], dtype=bool)
            if (forecast.in_time & open_ones & ~payable).any():
                payable &= forecast.in_time  # those that are late are checked for want of others, not of money
        return [place for place in forecast.order if payable[place] and int(forecast.rows[place]) not in taken]

    def summary(self, measured: Mapping[int, Trial], left: Sequence[int], room: int, state: SearchState) -> str:
        """Explain in one line that nothing more is proposed, and what is predicted."""
        forecast = self.forecast
        if not forecast.order:
            return "nothing could be predicted"
        best = forecast.order[0]
        words = f"the predicted best is {forecast.words(best)}"
        if not forecast.in_time[best]:
            what = "deadline and bounds" if has_time_bounds(forecast.problem) else "the deadline"
            words = f"no configuration is predicted to meet {what}; the nearest is {forecast.words(best)}"
        trial = measured.get(int(forecast.rows[best]))
        if trial is not None and trial.observation is not None:
            seen = trial.observation
            words += f", {trial.state.value} at {format_bill(seen.cost)} and {format_duration(seen.runtime)}"
            if trial.state == TrialState.SUCCEEDED and not seen.feasible:
                words += f", but {seen.reason or 'not feasible'}"
        if room > 0 and not left and len(measured) < len(forecast.rows):
            return f"{words}; the {format_money(state.money_left)} left pay no further predicted run"
        ran = f"{len(measured):,} of {len(forecast.rows):,} predicted configurations were run on the whole input"
        none = measured and not any(t.observation is not None and t.observation.feasible for t in measured.values())
        return f"{words}; {ran}{', and none was feasible' if none else ''}"
