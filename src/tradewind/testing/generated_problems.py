"""Generated problems at the edges of what a space may be, and a search on one that is checked at every question.

The strategies are those of the package hypothesis. The conformance suite of searchers uses them; so may other tests::

    @given(generated_problems())
    def test_mine(problem: KnownProblem) -> None:
        check_search(MySearcher(settings=MySearcher.Settings(), problem=problem, seed=1), problem, 12)
"""

from __future__ import annotations

import json
import math
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType

import numpy as np
from hypothesis import HealthCheck, example, given, reject, settings
from hypothesis import strategies as st

from tradewind.errors import SpecError, TradewindError
from tradewind.problem import (
    Categorical,
    Configuration,
    Expression,
    Float,
    Integer,
    Objective,
    Offer,
    Ordinal,
    Parameter,
    Problem,
    Proposal,
    Threshold,
    Trial,
    TrialState,
    Value,
)
from tradewind.problem.objective import Direction
from tradewind.problem.parameter import canonical_text
from tradewind.searcher.base import Concludes, NothingLeft, Repeats, Searcher, SearchState
from tradewind.testing.problems import KnownOutcome, KnownProblem, evaluate, machine_parameters, make_problem, pending

SECONDS = 20.0
"""Processor time that one question may take: only a search that hangs takes so much."""

TRIALS = 8
"""Trials of a search on a generated problem."""

_WHOLE = (0, 1, 2, 3, 7, 1000, 2**31, 2**53 - 1, 2**53)
_WIDTHS = (0, 1, 2, 5, 100, 20_000, 1_999_999, 2_000_000, 10**12, 2**53)
_STEPS = (1, 1, 1, 2, 3, 1000, 2**53, 10**30)
_REAL = (0.0, 5e-324, 1e-300, 1e-12, 0.1, 1.0, 3.0, 1e6, 1e12, 1e100, 8.9e307, 1.7e308)
_SHARES = (1.0, 0.5, 0.3, 0.05, 1e-4, 1e-7)
_LISTED: tuple[Value, ...] = (
    *(0, 1, 2.5, -1.7e308, 1.7e308, 5e-324, 1e300, 2**53 + 1, 2**63, 10**30),
    *("a", "B", "1e3", "", True, False),
)


@st.composite
def integer_ranges(draw: st.DrawFn, name: str = "x") -> Integer:
    """Ranges of whole numbers: of one value and of 2^54, with steps longer than they are, on a log scale."""
    sign = draw(st.sampled_from((1, -1)))
    low = sign * draw(st.sampled_from(_WHOLE) | st.integers(0, 2**53))
    high = min(2**53, low + draw(st.sampled_from(_WIDTHS) | st.integers(0, 2**54)))
    log = low > 0 and draw(st.booleans())
    return Integer(name=name, low=low, high=high, step=draw(st.sampled_from(_STEPS)), log=log)


@st.composite
def float_ranges(draw: st.DrawFn, name: str = "x") -> Float:
    """Ranges of real numbers: the narrowest and the widest that there are, with steps, on a log scale."""
    numbers = st.sampled_from((*_REAL, *(-number for number in _REAL))) | st.floats(-1e9, 1e9)
    low = draw(numbers)
    narrow = low + draw(st.sampled_from((0.0, 1e-8, 1e-3))) * max(abs(low), 1e-290)
    low, high = sorted((low, draw(numbers | st.just(narrow))))
    log = low > 0 and draw(st.booleans())
    step = float(f"{(high - low) * draw(st.sampled_from(_SHARES)):.6g}") if draw(st.booleans()) else None
    try:
        return Float(name=name, low=low, high=high, log=log, step=step or None)
    except SpecError:  # too wide, or too fine
        reject()


@st.composite
def listed_parameters(draw: st.DrawFn, name: str = "x") -> Ordinal | Categorical:
    """One value or a few, of all kinds, with an order or without."""
    values = tuple(draw(st.lists(st.sampled_from(_LISTED), min_size=1, max_size=4, unique_by=canonical_text)))
    return Ordinal(name=name, values=values) if draw(st.booleans()) else Categorical(name=name, values=values)


def _condition(draw: st.DrawFn, parameter: Parameter) -> Expression:
    """A condition that holds for some values of a parameter, for all, or for none."""
    value = draw(st.sampled_from([parameter.level(0)] if parameter.count > 4 else _levels(parameter)))
    if isinstance(parameter, Float | Integer) and draw(st.booleans()):
        return Expression(f"{parameter.name} > {(parameter.low / 2 + parameter.high / 2)!r}")
    return Expression(f"{parameter.name} == {value!r}")


def _levels(parameter: Parameter) -> list[Value]:
    return [parameter.level(place) for place in range(int(parameter.count))]


@st.composite
def generated_parameters(draw: st.DrawFn, *, machines: bool | None = None) -> list[Parameter]:
    """Up to four parameters, some of which exist under a condition only.

    Args:
        draw: Draws from strategies.
        machines: Whether an instance and a number of nodes are among them; both ways without it.
    """
    found: list[Parameter] = []
    if draw(st.booleans()) if machines is None else machines:
        nodes = draw(st.sampled_from([(1,), (1, 2, 4), (1, 2, 4, 8)]))
        found += machine_parameters(draw(st.integers(1, 4)), nodes)
    # Searchers that predict a table of machines take few settings.
    kinds: list[Callable[[str], st.SearchStrategy[Parameter]]] = [listed_parameters]
    if not machines:
        kinds = [integer_ranges, float_ranges, listed_parameters]
    for number in range(draw(st.integers(0 if found else 1, 2 if machines else 4 - len(found)))):
        one = draw(draw(st.sampled_from(kinds))(f"p{number}"))
        if found and draw(st.integers(0, 3)) == 0:
            try:
                one = replace(one, when=_condition(draw, draw(st.sampled_from(found))))
            except SpecError:
                reject()
        found.append(one)
    return found


# ---------------------------------------------------------------------- what comes of a run

OUTCOMES = ("low edge", "high edge", "constant", "zero", "huge", "opposite", "fails", "mixed")
"""Results that runs may have: the best is at an end of each range, all are alike, or none is usable."""


def _place(parameters: Sequence[Parameter], configuration: Configuration) -> float:
    """The mean of a configuration's features, from 0 to 1."""
    found = [
        float(parameter.features(np.array([configuration[parameter.name]], dtype=object)).mean())
        for parameter in parameters
        if parameter.name in configuration and parameter.feature_names()
    ]
    return sum(found) / len(found) if found else 0.0


def outcome(kind: str, parameters: Sequence[Parameter], configuration: Configuration) -> KnownOutcome:
    """The result of a run, of a kind of `OUTCOMES`.

    Args:
        kind: The kind.
        parameters: The space's parameters.
        configuration: The configuration that is run.
    """
    place = _place(parameters, configuration)
    if kind == "fails" or (kind == "mixed" and place < 0.4):
        return KnownOutcome(3.0, failed="exit code 1")
    scores = {"low edge": place, "high edge": -place, "zero": 0.0, "huge": 1e300, "opposite": 1e300 * (place - 0.5)}
    seconds = {"low edge": 1.0 + 100.0 * place, "high edge": 101.0 - 100.0 * place, "zero": 0.0, "huge": 1e12}
    return KnownOutcome(seconds.get(kind, 60.0), metrics={"score": scores.get(kind, 5.0)})


@st.composite
def generated_problems(draw: st.DrawFn, *, machines: bool | None = None, metrics: bool = True) -> KnownProblem:
    """Problems of generated parameters, objectives and results.

    Args:
        draw: Draws from strategies.
        machines: As for `generated_parameters`.
        metrics: False for the objectives cost and run time only.
    """
    parameters = draw(generated_parameters(machines=machines))
    kind = draw(st.sampled_from(OUTCOMES))
    metric = draw(st.sampled_from(("score", "cost", "runtime") if metrics else ("cost", "runtime")))
    goal: Direction = "maximise" if metric == "score" and draw(st.booleans()) else "minimise"
    bound = Threshold("score", at_most=draw(st.sampled_from((-1e300, 0.0, 0.5, 1e300))))

    def truth(configuration: Configuration, _offer: Offer) -> KnownOutcome:
        return outcome(kind, parameters, configuration)

    return make_problem(
        parameters,
        truth,
        objective=Objective(metric, goal),
        deadline=draw(st.sampled_from((None, 50.0))),
        thresholds=[bound] if metrics and draw(st.booleans()) else [],
    )


def widest_problem() -> KnownProblem:
    """The longest ranges that there are: 2^54 whole numbers in steps, and all positive floats."""
    parameters: list[Parameter] = [
        Integer(name="whole", low=-(2**53), high=2**53, step=3),
        Float(name="real", low=5e-324, high=1.7e308, log=True),
    ]
    objective = Objective("score", "maximise")
    return make_problem(parameters, lambda c, _o: outcome("opposite", parameters, c), objective=objective)


def mixed_problem() -> KnownProblem:
    """Numbers that no single kind of number holds, beside texts, and a narrow range under a condition on one."""
    parameters: list[Parameter] = [
        Ordinal(name="size", values=(2**53 + 1, 2.5, -1.7e308, 1.7e308)),
        Categorical(name="mode", values=("a", 0)),
        Float(name="near", low=1e6, high=1e6 + 0.1, when=Expression("mode == 'a'")),
        Float(name="share", low=0, high=1, step=0.05),
    ]
    return make_problem(parameters, lambda c, _o: outcome("mixed", parameters, c))


# ---------------------------------------------------------------------- a search on one


def check_on_generated_problems(
    make: Callable[[Problem, int], Searcher], examples: int, *, machines: bool = False, metrics: bool = True
) -> None:
    """Check searches on generated problems, the same ones each time.

    Args:
        make: Makes a searcher for a problem and a seed.
        examples: How many problems.
        machines: True for a searcher that takes only spaces with an instance and a number of nodes, and few settings.
        metrics: False for one that takes only the objectives cost and run time.
    """
    taken = 0

    @example(widest_problem(), 1, True, 1)
    @example(mixed_problem(), 3, False, 1)
    @settings(
        max_examples=examples,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(
        generated_problems(machines=machines or None, metrics=metrics),
        st.sampled_from((1, 1, 3)),
        st.booleans(),
        st.integers(0, 3),
    )
    def check(problem: KnownProblem, at_once: int, odd: bool, seed: int) -> None:
        nonlocal taken
        try:
            searcher = make(problem, seed)
        except TradewindError as refusal:
            assert refusal.hint
            assert "\n" not in str(refusal)
            return
        taken += check_search(searcher, problem, TRIALS, at_once=at_once, odd=odd) > 0

    check()
    assert taken, "it refused every problem"


def check_search(searcher: Searcher, problem: KnownProblem, trials: int, *, at_once: int = 1, odd: bool = False) -> int:
    """Search, and check each answer: in time, in the space, new, and an end with its reason.

    Args:
        searcher: The searcher.
        problem: Its problem.
        trials: How many trials at most.
        at_once: Proposals that are asked for at a time; half of them run on while the next are asked for.
        odd: Whether every third run reports an objective that is no number.

    Returns:
        The trials that were run.
    """
    seen: set[str] = set()
    begun = 0  # repetitions count as well: one that is numbered as another trial takes its place
    running: list[Trial] = []
    while begun < trials:
        state = SearchState(running, proposed=begun, trials_left=trials - begun)
        with _processor_time(SECONDS):
            answer = searcher.ask(state, min(at_once, trials - begun))
        if isinstance(answer, NothingLeft):
            assert answer.reason
            assert "\n" not in answer.reason
            assert answer.final or running, f"it waits for nothing: {answer.reason}"
            if not running:
                _check_end(searcher, problem, answer)
                break
        else:
            assert 1 <= len(answer) <= at_once
            for proposal in answer:
                _check_proposal(problem, proposal)
                key = problem.trial_key(proposal.configuration, proposal.fidelity)
                assert key not in seen or (proposal.repeat and isinstance(searcher, Repeats)), f"{proposal} once more"
                seen.add(key)
                running.append(pending(problem, proposal, begun))
                begun += 1
        ended = running if isinstance(answer, NothingLeft) else running[: (len(running) + 1) // 2]
        running = running[len(ended) :]
        for trial in ended:
            searcher.tell(_ended(problem, trial, odd and trial.number % 3 == 1))
    return begun


def _ended(problem: KnownProblem, trial: Trial, odd: bool) -> Trial:
    ended = evaluate(problem, trial.proposal, trial.number)
    if odd and ended.observation is not None:
        value = (math.nan, math.inf, -math.inf)[trial.number // 3 % 3]
        seen = replace(ended.observation, objective=value, metrics={problem.objective.metric: value}, feasible=True)
        ended = replace(ended, observation=seen, state=TrialState.SUCCEEDED)
    return ended


def _check_proposal(problem: KnownProblem, proposal: Proposal) -> None:
    """See that a configuration is one of the space, written as the space writes it, and has features."""
    checked = problem.space.check(proposal.configuration)
    assert dict(checked) == dict(proposal.configuration)
    for name, value in proposal.configuration.items():
        assert type(value) is type(checked[name]), f"{name}={value!r} is of another type than {checked[name]!r}"
        assert json.loads(json.dumps(value)) == value
    row = problem.space.encode([checked])
    assert np.all((row >= -1e-9) & (row <= 1.0 + 1e-9)), f"features of {checked}: {row}"


def _check_end(searcher: Searcher, problem: KnownProblem, answer: NothingLeft) -> None:
    """See that nothing was left where a searcher says so."""
    done = {trial.key for trial in searcher.history if trial.proposal.fidelity == 1.0}
    assert done, f"it ends before the first trial: {answer.reason}"
    if "has been tried" in answer.reason and not isinstance(searcher, Concludes):
        assert problem.space.enumerable
        assert done >= {problem.candidates.key(i) for i in range(len(problem.candidates))}
    assert "no further configuration" not in answer.reason, f"there are others: {answer.reason}"


@contextmanager
def _processor_time(seconds: float) -> Iterator[None]:
    """Fail where a block takes more processor time, however busy the machine is."""

    def fail(_signal: int, _frame: FrameType | None) -> None:
        raise AssertionError(f"no answer within {seconds:g} s of processor time")

    if threading.current_thread() is not threading.main_thread():  # only there signals arrive
        yield
        return
    before = signal.signal(signal.SIGVTALRM, fail)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, before)
