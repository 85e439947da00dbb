"""Compares searchers on a table: how near to the optimum they come for their money, over many seeds."""

from __future__ import annotations

import csv
import hashlib
import math
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from tradewind import plugins
from tradewind.errors import InputError, MissingProgramError
from tradewind.problem import Budget, Proposal, Trial, stable_hash
from tradewind.searcher.base import NothingLeft, SearchState
from tradewind.testing.problems import KnownProblem, drive, evaluate
from tradewind.testing.recorded_tables import RecordedProblem, TableColumns, read_table
from tradewind.utils.dependencies import install_command

NEVER = math.inf
CLOSE = 0.05
"""Distance from the optimum that counts as found: 5 %."""
RESULT_COLUMNS = ("table", "searcher", "protocol", "budget", "seed", "dopt", "nex", "spent", "to_close", "cpu_seconds")
PROTOCOLS = {
    "engine": "as Tradewind searches: runs that cannot win are cut short, no run passes the budget",
    "obol": "as the paper on OBOL compares: five random starts, the same for all; every run ends and is paid",
}


@dataclass(frozen=True)
class SearcherChoice:
    """A searcher under a label.

    Attributes:
        label: What tables and plots call it, which is what the user wrote.
        name: Its entry-point name.
        settings: Its settings.
    """

    label: str
    name: str
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class Benchmark:
    """A comparison of searchers on a table.

    Attributes:
        table: The CSV.
        columns: The meaning of its columns.
        deadline: Seconds that a run may take, or None.
        quantile: Share of the configurations that meet the deadline, or None.
        objective: ``cost`` or ``runtime``.
        protocol: One of `PROTOCOLS`.
        budgets: Money of a search, in mean costs of a configuration.
        seeds: How many searches of each kind.
    """

    table: Path
    columns: TableColumns
    deadline: float | None
    quantile: float | None
    objective: str
    protocol: str
    budgets: tuple[float, ...]
    seeds: int

    def problem(self) -> RecordedProblem:
        """The table as a problem; it is kept beside and not in here, which is sent to other processes."""
        return _problem(self)

    @cached_property
    def key(self) -> str:
        """A short text that is the same for the same table, columns and deadline."""
        digest = hashlib.sha256(self.table.read_bytes()).hexdigest()
        facts = [repr(self.columns), self.deadline, self.quantile, self.objective, digest]
        return f"{self.table.name}:{stable_hash(facts, 8)}"


@lru_cache(maxsize=4)
def _problem(benchmark: Benchmark) -> RecordedProblem:
    given = benchmark
    return read_table(
        given.table, given.columns, deadline=given.deadline, quantile=given.quantile, objective=given.objective
    )


@dataclass(frozen=True)
class SearchResult:
    """One search.

    Attributes:
        searcher: The searcher's label.
        budget: Mean costs that it had.
        seed: Its seed.
        dopt: Distance of the best feasible run from the optimum (0.05: 5 % above it); infinite where none was found.
        nex: Explorations: runs, under the protocol ``engine`` until the optimum was found.
        spent: Mean costs that it spent.
        to_close: Mean costs until it was first within 5 % of the optimum; infinite where it never was.
        cpu_seconds: Processor time of the search.
    """

    searcher: str
    budget: float
    seed: int
    dopt: float
    nex: int
    spent: float
    to_close: float
    cpu_seconds: float


def run_search(benchmark: Benchmark, choice: SearcherChoice, budget: float, seed: int) -> list[SearchResult]:
    """Search once.

    Under the protocol ``engine`` smaller budgets are read from the search with the largest one, which ends where it has
    found the optimum: nothing more can be learnt of it.
    """
    table = benchmark.problem()
    began = time.process_time()
    own = benchmark.protocol == "obol"
    if own:
        trials, budgets = search_with_starts(table, choice, budget, seed), [budget]
    else:
        problem = replace(table.problem, budget=Budget(dollars=budget * table.mean))
        object.__setattr__(problem, "candidates", table.problem.candidates)
        searcher = plugins.create("searcher", choice.name, choice.settings, problem=problem, seed=seed)
        trials = drive(
            searcher, problem, 2 * len(problem.candidates), abort=True, until=lambda t: _away(table, t) <= 1e-9
        )
        budgets = sorted(benchmark.budgets)
    took = time.process_time() - began
    return [_result(table, choice, trials, each, seed, took, whole=own) for each in budgets]


def search_with_starts(
    table: RecordedProblem, choice: SearcherChoice, budget: float, seed: int, starts: int = 5
) -> list[Trial]:
    """Search as the paper on OBOL compares: random starts that are the same for all, and every run ends and is paid.

    Args:
        table: The table.
        choice: The searcher.
        budget: Mean costs of a configuration; the run that passes it is the last.
        seed: Of the starts and of the searcher.
        starts: How many random configurations are run first, paid from the budget.

    Returns:
        The trials, in order.
    """
    problem: KnownProblem = table.problem
    searcher = plugins.create("searcher", choice.name, choice.settings, problem=problem, seed=seed)
    trials: list[Trial] = []
    left = budget * table.mean

    def run(proposal: Proposal) -> float:
        trial = evaluate(problem, proposal, len(trials))
        trials.append(trial)
        searcher.tell(trial)
        return left - trial.spent

    for i in np.random.default_rng([seed, 2018]).permutation(len(problem.candidates))[:starts]:
        left = run(Proposal(problem.candidates.configuration(int(i))))
    while left >= 0 and len(trials) < len(problem.candidates):
        answer = searcher.ask(SearchState(proposed=len(trials), money_left=left))
        if isinstance(answer, NothingLeft):
            break
        left = run(answer[0])
    return trials


def _away(table: RecordedProblem, trial: Trial) -> float:
    """Distance of a trial from the optimum; infinite for one that nobody would recommend."""
    seen = trial.observation
    if seen is None or not seen.feasible or seen.objective is None or trial.proposal.fidelity < 1.0:
        return NEVER
    return seen.objective / table.best - 1.0


def _result(
    table: RecordedProblem,
    choice: SearcherChoice,
    trials: Sequence[Trial],
    budget: float,
    seed: int,
    took: float,
    *,
    whole: bool,
) -> SearchResult:
    """The result of a search with the runs that a budget pays for, or with all of them (``whole``)."""
    spent, best, count, close = 0.0, NEVER, 0, NEVER
    for trial in trials:
        paid = spent + trial.spent / table.mean
        if paid > budget * (1 + 1e-9) and not whole:
            break
        spent, count, best = paid, count + 1, min(best, _away(table, trial))
        close = spent if best <= CLOSE and close == NEVER else close
    return SearchResult(choice.label, budget, seed, max(0.0, best), count, spent, close, took)


def run_benchmark(
    benchmark: Benchmark,
    choices: Sequence[SearcherChoice],
    out: Path | None,
    processes: int,
    progress: Callable[[int, int], None] = lambda done, whole: None,
) -> list[SearchResult]:
    """Run all searches that are not in the file of results yet, and add each to it as it ends.

    Args:
        benchmark: The comparison.
        choices: The searchers.
        out: CSV of results; an interrupted benchmark goes on with it.
        processes: Searches at the same time.
        progress: Called with the searches done and their number.

    Returns:
        The results of these searchers, budgets and seeds.
    """
    benchmark.problem()  # what is wrong with the table is said before any process is started
    results = {_key(each): each for each in (_recorded(out, benchmark) if out is not None else [])}
    own = benchmark.protocol == "obol"
    jobs = [
        (choice, budget, seed)
        for seed in range(benchmark.seeds)
        for choice in choices
        for budget in (benchmark.budgets if own else (max(benchmark.budgets),))
        if any((choice.label, each, seed) not in results for each in ((budget,) if own else benchmark.budgets))
    ]
    new = out is not None and (not out.exists() or not out.stat().st_size)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        running = [pool.submit(run_search, benchmark, *job) for job in jobs]
        try:
            for done, ended in enumerate(as_completed(running), 1):
                found = ended.result()
                results |= {_key(each): each for each in found}
                if out is not None:
                    _append(out, benchmark, found, header=new)
                    new = False
                progress(done, len(jobs))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    labels = {choice.label for choice in choices}
    wanted = [each for each in results.values() if each.searcher in labels and each.seed < benchmark.seeds]
    return sorted((each for each in wanted if each.budget in benchmark.budgets), key=_key)


def _key(result: SearchResult) -> tuple[str, float, int]:
    return result.searcher, result.budget, result.seed


def _recorded(out: Path, benchmark: Benchmark) -> Iterable[SearchResult]:
    if not out.exists():
        return
    with out.open(newline="") as file:
        reader = csv.DictReader(file)
        if reader.fieldnames is not None and tuple(reader.fieldnames) != RESULT_COLUMNS:
            raise InputError(f"{out} holds no results of a benchmark", hint="name another file with --out")
        for row in reader:
            if row["table"] == benchmark.key and row["protocol"] == benchmark.protocol and row["cpu_seconds"]:
                figures = [float(row[name]) for name in ("dopt", "spent", "to_close", "cpu_seconds")]
                yield SearchResult(
                    row["searcher"], float(row["budget"]), int(row["seed"]), figures[0], int(row["nex"]), *figures[1:]
                )


def _append(out: Path, benchmark: Benchmark, results: Sequence[SearchResult], *, header: bool) -> None:
    with out.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if header:
            writer.writerow(RESULT_COLUMNS)
        for each in results:
            head = [benchmark.key, each.searcher, benchmark.protocol, each.budget, each.seed]
            figures = [each.dopt, each.nex, each.spent, each.to_close, each.cpu_seconds]
            writer.writerow([*head, *(f"{figure:.6g}" for figure in figures)])


@dataclass(frozen=True)
class Summary:
    """The searches of one searcher with one budget.

    Attributes:
        searcher: The searcher's label.
        budget: Mean costs.
        searches: How many.
        dopt: Median distance from the optimum.
        dopt90: The distance that one search in ten exceeds.
        exact: Share that found the optimum.
        close: Share that came within 5 % of it.
        nex: Median number of runs.
        to_close: Median money until within 5 %, in mean costs; infinite where half of the searches never were.
        ratio: Geometric mean of to_close over that of the first searcher on the same seeds; those that never came
            within 5 % count as a quarter more than the budget. None for the first searcher.
        low: Lower end of its 95 % interval, by bootstrap over seeds.
        high: Upper end.
        cpu_seconds: Mean processor time of a search.
    """

    searcher: str
    budget: float
    searches: int
    dopt: float
    dopt90: float
    exact: float
    close: float
    nex: float
    to_close: float
    ratio: float | None
    low: float | None
    high: float | None
    cpu_seconds: float


def summarise(results: Sequence[SearchResult], labels: Sequence[str]) -> list[Summary]:
    """Summaries by budget and searcher, paired by seed with the first searcher."""
    cells: dict[tuple[str, float], dict[int, SearchResult]] = defaultdict(dict)
    for each in results:
        cells[each.searcher, each.budget][each.seed] = each
    found = []
    for budget in sorted({budget for _, budget in cells}):
        base = cells.get((labels[0], budget), {})
        for label in labels:
            if not (own := cells.get((label, budget), {})):
                continue
            ratio = _paired(own, base, budget) if label != labels[0] else (None, None, None)
            dopt = [each.dopt for each in own.values()]
            middle, high = np.quantile(dopt, [0.5, 0.9], method="inverted_cdf")
            found.append(
                Summary(
                    label,
                    budget,
                    len(own),
                    float(middle),
                    float(high),
                    sum(each <= 1e-9 for each in dopt) / len(own),
                    sum(each <= CLOSE for each in dopt) / len(own),
                    statistics.median(each.nex for each in own.values()),
                    float(np.quantile([e.to_close for e in own.values()], 0.5, method="inverted_cdf")),
                    *ratio,
                    statistics.mean(each.cpu_seconds for each in own.values()),
                )
            )
    return found


def _paired(
    own: Mapping[int, SearchResult], base: Mapping[int, SearchResult], budget: float
) -> tuple[float | None, float | None, float | None]:
    """Geometric mean of the ratios of money on the same seeds, with a 95 % interval."""
    seeds = sorted(own.keys() & base.keys())
    if not seeds:
        return None, None, None
    most = 1.25 * budget
    logs = [math.log(min(most, own[s].to_close) / min(most, base[s].to_close)) for s in seeds]
    means = np.random.default_rng(1).choice(logs, (4000, len(logs))).mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return math.exp(statistics.mean(logs)), math.exp(low), math.exp(high)


def check_plot(path: Path) -> None:
    """See that `draw_results` can draw into a file, before there are results.

    Raises:
        MissingProgramError: matplotlib is not installed.
        InputError: It is the name of no picture.
    """
    if not plugins.installed("matplotlib"):
        raise MissingProgramError("a plot needs matplotlib", hint=install_command("plots"))
    if path.suffix not in (".png", ".svg"):
        raise InputError(f"--plot {path} is no picture", hint="name a .png or .svg")


def draw_results(results: Sequence[SearchResult], found: Sequence[Summary], path: Path) -> None:
    """Draw the share of searches within 5 % of the optimum by money, and distance and runs against the budget.

    Args:
        results: The searches.
        found: Their summaries.
        path: What `check_plot` took.

    Raises:
        InputError: The file cannot be written.
    """
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, NullFormatter

    from tradewind.reporting.charts.picture import STYLE

    lines: dict[str, list[Summary]] = defaultdict(list)
    for each in found:
        lines[each.searcher].append(each)
    with mpl.rc_context({**STYLE, "axes.titlesize": 10, "font.size": 9}):
        figure = Figure(figsize=(13, 4.2), dpi=120)
        FigureCanvasAgg(figure)
        share, distance, runs = figure.subplots(1, 3)
        for label, own in lines.items():
            budgets = [each.budget for each in own]
            (line,) = distance.plot(budgets, [1 + each.dopt for each in own], marker="o", label=label)
            colour = line.get_color()
            distance.plot(budgets, [1 + each.dopt90 for each in own], linestyle="--", marker="o", color=colour)
            runs.plot(budgets, [each.nex for each in own], marker="o", color=colour)
            largest = [each.to_close for each in results if (each.searcher, each.budget) == (label, budgets[-1])]
            close = sorted(money for money in largest if money < NEVER)
            steps = [0.0, *close, budgets[-1]]
            shares = [100.0 * i / len(largest) for i in (*range(len(close) + 1), len(close))]
            share.step(steps, shares, where="post", color=colour, label=label)
        share.set(title="Searches within 5 % of the optimum, %", xlabel="money spent, mean costs of a configuration")
        share.set_ylim(0, 102)
        distance.set(title="Best run / optimum: median (dashed: one in ten is worse)", yscale="log")
        plain = FuncFormatter(lambda value, _: f"{value:g}")
        distance.yaxis.set_major_formatter(plain)
        distance.yaxis.set_minor_formatter(plain if max(s.dopt90 for s in found) < 9 else NullFormatter())
        runs.set_title("Runs, median")
        for axes in (distance, runs):
            axes.set_xlabel("budget, mean costs of a configuration")
        share.legend(frameon=False, loc="lower right")
        try:
            figure.savefig(path)
        except OSError as error:
            raise InputError(f"cannot write {path}: {error.strerror}", hint="choose another file") from None
