"""The scripts of benchmarks/compare, on tables that are made up here."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.benchmarks.comparing import FOLDER, call, loaded, start

from tradewind import plugins
from tradewind.problem import Configuration, Proposal
from tradewind.searcher.base import NothingLeft, SearchState
from tradewind.testing.problems import drive, evaluate

DATASETS = FOLDER.parents[2] / "shared/datasets"
MODULES = ("tables", "bench", "prepare", "peers", "results", "run", "analyze")


@pytest.fixture(scope="module")
def scripts() -> Iterator[Any]:
    with loaded(*MODULES) as found:
        yield found


def made_up(scripts: Any, name: str, shift: float = 0.0) -> dict[str, Any]:
    """Three machine types, 1 to 4 nodes, one setting; one configuration fails."""
    machines: dict[str, dict[str, Any]] = {
        "small": {"vcpu": 2, "memory": 4, "price": 0.1, "disk": "ssd"},
        "large": {"vcpu": 8, "memory": 16, "price": 0.45, "disk": "ssd"},
        "odd": {"vcpu": 4, "memory": 32, "price": 0.3, "disk": "hdd"},
    }
    rows = [
        scripts.prepare.row(
            m,
            n,
            40.0 + 3000.0 / (facts["vcpu"] * n) ** 0.9 + 7 * n + shift * (mode == "b"),
            n == 4 and m == "odd",
            mode=mode,
        )
        for m, facts in machines.items()
        for n in (1, 2, 4)
        for mode in ("a", "b")
    ]
    made: dict[str, Any] = scripts.prepare.table(name, machines, rows, problem=("made", name), extra_nodes=1)
    return made


def conditional(scripts: Any) -> dict[str, Any]:
    """Provider A has families, provider B has sizes."""
    rows, machines = [], {}
    for provider, column, level in (("A", "A_family", 0), ("A", "A_family", 1), ("B", "B_vcpu", 0), ("B", "B_vcpu", 1)):
        machine = f"{provider}/{level}"
        machines[machine] = {"provider": provider, "vcpu": 1 + level, "memory": 1, "price": 0.1 + 0.1 * level}
        for nodes in (2, 3):
            values = {"provider": provider, column: level, "nodes": nodes}
            seconds = 100.0 / nodes * (1.0 + 0.3 * level) + (5.0 if provider == "B" else 0.0)
            rows.append({"machine": machine, "nodes": nodes, "values": values, "seconds": seconds, "failed": False})
    parameters = [
        {"kind": "categorical", "name": "provider", "values": ["A", "B"]},
        {"kind": "categorical", "name": "A_family", "values": [0, 1], "when": "provider == 'A'"},
        {"kind": "ordinal", "name": "B_vcpu", "values": [0, 1], "when": "provider == 'B'"},
        {"kind": "nodes", "name": "nodes", "values": [2, 3]},
    ]
    made: dict[str, Any] = scripts.prepare.table(
        "clouds/c", machines, rows, problem=("made", "c"), parameters=parameters
    )
    return made


@pytest.fixture(scope="module")
def work(scripts: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compare")
    made = [made_up(scripts, "toys/one"), made_up(scripts, "toys/two", 50.0), conditional(scripts)]
    (folder / "tables.json").write_text(json.dumps(made))
    return folder


# ---------------------------------------------------------------------- preparing


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.skipif(not (DATASETS / "problems.csv").exists(), reason="the datasets are not beside the repository")
def test_every_table_equals_the_published_figures(scripts: Any) -> None:
    found = scripts.prepare.prepare(DATASETS)  # raises where a figure differs
    counts: dict[str, int] = {}
    for table in found:
        counts[table["family"]] = counts.get(table["family"], 0) + 1
    expected = {"tensorflow": 2, "cherrypick": 3, "scout": 9, "multicloud": 15, "flora": 18, "sparecores": 4, "ec2": 2}
    assert counts == {**expected, "c3o": 11}


def test_a_figure_that_differs_is_an_error(scripts: Any) -> None:
    table = made_up(scripts, "toys/one")
    problem = scripts.tables.build(table)
    bills = [problem.bill(problem.candidates.configuration(i)) for i in range(len(problem.candidates))]
    best = problem.optimum()
    published = {
        "n_configs": "18",
        "n_failed": "2",
        "n_feasible": str(sum(r["seconds"] <= table["deadline"] and not r["failed"] for r in table["rows"])),
        "t_max_s": str(table["deadline"]),
        "mean_cost": str(sum(bills) / len(bills)),
        "opt_cost": str(best[1]),
    }
    scripts.tables.check_against(table, published)
    with pytest.raises(ValueError, match="n_failed 2 is 3 there"):
        scripts.tables.check_against(table, {**published, "n_failed": "3"})


def test_the_bill_is_price_by_time_by_all_nodes(scripts: Any) -> None:
    problem = scripts.tables.build(made_up(scripts, "toys/one"))
    configuration = Configuration({"instance": "large", "nodes": 2, "mode": "a"})
    seconds = 40.0 + 3000.0 / 16**0.9 + 14
    assert problem.bill(configuration) == pytest.approx(seconds / 3600 * 0.45 * 3, rel=1e-5)  # 2 nodes and an extra one


@pytest.mark.slow
def test_missing_datasets_are_named(tmp_path: Path) -> None:
    done = start("prepare.py", str(tmp_path))
    assert done.returncode == 1
    assert "no problems.csv" in done.stderr


# ---------------------------------------------------------------------- one search


def test_noise_is_the_same_for_a_table_a_seed_and_a_configuration(scripts: Any) -> None:
    def times(seed: int) -> list[float]:
        bench = scripts.bench.Bench(made_up(scripts, "toys/one"), "noise10")
        with bench.as_seen(seed) as problem:
            trials = [evaluate(problem, Proposal(problem.candidates.configuration(i))) for i in range(5)]
        return [t.observation.runtime for t in trials if t.observation]

    assert times(3) == times(3)
    assert times(3) != times(4)


def test_the_record_counts_money_and_distance(scripts: Any) -> None:
    bench = scripts.bench.Bench(made_up(scripts, "toys/one"), "second")
    problem, record = bench.problem, scripts.bench.Record(bench)
    ranked = sorted(
        (problem.candidates.configuration(i) for i in range(len(bench))), key=lambda c: (bench.away[c.key], c.key)
    )
    feasible = [c for c in ranked if math.isfinite(bench.away[c.key])]
    assert len(feasible) >= 3
    assert not record.add(evaluate(problem, Proposal(ranked[-1])))  # not feasible
    assert record.dopt(20) == math.inf
    assert not record.add(evaluate(problem, Proposal(feasible[-1])))
    first = record.spent
    assert record.dopt(20) == pytest.approx(bench.away[feasible[-1].key])
    assert record.add(evaluate(problem, Proposal(feasible[0])))
    bills = [problem.bill(c) for c in (ranked[-1], feasible[-1], feasible[0])]
    assert record.exact == pytest.approx(sum(bills) / bench.mean)
    assert record.dopt(20) == 0.0
    assert record.dopt(first) == pytest.approx(bench.away[feasible[-1].key])


def test_a_repetition_draws_its_noise_anew_and_the_record_goes_by_all_runs(scripts: Any) -> None:
    bench = scripts.bench.Bench(made_up(scripts, "toys/one"), "noise10")
    feasible = [
        c for i in range(len(bench)) if math.isfinite(bench.away[(c := bench.problem.candidates.configuration(i)).key])
    ]
    runs = []
    for _ in range(2):
        with bench.as_seen(5) as problem:
            record, seen = scripts.bench.Record(bench), []
            for number in range(6):
                if number:
                    bench.again(feasible[0])
                trial = evaluate(problem, Proposal(feasible[0], repeat=number > 0), number)
                record.add(trial)
                assert trial.observation
                seen.append(trial.observation.runtime)
            assert record.dopt(20) == pytest.approx(bench.away[feasible[0].key])
            runs.append(seen)
    assert runs[0] == runs[1]
    assert len(set(runs[0])) == 6


@pytest.mark.slow
def test_a_search_that_repeats_ends_and_counts_them(scripts: Any) -> None:
    bench = scripts.bench.Bench(made_up(scripts, "toys/one"), "noise10")
    with bench.as_seen(2) as problem:
        searcher = plugins.create("searcher", "tradewind", {}, problem=problem, seed=2)
        record, _ = scripts.bench.search(bench, searcher, abort=True)
    repeated = sum(trial.proposal.repeat for trial in searcher.history)
    assert record.trials == len(searcher.history) <= scripts.bench.MOST_TRIALS
    assert record.trials - repeated <= len(bench)
    assert record.spent == pytest.approx(sum(t.spent for t in searcher.history) / bench.mean)


@pytest.mark.slow
def test_a_search_is_what_drive_does(scripts: Any) -> None:
    bench = scripts.bench.Bench(made_up(scripts, "toys/two"), "minimum60")
    with bench.as_seen(7) as problem:
        record, _ = scripts.bench.search(
            bench, plugins.create("searcher", "gp", {}, problem=problem, seed=7), abort=True
        )
        trials = drive(plugins.create("searcher", "gp", {}, problem=problem, seed=7), problem, 400, abort=True)
    assert record.trials <= len(trials)
    assert record.spent == pytest.approx(sum(t.spent for t in trials[: record.trials]) / bench.mean)
    assert record.exact < scripts.bench.NEVER


@pytest.mark.parametrize("past", ["warm", "complete", "foreign", "shuffled"])
def test_the_past_is_of_other_jobs(scripts: Any, work: Path, past: str) -> None:
    found = scripts.tables.load(work / "tables.json")
    pasts = scripts.bench.Pasts(found)
    bench = scripts.bench.Bench(found[0], "setup120")
    studies = pasts.of(bench, past, 1)
    assert [s.name for s in studies] == (["clouds/c"] if past == "foreign" else ["toys/two"])
    assert studies == pasts.of(bench, past, 1)
    rows = {"toys/two": 18, "clouds/c": 8}[studies[0].name]
    assert len(studies[0].trials) == rows  # all of them: 20 random ones would be more
    truth = scripts.bench.Bench(next(t for t in found if t["name"] == studies[0].name), "setup120").problem
    same = [
        t.observation.cost == pytest.approx(truth.bill(t.configuration)) for t in studies[0].trials if t.observation
    ]
    assert all(same) == (past != "shuffled")


# ---------------------------------------------------------------------- peers


def test_a_grid_has_each_column_once_and_finds_the_nearest_free_row(scripts: Any) -> None:
    grid = scripts.peers.Grid(scripts.tables.build(made_up(scripts, "toys/one")))
    # Price grows with the cores and the disk says no more than what is left; memory has an order of its own.
    assert [c.name for c in grid.columns] == ["instance.vcpu", "instance.memory", "instance.disk", "nodes", "mode"]
    assert len(set(map(tuple, grid.rows.tolist()))) == 18
    free = scripts.peers.np.arange(18)
    for i in range(18):
        assert grid.nearest(grid.rows[i].tolist(), free) == i
    assert grid.nearest(grid.rows[4].tolist(), free[free != 4]) in {2, 3, 5, 0}


@pytest.mark.slow
@pytest.mark.parametrize("table", ["toys/one", "clouds/c"])
def test_optuna_tries_every_row_once(scripts: Any, table: str) -> None:
    pytest.importorskip("optuna")
    made = conditional(scripts) if table == "clouds/c" else made_up(scripts, table)
    code = f"""
import json, sys
sys.path.insert(0, {str(FOLDER)!r})
import peers, tables
from tradewind.testing.problems import drive
problem = tables.build(json.loads({json.dumps(made)!r}))
trials = drive(peers.make("optuna-tpe", problem, 1), problem, 100)
again = drive(peers.make("optuna-tpe", problem, 1), problem, 100)
print(len(trials), len({{t.key for t in trials}}), [t.key for t in trials] == [t.key for t in again])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=110, check=False)
    rows = str(len(made["rows"]))
    assert done.stdout.split() == [rows, rows, "True"], done.stderr


# ---------------------------------------------------------------------- the programs


@pytest.mark.thorough
@pytest.mark.slow
def test_run_goes_on_where_it_stopped_and_analyze_shows_it(work: Path, tmp_path: Path) -> None:
    place = ("--work", str(work))
    which = "random,exhaustive,gp"
    first = call("run.py", *place, "--policies", which, "--seeds", "2", "--billing", "second,noise10")
    # 3 tables; exhaustive has no chance and is run once, except with noise.
    assert f"{3 * (2 + 2) * 2 + 3 * (1 + 2)} searches to do" in first
    assert "0 searches to do" in call("run.py", *place, "--policies", which, "--seeds", "2", "--billing", "second")
    results = work / "results/gp.csv"
    whole = results.read_text()
    results.write_text(whole[:-20])  # as after a kill in the middle of a line
    assert "1 searches to do" in call(
        "run.py", *place, "--policies", "gp", "--seeds", "2", "--billing", "second,noise10"
    )
    assert sorted(line.rsplit(",", 2)[0] for line in results.read_text().splitlines()) == sorted(
        line.rsplit(",", 2)[0] for line in whole.splitlines()
    )

    shown = call("analyze.py", *place, "--every", "--against", "gp", "--plot", str(tmp_path / "share.png"))
    assert "| random, abort |" in shown
    assert "gp by other policies, per second: ratio of money" in shown
    assert "| toys/one |" in shown
    assert (tmp_path / "share.png").stat().st_size > 10_000


@pytest.mark.slow
def test_what_was_recorded_is_not_done_again(
    scripts: Any, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = scripts.results
    monkeypatch.setattr(kept, "RECORDED", tmp_path / "recorded")
    measured = work / "results/random-plain.csv"
    call("run.py", "--work", str(work), "--policies", "random-plain", "--seeds", "2", "--billing", "second")
    before = kept.every(measured.parent, "random-plain")
    assert len(before) == 6
    assert kept.record(measured.parent, "random-plain") == 6
    written = (tmp_path / "recorded/random-plain.csv.gz").read_bytes()

    measured.unlink()
    after = kept.every(measured.parent, "random-plain")
    assert {search: [row[name] for name in kept.FIGURES] for search, row in after.items()} == {
        search: [row[name] for name in kept.FIGURES] for search, row in before.items()
    }
    assert kept.record(measured.parent, "random-plain") == 6
    assert (tmp_path / "recorded/random-plain.csv.gz").read_bytes() == written
    names = sorted({search[0] for search in before})
    left = scripts.run.tasks(["random-plain"], names, ["second"], "cold", range(3), measured.parent)
    assert [task.seeds for task in left] == [(2,)] * 3
    shown = scripts.analyze.Results(measured.parent, names)
    assert "random-plain" in shown.policies
    assert shown.seeds("random-plain", "second", "cold", tuple(names)) == (0, 1)
    scripts.analyze.walls(shown)

    refused = start("results.py", "--work", str(work), "random-plain")
    assert refused.returncode == 2
    assert "has made tables" in refused.stderr
    with pytest.raises(SystemExit, match="nothing of 'chery-pick' was measured or is recorded"):
        kept.record(measured.parent, "chery-pick")
    assert [file.name for file in (tmp_path / "recorded").iterdir()] == ["random-plain.csv.gz"]


@pytest.mark.slow
def test_policies_that_are_not_there_are_named(work: Path, scripts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    out = call("run.py", "--work", str(work), "--policies", "random", "--past", "warm", "--seeds", "1")
    assert "skipped: random: it does not learn from earlier jobs" in out
    missing = scripts.run.Policy("missing", "no_such_searcher", True)
    monkeypatch.setitem(scripts.run.POLICIES, "missing", missing)
    assert "there is no searcher named 'no_such_searcher'" in scripts.run.usable("missing", "cold")
    assert start("run.py", "--work", str(work), "--policies", "rnadom").returncode == 1


def test_bars_are_judged(scripts: Any, work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = tuple(t["name"] for t in scripts.tables.load(work / "tables.json"))
    header = ",".join(scripts.results.COLUMNS)

    def results(close: dict[tuple[str, str], float]) -> Any:
        for policy in ("tradewind", "random"):
            lines = [
                f"{name},{condition},{past},{seed},{money},{money},0,0,0,0,3,1.0,1.0,0.1"
                for name in names
                for (who, past), money in close.items()
                if who == policy
                for condition in scripts.bench.CONDITIONS
                for seed in range(3)
            ]
            (tmp_path / f"{policy}.csv").write_text("\n".join([header, *lines]) + "\n")
        return scripts.analyze.Results(tmp_path, names)

    good = {("tradewind", "cold"): 1.5, ("tradewind", "warm"): 0.5, ("random", "cold"): 9.0}
    scripts.analyze.bars(results(good), names)
    shown = capsys.readouterr().out
    assert "FAIL" not in shown
    assert "pass: per second: geometric mean 1.50 [1.50, 1.50], at most 2.0" in shown
    assert "pass: warm, all, per second: 0.33 [0.33, 0.33] of cold" in shown
    bad = {("tradewind", "cold"): 10.0, ("tradewind", "warm"): 8.0, ("random", "cold"): 9.0}
    scripts.analyze.bars(results(bad), names)
    shown = capsys.readouterr().out
    assert "FAIL: per second: geometric mean 10.00" in shown
    assert "FAIL: toys, per second: 1.11 [1.11, 1.11] of random, abort, the best peer" in shown
    assert "FAIL: warm, all, per second: 0.80" in shown


def test_intervals_resample_seeds(scripts: Any) -> None:
    money = scripts.analyze.np.array([[1.0, 4.0], [1.0, 4.0]])
    figure = scripts.analyze.geometric(money)
    assert figure.value == pytest.approx(2.0)
    assert (figure.low, figure.high) == (pytest.approx(1.0), pytest.approx(4.0))
    assert scripts.analyze.quantile(scripts.analyze.np.array([0.0, 1.0, math.inf]), 0.9) == math.inf


def test_peers_stop_when_nothing_is_left(scripts: Any) -> None:
    problem = scripts.tables.build(made_up(scripts, "toys/one"))

    class First(scripts.peers.Peer):  # type: ignore[misc]
        def wanted(self) -> list[int]:
            return [0] * len(self.grid.columns)

        def learn(self, value: float, late: float, feasible: bool) -> None:
            assert math.isfinite(value)
            assert feasible == (late <= 0)

    assert len(drive(First(problem, 0), problem, 100)) == 18
    assert isinstance(First(problem, 0).ask(SearchState(money_left=0.0)), NothingLeft)
