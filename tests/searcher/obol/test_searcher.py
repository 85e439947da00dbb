from __future__ import annotations

import itertools
import math
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import integrate, stats
from tests.effort import share

from tradewind import plugins
from tradewind.problem import Billing, Budget, Configuration, Integer, Objective, Offer, Problem, TrialState
from tradewind.searcher.acquisition import expected_saving
from tradewind.searcher.base import NothingLeft, Searcher, SearchState
from tradewind.searcher.obol import ObolSearcher, ObolSettings, kernel
from tradewind.searcher.obol.arrays import Floats, Ints, LookaheadRules, make_workspace
from tradewind.searcher.obol.bagged_trees import BaggedTrees, CostTerms, make_bags
from tradewind.searcher.obol.binned_columns import BinnedColumns, LevelFeatureMap
from tradewind.searcher.obol.model import truncated_mean
from tradewind.searcher.obol.searcher import latin_hypercube
from tradewind.testing import problems
from tradewind.testing.problems import KnownOutcome, drive, evaluate
from tradewind.testing.searchers import MakeSearcher, SearcherConformance, proposed_keys
from tradewind.utils import jit


@pytest.mark.slow
class TestVariant(SearcherConformance):
    """The suite with what is not the default; the default runs with all registered searchers."""

    examples = share(4, 1)
    trials = share(12, 7)

    @pytest.fixture
    def make(self) -> MakeSearcher:
        settings = ObolSettings(
            depth=1,
            target="log_cost",
            features="machines",
            design="lhs",
            abort=True,
            switch_seconds=10,
            exact=20,
            roots=9,
        )
        return lambda problem, seed: ObolSearcher(settings=settings, problem=problem, seed=seed)


def searcher(problem: Problem, seed: int = 1, **settings: Any) -> Searcher:
    made = plugins.create("searcher", "obol", settings, problem=problem, seed=seed)
    assert isinstance(made, Searcher)
    return made


# ---------------------------------------------------------------------- a small field


def grid(seed: int, levels: tuple[int, ...]) -> tuple[Floats, Floats]:
    """Rows of a grid in random order, and a cost for each."""
    rng = np.random.default_rng(seed)
    numbers = np.array(np.meshgrid(*[np.arange(n) ** 1.5 for n in levels])).reshape(len(levels), -1).T
    rng.shuffle(numbers)
    cost = np.exp(numbers @ rng.normal(size=len(levels)) * 0.4 + rng.normal(size=len(numbers)) * 0.3)
    return numbers, cost


def money(count: int, limit: float = math.inf, switch: float = 0.0) -> CostTerms:
    one = np.ones(count)
    return CostTerms(one * limit, one * 0.9, one, 0.0 * one, one * switch, np.arange(count) % 3)


def rules(depth: int = 0, *, log: bool = False, left: float = math.inf, agreement: float = 0.0) -> LookaheadRules:
    return LookaheadRules(depth, 0.9, 2.326, agreement, log, left, 0)


def grown(
    numbers: Floats,
    rows: list[int],
    y: Floats,
    limit: float,
    rule: LookaheadRules,
    *,
    best: float | None = None,
    switch: float = 0,
) -> BaggedTrees:
    values = np.exp(y) if rule.log else y
    top = math.log(limit) if rule.log else limit
    feasible = values[values <= limit]
    best = float(feasible.min(initial=math.inf)) if best is None else best
    return BaggedTrees(
        BinnedColumns(numbers),
        money(len(numbers), top, switch),
        rows,
        y,
        best,
        float(values.max()),
        rule,
        trees=10,
        seed=4,
    )


# ---------------------------------------------------------------------- trees


def plain_tree(x: Floats, y: Floats, weight: Floats, orders: Any, tries: int, rows: Floats) -> Floats:
    """The tree of the definition, by recursion over masks; what it predicts of ``rows``."""
    out = np.empty(len(rows))
    whole = float(np.average((y - np.average(y, weights=weight)) ** 2, weights=weight))
    node = iter(range(1000))

    def grow(inside: Any, asked: Any) -> None:
        w, v = weight[inside], y[inside]
        mean = float(np.average(v, weights=w))
        spread = float(w @ (v - mean) ** 2)
        if w.sum() >= 2 and spread > 1e-12 and spread / w.sum() >= 1e-3 * whole:
            order, found = orders[next(node)], None
            for place, f in enumerate(order):
                if place >= tries and found is not None:
                    break
                present = np.unique(x[inside, f])
                for below, above in itertools.pairwise(present):
                    left = inside & (x[:, f] <= below)
                    right = inside & ~left
                    parts = [
                        float(weight[s] @ (y[s] - np.average(y[s], weights=weight[s])) ** 2) for s in (left, right)
                    ]
                    gain = spread - sum(parts)
                    if gain > 1e-9 * spread and (found is None or gain > found[0] * (1 + 1e-7)):
                        found = (gain, f, below, above)
            if found is not None:
                _, f, below, above = found
                threshold = (below + above) / 2
                grow(inside & (x[:, f] < threshold), asked & (rows[:, f] < threshold))
                grow(inside & (x[:, f] >= threshold), asked & (rows[:, f] >= threshold))
                return
        out[asked] = mean

    grow(weight > 0, np.ones(len(rows), dtype=bool))
    return out


@pytest.mark.parametrize("seed", range(6))
def test_trees_are_those_of_the_definition(seed: int) -> None:
    numbers, cost = grid(seed, (5, 4, 3, 2, 2))
    rows = list(range(24))
    found = grown(numbers, rows, cost[rows], 1.0, rules()).prediction(np.arange(len(numbers)))
    bags = make_bags(24, 0, 5, 10, 4)
    assert bags.tries == 3
    each = np.array(
        [
            plain_tree(numbers[rows], cost[rows], bags.weights[0, t, :24], bags.orders[0, t], 3, numbers)
            for t in range(10)
        ]
    )
    assert found.mean == pytest.approx(each.mean(axis=0), rel=1e-9)
    assert found.sd == pytest.approx(each.std(axis=0, ddof=1), rel=1e-6, abs=1e-6)


def test_bags_depend_on_seed_and_number_of_trials_alone() -> None:
    shallow, deep = make_bags(9, 0, 4, 10, 5), make_bags(7, 3, 4, 10, 5)
    assert (deep.weights[2, :, :9] == shallow.weights[0]).all()
    assert (deep.orders[2, :, :9] == shallow.orders[0]).all()
    assert (deep.weights[2].sum(axis=1) == 9).all()
    newest = [max(np.flatnonzero(bag)) - 7 for bag in deep.weights[3]]
    assert deep.newest[3].tolist() == [max(n, -1) for n in newest]
    assert (make_bags(9, 0, 4, 10, 6).weights != shallow.weights).any()


def test_more_than_255_numbers_in_a_column_are_put_into_bins() -> None:
    numbers = np.random.default_rng(1).random((1000, 2))
    columns = BinnedColumns(numbers)
    assert columns.codes.max() == 254
    order = np.argsort(numbers[:, 0])
    assert (np.diff(columns.codes[order, 0].astype(int)) >= 0).all()
    assert (np.bincount(columns.codes[:, 0]) <= 4).all()
    assert sum(int(w).bit_count() for w in columns.masks[0, 254]) == 1000


def test_instances_are_ranked_by_price() -> None:
    problem = problems.table_problem(types=6)
    numbers = LevelFeatureMap(problem).of_candidates(problem.candidates)
    prices = [problem.candidates.offer(i).price_per_hour for i in range(len(numbers))]
    for i in range(1, len(numbers)):
        assert (numbers[i, 0] > numbers[i - 1, 0]) == (prices[i] > prices[i - 1])


# ---------------------------------------------------------------------- what a candidate is worth


def test_quadrature_is_exact_to_degree_five() -> None:
    """With the sqrt(pi) of the released code the variance would be 1/pi of what it is."""
    moments = [float(kernel._WEIGHTS @ kernel._NODES**power) for power in range(6)]
    assert moments == pytest.approx([1.0, 0.0, 1.0, 0.0, 3.0, 0.0], abs=1e-12)


@pytest.mark.parametrize(
    ("mean", "sd", "best", "limit"), [(2.0, 0.7, 2.5, 3.0), (5.0, 1.0, 2.0, 4.0), (1.0, 0.1, 4.0, 0.9)]
)
def test_constrained_improvement_is_the_product_of_the_paper(mean: float, sd: float, best: float, limit: float) -> None:
    normal = stats.norm(mean, sd)
    gain = integrate.quad(lambda c: (best - c) * normal.pdf(c), mean - 12 * sd, best, epsabs=1e-14)[0]
    assert kernel.worth(mean, sd, best, limit, False) == pytest.approx(gain * normal.cdf(limit), rel=1e-6)


def test_constrained_improvement_of_a_logarithm() -> None:
    for mean, sd, best in ((0.3, 0.5, 2.0), (1.5, 0.2, 1.0)):
        assert kernel.worth(mean, sd, best, math.inf, True) == pytest.approx(
            float(expected_saving(mean, sd, best, math.inf)), rel=1e-9
        )


def test_certain_candidates() -> None:
    assert kernel.worth(2.0, 0.0, 3.0, 2.0, False) == 1.0
    assert kernel.worth(2.0, 0.0, 3.0, 1.9, False) == 0.0
    assert kernel.worth(4.0, 0.0, 3.0, 9.0, False) == 0.0


@pytest.mark.parametrize("log", [False, True])
def test_bounds_are_above_what_candidates_are_worth_and_close(log: bool) -> None:
    """A bound that is too low loses a candidate that is the best; one that is loose saves nothing."""
    rng = np.random.default_rng(7)
    mean, sd = rng.normal(1.0, 1.0, 400), rng.choice([0.0, 0.02, 0.3, 2.0], 400)
    limit = np.where(rng.random(400) < 0.2, math.inf, mean + rng.normal(0.0, 1.5, 400))
    limit[::9] = mean[::9]
    chance = rng.uniform(0.1, 1.0, 400)
    best = 1.7
    numbers = np.arange(400.0)[:, None]
    one = np.ones(400)
    money = CostTerms(limit, chance, one, one, one, np.zeros(400, dtype=np.int64))
    model = BaggedTrees(BinnedColumns(numbers), money, [0, 1], np.ones(2), best, 1.0, rules(), 2, 0)
    workspace = make_workspace(model.trials, model.field, 0)._replace(mean=mean, sd=sd)
    workspace.bound[:] = 0.0
    workspace.bound[5] = -1.0
    first = kernel._bounds(math.log(best) if log else best, best if log else 1.0, model.field, workspace)
    worth = np.array([kernel.worth(*row, log) for row in zip(mean, sd, np.full(400, best), limit, strict=True)])
    here = np.arange(400) != 5
    assert (workspace.bound[here] >= (worth * chance)[here] * (1.0 - 1e-12)).all()
    assert workspace.bound[5] == -1.0
    assert first != 5
    loose = (np.maximum((math.log(best) if log else best) - mean, 0.0) + 0.399 * sd) * (best if log else 1.0) * chance
    assert np.median((workspace.bound - worth * chance)[here]) < 0.5 * np.median((loose - worth * chance)[here])


def test_agreement_is_a_share_of_the_mean() -> None:
    assert kernel.moments(30.0, 90.0, 10, 1.0, 2.0, rules(agreement=10.0)) == (7.0, 70.0)
    assert kernel.moments(30.0, 90.0, 10, 1.0, 2.0, rules()) == (7.0, 0.0)


# ---------------------------------------------------------------------- lookahead


def plain_utility(
    numbers: Floats, rows: list[int], y: Floats, limit: float, rule: LookaheadRules, switch: float, first: int,
    depth: int, best: float, machines: int,
) -> tuple[float, float]:  # fmt: skip
    """Algorithm 3 by recursion: every model grown anew, every candidate evaluated."""
    here = rule._replace(depth=0, machines=machines)
    model = grown(numbers, rows, y, limit, here, best=best, switch=switch)
    seen = model.prediction(np.array([first]))
    free = np.array([i for i in range(len(numbers)) if i not in rows])
    target = model.prediction(free).target
    utility = kernel.worth(seen.mean[0], seen.sd[0], target, model.field.limit[0], rule.log) * 0.9
    spend = float(seen.spend[0])
    if depth == 0:
        return utility, spend
    for root, weight in zip((-math.sqrt(3), 0.0, math.sqrt(3)), (1 / 6, 2 / 3, 1 / 6), strict=True):
        label = float(seen.mean[0] + root * seen.sd[0])
        value = math.exp(label) if rule.log else label
        paid = value + (switch if first % 3 != machines else 0.0)
        if value <= 0 or paid > rule.money:
            continue
        left = rule._replace(money=rule.money - paid)
        reached = min(best, value) if value <= limit else best
        others = np.array([i for i in free if i != first])
        labels = np.append(y, label)
        after = grown(
            numbers,
            [*rows, first],
            labels,
            limit,
            left._replace(depth=0, machines=first % 3),
            best=reached,
            switch=switch,
        ).prediction(others)
        allowed = np.flatnonzero(after.dear <= left.money)
        if not len(allowed):
            continue
        following = int(others[allowed[int(np.argmax(np.round(after.improvement[allowed], 12)))]])
        u, c = plain_utility(
            numbers, [*rows, first], labels, limit, left, switch, following, depth - 1, reached, first % 3
        )
        utility, spend = utility + 0.9 * weight * u, spend + 0.9 * weight * c
    return utility, spend


@pytest.mark.parametrize(
    ("seed", "depth", "log", "limit", "switch"),
    [
        (1, 1, False, 2.0, 0.0),
        (2, 2, False, 2.0, 0.3),
        (3, 2, True, 1.5, 0.0),
        (4, 2, False, 1e-9, 0.0),
        (5, 3, False, 3.0, 0.1),
    ],
)
def test_lookahead_is_the_recursion_of_the_paper(seed: int, depth: int, log: bool, limit: float, switch: float) -> None:
    """Trees that are kept, pruning and the stack change nothing."""
    numbers, cost = grid(seed, (4, 3, 2))
    rows = list(range(8))
    y = np.log(cost[rows]) if log else cost[rows]
    rule = rules(depth, log=log, left=6.0 * float(cost.mean()))
    ensemble = grown(numbers, rows, y, limit, rule, switch=switch)
    free: Ints = np.arange(8, len(numbers))
    seen = ensemble.prediction(free)
    roots = np.arange(0, len(free), 3)
    first = np.array([seen.mean, seen.sd, seen.improvement, seen.spend])[:, roots]
    found = ensemble.paths(free, roots, first, threads=1)
    best = ensemble.trials.best
    for place, root in enumerate(roots):
        u, c = plain_utility(numbers, rows, y, limit, rule, switch, int(free[root]), depth, best, 0)
        if math.isinf(best):
            # The first run is measured against what all candidates leave open, as the root model does.
            u += (
                float(first[2, place])
                - kernel.worth(first[0, place], first[1, place], seen.target, ensemble.field.limit[0], log) * 0.9
            )
        assert found[:, place] == pytest.approx([u, c], rel=1e-6, abs=1e-9)
    assert found[1].min() > 0


@pytest.mark.slow
def test_threads_change_nothing() -> None:
    problem = problems.table_problem(dollars=8.0)
    one, three = (keys_of(problem, threads=threads) for threads in (1, 3))
    assert one == three


def keys_of(problem: problems.KnownProblem, **settings: Any) -> list[str]:
    return [trial.key for trial in drive(searcher(problem, **settings), problem, 9)]


_WITHOUT = """
import sys
sys.modules["numba"] = None
from tradewind import plugins
from tradewind.utils import jit
from tradewind.testing import problems
assert not jit.COMPILED
problem = problems.conditional_problem(dollars=4.0)
made = plugins.create("searcher", "obol", {"depth": 2, "agreement": 10}, problem=problem, seed=3)
for trial in problems.drive(made, problem, 9):
    print(trial.key, dict(trial.proposal.why))
"""


@pytest.mark.thorough
@pytest.mark.slow
def test_without_numba_the_choices_are_the_same() -> None:
    """To the last digit of what is said of them."""
    assert jit.COMPILED
    problem = problems.conditional_problem(dollars=4.0)
    here = [f"{t.key} {dict(t.proposal.why)}" for t in drive(searcher(problem, 3, depth=2, agreement=10), problem, 9)]
    there = subprocess.run(
        [sys.executable, "-W", "error", "-c", _WITHOUT], capture_output=True, text=True, check=False, timeout=100
    )
    assert there.returncode == 0, there.stderr
    assert there.stdout.splitlines() == here
    assert "pip install 'tradewind[fast]'" in there.stderr
    assert there.stderr.count("\n") == 1


_CACHE = """
import sys
import numba.core.caching as caching

def refuse(*_): raise OSError("read-only")

for name in dir(caching):  # some versions of numba write them with an underscore
    if name.lstrip("_") in sys.argv[1:]:
        getattr(caching, name).ensure_cache_path = refuse
from tradewind.searcher.obol import kernel
print(kernel.worth(2.0, 0.0, 3.0, 2.0, False), kernel.worth.stats.cache_path)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("refusing", "where"),
    [
        ([], "searcher/obol/__pycache__"),
        pytest.param(["InTreeCacheLocator"], "home", marks=pytest.mark.thorough),
        pytest.param(["InTreeCacheLocator", "UserWideCacheLocator"], "None", marks=pytest.mark.thorough),
    ],
)
def test_compiled_code_is_kept_where_it_can_be(tmp_path: Path, refusing: list[str], where: str) -> None:
    """Beside the source; where that is read-only, in the user's cache folder; nowhere if neither can be written."""
    surroundings = {**os.environ, "HOME": str(tmp_path / "home"), "XDG_CACHE_HOME": str(tmp_path / "home/cache")}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", _CACHE, *refusing],
        capture_output=True, text=True, check=False, timeout=100, env=surroundings,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    worth, _, folder = done.stdout.strip().partition(" ")
    assert worth == "1.0"
    assert where in folder


def test_where_no_cache_can_be_written_it_compiles_without(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    class Numba:
        @staticmethod
        def njit(**options: Any) -> Any:
            asked.append(options)
            if options.get("cache"):
                raise RuntimeError("cannot cache function: no locator available")
            return lambda function: function

    monkeypatch.setattr(jit, "_numba", Numba)
    monkeypatch.setattr(jit, "COMPILED", True)
    assert jit.njit(abs) is abs
    assert [options.get("cache", False) for options in asked] == [True, False]


@pytest.mark.slow
def test_a_decision_is_quick() -> None:
    """A guard against slips, several times above what is measured; benchmarks/speed has the figures."""
    problem = problems.table_problem(cliff="none", deadline=None)
    made = searcher(problem)
    for trial in drive(searcher(problem, depth=0), problem, 20):
        made.tell(trial)
    made.ask(SearchState(proposed=20))
    started = time.process_time()
    assert not isinstance(made.ask(SearchState(proposed=20)), NothingLeft)
    assert time.process_time() - started < 1.5


# ---------------------------------------------------------------------- starts, budget, stopping


def test_a_latin_hypercube_spreads_over_every_column() -> None:
    levels = np.array(np.meshgrid(range(5), range(5), range(5))).reshape(3, -1).T.astype(float)
    rows = latin_hypercube(levels, 5, np.random.default_rng(1))
    assert len(set(rows)) == 5
    for column in levels[rows].T:
        assert sorted(column) == list(range(5))
    assert sorted(latin_hypercube(levels[:3], 9, np.random.default_rng(1))) == [0, 1, 2]


def test_number_of_starts() -> None:
    problem = problems.table_problem()
    trials = drive(searcher(problem, starts="auto", design="lhs", depth=0), problem, 14)
    stages = [t.proposal.why["stage"] for t in trials]
    assert stages.index("search") == round(0.03 * 405) if "search" in stages else "start" not in stages[12:]
    assert len(drive(searcher(problem, starts=3, depth=0), problem, 3)) == 3


def test_it_stops_where_the_money_pays_for_no_candidate_with_certainty() -> None:
    problem = problems.table_problem()
    made = searcher(problem, depth=0)
    trials = drive(searcher(problem, depth=0), problem, 8)
    for trial in trials:
        made.tell(trial)
    answer = made.ask(SearchState(proposed=8, money_left=0.02))
    assert isinstance(answer, NothingLeft)
    assert answer.final
    assert "99%" in answer.reason
    waiting = made.ask(SearchState([replace(trials[0], state=TrialState.RUNNING, observation=None)], 8, 0.02))
    assert isinstance(waiting, NothingLeft)
    assert not waiting.final


@pytest.mark.slow
def test_no_candidate_above_the_quantile_is_tried() -> None:
    problem = problems.table_problem(cliff="none")
    trials = drive(searcher(problem, depth=0), problem, 12)

    def spend(money: float) -> float | None:
        made = searcher(problem, depth=1)
        for trial in trials:
            made.tell(trial)
        answer = made.ask(SearchState(proposed=12, money_left=money))
        return None if isinstance(answer, NothingLeft) else float(answer[0].why["expected_spend"])

    amounts = [0.2 * 1.4**i for i in range(12)]
    found = [spend(money) for money in amounts]
    assert found[0] is None
    assert found[-1] is not None
    assert all(paid is None or paid <= money for paid, money in zip(found, amounts, strict=True))
    assert found == sorted(found, key=lambda paid: paid is not None)


@pytest.mark.slow
def test_it_stops_where_the_path_promises_no_more_than_epsilon() -> None:
    problem = problems.table_problem()
    made = searcher(problem, depth=1, epsilon=1e6)
    trials = drive(made, problem, 30)
    assert len(trials) == 6
    answer = made.ask(SearchState(proposed=6))
    assert isinstance(answer, NothingLeft)
    assert "epsilon" in answer.reason
    assert len(drive(searcher(problem, depth=0, epsilon=0.0), problem, 12)) == 12


def test_lookahead_finds_what_the_definition_finds_at_depth_zero() -> None:
    """Depth 0 takes the largest improvement for its money."""
    problem = problems.table_problem(cliff="none")
    made = searcher(problem, depth=0)
    for trial in drive(made, problem, 8):
        made.tell(trial)
    answer = made.ask(SearchState(proposed=8))
    assert not isinstance(answer, NothingLeft)
    why = answer[0].why
    assert why["path_improvement"] == why["expected_saving"]
    assert float(why["expected_saving"]) > 0


def test_a_change_of_machines_is_paid_for() -> None:
    problem = problems.table_problem(cliff="none", deadline=None)
    stay, move = (
        drive(searcher(problem, depth=0, agreement=10, switch_seconds=seconds), problem, 8) for seconds in (1e9, 0.0)
    )
    assert [t.offer.key for t in stay[:5]] == [t.offer.key for t in move[:5]]
    assert {t.offer.key for t in stay[5:]} == {stay[4].offer.key}
    assert {t.offer.key for t in move[5:]} != {move[4].offer.key}
    assert all(t.proposal.why["expected_cost"] == t.proposal.why["expected_spend"] for t in (*stay[5:], *move[5:]))


# ---------------------------------------------------------------------- runs that were cut short


def test_truncated_mean() -> None:
    mean, sd, bound = (
        np.array([1.0, 1.0, 5.0, 2.0, 3.0]),
        np.array([1.0, 1.0, 0.5, 0.0, 0.1]),
        np.array([1.0, -9, 4, 3, 9]),
    )
    expected = [
        stats.truncnorm((b - m) / s, math.inf, m, s).mean() for m, s, b in zip(mean[:3], sd, bound, strict=False)
    ]
    found = truncated_mean(mean, sd, bound)
    assert found[:3] == pytest.approx(expected, rel=1e-9)
    assert found[3] == 3.0
    assert 9.0 <= found[4] < 9.01


def test_runs_are_cut_short_where_they_cannot_win() -> None:
    problem = problems.table_problem(cliff="none", deadline=900.0)
    trials = drive(searcher(problem, depth=0, abort=True), problem, 12, abort=True)
    best = math.inf
    for trial in trials:
        proposal, seen = trial.proposal, trial.observation
        assert seen is not None
        assert proposal.abort_time == 900.0
        if trial.number >= 5 and math.isfinite(best):
            assert proposal.abort_cost == best
        if seen.feasible:
            best = min(best, seen.cost)
    assert any(trial.state == TrialState.ABORTED for trial in trials)
    uncut = drive(searcher(problem, depth=0), problem, 12, abort=False)
    assert all(t.proposal.abort_cost is None and t.proposal.abort_time is None for t in uncut)


@pytest.mark.parametrize("aborted", ["truncated", "bound"])
def test_a_run_that_was_cut_short_is_taken_for_dearer_than_its_bound(aborted: str) -> None:
    problem = problems.table_problem(cliff="none", deadline=None)
    made = searcher(problem, depth=0, aborted=aborted)
    trials = drive(searcher(problem, depth=0), problem, 8)
    for trial in trials[:7]:
        made.tell(trial)
    cut = evaluate(problem, replace(trials[7].proposal, abort_cost=0.3 * trials[7].spent), 7)
    assert cut.state == TrialState.ABORTED
    without = float(made.explain(cut.configuration)["expected_cost"])
    assert cut.observation is not None
    made.tell(replace(cut, observation=replace(cut.observation, cost=50.0)))
    assert float(made.explain(cut.configuration)["expected_cost"]) > max(without, 10.0)


# ---------------------------------------------------------------------- it works


@pytest.mark.thorough
@pytest.mark.parametrize("settings", [{"depth": 0}, {"depth": 0, "target": "log_cost"}])
def test_it_beats_random_search(settings: dict[str, Any]) -> None:
    """On costs that differ by two orders of magnitude; on flat ones ten trees on raw costs do not."""

    def truth(configuration: Configuration, offer: Offer) -> KnownOutcome:
        away = sum(abs(float(configuration[f"p{i}"]) - best) for i, best in enumerate((1, 5, 3)))
        return KnownOutcome(30.0 * 1.6**away / offer.vcpu**0.5)

    parameters = [*problems.machine_parameters(4, (1, 2)), *(Integer(name=f"p{i}", low=0, high=5) for i in range(3))]
    problem = problems.make_problem(parameters, truth, deadline=600.0)
    mean = np.mean([problem.bill(problem.candidates.configuration(i)) for i in range(len(problem.candidates))])
    problem = replace(problem, budget=Budget(dollars=15.0 * float(mean)))
    optimum = problem.optimum()
    assert optimum is not None

    def found(name: str, seed: int, extra: dict[str, Any]) -> float:
        made = plugins.create("searcher", name, extra, problem=problem, seed=seed)
        assert isinstance(made, Searcher)
        seen = [t.observation for t in drive(made, problem, 60) if t.observation is not None and t.observation.feasible]
        return min((s.cost for s in seen), default=20.0) / optimum[1]

    ours = [found("obol", seed, settings) for seed in range(7)]
    random = [found("random", seed, {}) for seed in range(7)]
    assert np.median(ours) < 0.8 * np.median(random)


def test_a_deadline_below_the_minimum_bill_is_read_off_the_bill() -> None:
    """Runs that the minimum bill makes equal cannot be told apart; none is thought infeasible for it."""
    problem = problems.table_problem(
        deadline=1800.0, billing=Billing(minimum_seconds=3600.0, granularity_seconds=1.0), cliff="none"
    )
    trials = drive(searcher(problem, depth=0), problem, 12)
    assert all(float(t.proposal.why["probability_feasible"]) > 0 for t in trials[5:])


@pytest.mark.slow
def test_the_same_whatever_the_order_of_telling_with_aborted_trials() -> None:
    problem = problems.table_problem(cliff="none", objective=Objective("runtime"))
    trials = drive(searcher(problem, depth=1, abort=True), problem, 10, abort=True)
    first, second = searcher(problem, depth=1), searcher(problem, depth=1)
    for trial in trials:
        first.tell(trial)
    for trial in reversed(trials):
        second.tell(trial)
    state = SearchState(proposed=10)
    assert proposed_keys(first.ask(state, 2)) == proposed_keys(second.ask(state, 2))
